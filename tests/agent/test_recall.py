"""Recall: passages that can be quoted, parts of documents expanded to the length that is left, each saying how much it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.presence.identity import announce
from hivemind.tokens import count_tokens

OARS = "# Oars\n\n" + "\n\n".join(
    f"Oar number {number} of the fleet is made of {wood} and varnished by hand each spring."
    for number, wood in enumerate(["ash", "spruce", "oak", "fir", "beech", "larch"] * 12)
)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    root = tmp_path / "hive"
    Hive.init(root)
    (root / "hive.yaml").write_text("durability: relaxed\nsettle_ms: 0\nembedder: none\n")
    for path in [*(root / "agents").glob("*.yaml"), *(root / "knowledge").rglob("*.md")]:
        path.unlink()
    (root / "agents" / "analyst.yaml").write_text("role: analyst\n")
    (root / "knowledge" / "oars.md").write_text(OARS)
    hive = Hive.open(root)
    made = Agent(hive, "analyst", announce(hive.journal, "analyst", os.getpid()))
    made.scheduler.resume()
    yield made
    made.close()


def context(agent: Agent, text: str, budget: int = 100_000) -> list[dict[str, Any]]:
    """The context of the turn that is about the question: the first one after the plan."""
    (agent.hive.layout.inbox / "t.md").write_text(f"---\nmax_tokens: {budget}\nsteps:\n  - ask: {text}\n---\n{text}\n")
    agent.scheduler.sense()
    focus = agent.scheduler.scope()
    assert focus is not None
    if focus.step is None:
        agent.cycle()
        focus = agent.scheduler.scope()
        assert focus is not None
    return agent.desk.lay_out(focus, agent.scheduler.works())


def of(entries: list[dict[str, Any]], start: str) -> list[dict[str, Any]]:
    return [entry for entry in entries if str(entry["metadata"].get("source", "")).startswith(start)]


def test_a_part_with_several_hits_is_there_as_far_as_there_is_room_and_says_so(agent: Agent) -> None:
    [part] = of(context(agent, "Is an oar of the fleet varnished by hand each spring?"), "documents:")
    assert part["metadata"]["form"] == "excerpt"
    assert part["metadata"]["path"] == "knowledge/oars.md"
    assert part["content"].startswith("# Oars\n\nOar number 0 of the fleet is made of ash")
    assert 600 < count_tokens(part["content"]) <= 800
    assert part["priority"] == "low"


def test_a_small_part_is_there_whole(agent: Agent) -> None:
    title, *paragraphs = OARS.split("\n\n")[:4]  # each long enough to be a passage of its own
    long = [paragraph + " It rests upon the quay." * 30 for paragraph in paragraphs]
    (agent.hive.layout.knowledge / "oars.md").write_text("\n\n".join([title, *long]) + "\n")
    [part] = of(context(agent, "Which wood is the oar of the fleet made of?"), "documents:")
    assert part["metadata"]["form"] == "full"
    assert part["content"].count("varnished") == 3


def test_what_was_expanded_by_a_mind_stands_in_its_next_context(agent: Agent) -> None:
    from hivemind.memory import create_memory_from_action

    agent.hive.knowledge.sync()
    node = agent.hive.knowledge.locate("knowledge/oars.md")
    block = create_memory_from_action(
        "doc_expand", {"node": node.id, "location": f"documents:{node.id}", "title": "Oars"}
    )
    agent.desk.memory.add_memory(block)  # type: ignore[arg-type]
    [entry] = of(context(agent, "What is the time?"), f"documents:{node.id}")
    assert "Oar number 3" in entry["content"]


@pytest.mark.parametrize("room", [1_500, 2_500])
def test_a_context_with_parts_keeps_to_its_budget(agent: Agent, room: int) -> None:
    budget = room + agent.desk._schema_tokens
    entries = context(agent, "Is an oar of the fleet varnished by hand each spring?", budget)
    assert count_tokens(json.dumps(entries)) <= room


def test_a_web_page_is_quoted_by_what_it_says_not_by_its_source(agent: Agent) -> None:
    page = "<html><body><h1>Masts</h1><p>A mast of the <b>kestrel</b> class is made of pine.</p></body></html>"
    (agent.hive.layout.knowledge / "masts.html").write_text(page)
    [entry] = of(context(agent, "What is a mast of the kestrel class made of?"), "passage:")
    assert entry["content"] == "A mast of the kestrel class is made of pine."
    assert (entry["metadata"]["form"], entry["metadata"]["path"]) == ("full", "knowledge/masts.html")
    for _ in range(6):
        agent.cycle()
    result = (agent.hive.layout.done / "t" / "result.md").read_text()
    assert "A mast of the kestrel class is made of pine." in result
