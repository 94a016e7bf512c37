"""Tools for documents: find, expand, write, annotate and summarise their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from hivemind.documents import DocumentHit, Node, Passage, manual, title_of
from hivemind.tools.tool import Arguments, ToolProblem, as_call, tool
from hivemind.tools.tool_context import ToolContext

DOCUMENTS = "documents"
"""The prefix of a location that names a node, as in `documents:ID`."""

# further fields that the text of a result shows, each with the separator before it
_MORE = {"because": "\n", "content": "\n\n", "summary": "\n\n"}
_NODE = "a node's id, or path:line as in citations"


class FindPassages(Arguments):
    query: str = Field(min_length=1)
    limit: int = Field(5, ge=1, le=20)
    below: str | None = Field(None, description=f"search only this part of a document: {_NODE}")


class AskManual(Arguments):
    question: str = Field(min_length=1)


class ExpandNode(Arguments):
    node: str = Field(description=_NODE)
    max_tokens: int = Field(1_000, ge=1, le=50_000)
    by: Literal["order", "importance", "relevance"] = "order"
    query: str | None = Field(None, description="the question, for by=relevance")


class AppendNode(Arguments):
    text: str
    parent: str | None = Field(None, description="the parent node; default: begin a new document")
    kind: str | None = Field(None, description="the node's kind, for example message; default: memory below a parent")


class UpdateNode(Arguments):
    node: str = Field(description=_NODE)
    text: str
    expected_hash: str | None = Field(None, description="the node's hash when you read it; default: the current one")


class NoteNode(Arguments):
    node: str = Field(description=_NODE)
    text: str = Field(min_length=1)


class SummarizeNode(Arguments):
    node: str = Field(description=f"a summary, or the node to summarise: {_NODE}")
    text: str | None = Field(None, description="the summary, a paragraph; default: an extract")


def _node_heading(node: Mapping[str, Any]) -> str:
    readonly = ", readonly" if node["readonly"] else ""
    return f"{node['citation'] or node['title']} (node {node['node']}{readonly})"


def _passages_text(result: Mapping[str, Any]) -> str:
    passages = (
        f"{passage['path']}:{passage['start_line']}-{passage['end_line']} "
        f"(node {passage['node']}, digest {passage['digest']})\n{passage['text']}"
        for passage in result["passages"]
    )
    nodes = (f"{_node_heading(node)}\n{node['text']}" for node in result["nodes"])
    return "\n\n".join((*passages, *nodes)) or "no passages found"


def _node_text(result: Mapping[str, Any]) -> str:
    more = "".join(f"{space}{result[key]}" for key, space in _MORE.items() if key in result)
    return f"{_node_heading(result)}, hash {result['hash']}{more}"


@tool(text=_passages_text, is_read_only=True)
def doc_find(context: ToolContext, arguments: FindPassages) -> dict[str, Any]:
    """Find passages in knowledge/ and the task's attachments, and nodes of other documents, best first. Each passage has its
    citation."""
    hive = context.hive
    if arguments.below is not None:
        hits = hive.documents.query(arguments.query, arguments.limit, node_id=_find_node(context, arguments.below).id)
        return {"query": arguments.query, "passages": [], "nodes": [_hit_fields(context, hit) for hit in hits]}
    attachments = context.focus.attachments
    hive.knowledge.sync(extra=attachments)
    scope = [hive.layout.knowledge, *attachments]
    passages = hive.knowledge.search(arguments.query, limit=arguments.limit, scope=scope)
    document_hits = hive.documents.query(arguments.query, 2 * arguments.limit)
    # files are searched as passages
    hits = [hit for hit in document_hits if hive.documents.source(hit.document) is None]
    return {
        "query": arguments.query,
        "passages": [_passage_fields(passage) for passage in passages],
        "nodes": [_hit_fields(context, hit) for hit in hits[: arguments.limit]],
    }


@tool(text=_passages_text, is_read_only=True)
def ask_manual(context: ToolContext, arguments: AskManual) -> dict[str, Any]:
    """Find passages of hivemind's own manual: how the swarm, its tools, commands and settings work."""
    passages = manual.ask_manual(arguments.question, embedder=context.hive.embedder)
    return {"passages": [_passage_fields(passage) for passage in passages], "nodes": []}


