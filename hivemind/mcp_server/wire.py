"""One message of the protocol, from the bytes that a client sent; what is none is answered with JSON-RPC's own errors."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from pydantic_core import from_json

from hivemind.boundary import Unreadable, boundary

LIMIT_BYTES = 4 << 20
"""The longest message that is read. The SDK's own limit for HTTP bodies."""
_REASON_CHARS = 200


class NoMessage(Exception):
    """What came is no message. `answer` says so to the client, under the request's id where one could be read."""

    def __init__(self, code: int, why: str, id_: str | int | None = None) -> None:
        super().__init__(why)
        self.answer = types.JSONRPCError(jsonrpc="2.0", id=id_, error=types.ErrorData(code=code, message=why))


def read_message(raw: bytes) -> types.JSONRPCMessage:
    """The message. Raises NoMessage: -32700 for what is no JSON (invalid UTF-8, NaN, deeper than 200 levels), -32600 for JSON
    that is no single message, and for what is too long (JSON-RPC 2.0, sections 4, 4.1 and 5.1)."""
    if len(raw) > LIMIT_BYTES:
        raise NoMessage(types.INVALID_REQUEST, f"Invalid request: longer than {LIMIT_BYTES} bytes")
    try:
        with boundary("message"):
            payload = from_json(raw, allow_inf_nan=False)
    except Unreadable as error:
        raise NoMessage(types.PARSE_ERROR, f"Parse error: {str(error.__cause__)[:_REASON_CHARS]}") from None
    if not isinstance(payload, dict):
        kind = "a batch" if isinstance(payload, list) else "no object"
        raise NoMessage(types.INVALID_REQUEST, f"Invalid request: {kind}; one message at a time")
    try:
        with boundary("message"):
            message: types.JSONRPCMessage = types.jsonrpc_message_adapter.validate_python(payload, by_name=False)
    except Unreadable:
        raise NoMessage(types.INVALID_REQUEST, f"Invalid request: {_wrong(payload)}", _id_of(payload)) from None
    if isinstance(message, types.JSONRPCNotification) and "id" in payload:  # a request by its form: it is owed an answer
        raise NoMessage(types.INVALID_REQUEST, "Invalid request: its id is neither text nor a whole number")
    return message


def _wrong(told: dict[str, Any]) -> str:
    if told.get("jsonrpc") != "2.0":
        return 'there must be "jsonrpc": "2.0"'
    if "method" in told:
        return "method must be text, params an object, id text or a whole number"
    return "there must be a method, or a result or an error with its id"


def _id_of(told: dict[str, Any]) -> str | int | None:
    request_id = told.get("id")
    return request_id if isinstance(request_id, str) or (isinstance(request_id, int) and not isinstance(request_id, bool)) else None
