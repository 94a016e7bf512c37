"""hivemind graph: what a task's agents thought, as a tree or a picture; publishing a card."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING

from hivemind.cli import branch, graph_find
from hivemind.cli.graph_of import graph_at, graph_of
from hivemind.cli.hive_of import hive_of, look_at
from hivemind.cli.output import print_json, put, say
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json, number
from hivemind.cli.text import fit, is_terminal, one_line, terminal_size
from hivemind.cli.tree import ranges, tree_lines
from hivemind.errors import UserError
from hivemind.masking import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hivemind.hive import Hive
    from hivemind.reasoning import ReasoningGraph, ReasoningNode, TaskGraph

__all__ = ["add_to"]

FORMATS = ("json", "mermaid", "dot", "svg", "png")


def add_to(commands: Commands, common: Parser) -> None:
    graph = add_group(
        commands,
        common,
        "graph",
        "see a task's reasoning graph, find nodes in all of them, export, publish cards, work with branches",
        examples="  hivemind graph show what-is-a-lease\n"
        '  hivemind graph find "why did we take a lease?"\n'
        "  hivemind graph export what-is-a-lease --format svg --output lease.svg\n"
        "  hivemind graph branch list what-is-a-lease",
    )
    showing = add_command(
        graph, common, "show", _show, "show the graph as a tree",
        about="A node is open, in the shared lane and active if nothing else is said in its brackets.",
        examples="  hivemind graph show what-is-a-lease --all\n  hivemind graph show what-is-a-lease --at 12",
    )  # fmt: skip
    showing.add_argument("task", metavar="TASK", help="the task's id")
    _add_which(showing)
    add_json(showing)
    _add_export(graph, common)
    _add_publish(graph, common)
    graph_find.add_to(graph, common)
    branch.add_to(graph, common)


def _add_export(graph: Commands, common: Parser) -> None:
    parser = add_command(
        graph, common, "export", _export, "give the graph to another program, or as a picture",
        about="json is the snapshot that graph.json has; svg needs nothing, png needs Graphviz. Without --output it goes to\n"
        "standard output.",
        examples="  hivemind graph export what-is-a-lease --format mermaid\n"
        "  hivemind graph export what-is-a-lease --format png --output lease.png --all",
    )  # fmt: skip
    parser.add_argument("task", metavar="TASK", help="the task's id")
    parser.add_argument("--format", choices=FORMATS, default="json", help="json (default), mermaid, dot, svg or png")
    parser.add_argument("--output", metavar="FILE", help="write it there, whatever was there before")
    _add_which(parser)


def _add_publish(graph: Commands, common: Parser) -> None:
    parser = add_command(
        graph, common, "publish", _publish, "copy a draft from an agent's lane to the shared one",
        about="Published again it stays as it is; a draft that has changed makes a new revision of its copy.",
        examples="  hivemind graph publish what-is-a-lease 7 --agent researcher",
    )  # fmt: skip
    parser.add_argument("task", metavar="TASK", help="the task's id")
    parser.add_argument("node", type=number("of a node"), metavar="NODE", help="its number, as `graph show` has it")
    parser.add_argument("--agent", required=True, metavar="NAME", help="whose draft it is")
    add_json(parser)


def _add_which(parser: Parser) -> None:
    parser.add_argument(
        "--at", type=number("of a line"), metavar="SEQ", help="as it was after this line of its log (default: now)"
    )
    parser.add_argument("--branch", metavar="NAME", help="a branch of it (default: main)")
    parser.add_argument("--all", action="store_true", help="with what is folded and flushed")


def _show(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    store = graph_of(hive, arguments.task)
    graph = graph_at(store, arguments.branch, arguments.at)
    if arguments.json:
        task, branch = hive.tasks.get(arguments.task), arguments.branch or "main"
        print_json(
            {"task": task.id, "state": task.state.value, "branch": branch, "of_seq": store.seq, **graph.to_dict()}
        )
        return 0
    columns = terminal_size()[0] if is_terminal() else None
    for line in _shown(hive, store, graph, arguments):
        say(line if columns is None else fit(line, columns))
    return 0


def _shown(hive: Hive, store: TaskGraph, graph: ReasoningGraph, arguments: argparse.Namespace) -> Iterator[str]:
    task = hive.tasks.get(arguments.task)
    hidden = Counter(_gone(node) for node in graph.nodes.values() if node.active is not True)
    counts = ", ".join([f"{len(graph.nodes)} nodes", *(f"{number} {word}" for word, number in sorted(hidden.items()))])
    yield f"{task.id} ({task.state.value}), branch {arguments.branch or 'main'}, line {graph.seq} of {store.seq}: {counts}"
    yield from tree_lines(graph, every=arguments.all)
    for one in graph.conflicts():
        yield f"Conflict: {one.kind.value} {ranges(one.node_ids)} of tag {one_line(one.tag)} disagree."
    if hidden and not arguments.all:
        yield "--all shows what is folded and flushed."


def _gone(node: ReasoningNode) -> str:
    return "folded" if node.active is False else "flushed"


def _export(arguments: argparse.Namespace) -> int:
    graph = graph_at(graph_of(look_at(arguments), arguments.task), arguments.branch, arguments.at)
    made = _made(graph, arguments)
    if arguments.output is not None:
        _write(arguments.output, made)
    elif arguments.format == "png" and sys.stdout.isatty():
        raise UserError("a png is nothing for a terminal", mend="--output FILE")
    else:
        put(made)
    return 0


def _made(graph: ReasoningGraph, arguments: argparse.Namespace) -> bytes:
    from hivemind.reasoning import draw_picture, to_dot, to_mermaid

    if arguments.format == "json":
        return (escaped(graph.to_json()) + "\n").encode()
    if arguments.format in ("mermaid", "dot"):
        draw = to_mermaid if arguments.format == "mermaid" else to_dot
        return draw(graph, every=arguments.all).encode("utf-8", "backslashreplace")
    return draw_picture(graph, arguments.format, every=arguments.all, where=arguments.output)


def _write(path: str, made: bytes) -> None:
    from hivemind.fs import write

    try:
        write(path, made)
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", where=path) from None


def _publish(arguments: argparse.Namespace) -> int:
    from hivemind.coordination import Commits, check_agent, lane_visible

    hive, agent = hive_of(arguments), check_agent(arguments.agent)
    task = hive.tasks.get(arguments.task)
    store = graph_of(hive, task.id, agent)
    draft = store.graph.node(arguments.node)
    if not lane_visible(draft.lane, agent, False) and draft.lane != _lane_of(hive, agent):
        raise UserError(f"node {draft.node_id} is a draft of {draft.lane}", mend=_who_drafts(hive, draft.lane))
    commits = Commits(hive.journal, task.id)
    copy = store.publish(
        draft.node_id,
        agent_id=agent,
        commit=lambda name: commits.publish(
            name, card=draft.node_id, agent_id=agent, step_id=draft.step, lane=_lane_of(hive, agent)
        ),
    )
    origin = copy.meta["origin"]
    if arguments.json:
        print_json({"node": copy.node_id, "origin": origin})
    else:
        say(f"Node {draft.node_id} stands in the shared lane as node {copy.node_id}, revision {origin['revision']}.")
    return 0


def _lane_of(hive: Hive, agent: str) -> str | None:
    """The lane that an agent's file names for its drafts, None if it names none or there is no such agent."""
    return hive.agents[agent].lane if agent in hive.agents else None


def _who_drafts(hive: Hive, lane: str) -> str:
    """The option that names who drafts in a lane."""
    named = [name for name, one in hive.agents.items() if one.lane == lane]
    return f"--agent {named[0] if named else lane.partition('/')[2]}"
