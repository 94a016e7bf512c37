"""Edges (structure) and links (argument) between nodes (spec 4, *Two kinds of relation*)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import NodeKind

__all__ = ["Edge", "Link", "as_relation", "derive", "edge_from"]


_TASK = NodeKind.TASK  # looked up once: an enumeration finds its members by Python code
_FINDINGS = (NodeKind.EVIDENCE, NodeKind.SUMMARY)


@dataclass(slots=True, unsafe_hash=True)
class Edge:
    """From the older or enclosing node to the newer one: parent → child. Equal by ends and rationale.

    `relation` is decompose, refine or support, or what was given. `origin`: where a summary stands at an end, the edges
    of the nodes that it stands for.
    """

    src: int
    dst: int
    rationale: str = ""
    relation: str = field(default="", compare=False)
    origin: tuple[Edge, ...] = field(default=(), compare=False, repr=False)

    @property
    def bases(self) -> tuple[Edge, ...]:
        """The edges that were really drawn: itself, or those that it stands for."""
        return self.origin or (self,)


@dataclass(frozen=True, slots=True)
class Link:
    """`src` supports, blocks or supersedes `dst`; any other word is kept as it is."""

    src: int
    dst: int
    relation: str
    created_seq: int = field(default=0, compare=False)


def derive(rationale: str, src: NodeKind, dst: NodeKind) -> str:
    """decompose, refine or support: by the words of the rationale, else by what the edge joins (seed 000)."""
    said = _said(rationale) if rationale else ""
    if said:
        return said
    if dst in _FINDINGS:
        return "support"
    return "decompose" if src is _TASK else "refine"


@lru_cache(maxsize=1024)  # few words are used again and again
def _said(rationale: str) -> str:
    words = rationale.lower()
    if "decompos" in words:
        return "decompose"
    if "refin" in words:
        return "refine"
    return "support" if "support" in words else ""


def as_relation(relation: object) -> str:
    """The word of a link, trimmed. Raises GraphError for none, or one of more than 64 characters."""
    word = relation.strip() if isinstance(relation, str) else ""
    if not 0 < len(word) <= 64:
        raise GraphError(f"{relation!r} is no relation", mend="say supports, blocks or supersedes")
    return word


def edge_from(record: Mapping[str, Any]) -> Edge:
    """The edge that a snapshot describes; its ends may be numbers or texts. To be called inside a boundary."""
    src, dst, rationale = record["src"], record["dst"], record.get("rationale") or ""
    if src.__class__ is not int or dst.__class__ is not int or rationale.__class__ is not str:
        src, dst, rationale = int(src), int(dst), str(rationale)
    return Edge(src, dst, rationale, str(record["relation"] or "") if "relation" in record else "")
