"""The reasoning graph of one task: the question, its parts, the evidence and the conclusions."""

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
    as_turn_ids,
    checked_fields,
    derive_relation,
    is_number_like,
    json_value,
    parse,
)
from hivemind.reasoning.snapshot import restore_snapshot, snapshot_text
from hivemind.reasoning.structure import Structure, format_path

_PATCH_KINDS = (NodeKind.SUBTASK, NodeKind.EVIDENCE)
ThoughtInput = str | Sequence[Notes | Mapping[str, str]]


class CardFields(TypedDict, total=False):
    """The optional fields of a node."""

    title: str
    status: str
    tags: Iterable[str]
    lane: str
    step: str | None
    pinned: bool
    meta: Mapping[str, Any]


class ReasoningGraph(Structure):
    """Nodes, edges (structure, acyclic) and links (argument). A call that raises GraphError leaves the graph unchanged.

    `nodes` maps ids to nodes; ids count up from 1 and are never reused. `seq` counts the changes; in a task's graph it
    is the number of the log's line. If `operations` is a list, each change is appended to it in the form of the log.
    New nodes get `now` as their creation time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now: str | None = None
        self.operations: list[dict[str, Any]] | None = None

    def note(self, operation: dict[str, Any]) -> None:
        """Append an operation to `operations`, if that is a list."""
        if self.operations is not None:
            self.operations.append(operation)
            if self._undo is not None:
                self._undo.append(self.operations.pop)

    # -- adding ------------------------------------------------------------------------------------------------

    def add_node(
        self,
        kind: NodeKind | str,
        thought: ThoughtInput,
        related_turn_ids: Iterable[int] | None = None,
        **fields: Unpack[CardFields],
    ) -> ReasoningNode:
        """Add a node, and return it. It is unattached until its first edge. Raises GraphError for a bad field or a
        second task node.

        `thought` is the node's text, `related_turn_ids` are the ids of the messages that it is about (None: none).
        """
        node = self._new_node(kind, thought, related_turn_ids or (), fields)
        if self.operations is not None:
            node_record = node.as_dict()
            node_record.get("meta", {}).pop("created_at", None)
            del node_record["active"]
            self.note({"op": "node", "id": node_record.pop("node_id"), **node_record})
        return node

    def _new_node(
        self, kind: NodeKind | str, thought: ThoughtInput, turn_ids: Iterable[int], fields: Mapping[str, Any]
    ) -> ReasoningNode:
        node = ReasoningNode(
            self.next_id, as_kind(kind), as_thought(thought), as_turn_ids(turn_ids), created_at=self.now
        )
        if fields:
            node.set_fields(fields)
        self.insert_node(node)
        node.created_seq = self._tick()
        return node

    def add_edge(self, src: int | str, dst: int | str, rationale: str | None = "", relation: str | None = None) -> Edge:
        """Add an edge, parent → child, and return it. A rationale (reason) of None is stored as empty. A relation of
        None is derived from it.

        Raises GraphError for an unknown or folded node, a loop, an edge to the task node, a duplicate or a cycle.
        """
        src, dst, rationale = self._resolve_id(src), self._resolve_id(dst), rationale or ""
        if src == dst:
            raise GraphError(f"an edge from node {src} to itself")
        if dst == self._root:
            raise GraphError(f"an edge from {src} to {dst}: the task node has no parents")
        for end in (src, dst) if self.folded_into else ():
            self._refuse_folded(end)
        if src in self.parent_ids(dst):
            raise GraphError(f"there is an edge from {src} to {dst} already")
        if self.child_ids(dst) and (path := self.find_path_down([dst], [src])) is not None:
            raise GraphError(f"an edge from {src} to {dst} closes a cycle: {format_path(path)}")
        edge = Edge(
            src, dst, rationale, relation or derive_relation(rationale, self.nodes[src].kind, self.nodes[dst].kind)
        )
        self._tick()
        self.insert_edge(edge)
        if self.operations is not None:
            relation_field = {"relation": relation} if relation else {}
            self.note({"op": "edge", "src": src, "dst": dst, "rationale": rationale, **relation_field})
        return edge

    def add_link(self, src: int | str, dst: int | str, relation: str) -> Link:
        """Link two nodes: `src` supports, blocks or supersedes `dst`. Returns an existing link unchanged.

        Raises GraphError for an unknown node or a link to itself.
        """
        src, dst, relation = self._resolve_id(src), self._resolve_id(dst), relation.strip()
        if not 0 < len(relation) <= 64:
            raise GraphError(f"{relation!r} is not a relation", remedy="use supports, blocks or supersedes")
        if src == dst:
            raise GraphError(f"a link from node {src} to itself")
        existing_link = self.links.get((src, dst, relation))
        if existing_link is not None:
            return existing_link
        link = Link(src, dst, relation, self._tick())
        self.insert_link(link)
        self.note({"op": "link", "src": src, "dst": dst, "relation": relation})
        return link

    # -- changing ----------------------------------------------------------------------------------------------

    def update_node(self, node_id: int | str, **fields: Any) -> ReasoningNode:
        """Set fields of a card: thought, title, status, tags, lane, step, pinned, related_turn_ids, meta.

        `meta` is merged into the node's meta; a key with None is removed. Raises GraphError for an unknown field or
        an invalid value.
        """
        node = self.node(node_id)
        if isinstance(meta := fields.get("meta"), Mapping):
            fields["meta"] = {key: item for key, item in {**node.meta, **meta}.items() if item is not None}
        return self.set_fields(node.node_id, fields)

    def set_fields(self, node_id: int, fields: Mapping[str, Any]) -> ReasoningNode:
        """Set fields as `update_node` does, but replace the whole `meta` instead of merging it."""
        node, values = self.node(node_id), checked_fields(fields)
        self._tick()
        for name, value in values.items():
            self._set(node, name, value)
        self.note(
            {"op": "set", "id": node.node_id, "fields": {name: json_value(value) for name, value in values.items()}}
        )
        return node

    def flush_node(self, node_id: int | str, rationale: str = "") -> ReasoningNode:
        """Flush an active node: contexts no longer show it in full. Its children stay in place. Returns the node.
        Raises GraphError."""
        node = self._foldable_node(node_id)
        self._tick()
        if rationale:
            key = "flush_rationale" if "rationale" in node.meta else "rationale"
            self._set(node, "meta", {**node.meta, key: rationale})
        self._set(node, "active", FLUSHED)
        self.note({"op": "flush", "id": node.node_id, "rationale": rationale})
        return node

    def fold_nodes(self, ids: Iterable[int | str], notes: ThoughtInput, rationale: str = "") -> ReasoningNode:
        """Fold nodes into one summary with the text `notes`, and return the summary.

        The nodes must be active and convex: no path between two of them may lead through another node. The summary has
        their turns and their edges to other nodes, and lists their ids in `meta["folded"]`. Raises GraphError.
        """
        nodes = {node.node_id: node for node in map(self._foldable_node, ids)}
        members = list(nodes)
        if not members:
            raise GraphError("a fold needs at least one node")
        is_closed = all(child in nodes for member in members for child in self.child_ids(member))
        if not is_closed and (path := self.find_path_down(nodes, members)) is not None:
            raise GraphError(
                f"{len(members)} nodes can't be folded without the nodes between them: {format_path(path)}"
            )
        lanes, steps = {node.lane for node in nodes.values()}, {node.step for node in nodes.values()}
        fields = {
            "lane": lanes.pop() if len(lanes) == 1 else SHARED,
            "step": steps.pop() if len(steps) == 1 else None,
            "meta": {"folded": members, **({"rationale": rationale} if rationale else {})},
        }
        turns = sorted({turn for node in nodes.values() for turn in node.related_turn_ids})
        summary = self._new_node(NodeKind.SUMMARY, notes, turns, fields)
        self.insert_fold(summary.node_id, members)
        for node in nodes.values():
            self._set(node, "active", False)
        fold_fields = {"ids": members, "notes": json_value(summary.thought), "rationale": rationale}
        self.note({"op": "fold", "id": summary.node_id, **fold_fields})
        return summary

    def unfold(self, summary_id: int | str) -> list[ReasoningNode]:
        """Restore the nodes that were folded into a summary, with their edges, and return them. The summary becomes inactive.

        Edges that were added to the summary move to the first of these nodes. Raises GraphError.
        """
        summary = self.node(summary_id)
        number = summary.node_id
        if number not in self._members:
            raise GraphError(f"node {number} is not a summary of folded nodes")
        self._refuse_folded(number)
        members = [self.nodes[member] for member in self._members[number]]
        self._tick()
        self.dissolve_fold(number)
        meta = {**summary.meta, "unfolded": [node.node_id for node in members]}
        del meta["folded"]
        self._set(summary, "meta", meta)
        self._set(summary, "active", FLUSHED)
        for node in members:
            self._set(node, "active", True)
        self.note({"op": "unfold", "id": number})
        return members

    def supersede(self, old: int | str, new: int | str) -> Link:
        """Record that the node `new` replaces `old`: set the status of `old` to superseded, and return the link. Raises
        GraphError."""
        old_id, new_id = self._resolve_id(old), self._resolve_id(new)
        if (new_id, old_id, "supersedes") in self.links:
            raise GraphError(f"node {new_id} supersedes {old_id} already")
        with self.transaction():
            link = self.add_link(new_id, old_id, "supersedes")
            self.update_node(old_id, status="superseded")
        return link

    # -- operations of minds -----------------------------------------------------------------------------------

    def apply_patch(
        self,
        patch: MemoryPatch | Mapping[str, Any],
        related_turn_ids: Iterable[int] | None = None,
        *,
        lane: str = SHARED,
        step: str | None = None,
    ) -> list[ReasoningNode]:
        """Apply a patch, whole or not at all, and return the new nodes.

        Raises GraphError, which names the operation and the reason. New nodes are in `lane` and belong to `step` (None:
        to no step).
        """
        patch = parse(MemoryPatch, patch)
        if not patch.add_nodes and not patch.add_edges:
            raise GraphError("the patch is empty: it adds no node and no edge")
        turns = list(related_turn_ids or ())
        node_ids: dict[str, int] = {}
        with self.transaction():
            for index, node in enumerate(patch.add_nodes):
                with _naming_operation(f"add_nodes[{index}] ({node.tmp_id!r})"):
                    _check_added(node, node_ids)
                    node_ids[node.tmp_id] = self.add_node(node.kind, node.thought, turns, lane=lane, step=step).node_id
            for index, edge in enumerate(patch.add_edges):
                with _naming_operation(f"add_edges[{index}] ({edge.src!r} to {edge.dst!r})"):
                    self.add_edge(
                        self._endpoint_id(edge.src, node_ids), self._endpoint_id(edge.dst, node_ids), edge.rationale
                    )
            for tmp_id, number in node_ids.items():
                if not self.is_attached(number):
                    raise GraphError(
                        f"the patch leaves its node {tmp_id!r} unattached: no path from the task leads to it"
                    )
        return [self.nodes[number] for number in node_ids.values()]

    def _endpoint_id(self, end: str, node_ids: Mapping[str, int]) -> int:
        if end in node_ids:
            return node_ids[end]
        if not is_number_like(end):
            raise GraphError(f"the patch defines no tmp_id {end!r}")
        node = self.node(end.strip())
        if node.active is not True:
            raise GraphError(f"node {node.node_id} is not active")
        return node.node_id

    def apply_operations(self, operations: FlushAndFoldOp | Mapping[str, Any]) -> list[ReasoningNode]:
        """Apply all flushes and folds, or none, and return the new summaries. Raises GraphError."""
        operations = parse(FlushAndFoldOp, operations)
        if not operations.flush_ops and not operations.fold_ops:
            raise GraphError("there is no operation")
        used_ids: set[int] = set()
        summaries = []
        with self.transaction():
            for index, flush in enumerate(operations.flush_ops):
                with _naming_operation(f"flush_ops[{index}]"):
                    _refuse_repeated(used_ids, [flush.id])
                    self.flush_node(flush.id, flush.rationale)
            for index, fold in enumerate(operations.fold_ops):
                with _naming_operation(f"fold_ops[{index}]"):
                    _refuse_repeated(used_ids, fold.ids)
                    if not fold.notes:
                        raise GraphError("a fold needs notes that say what its nodes found")
                    summaries.append(self.fold_nodes(fold.ids, fold.notes, fold.rationale))
        return summaries

    # -- publishing --------------------------------------------------------------------------------------------

    def publish(self, node_id: int | str, *, hidden: bool = False) -> ReasoningNode:
        """Copy a draft card to the shared lane, and return the copy. The copy is pinned (it is never folded).

        If the card has a copy, update it as a new revision. `meta["origin"]` of the copy has node, lane, digest of the
        content, and revision. `hidden` allows a card that is folded or flushed. Raises GraphError, also for the task
        node and for a card in the shared lane.
        """
        source = self.node(node_id)
        if source.kind is NodeKind.TASK or source.lane == SHARED:
            raise GraphError(f"node {source.node_id} is in the shared lane already")
        if source.active is not True and not hidden:
            raise GraphError(f"node {source.node_id} is not active")
        meta = {key: value for key, value in source.meta.items() if key not in ("folded", "unfolded")}
        content_fields = [json_value(source.thought), source.title, source.status, list(source.tags), source.step, meta]
        text = json.dumps(content_fields, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
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
        previous_origin = copy.meta["origin"]
        if previous_origin["digest"] != origin["digest"]:
            meta["origin"] = {
                **previous_origin,
                "digest": origin["digest"],
                "revision": previous_origin["revision"] + 1,
            }
            content = {"thought": source.thought, "related_turn_ids": source.related_turn_ids, "meta": meta}
            self.set_fields(copy.node_id, {**content, **fields})
        return copy

    def _first_copy(self, source: ReasoningNode, fields: dict[str, Any]) -> ReasoningNode:
        # the copy of a summary is a note: the folded nodes stay folded into the source
        kind = NodeKind.NOTE if source.kind is NodeKind.SUMMARY else source.kind
        number = source.node_id
        with self.transaction():
            copy = self.add_node(kind, source.thought, source.related_turn_ids, **fields, lane=SHARED, pinned=True)
            summary = self.representative_id(number)  # a folded card: use its former parents, or their summaries
            parent_ids = {
                self.representative_id(parent_id)
                for member in self._represented_ids(number)
                for parent_id in self._sources_of.get(member, ())
            }
            for parent in sorted(parent_ids - {summary}) or ([summary] if summary != number else []):
                self.add_edge(parent, copy.node_id, f"published from {number}")
            self.add_link(copy.node_id, number, "supports")
        return copy

    # -- snapshots ---------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the graph's snapshot (README.md, *graph.json*)."""
        with boundary("graph"):
            snapshot: dict[str, Any] = json.loads(snapshot_text(self))
        return snapshot

    @classmethod
    def from_dict(cls, snapshot: Mapping[str, Any]) -> Self:
        """Return the graph of a snapshot, with or without a version number. Raises GraphError, or UnknownVersion."""
        graph = cls()
        restore_snapshot(graph, snapshot)
        return graph

    def to_json(self, indent: int | None = 2) -> str:
        """Return the snapshot as JSON text."""
        return snapshot_text(self, indent)

    def __eq__(self, other: object) -> bool:
        return self.to_json() == other.to_json() if isinstance(other, ReasoningGraph) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # mutable

    # -- for logs and merges -----------------------------------------------------------------------------------

    @property
    def graph(self) -> Self:
        """The graph itself, so a graph in memory is used like a TaskGraph."""
        return self

    def change(self, agent_id: str | None = None) -> AbstractContextManager[Self]:  # noqa: ARG002 - as TaskGraph
        """Return a transaction: a block in which all changes are undone if it raises."""
        return self.transaction()

    def replace_with(self, other: ReasoningGraph) -> None:
        """Replace the content by that of another graph. Only next id, seq, time and operations stay."""
        local_state = {name: getattr(self, name) for name in ("_undo", "operations", "now", "seq")}
        if self._undo is not None:
            self._undo.append(partial(vars(self).update, dict(vars(self))))
        vars(self).update({**vars(other), **local_state, "next_id": max(self.next_id, other.next_id)})

    def _refuse_folded(self, number: int) -> None:
        summary = self.folded_into.get(number)
        if summary is not None:
            raise GraphError(f"node {number} is folded into {summary}", remedy=f"use {summary}, or unfold it first")

    def _foldable_node(self, node_id: int | str) -> ReasoningNode:
        node = self.node(node_id)
        if node.node_id == self._root:
            raise GraphError(f"node {node.node_id} is the task node: it cannot be flushed or folded")
        self._refuse_folded(node.node_id)
        if node.active is not True:
            raise GraphError(f"node {node.node_id} is not active ({node.active})")
        return node


@contextmanager
def _naming_operation(name: str) -> Iterator[None]:
    """Put the operation's name in front of the message of a GraphError."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{name}: {error.message}", remedy=error.remedy) from None


def _check_added(node: AddNodeOp, node_ids: Mapping[str, int]) -> None:
    if node.kind not in _PATCH_KINDS:
        raise GraphError(f"a patch adds nodes of kind subtask or evidence, not {node.kind.value}")
    if is_number_like(node.tmp_id):
        raise GraphError("a tmp_id must not be a number: it would be read as the id of a node", remedy="name it 'tmp1'")
    if not node.tmp_id.strip():
        raise GraphError("a tmp_id is empty")
    if node.tmp_id in node_ids:
        raise GraphError("the tmp_id is used twice")


def _refuse_repeated(used_ids: set[int], ids: Iterable[int]) -> None:
    for number in ids:
        if number in used_ids:
            raise GraphError(f"node {number} is in more than one operation")
        used_ids.add(number)
