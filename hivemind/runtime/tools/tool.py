"""One definition of each tool: its name, what it says of itself, its arguments, what it does (spec 7, *Tools*)."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hivemind.errors import UserError
from hivemind.masking import masked
from hivemind.minds import ToolSchema
from hivemind.runtime.tools.session import Session

__all__ = ["Arguments", "Tool", "ToolProblem", "tool"]

Result = dict[str, Any]
_TOLD = 5  # wrong arguments in one answer: a misspelt name and the one that is missed for it are two


class Arguments(BaseModel):
    """The arguments of a tool; unknown ones are refused, so that a slip is seen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolProblem(UserError):
    """A tool was asked for something that it does not do; the mind is told why."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as minds, the command line and MCP see it. `needs` says what it works on: a task, a message, or nothing."""

    name: str
    description: str
    arguments: type[Arguments]
    use: Callable[[Session, Any], Result]

    def schema(self) -> ToolSchema:
        return {"name": self.name, "description": self.description, "parameters": _parameters(self.arguments)}

    def call(self, session: Session, arguments: Mapping[str, Any]) -> Result:
        """Check the arguments and use the tool. Raises ToolProblem for wrong arguments, and what the tool raises."""
        try:
            checked = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            told = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()[:_TOLD]]
            raise ToolProblem(f"{self.name}: {'; '.join(told)}") from None
        return masked(self.use(session, checked))


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


def tool(function: Callable[[Session, Any], Result]) -> Tool:
    """Make a tool of a function `(session, arguments) -> result`; its docstring is what a mind is told."""
    hints = typing.get_type_hints(function)
    arguments = hints["arguments"]
    description = " ".join((function.__doc__ or "").split())
    return Tool(function.__name__, description, arguments, function)
