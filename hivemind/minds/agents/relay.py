"""An MCP server for a coding agent. It answers at once and passes each tool call to the agent's process.

It runs by its path, as `python -I -S relay.py CONFIG`, with the standard library alone, because a coding agent does not wait
for the tools of a slow server. CONFIG is a JSON file that the agent writes: `{"socket", "token", "instructions", "tools"}`.
Each call opens a connection to the socket, sends one line `{"token", "tool", "arguments", "traceparent"}`, and receives one line
`{"text", "failed"}`.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

_NO_METHOD, _NO_JSON = -32601, -32700
_AGENT_ENDED = "the agent that runs you has ended: end your turn"


class _Relay:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._mutex = threading.Lock()

    def serve(self) -> None:
        """Answer every line of standard input until it ends. Calls run in parallel."""
        for line in sys.stdin.buffer:
            try:
                payload = json.loads(line)
            except ValueError as error:
                self._send({"id": None, "error": {"code": _NO_JSON, "message": str(error)}})
                continue
            for request in payload if isinstance(payload, list) else [payload]:
                if isinstance(request, dict) and "id" in request and "method" in request:
                    self._handle_request(request["id"], str(request["method"]), request.get("params") or {})

    def _handle_request(self, request_id: object, method: str, params: Mapping[str, Any]) -> None:
        information = {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {}},
            "serverInfo": {"name": "hivemind", "version": "1"}, "instructions": self._config["instructions"],
        }  # fmt: skip
        results = {"initialize": information, "tools/list": {"tools": self._config["tools"]}, "ping": {}}
        if method == "tools/call":
            threading.Thread(target=self._call, args=(request_id, params), daemon=True).start()
        elif method in results:
            self._send({"id": request_id, "result": results[method]})
        else:
            self._send({"id": request_id, "error": {"code": _NO_METHOD, "message": f"unknown method {method}"}})

    def _call(self, request_id: object, params: Mapping[str, Any]) -> None:
        call = {
            "tool": params.get("name"),
            "arguments": params.get("arguments") or {},
            "token": self._config.get("token"),
            "traceparent": (params.get("_meta") or {}).get("traceparent"),
        }
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(self._config.get("socket", ""))
                connection.sendall(json.dumps(call).encode() + b"\n")
                reply = json.loads(connection.makefile("rb").readline())
        except (OSError, ValueError):
            reply = {"text": _AGENT_ENDED, "failed": True}
        content = [{"type": "text", "text": reply["text"]}]
        self._send({"id": request_id, "result": {"content": content, "isError": reply["failed"]}})

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._mutex:
            sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            sys.stdout.buffer.flush()


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    _Relay(config).serve()


if __name__ == "__main__":
    main(sys.argv[1])
