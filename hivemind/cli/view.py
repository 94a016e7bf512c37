"""hivemind view: what is in front of an agent, at a glance, as it comes, and what is worth knowing about it."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from hivemind.cli.answer import answer_lines, signal_lines
from hivemind.cli.call import as_command
from hivemind.cli.hive_of import look_at
from hivemind.cli.output import print_json, say
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json, number
from hivemind.cli.text import is_terminal, terminal_size
from hivemind.names import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hivemind.hive import Hive

__all__ = ["add_to"]


def add_to(commands: Commands, common: Parser) -> None:
    view = add_group(
        commands,
        common,
        "view",
        "see what is in front of an agent: where it is, why, what comes next",
        examples="  hivemind view resume what-is-a-lease\n  hivemind view resume --agent researcher --budget 2000 --json\n"
        "  hivemind view signals what-is-a-lease --all-lanes\n\n"
        "Nothing is written by looking. What an agent has in its own lane is seen with --agent, --all-lanes or --view audit.",
    )
    resume = add_command(
        view, common, "resume", _resume, "everything that is needed to go on with a task",
        examples="  hivemind view resume what-is-a-lease --step focus --agent researcher",
    )  # fmt: skip
    _add_place(resume)
    _add_bounds(resume)
    snapshot = add_command(
        view, common, "snapshot", _snapshot, "the same at a glance: no notes, no actions, no events",
        examples="  hivemind view snapshot what-is-a-lease",
    )  # fmt: skip
    _add_place(snapshot)
    _add_bounds(snapshot)
    watch = add_command(
        view, common, "watch", _watch, "what has come since an earlier look",
        about="An answer's `seq` and `card_seq` (--json) are what the next look gives as --since and --since-card.",
        examples="  hivemind view watch what-is-a-lease --since 120 --since-card 14",
    )  # fmt: skip
    _add_place(watch)
    _add_bounds(watch)
    watch.add_argument(
        "--since", type=number("of an event"), default=0, metavar="SEQ", help="events after this one (default: all)"
    )
    watch.add_argument(
        "--since-card", type=number("of a line"), metavar="SEQ", help="cards, notes, actions after this line of graph.jsonl"
    )  # fmt: skip
    signals = add_command(
        view, common, "signals", _signals, "what is worth knowing, the gravest first, and what would help",
        examples="  hivemind view signals what-is-a-lease --all-lanes",
    )  # fmt: skip
    _add_place(signals)


def _add_place(parser: Parser) -> None:
    parser.add_argument("task", nargs="?", metavar="TASK", help="the task's id (default: what the agent has in focus)")
    parser.add_argument("--step", metavar="ID", help="only this step; focus: the first open one that is not blocked")
    parser.add_argument("--agent", metavar="NAME", help="as this agent sees it: with its focus and its lane")
    parser.add_argument("--all-lanes", action="store_true", help="drafts in every agent's lane too")
    parser.add_argument("--limit", type=number("from 1", 1), metavar="N", help="N cards or signals at most")
    add_json(parser)


def _add_bounds(parser: Parser) -> None:
    parser.add_argument(
        "--view", default="smart", metavar="VIEW", help="smart (default), focus_only, explore, audit or full"
    )
    parser.add_argument(
        "--budget", type=number("of bytes"), metavar="N", help="at most N bytes of JSON; the capsule goes last"
    )


def _resume(arguments: argparse.Namespace) -> int:
    from hivemind.views import resume

    hive = look_at(arguments)
    return _tell(resume(hive, **_place(hive, arguments), **_bounds(arguments)), arguments)


def _snapshot(arguments: argparse.Namespace) -> int:
    from hivemind.views import snapshot

    hive = look_at(arguments)
    return _tell(snapshot(hive, **_place(hive, arguments), **_bounds(arguments)), arguments)


def _watch(arguments: argparse.Namespace) -> int:
    from hivemind.views import watch

    hive = look_at(arguments)
    place, bounds = _place(hive, arguments), _bounds(arguments)
    return _tell(watch(hive, arguments.since, **place, **bounds, since_card_seq=arguments.since_card), arguments)


def _signals(arguments: argparse.Namespace) -> int:
    from hivemind.views import signals

    hive = look_at(arguments)
    found = signals(hive, **_place(hive, arguments))
    if arguments.json:
        print_json(found)
    else:
        for line in signal_lines(found, _typed(arguments, arguments.task)):
            say(line)
    return 0


def _place(hive: Hive, arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "agent_id": arguments.agent,
        "task": None if arguments.task is None else _known_task(hive, arguments.task),
        "step": arguments.step,
        "all_lanes": arguments.all_lanes,
        "limit": arguments.limit,
    }


def _bounds(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"view": arguments.view, "context_budget": arguments.budget}


def _known_task(hive: Hive, text: str) -> str:
    """The id of a task that lies in the hive, or that the journal tells of. Raises UserError for any other."""
    task = check_name(text, "task id")
    told = hive.journal.view(lambda state: task in state.tasks or task in state.by_task)
    return task if told else hive.tasks.get(task).id


def _tell(answer: dict[str, Any], arguments: argparse.Namespace) -> int:
    """The answer as JSON in the form that its budget counts, or for a person."""
    from hivemind.views import render

    if arguments.json:
        say(render(answer))
    else:
        columns = terminal_size()[0] if is_terminal() else None
        for line in answer_lines(answer, _typed(arguments, answer.get("task", {}).get("id")), columns):
            say(line)
    return 0


def _typed(arguments: argparse.Namespace, task: str | None) -> Callable[[Mapping[str, Any]], str]:
    return partial(as_command, agent=arguments.agent, task=task, hive=getattr(arguments, "hive", None))
