"""The manager: one block per id, live views, references, differences (spec 2, *Manager* and *Lifecycle*)."""

from __future__ import annotations

import pytest

from hivemind import UserError
from hivemind.memory import (
    ContextMemoryBlock,
    FileMemoryBlock,
    MemorySelector,
    MemoryType,
    TaskMemoryBlock,
    WorkingMemoryManager,
    diff,
)


def filled(*names: str) -> WorkingMemoryManager:
    manager = WorkingMemoryManager()
    for name in names:
        manager.add_memory(FileMemoryBlock(location=name))
    return manager


def test_symbolic_memory_behaves_as_a_list_of_the_blocks_in_their_order() -> None:
    manager = filled("a", "b", "c")
    memory = manager.symbolic_memory
    assert [block.id for block in memory] == ["a", "b", "c"]
    assert (len(memory), memory[0].id, memory[-1].id) == (3, "a", "c")
    assert [block.id for block in memory[1:]] == ["b", "c"]
    assert memory == list(memory)
    assert memory[1] in memory
    with pytest.raises(IndexError):
        memory[3]
    memory.remove(memory[1])
    memory.append(FileMemoryBlock(location="d"))
    assert list(manager.memory_index) == ["a", "c", "d"]
    with pytest.raises(ValueError, match="not there"):
        memory.remove(FileMemoryBlock(location="zz"))


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


def test_blocks_of_two_managers_tell_both_of_their_changes() -> None:
    block = FileMemoryBlock(location="/nowhere/a")
    managers = [WorkingMemoryManager(), WorkingMemoryManager()]
    selector = MemorySelector(len)
    for manager in managers:
        manager.add_memory(block)
        manager.add_memory(FileMemoryBlock(location="/nowhere/b", confidence=0.5))
        assert next(found.id for found in selector.select_memories(manager.symbolic_memory, 10_000)) == "/nowhere/a"
    block.confidence = 0.1
    for manager in managers:
        assert next(found.id for found in selector.select_memories(manager.symbolic_memory, 10_000)) == "/nowhere/b"
    managers[0].remove_memory(block.id)
    block.confidence = 1.0
    assert selector.select_memories(managers[1].symbolic_memory, 10_000)[0] is block
    assert len(selector.select_memories(managers[0].symbolic_memory, 10_000)) == 1


def test_what_refers_to_a_block_and_what_it_refers_to() -> None:
    manager = filled("a.py", "b.py")
    context = ContextMemoryBlock(context_type="project", summary="s", related_ids=["a.py", "gone.py"])
    task = TaskMemoryBlock(task_id="T2", description="d", dependencies=["T1"])
    for block in (context, task, TaskMemoryBlock(task_id="T1", description="d")):
        manager.add_memory(block)
    assert manager.referring_to("a.py") == [context]
    assert manager.referring_to("task:T1") == [task]
    assert manager.referring_to("b.py") == []
    assert [block.id for block in manager.related(context.id)] == ["a.py"]
    assert [block.id for block in manager.related("task:T2")] == ["task:T1"]


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
    changes = diff(before, now)
    assert (changes.entered, changes.left, changes.changed) == (["d"], ["b"], ["c"])
    assert not diff(now, now)
    manager = WorkingMemoryManager()
    manager.context_memory = now
    assert manager.diff(before) == changes
