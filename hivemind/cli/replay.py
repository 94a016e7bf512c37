"""hivemind task replay: what a finished task would do now."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hivemind.cli.hive_of import look_at
from hivemind.cli.output import print_json, say
from hivemind.cli.parser import Commands, Parser, add_command, add_json
from hivemind.cli.text import fit, one_line

if TYPE_CHECKING:
    from hivemind.replay import Difference, Replay

__all__ = ["add_replay"]

_CHARS = 160


def add_replay(task: Commands, common: Parser) -> None:
    parser = add_command(
        task,
        common,
        "replay",
        run,
        "run a finished task again from its log, without its model",
        about="Shows each turn that would now go another way: another call, another result of a tool.\n"
        "Everything happens in a copy that is thrown away: no model is asked, no program is run, nothing is sent, and the\n"
        "hive stays as it is. Exit status: 0 if every turn goes as it went, 1 if any differs.",
        examples="  hivemind task replay what-is-a-lease\n"
        "  hivemind task replay what-is-a-lease --script > thoughts.jsonl",
    )
    parser.add_argument("id", metavar="ID", help="the task's id")
    parser.add_argument(
        "--script", action="store_true", help="print its thoughts as a script for a scripted mind instead"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from hivemind.hive import Hive
    from hivemind.replay import replay, script_lines

    hive = look_at(arguments)
    if arguments.script:
        for line in script_lines(hive.tasks.read_log(arguments.id)):
            say(line)
        return 0
    found = replay(hive, arguments.id, Hive)
    if arguments.json:
        print_json({**asdict(found), "differs": found.differs})
    else:
        for line in _lines(found):
            say(line)
    return 1 if found.differs else 0


def _lines(found: Replay) -> Iterator[str]:
    other = sum(bool(turn.differences) for turn in found.turns)
    ends = f"{other} of them another way" if other else "all of them as they went"
    yield f"{found.task}: {len(found.turns)} turns of {', '.join(found.agents)} taken again, {ends}."
    for turn in found.turns:
        if turn.differences:
            whose = f" of {turn.agent}" if len(found.agents) > 1 else ""
            yield f"\nTurn {turn.number}{whose}{f', step {turn.step}' if turn.step else ''}:"
            for one in turn.differences:
                yield from _difference(one)


def _difference(one: Difference) -> Iterator[str]:
    yield f"  {one.what} {one_line(one.where)}"
    yield fit(f"    was  {_told(one.was)}", _CHARS)
    yield fit(f"    now  {_told(one.now)}", _CHARS)


def _told(value: Any) -> str:
    if value is None:
        return "nothing"
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
