"""hivemind tool: the tools of minds and MCP clients, from a shell."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.given import standard_input
from hivemind.cli.hive_of import hive_of, known_name
from hivemind.cli.output import print_json, print_table
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hivemind.tools import Tool

__all__ = ["add_to"]


def add_to(commands: Commands, common: Parser) -> None:
    tool = add_group(
        commands,
        common,
        "tool",
        "see the tools of minds and MCP clients, and use one by hand",
        examples="  hivemind tool list\n  hivemind tool show edit_file\n  hivemind tool call search_files pattern=boat",
    )
    listing = add_command(tool, common, "list", _list, "list the tools", examples="  hivemind tool list --json")
    add_json(listing)
    showing = add_command(
        tool, common, "show", _show, "show what a mind is told of a tool, as JSON", examples="  hivemind tool show reserve"
    )  # fmt: skip
    showing.add_argument("name", metavar="TOOL", help="its name, as `tool list` has it")
    calling = add_command(
        tool, common, "call", _call, "use a tool; its result is JSON",
        about="A list is given by naming it several times, anything else that is no text as JSON. Nothing is in focus, so what\n"
        "works on a task in hand is for its agent alone, or for `hivemind mcp`.",
        examples="  hivemind tool call search_files pattern='oa[kt]' path=knowledge\n"
        "  hivemind tool call send_mail to=researcher to=analyst subject=Boats body='Which is the oldest?'\n"
        "  echo '{\"query\": \"boats\"}' | hivemind tool call doc_find --arguments -",
    )  # fmt: skip
    calling.add_argument("name", metavar="TOOL", help="its name, as `tool list` has it")
    calling.add_argument("given", nargs="*", metavar="NAME=VALUE", help="its arguments, as `tool show` has them")
    calling.add_argument("--arguments", metavar="JSON", help="all of them as one JSON object; - reads standard input")
    calling.add_argument("--agent", default=HUMAN, metavar="NAME", help="for whom: an agent, or human (default)")


def _list(arguments: argparse.Namespace) -> int:
    from hivemind.tools import MEMBER_TOOLS, TOOLS

    found = [*TOOLS.values(), *MEMBER_TOOLS.values()]
    if arguments.json:
        print_json([one.schema() for one in found])
        return 0
    print_table(
        [{"tool": one.name, "description": one.description} for one in found], ("tool", "description"), empty=""
    )
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from hivemind.tools.by_hand import known_tool

    print_json(known_tool(arguments.name).schema())
    return 0


def _call(arguments: argparse.Namespace) -> int:
    from hivemind.tools.by_hand import known_tool, use_by_hand

    told = _whole(arguments.arguments) | _pairs(arguments.given, known_tool(arguments.name))
    hive = hive_of(arguments)
    print_json(use_by_hand(hive, known_name(hive, arguments.agent), arguments.name, told))
    return 0


def _whole(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    with boundary("text of JSON", "--arguments"):
        found = json.loads(standard_input() if text == "-" else text)
    if not isinstance(found, dict):
        raise UserError("is no JSON object", where="--arguments", mend='--arguments \'{"name": "value"}\'')
    return found


def _pairs(given: Iterable[str], tool: Tool) -> dict[str, Any]:
    """What `name=value` says, by the kind that the tool's schema has for each name."""
    told: dict[str, Any] = {}
    fields = tool.schema()["parameters"].get("properties", {})
    for pair in given:
        name, sign, text = pair.partition("=")
        if not sign:
            raise UserError("is no NAME=VALUE", where=pair)
        name = tool.arguments.own_name(name)
        kind = fields.get(name, {}).get("type")
        if kind == "array" and not text.startswith("["):
            told.setdefault(name, []).append(text)
        else:
            told[name] = _value(name, text, kind)
    return told


def _value(name: str, text: str, kind: str | None) -> Any:
    if kind in ("string", None):
        return text
    try:
        with boundary(kind, name):
            return json.loads(text)
    except Unreadable:
        raise UserError(f"{text!r} is no {kind}", where=name) from None
