"""Apply journal events to the state: one deterministic handler per event kind. No handler reads the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.coordination.entries import DEFAULT_TTL_SEQ, AgentEntry, Reservation, StepLease, TaskEntry
from hivemind.coordination.lanes import check_agent
from hivemind.coordination.state import JournalState, task_of_step
from hivemind.coordination.step import CHECKPOINTS, PROOF_MODES, Receipt, Step, receipts_of
from hivemind.fs import Record

PROJECTION_VERSION = 6
"""Raise this number when a change makes the same log give another state. Snapshots of another version are ignored."""

_DETAIL_EVENTS = frozenset({"ending", "recorded", "said", "started", "waits", "landed"})
_Payload = Mapping[str, Any]
_EventHandler = Callable[[JournalState, int, _Payload], None]
_HANDLERS: dict[str, _EventHandler] = {}


def apply_events(state: JournalState, records: Iterable[Record]) -> None:
    """Apply the records, which follow `state.seq` without a gap.

    An event of an unknown kind is counted as unknown, an event of a known kind with unreadable fields as malformed.
    Both stay in the log and have no other effect: no event can make the log unreadable.
    """
    for record in records:
        try:
            handler = _HANDLERS.get(record["kind"]) or _HANDLERS.get(record["kind"].partition(".")[0])
            if handler is None:
                state.unknown += 1
            else:
                handler(state, record["seq"], record)
        except Unreadable:  # the snapshot is damaged, not the event
            raise
        except Exception:  # the boundary of an event: unreadable fields of any sort are counted
            state.malformed += 1
        state.seq = record["seq"]
    state.pack()


def _handles(*kinds: str) -> Callable[[_EventHandler], _EventHandler]:
    """Return a decorator that registers a handler for event kinds. `task` means all `task.*`, `branch` all `branch.*`.

    A handler reads all fields, and raises for an unreadable one, before it changes the state.
    """

    def register(handler: _EventHandler) -> _EventHandler:
        _HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return register


# fields


def _text(payload: _Payload, name: str) -> str:
    text = payload.get(name)
    if type(text) is not str or not text:
        raise ValueError(name)
    return text


def _optional_text(payload: _Payload, name: str) -> str | None:
    return None if payload.get(name) is None else _text(payload, name)


def _texts(payload: _Payload, name: str) -> tuple[str, ...]:
    texts = payload.get(name, ())
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(name)
    return tuple(texts)


def _number(payload: _Payload, name: str, default: int | None = None) -> int:
    number = payload.get(name, default)
    if type(number) is not int:
        raise ValueError(name)
    return number


def _agent(payload: _Payload) -> str:
    return check_agent(payload.get("agent_id"))


def _receipts(payload: _Payload) -> tuple[Receipt, ...]:
    return receipts_of(payload.get("evidence", ()))


# leases and agents


def _drop_lease(state: JournalState, step_id: str) -> None:
    """End the step's lease. Its generation stays recorded, and the next holder gets the next generation."""
    lease = state.leases.pop(step_id, None)
    if lease is not None:
        steps = state.leased_step_ids[lease.holder_agent_id]
        steps.discard(step_id)
        if not steps:
            del state.leased_step_ids[lease.holder_agent_id]


def _free_agent(state: JournalState, agent_id: str) -> None:
    """End the agent's leases and reservations."""
    for step_id in tuple(state.leased_step_ids.get(agent_id, ())):
        _drop_lease(state, step_id)
    for key in [key for key, reservation in state.reservations.items() if reservation.agent_id == agent_id]:
        del state.reservations[key]


@_handles("lease.claimed", "lease.taken_over")
def _lease_claimed(state: JournalState, seq: int, payload: _Payload) -> None:
    step_id, holder = _text(payload, "step_id"), _agent(payload)
    ttl = _number(payload, "ttl_seq", DEFAULT_TTL_SEQ)
    generation = state.generation(step_id) + 1
    _drop_lease(state, step_id)
    state.rows_or_new(task_of_step(step_id)).generations[step_id] = generation
    state.leases[step_id] = StepLease(step_id, holder, seq, seq + ttl, generation)
    state.leased_step_ids.setdefault(holder, set()).add(step_id)


