"""What happened, as a person reads it: an event of the journal, a turn of an agent's own log (`hivemind log`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.text import one_line

__all__ = ["event_line", "said", "story_lines", "time_of"]


def story_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """The lines of one record of an agent's own log; what is no turn is shown field by field."""
    if record.get("kind") == "turn" and isinstance(record.get("calls"), list):
        yield one_line(f"{time_of(record)}{record.get('agent')}, about {said(_mapping(record.get('about')))}")
        if record.get("text"):
            yield f"    {one_line(str(record['text']))}"
        for call in record["calls"]:
            yield from _call(call)
        return
    fields = {key: value for key, value in record.items() if key not in ("kind", "event", "time", "at")}
    yield f"{time_of(record)}{one_line(str(record.get('kind') or record.get('event') or ''))}  {said(fields)}".rstrip()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def event_line(event: Mapping[str, Any]) -> str:
    """One event of the journal: its number, its kind, what it says."""
    payload = {key: value for key, value in event.items() if key not in ("seq", "kind")}
    return f"{event.get('seq'):>6}  {one_line(str(event.get('kind'))):18} {said(payload)}".rstrip()


def _call(action: object) -> Iterator[str]:
    if not isinstance(action, dict):
        yield f"    {_value(action)}"
        return
    yield f"    {one_line(str(action.get('tool')))}  {_told(action.get('arguments'))}".rstrip()
    for key, value in action.items():
        if key not in ("id", "tool", "arguments"):
            yield f"      {one_line(key)}: {_told(value)}"


def _told(value: object) -> str:
    return said(value) if isinstance(value, dict) else _value(value)


def said(fields: Mapping[str, Any]) -> str:
    """`key=value …`, a value in quotes where it could be taken for more than one."""
    return "  ".join(f"{one_line(str(key))}={_value(value)}" for key, value in fields.items() if value is not None)


def _value(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(" ='\""):
        return value
    return one_line(json.dumps(value, ensure_ascii=False, default=str))


def time_of(record: Mapping[str, Any]) -> str:
    """The record's time of day in this machine's zone, if it has one."""
    with suppress(Unreadable), boundary("time"):
        if "at" in record:
            return f"{datetime.fromisoformat(str(record['at'])).astimezone():%H:%M:%S}  "
        return f"{datetime.fromtimestamp(float(record['time']), UTC).astimezone():%H:%M:%S}  "
    return ""
