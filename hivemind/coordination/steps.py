"""Add, change and close the steps of tasks.

Each change is one check and one append under the journal's lock. The check is, in this order, of the lease, the revision,
the status, the checkpoints and the proof. A refused change leaves no event.
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
from hivemind.coordination.journal import Event, EventDraft, Journal
from hivemind.coordination.lanes import check_agent
from hivemind.coordination.leases import claim_event
from hivemind.coordination.state import JournalState, task_of_step
from hivemind.coordination.step import (
    Evidence,
    Proof,
    Step,
    StepStatus,
    check_checkpoints,
    check_definition,
    check_task,
    invalid_argument,
    proof_gap,
    receipts_of,
)
from hivemind.outcome import Outcome


def check_lease(state: JournalState, step_id: str, agent_id: str | None, generation: int | None) -> None:
    """Raise StepLeaseHeld if another agent holds the step, StaleGeneration if the generation is out of date.

    A caller that passes a generation claims to hold the lease. If that lease was released, has expired or has another
    holder, the call is refused (fencing): a holder that was paused and comes back late cannot change the step. Without a
    generation, only the holder is compared, and everyone may change a step that no one holds.
    """
    lease = state.lease(step_id)
    if lease is not None and lease.holder_agent_id != agent_id:
        raise StepLeaseHeld(lease, agent_id)
    if generation is not None and (lease is None or generation != lease.generation):
        raise StaleGeneration(step_id, agent_id, generation, lease)


def check_leases(state: JournalState, generations: Mapping[str, int | None], agent_id: str | None) -> None:
    """Check several steps as `check_lease` does. `generations` maps step ids to the generations of the caller's leases."""
    for step_id, generation in generations.items():
        check_lease(state, step_id, agent_id, generation)


_Steps = list[Step]
_NOT_DONE: tuple[StepStatus, ...] = ("open", "blocked")


class LeaseProof(TypedDict, total=False):
    """The identity of a change's caller, and the state of the step as the caller knows it.

    `agent_id` is required if the step is leased. `generation` is that of the caller's lease. The change is refused if
    the generation is out of date, or if the step's revision differs from `expected_revision`.
    """

    agent_id: str | None
    generation: int | None
    expected_revision: int | None


def check_step(state: JournalState, step_id: str, lease_proof: LeaseProof) -> Step:
    """Return the step if the caller may change it now.

    Raises UnknownStep, StepLeaseHeld, StaleGeneration, RevisionMismatch.
    """
    step = state.step(step_id)
    if step is None:
        raise UnknownStep(step_id)
    check_lease(state, step_id, _check_optional_agent(lease_proof.get("agent_id")), lease_proof.get("generation"))
    if lease_proof.get("expected_revision") not in (None, step.revision):
        raise RevisionMismatch(step_id, f"is at revision {step.revision}, not {lease_proof['expected_revision']}")
    return step


