"""The tools for document memory: what an agent may read and write of documents."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hivemind import Hive
from hivemind.documents import NodeNotFoundError, OptimisticLockError
from hivemind.taskrun.focus import Focus
from hivemind.tools import TOOLS, ToolContext, ToolProblem


@pytest.fixture
def hive(tmp_path: Path) -> Hive:
    found = Hive.init(tmp_path / "hive")
    for path in found.layout.knowledge.rglob("*.md"):
        path.unlink()
    (found.layout.knowledge / "boats.md").write_text("# Boats\n\nA boat floats.\n\nAn oar is made of ash.\n")
    return found


@pytest.fixture
def context(hive: Hive) -> ToolContext:
    focus = Focus("reply_mail")
    config = hive.agents["analyst"]
    pulse: Any = SimpleNamespace()
    return ToolContext(hive, "analyst", config, focus, pulse, lambda: False, ())


def call(context: ToolContext, name: str, **arguments: Any) -> dict[str, Any]:
    return TOOLS[name].call(context, arguments)


def test_passages_and_nodes_of_documents_without_a_file_are_found(context: ToolContext) -> None:
    made = call(context, "doc_append", text="The oar was lost in 1904.", kind="decision")
    assert context.hive.documents.find(made["node"]).context_type == "decision"
    found = call(context, "doc_find", query="oar")
    assert [one["text"] for one in found["passages"]] == ["A boat floats.\n\nAn oar is made of ash."]
    assert [one["node"] for one in found["nodes"]] == [made["node"]]
    assert len(call(context, "doc_find", query="oar made", limit=1)["passages"]) == 1
    below = call(context, "doc_find", query="oar", below="knowledge/boats.md")
    assert [one["citation"] for one in below["nodes"]] == ["knowledge/boats.md:5-5"]


def test_a_citation_names_the_node_that_is_expanded(context: ToolContext, hive: Hive) -> None:
    hive.knowledge.sync()
    told = call(context, "doc_expand", node="knowledge/boats.md:1-5")
    assert (told["form"], told["content"]) == ("full", "# Boats\n\nA boat floats.\n\nAn oar is made of ash.")
    assert call(context, "doc_expand", node="knowledge/boats.md", max_tokens=9)["form"] == "excerpt"
    with pytest.raises(ToolProblem, match="needs a query"):
        call(context, "doc_expand", node="knowledge/boats.md", by="relevance")
    with pytest.raises(NodeNotFoundError):
        call(context, "doc_expand", node="nosuch")


def test_a_readonly_node_gets_a_note_and_the_mind_is_told(context: ToolContext, hive: Hive) -> None:
    hive.knowledge.sync()
    told = call(context, "doc_update", node="knowledge/boats.md:3", text="Most boats float.")
    assert "readonly" in told["because"]
    note = hive.documents.find(told["note"])
    assert note is not None
    assert (note.text, note.context_type, note.context_value) == ("Most boats float.", "note", "analyst")
    texts = [node.text for node in hive.documents.serialize(hive.knowledge.locate("knowledge/boats.md").id)]
    assert texts.index("Most boats float.") == texts.index("A boat floats.") + 1
    assert (hive.layout.knowledge / "boats.md").read_text().count("Most") == 0


def test_nothing_is_added_below_a_readonly_node(context: ToolContext, hive: Hive) -> None:
    hive.knowledge.sync()
    with pytest.raises(ToolProblem, match="readonly"):
        call(context, "doc_append", text="x", parent="knowledge/boats.md:1")


def test_an_agents_own_document_is_written_updated_and_summarised(context: ToolContext, hive: Hive) -> None:
    root = call(context, "doc_append", text="Log")["node"]
    first = call(context, "doc_append", text="Rain all day.", parent=root)
    changed = call(context, "doc_update", node=first["node"], text="Sun.", expected_hash=first["hash"])
    assert changed["node"] == first["node"]
    with pytest.raises(OptimisticLockError):
        call(context, "doc_update", node=first["node"], text="Fog.", expected_hash=first["hash"])
    assert [one.text for one in hive.documents.history(first["node"])] == ["Rain all day.", "Sun."]
    told = call(context, "doc_summarize", node=root, text="The weather.")
    assert [node.text for node in hive.documents.serialize(root)] == ["Log", "The weather.", "Sun."]
    assert call(context, "doc_summarize", node=told["node"])["summary"] == "Sun."


def test_the_files_of_another_task_are_not_shown(context: ToolContext, hive: Hive) -> None:
    folder = hive.layout.active / "t" / "artifacts"
    folder.mkdir(parents=True)
    (folder / "secret.md").write_text("The word is swordfish.\n")
    hive.knowledge.sync(extra=[folder])
    for name, more in (("doc_expand", {}), ("doc_note", {"text": "x"}), ("doc_update", {"text": "x"})):
        with pytest.raises(ToolProblem, match="another task"):
            call(context, name, node="tasks/active/t/artifacts/secret.md:1", **more)
    found = call(context, "doc_find", query="swordfish")
    assert (found["passages"], found["nodes"]) == ([], [])


def test_an_agent_asks_the_manual(context: ToolContext) -> None:
    passages = call(context, "ask_manual", question="How do I stop the swarm?")["passages"]
    assert passages[0]["path"] == "knowledge/manual/06-the-swarm.md"
