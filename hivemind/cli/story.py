"""What happened, as a person reads it: an event of the journal, a cycle of a task's log (`hivemind log`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.text import one_line

__all__ = ["event_line", "said", "story_lines"]


def story_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """The lines of one record; one that is no cycle, or that a person has changed, is shown field by field."""
    if record.get("kind") not in ("cycle", "call") or not isinstance(record.get("actions"), list):
        fields = {key: value for key, value in record.items() if key not in ("kind", "event", "time")}
        yield f"{_time(record)}{one_line(str(record.get('kind') or record.get('event') or ''))}  {said(fields)}".rstrip()
        return
    if record["kind"] == "call":  # of a member from outside: what it thought is not known here
        yield one_line(f"{_time(record)}{record.get('agent')}, by {record.get('by')}")
        for action in record["actions"]:
            yield from _action(action)
        return
    focus = record.get("focus")
    about = [str(focus.get(key)) for key in ("next", "step") if focus.get(key)] if isinstance(focus, dict) else []
    selected = record.get("selected")
    blocks = f"{len(selected)} blocks, " if isinstance(selected, list) else ""
    yield one_line(
        f"{_time(record)}{record.get('agent')}, cycle {record.get('cycle')}: {' '.join(about)}"
        f" ({blocks}{record.get('tokens')} tokens)"
    )
    if record.get("thought"):
        yield f"    thought: {one_line(str(record['thought']))}"
    for action in record["actions"]:
        yield from _action(action)


def event_line(event: Mapping[str, Any]) -> str:
    """One event of the journal: its number, its kind, what it says."""
    payload = {key: value for key, value in event.items() if key not in ("seq", "kind")}
    return f"{event.get('seq'):>6}  {one_line(str(event.get('kind'))):18} {said(payload)}".rstrip()


def _action(action: object) -> Iterator[str]:
    if not isinstance(action, dict):
        yield f"    {_value(action)}"
        return
    yield f"    {one_line(str(action.get('tool')))}  {_told(action.get('arguments'))}".rstrip()
    for key, value in action.items():
        if key not in ("tool", "arguments"):
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


def _time(record: Mapping[str, Any]) -> str:
    """The record's time of day in this machine's zone, if it has one."""
    with suppress(Unreadable), boundary("time"):
        return f"{datetime.fromtimestamp(float(record['time']), UTC).astimezone():%H:%M:%S}  "
    return ""
