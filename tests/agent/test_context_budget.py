"""The budget of a context: the least that may be written, and what a turn says that has no room for its task."""

from __future__ import annotations

import json

import pytest
from hivemind.agent.desk import Desk

from hivemind import Hive
from hivemind.errors import UserError
from hivemind.taskrun.focus import Focus
from hivemind.tools import allowed_tools
from tests.agent.conftest import Crew, until_idle


def test_a_task_with_a_budget_that_nothing_fits_into_is_refused_with_file_line_and_key(crew: Crew) -> None:
    crew.drop("---\ntitle: x\nmax_tokens: 1\n---\nWhat is it?\n")
    until_idle(crew.start())
    told = (crew.root / "tasks/failed/t/error.md").read_text()
    assert "`t.md:3`" in told
    assert "max_tokens: Input should be greater than or equal to 1000" in told


def test_an_agents_budget_that_nothing_fits_into_is_refused_with_file_line_and_key(crew: Crew) -> None:
    crew.agent_file("role: analyst\nmax_tokens: 999\n")
    with pytest.raises(UserError, match=r"ada\.yaml:2: max_tokens: .*1000"):
        Hive.open(crew.root).agent_files.get("ada")


@pytest.mark.parametrize("whose", ["agent", "task"])
def test_a_budget_without_room_for_the_task_beside_the_tools_says_so_and_whose_it_is(crew: Crew, whose: str) -> None:
    if whose == "agent":
        crew.agent_file("role: analyst\nmax_tokens: 2000\n")
    crew.drop("---\nmax_tokens: 2000\n---\nWhat is it?\n" if whose == "task" else "What is it?\n")
    agent = crew.start()
    for _ in range(3):
        with pytest.raises(UserError) as refused:
            agent.cycle()
        assert agent.scheduler.broke(refused.value)
    told = (crew.root / "tasks/failed/t/error.md").read_text()
    assert "max_tokens: 2000 leaves no room for a turn" in told
    assert ("ada.yaml:2" if whose == "agent" else "task.md") in told


def test_no_share_of_any_budget_is_negative_and_what_is_laid_out_shows_the_task(crew: Crew) -> None:
    crew.drop("What is the oldest boat made of?\n")
    agent = crew.start()
    agent.scheduler.sense()
    focus = agent.scheduler.scope()
    assert focus is not None
    refused, laid_out = 0, 0
    for budget in range(1000, 7000, 150):
        crew.agent_file(f"max_tokens: {budget}\n")
        hive = Hive.open(crew.root)
        schemas = [tool.schema() for tool in allowed_tools(None).values()]
        try:
            context = Desk(hive, "ada", schemas, looking=True).lay_out(focus, agent.scheduler.works())
        except UserError as error:
            assert "leaves no room" in str(error)  # noqa: PT017 - which of the two depends on the budget
            refused += 1
            continue
        laid_out += 1
        assert "task:t" in [entry["id"] for entry in context]
        assert hive.count_tokens(json.dumps(context)) <= budget
    assert refused
    assert laid_out


def test_a_conversation_that_has_no_room_at_all_is_left_out(crew: Crew) -> None:
    crew.drop("What is the oldest boat made of?\n")
    agent = crew.start()
    agent.scheduler.sense()
    focus = agent.scheduler.scope()
    assert isinstance(focus, Focus)
    assert focus.work is not None
    conversation = focus.work.conversation(None, looking=True)
    for room in range(0, 400, 7):
        told = conversation.block("t", room)
        assert told is None or told[1].tokens <= room
