"""hivemind context: the opening that would be made now, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hivemind.cli.hive_of import known_agent, look_at
from hivemind.cli.output import print_json, say, table
from hivemind.cli.parser import Commands, Parser, add_command, add_json
from hivemind.cli.text import one_line

if TYPE_CHECKING:
    from hivemind.agent.preview import Preview
    from hivemind.memory.selection import Choice

__all__ = ["add_to"]


def add_to(commands: Commands, common: Parser) -> None:
    parser = add_command(
        commands,
        common,
        "context",
        run,
        "show the opening that an agent would begin a conversation with now",
        about="With --why: every block there was to choose from, its score and the parts that it is the product of, its\n"
        "tokens, whether it is in, and because of what.",
        examples="  hivemind context researcher\n  hivemind context researcher --why",
    )
    parser.add_argument("agent", metavar="AGENT", help="the agent")
    parser.add_argument("--why", action="store_true", help="explain the choice, block by block")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from hivemind.agent.preview import preview_context

    hive = look_at(arguments)
    preview = preview_context(hive, known_agent(hive, arguments.agent))
    if arguments.why:
        return _why(preview, arguments.json)
    if arguments.json:
        print_json([message.as_record() for message in preview.messages])
    else:
        _show(preview)
    return 0


def _show(preview: Preview) -> None:
    """Each message under a line that says whose it is."""
    for message in preview.messages:
        say(f"--- {message.role}")
        say(message.text.rstrip("\n"))
        say()
    say(_summed(preview))


def _summed(preview: Preview) -> str:
    target = preview.target
    about = f"for {target['kind']} {target['id']}" if target and target["id"] else "with nothing in hand"
    used = f"{preview.tokens:,} of {preview.budget:,} tokens (the tools' descriptions among them)"
    return f"{len(preview.selected.entries)} blocks selected, {used}, {about}."


def _why(preview: Preview, as_json: bool) -> int:
    inside = {entry["id"] for entry in preview.selected.entries}
    choices = [_explained(preview, choice, inside) for choice in preview.selected.selection]
    choices.sort(key=lambda choice: (not choice["in"], -choice["score"], choice["block"]))
    if as_json:
        print_json({"target": preview.target, "budget": preview.budget, "tokens": preview.tokens, "blocks": choices})
        return 0
    heads = ["BLOCK", "IN", "SCORE", "TOKENS"]
    rows = [
        [one_line(one["block"]), "yes" if one["in"] else "no", f"{one['score']:.3f}", f"{one['tokens']:,}"]
        for one in choices
    ]
    head, *lines = table([heads, *rows], None)
    say(head)
    for line, one in zip(lines, choices, strict=True):
        parts = " × ".join(f"{name} {value:.3g}" for name, value in one["parts"].items())
        say(line)
        say(f"    {one_line(one['because'])}; score: {parts}")
    say(_summed(preview))
    return 0


def _explained(preview: Preview, choice: Choice, inside: set[Any]) -> dict[str, Any]:
    return {
        "block": choice.id,
        "type": choice.block.type.value,
        "priority": choice.block.priority.name.lower(),
        "in": choice.id in inside,
        "score": choice.score,
        "parts": preview.selected.explain(choice.block),
        "tokens": choice.tokens,
        "because": choice.reason,
    }
