"""Whatever is wrong with a file that an agent reads, the agent lives: the task fails with words, or the agent says what it
waits for and goes on once that is mended. Nothing that was damaged is thrown away."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.errors import UserError
from hivemind.minds import Thought, ToolCall, Turn
from hivemind.presence.identity import journal_start, lock_name
from hivemind.presence.status import read_status
from hivemind.swarm.preflight import preflight
from hivemind.swarm.process import AgentProcess
from hivemind.taskrun.task_run import MAX_CRASHES
from tests.agent.conftest import Crew, Mind, doing, until_idle
from tests.sample import sample, sampled
from tests.waiting import until

HINTS = {"status.json", "heartbeat", "tasks.queue"}
TASK = """---
steps:
  - {title: look, ask: "What moves a rowing boat?"}
  - {title: note, run: "echo seen; exit 0", once: true}
  - {title: ask, wait: {human: "Go on?"}}
---
Boats.
"""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hive in the middle of things: one task waits for a person, one was answered, a letter lies there."""
    root = tmp_path_factory.mktemp("scene") / "hive"
    crew = Crew(root)
    crew.agent_file("role: analyst\nbudget: {day: {tokens: 1000000}}\n")
    (root / "knowledge" / "boats.md").write_text("# Boats\n\nA rowing boat is moved with oars.\n")
    crew.drop(TASK, "boats.md")
    crew.drop("What moves a rowing boat?", "short.md")
    agent = crew.start()
    until_idle(agent)
    crew.close()
    crew.write()
    for path in [*(root / "knowledge").glob("*/"), *(root / ".hive").glob("logs/*")]:
        shutil.rmtree(path)
    return root


FILES = [
    ".hive/agents/ada/budget.json", ".hive/agents/ada/mail-taken", ".hive/agents/ada/status.json",
    ".hive/agents/ada/heartbeat", ".hive/agents/ada/working-memory.json", ".hive/agents/ada/log.jsonl", ".hive/heartbeat",
    ".hive/tasks.queue", ".hive/locks/agent-ada.lock", ".hive/locks/tasks-queue.lock",
    "tasks/active/boats/task.json", "tasks/active/boats/task.md", "tasks/active/boats/graph.jsonl",
    "tasks/active/boats/graph.json",
    "tasks/active/boats/messages.jsonl", "tasks/active/boats/artifacts", "tasks/active/boats/attempts",
    "tasks/active/.claimed/ada", "mailboxes/ada/new/letter", "knowledge/boats.md", "rom/hive.md",
]  # fmt: skip
FOLDERS = [".hive/agents/ada", "mailboxes/ada/new", "mailboxes/ada/cur", "tasks/active/.claimed", "rom", "knowledge"]


def is_record(path: Path) -> bool:
    return path.suffix == ".json" and path.is_file() and path.stat().st_size > 0


