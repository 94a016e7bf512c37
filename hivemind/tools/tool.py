"""The definition of a tool: its name, description, arguments and function."""

from __future__ import annotations

import json
import re
import shlex
import typing
from collections.abc import Callable, Container, Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from hivemind.boundary import boundary
from hivemind.errors import HivemindError, UserError, remedy_of
from hivemind.frontmatter import key_hint, problem_of
from hivemind.frozen import frozen
from hivemind.masking import mask_values
from hivemind.minds import ToolSchema
from hivemind.presence.identity import retry_if_holder_died
from hivemind.tools.excerpt import ContinuationCall, as_lines, shortened
from hivemind.tools.tool_context import ToolContext

if typing.TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Result = dict[str, Any]
Use = Callable[[ToolContext, Any], Result]
_MAX_PROBLEMS = 5  # reported per call: a misspelt name counts as two, an unknown argument and a missing one
OTHER_NAMES = {
    "body": ("content", "message", "text"),
    "card": ("card_id", "node", "node_id"),
    "command": ("argv", "cmd"),
    "content": ("text",),
    "id": ("message_id", "task", "task_id"),
    "limit": ("max_results",),
    "message": ("id", "message_id"),
    "new": ("new_str", "new_string", "new_text"),
    "node": ("id", "node_id"),
    "old": ("old_str", "old_string", "old_text"),
    "path": ("file", "file_path", "filename"),
    "paths": ("path", "patterns"),
    "pattern": ("query", "regex"),
    "query": ("question", "text"),
    "question": ("query", "text"),
    "reason": ("message", "text"),
    "result": ("answer", "text"),
    "step": ("step_id",),
    "task": ("id", "task_id"),
    "text": ("body", "content", "contents"),
    "title": ("name",),
    "to": ("recipient", "recipients"),
}
"""Other names of arguments. Another name is accepted if no argument of the tool has it and the right name is missing."""
_COMMANDS = frozenset({"command", "run"})
_BY_TOOL = {
    "hivemind task (list|show)": "list_tasks", r"hivemind mail list \S+( --folder \w+)?": "check_mailbox",
    "hivemind view resume": "resume",
}  # fmt: skip
"""For some commands, patterned, the tool that shows a mind what the command shows a person."""


class Arguments(BaseModel):
    """The arguments of a tool. Unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def normalize(cls, arguments: Any) -> Any:
        """Return the arguments without obvious slips: another name of an argument, a single value for a list, a command as one
        string, null for an optional argument."""
        if not isinstance(arguments, Mapping):
            return arguments
        fields: dict[str, Any] = {}
        for name, value in arguments.items():
            field_name = cls.canonical_name(name)
            name = name if field_name in arguments or field_name in fields else field_name
            field = cls.model_fields.get(name)
            if field is not None and isinstance(value, str | Mapping) and _wants_list(field.annotation, value):
                value = shlex.split(value) if name in _COMMANDS and isinstance(value, str) else [value]
            if field is None or value is not None or field.is_required():
                fields[name] = value
        return fields

    @classmethod
    def canonical_name(cls, name: str) -> str:
        """Return the name of the argument that `name` means by OTHER_NAMES, or `name` itself."""
        if name in cls.model_fields:
            return name
        return next((field_name for field_name in cls.model_fields if name in OTHER_NAMES.get(field_name, ())), name)


class ToolProblem(UserError):
    """A tool's refusal of a call; the mind gets the message."""


class Interrupted(ToolProblem):
    """A call that was interrupted from outside, not by a fault of the task. The mind may repeat the call."""

    result: ClassVar[Mapping[str, Any]] = {"interrupted": True}


