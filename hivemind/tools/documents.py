"""Tools for document memory: finding, expanding, writing, noting and summarising nodes (spec 5, spec 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from hivemind.documents import DocumentHit, Node, Passage, title_of
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, as_call, tool

DOCUMENTS = "documents"
"""What a location begins with that names a node: all of it that fits."""

_MORE = {"because": "\n", "content": "\n\n", "summary": "\n\n"}  # of a result, what a reader is told besides
_NODE = "a node's id, or path:line as citations have it"


class FindPassages(Arguments):
    query: str = Field(min_length=1)
    limit: int = Field(5, ge=1, le=20)
    below: str | None = Field(None, description=f"look only in this part of a document: {_NODE}")


class ExpandNode(Arguments):
    node: str = Field(description=_NODE)
    max_tokens: int = Field(1_000, ge=1, le=50_000)
    by: Literal["order", "importance", "relevance"] = "order"
    query: str | None = Field(None, description="what matters, for by=relevance")


class AppendNode(Arguments):
    text: str
    parent: str | None = Field(None, description="the node to put it below; left out: a new document begins")
    kind: str | None = Field(None, description="what the node is for: memory (below a parent, if left out), message, …")


class UpdateNode(Arguments):
    node: str = Field(description=_NODE)
    text: str
    expected_hash: str | None = Field(None, description="the node's hash when you read it; else the current one")


class NoteNode(Arguments):
    node: str = Field(description=_NODE)
    text: str = Field(min_length=1)


class SummarizeNode(Arguments):
    node: str = Field(description=f"a summary, or the node whose leaves are to be summarised: {_NODE}")
    text: str | None = Field(None, description="the summary, a paragraph; left out: an extract is made")


def _name(node: Mapping[str, Any]) -> str:
    readonly = ", readonly" if node["readonly"] else ""
    return f"{node['citation'] or node['title']} (node {node['node']}{readonly})"


def _found(result: Mapping[str, Any]) -> str:
    passages = (
        f"{one['path']}:{one['start_line']}-{one['end_line']} (node {one['node']}, digest {one['digest']})\n{one['text']}"
        for one in result["passages"]
    )
    nodes = (f"{_name(one)}\n{one['text']}" for one in result["nodes"])
    return "\n\n".join((*passages, *nodes)) or "nothing found"


def _written(result: Mapping[str, Any]) -> str:
    more = "".join(f"{space}{result[key]}" for key, space in _MORE.items() if key in result)
    return f"{_name(result)}, hash {result['hash']}{more}"


@tool(text=_found, reads=True)
def doc_find(session: Session, arguments: FindPassages) -> dict[str, Any]:
    """Find passages in knowledge/ and the task's attachments, and nodes of other documents, best first; passages have
    their citations."""
    hive = session.hive
    if arguments.below is not None:
        hits = hive.documents.query(arguments.query, arguments.limit, node_id=_read(session, arguments.below).id)
        return {"query": arguments.query, "passages": [], "nodes": [_hit(session, one) for one in hits]}
    attachments = session.focus.attachments
    hive.knowledge.sync(extra=attachments)
    scope = [hive.layout.knowledge, *attachments]
    passages = hive.knowledge.search(arguments.query, limit=arguments.limit, scope=scope)
    found = hive.documents.query(arguments.query, 2 * arguments.limit)
    hits = [one for one in found if hive.documents.source(one.document) is None]  # what files have is found as passages
    return {
        "query": arguments.query,
        "passages": [_passage(one) for one in passages],
        "nodes": [_hit(session, one) for one in hits[: arguments.limit]],
    }


@tool(text=_written, rest=lambda result: as_call("doc_expand", node=result["node"], max_tokens=1000), reads=True)
def doc_expand(session: Session, arguments: ExpandNode) -> dict[str, Any]:
    """Read a part of a document: the node, and as much below it as fits into max_tokens, in reading order."""
    node = _read(session, arguments.node)
    if arguments.by == "relevance" and not arguments.query:
        raise ToolProblem("by=relevance needs a query", location=arguments.node)
    query = arguments.query if arguments.by == "relevance" else None
    shown = session.hive.documents.shown(node.id, arguments.max_tokens, by=arguments.by, query=query)
    nodes = [
        {"id": one.id, "kind": one.context_type, "tokens": one.token_count, "readonly": one.readonly}
        for one in shown.nodes
    ]
    return {**_named(session, node), "form": shown.form, "content": shown.text, "nodes": nodes}


@tool(text=_written)
def doc_append(session: Session, arguments: AppendNode) -> dict[str, Any]:
    """Add a node at the end of a document that agents may write, or begin a new document with it."""
    documents = session.hive.documents
    if arguments.parent is None:
        root = documents.create_root(
            text=arguments.text, context_type=arguments.kind or "root", context_name="by", context_value=session.agent
        )
        return _named(session, root)
    parent = _read(session, arguments.parent)
    if parent.readonly:
        raise ToolProblem(f"node {parent.id!r} is readonly, nothing is added below it", remedy="use doc_note")
    return _named(
        session, documents.append_child(parent.id, arguments.kind or "memory", "by", session.agent, arguments.text)
    )


@tool(text=_written)
def doc_update(session: Session, arguments: UpdateNode) -> dict[str, Any]:
    """Give a node another text; its old one stays in its history. A readonly node gets a note after it instead."""
    node = _read(session, arguments.node)
    if node.readonly:
        note = session.hive.documents.add_note(node.id, arguments.text, session.agent)
        why = f"node {node.id!r} is readonly: your text was put after it, as a note"
        return {**_named(session, note), "note": note.id, "because": why}
    return _named(session, session.hive.documents.update_content(node.id, arguments.text, arguments.expected_hash))


@tool(text=_written)
def doc_note(session: Session, arguments: NoteNode) -> dict[str, Any]:
    """Put a note after a node, also after a readonly one: what you found out, or what is wrong there."""
    node = _read(session, arguments.node)
    note = session.hive.documents.add_note(node.id, arguments.text, session.agent)
    return {**_named(session, note), "note": note.id}


@tool(text=_written)
def doc_summarize(session: Session, arguments: SummarizeNode) -> dict[str, Any]:
    """Write a summary anew, or put one over the first leaves among a node's children; what it sums up stays."""
    node, said = _read(session, arguments.node), arguments.text
    summary = session.hive.documents.summarize(node.id, None if said is None else lambda *_: said)
    return {**_named(session, summary), "summary": summary.text}


