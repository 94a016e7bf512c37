"""Replay of a finished task from its log, in a temporary copy of the hive."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from itertools import zip_longest
from pathlib import Path

from hivemind.agent.agent import Agent
from hivemind.boundary import boundary
from hivemind.config import HiveConfig, RootConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import copy_tree
from hivemind.layout import Layout
from hivemind.minds.open import open_mind
from hivemind.presence.identity import journal_start, lock_name
from hivemind.presence.parts import Parts
from hivemind.replay.recording import (
    RULE_MIND,
    Difference,
    RecordedMind,
    ReplayCursor,
    differences,
    is_by_rule,
    replayed_tools,
    written_files,
)
from hivemind.taskrun.transcript import Transcript, TranscriptEntry
from hivemind.tasks import FILES, Task, TaskState

_SETTLE_POLL_S = 0.02
_MAX_CYCLES = 500  # limit of cycles between two turns of the log, which only wait or let the task settle in the inbox


@frozen
class ReplayedTurn:
    """One turn of the log, with the differences of its replay."""

    agent: str
    number: int
    step: str | None
    differences: tuple[Difference, ...]


@frozen
class Replay:
    """The result of a replay: all turns of the task, and the names of the agents that took them."""

    task: str
    agents: tuple[str, ...]
    turns: tuple[ReplayedTurn, ...]

    @property
    def has_differences(self) -> bool:
        return any(turn.differences for turn in self.turns)


def replay(hive: Parts, task_id: str, open_hive: Callable[[Layout, HiveConfig], Parts]) -> Replay:
    """Replay the turns of a finished task in a copy of the hive, with the hive's present files, rules and knowledge. Return the
    turns with their differences. `open_hive` opens the copy.

    No model is asked, no command runs, no letter leaves the copy, and the hive does not change. Raises UserError for a task that
    is not finished, or has no turns in its log.
    """
    task = hive.tasks.get(task_id)
    if task.state not in (TaskState.DONE, TaskState.FAILED):
        raise UserError(f"task {task.id} is {task.state.value}: only a finished task can be replayed")
    turns = Transcript(hive.tasks.listing.read_log(task.id)).turns
    if not turns:
        raise UserError(f"the log of task {task.id} has no turns", location=task.path / "messages.jsonl")
    agents = tuple(dict.fromkeys(str(turn.record.get("agent")) for turn in turns))
    for agent in agents:
        if agent not in hive.agents:
            raise UserError(
                f"the agent {agent!r}, which did task {task.id}, no longer exists",
                remedy="hivemind agent add creates it",
            )
    with tempfile.TemporaryDirectory(prefix="hivemind-replay-") as folder:
        scratch = Layout.at(folder)
        _copy_task(hive.layout, scratch, task.path, task.state.value, written_files(turns))
        for name in task.dependencies:  # all were done, or the task could not have started
            (scratch.tasks / TaskState.DONE.value / name).mkdir(exist_ok=True)
        # roots keep their paths and become read-only
        roots = [RootConfig(path=str(path)) for path in hive.config.read_roots(hive.layout)]
        settings = {"roots": roots, "durability": "relaxed", "settle_ms": 0}
        copy = open_hive(scratch, hive.config.model_copy(update=settings))
        earlier_steps = [{"title": "of an earlier attempt", "meta": {"attempt": 0}}] * _steps_before(hive, task)
        copy.steps.plan(task.id, earlier_steps)
        replayed_turns = _replay_turns(copy, task.id, turns, worktrees=bool(task.kept.get("worktrees")))[: len(turns)]
    turn_reports = []
    for number, (recorded, replayed) in enumerate(zip_longest(turns, replayed_turns), 1):
        with boundary("turn of a log", task.path / "messages.jsonl"):
            turn_differences: tuple[Difference, ...] = (Difference("end", "turn", "taken", "not come to"),)
            if replayed is not None:
                turn_differences = tuple(differences(recorded, replayed))
            fields = recorded.record
            turn_reports.append(ReplayedTurn(str(fields["agent"]), number, fields.get("step"), turn_differences))
    return Replay(task.id, agents, tuple(turn_reports))


def _copy_task(hive: Layout, scratch: Layout, task: Path, state: str, written_files: Collection[str]) -> None:
    """Copy the hive's present files and the task's folder, without the files that the task's turns wrote into it."""
    for folder in (hive.agents, hive.rom, hive.knowledge):
        if folder.is_dir():
            copy_tree(folder, scratch.root / hive.relative(folder))
    for path in scratch.folders():
        path.mkdir(parents=True, exist_ok=True)
    copy = scratch.tasks / state / task.name
    copy_tree(task, copy)
    for name in written_files:
        if (copy / FILES / name).is_file():
            (copy / FILES / name).unlink()
    _copy_index(hive.documents_db, scratch.documents_db)


