"""hivemind doc: importing, noting, summarising, restoring, deleting and exporting documents."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hivemind.cli.arguments import Positive, Text
from hivemind.cli.command import Answer, Arg, command
from hivemind.cli.doc import node_of, record_of
from hivemind.cli.opening import known_name, open_hive
from hivemind.cli.output import as_document, progress, say, warn, write_file
from hivemind.cli.streams import standard_input
from hivemind.cli.text import one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.documents import Node
    from hivemind.hive import Hive


@command("doc import", open_hive)
def import_(hive: Hive, path: list[str]) -> Answer:
    """Make documents of files, or of all files in folders.

    Markdown, reStructuredText, source code, HTML, PDF and any other text; their nodes are readonly. A .toml file is
    read as a tree, as `doc export` writes it. A file that was imported before is brought up to date. Exit status 1 if
    a file could not be imported: the others are.

    arguments:
      PATH  a file, or a folder; - reads TOML from standard input

    examples:
      hivemind doc import ~/notes report.md
      hivemind doc import tree.toml --json
    """
    made: list[dict[str, Any]] = []
    failed: list[str] = []
    with progress() as tell:
        for one in _files(path, failed):
            tell(f"importing {one_line(one)}")
            try:
                made.append(_imported(hive, one))
            except UserError as error:
                failed.append(str(error))
    for why in failed:
        warn(why)
    if not made and not failed:
        raise UserError("there are no files to import", where=path[0])
    lines = (
        f"{one['node']}  {one['nodes']} nodes  {one_line(one['title'])}  {one_line(one['path'])}".rstrip()
        for one in made
    )
    return Answer({"imported": made, "failed": failed}, lines, 1 if failed else 0)


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


@command("doc export", open_hive, own_form=True)
def export(
    hive: Hive, node: str, *, format_: Literal["toml", "text", "json"] = "toml", output: str | None = None
) -> None:
    """Give a document, or a part of it, to another program.

    toml is what `doc import` reads: the same tree again. Without --output it goes to standard output.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      --format  toml (default), text or json
      --output FILE  write it there, whatever was there before

    examples:
      hivemind doc export k3m9x2pa --output tree.toml
      hivemind doc export knowledge/manual/03-steps.md --format text
    """
    documents, top = hive.documents, node_of(hive, node)
    if format_ == "toml":
        made = documents.export_toml(top.id)
    elif format_ == "text":
        made = documents.shown(top.id).text
    else:
        made = as_document([record_of(documents, one, brief=True) for one in documents.serialize(top.id)])
    made = made.rstrip("\n") + "\n"
    if output is None:
        say(made.removesuffix("\n"))
    else:
        write_file(output, made)


@command("doc note", open_hive)
def note(hive: Hive, node: str, text: Text, *, author: str = HUMAN) -> Answer:
    """Put a note after a node, also after a readonly one.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      TEXT  the note; - reads standard input
      --author WHO  whose note it is (default: human)

    examples:
      hivemind doc note knowledge/manual/03-steps.md:20 "Not so for us: see @deploy"
    """
    if not text.strip():
        raise UserError("the note is empty", mend="say what is to be noted")
    return _written(hive, hive.documents.add_note(node_of(hive, node).id, text, known_name(hive, author)))


def _written(hive: Hive, node: Node, *before: str) -> Answer:
    """Which node it is that was written."""
    return Answer(record_of(hive.documents, node), [*before, node.id])


@command("doc summarize", open_hive)
def summarize(
    hive: Hive,
    node: str | None = None,
    *,
    text: Annotated[str | None, Arg(stdin=True, apart="given")] = None,
    remove: Annotated[bool, Arg(apart="given")] = False,
    stale: Annotated[bool, Arg(apart="given")] = False,
    max_tokens: Positive = 120,
) -> Answer:
    """Put a summary over the first leaves below a node, or write one anew.

    By extract: whole sentences that say most of what the whole says. The nodes that it sums up stay below it.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      --text TEXT  the summary itself; - reads standard input
      --remove  take the summary away: its nodes stand in its place again
      --stale  write all summaries anew whose nodes have changed since
      --max-tokens N  how long it may be (default: 120 tokens)

    examples:
      hivemind doc summarize k3m9x2pa
      hivemind doc summarize k3m9x2pa --text -
      hivemind doc summarize --stale
    """
    documents = hive.documents
    if stale:
        if node is not None:
            raise UserError("--stale means all of them", mend="leave NODE out, or --stale")
        made = [documents.summarize(one.id, None, max_tokens) for one in documents.stale_summaries()]
        line = f"{len(made)} summaries written anew." if made else "No summary is out of date."
        return Answer([record_of(documents, one, brief=True) for one in made], [line])
    if node is None:
        raise UserError("no node is named", mend="give NODE, or --stale for all that are out of date")
    found = node_of(hive, node)
    if remove:
        children = documents.remove_summary(found.id)
        record = [record_of(documents, one, brief=True) for one in children]
        return Answer(record, [f"{len(children)} nodes stand in its place again."])
    summary = documents.summarize(found.id, None if text is None else lambda *_: text, max_tokens)
    return _written(hive, summary, summary.text)


@command("doc restore", open_hive)
def restore(hive: Hive, node: str, version: Positive) -> Answer:
    """Give a node the text of an earlier version.

    What it says now becomes a version too. A readonly node is not restored: its file says what it says.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      VERSION  as `doc history` has it

    examples:
      hivemind doc history k3m9x2pa
      hivemind doc restore k3m9x2pa 2
    """
    return _written(hive, hive.documents.restore(node_of(hive, node).id, version))


@command("doc delete", open_hive)
def delete(hive: Hive, node: str) -> Answer:
    """Delete a node and all below it.

    What came from a file in knowledge/ goes when the file goes.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file

    examples:
      hivemind doc delete k3m9x2pa
    """
    found = node_of(hive, node)
    source = hive.documents.source(found.id)
    if source is not None and not os.path.isabs(source.path):
        raise UserError(
            f"node {found.id!r} is a part of {source.path}", mend="change or delete the file: its nodes follow"
        )
    below = hive.documents.size(found.id)[0]
    hive.documents.delete(found.id)
    return Answer({"node": found.id, "deleted": below + 1}, [f"{below + 1} node{'s' if below else ''} deleted."])
