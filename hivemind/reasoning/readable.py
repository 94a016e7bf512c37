"""The reading side of the graph: what it holds, and every question to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hivemind.reasoning import query
from hivemind.reasoning.arguments import a_text, a_whole_number
from hivemind.reasoning.edge import Edge, Link
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.index import Index
from hivemind.reasoning.node import NodeKind, ReasoningNode, as_kind, as_lane
from hivemind.reasoning.structure import Structure

__all__ = ["ReadableGraph"]

_LONGEST = 20  # digits of an id; of thousands of them Python makes no number


class ReadableGraph:
    """What a graph holds, and questions to it. `ReasoningGraph` changes it."""

    __slots__ = ("_links_from", "_links_to", "_loose", "_root", "index", "links", "next_id", "nodes", "now", "record",
                 "seq", "structure")  # fmt: skip

    def __init__(self) -> None:
        self.nodes: dict[int, ReasoningNode] = {}
        self.links: dict[tuple[int, int, str], Link] = {}
        self.next_id = 1
        self.seq = 0
        self.now: str | None = None
        self.record: list[dict[str, Any]] | None = None
        self.index = Index()
        self.structure = Structure()
        self._links_from: dict[int, dict[Link, None]] = {}
        self._links_to: dict[int, dict[Link, None]] = {}
        self._loose: dict[int, None] = {}  # nodes without a parent, other than the task node
        self._root: int | None = None

    @property
    def edges(self) -> list[Edge]:
        """The live edges, ordered by their newer end, then their older one."""
        return list(self.structure.live())

    @property
    def root(self) -> ReasoningNode | None:
        """The task node, if there is one."""
        return None if self._root is None else self.nodes[self._root]

    def node(self, node_id: int | str) -> ReasoningNode:
        """The node of that id. Raises GraphError if there is none."""
        return self.nodes[self._known(node_id)]

    def children(self, node_id: int | str) -> list[ReasoningNode]:
        """The nodes right below, by id."""
        return [self.nodes[child] for child in sorted(self.structure.children(self._known(node_id)))]

    def parents(self, node_id: int | str) -> list[ReasoningNode]:
        """The nodes right above, by id."""
        return [self.nodes[parent] for parent in sorted(self.structure.parents(self._known(node_id)))]

    def standing(self, node_id: int | str) -> ReasoningNode:
        """The node that stands for it: itself, or the outermost summary that it is folded into."""
        number = self._known(node_id)
        while number in self.structure.folded_into:
            number = self.structure.folded_into[number]
        return self.nodes[number]

    def path_to_root(self, node_id: int | str) -> list[ReasoningNode]:
        """From the node to the task node, both included, by the oldest parent at each step."""
        return query.path_to_root(self, self._known(node_id))

    def subtree(self, node_id: int | str) -> list[ReasoningNode]:
        """The node and all below it, by id."""
        return query.subtree(self, self._known(node_id))

    def get_leaf_node_ids(self) -> list[int]:
        """Ids of the active nodes below which nothing is active."""
        return query.leaves(self)

    def active(self) -> list[ReasoningNode]:
        return [self.nodes[number] for number in self.index.active()]

    def by_kind(self, kind: NodeKind | str) -> list[ReasoningNode]:
        return self._all(self.index.of_kind(as_kind(kind)))

    def by_lane(self, lane: str) -> list[ReasoningNode]:
        return self._all(self.index.in_lane(as_lane(lane)))

    def by_tag(self, tag: str) -> list[ReasoningNode]:
        return self._all(self.index.tagged(a_text(tag, "a tag")))

    def by_step(self, step: str) -> list[ReasoningNode]:
        return self._all(self.index.of_step(a_text(step, "a step")))

    def pinned(self) -> list[ReasoningNode]:
        return self._all(self.index.pinned())

    def _all(self, numbers: Iterable[int]) -> list[ReasoningNode]:
        return [self.nodes[number] for number in numbers]

    def visible(
        self, agent_id: str | None = None, *, all_lanes: bool = False, lane: str | None = None
    ) -> list[ReasoningNode]:
        """The nodes in the lanes that an agent sees, by id: shared and its own; without an agent shared only. `lane` is
        where it drafts, if not in the lane of its name."""
        return query.visible(self, agent_id, all_lanes=all_lanes, lane=lane)

    def links_from(self, node_id: int | str, relation: str | None = None) -> list[Link]:
        """What the node supports, blocks, supersedes; oldest first."""
        return [link for link in self._links_from.get(self._known(node_id), ()) if relation in (None, link.relation)]

    def links_to(self, node_id: int | str, relation: str | None = None) -> list[Link]:
        """What supports, blocks, supersedes the node; oldest first."""
        return [link for link in self._links_to.get(self._known(node_id), ()) if relation in (None, link.relation)]

    def history(self, tag: str) -> list[ReasoningNode]:
        """All that was ever said under a tag, folded, flushed and superseded nodes too; oldest first."""
        return sorted(self.by_tag(tag), key=lambda node: (node.created_seq, node.node_id))

    def conflicts(self) -> list[query.Conflict]:
        """Active nodes of one tag and one kind that disagree."""
        return query.conflicts(self)

    def is_attached(self, node_id: int | str) -> bool:
        """Whether a path of edges leads from the task node to this one."""
        return query.is_attached(self, self._known(node_id), self._loose)

    # -- showing -----------------------------------------------------------------------------------------------

    def pretty_print(self, *, width: int = 500) -> str:
        """The active nodes as an indented outline, one to a line, thoughts cut to `width` characters."""
        from hivemind.reasoning.outline import outline

        return outline(self, self._loose, a_whole_number(width, "a width", 1))

    def to_dict(self) -> dict[str, Any]:
        """The snapshot: the seed's format and what it lacks (README.md, *graph.json*)."""
        from hivemind.reasoning.snapshot import to_dict

        return to_dict(self)

    def to_json(self, indent: int | None = 2) -> str:
        """The snapshot as JSON text."""
        import json

        if indent is not None:
            indent = a_whole_number(indent, "an indent", 0)
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, ReadableGraph) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __len__(self) -> int:
        return len(self.nodes)

    def __bool__(self) -> bool:
        return True

    def _known(self, node_id: object) -> int:
        number = node_id
        if isinstance(node_id, str) and len(node_id) <= _LONGEST and node_id.isascii() and node_id.isdigit():
            number = int(node_id)
        if not isinstance(number, int) or isinstance(number, bool) or number not in self.nodes:
            raise GraphError(f"there is no node {node_id!r}")
        return number
