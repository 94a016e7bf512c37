"""What step events do to the state (spec 3, *Steps*)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from hivemind.coordination.fields import Apply, Malformed, number, optional_text, receipts, text, texts
from hivemind.coordination.fold_leases import drop_lease
from hivemind.coordination.state import State
from hivemind.coordination.step import CHECKPOINTS, PROOF_MODES, Step

__all__ = ["STEP_FOLDS"]


def _step(state: State, payload: Mapping[str, Any]) -> Step:
    step = state.steps.get(text(payload, "step_id"))
    if step is None:
        raise Malformed("step_id")
    return step


def _change(state: State, seq: int, step: Step, **fields: Any) -> None:
    state.steps.put(replace(step, revision=step.revision + 1, changed_seq=seq, **fields))


def _proof(payload: Mapping[str, Any], default: str) -> Any:
    found = payload.get("proof", default)
    if found not in PROOF_MODES:
        raise Malformed("proof")
    return found


def _some(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in CHECKPOINTS if name in names)


def _new(seq: int, task: str, payload: Mapping[str, Any]) -> Step:
    meta = payload.get("meta", {})
    if not isinstance(meta, dict):
        raise Malformed("meta")
    return Step(
        text(payload, "step_id"),
        task,
        number(payload, "position"),
        text(payload, "title"),
        texts(payload, "success_criteria"),
        texts(payload, "tests"),
        _proof(payload, "off"),
        added_seq=seq,
        changed_seq=seq,
        meta=MappingProxyType(meta),
    )


def _added(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    task = text(payload, "task_id")
    many = payload.get("steps", [payload])
    if not isinstance(many, list) or not all(isinstance(one, dict) for one in many):
        raise Malformed("steps")
    steps = [_new(seq, task, one) for one in many]
    if len({step.id for step in steps}) < len(steps) or any(step.id in state.steps for step in steps):
        raise Malformed("step_id")
    for step in steps:
        state.by_task.setdefault(task, []).append(step.id)
        state.steps.put(step)
        state.counters[task] = state.counters.get(task, 0) + 1


def _defined(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    step = _step(state, payload)
    fields: dict[str, Any] = {"proof": _proof(payload, step.proof)}
    fields["title"] = text(payload, "title") if "title" in payload else step.title
    confirmed = set(step.confirmed)
    for name, checkpoint in (("success_criteria", "criteria"), ("tests", "tests")):
        if name in payload:
            fields[name] = texts(payload, name)
            confirmed.discard(checkpoint)
    _change(state, seq, step, confirmed=_some(tuple(confirmed)), **fields)


def _noted(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    step, checkpoint = _step(state, payload), optional_text(payload, "checkpoint")
    _change(state, seq, step, linked=_linked(step, checkpoint))


def _linked(step: Step, checkpoint: str | None) -> tuple[str, ...]:
    return step.linked if checkpoint is None else _some((*step.linked, checkpoint))


def _captured(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    step, checkpoint = _step(state, payload), optional_text(payload, "checkpoint")
    found, commit = receipts(payload), optional_text(payload, "commit_id")
    _change(state, seq, step, linked=_linked(step, checkpoint), evidence=step.evidence + found)
    if commit is not None:
        state.commits.setdefault(step.task, set()).add(commit)


def _verified(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    step, names = _step(state, payload), texts(payload, "checkpoints")
    _change(state, seq, step, confirmed=_some((*step.confirmed, *names)))


def _done(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    step, found, warnings = _step(state, payload), receipts(payload), texts(payload, "warnings")
    _change(state, seq, step, status="done", evidence=step.evidence + found, warnings=warnings)
    drop_lease(state, step.id)


def _reopened(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    _change(state, seq, _step(state, payload), status="open", confirmed=(), warnings=(), blocked_reason=None)


def _blocked(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    step, reason = _step(state, payload), optional_text(payload, "reason")
    _change(state, seq, step, status="blocked", blocked_reason=reason)


def _unblocked(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    _change(state, seq, _step(state, payload), status="open", blocked_reason=None)


def _deleted(state: State, _seq: int, payload: Mapping[str, Any]) -> None:
    step = _step(state, payload)
    drop_lease(state, step.id)
    state.steps.remove(step.id)
    state.by_task[step.task].remove(step.id)


STEP_FOLDS: dict[str, Apply] = {
    "evidence.captured": _captured,
    "step.added": _added,
    "step.blocked": _blocked,
    "step.defined": _defined,
    "step.deleted": _deleted,
    "step.done": _done,
    "step.noted": _noted,
    "step.reopened": _reopened,
    "step.unblocked": _unblocked,
    "step.verified": _verified,
}
