"""What a graph holds, and the questions to it: nodes, edges as they were drawn, links, and what is folded into what.

A drawn edge keeps its ends for ever. A *live* edge joins the nodes that stand for those ends now: the nodes themselves, or
the summaries that they are folded into. It is computed, so folding moves nothing and summaries unfold in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, Self

from hivemind.frozen import frozen
from hivemind.reasoning.node import FLUSHED, SHARED, Edge, GraphError, Link, NodeKind, ReasoningNode, as_kind, as_lane

_LONGEST = 20  # digits of an id; of thousands of them Python makes no number
_MAX_INDENT = 16
_NOT_TOPICS = frozenset({"subgoal", "assumption", "pinned", "unstructured"})  # tags that say what a card is


@frozen
class Conflict:
    """Active nodes of one tag and one kind that don't say the same; `node_ids` are sorted."""

    tag: str
    kind: NodeKind
    node_ids: tuple[int, ...]


class Structure:
    """The state of a graph. Of arguments it checks ids only; `ReasoningGraph` changes it, and checks the rest.

    Every change goes through `_put`, `_drop` and `_set`, which note in a transaction how to take it back.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, ReasoningNode] = {}
        self.links: dict[tuple[int, int, str], Link] = {}
        self.folded_into: dict[int, int] = {}
        self.next_id = 1
        self.seq = 0
        self._members: dict[int, Sequence[int]] = {}  # of each summary that stands for others
        self._out: dict[int, dict[int, Edge]] = {}
        self._into: dict[int, tuple[int, ...]] = {}
        self._links_from: dict[int, dict[Link, None]] = {}
        self._links_to: dict[int, dict[Link, None]] = {}
        self._of_step: dict[str, dict[int, None]] = {}
        self._loose: dict[int, None] = {}  # nodes that no edge was ever drawn to, other than the task node
        self._root: int | None = None
        self._undo: list[Callable[[], object]] | None = None
        self._replays = False

    # -- changing, all or nothing ------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """All that is done inside, or nothing of it if it raises. Counts as one change; may be nested."""
        outer, counters = self._undo, (self.next_id, self.seq, self._root)
        undo: list[Callable[[], object]] = []
        self._undo = undo
        if outer is None:
            self.seq += 1
        try:
            yield self
        except BaseException:
            for step in reversed(undo):
                step()
            self.next_id, self.seq, self._root = counters
            raise
        else:
            if outer is not None:
                outer += undo
            elif not undo:
                self.seq = counters[1]
        finally:
            self._undo = outer

    @contextmanager
    def replay(self, seq: int) -> Iterator[None]:
        """All that is done inside is the change of that number, said before. It is not taken back where it raises: noting how
        would double the time that a long log takes."""
        self.seq, self._replays = seq, True
        try:
            yield
        finally:
            self._replays = False

    def _put(self, table: dict[Any, Any], key: object, value: object) -> None:
        if self._undo is not None:
            self._undo.append(partial(table.__setitem__, key, table[key]) if key in table else partial(table.pop, key))
        table[key] = value

    def _drop(self, table: dict[Any, Any], key: object) -> None:
        if self._undo is not None:
            self._undo.append(partial(table.__setitem__, key, table[key]))
        del table[key]

    def _set(self, node: ReasoningNode, name: str, value: object) -> None:
        if self._undo is not None:
            self._undo.append(partial(setattr, node, name, getattr(node, name)))
        if name == "step" and node.step is not None:
            self._drop(self._of_step[node.step], node.node_id)
        setattr(node, name, value)
        if name == "step" and node.step is not None:
            self._put(self._of_step.setdefault(node.step, {}), node.node_id, None)

    def _tick(self) -> int:
        if self._undo is None and not self._replays:
            self.seq += 1
        return self.seq

    def take_node(self, node: ReasoningNode) -> None:
        """Take in a node under its own number, which is the highest."""
        if node.kind is not NodeKind.TASK:
            self._put(self._loose, node.node_id, None)
        elif self._root is None:
            self._root = node.node_id
        else:
            raise GraphError(f"a graph has one task node, and node {self._root} is it")
        self._put(self.nodes, node.node_id, node)
        if node.step is not None:
            self._put(self._of_step.setdefault(node.step, {}), node.node_id, None)
        self.next_id = node.node_id + 1

    def take_edge(self, edge: Edge) -> None:
        """Draw an edge between nodes that are there; cycles are not looked for."""
        below = self._out.get(edge.src)
        if below is None:
            below = self._out[edge.src] = {}
        self._put(below, edge.dst, edge)
        self._put(self._into, edge.dst, (*self._into.get(edge.dst, ()), edge.src))
        if edge.dst in self._loose:
            self._drop(self._loose, edge.dst)

    def take_link(self, link: Link) -> None:
        """Take in a link between nodes that are there."""
        self._put(self.links, (link.src, link.dst, link.relation), link)
        self._put(self._links_from.setdefault(link.src, {}), link, None)
        self._put(self._links_to.setdefault(link.dst, {}), link, None)

    def take_fold(self, summary: int, members: Sequence[int]) -> None:
        """Let `summary`, to which no edge leads, stand for the members, which are convex."""
        self._put(self._members, summary, members)
        for member in members:
            self._put(self.folded_into, member, summary)
        if summary in self._loose:  # if nothing leads to it, nothing leads to one of its members, which tells
            self._drop(self._loose, summary)

    def take_apart(self, summary: int) -> None:
        """Let the members stand for themselves; the edges of the summary's own go to the first one."""
        members = self._members[summary]
        self._drop(self._members, summary)
        for member in members:
            self._drop(self.folded_into, member)
        above = [self._out[src][summary] for src in self._into.get(summary, ())]
        for edge in [*self._out.get(summary, {}).values(), *above]:
            self._drop(self._out[edge.src], edge.dst)
            self._put(self._into, edge.dst, tuple(src for src in self._into[edge.dst] if src != edge.src))
            src, dst = (members[0] if end == summary else end for end in (edge.src, edge.dst))
            self.take_edge(Edge(src, dst, edge.rationale, edge.relation))
        self._put(self._loose, summary, None)

    # -- edges -------------------------------------------------------------------------------------------------

    @property
    def drawn(self) -> list[Edge]:
        """The edges as they were drawn, ordered by their newer end, then their older one."""
        return [self._out[src][dst] for dst, above in sorted(self._into.items()) for src in sorted(above)]

    @property
    def edges(self) -> list[Edge]:
        """The live edges, in the same order; where one stands for several, the first of them speaks."""
        if not self.folded_into:
            return self.drawn
        live: dict[tuple[int, int], Edge] = {}
        for edge in self.drawn:
            src, dst = self.standing_id(edge.src), self.standing_id(edge.dst)
            if src != dst:
                same = (src, dst) == (edge.src, edge.dst)
                live.setdefault((dst, src), edge if same else Edge(src, dst, edge.rationale, edge.relation))
        return [edge for _, edge in sorted(live.items())]

    def child_ids(self, number: int) -> Collection[int]:
        """The nodes that live edges lead to."""
        return self._near(number, self._out)

    def parent_ids(self, number: int) -> Collection[int]:
        """The nodes that live edges come from."""
        return self._near(number, self._into)

    def _near(self, number: int, drawn: Mapping[int, Collection[int]]) -> Collection[int]:
        if not self.folded_into:
            return drawn.get(number, ())
        if number in self.folded_into:
            return ()
        found = {self.standing_id(end) for one in self._stood_for(number) for end in drawn.get(one, ())}
        found.discard(number)
        return found

    def _stood_for(self, number: int) -> list[int]:
        """The node and all that is folded into it, whatever the depth."""
        found = [number]
        for one in found:
            found += self._members.get(one, ())
        return found

    def standing_id(self, number: int) -> int:
        """The node that stands for it: itself, or the outermost summary that it is folded into."""
        while number in self.folded_into:
            number = self.folded_into[number]
        return number

    def in_order(self) -> list[int]:
        """What is not folded away, parents before their children. Raises GraphError that names a cycle."""
        near = {number: self.parent_ids(number) for number in self.nodes if number not in self.folded_into}
        try:
            return list(TopologicalSorter(near).static_order())
        except CycleError as error:
            raise GraphError(f"the edges close a cycle: {as_way(error.args[1])}") from None

    def way_down(self, tops: Collection[int], ends: Collection[int]) -> list[int] | None:
        """A path of live edges from one of `tops` down to one of `ends`, through at least one node that is not in `tops`."""
        below = dict.fromkeys(ends, 0)
        todo = list(ends)
        for node in todo:
            for parent in self.parent_ids(node):
                if parent in tops and node not in tops:
                    path = [parent, node]
                    while below[path[-1]]:
                        path.append(below[path[-1]])
                    return path
                if parent not in tops and parent not in below:
                    below[parent] = node
                    todo.append(parent)
        return None

    # -- questions: none looks at all edges, none recurses (spec 4, *Queries*) -----------------------------------

    @property
    def root(self) -> ReasoningNode | None:
        """The task node, if there is one."""
        return None if self._root is None else self.nodes[self._root]

    def node(self, node_id: int | str) -> ReasoningNode:
        """The node of that id. Raises GraphError if there is none."""
        return self.nodes[self._known(node_id)]

    def children(self, node_id: int | str) -> list[ReasoningNode]:
        """The nodes right below, by id."""
        return self._all(self.child_ids(self._known(node_id)))

    def parents(self, node_id: int | str) -> list[ReasoningNode]:
        """The nodes right above, by id."""
        return self._all(self.parent_ids(self._known(node_id)))

    def standing(self, node_id: int | str) -> ReasoningNode:
        """The node that stands for it: itself, or the outermost summary that it is folded into."""
        return self.nodes[self.standing_id(self._known(node_id))]

    def path_to_root(self, node_id: int | str) -> list[ReasoningNode]:
        """From the node to the task node, both included, by the oldest parent at each step."""
        path = [self.node(node_id)]
        while parents := self.parent_ids(path[-1].node_id):
            path.append(self.nodes[min(parents)])
        return path

    def subtree(self, node_id: int | str) -> list[ReasoningNode]:
        """The node and all below it, by id."""
        return self._all(self._reached(self._known(node_id), self.child_ids))

    def is_attached(self, node_id: int | str) -> bool:
        """Whether a path of edges leads from the task node to this one."""
        number = self._known(node_id)
        if self._root is None or not self._loose:
            return self._root is not None
        return self._root in self._reached(number, self.parent_ids)

    def _reached(self, number: int, near: Callable[[int], Collection[int]]) -> set[int]:
        found, todo = {number}, [number]
        while todo:
            new = set(near(todo.pop())) - found
            found |= new
            todo += new
        return found

    def get_leaf_node_ids(self) -> list[int]:
        """Ids of the active nodes below which nothing is active, also not through a flushed node."""
        active = [node.node_id for node in self.active()]
        above: set[int] = set()
        todo = list(active)
        while todo:
            new = set(self.parent_ids(todo.pop())) - above
            above |= new
            todo += [number for number in new if not self.is_active(number)]
        return [number for number in active if number not in above]

    def is_active(self, number: int) -> bool:
        return self.nodes[number].active is True

    def active(self) -> list[ReasoningNode]:
        return [node for node in self.nodes.values() if node.active is True]

    def drawn_nodes(self) -> list[ReasoningNode]:
        """Return the nodes of a picture: the active ones, and flushed ones that connect others."""
        return [
            node
            for node in self.nodes.values()
            if node.active is True or (node.active == FLUSHED and self.child_ids(node.node_id))
        ]

    def arrows(self) -> Iterator[tuple[int, int, str, bool]]:
        """Yield what a picture joins: (from, to, relation, whether it is a link)."""
        yield from ((edge.src, edge.dst, edge.relation, False) for edge in self.edges)
        yield from ((link.src, link.dst, link.relation, True) for _, link in sorted(self.links.items()))

    def newest(self, most: int) -> Iterator[ReasoningNode]:
        """The active ones among the `most` newest nodes, newest first; its cost does not grow with the graph."""
        for number in range(self.next_id - 1, max(0, self.next_id - 1 - most), -1):
            node = self.nodes.get(number)
            if node is not None and node.active is True:
                yield node

    def by_kind(self, kind: NodeKind | str) -> list[ReasoningNode]:
        kind = as_kind(kind)
        return [node for node in self.nodes.values() if node.kind is kind]

    def by_lane(self, lane: str) -> list[ReasoningNode]:
        lane = as_lane(lane)
        return [node for node in self.nodes.values() if node.lane == lane]

    def by_tag(self, tag: str) -> list[ReasoningNode]:
        return [node for node in self.nodes.values() if tag in node.tags]

    def by_step(self, step: str) -> list[ReasoningNode]:
        return self._all(self._of_step.get(step, ()))

    def visible(
        self, agent_id: str | None = None, *, all_lanes: bool = False, lane: str | None = None
    ) -> list[ReasoningNode]:
        """The nodes in the lanes that an agent sees, by id: shared and its own; without an agent shared only. `lane` is
        where it drafts, if not in the lane of its name (spec 3, *Lanes*)."""
        lanes = {SHARED} if agent_id is None else {SHARED, as_lane(f"agent/{agent_id}"), as_lane(lane or SHARED)}
        return [node for node in self.nodes.values() if all_lanes or node.lane in lanes]

    def links_from(self, node_id: int | str, relation: str | None = None) -> list[Link]:
        """What the node supports, blocks, supersedes; oldest first."""
        return [link for link in self._links_from.get(self._known(node_id), ()) if relation in (None, link.relation)]

    def links_to(self, node_id: int | str, relation: str | None = None) -> list[Link]:
        """What supports, blocks, supersedes the node; oldest first."""
        return [link for link in self._links_to.get(self._known(node_id), ()) if relation in (None, link.relation)]

    def published_copy(self, node_id: int | str) -> ReasoningNode | None:
        """The published copy of a card, or None."""
        number = self._known(node_id)
        for link in self.links_to(number, "supports"):
            copy = self.nodes[link.src]
            origin = copy.meta.get("origin")
            if isinstance(origin, dict) and origin.get("node") == number and copy.lane == SHARED:
                return copy
        return None

    def history(self, tag: str) -> list[ReasoningNode]:
        """All that was ever said under a tag, folded, flushed and superseded nodes too; oldest first."""
        return sorted(self.by_tag(tag), key=lambda node: (node.created_seq, node.node_id))

    def conflicts(self) -> list[Conflict]:
        """Groups of active nodes that share a tag and a kind, are not superseded, and disagree.

        They disagree where their texts differ, where one is accepted and another rejected, or where one blocks another.
        """
        groups: dict[tuple[str, NodeKind], list[ReasoningNode]] = {}
        for node in self.active():
            for tag in () if node.status == "superseded" else set(node.tags) - _NOT_TOPICS:
                groups.setdefault((tag, node.kind), []).append(node)
        return [
            Conflict(tag, kind, tuple(node.node_id for node in nodes))
            for (tag, kind), nodes in sorted(groups.items())
            if len({" ".join(node.text.casefold().split()) for node in nodes}) > 1
            or {node.status for node in nodes} >= {"accepted", "rejected"}
            or any(self.nodes[link.dst] in nodes for node in nodes for link in self.links_from(node.node_id, "blocks"))
        ]

    # -- showing -----------------------------------------------------------------------------------------------

    def pretty_print(self, *, width: int = 500) -> str:
        """The active nodes as an outline: one to a line, the thought cut to `width` characters, children below their oldest
        parent, indented by two spaces a level.

        Indents end at 16 levels. What is flushed or folded is not shown; what hangs below a flushed node is shown where that
        would be. Nodes that hang on nothing come last. Line breaks in a thought become spaces, so that no thought can pass for
        a line.
        """
        lines = []
        for depth, node in self.outline():
            above = () if node is None else sorted(self.parent_ids(node.node_id))
            extra = f" (below {', '.join(map(str, above))})" if len(above) > 1 else ""
            lines.append("Hanging on nothing:" if node is None else f"{'  ' * depth}{node.line(width)}{extra}")
        return "\n".join(lines) or "(empty)"

    def outline(self, *, every: bool = False) -> Iterator[tuple[int, ReasoningNode | None]]:
        """The active nodes with their depth, at most 16, children below their oldest parent; before those that hang on
        nothing stands a None.

        What hangs below a flushed node stands in its place. `every` has what is folded, below its summary, and flushed, too.
        """
        seen: set[int] = set()
        if self._root is not None:
            yield from self._below(self._root, seen, every)
        loose = sorted(one for one in set(map(self.standing_id, self._loose)) if not self.parent_ids(one))
        found = [one for number in loose if number not in seen for one in self._below(number, seen, every)]
        yield from [(0, None), *found] if found else ()

    def _below(self, start: int, seen: set[int], every: bool) -> Iterator[tuple[int, ReasoningNode]]:
        seen.add(start)
        todo = [(start, 0)]
        while todo:
            number, depth = todo.pop()
            node = self.nodes[number]
            if every or node.active is True:
                yield depth, node
                depth = min(depth + 1, _MAX_INDENT)
            below = {*self.child_ids(number), *(self._members.get(number, ()) if every else ())}
            for child in sorted(below - seen, reverse=True):
                seen.add(child)
                todo.append((child, depth))

    def _all(self, numbers: Iterable[int]) -> list[ReasoningNode]:
        return [self.nodes[number] for number in sorted(numbers)]

    def _known(self, node_id: int | str) -> int:
        text = isinstance(node_id, str) and len(node_id) <= _LONGEST and node_id.isdecimal()
        number = int(node_id) if text else node_id
        if type(number) is not int or number not in self.nodes:
            raise GraphError(f"there is no node {node_id!r}")
        return number

    def __len__(self) -> int:
        return len(self.nodes)

    def __bool__(self) -> bool:
        return True


def as_way(path: Sequence[int]) -> str:
    """A path for people: `2 → 3 → … → 9`."""
    shown = [str(node) for node in path]
    return " → ".join(shown if len(shown) <= 8 else [*shown[:5], "…", *shown[-2:]])
