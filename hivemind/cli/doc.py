"""hivemind doc: documents as trees of nodes, to look at; what changes them is in `doc_change`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hivemind.cli import doc_change
from hivemind.cli.doc_of import NODE, brought_in, node_of, record_of, source_line, title_line
from hivemind.cli.hive_of import hive_of
from hivemind.cli.output import print_json, print_table, say
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json, number
from hivemind.cli.text import fit, is_terminal, one_line, terminal_size
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.documents import Docmem, Hit, Node

__all__ = ["add_to"]

_DEEPEST = 16  # levels that are indented
_ROOTS = ("id", "class", "tokens", "title", "path")
_VERSIONS = ("version", "updated_at", "context", "text")


def add_to(commands: Commands, common: Parser) -> None:
    doc = add_group(
        commands,
        common,
        "doc",
        "import, read, search, note and summarise documents",
        examples="  hivemind doc import ~/notes\n"
        "  hivemind doc tree\n"
        "  hivemind doc show knowledge/manual/09-leases-and-the-journal.md:12\n"
        '  hivemind doc find "who may renew a lease"\n\n'
        "A document is a tree of nodes whose reading order is the document. A node is named by its id, or by where it\n"
        "stands in its file: PATH or PATH:LINE. Files in knowledge/ are documents by themselves.",
    )
    _add_looking(doc, common)
    _add_asking(doc, common)
    doc_change.add_to(doc, common)


def _add_looking(doc: Commands, common: Parser) -> None:
    tree = add_command(
        doc, common, "tree", _tree, "list all documents, or show one as a tree",
        about="Each node with its id, its kind, its tokens and how it begins.",
        examples="  hivemind doc tree\n  hivemind doc tree knowledge/manual/03-steps.md --depth 2",
    )  # fmt: skip
    tree.add_argument("node", nargs="?", metavar="NODE", help=f"{NODE}; left out: all documents")
    tree.add_argument("--depth", type=number("of levels"), metavar="N", help="so many levels below it (default: all)")
    add_json(tree)
    show = add_command(
        doc, common, "show", _show, "show one node: its text, where it stands, what it is",
        examples="  hivemind doc show knowledge/manual/03-steps.md:20\n  hivemind doc show k3m9x2pa --json",
    )  # fmt: skip
    _add_node(show)
    add_json(show)
    history = add_command(
        doc, common, "history", _history, "show what a node said before",
        about="Versions count from 1; the last one is how it stands. `doc restore` brings one back.",
        examples="  hivemind doc history k3m9x2pa",
    )  # fmt: skip
    _add_node(history)
    add_json(history)


def _add_asking(doc: Commands, common: Parser) -> None:
    expand = add_command(
        doc, common, "expand", _expand, "read a part of a document, as much of it as fits",
        about="The node first, then what is below it, level by level; summaries stand for what does not fit.",
        examples="  hivemind doc expand knowledge/manual/03-steps.md --max-tokens 500\n"
        '  hivemind doc expand k3m9x2pa --max-tokens 800 --query "renewing a lease"',
    )  # fmt: skip
    _add_node(expand)
    expand.add_argument(
        "--max-tokens", type=number("of tokens", 1), default=2_000, metavar="N", help="how much (default: 2000 tokens)"
    )
    expand.add_argument("--query", metavar="TEXT", help="what matters: this goes in first")
    add_json(expand)
    find = add_command(
        doc, common, "find", _find, "find the nodes that answer best, in all documents",
        about="A summary stands for what it sums up; @tag in the query finds what has that tag.",
        examples='  hivemind doc find "who may renew a lease"\n  hivemind doc find @billing --limit 3 --json',
    )  # fmt: skip
    find.add_argument("query", metavar="QUERY", help="words, a question, or @tags")
    find.add_argument(
        "--limit", type=number("of hits", 1), default=10, metavar="N", help="at most so many (default: 10)"
    )
    find.add_argument("--below", metavar="NODE", help=f"only below this one: {NODE}")
    add_json(find)


def _add_node(parser: Parser) -> None:
    parser.add_argument("node", metavar="NODE", help=NODE)


def _tree(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    if arguments.node is None:
        brought_in(hive)
        rows = [_root(hive.documents, root) for root in hive.documents.roots()]
        if arguments.json:
            print_json(rows)
        else:
            print_table(rows, _ROOTS, empty="No documents yet; `hivemind doc import PATH` makes one of a file.")
        return 0
    top = node_of(hive, arguments.node)
    kept = list(_down_to(hive.documents.serialize(top.id), arguments.depth))
    if arguments.json:
        print_json([node.outline() for node, _ in kept])
        return 0
    columns = terminal_size()[0] if is_terminal() else None
    for node, depth in kept:
        line = f"{'  ' * min(depth, _DEEPEST)}{node.id} [{_marks(node)}] {title_line(node)}"
        say(line if columns is None else fit(line, columns))
    return 0


def _root(documents: Docmem, root: Node) -> dict[str, Any]:
    source = documents.source(root.id)
    return {
        "id": root.id, "class": root.context_name if source is None else source.document_class,
        "tokens": documents.size(root.id)[1], "title": title_line(root), "path": None if source is None else source.path,
    }  # fmt: skip


def _down_to(nodes: list[Node], most: int | None) -> Iterator[tuple[Node, int]]:
    """Each node, given in reading order, with how far below the first one it is."""
    depths = {nodes[0].parent_id: -1}
    for at, node in enumerate(nodes):
        depths[node.id] = depth = depths[node.parent_id] + 1 if at else 0
        if most is None or depth <= most:
            yield node, depth


def _marks(node: Node) -> str:
    marks = [node.context_type, f"{node.token_count} tokens"]
    if node.sticky:
        marks.append("sticky")
    if not node.readonly:
        marks.append("writable")
    return ", ".join(marks)


def _show(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    node = node_of(hive, arguments.node)
    record = record_of(hive.documents, node)
    if arguments.json:
        print_json(record)
        return 0
    for name, value in _heads(node, record):
        say(f"{name + ':':9} {one_line(value)}")
    say()
    say(node.text.rstrip("\n"))
    return 0


def _heads(node: Node, record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Node", f"{node.id} in document {record['document']}"
    yield "Is", f"{node.context_type}, {node.context_name}: {node.context_value}"
    yield "Stands", f"order {node.order_value:g} below {node.parent_id}" if node.parent_id else "at the top: a root"
    if record["source"] is not None:
        yield "From", source_line(record["source"])
    yield "Tokens", f"{node.token_count}"
    yield "May be", "read, noted and summarised; it is readonly" if node.readonly else "changed"
    if record["tags"]:
        yield "Tags", " ".join(f"@{tag}" for tag in record["tags"])
    yield "Changed", f"{node.updated_at}, {record['versions']} version{'s' if record['versions'] > 1 else ''}"
    yield "Below", f"{record['below']} nodes"


def _history(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    node = node_of(hive, arguments.node)
    rows = [asdict(version) for version in hive.documents.history(node.id)]
    if arguments.json:
        print_json(rows)
        return 0
    for row in rows:
        row["context"] = f"{row['context_type']}, {row['context_name']}: {row['context_value']}"
    print_table(rows, _VERSIONS, empty="")
    return 0


def _expand(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    node = node_of(hive, arguments.node)
    shown = hive.documents.shown(
        node.id, arguments.max_tokens, by="relevance" if arguments.query else "order", query=arguments.query or None
    )
    if arguments.json:
        nodes = [record_of(hive.documents, one, brief=True) for one in shown.nodes]
        print_json({"node": node.id, "form": shown.form, "text": shown.text, "nodes": nodes})
        return 0
    say(shown.text.rstrip("\n"))
    if shown.form != "full":
        below, tokens = hive.documents.size(node.id)
        say(f"\n({shown.form}: {len(shown.nodes)} of {below + 1} nodes; all of it has {tokens} tokens)")
    return 0


def _find(arguments: argparse.Namespace) -> int:
    if not arguments.query.strip():
        raise UserError("there is nothing to look for", mend="give words, a question, or @tags")
    hive = hive_of(arguments)
    brought_in(hive)
    below = None if arguments.below is None else node_of(hive, arguments.below).id
    hits = hive.documents.query(arguments.query, arguments.limit, node_id=below)
    if arguments.json:
        print_json([_hit(hive.documents, hit) for hit in hits])
        return 0
    for hit in hits:
        source = hive.documents.source(hit.node.id)
        where = "" if source is None else f"  {source.citation}"
        say(f"{hit.node.id}{one_line(where) and where}  ({' / '.join(map(one_line, hit.titles))})")
        say(f"    {title_line(hit.node)}")
        say(f"    {one_line(hit.why)}")
    if not hits:
        say("Nothing was found.")
    return 0


def _hit(documents: Docmem, hit: Hit) -> dict[str, Any]:
    return {
        **record_of(documents, hit.node, brief=True), "score": hit.score, "titles": list(hit.titles),
        "document": hit.document, "covers": list(hit.covers), "linked": list(hit.linked), "why": hit.why,
    }  # fmt: skip
