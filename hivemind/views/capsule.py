"""The capsule: where, why and what next, small and stable under any budget (seed 002, *capsule as HUD*)."""

from __future__ import annotations

from typing import Any

from hivemind.coordination import Call, Step, StepLease, call, claim_call, look_call
from hivemind.layout import HUMAN
from hivemind.views.answer import Capsule, Where
from hivemind.views.scope import Scope
from hivemind.views.signal import Signal, best_action

__all__ = ["build_capsule", "lease_of"]

_MOST_REASONS = 3
_LONGEST = 120


def build_capsule(scope: Scope, signals: list[Signal]) -> Capsule:
    """`where`, `why` (at most three signals) and `next {primary, backup}` (calls that can be made as they stand)."""
    primary, backup = _next(scope)
    proposed = best_action(signals)
    return {
        "where": _where(scope, signals),
        "why": [
            {"code": one.code, "severity": one.severity, "message": _short(one.message)}
            for one in signals[:_MOST_REASONS]
        ],
        "next": {"primary": primary, "backup": backup if proposed is None else proposed.as_dict()},
    }


def lease_of(lease: StepLease) -> dict[str, Any]:
    """A lease as views show it."""
    return {
        "agent_id": lease.holder_agent_id,
        "expires_seq": lease.expires_seq,
        "generation": lease.generation,
    }


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _where(scope: Scope, signals: list[Signal]) -> Where:
    place, step = scope.place, scope.step
    target: dict[str, Any] | None = None
    focus: dict[str, Any] | None = None
    if place.task is not None:
        target = {"kind": "task", "id": place.task, "title": _short(scope.title or place.task)}
    if step is not None:
        focus = {"id": step.id, "path": step.path, "title": _short(step.title)}
        focus |= {"lease": lease_of(scope.leases[step.id])} if step.id in scope.leases else {}
    return {
        "workspace": place.workspace,
        "target": target,
        "docs": {"notes": len(scope.notes), "trace": len(scope.traces), "radar": len(signals)},
        "step_focus": focus,
        "lane": place.lane,
        "branch": "main" if scope.graph is None else scope.graph.branch,
    }


def _next(scope: Scope) -> tuple[Call | None, Call | None]:
    """What comes next by rule: start, nothing, answer what a person is asked, plan, look at the lease, finish the step,
    finish the task."""
    task = scope.place.task
    if task is None:
        waiting = call("list_files", {"path": "tasks/inbox"}, "tasks.list")
        return waiting, call("check_mailbox", {}, "mail.list", scope.agent_id or "human")
    if scope.over:
        return None, None
    if scope.question is not None and scope.agent_id in (None, HUMAN):
        return _answer(scope.question)
    if not scope.steps:
        steps = [{"title": scope.title or task}]
        plan = call("plan_steps", {"steps": steps}, "steps.plan", task, steps, **_by(scope))
        return plan, call(
            "fail_task", {"reason": "it cannot be planned"}, "steps.end_task", task, "failed", **_by(scope)
        )
    step = next((one for one in scope.steps if one.status == "open"), None)
    if step is None:
        blocked = [one for one in scope.steps if one.status == "blocked"]
        end = call("finish_task", {}, "steps.end_task", task, **_by(scope))
        return end, call("resume", {"step": blocked[0].id}, "steps.get", blocked[0].id) if blocked else None
    lease = scope.leases.get(step.id)
    if lease is not None and lease.holder_agent_id != scope.agent_id:
        return look_call(step.id), claim_call(step.id, scope.agent_id, lease.holder_agent_id)
    return _finish(scope, step), _block(scope, step)


def _answer(question: str) -> tuple[Call, Call]:
    """What a person does about a question of the task's, and where it stands."""
    reply = call("reply_mail", {"id": question, "body": "your answer"}, "mail.reply", HUMAN, question, "your answer")
    return reply, call("check_mailbox", {}, "mail.read", HUMAN, question)


def _by(scope: Scope) -> dict[str, str]:
    return {} if scope.agent_id is None else {"agent_id": scope.agent_id}


def _finish(scope: Scope, step: Step) -> Call:
    """Finish the step with what it still lacks: its confirmations come first."""
    lacking = step.lacking()
    if lacking:
        arguments = {"step": step.id, "checkpoints": list(lacking)}
        found = call("verify_step", arguments, "steps.verify", step.id, checkpoints=lacking, **_by(scope))
    else:
        found = call("finish_step", {"step": step.id}, "steps.done", step.id, **_by(scope))
    proof = [] if step.proof == "off" or any(one.counts for one in step.evidence) else ["proof"]
    missing = [*lacking, *proof]
    return {**found, "lacks": missing} if missing else found


def _block(scope: Scope, step: Step) -> Call:
    reason = "what is in the way"
    return call("block_step", {"step": step.id, "reason": reason}, "steps.block", step.id, reason, **_by(scope))
