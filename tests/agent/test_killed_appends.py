"""A process is killed before, in the middle of and after any append of the journal: nothing told is lost, nothing is done twice.

A limit on the size of files kills a process at one byte of the journal, which has grown beyond all other files: what was
written up to there stands, as after a kill -9 in the middle of a write.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.coordination import Journal
from hivemind.fs import crash
from hivemind.minds import Thought, ToolCall
from tests.agent.conftest import Crew
from tests.durability import relaxed
from tests.sample import IS_WHOLE, sampled

GROWN = 200_000
TEXT = "---\nsteps: [{title: one}, {title: two}]\n---\nBuild a boat.\n"


def killed(
    work: Callable[[Callable[[int], None]], object], *, at_size: int | None = None, after: int | None = None
) -> list[int]:
    """The numbers that `work` told in a process that is killed where the journal reaches a size, or right after an append."""
    told, telling = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if at_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (at_size, at_size))
            if after is not None:
                crash._remaining_passes["journal.append.written"] = after
            work(lambda number: os.write(telling, number.to_bytes(4, "big")) and None)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(telling)
    with os.fdopen(told, "rb") as file:
        raw = file.read()
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) in (signal.SIGXFSZ, signal.SIGKILL), status
    return [int.from_bytes(raw[at : at + 4], "big") for at in range(0, len(raw), 4)]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.jsonl"))


@sampled
def test_every_append_that_returned_is_there_wherever_the_process_was_killed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    @settings(max_examples=60 if IS_WHOLE else 25, deadline=None, derandomize=True, database=None)
    @given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.data())
    def goes_on(lengths: list[int], data: st.DataObject) -> None:
        folder = tmp_path_factory.mktemp("journal")
        Journal(relaxed(folder)).append("before")

        def work(tell: Callable[[int], None]) -> None:
            journal = Journal(relaxed(folder))
            for length in lengths:
                tell(journal.append("some.thing", text="ä" * length).seq)

        start = size_of(folder)
        if data.draw(st.booleans()):
            told = killed(work, after=data.draw(st.integers(1, len(lengths))))
        else:
            most = sum(2 * length + 40 for length in lengths)
            told = killed(work, at_size=start + data.draw(st.integers(0, most)))
        whole = b"".join(path.read_bytes() for path in sorted(folder.glob("*.jsonl")))
        torn = whole.rpartition(b"\n")[2]
        after = Journal(relaxed(folder))
        known = after.read()
        after.append("after")
        events = Journal(relaxed(folder)).read()
        appended = events[1:-1]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert events[: len(known)] == known
        assert events[-1].kind == "after"
        assert len(appended) in (len(told), len(told) + 1)
        assert [event.payload["text"] for event in appended] == ["ä" * length for length in lengths[: len(appended)]]
        is_torn = (
            len(events) == len(known) + 1 and torn
        )  # a line that lacks only its end was finished by the next append
        kept = [json.loads(line)["torn"] for path in folder.glob("*.torn") for line in path.read_text().splitlines()]
        assert [text.encode("utf-8", "surrogateescape") for text in kept] == [torn] * bool(is_torn)

    goes_on()


def working(agent_of: list[Agent]) -> Callable[[Any], Thought]:
    def think(context: Any) -> Thought:
        focus = agent_of[0].scheduler.focus
        if focus is None or focus.step is None:
            return Thought("", (ToolCall("finish_task", {}),))
        wrote = ToolCall(
            "write_file", {"path": f"{focus.step.step.position}.txt", "text": "done", "step": focus.step.id}
        )
        return Thought("", (wrote, ToolCall("finish_step", {})))

    return think


def live(crew: Crew, tell: Callable[[int], None]) -> Agent:
    """A life of an agent, to its rest; tells the journal's number after each turn."""
    found: list[Agent] = []
    found.append(crew.start(working(found)))
    agent = found[0]
    tell(agent.hive.journal.seq)
    while agent.cycle():
        tell(agent.hive.journal.seq)
    return agent


def grown(root: Path) -> Crew:
    """A hive whose journal is larger than any other file that a task makes."""
    crew = Crew(root)
    journal = Hive.open(root).journal
    while size_of(root / ".hive/journal") < GROWN:
        journal.append("padding", text="." * 10_000)
    crew.drop(TEXT)
    return crew


@sampled
def test_a_task_goes_on_exactly_once_wherever_its_agent_was_killed(tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = grown(tmp_path_factory.mktemp("whole") / "hive")
    start = size_of(whole.root / ".hive/journal")
    before = Hive.open(whole.root).journal.seq
    live(whole, lambda _: None)
    whole.close()
    written = size_of(whole.root / ".hive/journal") - start
    lines = Hive.open(whole.root).journal.seq - before

    def goes_on(**where: int) -> None:
        crew = grown(tmp_path_factory.mktemp("killed") / "hive")
        told = killed(lambda tell: live(crew, tell), **where)
        hive = Hive.open(crew.root)
        assert hive.journal.seq >= max(told, default=before)
        live(crew, lambda _: None)
        crew.close()
        events = Hive.open(crew.root).journal.read(before)
        assert [event.seq for event in events] == list(range(before + 1, before + 1 + len(events)))
        kinds = Counter(event.kind for event in events)
        assert (kinds["task.claimed"], kinds["step.done"], kinds["task.done"]) == (1, 2, 1), (where, kinds)
        assert [path.name for path in crew.root.glob("tasks/*/t*")] == ["t"]
        assert (crew.root / "tasks/done/t/result.md").is_file()

    for number in range(1, lines + 1):  # more than there are lines: the last ones end by themselves
        goes_on(after=number)

    @settings(max_examples=25 if IS_WHOLE else 10, deadline=None, derandomize=True, database=None)
    @given(st.integers(0, written))
    def at(offset: int) -> None:
        goes_on(at_size=start + offset)

    at()
