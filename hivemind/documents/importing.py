"""Write outlines and mail threads as nodes, and update a document when its file changes.

A piece that is still in the changed file keeps its node, with the node's id, notes and summaries.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import takewhile

from hivemind.documents import tree
from hivemind.documents.classes import classify_thread
from hivemind.documents.edit import Edit, NodeDraft, park
from hivemind.documents.formats import Outline
from hivemind.documents.node import Node, NodeContext
from hivemind.documents.passages import group_passages
from hivemind.frozen import frozen
from hivemind.fs import crash_point
from hivemind.masking import mask

_MIN_LIKENESS = 0.4  # a changed piece keeps its node if old and new text share at least this part of their words
_MAX_PAIRS = 2_500  # the likeness of more pairs of texts is not computed: it would take too long
_COMPARED_CHARS = 4_000  # the likeness of two texts is that of their first characters, up to this many
_MAX_VALUE_CHARS = 256
_log = logging.getLogger(__name__)


@frozen
class DocumentState:
    """The pieces of a document at one time, in reading order: their kinds, texts, section titles and parents.

    A parent is the position of a piece, or −1 for the document itself.
    """

    kinds: Sequence[str]
    texts: Sequence[str]
    sections: Sequence[str]
    parents: Sequence[int]

    def __len__(self) -> int:
        return len(self.kinds)

    def children(self) -> dict[int, list[int]]:
        children_by_parent: dict[int, list[int]] = defaultdict(list)
        for at, parent in enumerate(self.parents):
            children_by_parent[parent].append(at)
        return children_by_parent


def parents_of(outline: Outline) -> list[int]:
    """Return the position of each piece's parent: the nearest earlier piece of smaller depth; −1 if there is none."""
    open_pieces: list[tuple[int, int]] = [(0, -1)]
    parents = []
    for at, piece in enumerate(outline.pieces):
        while open_pieces[-1][0] >= piece.depth:
            open_pieces.pop()
        parents.append(open_pieces[-1][1])
        open_pieces.append((piece.depth, at))
    return parents


def match_pieces(old: DocumentState, new: DocumentState) -> list[int | None]:
    """Match each new piece with at most one old piece; return the old position for each new piece, None without a match.

    Pieces of equal kind, text and section match first, then those of equal kind and text, then those of equal kind
    between two matched neighbours under one parent. Runs in linear time.
    """
    matches: list[int | None] = [None] * len(new)
    is_matched = [False] * len(old)
    for with_section in (True, False):
        unmatched: dict[Hashable, deque[int]] = defaultdict(deque)
        for at in range(len(old)):
            if not is_matched[at]:
                unmatched[_key(old, at, with_section)].append(at)
        for at in range(len(new)):
            if matches[at] is None and (queue := unmatched.get(_key(new, at, with_section))):
                matches[at] = old_at = queue.popleft()
                is_matched[old_at] = True
    _match_by_position(old, new, matches, is_matched)
    return matches


def _key(side: DocumentState, at: int, with_section: bool) -> Hashable:
    section = side.sections[at] if with_section else None
    return side.kinds[at], side.texts[at], section


def _match_by_position(
    old: DocumentState, new: DocumentState, matches: list[int | None], is_matched: list[bool]
) -> None:
    old_children, new_children = old.children(), new.children()
    for parent in (-1, *range(len(new))):  # parents before their children
        old_parent = -1 if parent < 0 else matches[parent]
        if old_parent is None or parent not in new_children:
            continue
        old_siblings = old_children.get(old_parent, [])
        position = {at: place for place, at in enumerate(old_siblings)}
        gap: list[int] = []
        left = -1
        for at in (*new_children[parent], None):
            match_at = None if at is None else matches[at]
            if at is not None and match_at is None:
                gap.append(at)
            elif at is None or match_at in position:
                right = len(old_siblings) if match_at is None else position[match_at]
                end = min(right, left + 1 + max(_MAX_PAIRS, len(gap))) if gap else 0
                free = [candidate_at for candidate_at in old_siblings[left + 1 : end] if not is_matched[candidate_at]]
                for new_at, old_at in _align(old, new, free, gap):
                    matches[new_at], is_matched[old_at] = old_at, True
                gap, left = [], right


