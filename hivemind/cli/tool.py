"""List the tools of minds and MCP clients, and call one by hand.

examples:
  hivemind tool list
  hivemind tool show edit_file
  hivemind tool call search_files pattern=boat
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hivemind.boundary import boundary
from hivemind.cli.command import CommandOutput, Text, command
from hivemind.cli.open_hive import acting_name, open_hive, without_hive
from hivemind.cli.output import table_lines
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hivemind.hive import Hive
    from hivemind.tools import Tool


@command("tool list", without_hive, for_agents=True)
def tools(_: str | None) -> CommandOutput:
    """List the tools.

    examples:
      hivemind tool list --json
    """
    from hivemind.tools import MEMBER_TOOLS, TOOLS

    all_tools = [*TOOLS.values(), *MEMBER_TOOLS.values()]
    rows = [{"tool": tool.name, "description": tool.description} for tool in all_tools]
    return CommandOutput([tool.schema() for tool in all_tools], table_lines(rows, ("tool", "description"), empty=""))


@command("tool show", without_hive, fixed_format=True, for_agents=True)
def show(_: str | None, names: list[str]) -> CommandOutput:
    """Show the name, description and parameters of tools, as JSON: an object, or a list for several tools.

    arguments:
      TOOL  the tool's name, as shown by `tool list`

    examples:
      hivemind tool show reserve
      hivemind tool show read_file write_file
    """
    from hivemind.tools.registry import find_tool

    schemas = [find_tool(name).schema() for name in names]
    return CommandOutput(schemas if len(schemas) > 1 else schemas[0])


@command("tool call", open_hive, fixed_format=True)
def call(
    hive: Hive, name: str, pairs: list[str] | None = None, *, arguments: Text | None = None, agent: str = HUMAN
) -> CommandOutput:
    """Call a tool, and print its result as JSON.

    Repeat a name to pass a list; write other values that are not text as JSON. No task is in focus: tools for a claimed
    task can only be called by the task's agent, or through `hivemind mcp`.

    arguments:
      TOOL  the tool's name, as shown by `tool list`
      NAME=VALUE  its arguments, as shown by `tool show`
      --arguments JSON  all arguments as one JSON object; - reads standard input
      --agent WHO  the caller: an agent, or human (default)

    examples:
      hivemind tool call search_files pattern='oa[kt]' path=knowledge
      hivemind tool call send_mail to=researcher to=analyst subject=Boats body='Which is the oldest?'
      echo '{"query": "boats"}' | hivemind tool call doc_find --arguments -
    """
    from hivemind.tools.registry import find_tool, use_by_hand

    tool_arguments = _json_arguments(arguments) | _pair_arguments(pairs or (), find_tool(name))
    return CommandOutput(use_by_hand(hive, acting_name(hive, agent), name, tool_arguments))


def _json_arguments(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    with boundary("text of JSON", "--arguments"):
        parsed_arguments = json.loads(text)
    if not isinstance(parsed_arguments, dict):
        raise UserError("not a JSON object", location="--arguments", remedy='--arguments \'{"name": "value"}\'')
    return parsed_arguments


def _pair_arguments(pairs: Iterable[str], tool: Tool) -> dict[str, Any]:
    """Parse `name=value` pairs by the types in the tool's schema. Raises UserError for a text that does not fit."""
    arguments: dict[str, Any] = {}
    properties = tool.schema()["parameters"].get("properties", {})
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign:
            raise UserError("not of the form NAME=VALUE", location=pair)
        name = tool.arguments.canonical_name(name)
        kind = properties.get(name, {}).get("type")
        if kind == "array" and not text.startswith("["):
            arguments.setdefault(name, []).append(text)
        elif kind in ("array", "object"):
            with boundary("text of JSON", name):
                arguments[name] = json.loads(text)
        else:
            arguments[name] = text  # the tool converts it to a number
    return arguments
