"""Import, read, search, note and summarise documents.

A document is a tree of nodes whose reading order is the document. A node is named by its id, or by where it
stands in its file: PATH or PATH:LINE. Files in knowledge/ are documents by themselves.

examples:
  hivemind doc import ~/notes
  hivemind doc tree
  hivemind doc show knowledge/manual/09-leases-and-the-journal.md:12
  hivemind doc find "who may renew a lease"
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hivemind.cli.command import Answer, Arg, Positive, Text, command
from hivemind.cli.opening import acting, open_hive
from hivemind.cli.output import as_document, cut, progress, put_out, sheet, table_lines, warn
from hivemind.cli.streams import standard_input
from hivemind.cli.text import one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.documents import Docmem, Hit, Node
    from hivemind.hive import Hive


@command("doc import", open_hive)
def import_(hive: Hive, path: list[str]) -> Answer:
    """Import files, or all files in folders, as documents.

    Markdown, reStructuredText, source code, HTML, PDF and any other text; their nodes are readonly. A .toml file is
    read as a tree, as `doc export` writes it. A file that was imported before is brought up to date. Exit status 1 if
    a file could not be imported; the others are imported all the same.

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
    """Export a document, or a part of one.

    `doc import` reads toml back as the same tree. Without --output it is written to standard output.

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
    put_out(made, output)


@command("doc note", open_hive, agents=True)
def note(hive: Hive, node: str, text: Text, *, author: str = HUMAN) -> Answer:
    """Add a note after a node, even after a readonly one.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      TEXT  the note; - reads standard input
      --author WHO  whose note it is (default: human)

    examples:
      hivemind doc note knowledge/manual/03-steps.md:20 "Not so for us: see @deploy"
    """
    if not text.strip():
        raise UserError("the note is empty", mend="say what is to be noted")
    return _written(hive, hive.documents.add_note(node_of(hive, node).id, text, acting(hive, author)))


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
    """Summarise the first leaves below a node, or rewrite a summary.

    Without --text it is an extract: the sentences that say most of the whole. The summarised nodes stay below it.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      --text TEXT  the summary itself; - reads standard input
      --remove  remove the summary: its nodes take its place again
      --stale  rewrite every summary whose nodes have changed since
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
        line = f"{_counted(len(made), 'summary', 'summaries')} rewritten." if made else "No summary is out of date."
        return Answer([record_of(documents, one, brief=True) for one in made], [line])
    if node is None:
        raise UserError("no node is named", mend="give NODE, or --stale for all that are out of date")
    found = node_of(hive, node)
    if remove:
        children = documents.remove_summary(found.id)
        record = [record_of(documents, one, brief=True) for one in children]
        return Answer(record, [f"{_counted(len(children), 'node', 'nodes')} took its place."])
    summary = documents.summarize(found.id, None if text is None else lambda *_: text, max_tokens)
    return _written(hive, summary, summary.text)


@command("doc restore", open_hive)
def restore(hive: Hive, node: str, version: Positive) -> Answer:
    """Bring back an earlier version of a node.

    The present text is kept as a version. A readonly node cannot be restored: its text is that of its file.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      VERSION  as `doc show` has it

    examples:
      hivemind doc show k3m9x2pa
      hivemind doc restore k3m9x2pa 2
    """
    return _written(hive, hive.documents.restore(node_of(hive, node).id, version))


