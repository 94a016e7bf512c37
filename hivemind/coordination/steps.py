"""The steps of tasks and everything that can be done to them (spec 3, *Steps*).

Every change is one check and one append under the journal's lock, and checks in this order: the lease, the revision,
the status, the checkpoints, the proof. What is refused leaves no event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack, get_args

from hivemind.coordination.entries import MAX_TTL_SEQ
from hivemind.coordination.errors import (
    CheckpointsNotConfirmed,
    ProofRequired,
    RevisionMismatch,
    StaleGeneration,
    StepLeaseHeld,
    UnknownStep,
    WrongStatus,
    call,
)
from hivemind.coordination.journal import Draft, Event, Journal
from hivemind.coordination.lanes import check_agent
from hivemind.coordination.leases import lease_claim
from hivemind.coordination.state import State, task_of_step
from hivemind.coordination.step import (
    Evidence,
    Proof,
    Step,
    StepStatus,
    check_checkpoints,
    check_task,
    definition,
    proof_gap,
    receipts_of,
    refused,
)


def check_lease(state: State, step_id: str, agent_id: str | None, generation: int | None) -> None:
    """Raise StepLeaseHeld if another holds the step, StaleGeneration if the generation shown is not held any more.

    Who shows a generation says that it holds the lease: one that has passed on, was released or ran out is refused
    (fencing), so that a holder that was paused and comes back late changes nothing. Without a generation only the
    holder is looked at, and a step that nobody holds is open to everyone.
    """
    lease = state.lease(step_id)
    if lease is not None and lease.holder_agent_id != agent_id:
        raise StepLeaseHeld(lease, agent_id)
    if generation is not None and (lease is None or generation != lease.generation):
        raise StaleGeneration(step_id, agent_id, generation, lease)


_Steps = list[Step]
_NOT_DONE: tuple[StepStatus, ...] = ("open", "blocked")


class Shown(TypedDict, total=False):
    """Who changes a step and what that rests on: `agent_id` (needed where the step is leased), `generation` (of the lease
    held; refused if that has passed) and `expected_revision` (refused if the step has changed since)."""

    agent_id: str | None
    generation: int | None
    expected_revision: int | None


def check_step(state: State, step_id: str, shown: Shown) -> Step:
    """The step, if this caller may change it now.

    Raises UnknownStep, StepLeaseHeld, StaleGeneration, RevisionMismatch.
    """
    step = state.step(step_id)
    if step is None:
        raise UnknownStep(step_id)
    check_lease(state, step_id, _who(shown.get("agent_id")), shown.get("generation"))
    if shown.get("expected_revision") not in (None, step.revision):
        raise RevisionMismatch(step_id, f"is at revision {step.revision}, not {shown['expected_revision']}")
    return step


class Steps:
    """The steps of a workspace. Every change takes what `Shown` names, and returns the step as it is afterwards."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    # making

    def add(
        self,
        task_id: str,
        title: str,
        *,
        success_criteria: Iterable[str] = (),
        tests: Iterable[str] = (),
        proof: Proof = "off",
        meta: Mapping[str, Any] | None = None,
        agent_id: str | None = None,
    ) -> Step:
        """A new step at the end of a task. `meta` is the caller's own, any JSON."""
        given = {"title": title, "success_criteria": success_criteria, "tests": tests, "proof": proof, "meta": meta}
        return self._add(task_id, [given], agent_id)[0]

    def plan(
        self,
        task_id: str,
        steps: Iterable[Mapping[str, Any]],
        *,
        agent_id: str | None = None,
        leased_to: str | None = None,
    ) -> _Steps:
        """Several new steps at once, all or none; each is a mapping with `title` and what else `add` takes. The lease of the
        first one goes to `leased_to`, if that is given, for as many events as there may be."""
        return self._add(task_id, list(steps), agent_id, leased_to)

    def _add(
        self, task_id: str, given: list[Mapping[str, Any]], agent_id: str | None, leased_to: str | None = None
    ) -> _Steps:
        task = check_task(task_id)
        wanted = [definition({"title": None, **one}) for one in given]
        if not wanted:
            return []

        def decide(state: State) -> Sequence[Draft]:
            rows = state.rows(task)
            number = 0 if rows is None else rows.counter
            position = max((step.position for step in state.steps_of(task)), default=0)
            made = [
                {"step_id": f"{task}.s{number + at}", "position": position + at, **one}
                for at, one in enumerate(wanted, 1)
            ]
            payload = {"task_id": task, **_by(agent_id), **(made[0] if len(made) == 1 else {"steps": made})}
            if leased_to is None:
                return [("step.added", payload)]
            return [("step.added", payload), lease_claim(state, made[0]["step_id"], leased_to, MAX_TTL_SEQ)]

        def look(state: State, events: list[Event]) -> _Steps:
            payload = events[0].payload
            rows = state.make(task)
            return [rows.steps[one["step_id"]] for one in payload.get("steps", [payload])]

        return self._journal.change(decide, look)

    # looking

    def get(self, step_id: str) -> Step:
        """The step. Raises UnknownStep."""
        found: Step | None = self._journal.view(lambda state: state.step(step_id))
        if found is None:
            raise UnknownStep(step_id)
        return found

    def list(self, task_id: str | None = None) -> _Steps:
        """The steps of a task, or of all tasks, in the order of task, position, id."""

        def look(state: State) -> _Steps:
            tasks = state.tasks() if task_id is None else [check_task(task_id)]
            return [step for task in tasks for step in state.steps_of(task)]

        return self._journal.view(look)

    # changing

    def define(
        self,
        step_id: str,
        *,
        title: str | None = None,
        success_criteria: Iterable[str] | None = None,
        tests: Iterable[str] | None = None,
        proof: Proof | None = None,
        **shown: Unpack[Shown],
    ) -> Step:
        """Say anew what the step is. New criteria or tests are not confirmed any more."""
        changed = definition(_given(title=title, success_criteria=success_criteria, tests=tests, proof=proof))
        return self._change("step.defined", step_id, shown, lambda _: changed, _NOT_DONE)

    def note(self, step_id: str, text: str, *, checkpoint: str | None = None, **shown: Unpack[Shown]) -> Step:
        """Keep a note with the step; one that names a checkpoint makes that checkpoint needed for closing."""
        if not isinstance(text, str) or not text.strip():
            raise refused("a note has a text")
        payload = {"text": text, **_linked(checkpoint)}
        return self._change("step.noted", step_id, shown, lambda _: payload)

    def capture(
        self,
        step_id: str,
        evidence: Evidence | Iterable[Evidence],
        *,
        checkpoint: str | None = None,
        commit_id: str | None = None,
        **shown: Unpack[Shown],
    ) -> Step:
        """Keep receipts with the step. `commit_id` commits what the task's own log holds under that id."""
        receipts = [receipt.as_dict() for receipt in receipts_of(evidence)]
        if not receipts:
            raise refused("there is no receipt to keep")
        payload = {"evidence": receipts, **_linked(checkpoint), **_given(commit_id=commit_id)}
        return self._change("evidence.captured", step_id, shown, lambda _: payload)

    def verify(
        self,
        step_id: str,
        checkpoints: str | Iterable[str] = ("criteria", "tests"),
        agent_id: str | None = None,
        generation: int | None = None,
        expected_revision: int | None = None,
    ) -> Step:
        """Confirm checkpoints: `criteria`, `tests`, `security`, `perf`, `docs`."""
        names = check_checkpoints(checkpoints)
        if not names:
            raise refused("there is no checkpoint to confirm")
        shown = Shown(agent_id=agent_id, generation=generation, expected_revision=expected_revision)
        return self._change("step.verified", step_id, shown, lambda _: {"checkpoints": names}, _NOT_DONE)

    def done(
        self,
        step_id: str,
        agent_id: str | None = None,
        generation: int | None = None,
        expected_revision: int | None = None,
        evidence: Evidence | Iterable[Evidence] = (),
        checkpoints: str | Iterable[str] = (),
        confirm: str | Iterable[str] = (),
    ) -> Step:
        """Close the step, which ends its lease. `checkpoints` are needed in addition to those that the step needs; those in
        `confirm` are confirmed in the same event's line.

        Raises CheckpointsNotConfirmed; ProofRequired in proof mode `require` if no receipt counts. What a proof lacks
        otherwise stands in the step's `warnings`: `PROOF_MISSING` (mode warn), `PROOF_WEAK` (only one of two kinds).
        """
        receipts, named, verified = receipts_of(evidence), check_checkpoints(checkpoints), check_checkpoints(confirm)
        shown = Shown(agent_id=agent_id, generation=generation, expected_revision=expected_revision)

        def decide(step: Step) -> dict[str, Any]:
            if lacking := tuple(one for one in step.lacking(named) if one not in verified):
                arguments = {"step": step_id, "checkpoints": list(lacking)}
                verify = call("verify_step", arguments, "steps.verify", step_id, checkpoints=lacking, **_by(agent_id))
                raise CheckpointsNotConfirmed(step_id, f"is not confirmed for: {', '.join(lacking)}", verify)
            gap = None if step.proof == "off" else proof_gap((*step.evidence, *receipts))
            if gap == "PROOF_MISSING" and step.proof == "require":
                against = any(receipt.against for receipt in (*step.evidence, *receipts))
                why = "its command failed" if against else "there is no receipt that counts"
                mend = "run a command that shows it, quote a source, or write a file for the step"
                raise ProofRequired(step_id, f"needs a proof: {why}", mend=mend)
            found: dict[str, Any] = {"evidence": [one.as_dict() for one in receipts]} if receipts else {}
            return found if gap is None else {**found, "warnings": [gap]}

        before = ("step.verified", {"checkpoints": verified}) if verified else None
        return self._change("step.done", step_id, shown, decide, ("open",), before)

    def reopen(self, step_id: str, reason: str | None = None, **shown: Unpack[Shown]) -> Step:
        """Open a closed step again. Nothing of it is confirmed any more; its receipts stay."""
        return self._change("step.reopened", step_id, shown, lambda _: _given(reason=reason or None), ("done",))

    def block(self, step_id: str, reason: str | None = None, **shown: Unpack[Shown]) -> Step:
        """Say that the step cannot go on. Its lease stays with its holder."""
        return self._change("step.blocked", step_id, shown, lambda _: _given(reason=reason or None), _NOT_DONE)

    def unblock(self, step_id: str, reason: str | None = None, **shown: Unpack[Shown]) -> Step:
        """Say that a blocked step can go on."""
        return self._change("step.unblocked", step_id, shown, lambda _: _given(reason=reason or None), ("blocked",))

    def delete(self, step_id: str, **shown: Unpack[Shown]) -> None:
        """Take the step out of its task. Its id is not used again; the log keeps what it was."""

        def decide(state: State) -> Sequence[Draft]:
            step = check_step(state, step_id, shown)
            return [("step.deleted", {"step_id": step.id, "task_id": step.task, **_by(shown.get("agent_id"))})]

        self._journal.transact(decide)

    def end_task(
        self,
        task_id: str,
        outcome: str = "done",
        *,
        agent_id: str | None = None,
        step_id: str | None = None,
        generation: int | None = None,
        ended: bool = False,
        **payload: Any,
    ) -> Event:
        """Write `task.<outcome>` for a whole task, if no other agent holds one of its steps.

        `step_id` and `generation` show the lease that the caller works under. With `ended` the task's folder has left
        active/ already, and the event says so whoever holds a step. Raises StepLeaseHeld, StaleGeneration.
        """
        task, who = check_task(task_id), _who(agent_id)

        def decide(state: State) -> Sequence[Draft]:
            for step in () if ended else state.steps_of(task):
                check_lease(state, step.id, who, None)
            if step_id is not None:
                check_lease(state, step_id, who, generation)
            return [(f"task.{outcome}", {"task_id": task, **_by(agent_id), **payload})]

        return self._journal.transact(decide)[0]

    def check_end(self, task_id: str, *, agent_id: str | None = None) -> None:
        """Raise StepLeaseHeld if another agent holds a step of the task, which `end_task` would refuse."""
        task, who = check_task(task_id), _who(agent_id)

        def look(state: State) -> None:
            for step in state.steps_of(task):
                check_lease(state, step.id, who, None)

        self._journal.view(look)

    @contextmanager
    def guard_all(self, steps: Mapping[str, int | None], agent_id: str | None = None) -> Iterator[None]:
        """Hold off every change of leases while something tagged to these steps is written elsewhere: a card, a note. `steps`
        are their ids, each with the generation that is shown for it.

        Raises StepLeaseHeld, StaleGeneration; a step that is not known is nobody's. Write one line inside, no more.
        """
        who = _who(agent_id)

        def check(state: State) -> None:
            for step_id, generation in steps.items():
                check_lease(state, step_id, who, generation)

        with self._journal.guarding(check):
            yield

    def _change(
        self,
        kind: str,
        step_id: str,
        shown: Shown,
        decide: Callable[[Step], dict[str, Any]],
        statuses: Sequence[StepStatus] = get_args(StepStatus),
        before: Draft | None = None,
    ) -> Step:
        """Write the event with what `decide` says of the step, which must have one of the statuses; `before` in one line."""

        def draft(state: State) -> Sequence[Draft]:
            step = check_step(state, step_id, shown)
            if step.status not in statuses:
                raise WrongStatus(step_id, f"is {step.status}, this needs it {' or '.join(statuses)}")
            named = {"step_id": step_id, "task_id": step.task, **_by(shown.get("agent_id"))}
            events = [*([] if before is None else [before]), (kind, decide(step))]
            return [(event, {**named, **payload}) for event, payload in events]

        return self._journal.change(draft, lambda state, _: state.make(task_of_step(step_id)).steps[step_id])


def _who(agent_id: str | None) -> str | None:
    return None if agent_id is None else check_agent(agent_id)


def _by(agent_id: str | None) -> dict[str, str]:
    return _given(agent_id=_who(agent_id))


def _linked(checkpoint: str | None) -> dict[str, str]:
    return {} if checkpoint is None else {"checkpoint": check_checkpoints(checkpoint)[0]}


def _given(**fields: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
