"""The manager: one block per id, live views, references, differences."""

from __future__ import annotations

import pytest

from hivemind import UserError
from hivemind.memory import ContextMemoryBlock, FileMemoryBlock, MemoryType, TaskMemoryBlock, WorkingMemoryManager


def filled(*names: str) -> WorkingMemoryManager:
    manager = WorkingMemoryManager()
    for name in names:
        manager.add_memory(FileMemoryBlock(location=name))
    return manager


def test_symbolic_memory_is_the_list_of_the_blocks_in_their_order() -> None:
    manager = filled("a", "b", "c")
    assert [block.id for block in manager.symbolic_memory] == list(manager.memory_index) == ["a", "b", "c"]
    manager.remove_memory("b")
    manager.add_memory(FileMemoryBlock(location="d"))
    assert [block.id for block in manager.symbolic_memory] == list(manager.memory_index) == ["a", "c", "d"]


def test_adding_a_known_id_replaces_the_block_in_its_place() -> None:
    manager = filled("a", "b")
    again = FileMemoryBlock(location="a", confidence=0.5)
    manager.add_memory(again)
    manager.add_memory(again)
    assert [block.id for block in manager.symbolic_memory] == ["a", "b"]
    assert manager.get("a") is again
    assert len(manager.blocks_by_type(MemoryType.FILE)) == 2


def test_remove_and_update_say_whether_there_was_such_a_block() -> None:
    manager = filled("a")
    assert manager.update_confidence("a", 0.25)
    assert manager.memory_index["a"].confidence == 0.25
    assert not manager.update_confidence("zz", 0.25)
    with pytest.raises(UserError):
        manager.update_confidence("a", 2)
    assert manager.remove_memory("a")
    assert not manager.remove_memory("a")
    assert manager.get("a") is None
    assert not manager.memory_index


def test_what_refers_to_a_block() -> None:
    manager = filled("a.py", "b.py")
    context = ContextMemoryBlock(context_type="project", summary="s", related_ids=["a.py", "gone.py"])
    task = TaskMemoryBlock(task_id="T2", description="d", dependencies=["T1"])
    for block in (context, task, TaskMemoryBlock(task_id="T1", description="d")):
        manager.add_memory(block)
    assert manager.referring_to("a.py") == [context]
    assert manager.referring_to("task:T1") == [task]
    assert manager.referring_to("b.py") == []


def test_blocks_by_type_and_stats() -> None:
    manager = filled("a", "b")
    manager.add_memory(FileMemoryBlock.rom("rom/r.md"))
    manager.add_memory(TaskMemoryBlock(task_id="T", description="d"))
    assert [block.id for block in manager.blocks_by_type(MemoryType.FILE)] == ["a", "b"]
    assert [block.id for block in manager.blocks_by_type(MemoryType.ROM)] == ["rom/r.md"]
    stats = manager.stats()
    assert stats["blocks"] == 4
    assert stats["by_type"] == {"file": 2, "rom": 1, "task": 1}
    assert stats["by_priority"] == {"critical": 1, "high": 1, "medium": 2}


def test_a_difference_between_two_contexts_names_what_entered_left_and_changed() -> None:
    before = [{"id": "a", "content": "1"}, {"id": "b", "content": "1"}, {"id": "c", "content": "1"}]
    now = [{"id": "c", "content": "2"}, {"id": "d", "content": "1"}, {"id": "a", "content": "1"}]
    manager = WorkingMemoryManager()
    manager.context_memory = now
    changes = manager.diff(before)
    assert (changes.added_ids, changes.removed_ids, changes.changed_ids) == (["d"], ["b"], ["c"])
    same = manager.diff(now)
    assert (same.added_ids, same.removed_ids, same.changed_ids) == ([], [], [])
