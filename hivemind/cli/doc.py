"""Import, read, search, note and summarise documents.

A document is a tree of nodes in reading order. Name a node by its id, or by its place in a file: PATH or PATH:LINE.
Files in knowledge/ are documents without being imported.

examples:
  hivemind doc import ~/notes
  hivemind doc tree
  hivemind doc show knowledge/boats.md:12
  hivemind doc find "who may renew a lease"
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from hivemind.cli.command import Arg, CommandOutput, Positive, Text, command
from hivemind.cli.open_hive import acting_name, open_hive
from hivemind.cli.output import cut_lines, headed_text, print_line, table_lines, warn
from hivemind.cli.streams import standard_input
from hivemind.cli.styled import progress
from hivemind.cli.text import one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.documents import Docmem, DocumentHit, Node
    from hivemind.hive import Hive


@command("doc import", open_hive)
def import_(hive: Hive, path: list[str]) -> CommandOutput:
    """Import files, or all files in folders, as documents.

    Reads Markdown, reStructuredText, source code, HTML, PDF, letters and any other text; their nodes are readonly. A .toml file
    is read as a tree in the format of `doc export`. A file that was imported before is updated. Exit status 1 if a file
    could not be imported; the other files are imported.

    arguments:
      PATH  a file, or a folder; - reads TOML from standard input

    examples:
      hivemind doc import ~/notes report.md
      hivemind doc import tree.toml --json
    """
    imported_documents: list[dict[str, Any]] = []
    failures: list[str] = []
    with progress() as report:
        file_paths = [*_files(path, failures)]
        for file_number, file_path in enumerate(file_paths):
            report(f"importing {file_path}", file_number, len(file_paths))
            try:
                imported_documents.append(_import_file(hive, file_path))
            except UserError as error:
                failures.append(str(error))
    for message in failures:
        warn(message)
    if not imported_documents and not failures:
        raise UserError("there are no files to import", location=path[0])
    lines = (
        f"{document['node']}  {document['nodes']} nodes  {one_line(document['title'])}  {one_line(document['path'])}".rstrip()
        for document in imported_documents
    )
    return CommandOutput({"imported": imported_documents, "failed": failures}, lines, 1 if failures else 0)


def _files(paths: Iterable[str], failures: list[str]) -> Iterator[str]:
    """Yield each path of a file, and all files below each path of a folder. Add a message to `failures` for missing paths."""
    from hivemind.documents import files_below

    for path in paths:
        if path == "-":
            yield path
        elif not os.path.lexists(path):
            failures.append(str(UserError("does not exist", location=path)))
        elif os.path.isdir(path):
            yield from (file_path for file_path, _ in files_below(os.path.realpath(path)))
        else:
            yield path


def _import_file(hive: Hive, path: str) -> dict[str, Any]:
    """Import one file. A file inside the hive is cited by its path in the hive, and later changes are imported, too."""
    if path == "-":
        root = hive.documents.import_toml(standard_input())[0]
    elif (real_path := os.path.realpath(path)) != hive.layout.relative(real_path) and not real_path.lower().endswith(
        ".toml"
    ):
        report = hive.knowledge.sync(extra=[real_path])
        name = hive.layout.relative(real_path)
        if name in report.skipped:
            raise UserError(report.skipped[name], location=path)
        root = hive.knowledge.locate(name)
    else:
        root = hive.documents.import_file(path)
    descendant_count, tokens = hive.documents.size(root.id)
    return {
        "node": root.id,
        "title": root.text,
        "path": "" if path == "-" else path,
        "nodes": descendant_count + 1,
        "tokens": tokens,
    }


@command("doc export", open_hive, fixed_format=True)
def export(hive: Hive, node: str) -> None:
    """Export a document, or a part of one, as TOML, which `doc import` reads back as the same tree.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file

    examples:
      hivemind doc export k3m9x2pa > tree.toml
    """
    print_line(hive.documents.export_toml(resolve_node(hive, node).id).rstrip("\n"))


@command("doc note", open_hive, for_agents=True)
def note(hive: Hive, node: str, text: Text, *, author: str = HUMAN) -> CommandOutput:
    """Add a note after a node, even after a readonly one.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      TEXT  the note; - reads standard input
      --author WHO  the author (default: human)

    examples:
      hivemind doc note knowledge/boats.md:20 "Not so for us: see @deploy"
    """
    if not text.strip():
        raise UserError("the note is empty", remedy="write a text")
    return _node_output(hive, hive.documents.add_note(resolve_node(hive, node).id, text, acting_name(hive, author)))


def _node_output(hive: Hive, node: Node, *leading_lines: str) -> CommandOutput:
    """Return the output of a command that wrote a node: the node's record, or the leading lines and the node's id."""
    return CommandOutput(node_record(hive.documents, node), [*leading_lines, node.id])


@command("doc summarize", open_hive)
def summarize(
    hive: Hive,
    node: str,
    *,
    text: Annotated[str | None, Arg(reads_stdin=True, exclusive_group="given")] = None,
    remove: Annotated[bool, Arg(exclusive_group="given")] = False,
    max_tokens: Positive = 120,
) -> CommandOutput:
    """Summarise the first leaves below a node, or rewrite a summary.

    Without --text the summary consists of the most central sentences. The summarised nodes stay below the summary.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      --text TEXT  the summary; - reads standard input
      --remove  remove the summary; the nodes below it take its place
      --max-tokens N  maximal length (default: 120 tokens)

    examples:
      hivemind doc summarize k3m9x2pa
      hivemind doc summarize k3m9x2pa --text -
    """
    documents, target_node = hive.documents, resolve_node(hive, node)
    if remove:
        children = documents.remove_summary(target_node.id)
        record = [node_record(documents, child, brief=True) for child in children]
        return CommandOutput(record, [f"{_node_count(len(children))} took its place."])
    summary = documents.summarize(target_node.id, None if text is None else lambda *_: text, max_tokens)
    return _node_output(hive, summary, summary.text)


@command("doc restore", open_hive)
def restore(hive: Hive, node: str, version: Positive) -> CommandOutput:
    """Bring back an earlier version of a node.

    The present text becomes a version, too. A readonly node cannot be restored: its text comes from its file.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      VERSION  the version's number, as shown by `doc show`

    examples:
      hivemind doc show k3m9x2pa
      hivemind doc restore k3m9x2pa 2
    """
    return _node_output(hive, hive.documents.restore(resolve_node(hive, node).id, version))


@command("doc delete", open_hive)
def delete(hive: Hive, node: str) -> CommandOutput:
    """Delete a node and all nodes below it.

    Nodes of a file in knowledge/ can only be deleted with the file.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file

    examples:
      hivemind doc delete k3m9x2pa
    """
    target_node = resolve_node(hive, node)
    source = hive.documents.source(target_node.id)
    if source is not None and not os.path.isabs(source.path):
        raise UserError(
            f"node {target_node.id!r} is a part of {source.path}", remedy="change or delete the file: its nodes follow"
        )
    descendant_count = hive.documents.size(target_node.id)[0]
    hive.documents.delete(target_node.id)
    return CommandOutput(
        {"node": target_node.id, "deleted": descendant_count + 1}, [f"{_node_count(descendant_count + 1)} deleted."]
    )


_MAX_UNREAD = 20  # unread files that `doc index` names
_EMBED_BATCH = 64  # passages between two progress reports
_MAX_INDENT = 16  # deeper levels are not indented further
_ROOT_COLUMNS = ("id", "class", "tokens", "title", "path")
_VERSION_COLUMNS = ("version", "updated_at", "context", "text")


def resolve_node(hive: Hive, reference: str) -> Node:
    """Update the documents from knowledge/, then return the node with this id or place. Raises UserError if there is none."""
    from hivemind.documents import NodeNotFoundError

    sync_documents(hive)
    try:
        return hive.knowledge.locate(reference)
    except NodeNotFoundError:
        raise UserError(f"there is no node {reference!r}", remedy="`hivemind doc tree` lists the documents") from None


def sync_documents(hive: Hive) -> dict[str, str]:
    """Update the documents from knowledge/, showing progress. Return the reason for each file that was not read.

    If the database cannot be written, print a warning and leave the documents as they are.
    """
    from hivemind.documents import UnwritableError
    from hivemind.documents.knowledge import AS_SHIPPED

    try:
        with progress() as report:
            skipped = hive.knowledge.sync(progress=report).skipped
        return {path: reason for path, reason in skipped.items() if AS_SHIPPED not in reason}
    except UnwritableError as error:
        warn(f"{error.location}: {error.message}: files seem to have changed, and their last imported state is shown")
        return {}


def node_record(documents: Docmem, node: Node, *, brief: bool = False) -> dict[str, Any]:
    """Return a node as JSON fields. `brief` leaves out the fields that cost further queries of the database."""
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


def _node_count(count: int) -> str:
    return f"{count} {'node' if count == 1 else 'nodes'}"


def title_line(node: Node) -> str:
    from hivemind.documents import title_of

    return one_line(title_of(node))


@command("doc tree", open_hive, for_agents=True)
def tree(hive: Hive, node: str | None = None, *, depth: int | None = None) -> CommandOutput:
    """List all documents, or show one as a tree.

    A line per node: its id, its kind, its tokens and its title.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file; left out: all documents
      --depth N  number of levels below NODE (default: all)

    examples:
      hivemind doc tree
      hivemind doc tree knowledge/boats.md --depth 2
    """
    if node is None:
        sync_documents(hive)
        rows = []
        for root in hive.documents.roots():
            source = hive.documents.source(root.id)
            rows.append(
                {
                    "id": root.id,
                    "class": root.context_name if source is None else source.document_class,
                    "tokens": hive.documents.size(root.id)[1],
                    "title": title_line(root),
                    "path": None if source is None else source.path,
                }
            )
        empty = "No documents yet; `hivemind doc import PATH` imports a file."
        return CommandOutput(rows, table_lines(rows, _ROOT_COLUMNS, empty=empty))
    top = resolve_node(hive, node)
    levels, records, lines = {top.parent_id: -1}, [], []
    for descendant in hive.documents.serialize(top.id):  # in reading order: parents come first
        levels[descendant.id] = level = levels[descendant.parent_id] + 1
        if depth is None or level <= depth:
            records.append(descendant.outline())
            indent = "  " * min(level, _MAX_INDENT)
            lines.append(f"{indent}{descendant.id} [{_marks(descendant)}] {title_line(descendant)}")
    return CommandOutput(records, cut_lines(lines))


def _marks(node: Node) -> str:
    marks = [node.context_type, f"{node.token_count} tokens"]
    if node.sticky:
        marks.append("sticky")
    if not node.readonly:
        marks.append("writable")
    return ", ".join(marks)


@command("doc show", open_hive, for_agents=True)
def show(hive: Hive, node: str) -> CommandOutput:
    """Show one node: its text, its place, its kind, and its versions if there are several.

    Versions are numbered from 1; the last one is the present text. `doc restore` brings one back.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file

    examples:
      hivemind doc show knowledge/boats.md:20
      hivemind doc show k3m9x2pa --json
    """
    target_node = resolve_node(hive, node)
    record = node_record(hive.documents, target_node)
    rows = [
        {**version, "context": "{context_type}, {context_name}: {context_value}".format_map(version)}
        for version in record["versions"]
    ]
    version_lines = ["", *table_lines(rows, _VERSION_COLUMNS, empty="")] if len(rows) > 1 else []
    return CommandOutput(record, [*headed_text(_headers(target_node, record), target_node.text), *version_lines])


def _headers(node: Node, record: dict[str, Any]) -> Iterator[tuple[str, str]]:
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


@command("doc expand", open_hive, for_agents=True)
def expand(hive: Hive, node: str, *, max_tokens: Positive = 2000, query: str | None = None) -> CommandOutput:
    """Read a part of a document within a token budget.

    Shows the node, then the nodes below it, level by level; summaries replace nodes that do not fit.

    arguments:
      NODE  a node's id, or PATH or PATH:LINE of a file
      --max-tokens N  the budget (default: 2000 tokens)
      --query TEXT  include the nodes that match TEXT first

    examples:
      hivemind doc expand knowledge/boats.md --max-tokens 500
      hivemind doc expand k3m9x2pa --max-tokens 800 --query "renewing a lease"
    """
    documents, top_id = hive.documents, resolve_node(hive, node).id
    excerpt = documents.shown(top_id, max_tokens, by="relevance" if query else "order", query=query or None)
    nodes = [node_record(documents, included_node, brief=True) for included_node in excerpt.nodes]
    lines = [excerpt.text.rstrip("\n")]
    if excerpt.form != "full":
        descendant_count, tokens = documents.size(top_id)
        lines.append(
            f"\n({excerpt.form}: {len(excerpt.nodes)} of {descendant_count + 1} nodes; the whole part has {tokens} tokens)"
        )
    return CommandOutput({"node": top_id, "form": excerpt.form, "text": excerpt.text, "nodes": nodes}, lines)


@command("doc index", open_hive)
def index(hive: Hive, *, wait: bool = False) -> CommandOutput:
    """Update the documents' index, show how much of it is embedded, and name the files that cannot be read.

    Idle agents embed the rest, and a search embeds the passages that it needs. If interrupted, call doc index again.

    arguments:
      --wait  embed all remaining passages, and show the progress

    examples:
      hivemind doc index
      hivemind doc index --wait
    """
    from hivemind.documents import describe_progress
    from hivemind.swarm.overview import search_now

    unread_files = sync_documents(hive)
    if wait:
        _embed_all(hive)
    embedded_count, total = hive.documents.embedded_counts()
    word_search = f"{total:,} passages, found by their words: {search_now(hive)}"
    line = word_search if hive.embedder is None else describe_progress(embedded_count, total)
    record = {"passages": total, "by_meaning": embedded_count, "unread": unread_files}
    reasons = [f"not read: {one_line(reason)}" for reason in unread_files.values()]
    if len(reasons) > _MAX_UNREAD:
        reasons[_MAX_UNREAD:] = [f"not read: {len(reasons) - _MAX_UNREAD} more files: hivemind doc index --json"]
    return CommandOutput(record, [line, *reasons])


def _embed_all(hive: Hive) -> None:
    embedded_count, total = hive.documents.embedded_counts()
    with progress() as report:
        while batch_size := hive.documents.embed_pending(_EMBED_BATCH):
            embedded_count += batch_size
            report("embedding passages", embedded_count, total)


@command("doc find", open_hive, for_agents=True)
def find(hive: Hive, query: str, *, limit: Positive = 10, below: str | None = None) -> CommandOutput:
    """Search all documents.

    A summary represents the nodes below it; @tag in the query finds nodes with that tag.

    arguments:
      QUERY  words, a question, or @tags
      --limit N  at most N hits (default: 10)
      --below NODE  only below this node: its id, or PATH or PATH:LINE of a file

    examples:
      hivemind doc find "who may renew a lease"
      hivemind doc find @billing --limit 3 --json
    """
    if not query.strip():
        raise UserError("the query is empty", remedy="give words, a question, or @tags")
    sync_documents(hive)
    hits = hive.documents.query(query, limit, node_id=None if below is None else resolve_node(hive, below).id)
    lines = (line for hit in hits for line in _hit_lines(hive.documents, hit))
    names = ("score", "titles", "document", "covers", "linked", "why")
    records = [
        {**node_record(hive.documents, hit.node, brief=True), **{name: getattr(hit, name) for name in names}}
        for hit in hits
    ]
    return CommandOutput(records, lines if hits else ["Nothing was found."])


def _hit_lines(documents: Docmem, hit: DocumentHit) -> Iterator[str]:
    source = documents.source(hit.node.id)
    location = "" if source is None else f"  {source.citation}"
    yield f"{hit.node.id}{one_line(location) and location}  ({' / '.join(map(one_line, hit.titles))})"
    yield f"    {title_line(hit.node)}"
    yield f"    {one_line(hit.why)}"
