"""Outlines and mail threads as nodes, each with its place in the file; a document brought in line with its changed file: what
is still there keeps its id, notes and summaries (seed 003, *Import*; spec 5)."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from hivemind.documents import orders, tree
from hivemind.documents.classes import classify_thread
from hivemind.documents.edit import Draft, Edit
from hivemind.documents.formats import Outline
from hivemind.documents.node import Context, Node
from hivemind.documents.passages import drop_meanings, group
from hivemind.fs import reached
from hivemind.masking import mask

__all__ = [
    "Letter", "Side", "import_outline", "keep_thread", "match", "refresh", "section_contexts", "value",
    "write_places",
]  # fmt: skip

_ALIKE = 0.4  # from this share of common words on, a changed text is taken for the same one
_MOST_PAIRS = 2_500  # beyond this, likeness costs more than it is worth
_COMPARED = 4_000  # characters of a text
_LONGEST_VALUE = 256
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Side:
    """One state of a document, in reading order: of each piece its kind, text, section title and parent's position.

    A parent of −1 is the document itself.
    """

    kinds: Sequence[str]
    texts: Sequence[str]
    sections: Sequence[str]
    parents: Sequence[int]

    def __len__(self) -> int:
        return len(self.kinds)

    def children(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for at, parent in enumerate(self.parents):
            found[parent].append(at)
        return found


def parents_of(depths: Sequence[int]) -> list[int]:
    """The position of each one's parent: the nearest earlier one of smaller depth, or −1."""
    above: list[tuple[int, int]] = [(0, -1)]
    found = []
    for at, depth in enumerate(depths):
        while above[-1][0] >= depth:
            above.pop()
        found.append(above[-1][1])
        above.append((depth, at))
    return found


def match(old: Side, new: Side) -> list[int | None]:
    """For each new piece the old one that it is, or None. No old one is given twice; linear in both sides.

    First what has the same kind, text and section, then the same kind and text; what is left over: of the same kind,
    under the same parent, between the same neighbours.
    """
    found: list[int | None] = [None] * len(new)
    taken = [False] * len(old)
    for with_section in (True, False):
        waiting: dict[Hashable, deque[int]] = defaultdict(deque)
        for at in range(len(old)):
            if not taken[at]:
                waiting[_key(old, at, with_section)].append(at)
        for at in range(len(new)):
            if found[at] is None and (queue := waiting.get(_key(new, at, with_section))):
                found[at] = here = queue.popleft()
                taken[here] = True
    _by_place(old, new, found, taken)
    return found


def _key(side: Side, at: int, with_section: bool) -> Hashable:
    section = side.sections[at] if with_section else None
    return side.kinds[at], side.texts[at], section


def _by_place(old: Side, new: Side, found: list[int | None], taken: list[bool]) -> None:
    old_children, new_children = old.children(), new.children()
    for parent in (-1, *range(len(new))):  # parents come before their children
        old_parent = -1 if parent < 0 else found[parent]
        if old_parent is None or parent not in new_children:
            continue
        before = old_children.get(old_parent, [])
        position = {at: place for place, at in enumerate(before)}
        gap: list[int] = []
        left = -1
        for at in (*new_children[parent], None):
            here = None if at is None else found[at]
            if at is not None and here is None:
                gap.append(at)
            elif at is None or here in position:
                right = len(before) if here is None else position[here]
                end = min(right, left + 1 + max(_MOST_PAIRS, len(gap))) if gap else 0
                free = [there for there in before[left + 1 : end] if not taken[there]]
                for new_at, old_at in _align(old, new, free, gap):
                    found[new_at], taken[old_at] = old_at, True
                gap, left = [], right


