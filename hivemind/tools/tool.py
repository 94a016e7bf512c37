"""One definition of each tool: its name, what it says of itself, its arguments, what it does (spec 7, *Tools*)."""

from __future__ import annotations

import json
import re
import shlex
import typing
from collections.abc import Callable, Container, Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic import ValidationError, model_validator

from hivemind.boundary import boundary
from hivemind.errors import HivemindError, UserError, remedy_of
from hivemind.frontmatter import StrictModel, instead_of
from hivemind.frozen import frozen
from hivemind.masking import masked
from hivemind.minds import ToolSchema
from hivemind.presence.identity import unless_dead
from hivemind.tools.excerpt import Call, as_lines, shortened
from hivemind.tools.session import Session

if typing.TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Result = dict[str, Any]
Use = Callable[[Session, Any], Result]
_TOLD = 5  # wrong arguments in one answer: a misspelt name and the one that is missed for it are two
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
    "question": ("text",),
    "reason": ("message", "text"),
    "result": ("answer", "text"),
    "step": ("step_id",),
    "task": ("id", "task_id"),
    "text": ("body", "content", "contents"),
    "title": ("name",),
    "to": ("recipient", "recipients"),
}
"""Arguments by further names, each taken where the tool has no argument of that name and the right one is not given."""
_COMMANDS = frozenset({"command", "run"})
_BY_TOOL = {
    "hivemind task (list|show)": "list_tasks", r"hivemind mail list \S+( --folder \w+)?": "check_mailbox",
    "hivemind view resume": "resume",
}  # fmt: skip
"""What shows a mind what those commands show a person."""


class Arguments(StrictModel):
    """The arguments of a tool; unknown ones are refused, so that a slip is seen."""

    @model_validator(mode="before")
    @classmethod
    def plain(cls, given: Any) -> Any:
        """What is obviously meant: an argument by another name, one thing for a list of one, a command's words as one
        text, null for what may be left out."""
        if not isinstance(given, Mapping):
            return given
        told: dict[str, Any] = {}
        for name, value in given.items():
            own = cls.own_name(name)
            name = name if own in given or own in told else own
            field = cls.model_fields.get(name)
            if field is not None and isinstance(value, str | Mapping) and _wants_list(field.annotation, value):
                value = shlex.split(value) if name in _COMMANDS and isinstance(value, str) else [value]
            if field is None or value is not None or field.is_required():
                told[name] = value
        return told

    @classmethod
    def own_name(cls, name: str) -> str:
        """The argument that a name stands for; the name itself where it stands for none."""
        if name in cls.model_fields:
            return name
        return next((own for own in cls.model_fields if name in OTHER_NAMES.get(own, ())), name)


class ToolProblem(UserError):
    """A tool was asked for something that it does not do; the mind is told why."""


class Interrupted(ToolProblem):
    """What a tool did was interrupted from outside, for which the task is not to blame: it may be done again."""

    result: ClassVar[Mapping[str, Any]] = {"interrupted": True}


