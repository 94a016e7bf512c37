"""JSON-RPC 2.0 in lines, for both roles: bytes become messages, and messages are sent as lines.

A connection neither reads nor waits. Its owner reads bytes, passes them to `feed`, and handles the messages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.errors import HivemindError
from hivemind.frozen import frozen
from hivemind.json_text import read_json

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
MAX_LINE_BYTES = 8 << 20
RequestId = int | str | None


class JsonRpcError(HivemindError):
    """The error that answers a request."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


@frozen
class Request:
    """A request of the other side. Answer it with `respond` or `refuse`."""

    id: RequestId
    method: str
    params: Mapping[str, Any]


@frozen
class Notification:
    """A message of the other side that expects no answer."""

    method: str
    params: Mapping[str, Any]


@frozen
class Response:
    """The answer to a request that was sent with `request`: its `result`, or an `error`."""

    id: RequestId
    method: str
    result: Any = None
    error: JsonRpcError | None = None


@frozen
class BadLine:
    """A line that is not a valid message, or answers an unknown request.

    `is_too_long`: the line's end was not read yet, and is skipped.
    """

    text: str
    reason: str
    is_too_long: bool = False
    code: int = INVALID_REQUEST


Incoming = Request | Notification | Response | BadLine


class JsonRpc:
    """One end of a connection. `write` receives each line to send, whole and with its newline."""

    def __init__(self, write: Callable[[bytes], object], *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._write, self._max_line_bytes = write, max_line_bytes
        self._partial_line = bytearray()
        self._is_skipping = False
        self._last_id = 0
        self._open_requests: dict[RequestId, str] = {}

    def feed(self, data: bytes) -> Iterator[Incoming]:
        """Yield the messages of the lines that `data` completes. Incomplete lines wait for the next call."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._partial_line += line
            is_end_of_skipped, self._is_skipping = self._is_skipping, False
            raw = bytes(self._partial_line)
            self._partial_line.clear()
            if is_end_of_skipped:
                continue
            if len(raw) > self._max_line_bytes:
                yield self._too_long(raw)
            elif raw.strip():
                yield from self._messages(raw.decode("utf-8", "replace"))
        if not self._is_skipping:
            self._partial_line += rest
            if len(self._partial_line) > self._max_line_bytes:
                yield self._too_long(self._partial_line)
                self._is_skipping = True
                self._partial_line.clear()

    def request(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request. Return its id, which the response repeats."""
        self._last_id += 1
        request_id = self._last_id
        self._open_requests[request_id] = method
        self._send(id=request_id, method=method, params=params)
        return request_id

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        self._send(method=method, params=params)

    def respond(self, request: Request, result: Any) -> None:
        """Answer a request of the other side."""
        self._send(id=request.id, result=result)

    def refuse(self, request: Request | None, error: JsonRpcError) -> None:
        """Answer a request of the other side with an error. `request` is None for a line that could not be read."""
        data = {} if error.data is None else {"data": error.data}
        fields = {"code": error.code, "message": error.message, **data}
        self._send(id=None if request is None else request.id, error=fields)

    def _send(self, **fields: Any) -> None:
        self._write(json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n")

    def _too_long(self, raw: bytes | bytearray) -> BadLine:
        reason = f"the line has more than {self._max_line_bytes:,} bytes"
        return BadLine(raw[:200].decode("utf-8", "replace"), reason, is_too_long=True)

    def _messages(self, line: str) -> Iterator[Incoming]:
        try:
            payload = read_json(line)
        except Unreadable as error:
            yield BadLine(line, error.message, code=PARSE_ERROR)
            return
        for message in payload if isinstance(payload, list) else [payload]:
            yield self._message(message, line)

    def _message(self, message: Any, line: str) -> Incoming:
        if not isinstance(message, dict):
            return BadLine(line, "the message is no JSON object")
        message_id, method, params = message.get("id"), message.get("method"), message.get("params")
        if isinstance(message_id, bool) or not isinstance(message_id, int | str | None):
            return BadLine(line, "the message's id is neither a number nor a text")
        if isinstance(method, str):
            arguments = params if isinstance(params, dict) else {}
            return Request(message_id, method, arguments) if "id" in message else Notification(method, arguments)
        requested_method = self._open_requests.pop(message_id, None)
        if requested_method is None:
            return BadLine(line, "the message answers no request")
        if "error" not in message:
            return Response(message_id, requested_method, message.get("result"))
        return Response(message_id, requested_method, error=_error(message["error"]))


def _error(fields: Any) -> JsonRpcError:
    if not isinstance(fields, dict):
        return JsonRpcError(INTERNAL_ERROR, str(fields))
    code = fields.get("code")
    message = str(fields.get("message") or "no reason")
    return JsonRpcError(code if isinstance(code, int) else INTERNAL_ERROR, message, fields.get("data"))


@contextmanager
def client_pipes() -> Iterator[tuple[int, int]]:
    """Move the client's two pipes away from descriptors 0 and 1, and yield them as (input, output).

    Meanwhile descriptor 0 is /dev/null and descriptor 1 is standard error, so output of this process or a child reaches the
    log and never the client.
    """
    input_fd, output_fd = os.dup(0), os.dup(1)
    null_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0)
    os.close(null_fd)
    os.dup2(2, 1)
    try:
        yield input_fd, output_fd
    finally:
        os.dup2(output_fd, 1)
        os.close(input_fd)
        os.close(output_fd)