def _align(old: Side, new: Side, free: Sequence[int], gap: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of one kind between the same neighbours: first those that share most words, then the others in order."""
    rest_old, rest_new = list(free), list(gap)
    if len(free) * len(gap) <= _MOST_PAIRS:
        alike = [
            (-_likeness(old.texts[old_at], new.texts[new_at]), new_at, old_at)
            for new_at in gap
            for old_at in free
            if old.kinds[old_at] == new.kinds[new_at]
        ]
        for likeness, new_at, old_at in sorted(alike):
            if -likeness >= _ALIKE and new_at in rest_new and old_at in rest_old:
                rest_new.remove(new_at)
                rest_old.remove(old_at)
                yield new_at, old_at
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for old_at in rest_old:
        waiting[old.kinds[old_at]].append(old_at)
    for new_at in rest_new:
        if queue := waiting[new.kinds[new_at]]:
            yield new_at, queue.popleft()


def _likeness(one: str, two: str) -> float:
    """The share of words that two texts have in common (Jaccard)."""
    words, others = (set(text[:_COMPARED].casefold().split()) for text in (one, two))
    return len(words & others) / len(words | others) if words or others else 1.0


@dataclass(slots=True)
class Layout:
    """The children of each container, in order, and the notes and summaries whose node is gone."""

    children: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    orphans: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Tree:
    """The document as it stands: children and parent of each node, and which of them came from the file."""

    root: str
    children: Mapping[str, Sequence[str]]
    parent: Mapping[str, str]
    placed: Collection[str]

    def wraps(self, node_id: str) -> bool:
        """Whether it is one of the others' nodes, with nodes of the file below it, in further ones of theirs too."""
        return node_id not in self.placed and any(
            child in self.placed or self.wraps(child) for child in self.children.get(node_id, ())
        )

    def wrappers_of(self, node_id: str) -> tuple[str, ...]:
        """Others' nodes between the node and the nearest one above that came from the file, outermost first."""
        between: list[str] = []
        above = self.parent.get(node_id)
        while above is not None and above not in self.placed:
            between.append(above)
            above = self.parent.get(above)
        return tuple(reversed(between))


def relayout(
    root: str,
    children: Mapping[str, Sequence[str]],
    placed: Collection[str],
    pieces: Sequence[tuple[str, str]],
    notes: Collection[str],
) -> Layout:
    """The new layout of a document below `root`.

    `children` is the tree as it stands; `placed` are its nodes that came from the file, the root among them; `pieces`
    are (id, parent's id) of what the file holds now, in reading order: ids in `placed` are kept, others are new ones;
    `notes` are those of the others' nodes that speak of what they stand after.
    """
    parent = {child: above for above, below in children.items() for child in below}
    tree = _Tree(root, children, parent, placed)
    kept = {root, *(node_id for node_id, _ in pieces)}
    layout = Layout()
    used = _place_pieces(tree, pieces, layout)
    places = _Places(tree, layout, kept | used)
    for follower in _followers(tree, used, notes):
        places.put(follower)
    return layout


def _place_pieces(tree: _Tree, pieces: Sequence[tuple[str, str]], layout: Layout) -> set[str]:
    """Put the file's pieces into their sections, inside the wrappers that they were in; gives the wrappers used."""
    sections: dict[str, list[str]] = defaultdict(list)
    for node_id, section in pieces:
        sections[section].append(node_id)
    used: set[str] = set()
    for section, members in sections.items():
        chains = [tree.wrappers_of(member) if member in tree.placed else () for member in members]
        following = _next_chains(chains)
        opened: tuple[str, ...] = ()
        for at, member in enumerate(members):
            wanted = chains[at] or _common(opened, following[at])  # what is new between two members joins them
            opened = _enter(layout, used, section, opened, wanted)
            layout.children[opened[-1] if opened else section].append(member)
    return used


def _next_chains(chains: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """For each member the wrappers of the next one that has any."""
    found: list[tuple[str, ...]] = []
    following: tuple[str, ...] = ()
    for chain in reversed(chains):
        found.append(following)
        following = chain or following
    return found[::-1]


def _common(one: Sequence[str], two: Sequence[str]) -> tuple[str, ...]:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))
    return tuple(wrapper for wrapper, _ in same)