def _read(session: Session, reference: str) -> Node:
    """The node, if it is the agent's to see. Raises ToolProblem for one of another task's files, NodeNotFoundError."""
    node = session.hive.knowledge.locate(reference)
    if not session.hive.knowledge.is_among(node.id, [session.hive.layout.knowledge, *session.focus.attachments]):
        raise ToolProblem(f"node {node.id!r} belongs to the files of another task", location=reference)
    return node


def _named(session: Session, node: Node) -> dict[str, Any]:
    """What names a node to a mind: its id, its hash, where it can be cited, and as the location of a block."""
    source = session.hive.documents.source(node.id)
    return {
        "node": node.id,
        "location": f"{DOCUMENTS}:{node.id}",
        "title": title_of(node),
        "hash": node.hash,
        "readonly": node.readonly,
        "citation": None if source is None else source.citation,
    }


def _passage(one: Passage) -> dict[str, Any]:
    return {
        "path": one.path, "start_line": one.start_line, "end_line": one.end_line, "digest": one.digest, "text": one.text,
        "score": one.score, "titles": list(one.titles), "node": one.node_id, "why": one.why,
    }  # fmt: skip


def _hit(session: Session, one: DocumentHit) -> dict[str, Any]:
    return {
        **_named(session, one.node), "text": one.node.text, "score": one.score, "titles": list(one.titles),
        "document": one.document, "why": one.why,
    }  # fmt: skip


DOCUMENT_TOOLS = (doc_find, doc_expand, doc_append, doc_update, doc_note, doc_summarize)
