"""Create memory blocks from the results of tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hivemind.memory.blocks import (
    ContextMemoryBlock,
    FileMemoryBlock,
    HistoryMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MessageMemoryBlock,
    Priority,
    StatusMemoryBlock,
    TaskMemoryBlock,
)
from hivemind.words import truncate

PREVIEW_LENGTH = 100  # characters of a letter that a message block has
RESULT_LENGTH = 2_000  # characters of a result that a history block has
_LINE_LENGTH = 200  # characters of a hit, or of an action's detail


def create_memory_from_action(action: str, result: Any) -> MemoryBlock | list[MemoryBlock]:
    """Return a block for the result of a tool call. For `check_mailbox`, return a list with one block per letter.

    `result` is the mapping that the tool returned; any other value is stored as text. The block is a history block (the
    action with its result) if the call failed (the mapping has an `error`), if the tool is unknown, or if the result
    names no file, letter, knowledge or task.
    """
    fields = result if isinstance(result, Mapping) else {}
    if not fields.get("error"):
        if action == "check_mailbox":
            return [_message_block(message) for message in fields.get("messages") or ()]
        if action in _BLOCK_BUILDERS and (block := _BLOCK_BUILDERS[action](fields)) is not None:
            return block
    return _history_block(action, fields, result)


def _first_value(fields: Mapping[str, Any], *names: str) -> Any:
    """Return the value of the first named field that is set and not empty, or None."""
    return next((fields[name] for name in names if fields.get(name)), None)


def _file_block(result: Mapping[str, Any]) -> MemoryBlock | None:
    if not result.get("path"):
        return None
    file_fields: dict[str, Any] = {name: result.get(name) for name in ("start_line", "end_line", "digest")}
    return FileMemoryBlock(location=str(result["path"]), priority=Priority.HIGH, **file_fields)


def _message_block(message: Mapping[str, Any]) -> MessageMemoryBlock:
    body = str(message.get("content") or message.get("preview") or "")
    return MessageMemoryBlock(
        from_agent=str(message.get("from") or ""),
        to_agent=str(message.get("to") or ""),
        subject=str(message.get("subject") or ""),
        preview=body[:PREVIEW_LENGTH],
        full_path=str(message.get("path") or ""),
        read=bool(message.get("read", False)),
        message_id=message.get("message_id") or message.get("id"),
    )


def _knowledge_block(result: Mapping[str, Any]) -> MemoryBlock | None:
    location = _first_value(result, "location", "path", "key", "node_id")
    if location is None:
        return None
    score = result.get("score", result.get("relevance", 0.5))
    return KnowledgeMemoryBlock(
        topic=str(_first_value(result, "topic", "title") or location),
        subtopic=result.get("subtopic"),
        location=str(location),
        relevance_score=min(1.0, max(0.0, float(score))) if isinstance(score, int | float) else 0.5,
    )


def _search_block(result: Mapping[str, Any]) -> MemoryBlock | None:
    """Return one block for a search: a summary of the hits, with references to them. None if the result has no hit list."""
    hits = result.get("results", result.get("hits", result.get("passages")))
    if not isinstance(hits, list | tuple):
        return None
    lines = [f"{len(hits)} found for {result['query']!r}" if result.get("query") else f"{len(hits)} found"]
    related = []
    for hit in hits:
        fields = hit if isinstance(hit, Mapping) else {"content": hit}
        name = _first_value(fields, "key", "location", "path", "node_id", "id")
        text = ": ".join(str(part) for part in (name, _first_value(fields, "content", "text")) if part)
        lines.append(truncate(text, _LINE_LENGTH))
        related += [f"knowledge:{name}"] if name else []
    return ContextMemoryBlock(context_type="search", summary="\n".join(lines)[:RESULT_LENGTH], related_ids=related)


def _steps_block(result: Mapping[str, Any]) -> MemoryBlock | None:
    return StatusMemoryBlock(status_type="steps", value=result["steps"]) if result.get("steps") else None


def _task_block(status: str, result: Mapping[str, Any]) -> MemoryBlock | None:
    if not result.get("task_id"):
        return None
    return TaskMemoryBlock(
        task_id=str(result["task_id"]),
        description=str(_first_value(result, "description", "result", "reason", "summary") or ""),
        project=result.get("project"),
        status=status,
        metadata={"maker": "agent"},
    )


_BLOCK_BUILDERS: dict[str, Callable[[Mapping[str, Any]], MemoryBlock | None]] = {
    **dict.fromkeys(("read_file", "write_file", "edit_file"), _file_block),
    **dict.fromkeys(
        ("remember", "doc_expand", "doc_append", "doc_update", "doc_note", "doc_summarize"), _knowledge_block
    ),
    **dict.fromkeys(("search_memory", "doc_find"), _search_block),
    "plan_steps": _steps_block,
    "finish_task": partial(_task_block, "done"),
    "fail_task": partial(_task_block, "failed"),
}


def _history_block(action: str, fields: Mapping[str, Any], result: Any) -> HistoryMemoryBlock:
    detail_field = next(
        (key for key, value in fields.items() if value and isinstance(value, str) and key != "error"), None
    )
    if fields.get("error"):
        text = f"error: {fields['error']}"
    elif isinstance(result, Mapping):
        text = json.dumps(
            {key: value for key, value in result.items() if key != detail_field}, ensure_ascii=False, default=str
        )
    else:
        text = "" if result is None else str(result)
    detail = "" if detail_field is None else truncate(fields[detail_field], _LINE_LENGTH)
    result_text = None if text in ("", "{}") else truncate(text, RESULT_LENGTH)
    return HistoryMemoryBlock(action_type=action, action_detail=detail, result=result_text)
