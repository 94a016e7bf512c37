"""An order of the nodes in which every edge goes forward, kept up to date edge by edge (Pearce and Kelly, 2006).

It makes the check for cycles cheap: an edge that already goes forward closes none, and for any other one only the
nodes that lie between its two ends are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

__all__ = ["Order", "as_way"]

_Neighbours = Mapping[int, Collection[int]]
_Undo = list[Callable[[], object]] | None
_NONE: Collection[int] = ()


class Order:
    """Ranks of nodes. `rank[src] < rank[dst]` for every edge that was announced by `forward`.

    No two nodes may have one rank: a search that stops at a rank would pass one of them by. So what is undone gives each
    node its own rank back, before a node that was new is taken out and another gets its number: `undo`, where it is a
    list, gets that step.
    """

    __slots__ = ("rank",)

    def __init__(self) -> None:
        self.rank: dict[int, int] = {}

    def add(self, node: int) -> None:
        """Put a new node, which has no edges, behind all older ones: ranks are the ids, in another order."""
        self.rank[node] = node

    def swap(self, one: int, other: int, undo: _Undo = None) -> None:
        """Exchange the places of two nodes without edges."""
        self.rank[one], self.rank[other] = self.rank[other], self.rank[one]
        if undo is not None:
            undo.append(partial(self.swap, one, other))

    def forward(self, src: int, dst: int, out: _Neighbours, into: _Neighbours, undo: _Undo = None) -> list[int] | None:
        """Make an edge src → dst go forward; gives None, or the path dst → … → src that closes a cycle with it."""
        rank = self.rank
        low, high = rank[dst], rank[src]
        if high < low:
            return None
        came = {dst: 0}
        todo = [dst]
        while todo:
            node = todo.pop()
            for child in out.get(node, _NONE):
                if child == src:
                    return [*_path(came, node), src]
                if rank[child] < high and child not in came:
                    came[child] = node
                    todo.append(child)
        before = {src}
        todo = [src]
        while todo:
            for parent in into.get(todo.pop(), _NONE):
                if rank[parent] > low and parent not in before:
                    before.add(parent)
                    todo.append(parent)
        self._reorder(before, came, undo)
        return None

    def _reorder(self, first: Iterable[int], then: Iterable[int], undo: _Undo) -> None:
        rank = self.rank
        nodes = sorted(first, key=rank.__getitem__) + sorted(then, key=rank.__getitem__)
        if undo is not None:
            undo.append(partial(rank.update, {node: rank[node] for node in nodes}))
        for node, place in zip(nodes, sorted(rank[node] for node in nodes), strict=True):
            rank[node] = place

    def way_back(self, members: set[int], out: _Neighbours) -> list[int] | None:
        """A path that leaves `members` and comes back to them, or None: then they are convex (spec 4, *fold*)."""
        rank = self.rank
        last = max(rank[node] for node in members)
        came: dict[int, int] = {}
        todo = []
        for member in members:
            for child in out.get(member, _NONE):
                if child not in members and child not in came and rank[child] < last:
                    came[child] = member
                    todo.append(child)
        while todo:
            node = todo.pop()
            for child in out.get(node, _NONE):
                if child in members:
                    return [*_path(came, node), child]
                if child not in came and rank[child] < last:
                    came[child] = node
                    todo.append(child)
        return None


def _path(came: Mapping[int, int], node: int) -> list[int]:
    path = [node]
    while came.get(node):
        node = came[node]
        path.append(node)
    return path[::-1]


def as_way(path: list[int]) -> str:
    """A path for people: `2 → 3 → … → 9`."""
    shown = [str(node) for node in path]
    return " → ".join(shown if len(shown) <= 8 else [*shown[:5], "…", *shown[-2:]])
