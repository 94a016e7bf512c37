"""From results of tools to blocks."""

from __future__ import annotations

from typing import Any

import pytest

from hivemind.memory import (
    ContextMemoryBlock,
    FileMemoryBlock,
    HistoryMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MessageMemoryBlock,
    Priority,
    StatusMemoryBlock,
    TaskMemoryBlock,
    create_memory_from_action,
)
from hivemind.tools import MEMBER_TOOLS, TOOLS

RESULTS: list[Any] = [
    None,
    "text",
    {},
    [1, 2],
    {"error": "refused"},
    {"path": "a", "title": "t", "steps": ["s"], "task_id": "T", "results": [{"key": "k", "content": "c"}], "key": "k"},
    {"messages": []},
]


@pytest.mark.parametrize("result", RESULTS)
def test_every_tool_leaves_one_block_and_only_the_mailbox_a_list(result: Any) -> None:
    for tool in (*TOOLS, *MEMBER_TOOLS):
        made = create_memory_from_action(tool, result)
        if tool == "check_mailbox" and result != {"error": "refused"}:
            assert isinstance(made, list), tool
        else:
            assert isinstance(made, MemoryBlock), tool
            assert made.id


def test_files_that_were_read_or_written_are_high() -> None:
    result = {"path": "a.py", "start_line": 3, "end_line": 9, "digest": "d"}
    block = create_memory_from_action("read_file", result)
    assert isinstance(block, FileMemoryBlock)
    assert (block.id, block.digest, block.priority) == ("a.py:3-9", "d", Priority.HIGH)
    assert isinstance(create_memory_from_action("edit_file", {"path": "a.py"}), FileMemoryBlock)


def test_each_message_of_the_mailbox_is_one_block_also_when_it_is_seen_twice() -> None:
    message = {"from": "a", "to": "b", "subject": "s", "content": "x" * 300, "path": "/m/1", "id": "<1@h>"}
    once, twice = (create_memory_from_action("check_mailbox", {"messages": [message]}) for _ in range(2))
    assert isinstance(once, list)
    assert isinstance(twice, list)
    assert isinstance(once[0], MessageMemoryBlock)
    assert (once[0].id, len(once[0].preview), once[0].priority) == ("message:<1@h>", 100, Priority.HIGH)
    assert once[0].id == twice[0].id


def test_what_became_of_a_task_knowledge_steps_and_searches() -> None:
    done = create_memory_from_action("finish_task", {"task_id": "T", "result": "all well"})
    assert isinstance(done, TaskMemoryBlock)
    assert (done.status, done.description) == ("done", "all well")
    failed = create_memory_from_action("fail_task", {"task_id": "T", "reason": "no"})
    assert isinstance(failed, TaskMemoryBlock)
    assert failed.status == "failed"
    known = create_memory_from_action("doc_expand", {"path": "k.md", "title": "Rules", "score": 7})
    assert isinstance(known, KnowledgeMemoryBlock)
    assert (known.topic, known.relevance_score) == ("Rules", 1.0)
    steps = create_memory_from_action("plan_steps", {"steps": ["one", "two"]})
    assert isinstance(steps, StatusMemoryBlock)
    assert steps.value == ["one", "two"]
    hits = {"query": "rules", "results": [{"key": "k1", "content": "be kind"}, "plain"]}
    found = create_memory_from_action("search_memory", hits)
    assert isinstance(found, ContextMemoryBlock)
    assert found.related_ids == ["knowledge:k1"]
    assert found.summary.splitlines() == ["2 found for 'rules'", "k1: be kind", "plain"]


def test_everything_else_becomes_history_with_what_it_was_about() -> None:
    block = create_memory_from_action("run_command", {"command": "pytest -q", "exit_status": 0, "output": "3 passed"})
    assert isinstance(block, HistoryMemoryBlock)
    assert (block.action_type, block.action_detail) == ("run_command", "pytest -q")
    assert block.result == '{"exit_status": 0, "output": "3 passed"}'
    refused = create_memory_from_action("write_file", {"path": "rom/x", "error": "may not be written"})
    assert isinstance(refused, HistoryMemoryBlock)
    assert (refused.action_detail, refused.result) == ("rom/x", "error: may not be written")
    unknown = create_memory_from_action("new_tool", "x" * 9_000)
    assert isinstance(unknown, HistoryMemoryBlock)
    assert len(unknown.result or "") == 2_000