def _enter(
    layout: Layout, used: set[str], section: str, opened: tuple[str, ...], wanted: tuple[str, ...]
) -> tuple[str, ...]:
    """The wrappers that the next member goes into: those wanted, but none that was left before."""
    inside = _common(opened, wanted)
    for wrapper in wanted[len(inside) :]:
        if wrapper in used:
            break
        used.add(wrapper)
        layout.children[inside[-1] if inside else section].append(wrapper)
        inside = (*inside, wrapper)
    return inside


@dataclass(frozen=True, slots=True)
class _Follower:
    """One of the others' nodes that holds nothing of the file: where it is, and what it stands after."""

    id: str
    container: str
    anchor: str | None
    is_note: bool


def _followers(tree: _Tree, used: Collection[str], notes: Collection[str]) -> Iterator[_Follower]:
    stack = [tree.root]
    while stack:
        container = stack.pop()
        anchor: str | None = None
        below = tree.children.get(container, ())
        for node_id in below:
            if node_id in tree.placed or node_id in used:
                anchor = node_id
            else:
                yield _Follower(node_id, container, anchor, node_id in notes)
        stack += [node_id for node_id in reversed(below) if node_id in tree.placed or tree.wraps(node_id)]


class _Places:
    """Puts followers into a layout, each after what it stood after and after those that are there already."""

    def __init__(self, tree: _Tree, layout: Layout, alive: Collection[str]) -> None:
        self._tree = tree
        self._layout = layout
        self._alive = alive
        self._home = {child: above for above, below in layout.children.items() for child in below}
        self._done: set[str] = set()

    def put(self, follower: _Follower) -> None:
        anchor, container = follower.anchor, follower.container
        lost = anchor is not None and anchor not in self._alive
        if anchor is not None and not lost and (follower.is_note or self._home[anchor] == container):
            container = self._home[anchor]
        else:
            while container not in self._alive:
                container, lost = self._tree.parent[container], True
            anchor = None if anchor is None and container == follower.container else ""
        if self._tree.wraps(follower.id) or (follower.is_note and lost):
            self._layout.orphans.add(follower.id)
        beside = self._layout.children[container]
        beside.insert(self._position(beside, anchor), follower.id)
        self._home[follower.id] = container
        self._done.add(follower.id)

    def _position(self, beside: Sequence[str], anchor: str | None) -> int:
        """After the anchor (None: at the beginning; "": at the end) and those that follow it already."""
        if anchor == "":
            return len(beside)
        at = 0 if anchor is None else beside.index(anchor) + 1
        while at < len(beside) and beside[at] in self._done:
            at += 1
        return at


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


def value(text: str, default: str) -> str:
    """`text` as a context value: its last 256 characters, or `default` if it has none."""
    text = " ".join(text.split()) or default
    return text if len(text) <= _LONGEST_VALUE else "…" + text[1 - _LONGEST_VALUE :]


def section_contexts(outline: Outline) -> list[Context]:
    """The context of each piece: its kind, and the title of the section that it stands in."""
    titles: list[tuple[int, str]] = [(0, outline.title)]
    found = []
    for piece in outline.pieces:
        while titles[-1][0] >= piece.depth:
            titles.pop()
        if piece.title:
            titles.append((piece.depth, piece.title))
        found.append(Context(piece.kind, "section", value(titles[-1][1], "document")))
    return found


def import_outline(edit: Edit, outline: Outline, root_context: Context) -> tuple[str, list[str]]:
    """Write a new document with the outline's nodes; gives the root's id and those of the pieces."""
    root = edit.add(None, 0.0, Draft(root_context, outline.title, 1))
    ids = edit.free_ids(len(outline.pieces))
    edit.insert_all(_nodes(edit, root.id, ids, outline))
    return root.id, ids


