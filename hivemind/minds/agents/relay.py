"""An MCP server for a program that an agent runs: it answers at once, and hands each call of a tool to the agent's process.

Run by its path, as `python -I -S relay.py ATTACHED`, with the standard library alone: a coding agent asks its model before a
slow server is ready, and then without its tools. ATTACHED is a JSON file, written by the agent: `{"socket", "token",
"instructions", "tools"}`. A call is one connection to the socket: one line `{"token", "tool", "arguments"}` there,
one line `{"text", "failed"}` back.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

__all__ = ["main"]

_NO_METHOD, _NO_JSON = -32601, -32700
_GONE = "the agent that runs you has ended: end your turn"


class _Relay:
    def __init__(self, attached: Mapping[str, Any]) -> None:
        self._attached = attached
        self._mutex = threading.Lock()

    def serve(self) -> None:
        """Answer every line of standard input, until its end. Calls are under way beside each other."""
        for line in sys.stdin.buffer:
            try:
                asked = json.loads(line)
            except ValueError as error:
                self._say({"id": None, "error": {"code": _NO_JSON, "message": str(error)}})
                continue
            for one in asked if isinstance(asked, list) else [asked]:
                if isinstance(one, dict) and "id" in one and "method" in one:
                    self._hear(one["id"], str(one["method"]), one.get("params") or {})

    def _hear(self, number: object, method: str, params: Mapping[str, Any]) -> None:
        if method == "tools/call":
            threading.Thread(target=self._call, args=(number, params), daemon=True).start()
            return
        result = self._answer(method, params)
        if result is None:
            self._say({"id": number, "error": {"code": _NO_METHOD, "message": f"there is no method {method}"}})
        else:
            self._say({"id": number, "result": result})

    def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            return {
                "protocolVersion": params.get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {}},
                "serverInfo": {"name": "hivemind", "version": "1"},
                "instructions": self._attached["instructions"],
            }  # fmt: skip
        if method == "tools/list":
            return {"tools": self._attached["tools"]}
        return {} if method == "ping" else None

    def _call(self, number: object, params: Mapping[str, Any]) -> None:
        asked = {
            "tool": params.get("name"),
            "arguments": params.get("arguments") or {},
            "token": self._attached["token"],
        }
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(self._attached["socket"])
                line.sendall(json.dumps(asked).encode() + b"\n")
                told = json.loads(line.makefile("rb").readline())
        except (OSError, ValueError):
            told = {"text": _GONE, "failed": True}
        content = [{"type": "text", "text": told["text"]}]
        self._say({"id": number, "result": {"content": content, "isError": told["failed"]}})

    def _say(self, message: Mapping[str, Any]) -> None:
        with self._mutex:
            sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            sys.stdout.buffer.flush()


def main(path: str) -> None:
    """Serve what the file says until standard input ends."""
    with open(path, encoding="utf-8") as file:
        attached = json.load(file)
    _Relay(attached).serve()


if __name__ == "__main__":
    main(sys.argv[1])
