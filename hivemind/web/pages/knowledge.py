"""The pages of documents and of long-term memory. Their searches show why each hit was found."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hivemind.documents import Node, title_of
from hivemind.errors import UserError
from hivemind.longterm import MemoryEntry, MemorySearchResult, format_namespace
from hivemind.web.site import Page, PageQuery, Site

_MAX_HITS = 20
_PAGE_NODES = 200
_MAX_ENTRIES = 50
_TEXT_CHARS = 700


def show_knowledge(site: Site, query: PageQuery) -> Page:
    """Build a list of all documents. If the query has a search `q`, add its hits with the reasons for each."""
    documents, text = site.hive.documents, query.get("q", "").strip()[:500]
    hits: list[dict[str, Any]] = []
    roots: list[dict[str, Any]] = []
    total = 0
    if documents.database.was_made:
        if text:
            for hit in documents.query(text, _MAX_HITS):
                source = documents.source(hit.node.id)
                hits.append(
                    {"hit": hit, "title": title_of(hit.node), "text": hit.node.text[:_TEXT_CHARS], "source": source}
                )
        root_nodes = documents.roots()
        total, start = len(root_nodes), query.number("from")
        for root in root_nodes[start : start + _PAGE_NODES]:
            source = documents.source(root.id)
            descendant_count, tokens = documents.size(root.id)
            path = None if source is None else source.path
            roots.append(
                {"id": root.id, "title": title_of(root), "path": path, "below": descendant_count, "tokens": tokens}
            )
    context = {
        "text": text,
        "hits": hits,
        "roots": roots,
        "total": total,
        "start": query.number("from"),
        "rows": _PAGE_NODES,
    }
    return Page("knowledge.html", context, "Knowledge")


def show_document(site: Site, node_id: str, query: PageQuery) -> Page:
    """Build the page of a document's tree, or of the tree below one node of it. Raises UserError if the node does not exist."""
    documents = site.hive.documents
    top = documents.find(node_id) if documents.database.was_made else None
    if top is None:
        raise UserError("this document does not exist", location=node_id)
    nodes = documents.serialize(top.id)
    start = query.number("from")
    depths: dict[str | None, int] = {top.parent_id: -1}
    rows: list[tuple[Node, int, str]] = []
    for tree_node in nodes:
        depths[tree_node.id] = depth = depths.get(tree_node.parent_id, -1) + 1
        rows.append((tree_node, min(depth, 8), tree_node.text[:_TEXT_CHARS]))
    source = documents.source(top.id)
    context = {
        "top": top,
        "heading": title_of(top),
        "source": source,
        "rows": rows[start : start + _PAGE_NODES],
        "total": len(rows),
        "start": start,
        "step": _PAGE_NODES,
        "way": [(ancestor.id, title_of(ancestor)) for ancestor in _ancestors(site, top)],
    }
    return Page("document.html", context, title_of(top))


def _ancestors(site: Site, node: Node) -> list[Node]:
    ancestors: list[Node] = []
    while node.parent_id is not None and (parent := site.hive.documents.find(node.parent_id)) is not None:
        ancestors.append(parent)
        node = parent
    return ancestors[::-1]


def _confidence_level(entry: MemoryEntry) -> str | None:
    confidence = entry.confidence if isinstance(entry, MemorySearchResult) else None
    return None if confidence is None else confidence.level


def show_memory(site: Site, query: PageQuery) -> Page:
    """Build a list of memories, newest first. If the query has a search `q`, list its hits with the reasons for each."""
    store, text = site.hive.memory, query.get("q", "").strip()[:500]
    namespace = query.get("namespace", "")
    entries, namespace_counts = [], Counter[str]()
    if store.database.was_made:
        all_entries = store.search((), "", limit=1_000, prefix=True)
        namespace_counts.update(format_namespace(entry.namespace) for entry in all_entries)
        matches = store.search((), text, limit=_MAX_ENTRIES * 4, prefix=True) if text else all_entries
        entries = [entry for entry in matches if not namespace or format_namespace(entry.namespace) == namespace][
            :_MAX_ENTRIES
        ]
    rows = [
        {
            "entry": entry,
            "namespace": format_namespace(entry.namespace),
            "content": entry.content[:_TEXT_CHARS],
            "why": getattr(entry, "why", ""),
            "trust": _confidence_level(entry),
        }
        for entry in entries
    ]
    context = {"text": text, "rows": rows, "spaces": sorted(namespace_counts.items()), "wanted": namespace}
    return Page("memory.html", context, "Memory")
