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
from hivemind.cli.command import Answer, Text, command
from hivemind.cli.opening import acting, anywhere, open_hive
from hivemind.cli.output import table_lines
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hivemind.hive import Hive
    from hivemind.tools import Tool


@command("tool list", anywhere, agents=True)
def tools(_: str | None) -> Answer:
    """List the tools.

    examples:
      hivemind tool list --json
    """
    from hivemind.tools import MEMBER_TOOLS, TOOLS

    found = [*TOOLS.values(), *MEMBER_TOOLS.values()]
    rows = [{"tool": one.name, "description": one.description} for one in found]
    return Answer([one.schema() for one in found], table_lines(rows, ("tool", "description"), empty=""))


@command("tool show", anywhere, own_form=True, agents=True)
def show(_: str | None, name: str) -> Answer:
    """Show a tool's name, description and parameters, as JSON.

    arguments:
      TOOL  its name, as `tool list` has it

    examples:
      hivemind tool show reserve
    """
    from hivemind.tools.registry import known_tool

    return Answer(known_tool(name).schema())


@command("tool call", open_hive, own_form=True)
def call(
    hive: Hive, name: str, given: list[str] | None = None, *, arguments: Text | None = None, agent: str = HUMAN
) -> Answer:
    """Call a tool; its result is JSON.

    Give a list by repeating its name; anything else that is not text, as JSON. No task is in focus: tools that work
    on a claimed task are for its agent, or for `hivemind mcp`.

    arguments:
      TOOL  its name, as `tool list` has it
      NAME=VALUE  its arguments, as `tool show` has them
      --arguments JSON  all of them as one JSON object; - reads standard input
      --agent WHO  for whom: an agent, or human (default)

    examples:
      hivemind tool call search_files pattern='oa[kt]' path=knowledge
      hivemind tool call send_mail to=researcher to=analyst subject=Boats body='Which is the oldest?'
      echo '{"query": "boats"}' | hivemind tool call doc_find --arguments -
    """
    from hivemind.tools.registry import known_tool, use_by_hand

    told = _whole(arguments) | _pairs(given or (), known_tool(name))
    return Answer(use_by_hand(hive, acting(hive, agent), name, told))


def _whole(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    with boundary("text of JSON", "--arguments"):
        found = json.loads(text)
    if not isinstance(found, dict):
        raise UserError("not a JSON object", where="--arguments", mend='--arguments \'{"name": "value"}\'')
    return found


def _pairs(given: Iterable[str], tool: Tool) -> dict[str, Any]:
    """What `name=value` says, by the kind that the tool's schema has for each name."""
    told: dict[str, Any] = {}
    fields = tool.schema()["parameters"].get("properties", {})
    for pair in given:
        name, sign, text = pair.partition("=")
        if not sign:
            raise UserError("not of the form NAME=VALUE", where=pair)
        name = tool.arguments.own_name(name)
        kind = fields.get(name, {}).get("type")
        if kind == "array" and not text.startswith("["):
            told.setdefault(name, []).append(text)
        elif kind in ("array", "object"):
            with boundary("text of JSON", name):
                told[name] = json.loads(text)
        else:
            told[name] = text  # the tool makes a number of it
    return told
