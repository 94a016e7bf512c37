"""Write outlines and mail threads as nodes, and update a document when its file changes.

A piece that is still in the changed file keeps its node, with the node's id, notes and summaries.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any

from hivemind.documents import tree
from hivemind.documents.classes import classify_thread
from hivemind.documents.edit import Edit, NodeDraft, park
from hivemind.documents.formats import PAGED_FORMATS, Outline
from hivemind.documents.node import Node, NodeContext
from hivemind.documents.passages import embedded_texts, group_passages
from hivemind.frozen import frozen
from hivemind.fs import crash_point
from hivemind.masking import mask

_MIN_LIKENESS = 0.4  # a changed piece keeps its node if old and new text share at least this part of their words
_MAX_PAIRS = 2_500  # the likeness of more pairs of texts is not computed: it would take too long
_COMPARED_CHARS = 4_000  # the likeness of two texts is that of their first characters, up to this many
_MAX_VALUE_CHARS = 256
_log = logging.getLogger(__name__)


PieceKey = tuple[str, str, str]
"""The kind, the text and the section title of a piece."""


def parents_of(outline: Outline) -> list[int]:
    """Return the index of each piece's parent, or −1 without one. The parent is the nearest earlier piece of smaller depth."""
    open_pieces: list[tuple[int, int]] = [(0, -1)]
    parents = []
    for at, piece in enumerate(outline.pieces):
        while open_pieces[-1][0] >= piece.depth:
            open_pieces.pop()
        parents.append(open_pieces[-1][1])
        open_pieces.append((piece.depth, at))
    return parents


def match_pieces(old: Sequence[PieceKey], new: Sequence[PieceKey]) -> list[int | None]:
    """Match each new piece with at most one old piece; return the old position for each new piece, None without a match.

    Equal pieces match first, then pieces of equal kind and text. Then `_align` matches pieces of equal kind between the
    same matched neighbours. Runs in linear time.
    """
    matches: list[int | None] = [None] * len(new)
    is_matched = [False] * len(old)
    for key_length in (3, 2):
        unmatched: dict[Hashable, deque[int]] = defaultdict(deque)
        for at, piece in enumerate(old):
            if not is_matched[at]:
                unmatched[piece[:key_length]].append(at)
        for at, piece in enumerate(new):
            if matches[at] is None and (queue := unmatched.get(piece[:key_length])):
                matches[at] = old_at = queue.popleft()
                is_matched[old_at] = True
    after, gap = 0, list[int]()
    for at, match_at in enumerate([*matches, after]):
        if match_at is None:
            gap.append(at)
            continue
        rest = range(after, min(len(old), after + max(_MAX_PAIRS, len(gap)))) if gap else ()
        free = [*takewhile(lambda old_at: not is_matched[old_at], rest)]
        for new_at, old_at in _align(old, new, free, gap):
            matches[new_at], is_matched[old_at] = old_at, True
        after, gap = match_at + 1, []
    return matches