class Steps:
    """The steps of a workspace. Every change accepts a `LeaseProof` and returns the changed step."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    # adding

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
        """Add a step at the end of a task and return it. `success_criteria` and `tests` have to be confirmed before it can be
        closed.

        `proof` says whether closing requires a receipt, `meta` is any JSON that the caller keeps with the step.
        """
        fields = {"title": title, "success_criteria": success_criteria, "tests": tests, "proof": proof, "meta": meta}
        return self._add(task_id, [fields], agent_id)[0]

    def plan(
        self,
        task_id: str,
        steps: Iterable[Mapping[str, Any]],
        *,
        agent_id: str | None = None,
        leased_to: str | None = None,
    ) -> _Steps:
        """Add several steps, all of them or none, and return them. Each mapping has a `title` and other arguments of `add`.

        The agent `leased_to` gets the lease of the first step, with the longest lifetime that a lease can have.
        """
        return self._add(task_id, list(steps), agent_id, leased_to)

    def _add(
        self, task_id: str, definitions: list[Mapping[str, Any]], agent_id: str | None, leased_to: str | None = None
    ) -> _Steps:
        task, new_ids = check_task(task_id), list[str]()
        checked_definitions = [check_definition({"title": None, **fields}) for fields in definitions]
        if not checked_definitions:
            return []

        def decide(state: JournalState) -> Sequence[EventDraft]:
            rows = state.rows(task)
            number = 0 if rows is None else rows.last_step_number
            position = max((step.position for step in state.steps_of(task)), default=0)
            new_steps = [
                {"step_id": f"{task}.s{number + offset}", "position": position + offset, **fields}
                for offset, fields in enumerate(checked_definitions, 1)
            ]
            new_ids.extend(step["step_id"] for step in new_steps)
            fields = new_steps[0] if len(new_steps) == 1 else {"steps": new_steps}
            payload = {"task_id": task, **_agent_field(agent_id), **fields}
            if leased_to is None:
                return [("step.added", payload)]
            return [("step.added", payload), claim_event(state, new_ids[0], leased_to, MAX_TTL_SEQ)]

        return self._journal.transact_and_query(
            decide, lambda state, _: [state.rows_or_new(task).steps[step_id] for step_id in new_ids]
        )

    # reading

    def get(self, step_id: str) -> Step:
        """Return the step. Raises UnknownStep."""
        step: Step | None = self._journal.view(lambda state: state.step(step_id))
        if step is None:
            raise UnknownStep(step_id)
        return step

    def list(self, task_id: str | None = None) -> _Steps:
        """Return the steps of a task, or of all tasks, ordered by task, position, id."""

        def read_steps(state: JournalState) -> _Steps:
            tasks = state.tasks() if task_id is None else [check_task(task_id)]
            return [step for task in tasks for step in state.steps_of(task)]

        return self._journal.view(read_steps)

    # changing

    def define(
        self,
        step_id: str,
        *,
        title: str | None = None,
        success_criteria: Iterable[str] | None = None,
        tests: Iterable[str] | None = None,
        proof: Proof | None = None,
        **lease_proof: Unpack[LeaseProof],
    ) -> Step:
        """Change the step's definition: the arguments that are not None. Return the changed step. New criteria or tests clear
        their confirmation.
        """
        changes = check_definition(
            without_none(title=title, success_criteria=success_criteria, tests=tests, proof=proof)
        )
        return self._write_event("step.defined", step_id, lease_proof, lambda _: changes, _NOT_DONE)

    def note(
        self, step_id: str, text: str, *, checkpoint: str | None = None, **lease_proof: Unpack[LeaseProof]
    ) -> Step:
        """Add a note to the step and return the changed step. A `checkpoint` that a note names is required for closing."""
        if not isinstance(text, str) or not text.strip():
            raise invalid_argument("a note must have a text")
        payload = {"text": text, **_checkpoint_field(checkpoint)}
        return self._write_event("step.noted", step_id, lease_proof, lambda _: payload)

    def capture(
        self,
        step_id: str,
        evidence: Evidence | Iterable[Evidence],
        *,
        checkpoint: str | None = None,
        commit_id: str | None = None,
        **lease_proof: Unpack[LeaseProof],
    ) -> Step:
        """Add receipts to the step and return the changed step. A `checkpoint` that they are about is required for closing.

        `commit_id` commits the entry with that id in the task's own log.
        """
        receipts = [receipt.as_dict() for receipt in receipts_of(evidence)]
        if not receipts:
            raise invalid_argument("no receipt to keep")
        payload = {"evidence": receipts, **_checkpoint_field(checkpoint), **without_none(commit_id=commit_id)}
        return self._write_event("evidence.captured", step_id, lease_proof, lambda _: payload)

    def verify(
        self,
        step_id: str,
        checkpoints: str | Iterable[str] = ("criteria", "tests"),
        agent_id: str | None = None,
        generation: int | None = None,
        expected_revision: int | None = None,
    ) -> Step:
        """Confirm checkpoints (`criteria`, `tests`, `security`, `perf`, `docs`) and return the changed step.

        The other arguments are as in LeaseProof.
        """
        names = check_checkpoints(checkpoints)
        if not names:
            raise invalid_argument("no checkpoint to confirm")
        lease_proof = LeaseProof(agent_id=agent_id, generation=generation, expected_revision=expected_revision)
        return self._write_event("step.verified", step_id, lease_proof, lambda _: {"checkpoints": names}, _NOT_DONE)

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
        """Close the step and end its lease. Return the closed step. The checkpoints in `confirm` are confirmed on the same line
        of the log.

        `evidence` is added as receipts. `checkpoints` are required in addition to the step's own. The other arguments are as in
        LeaseProof. Raises CheckpointsNotConfirmed, and ProofRequired in proof mode `require` without a valid receipt. Other gaps
        become the step's `warnings`: `PROOF_MISSING` (mode warn), `PROOF_WEAK` (only one of the two kinds).
        """
        receipts, requested = receipts_of(evidence), check_checkpoints(checkpoints)
        newly_confirmed = check_checkpoints(confirm)
        lease_proof = LeaseProof(agent_id=agent_id, generation=generation, expected_revision=expected_revision)

        def decide(step: Step) -> dict[str, Any]:
            if missing := tuple(name for name in step.missing_checkpoints(requested) if name not in newly_confirmed):
                arguments = {"step": step_id, "checkpoints": list(missing)}
                verify_call = call(
                    "verify_step", arguments, "steps.verify", step_id, checkpoints=missing, **_agent_field(agent_id)
                )
                raise CheckpointsNotConfirmed(step_id, f"is not confirmed for: {', '.join(missing)}", verify_call)
            gap = None if step.proof == "off" else proof_gap((*step.evidence, *receipts))
            if gap == "PROOF_MISSING" and step.proof == "require":
                has_failure = any(receipt.is_counterevidence for receipt in (*step.evidence, *receipts))
                reason = "its command failed" if has_failure else "it has no valid receipt"
                remedy = "run a command that shows it, quote a source, or write a file for the step"
                raise ProofRequired(step_id, f"needs a proof: {reason}", remedy=remedy)
            payload: dict[str, Any] = {"evidence": [receipt.as_dict() for receipt in receipts]} if receipts else {}
            return payload if gap is None else {**payload, "warnings": [gap]}

        verification = ("step.verified", {"checkpoints": newly_confirmed}) if newly_confirmed else None
        return self._write_event("step.done", step_id, lease_proof, decide, ("open",), verification)

    def reopen(self, step_id: str, reason: str | None = None, **lease_proof: Unpack[LeaseProof]) -> Step:
        """Open a closed step again, for a `reason`, and return it. Its confirmations are cleared, its receipts stay."""
        return self._write_event(
            "step.reopened", step_id, lease_proof, lambda _: without_none(reason=reason or None), ("done",)
        )

    def block(self, step_id: str, reason: str | None = None, **lease_proof: Unpack[LeaseProof]) -> Step:
        """Mark the step as blocked, for a `reason`, and return it. Its holder keeps the lease."""
        return self._write_event(
            "step.blocked", step_id, lease_proof, lambda _: without_none(reason=reason or None), _NOT_DONE
        )

    def unblock(self, step_id: str, reason: str | None = None, **lease_proof: Unpack[LeaseProof]) -> Step:
        """Mark a blocked step as open, for a `reason`, and return it."""
        return self._write_event(
            "step.unblocked", step_id, lease_proof, lambda _: without_none(reason=reason or None), ("blocked",)
        )

    def delete(self, step_id: str, **lease_proof: Unpack[LeaseProof]) -> None:
        """Remove the step from its task. Its id is not used again. Its events stay in the log."""

        def decide(state: JournalState) -> Sequence[EventDraft]:
            step = check_step(state, step_id, lease_proof)
            agent_field = _agent_field(lease_proof.get("agent_id"))
            return [("step.deleted", {"step_id": step.id, "task_id": step.task, **agent_field})]

        self._journal.transact(decide)

    def end_task(
        self, task_id: str, outcome: Outcome = "done", *, agent_id: str | None = None, **payload: Any
    ) -> Event:
        """Write `task.<outcome>` for a task that has left active/. `payload` is added to the event, which is returned."""
        fields = {"task_id": check_task(task_id), **_agent_field(agent_id), **payload}
        return self._journal.transact(lambda _: [(f"task.{outcome}", fields)])[0]

    def check_end(self, task_id: str, *, agent_id: str | None = None) -> None:
        """Raise StepLeaseHeld if another agent holds a step of the task, because the task must not end then."""
        task, agent = check_task(task_id), _check_optional_agent(agent_id)
        self._journal.view(lambda state: check_leases(state, {step.id: None for step in state.steps_of(task)}, agent))

    @contextmanager
    def freeze_leases(self, generations: Mapping[str, int | None], agent_id: str | None = None) -> Iterator[None]:
        """Within a `with` block, block all changes of leases. Meanwhile the caller writes one line about some steps elsewhere,
        such as a note.

        `generations` maps the ids of those steps to the generations of the caller's leases. Raises StaleGeneration, and
        StepLeaseHeld if another agent holds one of them.
        """
        agent = _check_optional_agent(agent_id)
        with self._journal.locked(lambda state: check_leases(state, generations, agent)):
            yield

    def _write_event(
        self,
        kind: str,
        step_id: str,
        lease_proof: LeaseProof,
        decide: Callable[[Step], dict[str, Any]],
        statuses: Sequence[StepStatus] = get_args(StepStatus),
        preceding_draft: EventDraft | None = None,
    ) -> Step:
        """Write the event `kind` with the payload that `decide` returns. Return the changed step.

        `preceding_draft`, if any, is written before it on the same line of the log. Raises WrongStatus unless the step's status
        is one of `statuses`.
        """

        def draft_events(state: JournalState) -> Sequence[EventDraft]:
            step = check_step(state, step_id, lease_proof)
            if step.status not in statuses:
                raise WrongStatus(step_id, f"is {step.status}; it must be {' or '.join(statuses)}")
            common_fields = {"step_id": step_id, "task_id": step.task, **_agent_field(lease_proof.get("agent_id"))}
            events = [*([] if preceding_draft is None else [preceding_draft]), (kind, decide(step))]
            return [(event, {**common_fields, **payload}) for event, payload in events]

        return self._journal.transact_and_query(
            draft_events, lambda state, _: state.rows_or_new(task_of_step(step_id)).steps[step_id]
        )


def _check_optional_agent(agent_id: str | None) -> str | None:
    return None if agent_id is None else check_agent(agent_id)


def _agent_field(agent_id: str | None) -> dict[str, str]:
    return without_none(agent_id=_check_optional_agent(agent_id))


def _checkpoint_field(checkpoint: str | None) -> dict[str, str]:
    return {} if checkpoint is None else {"checkpoint": check_checkpoints(checkpoint)[0]}


def without_none(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
