"""Contexts: their entries, and that they never exceed the budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind.memory import (
    ContentLoader,
    ContextBuilder,
    ContextMemoryBlock,
    CriticalOverBudget,
    FileMemoryBlock,
    HistoryMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MemorySelector,
    MessageMemoryBlock,
    Priority,
    StatusMemoryBlock,
    TaskMemoryBlock,
    WorkingMemoryManager,
    count_tokens,
)
from hivemind.memory.blocks import context_entry, json_fragment
from hivemind.tokens import TokenCounter

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def builder(root: Path, **fields: Any) -> ContextBuilder:
    return ContextBuilder(ContentLoader(root), **fields)


def test_an_entry_has_five_keys_and_the_fields_of_its_type(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1\n2\n3\n")
    (tmp_path / "m").write_text("Subject: s\n\nhi")
    blocks: list[MemoryBlock] = [
        FileMemoryBlock(location="a.py", start_line=2, end_line=3, timestamp=NOW, metadata={"note": [1]}),
        TaskMemoryBlock(task_id="T", description="d", project="p", dependencies=["U"], status="active"),
        MessageMemoryBlock(from_agent="bob", to_agent="eve", subject="s", preview="p", full_path="m"),
        KnowledgeMemoryBlock(topic="t", subtopic="u", location="a.py", relevance_score=0.75),
        HistoryMemoryBlock(action_type="run", action_detail="ls", result="ok"),
        ContextMemoryBlock(context_type="project", summary="s", related_ids=["a.py"]),
        StatusMemoryBlock(status_type="mailbox", value={"unread": 2}),
    ]
    file, task, message, knowledge, history, context, status = builder(tmp_path).build_context(blocks)
    assert file == {
        "id": "a.py:2-3",
        "content": "2\n3\n",
        "confidence": 1.0,
        "priority": "medium",
        "metadata": {
            "note": [1],
            "type": "file",
            "timestamp": "2026-01-01T00:00:00+00:00",
            "source": "a.py",
            "lines": "2-3",
            "origin": "hive",
            "form": "full",
        },
    }
    wanted = {"task_id": "T", "status": "active", "project": "p", "dependencies": ["U"], "origin": "human"}
    assert task["metadata"].items() >= wanted.items()
    assert message["metadata"].items() >= {"from": "bob", "to": "eve", "subject": "s", "read": False}.items()
    assert (message["content"], message["metadata"]["origin"]) == ("hi", "agent")
    assert knowledge["metadata"].items() >= {"topic": "t", "subtopic": "u", "relevance": 0.75}.items()
    assert history["metadata"].items() >= {"action": "run", "result": "ok", "origin": "agent"}.items()
    assert context["metadata"].items() >= {"context_type": "project", "related_ids": ["a.py"]}.items()
    assert (status["content"], status["metadata"]["status_type"]) == ('{"unread": 2}', "mailbox")


@pytest.mark.parametrize(
    ("fields", "origin"),
    [
        ({"from_agent": "human"}, "human"),
        ({"from_agent": "human@hive"}, "human"),
        ({"from_agent": "Bob <bob@hive>"}, "agent"),
        ({"from_agent": "no name at all"}, "external"),
        ({"from_agent": "bob", "metadata": {"origin": "external"}}, "external"),
        ({"from_agent": "bob", "metadata": {"origin": "rom"}}, "agent"),
        ({"from_agent": "bob", "metadata": {"origin": "king", "type": "rom", "form": "x"}}, "agent"),
    ],
)
def test_no_block_can_claim_an_origin_or_a_type_that_is_not_its_own(fields: dict[str, Any], origin: str) -> None:
    block = MessageMemoryBlock(to_agent="b", subject="s", preview="p", full_path="", **fields)
    metadata = context_entry(block, "c")["metadata"]
    assert (metadata["origin"], metadata["type"], metadata["form"]) == (origin, "message", "full")


def test_rom_and_files_from_outside_say_where_they_are_from(tmp_path: Path) -> None:
    hive, other = tmp_path / "hive", tmp_path / "other"
    hive.mkdir()
    other.mkdir()
    (other / "a").write_text("x")
    (hive / "rom.md").write_text("rules")
    loader = ContentLoader(hive, roots=[other])
    blocks = [FileMemoryBlock.rom("rom.md"), FileMemoryBlock(location=str(other / "a"))]
    assert [e["metadata"]["origin"] for e in ContextBuilder(loader).build_context(blocks)] == ["rom", "external"]
    by_maker = TaskMemoryBlock(task_id="T", description="d", metadata={"maker": "bob"})
    assert context_entry(by_maker, "d")["metadata"]["origin"] == "agent"


def test_metadata_that_json_cannot_say_stands_there_as_text(tmp_path: Path) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for metadata in ({"path": tmp_path, "when": NOW, ("a",): 1}, loop):
        entry = builder(tmp_path).build_context([TaskMemoryBlock(task_id="T", description="d", metadata=metadata)])[0]
        assert json.dumps(entry)
    assert "error" in entry["metadata"]


def test_errors_and_changes_are_marked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("new")
    blocks = [FileMemoryBlock(location="a", digest="0" * 64), FileMemoryBlock(location="gone")]
    changed, gone = builder(tmp_path).build_context(blocks)
    assert changed["metadata"]["changed"] is True
    assert len(changed["metadata"]["digest"]) == 64
    assert gone["metadata"]["error"] == "does not exist"


def test_only_what_is_selected_is_loaded_and_only_what_changed_is_loaded_again(tmp_path: Path) -> None:
    manager = WorkingMemoryManager()
    for at in range(300):
        (tmp_path / f"{at}.txt").write_text(f"file {at} " * 50)
        manager.add_memory(FileMemoryBlock(location=f"{tmp_path}/{at}.txt"))
    loader = ContentLoader(tmp_path)
    selector, maker = MemorySelector(count_tokens), ContextBuilder(loader)
    selected = selector.select_memories(manager.symbolic_memory, 5_000)
    maker.build_context(selected, 5_000)
    assert loader.loads == len(selected) < 40
    maker.build_context(selected, 5_000)
    assert loader.loads == len(selected)
    (tmp_path / selected[0].id).write_text("new")
    assert maker.build_context(selected, 5_000)[0]["content"] == "new"
    assert loader.loads == len(selected) + 1


def test_a_change_of_any_field_shows_at_once_also_within_metadata(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    maker, manager = builder(tmp_path), WorkingMemoryManager()
    block = FileMemoryBlock(location="a", metadata={"k": {"n": 1}})
    for held in (False, True):
        if held:
            manager.add_memory(block)
        maker.build_context([block])
        block.confidence /= 2
        assert maker.build_context([block])[0]["confidence"] == block.confidence
        block.metadata["k"]["n"] += 1
        assert maker.build_context([block])[0]["metadata"]["k"] == block.metadata["k"]
        block.start_line, block.end_line = 2, 2
        assert maker.build_context([block])[0]["content"] == "2\n"
        block.start_line = block.end_line = None
        assert maker.build_context([block])[0]["content"] == "1\n2\n3\n"


def test_the_caller_may_change_what_it_gets(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    maker, blocks = builder(tmp_path), [FileMemoryBlock(location="a")]
    first = maker.build_context(blocks)
    first[0]["content"] = first[0]["metadata"]["source"] = "spoilt"
    again = maker.build_context(blocks)[0]
    assert (again["content"], again["metadata"]["source"]) == ("x", "a")


# what never exceeds
TEXTS = st.one_of(
    st.text(max_size=300),
    st.sampled_from(["word " * 400, "é" * 300, "-" * 3_000, '"\\\n' * 200, "# H\n\nText. More.\n" * 40]),
    st.just("def f(x):\n    '''Doc.'''\n" * 40),
)
COUNTERS: list[Callable[[str], int]] = [
    count_tokens,
    TokenCounter("o200k_base"),
    TokenCounter("unknown"),
    len,
    lambda text: len(text) // 4,
    lambda text: len(text.split()),
    lambda text: len(text) ** 2 // 9_000,  # parts say little about the whole
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.tuples(TEXTS, st.sampled_from(["a.py", "b.md", "c.txt", None]), st.booleans()), max_size=8),
    budget=st.integers(2, 3_000),
    counter=st.sampled_from(COUNTERS),
    selected=st.booleans(),
)
def test_a_context_never_counts_more_than_its_budget(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[tuple[str, str | None, bool]],
    budget: int,
    counter: Callable[[str], int],
    selected: bool,
) -> None:
    root = tmp_path_factory.mktemp("hive")
    blocks: list[MemoryBlock] = []
    for at, (text, name, low) in enumerate(texts):
        priority = Priority.LOW if low else Priority.HIGH
        if name is None:
            blocks.append(StatusMemoryBlock(status_type=f"s{at}", value=text, priority=priority))
        else:
            (root / f"{at}{name}").write_text(text, "utf-8")
            blocks.append(FileMemoryBlock(location=f"{at}{name}", priority=priority, confidence=at / 8))
    loader = ContentLoader(root)
    maker = ContextBuilder(loader, token_counter=counter)
    for _ in range(2):
        chosen = MemorySelector(counter, locate=loader.path_of).select(blocks, budget) if selected else blocks
        context = maker.build_context(chosen, budget)
        assert counter(json.dumps(context)) <= budget
        for entry in context:
            assert entry["metadata"]["form"] in ("full", "outline", "excerpt", "reference")


@settings(deadline=None)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=5))
def test_the_counts_of_pieces_add_up_to_the_count_of_the_list(texts: list[str]) -> None:
    for counter in (count_tokens, TokenCounter("o200k_base")):
        entries = [context_entry(StatusMemoryBlock(status_type="s", value=text), text) for text in texts]
        together = counter(json.dumps(entries))
        apart = sum(counter(json_fragment(entry)) for entry in entries)
        assert abs(together - apart) <= 4


def test_what_is_too_much_goes_in_smaller_lowest_rank_first(tmp_path: Path) -> None:
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_text(f"# {name}\n\nFirst sentence. " + "More words here. " * 300)
    blocks = [FileMemoryBlock(location=name) for name in ("a.md", "b.md", "c.md")]
    context = builder(tmp_path).build_context(blocks, 2_500)
    assert [entry["metadata"]["form"] for entry in context] == ["full", "outline", "outline"][: len(context)]
    assert context[0]["content"] == (tmp_path / "a.md").read_text()


def test_of_a_selection_what_did_not_fit_goes_in_smaller_where_there_is_room(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(
        "import os\n\n\ndef act(x: int) -> str:\n    '''Act.'''\n" + "    x += 1\n" * 3_000
    )
    (tmp_path / "blob.txt").write_text("abc def\n" * 9_000)
    manager = WorkingMemoryManager()
    manager.add_memory(FileMemoryBlock(location="long.py", confidence=0.9))
    manager.add_memory(FileMemoryBlock(location="blob.txt", confidence=0.8))
    maker = builder(tmp_path)
    selection = MemorySelector(count_tokens, locate=maker.content_loader.path_of).select(manager.symbolic_memory, 2_000)
    assert selection.blocks == []
    context = maker.build_context(selection, 2_000)
    assert [(e["id"], e["metadata"]["form"]) for e in context] == [("long.py", "outline"), ("blob.txt", "excerpt")]
    assert "def act(x: int) -> str:" in context[0]["content"]
    assert count_tokens(json.dumps(context)) <= 2_000


def test_a_document_is_expanded_to_the_length_that_is_left_and_a_reference_is_the_last_resort(tmp_path: Path) -> None:
    def expand(reference: str, max_tokens: int | None) -> str:
        return "word " * (5_000 if max_tokens is None else max_tokens - 5)

    maker = ContextBuilder(ContentLoader(tmp_path, sources={"doc": expand}))
    document = KnowledgeMemoryBlock(topic="t", location="doc:1")
    (entry,) = maker.build_context([document], 1_000)
    assert entry["metadata"]["form"] == "excerpt"
    assert 700 < count_tokens(json.dumps([entry])) <= 1_000
    contexts = [maker.build_context([document], room) for room in range(60, 160)]
    forms = [context[0]["metadata"]["form"] if context else "out" for context in contexts]
    assert list(dict.fromkeys(forms)) == ["out", "reference", "excerpt"]


def test_critical_blocks_are_never_reduced_and_too_much_of_them_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rom.md").write_text("# Rules\n\nObey. " + "and so on. " * 400)
    (tmp_path / "a.md").write_text("x")
    blocks = [FileMemoryBlock.rom("rom.md"), FileMemoryBlock(location="a.md")]
    context = builder(tmp_path).build_context(blocks, 1_700)
    assert [entry["content"] for entry in context] == [(tmp_path / "rom.md").read_text()]
    with pytest.raises(CriticalOverBudget) as caught:
        builder(tmp_path).build_context(blocks, 800)
    assert [name for name, _ in caught.value.sizes] == ["rom.md"]


def test_every_kind_of_content_that_a_block_carries_can_be_shown() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert StatusMemoryBlock(status_type="s", value=loop).inline_content() == "[[...]]"
    assert StatusMemoryBlock(status_type="s", value="text").inline_content() == "text"
    assert HistoryMemoryBlock(action_type="run", action_detail="ls").inline_content() == "run: ls"
    assert FileMemoryBlock(location="a").inline_content() is None