@frozen
class Tool:
    """A tool as minds, the command line and MCP see it. One that only `reads` changes nothing: it may be called again."""

    name: str
    description: str
    arguments: type[Arguments]
    use: Use
    text: Callable[[Mapping[str, Any]], str] = as_lines
    """The result as text for a reader."""
    rest: Callable[[Mapping[str, Any]], Call | str] | None = None
    """From a result to what shows those lines of its text that are left out; None where nothing does."""
    reads: bool = False

    def shown(self, result: Mapping[str, Any], limit_chars: int) -> str:
        """The result as text, of a long one its beginning and its end, and how the rest can be seen."""
        return shortened(self.text(result), limit_chars, None if self.rest is None else self.rest(result))

    def schema(self) -> ToolSchema:
        return {"name": self.name, "description": self.description, "parameters": _parameters(self.arguments)}

    def listed(self) -> dict[str, Any]:
        """The tool in an answer to MCP's `tools/list`."""
        return {"name": self.name, "description": self.description, "inputSchema": _parameters(self.arguments)}

    def call(self, session: Session, arguments: Mapping[str, Any]) -> Result:
        """Check the arguments and use the tool; what an agent that was killed has leased or reserved stands in no way.

        Raises ToolProblem for wrong arguments and for what the operating system refuses, and what the tool raises.
        """
        with boundary("set of arguments", self.name):
            try:
                checked = self.arguments.model_validate(dict(arguments))
            except ValidationError as error:
                raise ToolProblem(f"{self.name}: {'; '.join(map(self._wrong, error.errors()[:_TOLD]))}") from None
        try:
            return masked(unless_dead(session.hive, lambda: self.use(session, checked), by=session.agent))
        except OSError as error:  # of what others put in the place of a file, or of the machine: no fault of the tool's
            where = error.filename if isinstance(error.filename, str) else None
            raise ToolProblem(
                f"the system says: {error.strerror or error}", location=where, remedy=remedy_of(error)
            ) from error

    def _wrong(self, found: ErrorDetails) -> str:
        name = ".".join(map(str, found["loc"])) or "arguments"
        if found["type"] == "missing":
            return f"{name} is missing"
        if found["type"] == "extra_forbidden":
            return f"{name}: {instead_of(found['loc'], self.arguments, 'arguments')}"
        return f"{name}: {found['msg'].removeprefix('Value error, ')}"


def for_mind(error: HivemindError, tools: Container[str]) -> HivemindError:
    """The error as a mind is told of it, which has neither a command line nor Python: what helps is named by the `tools` that
    it has, and what only a person can do is said to be a person's."""
    if not isinstance(error, UserError) or error.remedy is None:
        return error
    mend, calls = error.remedy, getattr(error, "suggestions", ())
    if calls and all(one["call"] in mend for one in calls):
        mend = ", or ".join(as_call(one["tool"], **one["arguments"]) for one in calls if one["tool"] in tools)
    for command, tool in _BY_TOOL.items():
        mend = re.sub(command, tool, mend) if tool in tools else mend
    return UserError(
        error.message, location=error.location, remedy=f"for a person: {mend}" if "hivemind " in mend else mend
    )


def _wants_list(kind: Any, value: Any) -> bool:
    """Whether it is a list that is wanted, and not such a value by itself as well."""
    kinds = (kind,) if typing.get_origin(kind) is list else typing.get_args(kind)
    return any(typing.get_origin(one) is list for one in kinds) and type(value) not in kinds


@cache
def _parameters(arguments: type[Arguments]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments: made once in a process, and thereby once for all agents forked from it."""
    shown: dict[str, Any] = _lean(arguments.model_json_schema())
    shown.pop("description", None)
    return shown


def _lean(schema: Any) -> Any:
    """A schema without what tells a mind nothing and is paid for in its every turn: titles that repeat the name, and
    `null` for what may be left out anyway."""
    if isinstance(schema, list):
        return [_lean(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    lean = {
        key: {name: _lean(one) for name, one in value.items()} if key in ("properties", "$defs") else _lean(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
    }
    choices = lean.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices and "default" in schema:
        kept = [choice for choice in choices if choice != {"type": "null"}]
        if len(kept) == 1:
            del lean["anyOf"]
            lean = {**kept[0], **lean}
    return lean


def as_call(tool: str, **arguments: Any) -> str:
    """A call as a mind would write it; arguments that are None are left out."""
    told = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items() if value is not None)
    return f"{tool}({', '.join(told)})"


def tool(
    *,
    text: Callable[[Mapping[str, Any]], str] = as_lines,
    rest: Callable[[Mapping[str, Any]], Call | str] | None = None,
    reads: bool = False,
) -> Callable[[Use], Tool]:
    """Make a tool of a function `(session, arguments) -> result`; its docstring is what a mind is told.

    `text` makes the result readable (default: a line for each field), `rest` says how a long text is read on, `reads` that
    it changes nothing.
    """

    def made(function: Use) -> Tool:
        arguments = typing.get_type_hints(function)["arguments"]
        description = " ".join((function.__doc__ or "").split())
        return Tool(function.__name__, description, arguments, function, text, rest, reads)

    return made