def _align(
    old: DocumentState, new: DocumentState, free: Sequence[int], gap: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Match old pieces with new pieces of the same kind, first by common words, then in order; yield (new, old) positions."""
    rest_old, rest_new = list(free), list(gap)
    if len(free) * len(gap) <= _MAX_PAIRS:
        alike = [
            (-_likeness(old.texts[old_at], new.texts[new_at]), new_at, old_at)
            for new_at in gap
            for old_at in free
            if old.kinds[old_at] == new.kinds[new_at]
        ]
        for likeness, new_at, old_at in sorted(alike):
            if -likeness >= _MIN_LIKENESS and new_at in rest_new and old_at in rest_old:
                rest_new.remove(new_at)
                rest_old.remove(old_at)
                yield new_at, old_at
    unmatched: dict[str, deque[int]] = defaultdict(deque)
    for old_at in rest_old:
        unmatched[old.kinds[old_at]].append(old_at)
    for new_at in rest_new:
        if queue := unmatched[new.kinds[new_at]]:
            yield new_at, queue.popleft()


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
    """Plan the tree of a document whose file has changed: return the new children of each parent, and the orphans.

    `children` is the present tree. `imported_ids` are its nodes from the file, including the root. `pieces` are the
    (id, parent id) of the changed file's pieces in reading order; ids outside `imported_ids` are new. All other nodes
    were added by agents. Those in `notes` are each about the node before. An orphan is a note or summary whose nodes
    were removed.
    """
    parent = {child: above for above, below in children.items() for child in below}
    chains = {node_id: _wrappers(node_id, parent, imported_ids) for node_id in imported_ids}
    wrapper_ids = {wrapper for chain in chains.values() for wrapper in chain}
    layout, container_of = _with_pieces(pieces, chains)
    orphans, live_ids, placed_ids = set[str](), {root, *container_of}, set[str]()
    containers = [root]
    while containers:
        container = containers.pop()
        below = children.get(container, ())
        containers += [node_id for node_id in reversed(below) if node_id in imported_ids or node_id in wrapper_ids]
        anchor: str | None = None
        for node_id in below:
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
            if node_id in wrapper_ids or (is_note and is_lost):
                orphans.add(node_id)
    return layout, orphans


def _wrappers(node_id: str, parent: Mapping[str, str], imported_ids: Collection[str]) -> tuple[str, ...]:
    """Return the summaries between an imported node and its nearest ancestor from the file, outermost first."""
    wrappers: list[str] = []
    above = parent.get(node_id)
    while above is not None and above not in imported_ids:
        wrappers.append(above)
        above = parent.get(above)
    return tuple(reversed(wrappers))


def _with_pieces(
    pieces: Sequence[tuple[str, str]], chains: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Place the file's pieces below their wrappers (summaries); return each node's children and each node's parent.

    A new piece between two pieces of one wrapper is placed below that wrapper.
    """
    sections = {section: rank for rank, section in enumerate(dict.fromkeys(section for _, section in pieces))}
    ordered_pieces = sorted(pieces, key=lambda piece: sections[piece[1]])
    next_chains: dict[str, tuple[str, ...]] = {}  # by section: the wrappers of the next wrapped piece
    chain_pairs = []
    for node_id, section in reversed(ordered_pieces):
        chain_pairs.append((chains.get(node_id, ()), next_chains.get(section, ())))
        next_chains[section] = chains.get(node_id, ()) or next_chains.get(section, ())
    layout: dict[str, list[str]] = defaultdict(list)
    container_of: dict[str, str] = {}
    open_chains: dict[str, tuple[str, ...]] = {}
    for (node_id, section), (own_chain, next_chain) in zip(ordered_pieces, reversed(chain_pairs), strict=True):
        previous_chain = open_chains.get(section, ())
        chain = own_chain or _common(previous_chain, next_chain)
        inside = _common(previous_chain, chain)
        for wrapper in chain[len(inside) :]:
            if wrapper in container_of:  # closed before
                break
            container_of[wrapper] = inside[-1] if inside else section
            layout[container_of[wrapper]].append(wrapper)
            inside = (*inside, wrapper)
        open_chains[section] = inside
        container_of[node_id] = inside[-1] if inside else section
        layout[container_of[node_id]].append(node_id)
    return layout, container_of


def _common(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(wrapper for wrapper, _ in same)


@frozen
class _Document:
    """A stored document: its nodes by id, their children, and the imported nodes' ids and kinds in file order."""

    root: str
    nodes: dict[str, Node]
    children: dict[str, list[str]]
    imported_ids: list[str]
    kinds: list[str]


def refresh(edit: Edit, root_id: str, file_id: int, outline: Outline) -> None:
    """Update the document below `root_id` to the outline. The root keeps its text and context."""
    document, old_paragraphs = _read(edit.sql, root_id, file_id), _paragraphs(edit.sql, file_id)
    contexts = section_contexts(outline)
    matches = _match_outline(document, outline, contexts)
    new_ids = iter(edit.free_ids(matches.count(None)))
    ids = [next(new_ids) if at is None else document.imported_ids[at] for at in matches]
    parents = parents_of(outline)
    pieces = [(node_id, root_id if up < 0 else ids[up]) for node_id, up in zip(ids, parents, strict=True)]
    notes = {node.id for node in document.nodes.values() if node.context_type == "note"}
    layout, orphans = relayout(root_id, document.children, {root_id, *document.imported_ids}, pieces, notes)
    drafts = {
        node_id: NodeDraft(context, outline.text[piece.start : piece.end], 1, id=node_id, tokens=tokens)
        for node_id, context, piece, tokens in zip(ids, contexts, outline.pieces, outline.tokens, strict=True)
    }
    _write_layout(edit, document, layout, orphans, drafts)
    removed_ids = [node_id for node_id in document.imported_ids if node_id not in drafts]
    edit.remove(removed_ids)
    write_places(edit.sql, file_id, root_id, outline, ids, old_paragraphs)
    for node_id in sorted(orphans):
        _log.info(
            "documents: node %s stays at the nearest heading: the text that it is about was removed from the file",
            node_id,
        )


def _read(sql: sqlite3.Connection, root_id: str, file_id: int) -> _Document:
    nodes = {node.id: node for node in tree.subtree(sql, root_id)}
    children: dict[str, list[str]] = defaultdict(list)
    for node in nodes.values():
        if node.id != root_id and node.parent_id is not None:
            children[node.parent_id].append(node.id)
    rows = sql.execute("SELECT node_id, kind FROM places WHERE file_id = ? AND number > 0 ORDER BY number", (file_id,))
    # Nodes that were moved to another document are left out.
    imported_rows = [(node_id, kind) for node_id, kind in rows if node_id in nodes]
    return _Document(root_id, nodes, dict(children), [p[0] for p in imported_rows], [p[1] for p in imported_rows])


def _match_outline(document: _Document, outline: Outline, contexts: Sequence[NodeContext]) -> list[int | None]:
    position = {node_id: at for at, node_id in enumerate(document.imported_ids)}
    parents = []
    for node_id in document.imported_ids:
        ancestor_id = document.nodes[node_id].parent_id
        while ancestor_id is not None and ancestor_id not in position and ancestor_id != document.root:
            ancestor_id = document.nodes[ancestor_id].parent_id
        parents.append(position.get(ancestor_id or "", -1))
    nodes = [document.nodes[node_id] for node_id in document.imported_ids]
    old = DocumentState(document.kinds, [node.text for node in nodes], [node.context_value for node in nodes], parents)
    new = DocumentState(
        [piece.kind for piece in outline.pieces],
        [outline.text[piece.start : piece.end] for piece in outline.pieces],
        [context.value for context in contexts],
        parents_of(outline),
    )
    return match_pieces(old, new)


def _write_layout(
    edit: Edit,
    document: _Document,
    layout: Mapping[str, list[str]],
    orphans: Collection[str],
    drafts: dict[str, NodeDraft],
) -> None:
    """Write the planned layout from the top down, so that a parent exists before its children."""
    containers = [document.root]
    for container in containers:
        child_ids = layout.get(container, [])
        containers += [node_id for node_id in child_ids if node_id in layout]
        members = set(child_ids)
        has_same_order = child_ids == [
            node_id for node_id in document.children.get(container, ()) if node_id in members
        ]
        if not has_same_order and container in document.nodes:
            park(edit.sql, container)
        for number, node_id in enumerate(child_ids, 1):
            draft, node = drafts.get(node_id), document.nodes.get(node_id)
            if node is None:
                assert draft is not None
                edit.add(container, float(number), draft)
            else:
                _update_node(
                    edit, node, container, None if has_same_order else float(number), draft, node_id in orphans
                )
            crash_point("documents.refresh.one")


def _update_node(
    edit: Edit, node: Node, container: str, order: float | None, draft: NodeDraft | None, is_orphan: bool
) -> None:
    changes: dict[str, object] = {}
    if order is not None:
        node = tree.get(edit.sql, node.id)  # read again: `park` has changed its order
        changes |= {"parent_id": container, "order_value": order}
    if is_orphan:
        changes["context_name"] = "orphaned"
    if draft is not None and (draft.text != node.text or draft.context != node.context):
        context = draft.context
        changes |= {"text": draft.text, "context_type": context.type, "context_name": context.name}
        changes["context_value"] = context.value
    if changes:
        edit.change(node, keep_version=draft is not None and draft.text != node.text, **changes)


def context_value(text: str, default: str) -> str:
    """Return the last 256 characters of `text` as a context value, or `default` if `text` is empty."""
    text = " ".join(text.split()) or default
    return text if len(text) <= _MAX_VALUE_CHARS else "…" + text[1 - _MAX_VALUE_CHARS :]


def section_contexts(outline: Outline) -> list[NodeContext]:
    """Return the context of each piece: its kind and the title of its section."""
    titles: list[str] = []
    for piece, parent in zip(outline.pieces, parents_of(outline), strict=True):
        titles.append(piece.title or (titles[parent] if parent >= 0 else outline.title))
    pairs = zip(outline.pieces, titles, strict=True)
    return [NodeContext(piece.kind, "section", context_value(title, "document")) for piece, title in pairs]


def import_outline(edit: Edit, outline: Outline, root_context: NodeContext) -> tuple[str, list[str]]:
    """Write an outline as a new document; return the ids of its root and its pieces."""
    root = edit.add(None, 0.0, NodeDraft(root_context, outline.title, 1))
    ids = edit.free_ids(len(outline.pieces))
    edit.insert_all(_nodes(edit, root.id, ids, outline))
    return root.id, ids


def _nodes(edit: Edit, root_id: str, ids: Sequence[str], outline: Outline) -> Iterator[Node]:
    orders: Counter[int] = Counter()
    columns = zip(ids, outline.pieces, outline.tokens, section_contexts(outline), parents_of(outline), strict=True)
    for node_id, piece, tokens, context, parent in columns:
        orders[parent] += 1
        draft = NodeDraft(context, outline.text[piece.start : piece.end], 1, tokens=tokens)
        yield edit.build_node(node_id, root_id if parent < 0 else ids[parent], float(orders[parent]), draft)
        crash_point("documents.import.one")


def write_places(
    sql: sqlite3.Connection,
    file_id: int,
    root_id: str,
    outline: Outline,
    node_ids: Sequence[str],
    old_paragraphs: Mapping[str, Sequence[str]],
) -> None:
    """Record each node's place in its file and the text up to the next node; delete the vectors of changed paragraphs."""
    sql.execute("DELETE FROM places WHERE file_id = ?", (file_id,))
    gaps = outline.gaps()
    pages = outline.lines() if outline.format == "pdf" else []  # a passage must not span two pages
    passages, roles = group_passages(
        outline.text, outline.pieces, outline.tokens, {at for at in range(1, len(pages)) if pages[at] != pages[at - 1]}
    )
    rows: list[tuple[object, ...]] = [(root_id, file_id, 0, 0, "root", 1, 1, next(gaps), 0)]
    columns = zip(node_ids, outline.pieces, passages, outline.lines(), gaps, roles, strict=True)
    for at, (node_id, piece, passage, lines, gap, role) in enumerate(columns, 1):
        rows.append((node_id, file_id, at, passage, piece.kind, *lines, gap, role))
    sql.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    new_paragraphs = _paragraphs(sql, file_id)
    changed_leads = [(lead,) for lead, members in old_paragraphs.items() if new_paragraphs.get(lead) != members]
    sql.executemany("DELETE FROM vectors WHERE key = (SELECT seq FROM nodes WHERE id = ?)", changed_leads)


def _paragraphs(sql: sqlite3.Connection, file_id: int) -> dict[str, list[str]]:
    """Return each paragraph of a file, keyed by the id of its first node: the ids and texts of its nodes."""
    paragraphs: dict[str, list[str]] = {}
    first = ""
    for node_id, text, role in sql.execute(
        "SELECT p.node_id, n.text, p.leads FROM places p JOIN nodes n ON n.id = p.node_id"
        " WHERE p.file_id = ? AND p.number > 0 AND p.kind <> 'heading' ORDER BY p.number",
        (file_id,),
    ):
        first = node_id if role else first
        paragraphs.setdefault(first, []).extend((node_id, text))
    return paragraphs


@frozen
class Letter:
    """A letter of a mail thread; `id` is its Message-ID."""

    id: str
    sender: str
    date: str
    text: str


def keep_thread(edit: Edit, subject: str, letters: Sequence[Letter], thread: str) -> Node:
    """Add the letters that are not stored yet to the document of their mail thread; return the document's root.

    `thread` is the Message-ID of the thread's first letter.
    """
    subject, root_id = mask(subject), f"thread-{hashlib.blake2b(thread.encode(), digest_size=6).hexdigest()}"
    classification = classify_thread(subject, [letter.text for letter in letters])
    context = NodeContext("root", "mail", classification.name)
    root = tree.find(edit.sql, root_id) or edit.add(None, 0.0, NodeDraft(context, subject, 1, id=root_id))
    if root.context != context:
        root = edit.change(root, context_name=context.name, context_value=context.value)
    edit.label(root.id, [*classification.tags, classification.name])
    known_letters = {(child.context_value, child.text) for child in tree.children(edit.sql, root.id)}
    for letter in letters:
        key, text = mask(context_value(f"{letter.sender} {letter.date} {letter.id}", "mail")), mask(letter.text)
        if (key, text) not in known_letters:
            draft = NodeDraft(NodeContext("message", "from", key), text, 1)
            edit.add(*edit.free_slot("child", root.id), draft)
    return tree.get(edit.sql, root.id)