def _nodes(edit: Edit, root_id: str, ids: Sequence[str], outline: Outline) -> Iterator[Node]:
    above: list[tuple[int, str]] = [(0, root_id)]
    counts: dict[str, int] = {}
    each = zip(ids, outline.pieces, outline.tokens, section_contexts(outline), strict=True)
    for node_id, piece, tokens, context in each:
        while above[-1][0] >= piece.depth:
            above.pop()
        parent_id = above[-1][1]
        counts[parent_id] = order = counts.get(parent_id, 0) + 1
        text = outline.text[piece.start : piece.end]
        yield edit.made(node_id, parent_id, float(order), Draft(context, text, 1, tokens=tokens))
        above.append((piece.depth, node_id))
        reached("documents.import.one")


def write_places(
    sql: sqlite3.Connection, file_id: int, root_id: str, outline: Outline, node_ids: Sequence[str]
) -> None:
    """Remember where in the file each node stands, and what stands between them."""
    before = _compositions(sql, file_id)
    sql.execute("DELETE FROM places WHERE file_id = ?", (file_id,))
    gaps = outline.gaps()
    pages = outline.lines() if outline.format == "pdf" else []  # a page is cited by itself
    passages = group(
        outline.text, outline.pieces, outline.tokens, {at for at in range(1, len(pages)) if pages[at] != pages[at - 1]}
    )
    rows: list[tuple[object, ...]] = [(root_id, file_id, 0, 0, "root", 1, 1, next(gaps), 0)]
    each = zip(node_ids, outline.pieces, passages, outline.lines(), gaps, strict=True)
    for at, (node_id, piece, passage, lines, gap) in enumerate(each, 1):
        leads = piece.kind != "heading" and (at == 1 or passage != passages[at - 2])
        rows.append((node_id, file_id, at, passage, piece.kind, *lines, gap, int(leads)))
    sql.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    after = _compositions(sql, file_id)
    drop_meanings(sql, [lead for lead, members in before.items() if after.get(lead) != members])


def _compositions(sql: sqlite3.Connection, file_id: int) -> dict[str, list[str]]:
    """The nodes of each passage of a file, by the first of them."""
    found: dict[int, list[str]] = {}
    for passage, node_id in sql.execute(
        "SELECT passage, node_id FROM places WHERE file_id = ? AND number > 0 ORDER BY number", (file_id,)
    ):
        found.setdefault(passage, []).append(node_id)
    return {members[0]: members for members in found.values()}


@dataclass(frozen=True, slots=True)
class Letter:
    """A message of a thread: its id (Message-ID), who wrote it and when, and what it says."""

    id: str
    sender: str
    date: str
    text: str


def keep_thread(edit: Edit, subject: str, letters: Sequence[Letter], thread: str) -> Node:
    """Write what is new of a thread, known by the Message-ID that it began with; returns its root. Letters are readonly, each
    there once."""
    subject, root_id = mask(subject), f"thread-{hashlib.blake2b(thread.encode(), digest_size=6).hexdigest()}"
    found = classify_thread(subject, [letter.text for letter in letters])
    context = Context("root", "mail", found.name)
    root = tree.find(edit.sql, root_id) or edit.add(None, 0.0, Draft(context, subject, 1, id=root_id))
    if root.context != context:
        root = edit.change(root, context_name=context.name, context_value=context.value)
    edit.label(root.id, [*found.tags, found.name])
    known = {(child.context_value, child.text) for child in tree.children(edit.sql, root.id)}
    for letter in letters:
        key, text = mask(value(f"{letter.sender} {letter.date} {letter.id}", "mail")), mask(letter.text)
        if (key, text) not in known:
            draft = Draft(Context("message", "from", key), text, 1)
            edit.add(root.id, edit.last_in(root.id), draft)
    return tree.get(edit.sql, root.id)
