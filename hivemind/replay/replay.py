"""A finished task, run again from its log in a copy of the hive that is thrown away."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from hivemind.agent.agent import Agent
from hivemind.boundary import boundary
from hivemind.config import HiveConfig, RootConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import copy_tree
from hivemind.layout import Layout
from hivemind.minds.open import open_mind
from hivemind.presence.identity import announce, take_name
from hivemind.presence.parts import Parts
from hivemind.replay.record import (
    RULE,
    Course,
    Difference,
    RecordedMind,
    differences,
    replayed_tools,
    turns_of,
    written_in,
)
from hivemind.tasks import FILES, Task, TaskState

_MOMENT_S = 0.02
_LOOKS = 500  # turns that only wait, or moments until the task's file has come to rest, between two turns of the log


@frozen
class ReplayedTurn:
    """One turn of the conversation, by its agent, its number and its step, and where it would now go another way."""

    agent: str
    number: int
    step: str | None
    differences: tuple[Difference, ...]


@frozen
class Replay:
    """All turns of a task, taken again by the agents that had taken them."""

    task: str
    agents: tuple[str, ...]
    turns: tuple[ReplayedTurn, ...]

    @property
    def differs(self) -> bool:
        return any(turn.differences for turn in self.turns)


def replay(hive: Parts, task_id: str, open_hive: Callable[[Layout, HiveConfig], Parts]) -> Replay:
    """Take the turns of a finished task again. No model is asked, no program is run, nothing is sent, and nothing in the
    hive changes: files, rules and knowledge are copies of what they are now.

    Raises UserError for a task that is not finished, or whose log has no turns.
    """
    task = hive.tasks.get(task_id)
    if task.state not in (TaskState.DONE, TaskState.FAILED):
        raise UserError(f"task {task.id} is {task.state.value}: only what is finished can be run again")
    turns = turns_of(hive.tasks.read_log(task.id))
    if not turns:
        raise UserError(f"the log of task {task.id} has no turns", location=task.path / "messages.jsonl")
    agents = tuple(dict.fromkeys(str(turn.get("agent")) for turn in turns))
    for agent in agents:
        if agent not in hive.agents:
            raise UserError(
                f"there is no agent {agent!r} any more, who did task {task.id}", remedy="hivemind agent add makes it"
            )
    with tempfile.TemporaryDirectory(prefix="hivemind-replay-") as folder:
        scratch = Layout.at(folder)
        _copy(hive.layout, scratch, task.path, task.state.value, written_in(turns))
        for name in task.dependencies:  # they were done, or it could not have begun
            (scratch.tasks / TaskState.DONE.value / name).mkdir(exist_ok=True)
        copy = open_hive(scratch, _harmless(hive.config, hive.layout))
        before = [{"title": "of an earlier attempt", "meta": {"attempt": 0}}] * _steps_before(hive, task)
        copy.steps.plan(task.id, before)
        taken = _take_again(copy, task.id, turns, worktrees=bool(task.kept.get("worktrees")))[: len(turns)]
    shown = []
    for at, (was, now) in enumerate(zip(turns, [*taken, *[None] * (len(turns) - len(taken))], strict=True)):
        with boundary("turn of a log", task.path / "messages.jsonl"):
            found: tuple[Difference, ...] = (Difference("end", "turn", "taken", "not come to"),)
            if now is not None:
                found = tuple(differences(was, now, by_rule=_is_rule(was)))
            shown.append(ReplayedTurn(str(was["agent"]), at + 1, was.get("step"), found))
    return Replay(task.id, agents, tuple(shown))


def _is_rule(turn: Mapping[str, Any]) -> bool:
    return bool(turn.get("mind", RULE) == RULE)


def _harmless(config: HiveConfig, layout: Layout) -> HiveConfig:
    """The hive's settings for a copy of it elsewhere: folders outside are where they were, and may only be read."""
    roots = [RootConfig(path=str(path)) for path in config.read_roots(layout)]
    return config.model_copy(update={"roots": roots, "durability": "relaxed", "settle_ms": 0})


def _copy(hive: Layout, scratch: Layout, task: Path, state: str, written: Collection[str]) -> None:
    """What the task had around it, as it is now, without what it has `written` into its own folder."""
    for folder in (hive.agents, hive.rom, hive.knowledge):
        if folder.is_dir():
            copy_tree(folder, scratch.root / hive.relative(folder))
    for path in scratch.folders():
        path.mkdir(parents=True, exist_ok=True)
    copy = scratch.tasks / state / task.name
    copy_tree(task, copy)
    for name in written:
        if (copy / FILES / name).is_file():
            (copy / FILES / name).unlink()
    _copy_index(hive.documents_db, scratch.documents_db)


def _copy_index(index: Path, copy: Path) -> None:
    """The index of the knowledge, so that it is not made anew; without one it is."""
    try:
        source = sqlite3.connect(f"{index.as_uri()}?mode=ro", uri=True)
        with closing(source), closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    except sqlite3.Error:
        copy.unlink(missing_ok=True)


def _steps_before(hive: Parts, task: Task) -> int:
    """How many steps earlier attempts had: their numbers are not given again."""
    if not (task.path / "attempts").is_dir():
        return 0
    return min((int(step.id.rpartition(".s")[2]) for step in hive.steps.list(task.id)), default=1) - 1


def _settles(hive: Parts) -> bool:
    """Whether the task still comes to rest in the inbox, where it was put a moment ago; then a moment passes."""
    if hive.tasks.restless:
        time.sleep(_MOMENT_S)
    return bool(hive.tasks.restless)


def _take_again(
    hive: Parts, task: str, turns: Sequence[Mapping[str, Any]], *, worktrees: bool
) -> list[Mapping[str, Any]]:
    """The records of the turns, taken by this process in the scratch hive, each as the agent that took it."""
    hive.tasks.retry(task)
    course = Course(turns)
    agents: dict[str, Agent] = {}
    with ExitStack() as closing:
        closing.callback(hive.journal.close)
        closing.callback(hive.tasks.close)
        for at, turn in enumerate(turns):
            name = str(turn["agent"])
            if name not in agents:
                agents[name] = agent = _opened(hive, name, course, by_rule=_is_rule(turn), closing=closing)
                agent.tools = replayed_tools(agent.tools, course, worktrees=worktrees)
            if not _comes_to(agents[name], course, at):
                break
        return turns_of(hive.tasks.read_log(task))


def _opened(hive: Parts, name: str, course: Course, *, by_rule: bool, closing: ExitStack) -> Agent:
    """An agent of the scratch hive that thinks what stands in the log. It takes in no mail: what was said to it about the
    task is in the log, and turns about mail are in another."""
    closing.callback(take_name(hive.layout, name).release)
    mind = RecordedMind(course, open_mind(RULE) if by_rule else None)
    agent = Agent(hive, name, announce(hive.journal, name, os.getpid()), mind=mind)
    closing.callback(agent.close)
    agent.scheduler.takes_mail = False
    agent.scheduler.active_tasks.resume()
    return agent


def _comes_to(agent: Agent, course: Course, at: int) -> bool:
    """Let an agent go on until it has taken the turn `at`; False if it finds nothing to do before."""
    for _ in range(_LOOKS):
        if not (agent.cycle() or _settles(agent.hive)):
            return False
        if course.at >= at:
            return True
    return False