@frozen
class Tool:
    """A tool as minds, the command line and MCP see it. A tool with `is_read_only` may be called again after a crash."""

    name: str
    description: str
    arguments: type[Arguments]
    use: Use
    text: Callable[[Mapping[str, Any]], str] = as_lines
    """Formats the result as text for a reader."""
    continuation: Callable[[Mapping[str, Any]], ContinuationCall | str] | None = None
    """Maps a result to the call that shows omitted lines of the result's text; None if no call does."""
    is_read_only: bool = False

    def render(self, result: Mapping[str, Any], limit_chars: int) -> str:
        """Return the result as text. A text over the limit is shortened, and says how to see the omitted lines."""
        return shortened(
            self.text(result), limit_chars, None if self.continuation is None else self.continuation(result)
        )

    def schema(self) -> ToolSchema:
        return {"name": self.name, "description": self.description, "parameters": _parameters(self.arguments)}

    def mcp_entry(self) -> dict[str, Any]:
        """Return the tool's entry in an answer to MCP's `tools/list`."""
        return {"name": self.name, "description": self.description, "inputSchema": _parameters(self.arguments)}

    def call(self, context: ToolContext, arguments: Mapping[str, Any]) -> Result:
        """Check the arguments and use the tool. If a dead agent's lease or reservation is in the way, release it and try again.

        Raises ToolProblem for wrong arguments and errors of the operating system, and the tool's own errors.
        """
        with boundary("set of arguments", self.name):
            try:
                valid_arguments = self.arguments.model_validate(dict(arguments))
            except ValidationError as error:
                raise ToolProblem(
                    f"{self.name}: {'; '.join(map(self._problem, error.errors()[:_MAX_PROBLEMS]))}"
                ) from None
        try:
            return mask_values(
                retry_if_holder_died(context.hive, lambda: self.use(context, valid_arguments), by=context.agent)
            )
        except OSError as error:  # a replaced file, or trouble of the machine: no fault of the tool
            path = error.filename if isinstance(error.filename, str) else None
            raise ToolProblem(
                f"the operating system refused: {error.strerror or error}", location=path, remedy=remedy_of(error)
            ) from error

    def _problem(self, detail: ErrorDetails) -> str:
        name = ".".join(map(str, detail["loc"])) or "arguments"
        if detail["type"] == "extra_forbidden":
            return f"{name}: {key_hint(detail['loc'], self.arguments, 'arguments')}"
        return f"{name}{'' if detail['type'] == 'missing' else ':'} {problem_of(detail)}"


def for_mind(error: HivemindError, tools: Container[str]) -> HivemindError:
    """Return an error with its remedy rewritten for a mind, which has neither a command line nor Python: name the mind's own
    `tools`, and mark a remedy that only a person can apply."""
    if not isinstance(error, UserError) or error.remedy is None:
        return error
    remedy, suggestions = error.remedy, getattr(error, "suggestions", ())
    if suggestions and all(suggestion["call"] in remedy for suggestion in suggestions):
        remedy = ", or ".join(
            as_call(suggestion["tool"], **suggestion["arguments"])
            for suggestion in suggestions
            if suggestion["tool"] in tools
        )
    for command, name in _BY_TOOL.items():
        remedy = re.sub(command, name, remedy) if name in tools else remedy
    return UserError(
        error.message, location=error.location, remedy=f"for a person: {remedy}" if "hivemind " in remedy else remedy
    )


def _wants_list(annotation: Any, value: Any) -> bool:
    """Return True if an argument of this type takes a list but not the single value `value`."""
    alternatives = (annotation,) if typing.get_origin(annotation) is list else typing.get_args(annotation)
    return (
        any(typing.get_origin(alternative) is list for alternative in alternatives) and type(value) not in alternatives
    )


@cache
def _parameters(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments. Cached, so forked agents share the schemas of their parent process."""
    schema: dict[str, Any] = _lean(arguments.model_json_schema())
    schema.pop("description", None)
    return schema


def _lean(schema: Any) -> Any:
    """Return a schema without redundant parts, which would cost tokens in every turn: titles that repeat a name, and `null` as an
    alternative of an optional argument."""
    if isinstance(schema, list):
        return [_lean(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    lean = {
        key: {name: _lean(property_schema) for name, property_schema in value.items()}
        if key in ("properties", "$defs")
        else _lean(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
    }
    choices = lean.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices and "default" in schema:
        alternatives = [choice for choice in choices if choice != {"type": "null"}]
        if len(alternatives) == 1:
            del lean["anyOf"]
            lean = {**alternatives[0], **lean}
    return lean


def as_call(tool: str, **arguments: Any) -> str:
    """Return a call as a mind would write it, without arguments that are None."""
    parts = (
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items() if value is not None
    )
    return f"{tool}({', '.join(parts)})"


def tool(
    *,
    text: Callable[[Mapping[str, Any]], str] = as_lines,
    continuation: Callable[[Mapping[str, Any]], ContinuationCall | str] | None = None,
    is_read_only: bool = False,
) -> Callable[[Use], Tool]:
    """Turn a function `(context, arguments) -> result` into a tool. The function's docstring describes the tool to minds.

    `text` formats the result (default: a line per field), `continuation` returns the call that shows omitted lines, and
    `is_read_only` marks a tool that changes no state.
    """

    def make_tool(function: Use) -> Tool:
        arguments = typing.get_type_hints(function)["arguments"]
        description = " ".join((function.__doc__ or "").split())
        return Tool(function.__name__, description, arguments, function, text, continuation, is_read_only)

    return make_tool