@tool(
    text=_node_text,
    continuation=lambda result: as_call("doc_expand", node=result["node"], max_tokens=1000),
    is_read_only=True,
)
def doc_expand(context: ToolContext, arguments: ExpandNode) -> dict[str, Any]:
    """Read a part of a document: the node and as much of the text below it as fits into max_tokens, in reading order."""
    node = _find_node(context, arguments.node)
    if arguments.by == "relevance" and not arguments.query:
        raise ToolProblem("by=relevance needs a query", location=arguments.node)
    query = arguments.query if arguments.by == "relevance" else None
    expansion = context.hive.documents.shown(node.id, arguments.max_tokens, by=arguments.by, query=query)
    nodes = [
        {"id": part.id, "kind": part.context_type, "tokens": part.token_count, "readonly": part.readonly}
        for part in expansion.nodes
    ]
    return {**_node_fields(context, node), "form": expansion.form, "content": expansion.text, "nodes": nodes}


@tool(text=_node_text)
def doc_append(context: ToolContext, arguments: AppendNode) -> dict[str, Any]:
    """Add a node at the end of a document that agents may write, or begin a new document with it."""
    documents = context.hive.documents
    if arguments.parent is None:
        root = documents.create_root(
            text=arguments.text, context_type=arguments.kind or "root", context_name="by", context_value=context.agent
        )
        return _node_fields(context, root)
    parent = _find_node(context, arguments.parent)
    if parent.readonly:
        raise ToolProblem(f"node {parent.id!r} is readonly: it cannot get children", remedy="use doc_note")
    return _node_fields(
        context, documents.append_child(parent.id, arguments.kind or "memory", "by", context.agent, arguments.text)
    )


@tool(text=_node_text)
def doc_update(context: ToolContext, arguments: UpdateNode) -> dict[str, Any]:
    """Replace a node's text; the history keeps the old text. A readonly node gets a note after it instead."""
    node = _find_node(context, arguments.node)
    if node.readonly:
        note = context.hive.documents.add_note(node.id, arguments.text, context.agent)
        reason = f"node {node.id!r} is readonly: your text was put after it, as a note"
        return {**_node_fields(context, note), "note": note.id, "because": reason}
    return _node_fields(
        context, context.hive.documents.update_content(node.id, arguments.text, arguments.expected_hash)
    )


@tool(text=_node_text)
def doc_note(context: ToolContext, arguments: NoteNode) -> dict[str, Any]:
    """Add a note after a node, readonly or not: a finding, or a mistake in the node."""
    node = _find_node(context, arguments.node)
    note = context.hive.documents.add_note(node.id, arguments.text, context.agent)
    return {**_node_fields(context, note), "note": note.id}


@tool(text=_node_text)
def doc_summarize(context: ToolContext, arguments: SummarizeNode) -> dict[str, Any]:
    """Rewrite a summary, or add a summary above the first of a node's children that have no children. The summarised nodes
    stay."""
    node, text = _find_node(context, arguments.node), arguments.text
    summary = context.hive.documents.summarize(node.id, None if text is None else lambda *_: text)
    return {**_node_fields(context, summary), "summary": summary.text}


def _find_node(context: ToolContext, reference: str) -> Node:
    """Return the node of a reference. Raises NodeNotFoundError, and ToolProblem for a node of another task's files."""
    node = context.hive.knowledge.locate(reference)
    if not context.hive.knowledge.is_among(node.id, [context.hive.layout.knowledge, *context.focus.attachments]):
        raise ToolProblem(f"node {node.id!r} belongs to the files of another task", location=reference)
    return node


def _node_fields(context: ToolContext, node: Node) -> dict[str, Any]:
    """Return the fields by which a mind identifies a node: id, location, title, hash, readonly, citation."""
    source = context.hive.documents.source(node.id)
    return {
        "node": node.id,
        "location": f"{DOCUMENTS}:{node.id}",
        "title": title_of(node),
        "hash": node.hash,
        "readonly": node.readonly,
        "citation": None if source is None else source.citation,
    }


def _passage_fields(passage: Passage) -> dict[str, Any]:
    return {
        "path": passage.path, "start_line": passage.start_line, "end_line": passage.end_line, "digest": passage.digest,
        "text": passage.text, "score": passage.score, "titles": list(passage.titles), "node": passage.node_id, "why": passage.why,
    }  # fmt: skip


def _hit_fields(context: ToolContext, hit: DocumentHit) -> dict[str, Any]:
    return {
        **_node_fields(context, hit.node), "text": hit.node.text, "score": hit.score, "titles": list(hit.titles),
        "document": hit.document, "why": hit.why,
    }  # fmt: skip


DOCUMENT_TOOLS = (doc_find, ask_manual, doc_expand, doc_append, doc_update, doc_note, doc_summarize)