@_handles("lease.renewed")
def _lease_renewed(state: JournalState, seq: int, payload: _Payload) -> None:
    step_id, holder = _text(payload, "step_id"), _agent(payload)
    ttl = _number(payload, "ttl_seq", DEFAULT_TTL_SEQ)
    lease = state.leases.get(step_id)
    if lease is not None and lease.holder_agent_id == holder:
        state.leases[step_id] = StepLease(step_id, holder, lease.acquired_seq, seq + ttl, lease.generation)


@_handles("lease.expired", "lease.released")
def _lease_ended(state: JournalState, _seq: int, payload: _Payload) -> None:
    _drop_lease(state, _text(payload, "step_id"))


@_handles("agent.started", "agent.exited")
def _agent_changed(state: JournalState, seq: int, payload: _Payload) -> None:
    agent_id, word = _agent(payload), payload["kind"].rpartition(".")[2]
    previous_entry = state.agents.get(agent_id)
    last_incarnation = 0 if previous_entry is None else previous_entry.incarnation
    incarnation = _number(payload, "incarnation", last_incarnation + (word == "started"))
    if word == "exited" and incarnation < last_incarnation:  # a late event about an earlier incarnation
        return
    if word == "exited" or incarnation != last_incarnation:
        _free_agent(state, agent_id)
    state.agents[agent_id] = AgentEntry(agent_id, incarnation, word, seq)


@_handles("agent.heartbeat")
def _agent_heartbeat(_state: JournalState, _seq: int, payload: _Payload) -> None:
    _optional_text(payload, "agent_id")


# steps


def _step(state: JournalState, payload: _Payload) -> Step:
    step = state.step(_text(payload, "step_id"))
    if step is None:
        raise ValueError("step_id")
    return step


def _change_step(state: JournalState, step: Step, **fields: Any) -> None:
    state.rows_or_new(step.task).steps[step.id] = replace(step, revision=step.revision + 1, **fields)


def _proof_mode(payload: _Payload, default: str) -> Any:
    mode = payload.get("proof", default)
    if mode not in PROOF_MODES:
        raise ValueError("proof")
    return mode


def _in_fixed_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in CHECKPOINTS if name in names)


def _new_step(task: str, payload: _Payload) -> Step:
    meta = payload.get("meta", {})
    if not isinstance(meta, dict):
        raise TypeError("meta")
    return Step(
        _text(payload, "step_id"),
        task,
        _number(payload, "position"),
        _text(payload, "title"),
        _texts(payload, "success_criteria"),
        _texts(payload, "tests"),
        _proof_mode(payload, "off"),
        meta=MappingProxyType(meta),
    )


@_handles("step.added")
def _steps_added(state: JournalState, _seq: int, payload: _Payload) -> None:
    task = _text(payload, "task_id")
    definitions = payload.get("steps", [payload])
    if not isinstance(definitions, list) or not all(isinstance(definition, dict) for definition in definitions):
        raise ValueError("steps")
    steps = [_new_step(task, definition) for definition in definitions]
    rows, ids = state.rows(task), {step.id for step in steps}
    if len(ids) < len(steps) or any(
        task_of_step(step_id) != task or (rows and step_id in rows.steps) for step_id in ids
    ):
        raise ValueError("step_id")
    rows = state.rows_or_new(task)
    rows.steps.update((step.id, step) for step in steps)
    rows.last_step_number += len(steps)


@_handles("step.defined")
def _step_defined(state: JournalState, _seq: int, payload: _Payload) -> None:
    step = _step(state, payload)
    fields: dict[str, Any] = {"proof": _proof_mode(payload, step.proof)}
    fields["title"] = _text(payload, "title") if "title" in payload else step.title
    confirmed = set(step.confirmed)
    for name, checkpoint in (("success_criteria", "criteria"), ("tests", "tests")):
        if name in payload:
            fields[name] = _texts(payload, name)
            confirmed.discard(checkpoint)
    _change_step(state, step, confirmed=_in_fixed_order(tuple(confirmed)), **fields)


