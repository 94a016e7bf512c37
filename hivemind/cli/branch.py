"""hivemind graph branch: alternatives within one task's graph."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hivemind.cli.graph_of import graph_at, graph_of
from hivemind.cli.hive_of import hive_of, look_at
from hivemind.cli.output import print_json, print_table, say
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json, number
from hivemind.cli.text import one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.reasoning import MergeConflict, MergeReport, ReasoningGraph, TaskGraph

__all__ = ["add_to"]

_ALL = "all"
_DONE, _FAILED = 0, 1


def add_to(graph: Commands, common: Parser) -> None:
    branch = add_group(
        graph,
        common,
        "branch",
        "list, create, delete, compare and merge branches of a task's graph",
        examples="  hivemind graph branch create what-is-a-lease second-thoughts\n"
        "  hivemind graph branch diff what-is-a-lease main second-thoughts\n"
        "  hivemind graph branch merge what-is-a-lease second-thoughts --dry-run",
    )
    listing = add_command(
        branch,
        common,
        "list",
        _list,
        "list the branches of a task's graph",
        examples="  hivemind graph branch list what-is-a-lease",
    )
    _add_task(listing)
    add_json(listing)
    creating = add_command(
        branch, common, "create", _create, "make a branch that sees its base up to now, or up to a line of the log",
        examples="  hivemind graph branch create what-is-a-lease second-thoughts --from main --at 12",
    )  # fmt: skip
    _add_task(creating)
    creating.add_argument("name", metavar="NAME", help="the new branch")
    creating.add_argument("--from", dest="base", metavar="BRANCH", help="its base (default: main)")
    creating.add_argument("--at", type=number("of a line"), metavar="SEQ", help="up to this line (default: now)")
    _add_agent(creating)
    add_json(creating)
    deleting = add_command(
        branch, common, "delete", _delete, "hide a branch; what was written in it stays in the log",
        examples="  hivemind graph branch delete what-is-a-lease second-thoughts",
    )  # fmt: skip
    _add_task(deleting)
    deleting.add_argument("name", metavar="NAME", help="the branch; one with branches of its own stays")
    _add_agent(deleting)
    add_json(deleting)
    comparing = add_command(
        branch, common, "diff", _diff, "what the second branch has that the first has not, and the reverse",
        examples="  hivemind graph branch diff what-is-a-lease main second-thoughts",
    )  # fmt: skip
    _add_task(comparing)
    comparing.add_argument("one", metavar="ONE", help="a branch")
    comparing.add_argument("other", metavar="OTHER", help="another")
    add_json(comparing)
    _add_merge(branch, common)


def _add_merge(branch: Commands, common: Parser) -> None:
    parser = add_command(
        branch, common, "merge", _merge, "bring what changed in one branch into another",
        about="What both have changed is a conflict, and nothing is written while one is left (exit status 1). --use-from and\n"
        "--use-into resolve one that is named, or, without a name, all that are not named.",
        examples="  hivemind graph branch merge what-is-a-lease second-thoughts --dry-run\n"
        "  hivemind graph branch merge what-is-a-lease second-thoughts --use-from 'node 4' --use-into",
    )  # fmt: skip
    _add_task(parser)
    parser.add_argument("source", metavar="FROM", help="the branch whose changes are taken")
    parser.add_argument("--into", default="main", metavar="BRANCH", help="the branch that gets them (default: main)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, write nothing")
    for option, whose in (("--use-from", "FROM"), ("--use-into", "the other")):
        parser.add_argument(
            option, nargs="?", const=_ALL, action="append", default=[], metavar="CONFLICT",
            help=f"take what {whose} has: in this conflict (node 4, edge 3 -> 7), or in all",
        )  # fmt: skip
    _add_agent(parser)
    add_json(parser)


def _add_task(parser: Parser) -> None:
    parser.add_argument("task", metavar="TASK", help="the task's id")


def _add_agent(parser: Parser) -> None:
    parser.add_argument("--agent", default=HUMAN, metavar="NAME", help="who does it (default: human)")


def _list(arguments: argparse.Namespace) -> int:
    found = [asdict(one) for one in graph_of(look_at(arguments), arguments.task).branches()]
    if arguments.json:
        print_json(found)
    else:
        print_table(found, ("name", "base", "base_seq"), empty="There are no branches.")
    return _DONE


def _opened(arguments: argparse.Namespace) -> tuple[TaskGraph, str, Callable[..., object]]:
    """(the graph, who changes it, how the journal is told of that: the change counts once the journal has it)."""
    from hivemind.coordination import Commits, check_agent

    hive, agent = hive_of(arguments), check_agent(arguments.agent)
    task = hive.tasks.get(arguments.task).id
    return graph_of(hive, task, agent), agent, Commits(hive.journal, task).branch


def _create(arguments: argparse.Namespace) -> int:
    store, agent, tell = _opened(arguments)
    made = store.create_branch(
        arguments.name,
        base=arguments.base,
        base_seq=arguments.at,
        agent_id=agent,
        commit=lambda commit_id, made: tell(
            "created", made.name, agent_id=agent, commit_id=commit_id, base=made.base, base_seq=made.base_seq
        ),
    )
    if arguments.json:
        print_json(asdict(made))
    else:
        say(f"Branch {made.name} sees {made.base} up to line {made.base_seq}.")
    return _DONE


def _delete(arguments: argparse.Namespace) -> int:
    store, agent, tell = _opened(arguments)
    store.delete_branch(
        arguments.name,
        agent_id=agent,
        commit=lambda commit_id: tell("deleted", arguments.name, agent_id=agent, commit_id=commit_id),
    )
    if arguments.json:
        print_json({"name": arguments.name, "deleted": True})
    else:
        say(f"Branch {arguments.name} is gone; what was written in it stays in the log.")
    return _DONE


def _diff(arguments: argparse.Namespace) -> int:
    store = graph_of(look_at(arguments), arguments.task)
    found = store.diff(arguments.one, arguments.other)
    if arguments.json:
        print_json(found)
        return _DONE
    one, other = (graph_at(store, name, None) for name in (arguments.one, arguments.other))
    for sign, names, graph in (
        ("+", found["added"], other),
        ("-", found["removed"], one),
        ("~", found["changed"], other),
    ):
        for name in names:
            say(f"{sign} {_told(name, graph)}")
    if not any(found.values()):
        say(f"{arguments.one} and {arguments.other} are the same.")
    return _DONE


def _told(name: str, graph: ReasoningGraph) -> str:
    """A part of a graph by its name, a node with what it says."""
    kind, _, rest = name.partition(" ")
    if kind != "node":
        return name
    node = graph.node(rest)
    return f"{name} [{node.kind.value}] {one_line(node.heading)}"


def _merge(arguments: argparse.Namespace) -> int:
    store, agent, tell = _opened(arguments)
    resolve: dict[str, str] = {}
    if arguments.use_from or arguments.use_into:
        conflicts = store.merge(arguments.source, into=arguments.into, dry_run=True).conflicts
        resolve = _resolved(arguments.use_from, arguments.use_into, [one.name for one in conflicts])
    report = store.merge(
        arguments.source,
        into=arguments.into,
        resolve=resolve,
        dry_run=arguments.dry_run,
        agent_id=agent,
        commit=lambda commit_id, steps: tell(
            "merged",
            arguments.source,
            agent_id=agent,
            commit_id=commit_id,
            steps=dict.fromkeys(steps),
            into=arguments.into,
        ),
    )
    if arguments.json:
        print_json(asdict(report))
    else:
        _tell(report, graph_at(store, arguments.source, None), arguments)
    return _FAILED if report.conflicts else _DONE


def _resolved(use_from: Sequence[str], use_into: Sequence[str], conflicts: Sequence[str]) -> dict[str, str]:
    """What is chosen for each conflict; one that is named wins over all. Raises UserError for a choice that can't be."""
    chosen: dict[str, str] = {}
    rest = [word for word, given in (("use_from", use_from), ("use_into", use_into)) if _ALL in given]
    if len(rest) > 1:
        raise UserError("--use-from and --use-into can't both be for all", mend="name the conflicts of one of them")
    for word, given in (("use_from", use_from), ("use_into", use_into)):
        for name in map(_conflict_name, given):
            if name == _ALL:
                continue
            if name not in conflicts:
                raise UserError(f"there is no conflict {name!r}", mend=f"there are: {', '.join(conflicts) or 'none'}")
            if chosen.setdefault(name, word) != word:
                raise UserError(f"conflict {name!r} has two choices", mend="leave one of them out")
    return {**(dict.fromkeys(conflicts, rest[0]) if rest else {}), **chosen}


