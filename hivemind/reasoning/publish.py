"""Publishing: a draft card of an agent's lane becomes a pinned anchor in the shared one (spec 3; seed 002)."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import SHARED, NodeKind, ReasoningNode, node_to_dict

if TYPE_CHECKING:
    from hivemind.reasoning.graph import ReasoningGraph

__all__ = ["publish", "published_from"]


def publish(graph: ReasoningGraph, source: ReasoningNode, *, hidden: bool = False) -> ReasoningNode:
    """The published copy: made, brought up to date as a new revision, or given as it is if nothing has changed.

    `meta["origin"]` of the copy holds node, lane, digest of the content, and revision. Raises GraphError for the task
    node, a card that is shared already, and one that is folded or flushed, unless `hidden` says that this does not matter.
    """
    if source.kind is NodeKind.TASK or source.lane == SHARED:
        raise GraphError(f"node {source.node_id} is in the shared lane already")
    if source.active is not True and not hidden:
        raise GraphError(f"node {source.node_id} is not active")
    content, digest = _content(source)
    copy = published_from(graph, source.node_id)
    if copy is None:
        return _first(graph, source, content, digest)
    origin = copy.meta["origin"]
    if origin["digest"] == digest:
        return copy
    revised = {**origin, "digest": digest, "revision": origin["revision"] + 1}
    gone = dict.fromkeys(key for key in copy.meta if key != "origin")
    meta = {**gone, **content.pop("meta"), "origin": revised}
    return graph.update_node(copy.node_id, **content, meta=meta)


def published_from(graph: ReasoningGraph, number: int) -> ReasoningNode | None:
    """The published copy of a card, or None."""
    for link in graph.links_to(number, "supports"):
        copy = graph.nodes[link.src]
        origin = copy.meta.get("origin")
        if isinstance(origin, dict) and origin.get("node") == number and copy.lane == SHARED:
            return copy
    return None


def _content(source: ReasoningNode) -> tuple[dict[str, Any], str]:
    meta = {key: value for key, value in source.meta.items() if key not in ("folded", "unfolded")}
    content = {
        "thought": source.thought,
        "title": source.title,
        "status": source.status,
        "tags": source.tags,
        "step": source.step,
        "related_turn_ids": source.related_turn_ids,
        "meta": meta,
    }
    plain = node_to_dict(source)
    told = [plain["thought"], source.title, source.status, list(source.tags), source.step, meta]
    text = json.dumps(told, sort_keys=True, ensure_ascii=False)
    return content, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _first(graph: ReasoningGraph, source: ReasoningNode, content: dict[str, Any], digest: str) -> ReasoningNode:
    origin = {"node": source.node_id, "lane": source.lane, "digest": digest, "revision": 1}
    turns, meta = content.pop("related_turn_ids"), {**content.pop("meta"), "origin": origin}
    # a summary's copy stands for nothing itself: what was folded stays folded into the source
    kind = NodeKind.NOTE if source.kind is NodeKind.SUMMARY else source.kind
    with graph.transaction():
        copy = graph.add_node(kind, content.pop("thought"), turns, **content, meta=meta, lane=SHARED, pinned=True)
        for parent in _above(graph, source.node_id):
            graph.add_edge(parent, copy.node_id, f"published from {source.node_id}")
        graph.add_link(copy.node_id, source.node_id, "supports")
    return copy


def _above(graph: ReasoningGraph, number: int) -> list[int]:
    """The parents of a node; of a folded one those that it had, or what stands for them now."""
    standing, structure = graph.standing(number).node_id, graph.structure
    above = structure.parents(standing)
    if standing == number:
        return sorted(above)
    drawn = [one for one in above if any(base.dst == number for base in structure.children(one)[standing].bases)]
    return sorted(drawn) or [standing]
