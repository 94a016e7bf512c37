"""The blocks that the janitor drops, and those that it never drops."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hivemind.memory import (
    FileMemoryBlock,
    HistoryMemoryBlock,
    MemoryBlock,
    MemoryJanitor,
    MessageMemoryBlock,
    Priority,
    StatusMemoryBlock,
    TaskMemoryBlock,
    WorkingMemoryManager,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD = NOW - timedelta(hours=2)


def history(name: str, **fields: object) -> HistoryMemoryBlock:
    return HistoryMemoryBlock(action_type="a", action_detail="d", id=name, **fields)  # type: ignore[arg-type]


def test_it_drops_by_the_rules_keeps_the_order_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("x")
    gone = str(tmp_path / "gone")
    blocks: list[MemoryBlock] = [
        FileMemoryBlock(location=str(tmp_path / "here")),
        StatusMemoryBlock(status_type="expired", value=1, expiry=OLD),
        StatusMemoryBlock(status_type="lasts", value=1, expiry=NOW),
        StatusMemoryBlock(status_type="faint", value=1, priority=Priority.LOW, confidence=0.09),
        StatusMemoryBlock(status_type="low", value=1, priority=Priority.LOW, confidence=0.1),
        history("old", timestamp=OLD),
        history("hour", timestamp=NOW - timedelta(hours=1)),
        history("high", timestamp=OLD, priority=Priority.HIGH),
        TaskMemoryBlock(task_id="done", description="d", status="done"),
        TaskMemoryBlock(task_id="open", description="d"),
        FileMemoryBlock(location=gone),
        FileMemoryBlock(location="relative, of which it knows nothing"),
        MessageMemoryBlock(from_agent="a", to_agent="b", subject="s", preview="p", full_path=gone),
        FileMemoryBlock.rom(gone, expiry=OLD),
        FileMemoryBlock(location=f"{gone}2", priority=Priority.CRITICAL),
    ]
    janitor = MemoryJanitor()
    kept = janitor.cleanup_memories(blocks, NOW)
    dropped = ["status:expired", "status:faint", "old", "task:done", gone, f"message:{gone}"]
    assert list(janitor.dropped) == dropped
    assert kept == [block for block in blocks if block.id not in dropped or block.priority is Priority.CRITICAL]
    assert "expired" in janitor.dropped["status:expired"]
    assert "below 0.1" in janitor.dropped["status:faint"]
    assert "no longer exists" in janitor.dropped[gone]
    janitor.cleanup_memories([], NOW)
    assert janitor.dropped == {}


def test_the_hive_can_be_asked_instead() -> None:
    janitor = MemoryJanitor(
        task_ended=lambda task: task == "T1",
        file_exists=lambda location: location != "a.py",
        mail_deleted=lambda path: path.endswith("1"),
    )
    fields = {"from_agent": "a", "to_agent": "b", "subject": "s", "preview": "p"}
    blocks: list[MemoryBlock] = [
        TaskMemoryBlock(task_id="T1", description="d"),
        TaskMemoryBlock(task_id="T2", description="d"),
        history("of T1", timestamp=NOW, metadata={"task_id": "T1"}),
        history("of T2", timestamp=NOW, metadata={"task_id": "T2"}),
        FileMemoryBlock(location="a.py", start_line=1, end_line=2),
        FileMemoryBlock(location="b.py"),
        MessageMemoryBlock(full_path="m1", **fields),
        MessageMemoryBlock(full_path="m2", **fields),
    ]
    kept = [block.id for block in janitor.cleanup_memories(blocks, NOW)]
    assert kept == ["task:T2", "of T2", "b.py", "message:m2"]


def test_a_read_mail_that_moved_to_cur_is_not_gone(tmp_path: Path) -> None:
    for name in ("new", "cur"):
        (tmp_path / name).mkdir()
    (tmp_path / "cur/1:2,S").write_text("x")
    block = MessageMemoryBlock(
        from_agent="a", to_agent="b", subject="s", preview="p", full_path=str(tmp_path / "new/1")
    )
    assert MemoryJanitor().cleanup_memories([block]) == [block]


def test_tidying_a_manager_removes_what_has_had_its_time(tmp_path: Path) -> None:
    manager = WorkingMemoryManager()
    manager.add_memory(FileMemoryBlock(location=str(tmp_path / "gone")))
    manager.add_memory(FileMemoryBlock(location=str(tmp_path)))
    assert list(MemoryJanitor().tidy(manager)) == [str(tmp_path / "gone")]
    assert list(manager.memory_index) == [str(tmp_path)]
