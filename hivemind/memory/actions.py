"""From a tool's result to memory blocks (spec 2, *Lifecycle*; the tools: spec 7; seed 004, *Memory Creation Pipeline*)."""

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

PREVIEW = 100  # characters of a message
RESULT = 2_000  # characters of a result that stay in a history block


def create_memory_from_action(action: str, result: Any) -> MemoryBlock | list[MemoryBlock]:
    """What an agent remembers of an action: for `check_mailbox` a list (a block for each message), else one block.

    `result` is what the tool returned, as a mapping; anything else is remembered as text. An action that failed (a mapping with
    `error`), and any action that leaves no file, message, knowledge or task behind, becomes history; so does one of a tool
    that is not known here.
    """
    fields = result if isinstance(result, Mapping) else {}
    if not fields.get("error"):
        if action == "check_mailbox":
            return [_message(message) for message in fields.get("messages") or ()]
        if action in _MAKERS and (block := _MAKERS[action](fields)) is not None:
            return block
    return _history(action, fields, result)


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that says something."""
    return next((fields[name] for name in names if fields.get(name)), None)


def _file(result: Mapping[str, Any]) -> MemoryBlock | None:
    if not result.get("path"):
        return None
    known: dict[str, Any] = {name: result.get(name) for name in ("start_line", "end_line", "digest")}
    return FileMemoryBlock(location=str(result["path"]), priority=Priority.HIGH, **known)


def _message(message: Mapping[str, Any]) -> MessageMemoryBlock:
    body = str(message.get("content") or message.get("preview") or "")
    return MessageMemoryBlock(
        from_agent=str(message.get("from") or ""),
        to_agent=str(message.get("to") or ""),
        subject=str(message.get("subject") or ""),
        preview=body[:PREVIEW],
        full_path=str(message.get("path") or ""),
        read=bool(message.get("read", False)),
        message_id=message.get("message_id") or message.get("id"),
    )


def _knowledge(result: Mapping[str, Any]) -> MemoryBlock | None:
    location = _first(result, "location", "path", "key", "node_id")
    if location is None:
        return None
    score = result.get("score", result.get("relevance", 0.5))
    return KnowledgeMemoryBlock(
        topic=str(_first(result, "topic", "title") or location),
        subtopic=result.get("subtopic"),
        location=str(location),
        relevance_score=min(1.0, max(0.0, float(score))) if isinstance(score, int | float) else 0.5,
    )


def _hits(result: Mapping[str, Any]) -> MemoryBlock | None:
    """A search: what was found, in one block that refers to the hits."""
    hits = result.get("results", result.get("hits", result.get("passages")))
    if not isinstance(hits, list | tuple):
        return None
    lines = [f"{len(hits)} found for {result['query']!r}" if result.get("query") else f"{len(hits)} found"]
    related = []
    for hit in hits:
        fields = hit if isinstance(hit, Mapping) else {"content": hit}
        name = _first(fields, "key", "location", "path", "node_id", "id")
        lines.append(_cut(": ".join(str(part) for part in (name, _first(fields, "content", "text")) if part)))
        related += [f"knowledge:{name}"] if name else []
    return ContextMemoryBlock(context_type="search", summary="\n".join(lines)[:RESULT], related_ids=related)


def _steps(result: Mapping[str, Any]) -> MemoryBlock | None:
    return StatusMemoryBlock(status_type="steps", value=result["steps"]) if result.get("steps") else None


def _ended(status: str, result: Mapping[str, Any]) -> MemoryBlock | None:
    if not result.get("task_id"):
        return None
    return TaskMemoryBlock(
        task_id=str(result["task_id"]),
        description=str(_first(result, "description", "result", "reason", "summary") or ""),
        project=result.get("project"),
        status=status,
        metadata={"maker": "agent"},
    )


_MAKERS: dict[str, Callable[[Mapping[str, Any]], MemoryBlock | None]] = {
    **dict.fromkeys(("read_file", "write_file", "edit_file"), _file),
    **dict.fromkeys(("remember", "doc_expand", "doc_append", "doc_update", "doc_note", "doc_summarize"), _knowledge),
    **dict.fromkeys(("search_memory", "doc_find"), _hits),
    "plan_steps": _steps,
    "finish_task": partial(_ended, "done"),
    "fail_task": partial(_ended, "failed"),
}


def _history(action: str, fields: Mapping[str, Any], result: Any) -> HistoryMemoryBlock:
    name = next((key for key, value in fields.items() if value and isinstance(value, str) and key != "error"), None)
    if fields.get("error"):
        text = f"error: {fields['error']}"
    elif isinstance(result, Mapping):
        text = json.dumps({key: value for key, value in result.items() if key != name}, ensure_ascii=False, default=str)
    else:
        text = "" if result is None else str(result)
    detail = "" if name is None else _cut(fields[name])
    shown = None if text in ("", "{}") else _cut(text, RESULT)
    return HistoryMemoryBlock(action_type=action, action_detail=detail, result=shown)


def _cut(text: str, length: int = 200) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
