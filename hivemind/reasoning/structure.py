"""The live edges: who hangs on whom while some nodes are folded into summaries.

An edge that was drawn once stays a *base edge* for ever, with the ends it was drawn between. A live edge joins the
nodes that stand for those ends now: the nodes themselves, or the summaries they are folded into. So summaries can be
unfolded in any order, each giving back exactly what it took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from hivemind.reasoning.edge import Edge
from hivemind.reasoning.order import Order

__all__ = ["Above", "Structure", "standing"]

Above = tuple[int, ...] | dict[int, None]
"""The parents of a node. Most nodes have one, and a tuple is small; with many, a dict lets one go at once."""

_NO_CHILDREN: Mapping[int, Edge] = {}
_FEW = 8


class Structure:
    """Live edges by either end, an order of the nodes, and what is folded into what.

    It checks nothing but cycles: that is the graph's part. `undo`, where it is a list, gets the steps that lead back.
    """

    __slots__ = ("folded_into", "inside", "into", "order", "out", "undo")

    def __init__(self) -> None:
        self.out: dict[int, dict[int, Edge]] = {}
        self.into: dict[int, Above] = {}
        self.order = Order()
        self.folded_into: dict[int, int] = {}
        self.inside: dict[int, list[Edge]] = {}  # the edges between the members of a summary, while it stands
        self.undo: list[Callable[[], object]] | None = None

    def children(self, node: int) -> Mapping[int, Edge]:
        return self.out.get(node, _NO_CHILDREN)

    def parents(self, node: int) -> Above:
        return self.into.get(node, ())

    def live(self) -> Iterator[Edge]:
        """Every live edge, ordered by its newer end, then its older one."""
        out = self.out
        for dst, ends in sorted(self.into.items()):
            for src in sorted(ends) if len(ends) > 1 else ends:
                yield out[src][dst]

    def folded(self) -> list[Edge]:
        """The base edges of which at least one end is folded away."""
        if not self.folded_into:
            return []
        found = [base for edge in self.live() if edge.origin for base in edge.origin]
        found += [base for edges in self.inside.values() for edge in edges for base in edge.bases]
        return sorted(found, key=lambda edge: (edge.dst, edge.src))

    def insert(self, edge: Edge) -> list[int] | None:
        """Draw a live edge; gives None, or the path with which it would close a cycle (then nothing has changed)."""
        src, dst, rank = edge.src, edge.dst, self.order.rank
        if rank[dst] < rank[src]:
            path = self.order.forward(src, dst, self.out, self.into, self.undo)
            if path is not None:
                return path
        ends = self.out.get(src)
        if ends is None:
            self.out[src] = {dst: edge}
        else:
            ends[dst] = edge
        above = self.into.get(dst)
        self.into[dst] = (src,) if above is None else _with(above, src)
        if self.undo is not None:
            self.undo.append(partial(self.remove, src, dst))
        return None

    def remove(self, src: int, dst: int) -> Edge:
        """Take a live edge away."""
        ends = self.out[src]
        edge = ends.pop(dst)
        if not ends:
            del self.out[src]
        above = _without(self.into[dst], src)
        if above:
            self.into[dst] = above
        else:
            del self.into[dst]
        if self.undo is not None:
            self.undo.append(partial(self.insert, edge))
        return edge

    def fold(self, summary: int, members: Sequence[int]) -> None:
        """Let `summary`, a node without edges, stand for the members, which are convex."""
        inner, outer = set(members), dict[tuple[int, int], list[Edge]]()
        inside = []
        for member in members:
            for child in list(self.children(member)):
                edge = self.remove(member, child)
                if child in inner:
                    inside.append(edge)
                else:
                    outer.setdefault((summary, child), []).extend(edge.bases)
            for parent in list(self.parents(member)):
                if parent not in inner:
                    outer.setdefault((parent, summary), []).extend(self.remove(parent, member).bases)
        first = min(members, key=self.order.rank.__getitem__)
        self.order.swap(summary, first, self.undo)
        for (src, dst), bases in outer.items():
            self._insert_sound(standing(src, dst, bases))
        self.inside[summary] = inside
        for member in members:
            self.folded_into[member] = summary
        if self.undo is not None:
            self.undo.append(lambda: self._forget(summary, members))

    def unfold(self, summary: int, members: Sequence[int]) -> None:
        """Give the members back what the summary took; what was tied to the summary itself goes to the first member."""
        outer: dict[tuple[int, int], list[Edge]] = {}
        for child in list(self.children(summary)):
            for base in self.remove(summary, child).bases:
                member, base = self._give_back(base, summary, members[0], at_src=True)
                outer.setdefault((member, child), []).append(base)
        for parent in list(self.parents(summary)):
            for base in self.remove(parent, summary).bases:
                member, base = self._give_back(base, summary, members[0], at_src=False)
                outer.setdefault((parent, member), []).append(base)
        inside = self.inside[summary]
        self._forget(summary, members)
        if self.undo is not None:
            self.undo.append(lambda: self._remember(summary, members, inside))
        last = max(members, key=self.order.rank.__getitem__)
        self.order.swap(summary, last, self.undo)  # as it was before the fold
        for edge in inside:
            self._insert_sound(edge)
        for (src, dst), bases in outer.items():
            self._insert_sound(standing(src, dst, bases))

    def _give_back(self, base: Edge, summary: int, first: int, *, at_src: bool) -> tuple[int, Edge]:
        """The member that the base edge belongs to now, and the edge itself, redrawn if it was the summary's own."""
        end = base.src if at_src else base.dst
        if end == summary:
            src, dst = (first, base.dst) if at_src else (base.src, first)
            return first, Edge(src, dst, base.rationale, base.relation)
        while self.folded_into[end] != summary:
            end = self.folded_into[end]
        return end, base

    def _insert_sound(self, edge: Edge) -> None:
        path = self.insert(edge)
        assert path is None, f"folding convex nodes closed a cycle: {path}"

    def _forget(self, summary: int, members: Iterable[int]) -> None:
        del self.inside[summary]
        for member in members:
            del self.folded_into[member]

    def _remember(self, summary: int, members: Iterable[int], inside: list[Edge]) -> None:
        self.inside[summary] = inside
        for member in members:
            self.folded_into[member] = summary


def _with(above: Above, parent: int) -> Above:
    if isinstance(above, dict):
        above[parent] = None
        return above
    return (*above, parent) if len(above) < _FEW else dict.fromkeys((*above, parent))


def _without(above: Above, parent: int) -> Above:
    if isinstance(above, dict):
        del above[parent]
        return above
    return tuple(number for number in above if number != parent)


def standing(src: int, dst: int, bases: list[Edge]) -> Edge:
    """The live edge between two nodes for the base edges that it stands for, the first of which speaks for all.

    They are in the order in which a snapshot has them, so that one that is loaded says the same.
    """
    bases.sort(key=lambda edge: (edge.dst, edge.src))
    first = bases[0]
    if len(bases) == 1 and first.src == src and first.dst == dst:
        return first
    return Edge(src, dst, first.rationale, first.relation, tuple(bases))
