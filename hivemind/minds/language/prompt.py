"""What a model is told beside its conversation: tools in words where it cannot call them, the form of a completion."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.minds.language.answer import written_form
from hivemind.minds.mind import ToolSchema
from hivemind.minds.turn import ChatMessage

__all__ = ["answer_schema", "completion_messages", "in_words"]

_PROMPTED = """
You have no way to call tools but this: answer with one JSON object and nothing else, of this form:
{"text": "why, in a few words", "calls": [{"tool": "NAME", "arguments": {…}}]}
The tools, one JSON object a line, `parameters` being the JSON Schema of the arguments:"""


def in_words(messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> list[ChatMessage]:
    """A conversation for a model that cannot call tools: they are told in the system message, calls and results are texts."""
    told = "\n".join([_PROMPTED, *(json.dumps(tool, ensure_ascii=False) for tool in tools)])
    names = {call.id: call.tool for message in messages for call in message.calls}
    plain = []
    for message in messages:
        if message.role == "system":
            plain.append(ChatMessage("system", f"{message.text}\n{told}"))
        elif message.role == "assistant":
            plain.append(ChatMessage("assistant", written_form(message.text, message.calls)))
        elif message.role == "tool":
            plain.append(ChatMessage("user", f"Result of {names.get(message.call_id or '', 'a call')}: {message.text}"))
        else:
            plain.append(message)
    return plain


def completion_messages(text: str, schema: Mapping[str, Any] | None) -> list[ChatMessage]:
    """The messages for a completion; with a schema it is told to answer in JSON."""
    if schema is None:
        told = "Do what the text asks, and answer with the result alone."
    else:
        form = json.dumps(schema, ensure_ascii=False)
        told = f"Answer with one JSON value and nothing else. Its JSON Schema:\n{form}"
    return [ChatMessage("system", told), ChatMessage("user", text)]


def answer_schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """The JSON Schema of an answer with prompted tools: only tools that there are, with arguments by their own schemas.

    Arguments whose schema refers to definitions of its own are any object; they are checked afterwards all the same.
    """
    action = {"anyOf": [_action(tool) for tool in tools]}
    return {
        "type": "object",
        "properties": {"text": {"type": "string"}, "calls": {"type": "array", "items": action}},
        "required": ["text", "calls"],
        "additionalProperties": False,
    }


def _action(tool: ToolSchema) -> dict[str, Any]:
    arguments = {"type": "object"} if "$defs" in tool["parameters"] else tool["parameters"]
    return {
        "type": "object",
        "properties": {"tool": {"const": tool["name"]}, "arguments": arguments},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }
