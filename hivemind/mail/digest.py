"""Unread mail for a context: oldest first, never more than it has room for (spec 1, *Mail*)."""

from __future__ import annotations

from collections.abc import Iterable

from hivemind.mail.message import Message, MessageSummary

__all__ = ["digest"]

_SUBJECT_CHARS = 100
_REST_CHARS = 40


def digest(messages: Iterable[Message | MessageSummary], total: int, limit_chars: int) -> str:
    """One line for each message, in the order given, and how many of `total` there was no room for.

    At most `limit_chars` characters. `messages` is read only as far as there is room; empty if `total` is 0.
    """
    lines: list[str] = []
    room = limit_chars - _REST_CHARS
    for message in messages:
        line = _line(message)
        if len(line) + 1 > room:
            break
        lines.append(line)
        room -= len(line) + 1
    left = total - len(lines)
    if left > 0:
        lines.append(f"({left} more unread)" if lines else f"({left} unread)")
    return "\n".join(lines)[: max(0, limit_chars)]


def _line(message: Message | MessageSummary) -> str:
    subject = message.subject if len(message.subject) <= _SUBJECT_CHARS else message.subject[: _SUBJECT_CHARS - 1] + "…"
    when = message.date.strftime("%Y-%m-%d %H:%M")
    return f"- {when} {message.sender}: {subject or '(no subject)'} | {message.preview} <{message.id}>"
