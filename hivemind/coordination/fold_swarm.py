"""What the events of tasks, focus, lanes, branches and reservations do to the state (spec 3, *Events*)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hivemind.coordination.fields import Apply, Malformed, agent, optional_text, text, texts
from hivemind.coordination.reservation import Reservation
from hivemind.coordination.state import State
from hivemind.coordination.swarm import BranchEntry, Focus, TaskEntry

__all__ = ["SWARM_FOLDS", "fold_branch", "fold_task"]


_OF_THE_RECORD = frozenset({"ending", "recorded", "said"})


def _maybe_agent(payload: Mapping[str, Any]) -> str | None:
    return None if payload.get("agent_id") is None else agent(payload)


def fold_task(state: State, seq: int, kind: str, payload: Mapping[str, Any]) -> None:
    """Any `task.*` event: its last word is the task's state, but for those that only tell of its record."""
    task, word = text(payload, "task_id"), kind.rpartition(".")[2]
    before = state.tasks.get(task) or TaskEntry(task, word, None, seq)
    record, earlier = optional_text(payload, "record"), optional_text(payload, "before")
    entry = replace(
        before,
        seq=seq,
        title=optional_text(payload, "title") or before.title,
        records=before.records if record is None or earlier is None else (earlier, record),
        end=optional_text(payload, "end"),
        said=before.said + (word == "said"),
    )
    if word not in _OF_THE_RECORD:
        entry = replace(entry, state=word, agent_id=_maybe_agent(payload))
    state.tasks[task] = entry


def fold_branch(state: State, seq: int, kind: str, payload: Mapping[str, Any]) -> None:
    """Any `branch.*` event (created, merged, deleted): what the hive knows of the branch."""
    task, name, word = text(payload, "task_id"), text(payload, "branch"), kind.rpartition(".")[2]
    base, base_seq = optional_text(payload, "base"), payload.get("base_seq")
    if base_seq is not None and type(base_seq) is not int:
        raise Malformed("base_seq")
    commit = optional_text(payload, "commit_id")
    if commit is not None:
        state.commits.setdefault(task, set()).add(commit)
    key = f"{task}\n{name}"
    before = state.branches.get(key)
    if word == "deleted":
        state.branches.pop(key, None)
        return
    if before is not None:
        base, base_seq = base or before.base, before.base_seq if base_seq is None else base_seq
    state.branches[key] = BranchEntry(task, name, base, base_seq, word, _maybe_agent(payload), seq)


def _focus(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    agent_id = agent(payload)
    state.focus[agent_id] = Focus(agent_id, optional_text(payload, "task_id"), optional_text(payload, "step_id"), seq)


def _published(state: State, _seq: int, payload: Mapping[str, Any]) -> None:
    task, commit = text(payload, "task_id"), text(payload, "commit_id")
    state.commits.setdefault(task, set()).add(commit)


def _reserved(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    holder, patterns, shared = agent(payload), texts(payload, "patterns"), payload.get("shared", False)
    if not patterns or type(shared) is not bool:
        raise Malformed("patterns")
    state.reservations[str(seq)] = Reservation(seq, holder, patterns, shared, optional_text(payload, "reason"))


def _released(state: State, _seq: int, payload: Mapping[str, Any]) -> None:
    ids = payload.get("reservations")
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise Malformed("reservations")
    for one in ids:
        state.reservations.pop(str(one), None)


SWARM_FOLDS: dict[str, Apply] = {
    "focus.set": _focus,
    "lane.published": _published,
    "paths.released": _released,
    "paths.reserved": _reserved,
}
