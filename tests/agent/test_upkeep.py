"""Upkeep of the documents: by an agent that rests, by one at a time, and by nobody where nothing has changed."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.agent.upkeep import Upkeep
from hivemind.fs import Lock
from hivemind.minds import MindUnavailable
from hivemind.minds.extractive import ExtractiveMind
from hivemind.presence.identity import journal_start
from hivemind.reasoning import TaskGraph


class Writer:
    """A mind that writes one thing, or is down."""

    def __init__(self, text: str | None) -> None:
        self.text, self.asked = text, []  # type: ignore[var-annotated]

    def think(self, context: Any, tools: Any) -> Any:
        raise AssertionError("it is not asked to think")

    def complete(self, text: str, schema: Any = None) -> str:
        self.asked.append(text)
        if self.text is None:
            raise MindUnavailable("no connection")
        return self.text


@pytest.fixture
def hive(tmp_path: Path) -> Hive:
    Hive.init(tmp_path / "hive")
    (tmp_path / "hive" / "hive.yaml").write_text("durability: relaxed\nembedder: none\nheartbeat_s: 1\n")
    return Hive.open(tmp_path / "hive")


def stale(hive: Hive) -> str:
    """A summary that is out of date; gives its id."""
    root = hive.documents.create_root(text="Boats")
    first = hive.documents.append_child(root.id, "memory", "by", "me", "A boat floats on the water.")
    summary = hive.documents.add_summary(first.id, first.id, "About boats.")
    hive.documents.append_child(summary.id, "memory", "by", "me", "An oar is made of ash.")
    assert [node.id for node in hive.documents.stale_summaries()] == [summary.id]
    return summary.id


def rest(upkeep: Upkeep) -> None:
    """Do all that there is to do."""
    while upkeep.step():
        pass


def test_a_stale_summary_is_written_anew_by_extract_and_the_old_text_is_kept(hive: Hive) -> None:
    summary = stale(hive)
    upkeep = Upkeep(hive, ExtractiveMind)
    assert upkeep.step()
    texts = [version.text for version in hive.documents.history(summary)]
    assert texts == ["About boats.", "A boat floats on the water. An oar is made of ash."]
    rest(upkeep)
    assert not upkeep.step()


def test_a_mind_writes_it_and_is_given_all_that_it_sums_up(hive: Hive) -> None:
    summary, mind = stale(hive), Writer(" Boats and oars. ")
    assert Upkeep(hive, lambda: mind).step()
    node = hive.documents.find(summary)
    assert node is not None
    assert node.text == "Boats and oars."
    assert "A boat floats on the water.\n\nAn oar is made of ash." in mind.asked[0]


def test_a_mind_that_is_down_is_asked_once_and_the_summary_left_for_others(hive: Hive) -> None:
    summary, mind = stale(hive), Writer(None)
    upkeep = Upkeep(hive, lambda: mind)
    rest(upkeep)
    assert not upkeep.step()
    assert len(mind.asked) == 1
    assert [node.id for node in hive.documents.stale_summaries()] == [summary]
    assert Upkeep(hive, ExtractiveMind).step()


def test_only_one_agent_does_it(hive: Hive) -> None:
    stale(hive)
    lock = Lock(hive.layout.locks / "upkeep.lock")
    with lock:
        assert not Upkeep(hive, ExtractiveMind).step()
    assert hive.documents.stale_summaries()
    assert Upkeep(hive, ExtractiveMind).step()


def test_where_nothing_has_changed_nobody_opens_the_database(hive: Hive) -> None:
    assert not Upkeep(hive, ExtractiveMind).step(), "there is none"
    stale(hive)
    first = Upkeep(hive, ExtractiveMind)
    while first.step():
        pass
    other = Hive.open(hive.layout.root)
    assert not Upkeep(other, ExtractiveMind).step()
    assert "documents" not in vars(other)


def test_documents_of_files_that_are_gone_are_dropped(hive: Hive) -> None:
    folder = hive.layout.active / "t"
    folder.mkdir()
    (folder / "notes.md").write_text("A note of the task.\n")
    hive.knowledge.sync(extra=[folder])
    assert "tasks/active/t/notes.md" in [root.context_value for root in hive.documents.roots()]
    (folder / "notes.md").unlink()
    upkeep = Upkeep(hive, ExtractiveMind)
    while upkeep.step():
        pass
    assert "tasks/active/t/notes.md" not in [root.context_value for root in hive.documents.roots()]


def test_a_piece_of_embedding_is_small_so_that_neither_mail_nor_a_stop_is_kept_waiting(
    hive: Hive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIVEMIND_EMBEDDER", "hashing")
    for number in range(60):
        (hive.layout.knowledge / f"boat{number}.md").write_text(f"Boat {number} floats.\n")
    hive.knowledge.sync()
    assert Upkeep(hive, ExtractiveMind).step()
    assert hive.documents.embed_pending() >= 60 - 8


def test_a_memory_that_has_expired_is_forgotten_for_good_though_nothing_was_written_since(
    hive: Hive, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    hive.memory.put(("memories", "ann"), "gate", {"content": "the code is 4711", "expires_at": soon})
    first = Upkeep(hive, ExtractiveMind)
    while first.step():
        pass
    fresh, other = Hive.open(hive.layout.root), Hive.open(hive.layout.root)
    sibling = Upkeep(other, ExtractiveMind)  # it learns from the note when to look again
    assert not sibling.step()
    monkeypatch.setattr("hivemind.agent.upkeep.time.time", lambda: soon.timestamp() + 1)
    monkeypatch.setattr(other.memory, "_clock", lambda: soon + timedelta(seconds=1))
    assert sibling.step()
    with closing(sqlite3.connect(hive.layout.memory_db)) as sql:
        assert [sql.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("entries", "words")] == [(0,)] * 2
    rest(sibling)
    assert not Upkeep(fresh, ExtractiveMind).step()
    assert "memory" not in vars(fresh)


def test_nodes_of_graphs_that_a_search_left_are_embedded(hive: Hive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVEMIND_EMBEDDER", "hashing")
    task = hive.layout.done / "t"
    task.mkdir(parents=True)
    with TaskGraph(task).change() as graph:
        graph.add_node("task", "What floats?")
        for number in range(70):
            graph.add_edge(1, graph.add_node("evidence", f"Boat {number} floats.").node_id)
    assert hive.graph_index.find("boat").remarks
    upkeep = Upkeep(hive, ExtractiveMind)
    while upkeep.step():
        pass
    assert hive.graph_index.find("boat").remarks == ()


def test_an_agent_that_rests_does_it(hive: Hive) -> None:
    summary = stale(hive)
    agent = Agent(hive, "analyst", journal_start(hive.journal, "analyst", os.getpid()))
    try:
        agent.scheduler.active_tasks.resume()
        agent._wait_for_work()
    finally:
        agent.close()
    assert len(hive.documents.history(summary)) == 2


def test_upkeep_that_never_ends_keeps_no_wait_of_a_task_from_its_end(
    hive: Hive, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hive.layout.inbox / "t.md").write_text("---\nsteps: [{wait: 0.1s}]\n---\nWait.\n")
    agent = Agent(hive, "analyst", journal_start(hive.journal, "analyst", os.getpid()))

    def piece() -> bool:
        assert agent.scheduler.active_tasks.remaining_s > -1, "the wait is over, and nobody looks"
        return True

    monkeypatch.setattr(agent.upkeep, "step", piece)
    try:
        while agent.cycle() or not (hive.layout.done / "t").exists():
            agent._wait_for_work()
    finally:
        agent.close()


def test_databases_are_backed_up_once_nothing_else_is_to_be_done_and_at_most_once_an_hour(
    hive: Hive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backups() -> list[str]:
        return sorted(path.name for path in hive.layout.backups.glob("memory.db.[0-9]*"))

    hive.memory.put(("memories", "ann"), "gate", "the code is 4711")
    rest(Upkeep(hive, ExtractiveMind))
    [first] = backups()
    assert first.startswith("memory.db.")
    hive.memory.put(("memories", "ann"), "gate", "the code is 4712")
    rest(Upkeep(hive, ExtractiveMind))
    assert backups() == [first]
    later = time.time() + 3_700
    monkeypatch.setattr("hivemind.agent.upkeep.time.time", lambda: later)
    rest(Upkeep(Hive.open(hive.layout.root), ExtractiveMind))
    assert len(backups()) == 2
    with closing(sqlite3.connect(hive.layout.backups / backups()[1])) as sql:
        assert sql.execute("SELECT content FROM entries").fetchall() == [("the code is 4712",)]
