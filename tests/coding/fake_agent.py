"""A program that works as coding agents do, by orders in its prompt; run by its path, with Python alone.

An order is a line that begins with `!`: `say TEXT`, `write PATH TEXT`, `sh COMMAND`, `permit COMMAND` (asks for permission),
`call TOOL JSON` (with {mail}, the id of the letter in the prompt, and {ids}, those of the subtasks that the last call made),
`print TEXT` (unchanged), `die` (kill -9, once in a session), `exit N TEXT`, `hang`, `ask TEXT` (for permission, and hang),
`close` (its output, and hang), `flood`. A session keeps the orders that are left, and is gone on with by its id.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OWN_SPAN = "b7ad6b7169203331"
HOME = Path(os.environ.get("FAKE_HOME", os.environ["HOME"]))


def tell(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Hive:
    """The client of the MCP server that the agent runs."""

    def __init__(self, line: list[str]) -> None:
        self._server = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._number = 0
        self.ask("initialize", {"protocolVersion": "2025-06-18"})
        self.tools = [tool["name"] for tool in self.ask("tools/list", {})["tools"]]

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())["result"]

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        trace = os.environ.get("TRACEPARENT", "").split("-")
        meta = {"traceparent": "-".join([*trace[:2], OWN_SPAN, "01"])} if len(trace) > 1 else {}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        return self.ask("tools/call", params)["content"][0]["text"]


def ids_in(text: str) -> list[str]:
    """The ids of a task's subtasks."""
    return re.findall(r"\bt\.[\w.-]+", text)


def main() -> None:
    line, session = json.loads(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    prompt = sys.stdin.read()
    if session is not None and not (HOME / session).exists():
        sys.exit(f"no session {session}")
    session = session or f"s{len(list(HOME.glob('s*'))) + 1}"
    session_file = HOME / session
    orders = json.loads(session_file.read_text()) if session_file.exists() else []
    orders += [line[1:] for line in prompt.splitlines() if line.startswith("!")]
    tell(type="begin", session=session, prompt=len(prompt))
    (HOME / "environment").write_text(json.dumps(dict(os.environ)))
    with open(HOME / "prompts", "a") as file:
        file.write(json.dumps([session, prompt]) + "\n")
    hive, last = Hive(line), "[]"
    while orders:
        order, _, words = orders.pop(0).partition(" ")
        session_file.write_text(json.dumps(orders))
        if order == "say":
            tell(type="text", text=words)
        elif order == "write":
            path, _, text = words.partition(" ")
            Path(path).write_text(text)
            tell(type="tool", name="write", input={"path": path}, output=f"wrote {path} in {os.getcwd()}")
        elif order == "sh":
            result = subprocess.run(["sh", "-c", words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            tell(type="tool", name="sh", input={"command": words}, output=result.stdout)
        elif order == "call":
            tool, _, arguments = words.partition(" ")
            letter = re.search(r"^Mail (\S+) from", prompt, re.MULTILINE)
            arguments = arguments.replace("{mail}", letter[1] if letter else "").replace("{ids}", last)
            text = hive.call(tool, json.loads(arguments or "{}"))
            last = json.dumps(ids_in(text))
        elif order == "permit":
            verdict = json.loads(hive.call("permission", {"tool_name": "sh", "input": {"command": words}}))
            with open(HOME / "asked", "a") as file:
                file.write(json.dumps({"outcome": verdict["behavior"]}) + "\n")
        elif order == "print":
            sys.stdout.write(words + "\n")
            sys.stdout.flush()
        elif order == "die":
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        elif order == "exit":
            number, _, text = words.partition(" ")
            sys.stderr.write(text + "\n")
            sys.exit(int(number))
        elif order in ("hang", "close", "ask"):
            if order == "ask":
                tell(type="ask", what=words)
            if order == "close":
                sys.stdout.flush()
                os.close(1)
            time.sleep(3600)
        elif order == "flood":
            sys.stdout.write("x" * (9 << 20))
    session_file.write_text("[]")
    tell(type="end", usage={"in": 100, "out": 10})


if __name__ == "__main__":
    main()
