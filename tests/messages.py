"""What a task's conversation says, as its file has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def lines_of(folder: Path) -> list[Record]:
    """The whole lines of a task's messages.jsonl; none if there is no such file."""
    path = folder / "messages.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def messages_of(folder: Path) -> list[Record]:
    """All messages, those of each epoch's opening first."""
    return [one for line in lines_of(folder) for one in line.get("opening", [line]) if "role" in one]


def turns_of(folder: Path) -> list[Record]:
    """The answers, each with its `calls`: tool, arguments, and what came of it (ok, text, result, `error` if it failed) as far
    as anything did."""
    found: list[Record] = []
    for one in messages_of(folder):
        if one["role"] == "assistant":
            found.append({**one, "calls": [dict(call) for call in one.get("calls", [])]})
        elif one["role"] == "tool":
            call = next(call for turn in reversed(found) for call in turn["calls"] if call["id"] == one["call_id"])
            call |= {"ok": one["ok"], "text": one["text"], "result": one.get("result", {})}
            call |= {} if one["ok"] else {"error": one["text"]}
    return found


def calls_of(folder: Path) -> list[Record]:
    """All calls of all turns, in order."""
    return [call for turn in turns_of(folder) for call in turn["calls"]]