def _copy_index(index: Path, copy: Path) -> None:
    """Copy the index of the documents. If copying fails, leave no index, so a new one is built."""
    try:
        source = sqlite3.connect(f"{index.as_uri()}?mode=ro", uri=True)
        with closing(source), closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    except sqlite3.Error:
        copy.unlink(missing_ok=True)


def _steps_before(hive: Parts, task: Task) -> int:
    """Return the number of steps in earlier attempts at the task. The replay numbers its steps after these, as the task did."""
    if not (task.path / "attempts").is_dir():
        return 0
    return min((int(step.id.rpartition(".s")[2]) for step in hive.steps.list(task.id)), default=1) - 1


def _is_settling(hive: Parts) -> bool:
    """Return True, after a short sleep, while a new task in the inbox may not be claimed yet because its files may still
    change."""
    if hive.tasks.claims.recheck_count:
        time.sleep(_SETTLE_POLL_S)
    return bool(hive.tasks.claims.recheck_count)


def _replay_turns(
    hive: Parts, task: str, turns: Sequence[TranscriptEntry], *, worktrees: bool
) -> list[TranscriptEntry]:
    """Replay the turns in the hive's copy, each by the agent that took it, and return the turns of the copy's log."""
    hive.tasks.retry(task)
    cursor = ReplayCursor(turns)
    agents: dict[str, Agent] = {}
    with ExitStack() as stack:
        stack.callback(hive.journal.close)
        stack.callback(hive.tasks.close)
        for position, turn in enumerate(turns):
            name = str(turn.record["agent"])
            if name not in agents:
                agents[name] = agent = _open_agent(hive, name, cursor, by_rule=is_by_rule(turn), stack=stack)
                agent.tools = replayed_tools(agent.tools, cursor, worktrees=worktrees)
            if not _reach_turn(agents[name], cursor, position):
                break
        return Transcript(hive.tasks.listing.read_log(task)).turns


def _open_agent(hive: Parts, name: str, cursor: ReplayCursor, *, by_rule: bool, stack: ExitStack) -> Agent:
    """Return an agent of the hive's copy with a recorded mind, which the `stack` closes.

    The agent reads no mail: letters about the task are in the task's log, and turns about other mail are in another log.
    """
    stack.callback(lock_name(hive.layout, name).release)
    mind = RecordedMind(cursor, open_mind(RULE_MIND) if by_rule else None)
    agent = Agent(hive, name, journal_start(hive.journal, name, os.getpid()), mind=mind)
    stack.callback(agent.close)
    agent.scheduler.takes_mail = False
    agent.scheduler.active_tasks.resume()
    return agent


def _reach_turn(agent: Agent, cursor: ReplayCursor, position: int) -> bool:
    """Run an agent until the turn at `position` is done. Return False if the agent becomes idle before that."""
    for _ in range(_MAX_CYCLES):
        if not (agent.cycle() or _is_settling(agent.hive)):
            return False
        if cursor.position >= position:
            return True
    return False
