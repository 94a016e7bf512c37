"""The reasoning graph of one task: what was asked, how it was broken down, found and concluded (spec 4, seed 000)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Self, TypedDict, Unpack

from hivemind.boundary import boundary
from hivemind.reasoning.node import (
    FLUSHED,
    SHARED,
    AddNodeOp,
    Edge,
    FlushAndFoldOp,
    GraphError,
    Link,
    MemoryPatch,
    NodeKind,
    Notes,
    ReasoningNode,
    as_kind,
    as_thought,
    as_turns,
    checked_fields,
    derive,
    parse,
    plain,
    reads_as_number,
)
from hivemind.reasoning.snapshot import restore_snapshot, snapshot_text
from hivemind.reasoning.structure import Structure, as_way

_BY_PATCH = (NodeKind.SUBTASK, NodeKind.EVIDENCE)
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


class ReasoningGraph(Structure):
    """Nodes, edges (structure, acyclic) and links (argument). A call that raises GraphError has changed nothing.

    `nodes` are by id; ids count up from 1 and none is used twice. `seq` counts the changes (in a task's log: the number of
    its line). `record`, where it is a list, gets each change as a log has it; `now` is the time that new nodes carry.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now: str | None = None
        self.record: list[dict[str, Any]] | None = None

    def note(self, operation: dict[str, Any]) -> None:
        """Add an operation to the record of the change."""
        if self.record is not None:
            self.record.append(operation)
            if self._undo is not None:
                self._undo.append(self.record.pop)

    # -- making ------------------------------------------------------------------------------------------------

    def add_node(
        self,
        kind: NodeKind | str,
        thought: Thought,
        related_turn_ids: Iterable[int] | None = None,
        **fields: Unpack[Card],
    ) -> ReasoningNode:
        """A new node; it hangs on nothing until its first edge. Raises GraphError for a bad field or a second task."""
        node = self._new_node(kind, thought, related_turn_ids or (), fields)
        if self.record is not None:
            record = node.as_dict()
            record.get("meta", {}).pop("created_at", None)
            del record["active"]
            self.note({"op": "node", "id": record.pop("node_id"), **record})
        return node

    def _new_node(
        self, kind: NodeKind | str, thought: Thought, turns: Iterable[int], fields: Mapping[str, Any]
    ) -> ReasoningNode:
        node = ReasoningNode(self.next_id, as_kind(kind), as_thought(thought), as_turns(turns), created_at=self.now)
        if fields:
            node.take(fields)
        self.take_node(node)
        node.created_seq = self._tick()
        return node

    def add_edge(self, src: int | str, dst: int | str, rationale: str | None = "", relation: str | None = None) -> Edge:
        """A new edge, parent → child; None for a rationale means none.

        Raises GraphError for an unknown or folded end, a loop, an edge to the task node, a duplicate, a cycle.
        """
        src, dst, rationale = self._known(src), self._known(dst), rationale or ""
        if src == dst:
            raise GraphError(f"an edge from node {src} to itself")
        if dst == self._root:
            raise GraphError(f"an edge from {src} to {dst}: nothing stands above the task node")
        for end in (src, dst) if self.folded_into else ():
            self._refuse_folded(end)
        if src in self.parent_ids(dst):
            raise GraphError(f"there is an edge from {src} to {dst} already")
        if self.child_ids(dst) and (path := self.way_down([dst], [src])) is not None:
            raise GraphError(f"an edge from {src} to {dst} closes a cycle: {as_way(path)}")
        edge = Edge(src, dst, rationale, relation or derive(rationale, self.nodes[src].kind, self.nodes[dst].kind))
        self._tick()
        self.take_edge(edge)
        if self.record is not None:
            said = {"relation": relation} if relation else {}
            self.note({"op": "edge", "src": src, "dst": dst, "rationale": rationale, **said})
        return edge

    def add_link(self, src: int | str, dst: int | str, relation: str) -> Link:
        """`src` supports, blocks or supersedes `dst`; a link that is there already is returned as it is.

        Raises GraphError for an unknown node or a link to itself.
        """
        src, dst, relation = self._known(src), self._known(dst), relation.strip()
        if not 0 < len(relation) <= 64:
            raise GraphError(f"{relation!r} is not a relation", mend="say supports, blocks or supersedes")
        if src == dst:
            raise GraphError(f"a link from node {src} to itself")
        known = self.links.get((src, dst, relation))
        if known is not None:
            return known
        link = Link(src, dst, relation, self._tick())
        self.take_link(link)
        self.note({"op": "link", "src": src, "dst": dst, "relation": relation})
        return link

    # -- changing ----------------------------------------------------------------------------------------------

    def update_node(self, node_id: int | str, **fields: Any) -> ReasoningNode:
        """Set fields of a card: thought, title, status, tags, lane, step, pinned, related_turn_ids; meta is merged
        (a key with None goes). Raises GraphError for an unknown field or value."""
        node = self.node(node_id)
        if isinstance(meta := fields.get("meta"), Mapping):
            fields["meta"] = {key: item for key, item in {**node.meta, **meta}.items() if item is not None}
        return self.set_fields(node.node_id, fields)

    def set_fields(self, node_id: int, fields: Mapping[str, Any]) -> ReasoningNode:
        """As `update_node`, but meta is replaced."""
        node, values = self.node(node_id), checked_fields(fields)
        self._tick()
        for name, value in values.items():
            self._set(node, name, value)
        self.note({"op": "set", "id": node.node_id, "fields": {name: plain(value) for name, value in values.items()}})
        return node

    def flush_node(self, node_id: int | str, rationale: str = "") -> ReasoningNode:
        """Take an active node out of sight; its children stay where they are. Raises GraphError."""
        node = self._foldable(node_id)
        self._tick()
        if rationale:
            key = "flush_rationale" if "rationale" in node.meta else "rationale"
            self._set(node, "meta", {**node.meta, key: rationale})
        self._set(node, "active", FLUSHED)
        self.note({"op": "flush", "id": node.node_id, "rationale": rationale})
        return node

    def fold_nodes(self, ids: Iterable[int | str], notes: Thought, rationale: str = "") -> ReasoningNode:
        """A summary that stands for the nodes, which must be active and convex. Raises GraphError.

        It has their turns and outside edges, and keeps their ids in `meta["folded"]`.
        """
        nodes = {node.node_id: node for node in map(self._foldable, ids)}
        members = list(nodes)
        if not members:
            raise GraphError("a fold of no nodes")
        closed = all(child in nodes for member in members for child in self.child_ids(member))
        if not closed and (path := self.way_down(nodes, members)) is not None:
            raise GraphError(f"{len(members)} nodes can't be folded without those between them: {as_way(path)}")
        lanes, steps = {node.lane for node in nodes.values()}, {node.step for node in nodes.values()}
        fields = {
            "lane": lanes.pop() if len(lanes) == 1 else SHARED,
            "step": steps.pop() if len(steps) == 1 else None,
            "meta": {"folded": members, **({"rationale": rationale} if rationale else {})},
        }
        turns = sorted({turn for node in nodes.values() for turn in node.related_turn_ids})
        summary = self._new_node(NodeKind.SUMMARY, notes, turns, fields)
        self.take_fold(summary.node_id, members)
        for node in nodes.values():
            self._set(node, "active", False)
        told = {"ids": members, "notes": plain(summary.thought), "rationale": rationale}
        self.note({"op": "fold", "id": summary.node_id, **told})
        return summary

    def unfold(self, summary_id: int | str) -> list[ReasoningNode]:
        """Bring back the nodes that a summary stands for, with their edges, and return them. The summary becomes inactive.

        What was tied to the summary since goes to its first member. Raises GraphError.
        """
        summary = self.node(summary_id)
        number = summary.node_id
        if number not in self._members:
            raise GraphError(f"node {number} stands for no others")
        self._refuse_folded(number)
        members = [self.nodes[member] for member in self._members[number]]
        self._tick()
        self.take_apart(number)
        meta = {**summary.meta, "unfolded": [node.node_id for node in members]}
        del meta["folded"]
        self._set(summary, "meta", meta)
        self._set(summary, "active", FLUSHED)
        for node in members:
            self._set(node, "active", True)
        self.note({"op": "unfold", "id": number})
        return members

    def supersede(self, old: int | str, new: int | str) -> Link:
        """`new` takes the place of `old`: both stay, with a link, and old's status says so. Raises GraphError."""
        was, now = self._known(old), self._known(new)
        if (now, was, "supersedes") in self.links:
            raise GraphError(f"node {now} supersedes {was} already")
        with self.transaction():
            link = self.add_link(now, was, "supersedes")
            self.update_node(was, status="superseded")
        return link

    # -- what minds ask for ------------------------------------------------------------------------------------

    def apply_patch(
        self,
        patch: MemoryPatch | Mapping[str, Any],
        related_turn_ids: Iterable[int] | None = None,
        *,
        lane: str = SHARED,
        step: str | None = None,
    ) -> list[ReasoningNode]:
        """The new nodes of a patch, applied whole or not at all. Raises GraphError naming the operation and why."""
        patch = parse(MemoryPatch, patch)
        if not patch.add_nodes and not patch.add_edges:
            raise GraphError("the patch is empty: it adds no node and no edge")
        turns = list(related_turn_ids or ())
        made: dict[str, int] = {}
        with self.transaction():
            for at, node in enumerate(patch.add_nodes):
                with _operation(f"add_nodes[{at}] ({node.tmp_id!r})"):
                    _check_added(node, made)
                    made[node.tmp_id] = self.add_node(node.kind, node.thought, turns, lane=lane, step=step).node_id
            for at, edge in enumerate(patch.add_edges):
                with _operation(f"add_edges[{at}] ({edge.src!r} to {edge.dst!r})"):
                    self.add_edge(self._end(edge.src, made), self._end(edge.dst, made), edge.rationale)
            for name, number in made.items():
                if not self.is_attached(number):
                    raise GraphError(f"the patch leaves its node {name!r} hanging: no edge leads to it from the task")
        return [self.nodes[number] for number in made.values()]

    def _end(self, end: str, made: Mapping[str, int]) -> int:
        if end in made:
            return made[end]
        if not reads_as_number(end):
            raise GraphError(f"the patch defines no tmp_id {end!r}")
        node = self.node(end.strip())
        if node.active is not True:
            raise GraphError(f"node {node.node_id} is not active")
        return node.node_id

    def apply_operations(self, operations: FlushAndFoldOp | Mapping[str, Any]) -> list[ReasoningNode]:
        """The summaries that a FlushAndFoldOp makes, applied whole or not at all. Raises GraphError."""
        operations = parse(FlushAndFoldOp, operations)
        if not operations.flush_ops and not operations.fold_ops:
            raise GraphError("no operation at all")
        seen: set[int] = set()
        summaries = []
        with self.transaction():
            for at, flush in enumerate(operations.flush_ops):
                with _operation(f"flush_ops[{at}]"):
                    _once(seen, [flush.id])
                    self.flush_node(flush.id, flush.rationale)
            for at, fold in enumerate(operations.fold_ops):
                with _operation(f"fold_ops[{at}]"):
                    _once(seen, fold.ids)
                    if not fold.notes:
                        raise GraphError("a fold without notes would lose what it folds")
                    summaries.append(self.fold_nodes(fold.ids, fold.notes, fold.rationale))
        return summaries

    # -- publishing (spec 3, *Lanes, publish, branches*) ---------------------------------------------------------

    def publish(self, node_id: int | str, *, hidden: bool = False) -> ReasoningNode:
        """The copy of a draft card in the shared lane: made, or brought up to date as a new revision; a pinned anchor.

        `meta["origin"]` of the copy holds node, lane, digest of the content, and revision. With `hidden` also of a card
        that is folded or flushed. Raises GraphError, also for the task node and a card that is shared already.
        """
        source = self.node(node_id)
        if source.kind is NodeKind.TASK or source.lane == SHARED:
            raise GraphError(f"node {source.node_id} is in the shared lane already")
        if source.active is not True and not hidden:
            raise GraphError(f"node {source.node_id} is not active")
        meta = {key: value for key, value in source.meta.items() if key not in ("folded", "unfolded")}
        told = [plain(source.thought), source.title, source.status, list(source.tags), source.step, meta]
        text = json.dumps(told, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
        origin = {
            "node": source.node_id,
            "lane": source.lane,
            "digest": hashlib.sha256(text).hexdigest(),
            "revision": 1,
        }
        fields = {"title": source.title, "status": source.status, "tags": source.tags, "step": source.step}
        copy = self.published_copy(source.node_id)
        if copy is None:
            return self._first_copy(source, {**fields, "meta": {**meta, "origin": origin}})
        known = copy.meta["origin"]
        if known["digest"] != origin["digest"]:
            meta["origin"] = {**known, "digest": origin["digest"], "revision": known["revision"] + 1}
            said = {"thought": source.thought, "related_turn_ids": source.related_turn_ids, "meta": meta}
            self.set_fields(copy.node_id, {**said, **fields})
        return copy

    def _first_copy(self, source: ReasoningNode, fields: dict[str, Any]) -> ReasoningNode:
        # a summary's copy stands for nothing itself: what was folded stays folded into the source
        kind = NodeKind.NOTE if source.kind is NodeKind.SUMMARY else source.kind
        number = source.node_id
        with self.transaction():
            copy = self.add_node(kind, source.thought, source.related_turn_ids, **fields, lane=SHARED, pinned=True)
            summary = self.standing_id(number)  # of a folded card the parents that it had, or what stands for them now
            above = {self.standing_id(one) for member in self._stood_for(number) for one in self._into.get(member, ())}
            for parent in sorted(above - {summary}) or ([summary] if summary != number else []):
                self.add_edge(parent, copy.node_id, f"published from {number}")
            self.add_link(copy.node_id, number, "supports")
        return copy

    # -- showing -----------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The snapshot: the seed's format and what it lacks (README.md, *graph.json*)."""
        with boundary("graph"):
            found: dict[str, Any] = json.loads(snapshot_text(self))
        return found

    @classmethod
    def from_dict(cls, snapshot: Mapping[str, Any]) -> Self:
        """The graph of a snapshot, a bare seed one too. Raises GraphError, and UnknownVersion for a newer one."""
        graph = cls()
        restore_snapshot(graph, snapshot)
        return graph

    def to_json(self, indent: int | None = 2) -> str:
        """The snapshot as JSON text."""
        return snapshot_text(self, indent)

    def __eq__(self, other: object) -> bool:
        return self.to_json() == other.to_json() if isinstance(other, ReasoningGraph) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    # -- for logs and merges -----------------------------------------------------------------------------------

    @property
    def graph(self) -> Self:
        """Itself: a graph that is not on disk is read and changed as one that is."""
        return self

    def change(self, agent_id: str | None = None) -> AbstractContextManager[Self]:  # noqa: ARG002 - as TaskGraph.change
        """A transaction, as `TaskGraph.change` is one for a graph on disk."""
        return self.transaction()

    def become(self, other: ReasoningGraph) -> None:
        """Take over what another graph holds; its own ids, log and time go on."""
        kept = {name: getattr(self, name) for name in ("_undo", "record", "now", "seq")}
        if self._undo is not None:
            self._undo.append(partial(vars(self).update, dict(vars(self))))
        vars(self).update({**vars(other), **kept, "next_id": max(self.next_id, other.next_id)})

    def _refuse_folded(self, number: int) -> None:
        summary = self.folded_into.get(number)
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


@contextmanager
def _operation(name: str) -> Iterator[None]:
    """Says in which operation a GraphError came up."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{name}: {error.what}", mend=error.mend) from None


def _check_added(node: AddNodeOp, made: Mapping[str, int]) -> None:
    if node.kind not in _BY_PATCH:
        raise GraphError(f"a patch adds nodes of kind subtask or evidence, not {node.kind.value}")
    if reads_as_number(node.tmp_id):
        raise GraphError("a tmp_id that reads as a number could be taken for a node", mend="name it 'tmp1'")
    if not node.tmp_id.strip():
        raise GraphError("a tmp_id without a name")
    if node.tmp_id in made:
        raise GraphError("the tmp_id stands there twice")


def _once(seen: set[int], ids: Iterable[int]) -> None:
    for number in ids:
        if number in seen:
            raise GraphError(f"node {number} stands in more than one operation")
        seen.add(number)