def damages(path: Path) -> Iterator[tuple[str, Any]]:
    """(what, how) for everything that is done to a file."""
    yield "empty", lambda: path.write_bytes(b"")
    yield "garbage", lambda: path.write_bytes(b"\x00\xff{[garbage" * 50)
    yield "list", lambda: path.write_text("[1, 2]\n")
    yield "folder", lambda: (path.unlink(), path.mkdir(), (path / "x").touch())
    yield "dangling", lambda: (path.unlink(), path.symlink_to("nowhere"))
    yield "nested", lambda: path.write_text("[" * 100_000)
    if is_record(path):
        fields = json.loads(path.read_text())
        yield "version", lambda: path.write_text(json.dumps({**fields, "version": 99}))
        for key, value in zip(sample(sorted(fields.keys() - {"kind", "version"}), 2), cycle((None, "x", [7], 1e400))):
            yield f"{key}={value!r}", lambda k=key, v=value: path.write_text(json.dumps({**fields, k: v}))
            yield f"no {key}", lambda k=key: path.write_text(json.dumps({n: v for n, v in fields.items() if n != k}))
        whole = path.read_bytes()
        for at in sample(range(0, len(whole), max(1, len(whole) // 6)), 3, 1):
            yield f"cut at {at}", lambda n=at: path.write_bytes(whole[:n])


class ShortLife(AgentProcess):
    """Ends when there is nothing to do, or after it has been stuck."""

    reasons: list[str]

    def _wait_out(self, error: Exception) -> None:
        self.reasons.append(str(error))
        self.stop()


def live(root: Path, turns: int = 60) -> list[str]:
    """One life of ada, until she is idle or stuck; gives what she was stuck in."""
    hive = Hive.open(root)
    lock = lock_name(hive.layout, "ada")
    life = ShortLife(hive, "ada", lock)
    life.reasons = []
    rest, cycle, count = Agent._wait_for_work, Agent.cycle, iter(range(turns))

    def ends(self: Agent) -> None:
        self.status.update(state="idle", task=None)
        life.stop()

    def counted(self: Agent) -> bool:
        assert next(count, None) is not None, "it goes round and round"
        return cycle(self)

    Agent._wait_for_work, Agent.cycle = ends, counted  # type: ignore[method-assign]
    try:
        life.run()
    finally:
        Agent._wait_for_work, Agent.cycle = rest, cycle  # type: ignore[method-assign]
        lock.release()
    return life.reasons


def copy(scene: Path, to: Path) -> Path:
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(scene, to, symlinks=True)
    return to


@sampled
@pytest.mark.parametrize("name", FILES)
def test_an_agent_lives_whatever_a_file_that_it_reads_says(scene: Path, tmp_path: Path, name: str):
    if not (scene / name).is_file():
        (scene / name).parent.mkdir(parents=True, exist_ok=True)
    probe = copy(scene, tmp_path / "hive") / name
    if not probe.exists():
        probe.touch()
    for what, _ in list(damages(probe)) if not probe.is_dir() else [("file", None)]:
        root = copy(scene, tmp_path / "hive")
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
            path.write_text("in the way")
        else:
            path.touch()
            dict(damages(path))[what]()
        try:
            stuck = live(root) + live(root)
        except UserError as error:  # the name cannot be held: said in one line
            stuck = [str(error)]
        except Exception as error:
            raise AssertionError(f"{name}, {what}: {type(error).__name__}: {error}") from error
        if stuck:
            assert path.name in " ".join(stuck), f"{what}: it does not say what is wrong: {stuck}"
        ends = [root / "tasks" / state / "boats" for state in ("active", "failed", "done")]
        [where] = [folder for folder in ends if folder.is_dir()]
        if where.parent.name == "failed":
            assert (where / "error.md").read_text().strip(), what


@pytest.mark.parametrize("name", FOLDERS)
def test_an_agent_lives_with_a_file_where_a_folder_should_be(scene: Path, tmp_path: Path, name: str):
    root = copy(scene, tmp_path / "hive")
    shutil.rmtree(root / name, ignore_errors=True)
    (root / name).write_text("in the way")
    try:
        stuck = live(root)
    except UserError as error:  # the hive itself is refused, in one line
        stuck = [str(error)]
    if stuck:
        assert name in stuck[0].replace(str(root), "")
        (root / name).unlink()
        assert live(root) == []


def test_an_agent_that_is_stuck_says_so_and_goes_on_once_it_is_mended(crew: Crew):
    record = crew.root / ".hive/agents/ada/mail-taken"
    record.parent.mkdir(parents=True)
    record.write_text('{"kind":"mail-taken","version":99}\n')
    hive = Hive.open(crew.root)
    life = AgentProcess(hive, "ada", lock_name(hive.layout, "ada"))
    thread = threading.Thread(target=life.run)
    thread.start()
    folder = record.parent
    try:
        until(lambda: (now := read_status(folder, "ada")) is not None and now.state == "stuck")
        status = read_status(folder, "ada")
        assert status is not None
        assert "mail-taken" in str(status.problem)
        record.unlink()
        until(lambda: (now := read_status(folder, "ada")) is not None and now.state == "idle")
        assert read_status(folder, "ada").problem is None  # type: ignore[union-attr]
    finally:
        life.stop()
        thread.join()


def test_a_task_whose_step_another_holds_is_not_moved_before_that_is_over(crew: Crew):
    crew.drop("---\nsteps: [{title: one}]\n---\nx")
    agent = crew.start(lambda context: Thought("", (ToolCall("fail_task", {"reason": "no"}),)))
    agent.scheduler.scope(reads=agent.metered_mind.reads)
    [work] = agent.scheduler.active_tasks.runs
    agent.hive.leases.claim(work.steps()[0].id, "human", force=True)
    agent.cycle()
    assert Hive.open(crew.root).tasks.get("t").parked is not None
    crew.end(agent)
    again = crew.start(lambda context: Thought("", (ToolCall("fail_task", {"reason": "no"}),)))
    again.cycle()
    again.hive.leases.release(work.steps()[0].id, "human")
    [work] = again.scheduler.active_tasks.runs
    again.scheduler.active_tasks.unpark(work)
    until_idle(again)
    assert (crew.root / "tasks/failed/t/error.md").exists()
    assert [event.payload["reason"] for event in crew.events("task.failed")] == ["no"]


def test_a_task_over_which_five_processes_died_fails_and_says_so(crew: Crew):
    crew.drop("Do it.")
    for life in range(1, MAX_CRASHES + 1):
        agent = crew.start()
        agent.scheduler.scope(reads=agent.metered_mind.reads)
        assert agent.scheduler.focus is not None, f"life {life}"
        crew._agents.clear()  # it died without a word
        lost = "t"
        hive = Hive.open(crew.root)
        successor = Agent(hive, "ada", life + 100)
        successor.scheduler.active_tasks.resume(lost)
        successor.scheduler.close()
        agent._bell.close()
        successor._bell.close()
    assert f"crashed {MAX_CRASHES} times" in (crew.root / "tasks/failed/t/error.md").read_text()


def next_life(crew: Crew, think: Callable[[Turn], Thought]) -> Agent:
    """The agent's next process, after the last one died over the task without a word."""
    for dead in crew._agents:
        dead._bell.close()
    crew._agents.clear()
    hive = Hive.open(crew.root)
    agent = Agent(hive, "ada", journal_start(hive.journal, "ada", os.getpid()))
    agent.mind = Mind(think)
    agent.scheduler.active_tasks.resume("t")
    crew._agents.append(agent)
    return agent


def test_deaths_with_a_finished_turn_between_them_end_no_task(crew: Crew):
    crew.drop("Do it.")
    crew.start(doing(("list_files", {}))).cycle()
    for _life in range(MAX_CRASHES + 2):
        assert next_life(crew, doing(("list_files", {}))).cycle()
    assert (crew.root / "tasks/active/t").exists()


def test_a_mind_whose_command_kills_its_process_each_time_loses_its_task(crew: Crew):
    crew.agent_file("role: analyst\ncommands: [printf]\n")
    crew.drop("Do it.")
    killing = doing(("run_command", {"command": ["printf", "x"]}))
    agent = crew.start(killing)
    for _life in range(MAX_CRASHES):
        killed = replace(agent.tools["run_command"], use=lambda *_: sys.exit("killed"))
        agent.tools = {**agent.tools, "run_command": killed}
        with pytest.raises(SystemExit):
            until_idle(agent)
        agent = next_life(crew, killing)
    assert f"crashed {MAX_CRASHES} times" in (crew.root / "tasks/failed/t/error.md").read_text()


def test_what_a_person_misspells_is_told_with_its_line_before_anything_starts(crew: Crew):
    crew.agent_file("role: analyst\nmind: extractve\n")
    with pytest.raises(UserError, match=r"ada\.yaml:2: mind: unknown mind"):
        preflight(Hive.open(crew.root), "ada")
    crew.agent_file("role: analyst\n\ntools: [read_fil]\n")
    with pytest.raises(UserError, match=r"ada\.yaml:3: tools: there is no tool 'read_fil'"):
        preflight(Hive.open(crew.root), "ada")
    crew.agent_file("role: analyst\nmind: {scripted: nowhere.jsonl}\n")
    with pytest.raises(UserError, match=r"ada\.yaml:2: mind: .*nowhere"):
        preflight(Hive.open(crew.root), "ada")
    crew.agent_file("role: analyst\n")
    crew.configure("agents:\n  mind: extractve\n")
    with pytest.raises(UserError, match=r"hive\.yaml:5: mind"):
        preflight(Hive.open(crew.root), "ada")
    with pytest.raises(UserError, match="no agent 'bob'"):
        preflight(Hive.open(crew.root), "bob")


def test_a_drop_that_cannot_become_a_task_is_told_to_the_journal(crew: Crew):
    crew.drop("---\npriority: never\n---\nx", "bad.md")
    until_idle(crew.start(doing()))
    [event] = crew.events("task.failed")
    assert (event.payload["task_id"], event.payload["title"]) == ("bad", "bad.md")
    assert "priority" in event.payload["reason"]
