"""hivemind graph find: nodes of all tasks' graphs, by words and by meaning."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hivemind.cli.hive_of import look_at
from hivemind.cli.output import print_json, progress, say, warn
from hivemind.cli.parser import Commands, Parser, add_command, add_json, number
from hivemind.cli.text import fit, is_terminal, one_line, terminal_size
from hivemind.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hivemind.reasoning import NodeHit

__all__ = ["add_to"]

_LIMIT = 10


def add_to(graph: Commands, common: Parser) -> None:
    parser = add_command(
        graph, common, "find", _find, "find nodes in the graphs of all tasks, by words and by meaning",
        about="Active nodes and folded, flushed and superseded ones, of tasks in any state, in every lane. The index,\n"
        ".hive/graphs.db, is made of the graphs' own files; first it takes in those that have changed.",
        examples='  hivemind graph find "why did we take a lease?"\n'
        "  hivemind graph find lease --task what-is-a-lease --limit 3 --json",
    )  # fmt: skip
    parser.add_argument("query", metavar="QUERY", help="words or a question; any characters")
    parser.add_argument("--task", metavar="TASK", help="only in the graph of this task")
    parser.add_argument(
        "--limit", type=number("of nodes", 1), default=_LIMIT, metavar="N", help=f"at most so many (default: {_LIMIT})"
    )
    add_json(parser)


def _find(arguments: argparse.Namespace) -> int:
    if not arguments.query.strip():
        raise UserError("there is nothing to look for", mend="give words, or a question")
    hive = look_at(arguments)
    task = None if arguments.task is None else hive.tasks.get(arguments.task).path.name
    with progress() as tell:
        found = hive.graph_index.find(
            arguments.query,
            task=task,
            limit=arguments.limit,
            progress=lambda done, total: tell(f"reading graph {done:,} of {total:,}"),
        )
    for remark in found.remarks:
        warn(remark)
    if arguments.json:
        print_json([hit.as_dict() for hit in found.hits])
        return 0
    columns = terminal_size()[0] if is_terminal() else None
    for hit in found.hits:
        for line in _lines(hit):
            say(line if columns is None else fit(line, columns))
    if not found.hits:
        say("Nothing was found.")
    return 0


def _lines(hit: NodeHit) -> Iterator[str]:
    said = hit.text if hit.text.startswith(hit.title) else f"{hit.title}: {hit.text}"
    yield f"{one_line(hit.task)} {hit.node_id} [{hit.kind}, {hit.state}, {hit.lane}]  {one_line(hit.path)}"
    yield f"    {one_line(said)}"
    yield f"    score {hit.score:.2f}, similarity {hit.similarity:.2f}: {one_line(hit.why)}"
