"""Saves: every field comes back, whole or not at all, whatever happens meanwhile (README, *On disk*)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
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
from hivemind.memory.manager import SLACK

NAMES = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NAMES,
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
            assert known.own_priority == block.own_priority


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        manager.save(path, durable=False)
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


def test_a_save_costs_what_changed_and_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "m"
    manager = WorkingMemoryManager()
    for at in range(500):
        manager.add_memory(FileMemoryBlock(location=f"f{at}"))
    manager.save(path, durable=False)
    whole, inode = path.stat().st_size, path.stat().st_ino
    manager.save(path, durable=False)
    assert path.stat().st_size == whole
    manager.max_tokens = 5
    manager.save(path, durable=False)
    same(manager, path)
    whole = path.stat().st_size
    manager.update_confidence("f3", 0.25)
    manager.get("f4").expiry = datetime.now(UTC) + timedelta(days=1)  # type: ignore[union-attr]
    manager.save(path, durable=False)
    assert path.stat().st_ino == inode
    assert 0 < path.stat().st_size - whole < 1_000
    same(manager, path)
    for at in range(2_000):
        manager.update_confidence(f"f{at % 500}", at / 2_000)
        manager.save(path, durable=False)
    assert path.stat().st_size < 3 * whole + SLACK
    same(manager, path)


def test_a_save_that_was_cut_off_at_any_byte_did_not_happen(tmp_path: Path) -> None:
    path = tmp_path / "m"
    manager = WorkingMemoryManager()
    manager.add_memory(FileMemoryBlock(location="a"))
    manager.save(path)
    before = path.stat().st_size
    manager.update_confidence("a", 0.5)
    manager.add_memory(FileMemoryBlock(location="b"))
    manager.save(path)
    whole = path.read_bytes()
    for end in range(before, len(whole)):
        path.write_bytes(whole[:end])
        loaded = WorkingMemoryManager.load(path)
        assert [(block.id, block.confidence) for block in loaded.symbolic_memory] == [("a", 1.0)]
        loaded.add_memory(FileMemoryBlock(location="c"))
        loaded.save(path)
        assert list(WorkingMemoryManager.load(path).memory_index) == ["a", "c"]


@pytest.mark.parametrize(
    "point", ["working-memory.append.written", "working-memory.append.synced", "fs.write.written", "fs.write.synced"]
)
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_process_that_is_killed_while_it_saves_loses_at_most_that_save(tmp_path: Path, point: str, nth: int) -> None:
    path = tmp_path / "m"
    child = subprocess.run(
        [sys.executable, "-m", "tests.memory.children", str(path), "8"],
        env=os.environ | {"HIVEMIND_CRASH_AT": f"{point}:{nth}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [int(line) for line in child.stdout.split()]
    if child.returncode == 0:
        assert len(said) == 8
    else:
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
    future = path.read_bytes().replace(b'"version":3', b'"version":99')
    path.write_bytes(future)
    with pytest.raises(UnknownVersion, match="version 99"):
        WorkingMemoryManager.load(path)
    with pytest.raises(UnknownVersion):
        WorkingMemoryManager().save(path)
    assert path.read_bytes() == future


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"", ""),
        (b"no json\n", ":1"),
        (b'{"kind":"other","version":1}\n', ""),
        (b'{"kind":"working-memory","version":3}\n{"seq":1,"set":[{"id":"x"}]}\n', ""),
        (b'{"kind":"working-memory","version":3}\n[1]\n{"seq":1}\n', ":2"),
        (b'{"kind":"working-memory","version":3}\n\xff\n{"seq":1}\n', ":2"),
    ],
)
def test_what_is_damaged_is_refused_with_its_place_and_kept(tmp_path: Path, content: bytes, where: str) -> None:
    path = tmp_path / "m"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        WorkingMemoryManager.load(path)
    assert caught.value.where == f"{path}{where}"
    assert path.read_bytes() == content


def test_no_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none"):
        WorkingMemoryManager.load(tmp_path / "none")


def test_another_program_s_save_in_between_is_written_over_whole(tmp_path: Path) -> None:
    path = tmp_path / "m"
    one, two = WorkingMemoryManager(), WorkingMemoryManager()
    one.add_memory(FileMemoryBlock(location="one"))
    two.add_memory(FileMemoryBlock(location="two"))
    one.save(path)
    two.save(path)
    one.update_confidence("one", 0.5)
    one.save(path)
    assert list(WorkingMemoryManager.load(path).memory_index) == ["one"]


def test_a_full_disk_is_said_in_one_line_and_the_save_before_stands() -> None:
    manager = WorkingMemoryManager()
    manager.add_memory(FileMemoryBlock(location="a"))
    with pytest.raises(UserError, match="cannot be written"):
        manager.save("/dev/full/m")
    manager.add_memory(StatusMemoryBlock(status_type="s", value={1, 2}))
    assert json.loads(json.dumps("what JSON has no word for is kept as text"))


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
