"""Reading the fields of an event that anyone may have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hivemind.coordination.agents import check_agent
from hivemind.coordination.errors import CoordinationError
from hivemind.coordination.receipt import Receipt, receipts_of
from hivemind.coordination.state import State

__all__ = ["Apply", "Malformed", "agent", "number", "optional_text", "receipts", "text", "texts"]

Apply = Callable[[State, int, Mapping[str, Any]], None]
"""What one kind of event does to the state; it reads every field before it changes anything."""


class Malformed(ValueError):
    """A known kind of event with a field that cannot be read: it stays in the log and changes nothing."""


def text(payload: Mapping[str, Any], name: str) -> str:
    found = payload.get(name)
    if type(found) is not str or not found:
        raise Malformed(name)
    return found


def optional_text(payload: Mapping[str, Any], name: str) -> str | None:
    return None if payload.get(name) is None else text(payload, name)


def texts(payload: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = payload.get(name, ())
    if not isinstance(found, list | tuple) or not all(isinstance(item, str) for item in found):
        raise Malformed(name)
    return tuple(found)


def number(payload: Mapping[str, Any], name: str, default: int | None = None) -> int:
    found = payload.get(name, default)
    if type(found) is not int:
        raise Malformed(name)
    return found


def agent(payload: Mapping[str, Any], name: str = "agent_id") -> str:
    try:
        return check_agent(payload.get(name))
    except CoordinationError:
        raise Malformed(name) from None


def receipts(payload: Mapping[str, Any], name: str = "evidence") -> tuple[Receipt, ...]:
    found = payload.get(name, ())
    try:
        return receipts_of(found)
    except (CoordinationError, TypeError):
        raise Malformed(name) from None