@command("doc delete", open_hive)
def delete(hive: Hive, node: str) -> Answer:
    """Delete a node and all below it.

    Nodes of a file in knowledge/ are deleted with the file.

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
    return Answer({"node": found.id, "deleted": below + 1}, [f"{_counted(below + 1, 'node', 'nodes')} deleted."])


_EMBEDDED_AT_ONCE = 64  # passages between two words of how far it is
_DEEPEST = 16  # levels that are indented
_ROOTS = ("id", "class", "tokens", "title", "path")
_VERSIONS = ("version", "updated_at", "context", "text")


def node_of(hive: Hive, reference: str) -> Node:
    """The node that a reference means, in documents as knowledge/ is now. Raises UserError."""
    from hivemind.documents import NodeNotFoundError

    brought_in(hive)
    try:
        return hive.knowledge.locate(reference)
    except NodeNotFoundError:
        raise UserError(f"there is no node {reference!r}", mend="`hivemind doc tree` lists the documents") from None


def brought_in(hive: Hive) -> None:
    """Bring the documents in line with knowledge/, showing how far it is where that takes long.

    Where nothing can be written it is said, and the documents are as they were.
    """
    from hivemind.documents import UnwritableError

    try:
        with progress() as tell:
            hive.knowledge.sync(tell=tell)
    except UnwritableError as error:
        warn(f"{error.where}: {error.what}: files look changed since, and what was read in last is shown")


def record_of(documents: Docmem, node: Node, *, brief: bool = False) -> dict[str, Any]:
    """A node for programs; `brief` leaves out what has to be looked up beside it."""
    source = documents.source(node.id)
    record = asdict(node) | {"source": None if source is None else asdict(source) | {"citation": source.citation}}
    if not brief:
        record |= {
            "document": documents.root_of(node.id).id,
            "tags": documents.tags_of(node.id),
            "versions": [asdict(version) for version in documents.history(node.id)],
            "below": documents.size(node.id)[0],
        }
    return record


def _counted(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


def title_line(node: Node) -> str:
    """What a node is called, on one line."""
    from hivemind.documents import title_of

    return one_line(title_of(node))


@command("doc tree", open_hive, agents=True)
def tree(hive: Hive, node: str | None = None, *, depth: int | None = None) -> Answer:
    """List all documents, or show one as a tree.

    Each node with its id, its kind, its tokens and how it begins.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file; left out: all documents
      --depth N  so many levels below it (default: all)

    examples:
      hivemind doc tree
      hivemind doc tree knowledge/manual/03-steps.md --depth 2
    """
    if node is None:
        brought_in(hive)
        rows = [_root(hive.documents, root) for root in hive.documents.roots()]
        empty = "No documents yet; `hivemind doc import PATH` makes one of a file."
        return Answer(rows, table_lines(rows, _ROOTS, empty=empty))
    top = node_of(hive, node)
    kept = list(_down_to(hive.documents.serialize(top.id), depth))
    lines = (f"{'  ' * min(deep, _DEEPEST)}{one.id} [{_marks(one)}] {title_line(one)}" for one, deep in kept)
    return Answer([one.outline() for one, _ in kept], cut(lines))


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


@command("doc show", open_hive, agents=True)
def show(hive: Hive, node: str) -> Answer:
    """Show one node: its text, where it stands, what it is, and its versions if there are several.

    Versions count from 1; the last one is how it stands. `doc restore` brings one back.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file

    examples:
      hivemind doc show knowledge/manual/03-steps.md:20
      hivemind doc show k3m9x2pa --json
    """
    found = node_of(hive, node)
    record = record_of(hive.documents, found)
    rows = [
        {**one, "context": "{context_type}, {context_name}: {context_value}".format_map(one)}
        for one in record["versions"]
    ]
    earlier = ["", *table_lines(rows, _VERSIONS, empty="")] if len(rows) > 1 else []
    return Answer(record, [*sheet(_heads(found, record), found.text), *earlier])


def _heads(node: Node, record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Node", f"{node.id} in document {record['document']}"
    yield "Is", f"{node.context_type}, {node.context_name}: {node.context_value}"
    yield "Stands", f"order {node.order_value:g} below {node.parent_id}" if node.parent_id else "at the top: a root"
    if record["source"] is not None:
        yield "From", "{citation} ({document_class}: {why})".format_map(record["source"])
    yield "Tokens", f"{node.token_count}"
    yield "May be", "read, noted and summarised; it is readonly" if node.readonly else "changed"
    if record["tags"]:
        yield "Tags", " ".join(f"@{tag}" for tag in record["tags"])
    yield "Changed", node.updated_at
    yield "Below", f"{record['below']} nodes"


@command("doc expand", open_hive, agents=True)
def expand(hive: Hive, node: str, *, max_tokens: Positive = 2000, query: str | None = None) -> Answer:
    """Read a part of a document, as much of it as fits.

    The node first, then what is below it, level by level; summaries stand for what does not fit.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      --max-tokens N  how much (default: 2000 tokens)
      --query TEXT  what matters: this goes in first

    examples:
      hivemind doc expand knowledge/manual/03-steps.md --max-tokens 500
      hivemind doc expand k3m9x2pa --max-tokens 800 --query "renewing a lease"
    """
    documents, top = hive.documents, node_of(hive, node).id
    shown = documents.shown(top, max_tokens, by="relevance" if query else "order", query=query or None)
    nodes = [record_of(documents, one, brief=True) for one in shown.nodes]
    lines = [shown.text.rstrip("\n")]
    if shown.form != "full":
        below, tokens = documents.size(top)
        lines.append(f"\n({shown.form}: {len(shown.nodes)} of {below + 1} nodes; all of it has {tokens} tokens)")
    return Answer({"node": top, "form": shown.form, "text": shown.text, "nodes": nodes}, lines)


@command("doc index", open_hive)
def index(hive: Hive, *, wait: bool = False) -> Answer:
    """Update the documents' index, and show how much of it is embedded.

    Idle agents go on embedding, and a search first embeds what it is about. Interruptible: the next call resumes.

    arguments:
      --wait  embed everything that is left, and show the progress

    examples:
      hivemind doc index
      hivemind doc index --wait
    """
    from hivemind.documents import how_far
    from hivemind.swarm.overview import search_now

    brought_in(hive)
    if wait:
        _embed_all(hive)
    known, total = hive.documents.meaning()
    by_words = f"{total:,} passages, found by their words: {search_now(hive)}"
    line = by_words if hive.embedder is None else how_far(known, total)
    return Answer({"passages": total, "by_meaning": known}, [line])


def _embed_all(hive: Hive) -> None:
    from hivemind.documents import how_far

    documents, began = hive.documents, time.monotonic()
    first, total = documents.meaning()
    done = 0
    with progress() as tell:
        while some := documents.embed_pending(_EMBEDDED_AT_ONCE):
            done += some
            tell(how_far(first + done, total, done / max(time.monotonic() - began, 1e-3)))


@command("doc find", open_hive, agents=True)
def find(hive: Hive, query: str, *, limit: Positive = 10, below: str | None = None) -> Answer:
    """Search all documents.

    A summary represents the nodes below it; @tag in the query finds what has that tag.

    arguments:
      QUERY  words, a question, or @tags
      --limit N  at most so many (default: 10)
      --below NODE  only below this one: a node's id, or PATH or PATH:LINE of a file

    examples:
      hivemind doc find "who may renew a lease"
      hivemind doc find @billing --limit 3 --json
    """
    if not query.strip():
        raise UserError("there is nothing to look for", mend="give words, a question, or @tags")
    brought_in(hive)
    hits = hive.documents.query(query, limit, node_id=None if below is None else node_of(hive, below).id)
    lines = (line for hit in hits for line in _hit_lines(hive.documents, hit))
    return Answer([_hit(hive.documents, hit) for hit in hits], lines if hits else ["Nothing was found."])


def _hit(documents: Docmem, hit: Hit) -> dict[str, Any]:
    return {
        **record_of(documents, hit.node, brief=True), "score": hit.score, "titles": list(hit.titles),
        "document": hit.document, "covers": list(hit.covers), "linked": list(hit.linked), "why": hit.why,
    }  # fmt: skip


def _hit_lines(documents: Docmem, hit: Hit) -> Iterator[str]:
    source = documents.source(hit.node.id)
    where = "" if source is None else f"  {source.citation}"
    yield f"{hit.node.id}{one_line(where) and where}  ({' / '.join(map(one_line, hit.titles))})"
    yield f"    {title_line(hit.node)}"
    yield f"    {one_line(hit.why)}"
