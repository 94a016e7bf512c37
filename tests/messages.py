"""The messages of a task's conversation, read from its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def lines_of(folder: Path) -> list[Record]:
    """The whole lines of a task's messages.jsonl; none if the file is missing."""
    path = folder / "messages.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def messages_of(folder: Path) -> list[Record]:
    """All messages, those of each epoch's opening first."""
    return [row for line in lines_of(folder) for row in line.get("opening", [line]) if "role" in row]


def turns_of(folder: Path) -> list[Record]:
    """The answers, each with its `calls`: tool, arguments, and what came of it (ok, text, result, `error` if it failed) as far
    as anything did."""
    rows: list[Record] = []
    for message in messages_of(folder):
        if message["role"] == "assistant":
            rows.append({**message, "calls": [dict(call) for call in message.get("calls", [])]})
        elif message["role"] == "tool":
            call = next(call for turn in reversed(rows) for call in turn["calls"] if call["id"] == message["call_id"])
            call |= {"ok": message["ok"], "text": message["text"], "result": message.get("result", {})}
            call |= {} if message["ok"] else {"error": message["text"]}
    return rows


def calls_of(folder: Path) -> list[Record]:
    """All calls of all turns, in order."""
    return [call for turn in turns_of(folder) for call in turn["calls"]]