@_handles("step.noted", "evidence.captured")
def _step_noted(state: JournalState, _seq: int, payload: _Payload) -> None:
    step, checkpoint = _step(state, payload), _optional_text(payload, "checkpoint")
    receipts, commit_id = _receipts(payload), _optional_text(payload, "commit_id")
    linked = step.linked if checkpoint is None else _in_fixed_order((*step.linked, checkpoint))
    _change_step(state, step, linked=linked, evidence=step.evidence + receipts)
    if commit_id is not None:
        state.rows_or_new(step.task).commit_ids.add(commit_id)


@_handles("step.verified")
def _step_verified(state: JournalState, _seq: int, payload: _Payload) -> None:
    step, names = _step(state, payload), _texts(payload, "checkpoints")
    _change_step(state, step, confirmed=_in_fixed_order((*step.confirmed, *names)))


@_handles("step.done")
def _step_done(state: JournalState, _seq: int, payload: _Payload) -> None:
    step, receipts, warnings = _step(state, payload), _receipts(payload), _texts(payload, "warnings")
    _change_step(state, step, status="done", evidence=step.evidence + receipts, warnings=warnings)
    _drop_lease(state, step.id)


@_handles("step.reopened")
def _step_reopened(state: JournalState, _seq: int, payload: _Payload) -> None:
    _change_step(state, _step(state, payload), status="open", confirmed=(), warnings=(), blocked_reason=None)


@_handles("step.blocked")
def _step_blocked(state: JournalState, _seq: int, payload: _Payload) -> None:
    step, reason = _step(state, payload), _optional_text(payload, "reason")
    _change_step(state, step, status="blocked", blocked_reason=reason)


@_handles("step.unblocked")
def _step_unblocked(state: JournalState, _seq: int, payload: _Payload) -> None:
    _change_step(state, _step(state, payload), status="open", blocked_reason=None)


@_handles("step.deleted")
def _step_deleted(state: JournalState, _seq: int, payload: _Payload) -> None:
    step = _step(state, payload)
    _drop_lease(state, step.id)
    del state.rows_or_new(step.task).steps[step.id]


# tasks, lanes, branches, reservations


@_handles("task", "landing")
def _task_changed(state: JournalState, seq: int, payload: _Payload) -> None:
    """Handle every `task.*` and `landing.*` event. The kind's last word, if not in `_DETAIL_EVENTS`, becomes the task's state."""
    if payload["kind"] == "landing.held":  # about a root
        return
    task, word = _text(payload, "task_id"), payload["kind"].rpartition(".")[2]
    previous_entry = state.task(task) or TaskEntry(task, word, None, seq)
    record_digest, previous_digest = _optional_text(payload, "record"), _optional_text(payload, "before")
    entry = replace(
        previous_entry,
        seq=seq,
        title=_optional_text(payload, "title") or previous_entry.title,
        record_digests=previous_entry.record_digests
        if record_digest is None or previous_digest is None
        else (previous_digest, record_digest),
        outcome_digest=_optional_text(payload, "end"),
        addition_count=previous_entry.addition_count + (word == "said"),
    )
    if word not in _DETAIL_EVENTS:
        entry = replace(entry, state=word, agent_id=None if payload.get("agent_id") is None else _agent(payload))
    state.set_task(entry)


@_handles("branch", "lane.published")
def _task_committed(state: JournalState, _seq: int, payload: _Payload) -> None:
    """Handle `lane.published` and every `branch.*` event. An event with a `commit_id` commits that entry of the task's log."""
    task, commit_id = _text(payload, "task_id"), _optional_text(payload, "commit_id")
    if commit_id is not None:
        state.rows_or_new(task).commit_ids.add(commit_id)


@_handles("paths.reserved")
def _paths_reserved(state: JournalState, seq: int, payload: _Payload) -> None:
    holder, patterns, is_shared = _agent(payload), _texts(payload, "patterns"), payload.get("shared", False)
    if not patterns or type(is_shared) is not bool:
        raise ValueError("patterns")
    state.reservations[str(seq)] = Reservation(seq, holder, patterns, is_shared, _optional_text(payload, "reason"))


@_handles("paths.released")
def _paths_released(state: JournalState, _seq: int, payload: _Payload) -> None:
    ids = payload.get("reservations")
    if not isinstance(ids, list) or not all(type(reservation_id) is int for reservation_id in ids):
        raise ValueError("reservations")
    for released_id in ids:
        state.reservations.pop(str(released_id), None)