def _conflict_name(text: str) -> str:
    """A conflict as it is named, from what is easier to type: `4`, `edge 3->7`."""
    name = " ".join(text.replace("->", " → ").split())
    return f"node {name}" if name.isdecimal() else name


def _tell(report: MergeReport, source: ReasoningGraph, arguments: argparse.Namespace) -> None:
    where = f"{arguments.source} into {arguments.into}"
    if not report.taken and not report.conflicts:
        say(f"{where}: it has all of it." if not report.written else f"{where}: settled, nothing of it is taken over.")
        return
    for name in report.taken:
        say(f"take {_told(name, source)}")
    for conflict in report.conflicts:
        _tell_conflict(conflict, arguments)
    if report.written:
        say(f"{where}: {len(report.taken)} taken over.")
    elif report.conflicts:
        say(f"{where}: nothing is written. Choose with --use-from and --use-into, for all or by name: "
            f"--use-from '{report.conflicts[0].name}'")  # fmt: skip
    else:
        say(f"{where}: {len(report.taken)} would be taken over, nothing is written.")


def _tell_conflict(conflict: MergeConflict, arguments: argparse.Namespace) -> None:
    say(f"conflict {conflict.name}")
    one, other = _flat(conflict.use_from), _flat(conflict.use_into)
    for key in sorted({*one, *other}):
        if one.get(key) != other.get(key):
            say(f"  {key}: {one_line(str(one.get(key, '-')))} ({arguments.source}),"
                f" {one_line(str(other.get(key, '-')))} ({arguments.into})")  # fmt: skip


def _flat(part: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of a part of a graph, those of its meta among them."""
    found = dict(part or {})
    meta: dict[str, Any] = found.pop("meta", {})
    return found | meta
