"""The tools for document memory: what an agent may read and write of documents."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hivemind import Hive
from hivemind.documents import NodeNotFoundError, OptimisticLockError
from hivemind.taskrun.focus import Focus
from hivemind.tools import TOOLS, Session, ToolProblem


@pytest.fixture
def hive(tmp_path: Path) -> Hive:
    found = Hive.init(tmp_path / "hive")
    for path in found.layout.knowledge.rglob("*.md"):
        path.unlink()
    (found.layout.knowledge / "boats.md").write_text("# Boats\n\nA boat floats.\n\nAn oar is made of ash.\n")
    return found


@pytest.fixture
def session(hive: Hive) -> Session:
    focus = Focus("reply_mail")
    config = hive.agents["analyst"]
    pulse: Any = SimpleNamespace()
    return Session(hive, "analyst", config, focus, pulse, lambda: False, ())


def call(session: Session, name: str, **arguments: Any) -> dict[str, Any]:
    return TOOLS[name].call(session, arguments)


def test_passages_and_nodes_of_documents_without_a_file_are_found(session: Session) -> None:
    made = call(session, "doc_append", text="The oar was lost in 1904.", kind="decision")
    assert session.hive.documents.find(made["node"]).context_type == "decision"
    found = call(session, "doc_find", query="oar")
    assert [one["text"] for one in found["passages"]] == ["A boat floats.\n\nAn oar is made of ash."]
    assert [one["node"] for one in found["nodes"]] == [made["node"]]
    assert len(call(session, "doc_find", query="oar made", limit=1)["passages"]) == 1
    below = call(session, "doc_find", query="oar", below="knowledge/boats.md")
    assert [one["citation"] for one in below["nodes"]] == ["knowledge/boats.md:5-5"]


def test_a_citation_names_the_node_that_is_expanded(session: Session, hive: Hive) -> None:
    hive.knowledge.sync()
    told = call(session, "doc_expand", node="knowledge/boats.md:1-5")
    assert (told["form"], told["content"]) == ("full", "# Boats\n\nA boat floats.\n\nAn oar is made of ash.")
    assert call(session, "doc_expand", node="knowledge/boats.md", max_tokens=9)["form"] == "excerpt"
    with pytest.raises(ToolProblem, match="needs a query"):
        call(session, "doc_expand", node="knowledge/boats.md", by="relevance")
    with pytest.raises(NodeNotFoundError):
        call(session, "doc_expand", node="nosuch")


def test_a_readonly_node_gets_a_note_and_the_mind_is_told(session: Session, hive: Hive) -> None:
    hive.knowledge.sync()
    told = call(session, "doc_update", node="knowledge/boats.md:3", text="Most boats float.")
    assert "readonly" in told["because"]
    note = hive.documents.find(told["note"])
    assert note is not None
    assert (note.text, note.context_type, note.context_value) == ("Most boats float.", "note", "analyst")
    texts = [node.text for node in hive.documents.serialize(hive.knowledge.locate("knowledge/boats.md").id)]
    assert texts.index("Most boats float.") == texts.index("A boat floats.") + 1
    assert (hive.layout.knowledge / "boats.md").read_text().count("Most") == 0


def test_nothing_is_added_below_a_readonly_node(session: Session, hive: Hive) -> None:
    hive.knowledge.sync()
    with pytest.raises(ToolProblem, match="readonly"):
        call(session, "doc_append", text="x", parent="knowledge/boats.md:1")


def test_an_agents_own_document_is_written_updated_and_summarised(session: Session, hive: Hive) -> None:
    root = call(session, "doc_append", text="Log")["node"]
    first = call(session, "doc_append", text="Rain all day.", parent=root)
    changed = call(session, "doc_update", node=first["node"], text="Sun.", expected_hash=first["hash"])
    assert changed["node"] == first["node"]
    with pytest.raises(OptimisticLockError):
        call(session, "doc_update", node=first["node"], text="Fog.", expected_hash=first["hash"])
    assert [one.text for one in hive.documents.history(first["node"])] == ["Rain all day.", "Sun."]
    told = call(session, "doc_summarize", node=root, text="The weather.")
    assert [node.text for node in hive.documents.serialize(root)] == ["Log", "The weather.", "Sun."]
    assert call(session, "doc_summarize", node=told["node"])["summary"] == "Sun."


def test_the_files_of_another_task_are_not_shown(session: Session, hive: Hive) -> None:
    folder = hive.layout.active / "t" / "artifacts"
    folder.mkdir(parents=True)
    (folder / "secret.md").write_text("The word is swordfish.\n")
    hive.knowledge.sync(extra=[folder])
    for name, more in (("doc_expand", {}), ("doc_note", {"text": "x"}), ("doc_update", {"text": "x"})):
        with pytest.raises(ToolProblem, match="another task"):
            call(session, name, node="tasks/active/t/artifacts/secret.md:1", **more)
    found = call(session, "doc_find", query="swordfish")
    assert (found["passages"], found["nodes"]) == ([], [])


def test_an_agent_asks_the_manual(session: Session) -> None:
    passages = call(session, "ask_manual", question="How do I stop the swarm?")["passages"]
    assert passages[0]["path"] == "knowledge/manual/06-the-swarm.md"