def _align(
    old: Sequence[PieceKey], new: Sequence[PieceKey], free: Sequence[int], gap: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Match old pieces without a match (indexes `free`) with new ones of the same kind (indexes `gap`): by common
    words, then by section.

    Yield (new index, old index) of each match.
    """
    rest_old, rest_new = list(free), list(gap)
    if len(free) * len(gap) <= _MAX_PAIRS:
        alike = [
            (-_likeness(old[old_at][1], new[new_at][1]), new_at, old_at)
            for new_at in gap
            for old_at in free
            if old[old_at][0] == new[new_at][0]
        ]
        for likeness, new_at, old_at in sorted(alike):
            if -likeness >= _MIN_LIKENESS and new_at in rest_new and old_at in rest_old:
                rest_new.remove(new_at)
                rest_old.remove(old_at)
                yield new_at, old_at
    unmatched: dict[Hashable, deque[int]] = defaultdict(deque)
    for old_at in rest_old:
        unmatched[_place(old[old_at])].append(old_at)
    for new_at in rest_new:
        if queue := unmatched[_place(new[new_at])]:
            yield new_at, queue.popleft()


def _place(piece: PieceKey) -> Hashable:
    """Return the kind and the section of a piece, for a heading only the kind."""
    kind, _, section = piece
    return kind, section if kind != "heading" else ""


def _likeness(first_text: str, second_text: str) -> float:
    """Return the Jaccard similarity of two texts' sets of words."""
    first_words, second_words = (set(text[:_COMPARED_CHARS].casefold().split()) for text in (first_text, second_text))
    return len(first_words & second_words) / len(first_words | second_words) if first_words or second_words else 1.0


def relayout(
    root: str,
    children: Mapping[str, Sequence[str]],
    imported_ids: Collection[str],
    pieces: Sequence[tuple[str, str]],
    notes: Collection[str],
) -> tuple[dict[str, list[str]], set[str]]:
    """Plan the tree of a document after a change of its file. Return the new children of each parent, and the orphans.

    `children` is the present tree; those of its nodes that come from the file, including the root, are `imported_ids`.
    `pieces` are the (id, parent id) of the changed file's pieces in reading order; other ids than `imported_ids` are
    new. All other nodes were added by agents: those in `notes` are notes about the node before, the others are
    summaries. An orphan is a note or summary of removed nodes.
    """
    parent = {child: above for above, below in children.items() for child in below}
    members: dict[str, list[str]] = defaultdict(list)  # by wrapper: a summary, or another node put above imported nodes
    for node_id in imported_ids:
        above = parent.get(node_id)
        while above is not None and above not in imported_ids:
            members[above].append(node_id)
            above = parent.get(above)
    containers, unread = list[str](), [root]
    while unread:
        containers.append(container := unread.pop())
        below = reversed(children.get(container, ()))
        unread += [node_id for node_id in below if node_id in imported_ids or node_id in members]
    layout: dict[str, list[str]] = defaultdict(list)
    for node_id, section in pieces:
        layout[section].append(node_id)
    container_of, position = dict(pieces), {node_id: at for at, (node_id, _) in enumerate(pieces)}
    new_ids = position.keys() - imported_ids
    for wrapper in containers:
        if present := sorted(position.keys() & members.get(wrapper, ()), key=position.__getitem__):
            _wrap(wrapper, present, layout, container_of, new_ids)
    orphans, live_ids, placed_ids = set[str](), {root, *container_of}, set[str]()
    for container in containers:
        anchor: str | None = None
        for node_id in children.get(container, ()):
            if node_id in imported_ids or node_id in container_of:
                anchor = node_id
                continue
            target, at, is_note = container, 0, node_id in notes
            is_lost = anchor is not None and anchor not in live_ids
            if anchor is not None and not is_lost and (is_note or container_of[anchor] == container):
                target = container_of[anchor]  # stay after the anchor
                at = layout[target].index(anchor) + 1
            else:
                while target not in live_ids:
                    target, is_lost = parent[target], True
                at = 0 if anchor is None and target == container else len(layout[target])
            while at < len(layout[target]) and layout[target][at] in placed_ids:
                at += 1
            layout[target].insert(at, node_id)
            placed_ids.add(node_id)
            if node_id in members or (is_note and is_lost):
                orphans.add(node_id)
    return layout, orphans


def _wrap(
    wrapper: str,
    present: Sequence[str],
    layout: dict[str, list[str]],
    container_of: dict[str, str],
    new_ids: Collection[str],
) -> None:
    """Insert a wrapper (a summary) between its remaining pieces, `present`, and their parent.

    New pieces between the remaining ones become children of the wrapper, too.
    """
    container_of[wrapper] = container = container_of[present[0]]
    siblings, own_ids = layout[container], set(present)
    first = siblings.index(present[0])
    wrapped = list(takewhile(lambda node_id: node_id in own_ids or node_id in new_ids, siblings[first:]))
    while wrapped[-1] not in own_ids:
        wrapped.pop()
    siblings[first : first + len(wrapped)] = [wrapper]
    layout[wrapper] = wrapped
    container_of |= dict.fromkeys(wrapped, wrapper)


def refresh(edit: Edit, root_id: str, file_id: int, outline: Outline) -> None:
    """Update the document below `root_id` to match the file's new outline. The root keeps its text and context."""
    old_texts = _embedded_texts(edit.sql, file_id)
    nodes = {node.id: node for node in tree.subtree(edit.sql, root_id)}
    children: dict[str, list[str]] = defaultdict(list)
    for node in nodes.values():
        if node.id != root_id and node.parent_id is not None:
            children[node.parent_id].append(node.id)
    rows = edit.sql.execute("SELECT node_id FROM places WHERE file_id = ? AND number > 0 ORDER BY number", (file_id,))
    imported_ids = [node_id for (node_id,) in rows if node_id in nodes]  # others were moved to another document
    drafts = _drafts(outline)
    matches = match_pieces(
        [(node.context_type, node.text, node.context_value) for node in map(nodes.__getitem__, imported_ids)],
        [(draft.context.type, draft.text, draft.context.value) for draft in drafts],
    )
    new_ids = iter(edit.free_ids(matches.count(None)))
    ids = [next(new_ids) if at is None else imported_ids[at] for at in matches]
    pieces = [(node_id, root_id if up < 0 else ids[up]) for node_id, up in zip(ids, parents_of(outline), strict=True)]
    notes = {node.id for node in nodes.values() if node.context_type == "note"}
    layout, orphans = relayout(root_id, children, {root_id, *imported_ids}, pieces, notes)
    drafts_by_id = dict(zip(ids, drafts, strict=True))
    _write_layout(edit, nodes, children, layout, orphans, drafts_by_id)
    edit.remove([node_id for node_id in imported_ids if node_id not in drafts_by_id])
    _write_places(edit.sql, file_id, root_id, outline, ids)
    new_texts = _embedded_texts(edit.sql, file_id) if old_texts else {}
    changed_seqs = [(seq,) for seq, text in old_texts.items() if new_texts.get(seq) != text]
    edit.sql.executemany("DELETE FROM vectors WHERE key = ?", changed_seqs)
    for node_id in sorted(orphans):
        _log.info(
            "documents: node %s stays at the nearest heading: the text that it is about was removed from the file",
            node_id,
        )


def _write_layout(
    edit: Edit,
    nodes: Mapping[str, Node],
    children: Mapping[str, Sequence[str]],
    layout: Mapping[str, Sequence[str]],
    orphans: Collection[str],
    drafts: Mapping[str, NodeDraft],
) -> None:
    """Write the tree that `relayout` has planned: the new nodes in reading order, then the changes of the others."""
    places: dict[str, tuple[str, float]] = {}  # of the nodes in a container with a new order
    for container, child_ids in layout.items():
        members = set(child_ids)
        if child_ids != [node_id for node_id in children.get(container, ()) if node_id in members]:
            places |= {node_id: (container, float(number)) for number, node_id in enumerate(child_ids, 1)}
            if container in nodes:
                park(edit.sql, container)

    def new_nodes() -> Iterator[Node]:
        for node_id, draft in drafts.items():
            if node_id not in nodes:
                yield edit.build_node(node_id, *places[node_id], draft)
                crash_point("documents.import.one")

    edit.insert_all(new_nodes())
    for node_id in chain.from_iterable(layout.values()):
        if (node := nodes.get(node_id)) is None:
            continue
        draft, changes = drafts.get(node_id), dict[str, Any]()
        if node_id in places:
            node = tree.get(edit.sql, node_id)  # read again: `park` has changed its order
            changes["parent_id"], changes["order_value"] = places[node_id]
        if node_id in orphans:
            changes["context_name"] = "orphaned"
        if draft is not None and (draft.text, draft.context) != (node.text, node.context):
            changes |= {"text": draft.text, "context": draft.context}
        if changes:
            edit.change(node, keep_version=draft is not None and draft.text != node.text, **changes)
        crash_point("documents.refresh.one")


def context_value(text: str, default: str) -> str:
    """Return the end of `text`, at most 256 characters, as a context value; `default` if `text` is empty."""
    text = " ".join(text.split()) or default
    return text if len(text) <= _MAX_VALUE_CHARS else "…" + text[1 - _MAX_VALUE_CHARS :]


def _drafts(outline: Outline) -> list[NodeDraft]:
    """Return the content of each piece's node. Its context has the piece's kind and the title of its section."""
    titles: list[str] = []
    drafts: list[NodeDraft] = []
    for piece, parent, tokens in zip(outline.pieces, parents_of(outline), outline.tokens, strict=True):
        titles.append(piece.title or (titles[parent] if parent >= 0 else outline.title))
        context = NodeContext(piece.kind, "section", context_value(titles[-1], "document"))
        drafts.append(NodeDraft(context, outline.text[piece.start : piece.end], 1, tokens=tokens))
    return drafts


def _write_places(
    sql: sqlite3.Connection, file_id: int, root_id: str, outline: Outline, node_ids: Sequence[str]
) -> None:
    """Record, for each node, its place in its file and the file's text between it and the next node."""
    sql.execute("DELETE FROM places WHERE file_id = ?", (file_id,))
    gaps = outline.gaps()
    pages = outline.lines() if outline.format in PAGED_FORMATS else []  # a passage must not span two pages, or letters
    passages, roles = group_passages(
        outline.text, outline.pieces, outline.tokens, {at for at in range(1, len(pages)) if pages[at] != pages[at - 1]}
    )
    rows: list[tuple[object, ...]] = [(root_id, file_id, 0, 0, "root", 1, 1, next(gaps), 0)]
    columns = zip(node_ids, outline.pieces, passages, outline.lines(), gaps, roles, strict=True)
    for at, (node_id, piece, passage, lines, gap, role) in enumerate(columns, 1):
        rows.append((node_id, file_id, at, passage, piece.kind, *lines, gap, role))
    sql.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _embedded_texts(sql: sqlite3.Connection, file_id: int) -> dict[int, str]:
    """Return the text of each paragraph of a file that has a vector, by the number (`seq`) of the paragraph's first node."""
    leads = (
        "SELECT n.seq FROM places p JOIN nodes n ON n.id = p.node_id JOIN vectors v ON v.key = n.seq"
        " WHERE p.file_id = ? AND p.leads"
    )
    return embedded_texts(sql, [seq for (seq,) in sql.execute(leads, (file_id,))])


@frozen
class Letter:
    """A letter of a mail thread; `id` is its Message-ID."""

    id: str
    sender: str
    date: str
    text: str


def keep_thread(edit: Edit, subject: str, letters: Sequence[Letter], thread: str) -> Node:
    """Add the letters that are not stored yet to the document of their mail thread; return the document's root.

    `thread` is the Message-ID of the thread's first letter. `subject` is the title of a new document.
    """
    subject, root_id = mask(subject), f"thread-{hashlib.blake2b(thread.encode(), digest_size=6).hexdigest()}"
    classification = classify_thread(subject, [letter.text for letter in letters])
    context = NodeContext("root", "mail", classification.name)
    root = tree.find(edit.sql, root_id) or edit.add(None, 0.0, NodeDraft(context, subject, 1, id=root_id))
    if root.context != context:
        root = edit.change(root, context=context)
    edit.label(root.id, [*classification.tags, classification.name])
    known_letters = {(child.context_value, child.text) for child in tree.children(edit.sql, root.id)}
    for letter in letters:
        key, text = mask(context_value(f"{letter.sender} {letter.date} {letter.id}", "mail")), mask(letter.text)
        if (key, text) not in known_letters:
            draft = NodeDraft(NodeContext("message", "from", key), text, 1)
            edit.add(*edit.free_slot("child", root.id), draft)
    return tree.get(edit.sql, root.id)
