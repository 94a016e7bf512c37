"""Outlines and mail threads as nodes, each with its place in the file; a document brought in line with its changed file: what
is still there keeps its id, notes and summaries (seed 003, *Import*; spec 5)."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import takewhile

from hivemind.documents import tree
from hivemind.documents.classes import classify_thread
from hivemind.documents.edit import Draft, Edit, park
from hivemind.documents.formats import Outline
from hivemind.documents.node import Context, Node
from hivemind.documents.passages import group
from hivemind.frozen import frozen
from hivemind.fs import reached
from hivemind.masking import mask

_ALIKE = 0.4  # from this share of common words on, a changed text is taken for the same one
_MOST_PAIRS = 2_500  # beyond this, likeness costs more than it is worth
_COMPARED = 4_000  # characters of a text
_LONGEST_VALUE = 256
_log = logging.getLogger(__name__)


@frozen
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


def parents_of(outline: Outline) -> list[int]:
    """The position of each piece's parent: the nearest earlier one of smaller depth, or −1."""
    above: list[tuple[int, int]] = [(0, -1)]
    found = []
    for at, piece in enumerate(outline.pieces):
        while above[-1][0] >= piece.depth:
            above.pop()
        found.append(above[-1][1])
        above.append((piece.depth, at))
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


def relayout(
    root: str,
    children: Mapping[str, Sequence[str]],
    placed: Collection[str],
    pieces: Sequence[tuple[str, str]],
    notes: Collection[str],
) -> tuple[dict[str, list[str]], set[str]]:
    """The new layout of a document below `root`: the children of each container, in order, and the notes and summaries whose
    node is gone.

    `children` is the tree as it stands; `placed` are its nodes that came from the file, the root among them; `pieces`
    are (id, parent's id) of what the file holds now, in reading order: ids in `placed` are kept, others are new ones;
    `notes` are those of the others' nodes that speak of what they stand after.
    """
    parent = {child: above for above, below in children.items() for child in below}
    chains = {node_id: _wrappers(node_id, parent, placed) for node_id in placed}
    wraps = {wrapper for chain in chains.values() for wrapper in chain}
    layout, home = _with_pieces(pieces, chains)
    orphans, alive, done = set[str](), {root, *home}, set[str]()
    containers = [root]
    while containers:
        container = containers.pop()
        below = children.get(container, ())
        containers += [node_id for node_id in reversed(below) if node_id in placed or node_id in wraps]
        anchor: str | None = None
        for node_id in below:
            if node_id in placed or node_id in home:
                anchor = node_id
                continue
            place, at, is_note = container, 0, node_id in notes
            lost = anchor is not None and anchor not in alive
            if anchor is not None and not lost and (is_note or home[anchor] == container):
                place = home[anchor]  # it follows what it stands after
                at = layout[place].index(anchor) + 1
            else:
                while place not in alive:
                    place, lost = parent[place], True
                at = 0 if anchor is None and place == container else len(layout[place])
            while at < len(layout[place]) and layout[place][at] in done:
                at += 1
            layout[place].insert(at, node_id)
            done.add(node_id)
            if node_id in wraps or (is_note and lost):
                orphans.add(node_id)
    return layout, orphans


def _wrappers(node_id: str, parent: Mapping[str, str], placed: Collection[str]) -> tuple[str, ...]:
    """Others' nodes between the node and the nearest one above that came from the file, outermost first."""
    found: list[str] = []
    above = parent.get(node_id)
    while above is not None and above not in placed:
        found.append(above)
        above = parent.get(above)
    return tuple(reversed(found))


