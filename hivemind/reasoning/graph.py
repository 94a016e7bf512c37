"""The reasoning graph of one task: what was asked, how it was broken down, found and concluded (spec 4, seed 000)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from hivemind.reasoning.arguments import a_list, a_text_or_none
from hivemind.reasoning.edge import Edge, Link, as_relation, derive
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.fields import as_op, merged, plain, plain_value, typed
from hivemind.reasoning.node import FLUSHED, SHARED, NodeKind, ReasoningNode, as_kind, as_turns
from hivemind.reasoning.notes import Notes, as_thought
from hivemind.reasoning.order import as_way
from hivemind.reasoning.readable import ReadableGraph

if TYPE_CHECKING:
    from hivemind.reasoning.ops import FlushAndFoldOp, MemoryPatch

__all__ = ["ReasoningGraph"]

_TASK = NodeKind.TASK  # looked up once: an enumeration finds its members by Python code
Thought = str | Sequence[Notes | Mapping[str, str]]


class Card(TypedDict, total=False):
    """What a node may have beside its kind, its thought and its turns."""

    title: str
    status: str
    tags: Iterable[str]
    lane: str
    step: str | None
    pinned: bool
    meta: Mapping[str, Any]


class ReasoningGraph(ReadableGraph):
    """Nodes, edges (structure, acyclic) and links (argument). Whoever raises GraphError has changed nothing.

    `nodes` are by id, in the order of their making; ids count up from 1 and none is used twice. `seq` counts the
    changes (in a task's log: the number of its line). `record`, where it is a list, gets each change as a log has it.
    """

    __slots__ = ()

    # -- making ------------------------------------------------------------------------------------------------

    def add_node(
        self,
        kind: NodeKind | str,
        thought: Thought,
        related_turn_ids: Iterable[int] | None = None,
        **fields: Unpack[Card],
    ) -> ReasoningNode:
        """A new node; it hangs on nothing until its first edge. Raises GraphError for a bad field or a second task."""
        node = ReasoningNode(
            self.next_id,
            as_kind(kind),
            thought if thought.__class__ is str else as_thought(thought),
            [] if related_turn_ids is None else as_turns(related_turn_ids),
        )
        if fields:
            for name, value in typed(fields).items():
                setattr(node, name, value)
        node.created_at = self.now
        self.take(node)
        if self.structure.undo is None:
            self.seq += 1
        node.created_seq = self.seq
        if self.record is not None:
            self.record.append(as_op(node))
        return node

    def take(self, node: ReasoningNode) -> None:
        """Take in a node as it is, under its own number (for logs and snapshots)."""
        number = node.node_id
        if node.kind is not _TASK:
            self._loose[number] = None
        elif self._root is None:
            self._root = number
        else:
            raise GraphError(f"a graph has one task node, and node {self._root} is it")
        structure = self.structure
        self.nodes[number] = node
        self.next_id = number + 1
        structure.order.add(number)
        self.index.add(node)
        if structure.undo is not None:
            structure.undo.append(partial(self._take_out, node))

    def _take_out(self, node: ReasoningNode) -> None:
        number = node.node_id
        self.index.drop(node)
        del self.structure.order.rank[number]
        del self.nodes[number]
        self.next_id = number
        self._loose.pop(number, None)
        if self._root == number:
            self._root = None

    def add_edge(self, src: int | str, dst: int | str, rationale: str | None = "", relation: str | None = None) -> Edge:
        """A new edge, parent → child; None for a rationale is none.

        Raises GraphError for an unknown or folded end, a loop, an edge to the task node, a duplicate, a cycle.
        """
        nodes, structure = self.nodes, self.structure
        if src.__class__ is not int or dst.__class__ is not int or src not in nodes or dst not in nodes:
            src, dst = self._known(src), self._known(dst)
        if rationale.__class__ is not str or relation is not None:
            rationale = a_text_or_none(rationale, "the rationale of an edge") or ""
            relation = a_text_or_none(relation, "the relation of an edge")
        if src == dst:
            raise GraphError(f"an edge from node {src} to itself")
        if dst == self._root:
            raise GraphError(f"an edge from {src} to {dst}: nothing stands above the task node")
        if structure.folded_into:
            self._refuse_folded(src)
            self._refuse_folded(dst)
        if dst in structure.out.get(src, ()):
            raise GraphError(f"there is an edge from {src} to {dst} already")
        edge = Edge(src, dst, rationale, relation or derive(rationale, nodes[src].kind, nodes[dst].kind))
        path = structure.insert(edge)
        if path is not None:
            raise GraphError(f"an edge from {src} to {dst} closes a cycle: {as_way(path)}")
        if structure.undo is None:
            self.seq += 1
            self._loose.pop(dst, None)
        else:
            self.tied(dst)
        if self.record is not None:
            self.record.append({"op": "edge", "src": src, "dst": dst, "rationale": rationale})
            if relation:
                self.record[-1]["relation"] = relation
        return edge

    def tied(self, node: int) -> None:
        """Note that a node has a parent now."""
        if self._loose.pop(node, 0) is None and self.structure.undo is not None:
            self.structure.undo.append(partial(self._loose.__setitem__, node, None))

    def add_link(self, src: int | str, dst: int | str, relation: str) -> Link:
        """`src` supports, blocks or supersedes `dst`; a link that is there already is given back as it is.

        Raises GraphError for an unknown node or a link to itself.
        """
        src, dst, relation = self._known(src), self._known(dst), as_relation(relation)
        if src == dst:
            raise GraphError(f"a link from node {src} to itself")
        known = self.links.get((src, dst, relation))
        if known is not None:
            return known
        link = Link(src, dst, relation, self._tick())
        self.take_link(link)
        if self.record is not None:
            self.record.append({"op": "link", "src": src, "dst": dst, "relation": relation})
        return link

    def take_link(self, link: Link) -> None:
        """Take in a link as it is (for logs and snapshots)."""
        self.links[link.src, link.dst, link.relation] = link
        self._links_from.setdefault(link.src, {})[link] = None
        self._links_to.setdefault(link.dst, {})[link] = None
        if self.structure.undo is not None:
            self.structure.undo.append(lambda: self._untie_link(link))

    def _untie_link(self, link: Link) -> None:
        del self.links[link.src, link.dst, link.relation]
        del self._links_from[link.src][link]
        del self._links_to[link.dst][link]

    # -- changing ----------------------------------------------------------------------------------------------

    def update_node(self, node_id: int | str, **fields: Any) -> ReasoningNode:
        """Set fields of a card: thought, title, status, tags, lane, step, pinned, related_turn_ids; meta is merged
        (a key with None goes). Raises GraphError for an unknown field or value."""
        node = self.node(node_id)
        return self._set_all(node, merged(node, fields))

    def set_fields(self, node: ReasoningNode, values: Mapping[str, Any]) -> ReasoningNode:
        """Set fields to whole values (for logs): as `update_node`, but meta is replaced."""
        return self._set_all(node, typed(values))

    def _set_all(self, node: ReasoningNode, values: Mapping[str, Any]) -> ReasoningNode:
        self._tick()
        self._set(node, values)
        if self.record is not None:
            self.record.append({"op": "set", "id": node.node_id, "fields": plain(values)})
        return node

    def _set(self, node: ReasoningNode, values: Mapping[str, Any]) -> None:
        before = {name: getattr(node, name) for name in values}
        self.index.drop(node)
        for name, value in values.items():
            setattr(node, name, value)
        self.index.add(node)
        if self.structure.undo is not None:
            self.structure.undo.append(lambda: self._set(node, before))

    def _set_active(self, node: ReasoningNode, active: bool | str) -> None:
        before, node.active = node.active, active
        self.index.state(node)
        if self.structure.undo is not None:
            self.structure.undo.append(lambda: self._set_active(node, before))

    def flush_node(self, node_id: int | str, rationale: str = "") -> ReasoningNode:
        """Take an active node out of sight; its children stay where they are. Raises GraphError."""
        node = self._foldable(node_id)
        rationale = a_text_or_none(rationale, "the rationale of a flush") or ""
        self._tick()
        if rationale:
            key = "flush_rationale" if "rationale" in node.meta else "rationale"
            self._set(node, {"meta": {**node.meta, key: rationale}})
        self._set_active(node, FLUSHED)
        if self.record is not None:
            self.record.append({"op": "flush", "id": node.node_id, "rationale": rationale})
        return node

    def fold_nodes(self, ids: Iterable[int | str], notes: Thought, rationale: str = "") -> ReasoningNode:
        """A summary that stands for the nodes, which must be active and convex. Raises GraphError.

        It has their turns and outside edges, and keeps their ids in `meta["folded"]`.
        """
        wanted = a_list(ids, "the ids of a fold")
        rationale = a_text_or_none(rationale, "the rationale of a fold") or ""
        members = list({node.node_id: node for node in map(self._foldable, wanted)}.values())
        if not members:
            raise GraphError("a fold of no nodes")
        numbers = [node.node_id for node in members]
        path = self.structure.order.way_back(set(numbers), self.structure.out)
        if path is not None:
            raise GraphError(f"{len(numbers)} nodes can't be folded without those between them: {as_way(path)}")
        thought = as_thought(notes)
        with self.transaction():
            lanes, steps = {node.lane for node in members}, {node.step for node in members}
            record, self.record = self.record, None  # the fold is one operation of the log
            try:
                summary = self.add_node(
                    NodeKind.SUMMARY,
                    thought,
                    sorted({turn for node in members for turn in node.related_turn_ids}),
                    lane=lanes.pop() if len(lanes) == 1 else SHARED,
                    step=steps.pop() if len(steps) == 1 else None,
                    meta={"folded": numbers, **({"rationale": rationale} if rationale else {})},
                )
            finally:
                self.record = record
            self.structure.fold(summary.node_id, numbers)
            if self.structure.parents(summary.node_id):
                self.tied(summary.node_id)
            for node in members:
                self._set_active(node, False)
            if record is not None:
                record.append({"op": "fold", "id": summary.node_id, "ids": numbers,
                               "notes": plain_value(thought), "rationale": rationale})  # fmt: skip
        return summary

    def unfold(self, summary_id: int | str) -> list[ReasoningNode]:
        """Bring back the nodes that a summary stands for, with their edges; gives them. The summary becomes inactive.

        What was tied to the summary since goes to its first member. Raises GraphError.
        """
        summary = self.node(summary_id)
        number = summary.node_id
        if number not in self.structure.inside:
            raise GraphError(f"node {number} stands for no others")
        self._refuse_folded(number)
        members = list(summary.meta["folded"])
        with self.transaction():
            self._tick()
            self.structure.unfold(number, members)
            meta = {**summary.meta, "unfolded": members}
            del meta["folded"]
            self._set(summary, {"meta": meta})
            self._set_active(summary, FLUSHED)
            for member in members:
                self._set_active(self.nodes[member], True)
                if self.structure.parents(member):
                    self.tied(member)
            if self.record is not None:
                self.record.append({"op": "unfold", "id": number})
        return [self.nodes[member] for member in members]

    def supersede(self, old: int | str, new: int | str) -> Link:
        """`new` takes the place of `old`: both stay, with a link, and old's status says so. Raises GraphError."""
        was, now = self.node(old), self.node(new)
        if (now.node_id, was.node_id, "supersedes") in self.links:
            raise GraphError(f"node {now.node_id} supersedes {was.node_id} already")
        with self.transaction():
            link = self.add_link(now.node_id, was.node_id, "supersedes")
            self.update_node(was.node_id, status="superseded")
        return link

    def apply_patch(
        self,
        patch: MemoryPatch | Mapping[str, Any],
        related_turn_ids: Iterable[int] | None = None,
        *,
        lane: str = SHARED,
        step: str | None = None,
    ) -> list[ReasoningNode]:
        """The new nodes of a patch, applied whole or not at all. Raises GraphError naming the operation and why."""
        from hivemind.reasoning.patch import apply_patch

        return apply_patch(self, patch, related_turn_ids, lane=lane, step=step)

    def apply_operations(self, operations: FlushAndFoldOp | Mapping[str, Any]) -> list[ReasoningNode]:
        """The summaries that a FlushAndFoldOp makes, applied whole or not at all. Raises GraphError."""
        from hivemind.reasoning.patch import apply_operations

        return apply_operations(self, operations)

    def publish(self, node_id: int | str, *, hidden: bool = False) -> ReasoningNode:
        """The copy of a draft card in the shared lane (spec 3, *Lanes, publish, branches*), with `hidden` also of one that
        is folded or flushed. Raises GraphError."""
        from hivemind.reasoning.publish import publish

        return publish(self, self.node(node_id), hidden=hidden)

    @classmethod
    def from_dict(cls, snapshot: Mapping[str, Any]) -> ReasoningGraph:
        """The graph of a snapshot, a bare seed one too. Raises GraphError, and UnknownVersion for a newer one."""
        from hivemind.reasoning.snapshot import from_dict

        return from_dict(snapshot, cls())

    @contextmanager
    def still(self) -> Iterator[ReasoningGraph]:
        """The graph, for reading. One that is not on disk belongs to one memory, which does not change it meanwhile."""
        yield self

    @contextmanager
    def transaction(self) -> Iterator[ReasoningGraph]:
        """All that is done inside, or nothing of it if it raises. Counts as one change; may be nested."""
        outer = self.structure.undo
        undo: list[Callable[[], object]] = []
        self.structure.undo = undo
        seq, records = self.seq, None if self.record is None else len(self.record)
        if outer is None:
            self.seq += 1
        try:
            yield self
        except BaseException:
            self._undo(undo)
            self.seq = seq
            if self.record is not None:
                del self.record[records:]
            raise
        else:
            if outer is None and not undo:
                self.seq = seq
        finally:
            self.structure.undo = outer  # a merge may have put another structure into place
            if outer is not None:
                outer += undo

    def _undo(self, undo: list[Callable[[], object]]) -> None:
        while undo:
            self.structure.undo = None
            undo.pop()()

    def become(self, other: ReasoningGraph) -> None:
        """Take over all that another graph has, which is given up by it (for merges)."""
        undo, before = self.structure.undo, {name: getattr(self, name) for name in ReadableGraph.__slots__}
        for name in ReadableGraph.__slots__:
            setattr(self, name, getattr(other, name))
        self.structure.undo = undo
        if undo is not None:
            undo.append(lambda: self._go_back(before))

    def _go_back(self, before: Mapping[str, Any]) -> None:
        for name, value in before.items():
            setattr(self, name, value)

    # -- inside ------------------------------------------------------------------------------------------------

    def _tick(self) -> int:
        if self.structure.undo is None:
            self.seq += 1
        return self.seq

    def _refuse_folded(self, number: int) -> None:
        summary = self.structure.folded_into.get(number)
        if summary is not None:
            raise GraphError(f"node {number} is folded into {summary}", mend=f"use {summary}, or unfold it first")

    def _foldable(self, node_id: int | str) -> ReasoningNode:
        node = self.node(node_id)
        if node.node_id == self._root:
            raise GraphError(f"node {node.node_id} is the task node: it is neither flushed nor folded")
        self._refuse_folded(node.node_id)
        if node.active is not True:
            raise GraphError(f"node {node.node_id} is not active ({node.active})")
        return node
