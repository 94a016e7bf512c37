"""Trails of tasks, as the lines of messages.jsonl have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hivemind.lessons.evidence import TaskFolders, Trail, read_trail

NO_REPOSITORY = TaskFolders(Path("/hive"), {})


def run(command: str, status: int = 0, output: str = "") -> dict[str, Any]:
    return {"tool": "run_command", "arguments": {"command": command}, "text": f"exit {status}\n{output}",
            "result": {"command": command, "exit_status": status}}  # fmt: skip


def edit(path: str) -> dict[str, Any]:
    return {"tool": "edit_file", "arguments": {"path": path}, "text": "edited", "result": {"path": path}}


def read(path: str, text: str) -> dict[str, Any]:
    return {"tool": "read_file", "arguments": {"path": path}, "text": text}


def bash(command: str, ok: bool = True, output: str = "") -> dict[str, Any]:
    """A command of a coding agent."""
    return {"tool": "Bash", "arguments": {"command": command}, "text": output, "ok": ok}


def lines_of(*calls: dict[str, Any] | str, opening: str = "Mend the sail.") -> list[dict[str, Any]]:
    """The lines of a conversation: each call with its result; a text is news."""
    lines: list[dict[str, Any]] = [{"opening": [{"role": "user", "text": opening, "id": "m1"}]}]
    for number, call in enumerate(calls, 2):
        if isinstance(call, str):
            lines.append({"role": "user", "text": call, "id": f"m{number}"})
            continue
        request = {"id": f"c{number}", "tool": call["tool"], "arguments": call["arguments"]}
        lines.append({"role": "assistant", "text": "", "calls": [request], "id": f"a{number}"})
        answer = {
            "role": "tool",
            "text": call["text"],
            "call_id": f"c{number}",
            "ok": call.get("ok", True),
            "id": f"m{number}",
        }
        lines.append({**answer, **({"result": call["result"]} if "result" in call else {})})
    return lines


def trail(*calls: dict[str, Any] | str, opening: str = "Mend the sail.", returns: tuple[str, ...] = ()) -> Trail:
    return read_trail(lines_of(*calls, opening=opening), returns, NO_REPOSITORY)
