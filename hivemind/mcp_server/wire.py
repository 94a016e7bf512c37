"""Parses a client's messages. Invalid input is answered with an error code of JSON-RPC."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from pydantic_core import from_json

from hivemind.boundary import Unreadable, boundary
from hivemind.mcp_server.greeting import id_of

LIMIT_BYTES = 4 << 20
"""The maximal length of a message, which is also the SDK's limit for HTTP bodies."""
_REASON_CHARS = 200


class InvalidMessage(Exception):
    """An input that is not a message. `answer` is the error response, with the request's id if the id can be read."""

    def __init__(self, code: int, reason: str, id_: str | int | None = None) -> None:
        super().__init__(reason)
        self.answer = types.JSONRPCError(jsonrpc="2.0", id=id_, error=types.ErrorData(code=code, message=reason))


def read_message(raw: bytes) -> types.JSONRPCMessage:
    """Return the message in a client's bytes.

    Raises InvalidMessage with code -32700 for invalid JSON (invalid UTF-8, NaN, deeper than 200 levels), and with -32600 for JSON
    that is too long or is not a single message (JSON-RPC 2.0, sections 4, 4.1 and 5.1).
    """
    if len(raw) > LIMIT_BYTES:
        raise InvalidMessage(types.INVALID_REQUEST, f"Invalid request: longer than {LIMIT_BYTES} bytes")
    try:
        with boundary("message"):
            payload = from_json(raw, allow_inf_nan=False)
    except Unreadable as error:
        raise InvalidMessage(types.PARSE_ERROR, f"Parse error: {str(error.__cause__)[:_REASON_CHARS]}") from None
    if not isinstance(payload, dict):
        kind = "a batch" if isinstance(payload, list) else "not an object"
        raise InvalidMessage(types.INVALID_REQUEST, f"Invalid request: {kind}; send one message at a time")
    try:
        with boundary("message"):
            message: types.JSONRPCMessage = types.jsonrpc_message_adapter.validate_python(payload, by_name=False)
    except Unreadable:
        raise InvalidMessage(
            types.INVALID_REQUEST, f"Invalid request: {_describe_problem(payload)}", id_of(payload)
        ) from None
    if isinstance(message, types.JSONRPCNotification) and "id" in payload:  # meant as a request, so it gets an answer
        raise InvalidMessage(types.INVALID_REQUEST, "Invalid request: its id is neither a string nor an integer")
    return message


def _describe_problem(payload: dict[str, Any]) -> str:
    if payload.get("jsonrpc") != "2.0":
        return 'it must contain "jsonrpc": "2.0"'
    if "method" in payload:
        return "method must be a string, params an object, id a string or an integer"
    return "it must contain a method, or a result or error with its id"
