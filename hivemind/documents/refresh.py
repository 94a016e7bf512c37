"""A document brought in line with its changed file: what is still there keeps its id, notes and summaries (spec 5)."""

from __future__ import annotations

import logging
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hivemind.documents import orders, tree
from hivemind.documents.edit import Draft, Edit
from hivemind.documents.formats import Outline
from hivemind.documents.importing import section_contexts, write_places
from hivemind.documents.matching import Side, match, parents_of
from hivemind.documents.node import Context, Node
from hivemind.documents.relayout import Layout, relayout
from hivemind.fs import reached

__all__ = ["refresh"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Document:
    """A document as it stands: its nodes by id, the children of each, and those that came from the file, in order."""

    root: str
    nodes: dict[str, Node]
    children: dict[str, list[str]]
    placed: list[str]
    kinds: list[str]


def refresh(edit: Edit, root_id: str, file_id: int, outline: Outline) -> None:
    """Change the document below `root_id` into what the outline says. The root's own text and context stay."""
    document = _read(edit.sql, root_id, file_id)
    contexts = section_contexts(outline)
    found = _match(document, outline, contexts)
    ids = [edit.free_id() if at is None else document.placed[at] for at in found]
    parents = parents_of([piece.depth for piece in outline.pieces])
    pieces = [(node_id, root_id if up < 0 else ids[up]) for node_id, up in zip(ids, parents, strict=True)]
    notes = {node.id for node in document.nodes.values() if node.context_type == "note"}
    layout = relayout(root_id, document.children, {root_id, *document.placed}, pieces, notes)
    wanted = {
        node_id: Draft(context, outline.text[piece.start : piece.end], 1, id=node_id, tokens=tokens)
        for node_id, context, piece, tokens in zip(ids, contexts, outline.pieces, outline.tokens, strict=True)
    }
    _write(edit, document, layout, wanted)
    gone = [node_id for node_id in document.placed if node_id not in wanted]
    edit.remove(gone)
    write_places(edit.sql, file_id, root_id, outline, ids)
    for node_id in sorted(layout.orphans):
        _log.info("documents: what %s spoke of is gone from its file; it is kept at the nearest heading", node_id)


def _read(sql: sqlite3.Connection, root_id: str, file_id: int) -> _Document:
    nodes = {node.id: node for node in tree.subtree(sql, root_id)}
    children: dict[str, list[str]] = defaultdict(list)
    for node in nodes.values():
        if node.id != root_id and node.parent_id is not None:
            children[node.parent_id].append(node.id)
    rows = sql.execute("SELECT node_id, kind FROM places WHERE file_id = ? AND number > 0 ORDER BY number", (file_id,))
    # A node that someone has moved out of the document is no longer a part of it.
    placed = [(node_id, kind) for node_id, kind in rows if node_id in nodes]
    return _Document(root_id, nodes, dict(children), [p[0] for p in placed], [p[1] for p in placed])


def _match(document: _Document, outline: Outline, contexts: Sequence[Context]) -> list[int | None]:
    position = {node_id: at for at, node_id in enumerate(document.placed)}
    parents = []
    for node_id in document.placed:
        above = document.nodes[node_id].parent_id
        while above is not None and above not in position and above != document.root:
            above = document.nodes[above].parent_id
        parents.append(position.get(above or "", -1))
    nodes = [document.nodes[node_id] for node_id in document.placed]
    old = Side(document.kinds, [node.text for node in nodes], [node.context_value for node in nodes], parents)
    new = Side(
        [piece.kind for piece in outline.pieces],
        [outline.text[piece.start : piece.end] for piece in outline.pieces],
        [context.value for context in contexts],
        parents_of([piece.depth for piece in outline.pieces]),
    )
    return match(old, new)


def _write(edit: Edit, document: _Document, layout: Layout, wanted: dict[str, Draft]) -> None:
    """Containers from the top down, so that parents are there before their children."""
    containers = [document.root]
    for container in containers:
        below = layout.children.get(container, [])
        containers += [node_id for node_id in below if node_id in layout.children]
        members = set(below)
        stays = below == [node_id for node_id in document.children.get(container, ()) if node_id in members]
        if not stays and container in document.nodes:
            orders.park(edit.sql, container)
        for place, node_id in enumerate(below, 1):
            draft, node = wanted.get(node_id), document.nodes.get(node_id)
            if node is None:
                assert draft is not None
                edit.add(container, float(place), draft)
            else:
                _change(edit, node, container, None if stays else float(place), draft, node_id in layout.orphans)
            reached("documents.refresh.one")


def _change(edit: Edit, node: Node, container: str, order: float | None, draft: Draft | None, is_orphan: bool) -> None:
    changes: dict[str, object] = {}
    if order is not None:
        node = tree.get(edit.sql, node.id)  # it was parked
        changes |= {"parent_id": container, "order_value": order}
    if is_orphan:
        changes["context_name"] = "orphaned"
    if draft is not None and (draft.text != node.text or draft.context != node.context):
        context = draft.context
        changes |= {"text": draft.text, "context_type": context.type, "context_name": context.name}
        changes["context_value"] = context.value
    if changes:
        edit.change(node, keep_version=draft is not None and draft.text != node.text, **changes)
