"""Where everything goes when a file has changed: its nodes as the file has them, and what others put among them.

Others' nodes are notes (which follow the node that they stand after), wrappers (summaries, which keep the members that
are still next to each other) and any other children that agents made. Nothing of theirs is lost: what has nothing left
to stand beside goes to the nearest heading and is marked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

__all__ = ["Layout", "relayout"]


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
