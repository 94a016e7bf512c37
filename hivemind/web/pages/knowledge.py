"""What the hive knows: documents with a search that says why, and what it remembers by namespace."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hivemind.documents import Node, title_of
from hivemind.errors import UserError
from hivemind.longterm import MemoryEntry, MemorySearchResult, format_namespace
from hivemind.web.site import Page, PageQuery, Site

_HITS = 20
_NODES = 200
_ROWS = 50
_TEXT_CHARS = 700


def knowledge(site: Site, query: PageQuery) -> Page:
    """All documents; with `q` what answers best, and because of what."""
    documents, text = site.hive.documents, query.get("q", "").strip()[:500]
    hits: list[dict[str, Any]] = []
    roots: list[dict[str, Any]] = []
    total = 0
    if documents.database.was_made:
        if text:
            for hit in documents.query(text, _HITS):
                source = documents.source(hit.node.id)
                hits.append(
                    {"hit": hit, "title": title_of(hit.node), "text": hit.node.text[:_TEXT_CHARS], "source": source}
                )
        found = documents.roots()
        total, start = len(found), query.number("from")
        for root in found[start : start + _NODES]:
            source = documents.source(root.id)
            below, tokens = documents.size(root.id)
            path = None if source is None else source.path
            roots.append({"id": root.id, "title": title_of(root), "path": path, "below": below, "tokens": tokens})
    context = {
        "text": text,
        "hits": hits,
        "roots": roots,
        "total": total,
        "start": query.number("from"),
        "rows": _NODES,
    }
    return Page("knowledge.html", context, "Knowledge")


def document(site: Site, node: str, query: PageQuery) -> Page:
    """A document as a tree. Raises UserError if there is none."""
    documents = site.hive.documents
    top = documents.find(node) if documents.database.was_made else None
    if top is None:
        raise UserError("there is no such document", location=node)
    nodes = documents.serialize(top.id)
    start = query.number("from")
    depths: dict[str | None, int] = {top.parent_id: -1}
    rows: list[tuple[Node, int, str]] = []
    for one in nodes:
        depths[one.id] = depth = depths.get(one.parent_id, -1) + 1
        rows.append((one, min(depth, 8), one.text[:_TEXT_CHARS]))
    source = documents.source(top.id)
    context = {
        "top": top,
        "heading": title_of(top),
        "source": source,
        "rows": rows[start : start + _NODES],
        "total": len(rows),
        "start": start,
        "step": _NODES,
        "way": [(one.id, title_of(one)) for one in _above(site, top)],
    }
    return Page("document.html", context, title_of(top))


def _above(site: Site, node: Node) -> list[Node]:
    found: list[Node] = []
    while node.parent_id is not None and (above := site.hive.documents.find(node.parent_id)) is not None:
        found.append(above)
        node = above
    return found[::-1]


def _trust(entry: MemoryEntry) -> str | None:
    found = entry.confidence if isinstance(entry, MemorySearchResult) else None
    return None if found is None else found.level


def memory(site: Site, query: PageQuery) -> Page:
    """What is remembered, newest first, by namespace; with `q` what answers, and because of what."""
    store, text = site.hive.memory, query.get("q", "").strip()[:500]
    wanted = query.get("namespace", "")
    entries, spaces = [], Counter[str]()
    if store.database.was_made:
        everything = store.search((), "", limit=1_000, prefix=True)
        spaces.update(format_namespace(one.namespace) for one in everything)
        found = store.search((), text, limit=_ROWS * 4, prefix=True) if text else everything
        entries = [one for one in found if not wanted or format_namespace(one.namespace) == wanted][:_ROWS]
    rows = [
        {
            "entry": one,
            "namespace": format_namespace(one.namespace),
            "content": one.content[:_TEXT_CHARS],
            "why": getattr(one, "why", ""),
            "trust": _trust(one),
        }
        for one in entries
    ]
    context = {"text": text, "rows": rows, "spaces": sorted(spaces.items()), "wanted": wanted}
    return Page("memory.html", context, "Memory")