def _with_pieces(
    pieces: Sequence[tuple[str, str]], chains: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The layout of the file's pieces, inside the wrappers that they were in (what is new between two members joins them);
    and the container of each piece and wrapper in it."""
    sections = {section: rank for rank, section in enumerate(dict.fromkeys(section for _, section in pieces))}
    ordered = sorted(pieces, key=lambda piece: sections[piece[1]])
    following: dict[str, tuple[str, ...]] = {}  # by section: the wrappers of the next member that has any
    wanted = []
    for node_id, section in reversed(ordered):
        wanted.append((chains.get(node_id, ()), following.get(section, ())))
        following[section] = chains.get(node_id, ()) or following.get(section, ())
    layout: dict[str, list[str]] = defaultdict(list)
    home: dict[str, str] = {}
    opened: dict[str, tuple[str, ...]] = {}
    for (node_id, section), (own, next_own) in zip(ordered, reversed(wanted), strict=True):
        before = opened.get(section, ())
        chain = own or _common(before, next_own)
        inside = _common(before, chain)
        for wrapper in chain[len(inside) :]:
            if wrapper in home:  # it was left before
                break
            home[wrapper] = inside[-1] if inside else section
            layout[home[wrapper]].append(wrapper)
            inside = (*inside, wrapper)
        opened[section] = inside
        home[node_id] = inside[-1] if inside else section
        layout[home[node_id]].append(node_id)
    return layout, home


def _common(one: Sequence[str], two: Sequence[str]) -> tuple[str, ...]:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))
    return tuple(wrapper for wrapper, _ in same)


@frozen
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
    new_ids = iter(edit.free_ids(found.count(None)))
    ids = [next(new_ids) if at is None else document.placed[at] for at in found]
    parents = parents_of(outline)
    pieces = [(node_id, root_id if up < 0 else ids[up]) for node_id, up in zip(ids, parents, strict=True)]
    notes = {node.id for node in document.nodes.values() if node.context_type == "note"}
    layout, orphans = relayout(root_id, document.children, {root_id, *document.placed}, pieces, notes)
    wanted = {
        node_id: Draft(context, outline.text[piece.start : piece.end], 1, id=node_id, tokens=tokens)
        for node_id, context, piece, tokens in zip(ids, contexts, outline.pieces, outline.tokens, strict=True)
    }
    _write(edit, document, layout, orphans, wanted)
    gone = [node_id for node_id in document.placed if node_id not in wanted]
    edit.remove(gone)
    write_places(edit.sql, file_id, root_id, outline, ids)
    for node_id in sorted(orphans):
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
        parents_of(outline),
    )
    return match(old, new)


def _write(
    edit: Edit, document: _Document, layout: Mapping[str, list[str]], orphans: Collection[str], wanted: dict[str, Draft]
) -> None:
    """Containers from the top down, so that parents are there before their children."""
    containers = [document.root]
    for container in containers:
        below = layout.get(container, [])
        containers += [node_id for node_id in below if node_id in layout]
        members = set(below)
        stays = below == [node_id for node_id in document.children.get(container, ()) if node_id in members]
        if not stays and container in document.nodes:
            park(edit.sql, container)
        for place, node_id in enumerate(below, 1):
            draft, node = wanted.get(node_id), document.nodes.get(node_id)
            if node is None:
                assert draft is not None
                edit.add(container, float(place), draft)
            else:
                _change(edit, node, container, None if stays else float(place), draft, node_id in orphans)
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
    titles: list[str] = []
    for piece, parent in zip(outline.pieces, parents_of(outline), strict=True):
        titles.append(piece.title or (titles[parent] if parent >= 0 else outline.title))
    each = zip(outline.pieces, titles, strict=True)
    return [Context(piece.kind, "section", value(title, "document")) for piece, title in each]


def import_outline(edit: Edit, outline: Outline, root_context: Context) -> tuple[str, list[str]]:
    """Write a new document with the outline's nodes; gives the root's id and those of the pieces."""
    root = edit.add(None, 0.0, Draft(root_context, outline.title, 1))
    ids = edit.free_ids(len(outline.pieces))
    edit.insert_all(_nodes(edit, root.id, ids, outline))
    return root.id, ids


def _nodes(edit: Edit, root_id: str, ids: Sequence[str], outline: Outline) -> Iterator[Node]:
    orders: Counter[int] = Counter()
    each = zip(ids, outline.pieces, outline.tokens, section_contexts(outline), parents_of(outline), strict=True)
    for node_id, piece, tokens, context, parent in each:
        orders[parent] += 1
        draft = Draft(context, outline.text[piece.start : piece.end], 1, tokens=tokens)
        yield edit.made(node_id, root_id if parent < 0 else ids[parent], float(orders[parent]), draft)
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
    others = [(lead,) for lead, members in before.items() if after.get(lead) != members]  # than they were
    sql.executemany("DELETE FROM vectors WHERE key = (SELECT seq FROM nodes WHERE id = ?)", others)


def _compositions(sql: sqlite3.Connection, file_id: int) -> dict[str, list[str]]:
    """The nodes of each passage of a file, by the first of them."""
    found: dict[int, list[str]] = {}
    for passage, node_id in sql.execute(
        "SELECT passage, node_id FROM places WHERE file_id = ? AND number > 0 ORDER BY number", (file_id,)
    ):
        found.setdefault(passage, []).append(node_id)
    return {members[0]: members for members in found.values()}


@frozen
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
            edit.add(*edit.place("child", root.id), draft)
    return tree.get(edit.sql, root.id)
