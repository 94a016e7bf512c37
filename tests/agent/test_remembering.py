"""Long-term memory in the cycle: whose it is, what of it a context gets, and that it goes again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.knowledge import memory_blocks
from hivemind.agent.upkeep import Upkeep
from hivemind.fs.backup import back_up
from hivemind.longterm import MemoryStore, NamespaceForbidden
from hivemind.minds.extractive import ExtractiveMind
from hivemind.taskrun.focus import Focus
from hivemind.tools import TOOLS, ToolContext
from tests.agent.conftest import Crew, until_idle, wants
from tests.longterm.faulty import Faulty
from tests.messages import messages_of

QUESTION = "Which tea does Ann drink?"
OWN = ("memories", "analyst")


@pytest.fixture
def hive(tmp_path: Path) -> Hive:
    return Hive.init(tmp_path / "hive")


@pytest.fixture
def context(hive: Hive) -> ToolContext:
    pulse: Any = SimpleNamespace()
    return ToolContext(hive, "analyst", hive.agents["analyst"], Focus("reply_mail"), pulse, lambda: False, ())


def call(context: ToolContext, name: str, **arguments: Any) -> dict[str, Any]:
    return TOOLS[name].call(context, arguments)


def test_an_agent_remembers_for_itself_or_for_all_and_finds_both(context: ToolContext, hive: Hive) -> None:
    mine = call(context, "remember", content="Ann drinks green tea", key="drink", importance=0.8)
    ours = call(context, "remember", content="Ann is the customer", shared=True)
    assert (mine["success"], mine["namespace"], ours["namespace"]) == (True, [*OWN], ["shared", hive.config.workspace])
    found = call(context, "search_memory", query="Ann")["memories"]
    assert sorted(one["content"] for one in found) == ["Ann drinks green tea", "Ann is the customer"]
    assert [one["key"] for one in call(context, "search_memory", query="Ann", namespace=[*OWN])["memories"]] == [
        "drink"
    ]


def test_what_an_agent_remembers_says_who_says_it_and_in_which_task(context: ToolContext, hive: Hive) -> None:
    message: Any = SimpleNamespace(id="<7@hive>")
    context = replace(context, focus=Focus("reply_mail", message=message))
    call(context, "remember", content="The pump drips", key="one", shared=True)
    call(context, "remember", content="It is the seal", key="two", shared=True, speaker="ann")
    one, two = (hive.memory.get(("shared", hive.config.workspace), key) for key in ("one", "two"))
    assert one is not None
    assert two is not None
    assert one.metadata == {"speaker": "analyst", "session": "<7@hive>"}
    assert two.metadata == {"speaker": "ann", "session": "<7@hive>"}
    assert (one.links, two.links) == ({"next": "two"}, {"previous": "one"})


def test_what_is_known_is_not_remembered_twice_and_the_mind_is_told(context: ToolContext) -> None:
    call(context, "remember", content="Ann drinks green tea", key="drink")
    again = call(context, "remember", content="Ann drinks green tea")
    assert (again["success"], again["action"], again["key"]) == (False, "duplicate", "drink")


@pytest.mark.parametrize(
    "namespace", [["memories", "researcher"], ["shared", "other"], ["memories"], ["memories", "%"], []]
)
def test_any_other_namespace_is_refused_by_name(context: ToolContext, hive: Hive, namespace: list[str]) -> None:
    hive.memory.put(("memories", "researcher"), "k", "a secret")
    for name, arguments in (("remember", {"content": "x"}), ("search_memory", {"query": "secret"})):
        with pytest.raises(NamespaceForbidden, match="analyst may not use"):
            call(context, name, namespace=namespace, **arguments)


def test_what_is_remembered_about_a_task_stands_in_its_opening_whosever_it_may_be_and_no_other(crew: Crew) -> None:
    agent = crew.start()
    memory = agent.hive.memory
    memory.put(("memories", "ada"), "drinks/a\\b", "Ann drinks green tea")
    memory.put(("shared", agent.hive.config.workspace), "cups", "Ann's tea is served in cups")
    memory.put(("memories", "bob"), "secret", "Ann drinks black tea")
    crew.drop(QUESTION)
    wants(agent, ("list_files", {"path": "knowledge"}))
    opening = messages_of(crew.root / "tasks/active/t")[1]["text"]
    assert "Ann drinks green tea" in opening
    assert "Ann's tea is served in cups" in opening
    assert "black" not in opening


def test_a_hit_that_does_not_fit_is_passed_over_not_the_end(hive: Hive) -> None:
    hive.memory.put(OWN, "long", {"content": "Ann tea " * 600, "importance": 1.0})
    hive.memory.put(OWN, "short", "Ann drinks green tea")
    blocks = memory_blocks(hive, "analyst", [QUESTION])
    assert [block.topic for block in blocks] == ["short"]
    assert sum(block.metadata["tokens"] for block in blocks) <= 1_000
    assert memory_blocks(hive, "analyst", []) == []


def test_where_nothing_was_ever_remembered_no_database_is_made(hive: Hive) -> None:
    assert memory_blocks(hive, "analyst", [QUESTION]) == []
    assert not hive.layout.memory_db.exists()


def test_a_damaged_memory_is_mended_and_does_not_stop_the_work(hive: Hive, caplog: pytest.LogCaptureFixture) -> None:
    hive.memory.put(OWN, "drink", "Ann drinks green tea")
    hive.memory.close()
    assert back_up(hive.layout.memory_db, hive.layout.backups)
    with closing(sqlite3.connect(hive.layout.memory_db)) as sql:
        (root,) = sql.execute("SELECT rootpage FROM sqlite_master WHERE name = 'namespaces'").fetchone()
    with open(hive.layout.memory_db, "r+b") as file:
        file.seek((root - 1) * 4_096)
        file.write(bytes(4_096))
    assert [block.topic for block in memory_blocks(hive, "analyst", [QUESTION])] == ["drink"]
    assert "replaces it" in caplog.text
    hive.memory.close()
    hive.layout.memory_db.write_bytes(b"no database at all")
    assert [block.topic for block in memory_blocks(hive, "analyst", [QUESTION])] == ["drink"]
    assert "is not a database" in caplog.text
    assert len(list(hive.layout.aside.glob("*/memory.db*.txt"))) == 2


def test_a_memory_of_another_version_does_not_stop_the_work_and_is_left_alone(
    hive: Hive, caplog: pytest.LogCaptureFixture
) -> None:
    hive.memory.put(OWN, "drink", "Ann drinks green tea")
    with hive.memory.database.write() as sql:
        sql.execute("PRAGMA user_version = 99")
    hive.memory.close()
    assert memory_blocks(hive, "analyst", [QUESTION]) == []
    assert "version 99" in caplog.text
    assert not hive.layout.aside.exists()


def test_the_default_mind_quotes_what_is_remembered_and_says_how_far_it_can_be_trusted(crew: Crew) -> None:
    agent = crew.start()
    agent.hive.memory.put(("memories", "ada"), "drink", "Zora sails a red dinghy")
    agent.hive.memory.put(("memories", "ada"), "other", "Zora was born in Rome")
    crew.drop("---\nsteps: [{ask: Which dinghy does Zora sail?}]\n---\nx\n")
    until_idle(agent)
    result = (crew.root / "tasks/done/t/result.md").read_text()
    assert "> Zora sails a red dinghy\n\n— remembered as `memory:memories/ada/drink` (20" in result
    assert (
        "Confidence: likely. The first quote has the words dinghy, zora, sail; its meaning was not compared." in result
    )
    assert "Rome" not in result


def test_an_agent_at_rest_embeds_the_memories_that_wait(hive: Hive) -> None:
    embedder = Faulty()
    vars(hive)["memory"] = MemoryStore(hive.layout.memory_db, embedder)
    embedder.fault = "down"
    hive.memory.put(OWN, "drink", "Ann drinks green tea")
    upkeep = Upkeep(hive, ExtractiveMind)
    while upkeep.step():
        pass
    assert hive.memory.status().pending == 1
    embedder.fault = None
    hive.memory.put(OWN, "other", "something else", embed=False)
    while upkeep.step():
        pass
    assert hive.memory.status().pending == 0
