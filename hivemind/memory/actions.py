"""From what a tool gave to memory blocks (spec 2, *Lifecycle*; the tools: spec 7; seed 004, *Memory Creation Pipeline*)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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

__all__ = ["TOOLS", "create_memory_from_action"]

PREVIEW = 100  # characters of a message
RESULT = 2_000  # characters of a result that stay in a history block

TOOLS = (
    "read_file", "write_file", "edit_file", "list_files", "search_files", "run_command",
    "send_mail", "check_mailbox", "reply_mail",
    "plan_steps", "claim_step", "note_step", "verify_step", "finish_step", "block_step", "add_evidence",
    "add_card", "link_cards", "publish", "branch", "merge",
    "remember", "search_memory",
    "doc_find", "doc_expand", "doc_append", "doc_update", "doc_note", "doc_summarize",
    "hand_over", "ask_human", "finish_task", "fail_task",
    "delegate", "wait_for", "send_to_task", "cancel_task", "verdict",
)  # fmt: skip
"""Every tool of spec 7."""

# What tells best what an action was about, for the line of its history block.
_DETAIL = (
    "command", "query", "pattern", "path", "subject", "title", "question", "to", "step_id", "step", "card_id", "card",
    "node_id", "source", "topic", "key", "task_id", "name", "reason", "text", "content",
)  # fmt: skip


def create_memory_from_action(action: str, result: Any) -> MemoryBlock | list[MemoryBlock]:
    """What an agent remembers of an action: for `check_mailbox` a list (a block for each message), else one block.

    `result` is what the tool gave, as a mapping; anything else is remembered as text. An action that failed (a mapping with
    `error`), and any action that leaves no file, message, knowledge or task behind, becomes history; so does one of a tool
    that is not known here.
    """
    fields = result if isinstance(result, Mapping) else {}
    if action == "check_mailbox" and not fields.get("error"):
        return [_message(message) for message in fields.get("messages") or ()]
    make = _MAKERS.get(action)
    block = make(fields) if make is not None and not fields.get("error") else None
    return block if block is not None else _history(action, result)


def _file(result: Mapping[str, Any]) -> MemoryBlock | None:
    path = result.get("path")
    if not path:
        return None
    return FileMemoryBlock(
        location=str(path),
        start_line=result.get("start_line"),
        end_line=result.get("end_line"),
        digest=result.get("digest"),
        priority=Priority.HIGH,
    )


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
    location = result.get("location") or result.get("path") or result.get("key") or result.get("node_id")
    if not location:
        return None
    score = result.get("score", result.get("relevance", 0.5))
    return KnowledgeMemoryBlock(
        topic=str(result.get("topic") or result.get("title") or location),
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
        name = (
            fields.get("key")
            or fields.get("location")
            or fields.get("path")
            or fields.get("node_id")
            or fields.get("id")
        )
        lines.append(_cut(": ".join(str(part) for part in (name, fields.get("content") or fields.get("text")) if part)))
        if name:
            related.append(f"knowledge:{name}")
    return ContextMemoryBlock(context_type="search", summary="\n".join(lines)[:RESULT], related_ids=related)


def _steps(result: Mapping[str, Any]) -> MemoryBlock | None:
    steps = result.get("steps")
    return StatusMemoryBlock(status_type="steps", value=list(steps)) if isinstance(steps, list | tuple) else None


def _ended(status: str) -> Callable[[Mapping[str, Any]], MemoryBlock | None]:
    def make(result: Mapping[str, Any]) -> MemoryBlock | None:
        task = result.get("task_id")
        if not task:
            return None
        text = result.get("description") or result.get("result") or result.get("reason") or result.get("summary") or ""
        return TaskMemoryBlock(
            task_id=str(task),
            description=str(text),
            project=result.get("project"),
            status=status,
            metadata={"maker": "agent"},
        )

    return make


_MAKERS: dict[str, Callable[[Mapping[str, Any]], MemoryBlock | None]] = {
    "read_file": _file,
    "write_file": _file,
    "edit_file": _file,
    "plan_steps": _steps,
    "remember": _knowledge,
    "search_memory": _hits,
    "doc_find": _hits,
    "doc_expand": _knowledge,
    "doc_append": _knowledge,
    "doc_update": _knowledge,
    "doc_note": _knowledge,
    "doc_summarize": _knowledge,
    "finish_task": _ended("done"),
    "fail_task": _ended("failed"),
}


def _history(action: str, result: Any) -> HistoryMemoryBlock:
    fields = result if isinstance(result, Mapping) else {}
    name = next((key for key in _DETAIL if fields.get(key) not in (None, "", [], {})), None)
    if fields.get("error"):
        text = f"error: {fields['error']}"
    elif isinstance(result, Mapping):
        text = json.dumps({key: value for key, value in result.items() if key != name}, ensure_ascii=False, default=str)
    else:
        text = "" if result is None else str(result)
    detail = "" if name is None else _cut(str(fields[name]))
    return HistoryMemoryBlock(
        action_type=action, action_detail=detail, result=_cut(text, RESULT) if text not in ("", "{}") else None
    )


def _cut(text: str, length: int = 200) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
