"""Blocks: ids, defaults, and that they notify their holders."""

from __future__ import annotations

import copy
import dataclasses
from datetime import UTC, datetime, timedelta, timezone

import pytest

from hivemind import UserError
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
)


def message(**fields: object) -> MessageMemoryBlock:
    given = {"from_agent": "a", "to_agent": "b", "subject": "s", "preview": "p", "full_path": "/m/new/1"} | fields
    return MessageMemoryBlock(**given)  # type: ignore[arg-type]


def test_ids_are_set_by_the_class() -> None:
    assert FileMemoryBlock(location="a.py").id == "a.py"
    assert FileMemoryBlock(location="a.py", start_line=3, end_line=9).id == "a.py:3-9"
    assert TaskMemoryBlock(task_id="T", description="d").id == "task:T"
    assert StatusMemoryBlock(status_type="mailbox", value={}).id == "status:mailbox"
    assert KnowledgeMemoryBlock(topic="t", location="k.md").id == "knowledge:k.md"
    assert KnowledgeMemoryBlock(topic="t", subtopic="s", location="k.md").id == "knowledge:k.md#s"
    assert message().id == "message:/m/new/1"
    assert message(message_id="<1@h>").id == "message:<1@h>"
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = HistoryMemoryBlock(action_type="a", action_detail="d", timestamp=now)
    same = HistoryMemoryBlock(action_type="a", action_detail="d", timestamp=now)
    later = HistoryMemoryBlock(action_type="a", action_detail="d", timestamp=now + timedelta(seconds=1))
    assert first.id == same.id != later.id
    assert first.id.startswith("history:")
    assert ContextMemoryBlock(context_type="project", summary="s").id.startswith("context:project:")


def test_an_id_that_is_passed_wins() -> None:
    assert TaskMemoryBlock(task_id="T", description="d", id="mine").id == "mine"


def test_two_ranges_of_one_file_are_two_blocks_and_an_open_range_is_neither() -> None:
    ids = {
        FileMemoryBlock(location="a", start_line=start, end_line=end).id
        for start, end in [(None, None), (1, 2), (2, 3), (2, None), (None, 3)]
    }
    assert len(ids) == 5


@pytest.mark.parametrize(("start", "end"), [(0, 3), (-1, 3), (4, 3)])
def test_lines_count_from_one_and_forwards(start: int, end: int) -> None:
    with pytest.raises(UserError, match="lines"):
        FileMemoryBlock(location="a", start_line=start, end_line=end)


def test_priorities_by_class_unless_one_is_passed() -> None:
    assert StatusMemoryBlock(status_type="s", value=1).priority is Priority.HIGH
    assert TaskMemoryBlock(task_id="T", description="d").priority is Priority.HIGH
    assert TaskMemoryBlock(task_id="T", description="d", priority=Priority.LOW).priority is Priority.LOW
    assert HistoryMemoryBlock(action_type="a", action_detail="d").priority is Priority.MEDIUM
    assert [priority.value for priority in Priority] == [1, 2, 3, 4]


def test_a_message_is_high_while_unread_and_medium_once_read_unless_told_otherwise() -> None:
    assert message(read=True).priority is Priority.MEDIUM
    block = message()
    assert block.priority is Priority.HIGH
    block.read = True
    assert block.priority is Priority.MEDIUM
    told = message(priority=Priority.LOW)
    told.read = True
    assert told.priority is Priority.LOW


def test_rom_is_critical_whatever_is_said() -> None:
    rom = FileMemoryBlock.rom("rom/rules.md", priority=Priority.LOW)
    assert (rom.type, rom.priority, rom.id) == (MemoryType.ROM, Priority.CRITICAL, "rom/rules.md")
    assert FileMemoryBlock(location="a", type=MemoryType.TASK).type is MemoryType.FILE


def test_timestamps_are_utc() -> None:
    naive = FileMemoryBlock(location="a", timestamp=datetime(2026, 1, 1, 12))
    east = FileMemoryBlock(location="a", timestamp=datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))))
    assert naive.timestamp == east.timestamp == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert east.timestamp.tzinfo is UTC
    assert FileMemoryBlock(location="a").timestamp.tzinfo is UTC


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_confidence_is_a_number_from_0_to_1(confidence: float) -> None:
    with pytest.raises(UserError, match="confidence"):
        FileMemoryBlock(location="a", confidence=confidence)


def test_a_bare_block_needs_a_type_and_an_id() -> None:
    assert MemoryBlock(type=MemoryType.STATUS, id="x").id == "x"
    with pytest.raises(UserError):
        MemoryBlock(id="x")
    with pytest.raises(UserError):
        MemoryBlock(type=MemoryType.STATUS)


def test_blocks_are_slotted_dataclasses_with_keyword_arguments_and_no_shared_defaults() -> None:
    block = FileMemoryBlock(location="a")
    assert dataclasses.is_dataclass(block)
    with pytest.raises(AttributeError):
        block.unknown = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        FileMemoryBlock("a")  # type: ignore[misc]
    assert FileMemoryBlock(location="a").metadata is not block.metadata
    tasks = [TaskMemoryBlock(task_id="T", description="d") for _ in range(2)]
    assert tasks[0].dependencies == []
    assert tasks[0].dependencies is not tasks[1].dependencies


def test_a_copy_is_equal() -> None:
    block = FileMemoryBlock(location="a", metadata={"k": [1]})
    for other in (copy.copy(block), copy.deepcopy(block), dataclasses.replace(block)):
        assert other == block
