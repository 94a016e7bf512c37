"""The budget of a conversation: the least that may be written, what an opening may take of it, and room for turns after that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.preview import preview_context
from hivemind.errors import UserError
from hivemind.minds import Thought, ToolCall, Turn
from tests.agent.conftest import Crew, doing, until_idle
from tests.messages import lines_of


class Reader:
    """A mind that looks at a file again and again, and knows what its requests had."""

    def __init__(self, count: Any) -> None:
        self._count = count
        self.tools = 0
        self.sizes: list[int] = []

    def think(self, turn: Turn, tools: Any) -> Thought:
        self.tools = self._count(json.dumps(tools))
        self.sizes.append(self.tools + sum(self._count(one.text) for one in turn.messages))
        line = len(self.sizes)
        read = {"path": "knowledge/boats.md", "start_line": line, "end_line": line}
        return Thought(f"thought {line}", (ToolCall("read_file", read),))

    def complete(self, text: str, schema: Any = None) -> str:
        raise AssertionError("nothing is to be completed")


def reads(crew: Crew, most: int, turns: int) -> Reader:
    """An agent with that budget takes turns at a task that is long, about which much is known."""
    crew.agent_file(f"role: analyst\nmax_tokens: {most}\n")
    lines = [f"Boat {number} is a rowing boat, and is moved with oars of ash." for number in range(200)]
    (crew.root / "knowledge/boats.md").write_text("\n".join(lines))
    crew.drop("---\nsteps: [{title: How is a rowing boat moved?}]\n---\n" + "Tell me of boats and oars. " * 3_000)
    agent = crew.start()
    mind = agent.mind = Reader(agent.hive.count_tokens)
    for _ in range(turns):
        agent.cycle()
    return mind


@pytest.mark.parametrize("most", [8_000, 30_000])
def test_the_context_that_is_shown_is_the_opening_that_is_sent(crew: Crew, most: int) -> None:
    mind = reads(crew, most, 0)
    [agent] = crew._agents
    agent.scheduler.active_tasks.claim()
    shown = preview_context(Hive.open(crew.root), "ada")
    agent.cycle()
    opening = next(line for line in lines_of(crew.root / "tasks/active/t") if "opening" in line)["opening"]
    assert [one.text for one in shown.messages] == [one["text"] for one in opening]
    assert shown.tokens == mind.sizes[0]


def test_a_task_with_a_budget_that_nothing_fits_into_is_refused_with_file_line_and_key(crew: Crew) -> None:
    crew.drop("---\ntitle: x\nmax_tokens: 1\n---\nWhat is it?\n")
    until_idle(crew.start())
    told = (crew.root / "tasks/failed/t/error.md").read_text()
    assert "`t.md:3`" in told
    assert "max_tokens: must be greater than or equal to 1000" in told


def test_an_agents_budget_that_nothing_fits_into_is_refused_with_file_line_and_key(crew: Crew) -> None:
    crew.agent_file("role: analyst\nmax_tokens: 999\n")
    with pytest.raises(UserError, match=r"ada\.yaml:2: max_tokens: .*1000"):
        Hive.open(crew.root).agent_files.get("ada")


@pytest.mark.parametrize("whose", ["agent", "task"])
def test_a_budget_without_room_for_the_task_beside_the_tools_says_so_and_whose_it_is(crew: Crew, whose: str) -> None:
    if whose == "agent":
        crew.agent_file("role: analyst\nmax_tokens: 2000\n")
    crew.drop("---\nmax_tokens: 2000\n---\nWhat is it?\n" if whose == "task" else "What is it?\n")
    agent = crew.start(doing())
    for _ in range(3):
        with pytest.raises(UserError) as refused:
            agent.cycle()
        assert agent.scheduler.handle_error(refused.value)
    told = (crew.root / "tasks/failed/t/error.md").read_text()
    assert "max_tokens: 2000 leaves no room for a turn" in told
    assert ("ada.yaml:2" if whose == "agent" else "task.md") in told


@pytest.mark.parametrize("most", [20_000, 60_000])
def test_an_opening_takes_at_most_half_and_no_request_more_than_all(crew: Crew, most: int) -> None:
    mind = reads(crew, most, 60)
    begun = [line for line in lines_of(crew.root / "tasks/active/t") if "opening" in line]
    for line in begun:
        texts = sum(Hive.open(crew.root).count_tokens(one["text"]) for one in line["opening"])
        assert mind.tools + texts <= most / 2
    assert max(mind.sizes) <= most * 3 / 4


def test_a_small_budget_has_room_for_turns_too(crew: Crew) -> None:
    tools = reads(crew, 60_000, 1).tools
    crew.close()
    [path] = (crew.root / "tasks/active").glob("t")
    path.rename(crew.root / "away")
    mind = reads(crew, tools + 3_000, 12)
    begun = [line for line in lines_of(crew.root / "tasks/active/t") if "opening" in line]
    assert len(mind.sizes) == 12
    assert max(mind.sizes) <= tools + 3_000
    assert len(begun) <= 6, "an epoch holds more turns than one"
