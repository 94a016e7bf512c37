"""hivemind doc: importing, noting, summarising, restoring, deleting and exporting documents."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hivemind.cli.doc_of import NODE, node_of, record_of
from hivemind.cli.given import standard_input
from hivemind.cli.hive_of import hive_of, known_name
from hivemind.cli.output import as_json, print_json, progress, say, warn
from hivemind.cli.parser import Commands, Parser, add_command, add_json, number
from hivemind.cli.text import one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.documents import Node
    from hivemind.hive import Hive

__all__ = ["add_to"]

FORMATS = ("toml", "text", "json")


def add_to(doc: Commands, common: Parser) -> None:
    _add_import(doc, common)
    _add_export(doc, common)
    note = add_command(
        doc, common, "note", _note, "put a note after a node, also after a readonly one",
        examples='  hivemind doc note knowledge/manual/03-steps.md:20 "Not so for us: see @deploy"',
    )  # fmt: skip
    note.add_argument("node", metavar="NODE", help=NODE)
    note.add_argument("text", metavar="TEXT", help="the note; - reads standard input")
    note.add_argument("--author", default=HUMAN, metavar="NAME", help="whose note it is (default: human)")
    add_json(note)
    _add_summarize(doc, common)
    restore = add_command(
        doc, common, "restore", _restore, "give a node the text of an earlier version",
        about="What it says now becomes a version too. A readonly node is not restored: its file says what it says.",
        examples="  hivemind doc history k3m9x2pa\n  hivemind doc restore k3m9x2pa 2",
    )  # fmt: skip
    restore.add_argument("node", metavar="NODE", help=NODE)
    restore.add_argument("version", type=number("of a version", 1), metavar="VERSION", help="as `doc history` has it")
    add_json(restore)
    delete = add_command(
        doc, common, "delete", _delete, "delete a node and all below it",
        about="What came from a file in knowledge/ goes when the file goes.",
        examples="  hivemind doc delete k3m9x2pa",
    )  # fmt: skip
    delete.add_argument("node", metavar="NODE", help=NODE)
    add_json(delete)


def _add_import(doc: Commands, common: Parser) -> None:
    parser = add_command(
        doc, common, "import", _import, "make documents of files, or of all files in folders",
        about="Markdown, reStructuredText, source code, HTML, PDF and any other text; their nodes are readonly. A .toml file is\n"
        "read as a tree, as `doc export` writes it. A file that was imported before is brought up to date. Exit status 1 if\n"
        "a file could not be imported: the others are.",
        examples="  hivemind doc import ~/notes report.md\n  hivemind doc import tree.toml --json",
    )  # fmt: skip
    parser.add_argument("path", nargs="+", metavar="PATH", help="a file, or a folder; - reads TOML from standard input")
    add_json(parser)


def _add_export(doc: Commands, common: Parser) -> None:
    parser = add_command(
        doc, common, "export", _export, "give a document, or a part of it, to another program",
        about="toml is what `doc import` reads: the same tree again. Without --output it goes to standard output.",
        examples="  hivemind doc export k3m9x2pa --output tree.toml\n"
        "  hivemind doc export knowledge/manual/03-steps.md --format text",
    )  # fmt: skip
    parser.add_argument("node", metavar="NODE", help=NODE)
    parser.add_argument("--format", choices=FORMATS, default="toml", help="toml (default), text or json")
    parser.add_argument("--output", metavar="FILE", help="write it there, whatever was there before")


def _add_summarize(doc: Commands, common: Parser) -> None:
    parser = add_command(
        doc, common, "summarize", _summarize, "put a summary over the first leaves below a node, or write one anew",
        about="By extract: whole sentences that say most of what the whole says. The nodes that it sums up stay below it.",
        examples="  hivemind doc summarize k3m9x2pa\n  hivemind doc summarize k3m9x2pa --text -\n"
        "  hivemind doc summarize --stale",
    )  # fmt: skip
    parser.add_argument("node", nargs="?", metavar="NODE", help=NODE)
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--text", metavar="TEXT", help="the summary itself; - reads standard input")
    given.add_argument(
        "--remove", action="store_true", help="take the summary away: its nodes stand in its place again"
    )
    given.add_argument("--stale", action="store_true", help="write all summaries anew whose nodes have changed since")
    parser.add_argument(
        "--max-tokens",
        type=number("of tokens", 1),
        default=120,
        metavar="N",
        help="how long it may be (default: 120 tokens)",
    )
    add_json(parser)


def _import(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    made: list[dict[str, Any]] = []
    failed: list[str] = []
    with progress() as tell:
        for path in _files(arguments.path, failed):
            tell(f"importing {one_line(path)}")
            try:
                made.append(_imported(hive, path))
            except UserError as error:
                failed.append(str(error))
    if arguments.json:
        print_json({"imported": made, "failed": failed})
    else:
        for one in made:
            say(f"{one['node']}  {one['nodes']} nodes  {one_line(one['title'])}  {one_line(one['path'])}".rstrip())
    for line in failed:
        warn(line)
    if not made and not failed:
        raise UserError("there are no files to import", where=arguments.path[0])
    return 1 if failed else 0


def _files(paths: Iterable[str], failed: list[str]) -> Iterator[str]:
    """The files named, and those of the folders named."""
    from hivemind.documents import files_below

    for path in paths:
        if path == "-":
            yield path
        elif not os.path.lexists(path):
            failed.append(str(UserError("is not there", where=path)))
        elif os.path.isdir(path):
            yield from (found for found, _ in files_below(os.path.realpath(path)))
        else:
            yield path


def _imported(hive: Hive, path: str) -> dict[str, Any]:
    """Import one file. Those within the hive get the names that they are cited by, and are kept up to date."""
    if path == "-":
        root = hive.documents.import_toml(standard_input())[0]
    elif (real := os.path.realpath(path)) != hive.layout.relative(real) and not real.lower().endswith(".toml"):
        report = hive.knowledge.sync(extra=[real])
        name = hive.layout.relative(real)
        if name in report.skipped:
            raise UserError(report.skipped[name], where=path)
        root = hive.knowledge.locate(name)
    else:
        root = hive.documents.import_file(path)
    below, tokens = hive.documents.size(root.id)
    return {
        "node": root.id,
        "title": root.text,
        "path": "" if path == "-" else path,
        "nodes": below + 1,
        "tokens": tokens,
    }


def _export(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    node = node_of(hive, arguments.node)
    made = _made(hive, node, arguments.format)
    if arguments.output is None:
        say(made.removesuffix("\n"))
        return 0
    from hivemind.fs import write

    try:
        write(arguments.output, made)
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", where=arguments.output) from None
    return 0


def _made(hive: Hive, node: Node, form: str) -> str:
    if form == "toml":
        return hive.documents.export_toml(node.id)
    if form == "text":
        return hive.documents.shown(node.id).text.rstrip("\n") + "\n"

    nodes = [record_of(hive.documents, one, brief=True) for one in hive.documents.serialize(node.id)]
    return as_json(nodes, indent=1) + "\n"


def _note(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    text = standard_input() if arguments.text == "-" else arguments.text
    if not text.strip():
        raise UserError("the note is empty", mend="say what is to be noted")
    note = hive.documents.add_note(node_of(hive, arguments.node).id, text, known_name(hive, arguments.author))
    return _told(hive, note, arguments.json)


def _told(hive: Hive, node: Node, as_json: bool) -> int:
    """Say which node it is that was written."""
    if as_json:
        print_json(record_of(hive.documents, node))
    else:
        say(node.id)
    return 0


def _summarize(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    if arguments.stale:
        if arguments.node is not None:
            raise UserError("--stale means all of them", mend="leave NODE out, or --stale")
        return _summarize_stale(hive, arguments)
    if arguments.node is None:
        raise UserError("no node is named", mend="give NODE, or --stale for all that are out of date")
    node = node_of(hive, arguments.node)
    if arguments.remove:
        children = hive.documents.remove_summary(node.id)
        if arguments.json:
            print_json([record_of(hive.documents, one, brief=True) for one in children])
        else:
            say(f"{len(children)} nodes stand in its place again.")
        return 0
    said = standard_input() if arguments.text == "-" else arguments.text
    writer = None if said is None else lambda *_: said
    summary = hive.documents.summarize(node.id, writer, arguments.max_tokens)
    if not arguments.json:
        say(summary.text)
    return _told(hive, summary, arguments.json)


def _summarize_stale(hive: Hive, arguments: argparse.Namespace) -> int:
    made = [hive.documents.summarize(one.id, None, arguments.max_tokens) for one in hive.documents.stale_summaries()]
    if arguments.json:
        print_json([record_of(hive.documents, one, brief=True) for one in made])
    else:
        say(f"{len(made)} summaries written anew." if made else "No summary is out of date.")
    return 0


def _restore(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    node = hive.documents.restore(node_of(hive, arguments.node).id, arguments.version)
    return _told(hive, node, arguments.json)


def _delete(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    node = node_of(hive, arguments.node)
    source = hive.documents.source(node.id)
    if source is not None and not os.path.isabs(source.path):
        raise UserError(
            f"node {node.id!r} is a part of {source.path}", mend="change or delete the file: its nodes follow"
        )
    below = hive.documents.size(node.id)[0]
    hive.documents.delete(node.id)
    if arguments.json:
        print_json({"node": node.id, "deleted": below + 1})
    else:
        say(f"{below + 1} node{'s' if below else ''} deleted.")
    return 0
