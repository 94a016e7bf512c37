"""Saves: every field comes back, whole or not at all, whatever happens meanwhile (README, *On disk*)."""

from __future__ import annotations

import math
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind.errors import UnknownVersion, UserError
from hivemind.memory import (
    ContextMemoryBlock,
    FileMemoryBlock,
    HistoryMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MemoryType,
    MessageMemoryBlock,
    Priority,
    StatusMemoryBlock,
    TaskMemoryBlock,
    WorkingMemoryManager,
)
from tests.program import Python, run

NAMES = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
COMMON: dict[str, Any] = {
    "confidence": st.floats(0, 1),
    "priority": st.sampled_from(Priority),
    "timestamp": MOMENTS,
    "expiry": st.none() | MOMENTS,
    "metadata": st.dictionaries(NAMES, JSON, max_size=3),
}
OPTIONAL = st.none() | NAMES
FULL = NAMES.filter(bool)
MAIL = ("from_agent", "to_agent", "subject", "preview", "full_path")


def _of(kind: type[MemoryBlock], **fields: Any) -> st.SearchStrategy[MemoryBlock]:
    return st.fixed_dictionaries(fields, optional=COMMON).map(lambda given: kind(**given))


BLOCKS = st.one_of(
    _of(FileMemoryBlock, location=FULL, start_line=st.none() | st.just(3), end_line=st.none() | st.integers(3, 9)),
    _of(FileMemoryBlock, location=FULL, digest=OPTIONAL, type=st.just(MemoryType.ROM)),
    _of(StatusMemoryBlock, status_type=NAMES, value=JSON),
    _of(TaskMemoryBlock, task_id=NAMES, description=NAMES, project=OPTIONAL, dependencies=st.lists(NAMES), status=NAMES),
    _of(MessageMemoryBlock, **dict.fromkeys(MAIL, NAMES), read=st.booleans(), message_id=OPTIONAL),
    _of(KnowledgeMemoryBlock, topic=NAMES, subtopic=OPTIONAL, location=NAMES, relevance_score=st.floats(0, 1)),
    _of(HistoryMemoryBlock, action_type=NAMES, action_detail=NAMES, result=OPTIONAL),
    _of(ContextMemoryBlock, context_type=NAMES, summary=NAMES, related_ids=st.lists(NAMES)),
    _of(MemoryBlock, type=st.sampled_from(MemoryType), id=NAMES.filter(bool)),
)  # fmt: skip


def same(manager: WorkingMemoryManager, path: Path) -> None:
    loaded = WorkingMemoryManager.load(path)
    assert list(loaded.symbolic_memory) == list(manager.symbolic_memory)
    assert loaded.max_tokens == manager.max_tokens
    for block in loaded.symbolic_memory:
        if isinstance(block, MessageMemoryBlock):
            known = manager.get(block.id)
            assert isinstance(known, MessageMemoryBlock)
            assert known.has_fixed_priority == block.has_fixed_priority


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(st.tuples(st.lists(BLOCKS, max_size=4), st.integers(0, 9), st.booleans()), min_size=1, max_size=6)
)
def test_every_field_of_every_class_comes_back_whatever_changed_between_saves(
    tmp_path: Path, rounds: list[tuple[list[MemoryBlock], int, bool]]
) -> None:
    path = tmp_path / "memory.jsonl"
    path.unlink(missing_ok=True)
    manager = WorkingMemoryManager(max_tokens=1_234)
    for blocks, number, anew in rounds:
        for block in blocks:
            manager.add_memory(block)
        held = list(manager.symbolic_memory)
        if held:
            held[number % len(held)].confidence = number / 10
            manager.remove_memory(held[number * 7 % len(held)].id)
        manager.save(path)
        same(manager, path)
        if anew:
            manager = WorkingMemoryManager.load(path)


