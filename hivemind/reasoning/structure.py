"""The content of a graph (nodes, drawn edges, links and folds) and its queries.

A drawn edge keeps its ends. A *live* edge joins the representatives of those ends: the nodes themselves, or the
summaries that they are folded into. Live edges are computed: a fold moves no edge, and summaries unfold in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, Self

from hivemind.frozen import frozen
from hivemind.reasoning.node import FLUSHED, SHARED, Edge, GraphError, Link, NodeKind, ReasoningNode, as_kind, as_lane

_MAX_ID_DIGITS = 20  # Python refuses to parse thousands of digits
_MAX_INDENT = 16
_NOT_TOPICS = frozenset({"subgoal", "assumption", "pinned", "unstructured"})  # tags that classify a card


@frozen
class Conflict:
    """Active nodes with the same tag and kind that disagree; `node_ids` are sorted."""

    tag: str
    kind: NodeKind
    node_ids: tuple[int, ...]


class Structure:
    """The state of a graph. It checks ids only; `ReasoningGraph` checks other arguments before it changes the state.

    Every change goes through `_put`, `_drop` and `_set`. In a transaction they record how to undo it.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, ReasoningNode] = {}
        self.links: dict[tuple[int, int, str], Link] = {}
        self.folded_into: dict[int, int] = {}
        self.next_id = 1
        self.seq = 0
        self._members: dict[int, Sequence[int]] = {}  # summary → the nodes folded into it
        self._edges_from: dict[int, dict[int, Edge]] = {}
        self._sources_of: dict[int, tuple[int, ...]] = {}
        self._links_from: dict[int, dict[Link, None]] = {}
        self._links_to: dict[int, dict[Link, None]] = {}
        self._nodes_by_step: dict[str, dict[int, None]] = {}
        self._unattached: dict[int, None] = {}  # nodes without a drawn incoming edge, except the task node
        self._root: int | None = None
        self._undo: list[Callable[[], object]] | None = None
        self._is_replaying = False

    # -- changes, whole or not at all --------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Undo all changes in the block if the block raises. A block counts as one change; blocks may be nested."""
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
        """Number the changes in the block `seq`. If the block raises, they are not undone: recording how would double
        the time of replaying a long log."""
        self.seq, self._is_replaying = seq, True
        try:
            yield
        finally:
            self._is_replaying = False

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
            self._drop(self._nodes_by_step[node.step], node.node_id)
        setattr(node, name, value)
        if name == "step" and node.step is not None:
            self._put(self._nodes_by_step.setdefault(node.step, {}), node.node_id, None)

    def _tick(self) -> int:
        if self._undo is None and not self._is_replaying:
            self.seq += 1
        return self.seq

    def insert_node(self, node: ReasoningNode) -> None:
        """Insert a node with an id above all others."""
        if node.kind is not NodeKind.TASK:
            self._put(self._unattached, node.node_id, None)
        elif self._root is None:
            self._root = node.node_id
        else:
            raise GraphError(f"a graph has one task node, here node {self._root}")
        self._put(self.nodes, node.node_id, node)
        if node.step is not None:
            self._put(self._nodes_by_step.setdefault(node.step, {}), node.node_id, None)
        self.next_id = node.node_id + 1

    def insert_edge(self, edge: Edge) -> None:
        """Insert an edge between existing nodes, without a check for cycles."""
        outgoing_edges = self._edges_from.get(edge.src)
        if outgoing_edges is None:
            outgoing_edges = self._edges_from[edge.src] = {}
        self._put(outgoing_edges, edge.dst, edge)
        self._put(self._sources_of, edge.dst, (*self._sources_of.get(edge.dst, ()), edge.src))
        if edge.dst in self._unattached:
            self._drop(self._unattached, edge.dst)

    def insert_link(self, link: Link) -> None:
        """Insert a link between existing nodes."""
        self._put(self.links, (link.src, link.dst, link.relation), link)
        self._put(self._links_from.setdefault(link.src, {}), link, None)
        self._put(self._links_to.setdefault(link.dst, {}), link, None)

    def insert_fold(self, summary: int, members: Sequence[int]) -> None:
        """Fold members into a summary that has no incoming edge. The caller must have checked that no path between two
        members leads outside."""
        self._put(self._members, summary, members)
        for member in members:
            self._put(self.folded_into, member, summary)
        if summary in self._unattached:  # its members tell whether it is attached
            self._drop(self._unattached, summary)

    def dissolve_fold(self, summary: int) -> None:
        """Restore the members of a summary, and move the summary's own edges to the first member."""
        members = self._members[summary]
        self._drop(self._members, summary)
        for member in members:
            self._drop(self.folded_into, member)
        incoming_edges = [self._edges_from[src][summary] for src in self._sources_of.get(summary, ())]
        for edge in [*self._edges_from.get(summary, {}).values(), *incoming_edges]:
            self._drop(self._edges_from[edge.src], edge.dst)
            self._put(self._sources_of, edge.dst, tuple(src for src in self._sources_of[edge.dst] if src != edge.src))
            src, dst = (members[0] if end == summary else end for end in (edge.src, edge.dst))
            self.insert_edge(Edge(src, dst, edge.rationale, edge.relation))
        self._put(self._unattached, summary, None)

    # -- edges -------------------------------------------------------------------------------------------------

    @property
    def drawn(self) -> list[Edge]:
        """The edges as they were added, ordered by their newer end, then their older end."""
        return [
            self._edges_from[src][dst] for dst, sources in sorted(self._sources_of.items()) for src in sorted(sources)
        ]

    @property
    def edges(self) -> list[Edge]:
        """The live edges (between visible nodes), ordered as `drawn`. If several drawn edges join the same two nodes,
        the first is returned."""
        if not self.folded_into:
            return self.drawn
        live: dict[tuple[int, int], Edge] = {}
        for edge in self.drawn:
            src, dst = self.representative_id(edge.src), self.representative_id(edge.dst)
            if src != dst:
                same = (src, dst) == (edge.src, edge.dst)
                live.setdefault((dst, src), edge if same else Edge(src, dst, edge.rationale, edge.relation))
        return [edge for _, edge in sorted(live.items())]

    def child_ids(self, node_id: int) -> Collection[int]:
        """Return the ids of the node's children. A folded node counts as its summary."""
        return self._neighbors(node_id, self._edges_from)

    def parent_ids(self, node_id: int) -> Collection[int]:
        """Return the ids of the node's parents. A folded node counts as its summary."""
        return self._neighbors(node_id, self._sources_of)

    def _neighbors(self, number: int, adjacency: Mapping[int, Collection[int]]) -> Collection[int]:
        if not self.folded_into:
            return adjacency.get(number, ())
        if number in self.folded_into:
            return ()
        neighbors = {
            self.representative_id(end) for member in self._represented_ids(number) for end in adjacency.get(member, ())
        }
        neighbors.discard(number)
        return neighbors

    def _represented_ids(self, node_id: int) -> list[int]:
        """Return the ids of the node and of all nodes folded into it, at any depth."""
        member_ids = [node_id]
        for member in member_ids:
            member_ids += self._members.get(member, ())
        return member_ids

    def representative_id(self, node_id: int) -> int:
        """Return the id of the outermost summary into which the node is folded, or the node's own id."""
        while node_id in self.folded_into:
            node_id = self.folded_into[node_id]
        return node_id

    def in_order(self) -> list[int]:
        """Return the nodes that are not folded, parents before children. Raises GraphError with the path of a cycle."""
        parents_by_id = {number: self.parent_ids(number) for number in self.nodes if number not in self.folded_into}
        try:
            return list(TopologicalSorter(parents_by_id).static_order())
        except CycleError as error:
            raise GraphError(f"the edges close a cycle: {format_path(error.args[1])}") from None

    def find_path_down(self, tops: Collection[int], ends: Collection[int]) -> list[int] | None:
        """Return a path of live edges from one of `tops` down to one of `ends`; None if there is none. Its inner nodes
        are in neither set."""
        child_on_path = dict.fromkeys(ends, 0)
        todo = list(ends)
        for node in todo:
            for parent in self.parent_ids(node):
                if parent in tops and node not in tops:
                    path = [parent, node]
                    while child_on_path[path[-1]]:
                        path.append(child_on_path[path[-1]])
                    return path
                if parent not in tops and parent not in child_on_path:
                    child_on_path[parent] = node
                    todo.append(parent)
        return None

    # -- queries: none scans all edges, none recurses -----------------------------------------------------------

    @property
    def root(self) -> ReasoningNode | None:
        """The task node; None if there is none yet."""
        return None if self._root is None else self.nodes[self._root]

    def node(self, node_id: int | str) -> ReasoningNode:
        """Return the node with that id. Raises GraphError if there is none."""
        return self.nodes[self._resolve_id(node_id)]

    def children(self, node_id: int | str) -> list[ReasoningNode]:
        """Return the children of a node, sorted by id."""
        return self._nodes_of(self.child_ids(self._resolve_id(node_id)))

    def parents(self, node_id: int | str) -> list[ReasoningNode]:
        """Return the parents of a node, sorted by id."""
        return self._nodes_of(self.parent_ids(self._resolve_id(node_id)))

    def representative(self, node_id: int | str) -> ReasoningNode:
        """Return the outermost summary into which the node is folded, or the node itself."""
        return self.nodes[self.representative_id(self._resolve_id(node_id))]

    def path_to_root(self, node_id: int | str) -> list[ReasoningNode]:
        """Return the path from a node up to the task node, both included. Of several parents, it leads through the oldest."""
        path = [self.node(node_id)]
        while parents := self.parent_ids(path[-1].node_id):
            path.append(self.nodes[min(parents)])
        return path

    def subtree(self, node_id: int | str) -> list[ReasoningNode]:
        """Return a node and all its descendants, sorted by id."""
        return self._nodes_of(self._reachable(self._resolve_id(node_id), self.child_ids))

    def is_attached(self, node_id: int | str) -> bool:
        """Return True if a path of edges leads from the task node to this node."""
        number = self._resolve_id(node_id)
        if self._root is None or not self._unattached:
            return self._root is not None
        return self._root in self._reachable(number, self.parent_ids)

    def _reachable(self, number: int, neighbors: Callable[[int], Collection[int]]) -> set[int]:
        reachable_ids, todo = {number}, [number]
        while todo:
            new_ids = set(neighbors(todo.pop())) - reachable_ids
            reachable_ids |= new_ids
            todo += new_ids
        return reachable_ids

    def get_leaf_node_ids(self) -> list[int]:
        """Return the ids of the active nodes without active descendants."""
        active = [node.node_id for node in self.active()]
        ancestors: set[int] = set()
        todo = list(active)
        while todo:
            new_ids = set(self.parent_ids(todo.pop())) - ancestors
            ancestors |= new_ids
            todo += [number for number in new_ids if not self.is_active(number)]
        return [number for number in active if number not in ancestors]

    def is_active(self, number: int) -> bool:
        return self.nodes[number].active is True

    def active(self) -> list[ReasoningNode]:
        return [node for node in self.nodes.values() if node.active is True]

    def drawn_nodes(self) -> list[ReasoningNode]:
        """Return the nodes to show in a picture of the graph: active nodes, and hidden ("Flushed") nodes that have children."""
        return [
            node
            for node in self.nodes.values()
            if node.active is True or (node.active == FLUSHED and self.child_ids(node.node_id))
        ]

    def arrows(self) -> Iterator[tuple[int, int, str, bool]]:
        """Yield the live edges and links of the `drawn_nodes` as (from, to, relation, True for a link)."""
        yield from ((edge.src, edge.dst, edge.relation, False) for edge in self.edges)
        yield from ((link.src, link.dst, link.relation, True) for _, link in sorted(self.links.items()))

    def newest(self, limit: int) -> Iterator[ReasoningNode]:
        """Yield the active nodes among the `limit` newest nodes of any state, newest first. The cost does not grow with
        the graph."""
        for number in range(self.next_id - 1, max(0, self.next_id - 1 - limit), -1):
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
        return self._nodes_of(self._nodes_by_step.get(step, ()))

    def visible(
        self, agent_id: str | None = None, *, all_lanes: bool = False, lane: str | None = None
    ) -> list[ReasoningNode]:
        """Return the nodes in the shared lane and in the agent's lane, sorted by id. Without an agent, return those in
        the shared lane.

        `lane` is the lane of the agent's drafts if that is not `agent/<name>`. `all_lanes` returns the nodes of all
        lanes.
        """
        lanes = {SHARED} if agent_id is None else {SHARED, as_lane(f"agent/{agent_id}"), as_lane(lane or SHARED)}
        return [node for node in self.nodes.values() if all_lanes or node.lane in lanes]

    def links_from(self, node_id: int | str, relation: str | None = None) -> list[Link]:
        """Return the links from a node with this relation (None: any), oldest first."""
        return [
            link for link in self._links_from.get(self._resolve_id(node_id), ()) if relation in (None, link.relation)
        ]

    def links_to(self, node_id: int | str, relation: str | None = None) -> list[Link]:
        """Return the links to a node with this relation (None: any), oldest first."""
        return [link for link in self._links_to.get(self._resolve_id(node_id), ()) if relation in (None, link.relation)]

    def published_copy(self, node_id: int | str) -> ReasoningNode | None:
        """Return the published copy of a card, or None if it was not published."""
        number = self._resolve_id(node_id)
        for link in self.links_to(number, "supports"):
            copy = self.nodes[link.src]
            origin = copy.meta.get("origin")
            if isinstance(origin, dict) and origin.get("node") == number and copy.lane == SHARED:
                return copy
        return None

    def history(self, tag: str) -> list[ReasoningNode]:
        """Return all nodes with a tag, oldest first, including folded, flushed (hidden) and superseded ones."""
        return sorted(self.by_tag(tag), key=lambda node: (node.created_seq, node.node_id))

    def conflicts(self) -> list[Conflict]:
        """Return groups of active nodes that share a tag and a kind, are not superseded, and disagree.

        Nodes disagree if their texts differ, if one is accepted and another rejected, or if one blocks another.
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

    # -- printing ----------------------------------------------------------------------------------------------

    def pretty_print(self, *, width: int = 500) -> str:
        """Return an outline of the active nodes, one per line, with children below their oldest parent.

        Thoughts are cut to `width` characters. Each level is indented by two spaces, up to 16 levels. In place of a
        flushed (hidden) node, its children are shown. Unattached nodes come last. Line breaks in a thought become
        spaces, so a thought cannot pose as another line.
        """
        lines = []
        for depth, node in self.outline():
            parent_ids = () if node is None else sorted(self.parent_ids(node.node_id))
            extra = f" (below {', '.join(map(str, parent_ids))})" if len(parent_ids) > 1 else ""
            lines.append("Unattached:" if node is None else f"{'  ' * depth}{node.line(width)}{extra}")
        return "\n".join(lines) or "(empty)"

    def outline(self, *, include_hidden: bool = False) -> Iterator[tuple[int, ReasoningNode | None]]:
        """Yield (depth, active node), with children below their oldest parent and a depth of at most 16.

        In place of a flushed (hidden) node, its children are yielded. (0, None) precedes the unattached nodes.
        `include_hidden` adds flushed nodes, and folded nodes below their summary.
        """
        seen: set[int] = set()
        if self._root is not None:
            yield from self._below(self._root, seen, include_hidden)
        unattached_ids = sorted(
            number for number in set(map(self.representative_id, self._unattached)) if not self.parent_ids(number)
        )
        unattached_rows = [
            row for number in unattached_ids if number not in seen for row in self._below(number, seen, include_hidden)
        ]
        yield from [(0, None), *unattached_rows] if unattached_rows else ()

    def _below(self, start: int, seen: set[int], include_hidden: bool) -> Iterator[tuple[int, ReasoningNode]]:
        seen.add(start)
        todo = [(start, 0)]
        while todo:
            number, depth = todo.pop()
            node = self.nodes[number]
            if include_hidden or node.active is True:
                yield depth, node
                depth = min(depth + 1, _MAX_INDENT)
            child_ids = {*self.child_ids(number), *(self._members.get(number, ()) if include_hidden else ())}
            for child in sorted(child_ids - seen, reverse=True):
                seen.add(child)
                todo.append((child, depth))

    def _nodes_of(self, numbers: Iterable[int]) -> list[ReasoningNode]:
        return [self.nodes[number] for number in sorted(numbers)]

    def _resolve_id(self, node_id: int | str) -> int:
        is_id_text = isinstance(node_id, str) and len(node_id) <= _MAX_ID_DIGITS and node_id.isdecimal()
        number = int(node_id) if is_id_text else node_id
        if type(number) is not int or number not in self.nodes:
            raise GraphError(f"there is no node {node_id!r}")
        return number

    def __len__(self) -> int:
        return len(self.nodes)

    def __bool__(self) -> bool:
        return True


def format_path(path: Sequence[int]) -> str:
    """Return a path as text: `2 → 3 → … → 9`."""
    labels = [str(node) for node in path]
    return " → ".join(labels if len(labels) <= 8 else [*labels[:5], "…", *labels[-2:]])
