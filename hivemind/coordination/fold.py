"""The fold: what each event does to the state. Deterministic, total, and reads no clock (spec 3, *Events*)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.coordination.entries import (
    DEFAULT_TTL_SEQ,
    AgentEntry,
    Reservation,
    StepLease,
    TaskEntry,
)
from hivemind.coordination.lanes import check_agent
from hivemind.coordination.state import State, task_of_step
from hivemind.coordination.step import CHECKPOINTS, PROOF_MODES, Receipt, Step, receipts_of
from hivemind.fs import Record

FOLD_VERSION = 6
"""Goes up when the same log would fold to another state: snapshots of another version are not read."""

_OF_THE_RECORD = frozenset({"ending", "recorded", "said"})
_Payload = Mapping[str, Any]
_Fold = Callable[[State, int, _Payload], None]
_FOLDS: dict[str, _Fold] = {}


def apply(state: State, records: Iterable[Record]) -> None:
    """Bring the state up to the last of the records, which follow it without a gap.

    An event of a foreign kind counts as unknown; one of a known kind with unreadable fields counts as malformed. Both
    stay in the log and change nothing else, so that nothing anyone appends can make the log unreadable.
    """
    for record in records:
        try:
            fold = _FOLDS.get(record["kind"]) or _FOLDS.get(record["kind"].partition(".")[0])
            if fold is None:
                state.unknown += 1
            else:
                fold(state, record["seq"], record)
        except Unreadable:  # of the snapshot, not of the event
            raise
        except Exception:  # the boundary of an event: whatever stands in its fields, it is counted and changes nothing
            state.malformed += 1
        state.seq = record["seq"]
    state.pack()


def _on(*kinds: str) -> Callable[[_Fold], _Fold]:
    """Registers what a kind of event, or a family of kinds, does: it reads every field, and raises whatever an unreadable
    one provokes, before it changes anything."""

    def register(fold: _Fold) -> _Fold:
        _FOLDS.update(dict.fromkeys(kinds, fold))
        return fold

    return register


# fields


def _text(payload: _Payload, name: str) -> str:
    found = payload.get(name)
    if type(found) is not str or not found:
        raise ValueError(name)
    return found


def _optional_text(payload: _Payload, name: str) -> str | None:
    return None if payload.get(name) is None else _text(payload, name)


def _texts(payload: _Payload, name: str) -> tuple[str, ...]:
    found = payload.get(name, ())
    if not isinstance(found, list | tuple) or not all(isinstance(item, str) for item in found):
        raise ValueError(name)
    return tuple(found)


def _number(payload: _Payload, name: str, default: int | None = None) -> int:
    found = payload.get(name, default)
    if type(found) is not int:
        raise ValueError(name)
    return found


def _agent(payload: _Payload) -> str:
    return check_agent(payload.get("agent_id"))


def _maybe_agent(payload: _Payload) -> str | None:
    return None if payload.get("agent_id") is None else _agent(payload)


def _receipts(payload: _Payload) -> tuple[Receipt, ...]:
    return receipts_of(payload.get("evidence", ()))


# leases and the lives of agents


def _drop_lease(state: State, step_id: str) -> None:
    """The step has no holder from here on. Its generation is kept, so that the next holder gets a new one."""
    lease = state.leases.pop(step_id, None)
    if lease is not None:
        steps = state.held[lease.holder_agent_id]
        steps.discard(step_id)
        if not steps:
            del state.held[lease.holder_agent_id]


def _free_agent(state: State, agent_id: str) -> None:
    """Everything that ends with its holder: leases and reservations."""
    for step_id in tuple(state.held.get(agent_id, ())):
        _drop_lease(state, step_id)
    for key in [key for key, held in state.reservations.items() if held.agent_id == agent_id]:
        del state.reservations[key]


@_on("lease.claimed", "lease.taken_over")
def _taken(state: State, seq: int, payload: _Payload) -> None:
    step_id, holder = _text(payload, "step_id"), _agent(payload)
    ttl = _number(payload, "ttl_seq", DEFAULT_TTL_SEQ)
    generation = state.generation(step_id) + 1
    _drop_lease(state, step_id)
    state.make(task_of_step(step_id)).generations[step_id] = generation
    state.leases[step_id] = StepLease(step_id, holder, seq, seq + ttl, generation)
    state.held.setdefault(holder, set()).add(step_id)


@_on("lease.renewed")
def _renewed(state: State, seq: int, payload: _Payload) -> None:
    step_id, holder = _text(payload, "step_id"), _agent(payload)
    ttl = _number(payload, "ttl_seq", DEFAULT_TTL_SEQ)
    lease = state.leases.get(step_id)
    if lease is not None and lease.holder_agent_id == holder:
        state.leases[step_id] = StepLease(step_id, holder, lease.acquired_seq, seq + ttl, lease.generation)


@_on("lease.expired", "lease.released")
def _ended(state: State, _seq: int, payload: _Payload) -> None:
    _drop_lease(state, _text(payload, "step_id"))


def _life(state: State, payload: _Payload) -> tuple[str, int]:
    """(the agent, the incarnation that was seen last, 0 if none was)."""
    agent_id = _agent(payload)
    before = state.agents.get(agent_id)
    return agent_id, 0 if before is None else before.incarnation


@_on("agent.started")
def _started(state: State, seq: int, payload: _Payload) -> None:
    agent_id, past = _life(state, payload)
    incarnation = _number(payload, "incarnation", past + 1)
    if incarnation != past:
        _free_agent(state, agent_id)
    state.agents[agent_id] = AgentEntry(agent_id, incarnation, "started", seq)


@_on("agent.exited")
def _exited(state: State, seq: int, payload: _Payload) -> None:
    agent_id, past = _life(state, payload)
    incarnation = _number(payload, "incarnation", past)
    if incarnation < past:  # a late word about an earlier life
        return
    _free_agent(state, agent_id)
    state.agents[agent_id] = AgentEntry(agent_id, incarnation, "exited", seq)


@_on("agent.heartbeat")
def _heartbeat(_state: State, _seq: int, payload: _Payload) -> None:
    _optional_text(payload, "agent_id")


# steps


def _step(state: State, payload: _Payload) -> Step:
    step = state.step(_text(payload, "step_id"))
    if step is None:
        raise ValueError("step_id")
    return step


def _change(state: State, step: Step, **fields: Any) -> None:
    state.make(step.task).steps[step.id] = replace(step, revision=step.revision + 1, **fields)


def _proof(payload: _Payload, default: str) -> Any:
    found = payload.get("proof", default)
    if found not in PROOF_MODES:
        raise ValueError("proof")
    return found


def _some(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in CHECKPOINTS if name in names)


def _new(task: str, payload: _Payload) -> Step:
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
        _proof(payload, "off"),
        meta=MappingProxyType(meta),
    )


@_on("step.added")
def _added(state: State, _seq: int, payload: _Payload) -> None:
    task = _text(payload, "task_id")
    many = payload.get("steps", [payload])
    if not isinstance(many, list) or not all(isinstance(one, dict) for one in many):
        raise ValueError("steps")
    steps = [_new(task, one) for one in many]
    rows, ids = state.rows(task), {step.id for step in steps}
    if len(ids) < len(steps) or any(task_of_step(one) != task or (rows and one in rows.steps) for one in ids):
        raise ValueError("step_id")
    rows = state.make(task)
    rows.steps.update((step.id, step) for step in steps)
    rows.counter += len(steps)


@_on("step.defined")
def _defined(state: State, _seq: int, payload: _Payload) -> None:
    step = _step(state, payload)
    fields: dict[str, Any] = {"proof": _proof(payload, step.proof)}
    fields["title"] = _text(payload, "title") if "title" in payload else step.title
    confirmed = set(step.confirmed)
    for name, checkpoint in (("success_criteria", "criteria"), ("tests", "tests")):
        if name in payload:
            fields[name] = _texts(payload, name)
            confirmed.discard(checkpoint)
    _change(state, step, confirmed=_some(tuple(confirmed)), **fields)


@_on("step.noted")
def _noted(state: State, _seq: int, payload: _Payload) -> None:
    step, checkpoint = _step(state, payload), _optional_text(payload, "checkpoint")
    _change(state, step, linked=_linked(step, checkpoint))


def _linked(step: Step, checkpoint: str | None) -> tuple[str, ...]:
    return step.linked if checkpoint is None else _some((*step.linked, checkpoint))


@_on("evidence.captured")
def _captured(state: State, _seq: int, payload: _Payload) -> None:
    step, checkpoint = _step(state, payload), _optional_text(payload, "checkpoint")
    found, commit = _receipts(payload), _optional_text(payload, "commit_id")
    _change(state, step, linked=_linked(step, checkpoint), evidence=step.evidence + found)
    if commit is not None:
        state.make(step.task).commits.add(commit)


@_on("step.verified")
def _verified(state: State, _seq: int, payload: _Payload) -> None:
    step, names = _step(state, payload), _texts(payload, "checkpoints")
    _change(state, step, confirmed=_some((*step.confirmed, *names)))


@_on("step.done")
def _done(state: State, _seq: int, payload: _Payload) -> None:
    step, found, warnings = _step(state, payload), _receipts(payload), _texts(payload, "warnings")
    _change(state, step, status="done", evidence=step.evidence + found, warnings=warnings)
    _drop_lease(state, step.id)


@_on("step.reopened")
def _reopened(state: State, _seq: int, payload: _Payload) -> None:
    _change(state, _step(state, payload), status="open", confirmed=(), warnings=(), blocked_reason=None)


@_on("step.blocked")
def _blocked(state: State, _seq: int, payload: _Payload) -> None:
    step, reason = _step(state, payload), _optional_text(payload, "reason")
    _change(state, step, status="blocked", blocked_reason=reason)


@_on("step.unblocked")
def _unblocked(state: State, _seq: int, payload: _Payload) -> None:
    _change(state, _step(state, payload), status="open", blocked_reason=None)


@_on("step.deleted")
def _deleted(state: State, _seq: int, payload: _Payload) -> None:
    step = _step(state, payload)
    _drop_lease(state, step.id)
    del state.make(step.task).steps[step.id]


# tasks, lanes, branches, reservations


@_on("task")
def _task(state: State, seq: int, payload: _Payload) -> None:
    """Any `task.*` event: its last word is the task's state, but for those that only tell of its record."""
    task, word = _text(payload, "task_id"), payload["kind"].rpartition(".")[2]
    before = state.task(task) or TaskEntry(task, word, None, seq)
    record, earlier = _optional_text(payload, "record"), _optional_text(payload, "before")
    entry = replace(
        before,
        seq=seq,
        title=_optional_text(payload, "title") or before.title,
        records=before.records if record is None or earlier is None else (earlier, record),
        end=_optional_text(payload, "end"),
        said=before.said + (word == "said"),
    )
    if word not in _OF_THE_RECORD:
        entry = replace(entry, state=word, agent_id=_maybe_agent(payload))
    state.told(task, entry)


@_on("branch")
def _branch(state: State, _seq: int, payload: _Payload) -> None:
    """Any `branch.*` event (created, merged) may commit what the task's log holds under an id."""
    task, commit = _text(payload, "task_id"), _optional_text(payload, "commit_id")
    if commit is not None:
        state.make(task).commits.add(commit)


@_on("lane.published")
def _published(state: State, _seq: int, payload: _Payload) -> None:
    task, commit = _text(payload, "task_id"), _text(payload, "commit_id")
    state.make(task).commits.add(commit)


@_on("paths.reserved")
def _reserved(state: State, seq: int, payload: _Payload) -> None:
    holder, patterns, shared = _agent(payload), _texts(payload, "patterns"), payload.get("shared", False)
    if not patterns or type(shared) is not bool:
        raise ValueError("patterns")
    state.reservations[str(seq)] = Reservation(seq, holder, patterns, shared, _optional_text(payload, "reason"))


@_on("paths.released")
def _released(state: State, _seq: int, payload: _Payload) -> None:
    ids = payload.get("reservations")
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise ValueError("reservations")
    for one in ids:
        state.reservations.pop(str(one), None)