def test_load_gives_a_manager_or_fills_the_one_it_is_called_on(tmp_path: Path) -> None:
    manager = WorkingMemoryManager(max_tokens=77)
    manager.add_memory(FileMemoryBlock(location="a"))
    manager.save(tmp_path / "m")
    other = WorkingMemoryManager()
    other.add_memory(FileMemoryBlock(location="b"))
    assert other.load(tmp_path / "m") is other
    assert ([block.id for block in other.symbolic_memory], other.max_tokens) == (["a"], 77)
    assert WorkingMemoryManager.load(tmp_path / "m").get("a") == manager.get("a")


def test_a_save_writes_nothing_where_nothing_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "m"
    manager = WorkingMemoryManager()
    manager.add_memory(FileMemoryBlock(location="a"))
    manager.save(path)
    inode = path.stat().st_ino
    manager.save(path)
    WorkingMemoryManager.load(path).save(path)
    assert path.stat().st_ino == inode
    manager.memory_index["a"].metadata["seen"] = True
    manager.save(path)
    same(manager, path)
    path.unlink()
    manager.save(path)
    same(manager, path)


@pytest.mark.parametrize(
    "point", ["fs.write.written:1", "fs.write.written:3", "fs.write.synced:2", "fs.write.renamed:4"]
)
def test_a_process_that_is_killed_while_it_saves_loses_at_most_that_save(tmp_path: Path, point: str) -> None:
    path = tmp_path / "m"
    child = run(
        [Path(__file__).with_name("children.py"), path, "8"], start=Python,
        env=os.environ | {"HIVEMIND_CRASH_AT": point},
        capture_output=True, text=True,
    )  # fmt: skip
    said = [int(line) for line in child.stdout.split()]
    assert child.returncode == -signal.SIGKILL, child.stderr
    if not said:
        assert not path.exists()
        return
    numbers = [int(name[1:]) for name in WorkingMemoryManager.load(path).memory_index]
    assert numbers[-1] in (said[-1], said[-1] + 1)
    assert numbers == list(range(max(0, numbers[-1] - 2), numbers[-1] + 1))


def test_an_unknown_version_is_refused_and_kept_by_load_and_by_save(tmp_path: Path) -> None:
    path = tmp_path / "m"
    manager = WorkingMemoryManager()
    manager.add_memory(FileMemoryBlock(location="a"))
    manager.save(path)
    future = path.read_bytes().replace(b'"version":1', b'"version":99')
    path.write_bytes(future)
    with pytest.raises(UnknownVersion, match="version 99"):
        WorkingMemoryManager.load(path)
    with pytest.raises(UnknownVersion):
        WorkingMemoryManager().save(path)
    assert path.read_bytes() == future


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no json",
        b'{"kind":"other","version":1}',
        b'{"kind":"working-memory","version":1,"max_tokens":1}',
        b'{"kind":"working-memory","version":1,"max_tokens":1,"blocks":[{"id":"x"}]}',
        b'{"kind":"working-memory","version":1,"max_tokens":1,"blocks":[',
        b"\xff",
    ],
)
def test_what_is_damaged_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        WorkingMemoryManager.load(path)
    assert caught.value.location == str(path)
    assert path.read_bytes() == content


def test_no_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none"):
        WorkingMemoryManager.load(tmp_path / "none")


def test_what_json_has_no_word_for_is_kept_as_text(tmp_path: Path) -> None:
    manager = WorkingMemoryManager()
    manager.add_memory(StatusMemoryBlock(status_type="s", value=frozenset({1}), metadata={"far": math.inf}))
    manager.save(tmp_path / "m")
    (loaded,) = WorkingMemoryManager.load(tmp_path / "m")
    assert isinstance(loaded, StatusMemoryBlock)
    assert (loaded.value, loaded.metadata) == ("frozenset({1})", {"far": "Infinity"})


def test_a_full_disk_leaves_the_save_before(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "m"
    manager = WorkingMemoryManager()
    manager.add_memory(FileMemoryBlock(location="a"))
    manager.save(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, hard))
    try:
        manager.add_memory(FileMemoryBlock(location="b"))
        with pytest.raises(UserError, match="cannot be written"):
            manager.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert list(WorkingMemoryManager.load(path).memory_index) == ["a"]
    manager.save(path)
    assert list(WorkingMemoryManager.load(path).memory_index) == ["a", "b"]
