"""The tool `recall`: what the hive knows about a question and the mind does not see, within so many tokens, with its sources."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from hivemind import Hive
from hivemind.errors import HivemindError
from hivemind.minds import Thought, ToolCall, Turn
from hivemind.tokens import count_tokens
from tests.agent.conftest import Crew
from tests.messages import lines_of

QUESTION = "Which wood is the keel of the Ann made of?"
OAK = "The keel of the Ann is made of oak wood."
LOOK = ("list_files", {"path": "knowledge"})
DONE = ("finish_task", {"result": "Counted."})
Call = tuple[str, dict[str, Any]]


@pytest.fixture
def crew(crew: Crew) -> Crew:
    crew.configure("embedder: none\n")
    crew.agent_file("role: analyst\nmax_tokens: 100000\n")
    crew.agent_file("role: analyst\n", "bob")
    return crew


def using(
    crew: Crew, *calls: Call, task: str = "t", name: str = "ada", meanwhile: Callable[[], object] = lambda: None
) -> list[str]:
    """The results of calls as the mind of a task reads them, one call a turn. `meanwhile` happens in the first turn."""
    crew.drop("---\ntitle: Count the oars\n---\nCount the oars.\n", f"{task}.md")
    seen: list[str] = []
    left = iter(calls)

    def think(turn: Turn) -> Thought:
        if not seen:
            meanwhile()
        seen.append(turn.messages[-1].text)
        call = next(left, None)
        return Thought() if call is None else Thought("", (ToolCall(*call),))

    agent = crew.start(think, name)
    for _ in range(len(calls) + 1):
        agent.cycle()
    crew.end(agent)
    return seen[1:]


def recall(question: str = QUESTION, **more: Any) -> Call:
    return "recall", {"question": question, **more}


def sources(text: str) -> dict[str, str]:
    return dict(re.findall(r'<material from="(.*?)">\n(.*?)\n</material>', text, re.DOTALL))


def test_documents_memories_mail_and_cards_of_other_tasks_are_recalled_with_their_sources(crew: Crew) -> None:
    tar = "The keel of the Ann: its wood was soaked in tar."
    using(crew, ("add_card", {"kind": "note", "text": tar}), DONE, task="a")
    draft = ("add_card", {"kind": "note", "text": "The keel of the Ann: its wood may be teak."})
    using(crew, draft, task="b", name="bob")  # a draft of another's
    hive = Hive.open(crew.root)
    (crew.root / "knowledge" / "ann.md").write_text(f"# The Ann\n\n{OAK}\n")
    hive.memory.put(("memories", "ada"), "keel", "The keel of the Ann: its wood was bought in Riga.")

    def write() -> None:
        hive.mail.send("bob", "ada", "The keel of the Ann", "Its wood was dried in 1911.")
        hive.mail.send("bob", "ada", "Lunch", "Lunch is at noon.")

    text = using(crew, LOOK, recall(), meanwhile=write)[-1]
    found = sources(text)
    assert found["knowledge/ann.md:3-3"] == OAK
    assert found["memory:memories/ada/keel"].endswith("Riga.")
    assert found["mail from bob: The keel of the Ann"] == "Its wood was dried in 1911."
    assert [told for source, told in found.items() if source.startswith("tasks/done/a/graph.jsonl node")] == [tar]
    assert len(found) == 4, found


def test_what_the_conversation_shows_already_is_not_recalled_and_makes_room_for_others(crew: Crew) -> None:
    (crew.root / "knowledge" / "ann.md").write_text(f"# The Ann\n\n{OAK}\n")
    (crew.root / "knowledge" / "bea.md").write_text(f"# The Bea\n\n{OAK.replace('Ann', 'Bea')}\n")
    first, second, third = using(crew, ("read_file", {"path": "knowledge/ann.md"}), recall(), recall())
    assert OAK in first
    assert OAK not in second
    assert sources(second)["knowledge/bea.md:3-3"] == OAK.replace("Ann", "Bea")
    assert third == "the hive knows nothing else about that"


@pytest.mark.shows("argument: recall tokens")
def test_what_is_recalled_keeps_to_its_tokens(crew: Crew) -> None:
    for number in range(40):
        (crew.root / "knowledge" / f"keel-{number}.md").write_text(
            f"# Keel {number}\n\n{OAK} It has number {number}. " * 9
        )
    small, large = using(crew, recall(tokens=300), recall())
    assert 200 < count_tokens(small) <= 300, "what counts is what is shown"
    assert 300 < count_tokens(large) <= 2_000


def test_a_turn_that_was_folded_is_recalled(crew: Crew) -> None:
    crew.agent_file("role: analyst\nmax_tokens: 24000\n")
    (crew.root / "big.txt").write_text("The sea is wide and the wind is strong today.\n" * 90)
    crew.drop("Look at the sea.\n")
    seen: list[str] = []

    def think(turn: Turn) -> Thought:
        seen.append(turn.messages[-1].text)
        if len(seen) == 1:
            return Thought(f"I have heard it: {OAK}", (ToolCall("note_step", {"text": OAK}),))
        if turn.agent == "ada" and not any(OAK in one.text for one in turn.messages):
            return Thought("", (ToolCall(*recall()),))
        return Thought(f"Again {len(seen)}.", (ToolCall("read_file", {"path": "big.txt", "start_line": len(seen)}),))

    agent = crew.start(think)
    for _ in range(60):
        if not agent.cycle() or "graph.jsonl" in seen[-1]:
            break
    epochs = [line["cause"] for line in lines_of(crew.root / "tasks/active/t") if "opening" in line]
    assert epochs[:2] == ["start", "full"]
    [found] = [told for source, told in sources(seen[-1]).items() if source.startswith("tasks/active/t/graph.jsonl")][
        :1
    ]
    assert OAK in found


def test_a_person_at_a_command_line_has_nothing_to_recall_with(crew: Crew) -> None:
    from hivemind.tools.registry import use_by_hand

    with pytest.raises(HivemindError, match="only an agent at work can recall"):
        use_by_hand(Hive.open(crew.root), "ada", *recall())
