"""Edges (structure) and links (argument) between nodes (spec 4, *Two kinds of relation*)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import NodeKind

__all__ = ["Edge", "Link", "as_relation", "derive"]


@dataclass(slots=True, unsafe_hash=True)
class Edge:
    """From the older or enclosing node to the newer one: parent → child. Equal by ends and rationale.

    `relation` is decompose, refine or support, or what was given.
    """

    src: int
    dst: int
    rationale: str = ""
    relation: str = field(default="", compare=False)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Edge:
        """The edge that a snapshot describes; its ends may be numbers or texts. Call it inside a boundary."""
        rationale, relation = str(record.get("rationale") or ""), str(record.get("relation") or "")
        return cls(int(record["src"]), int(record["dst"]), rationale, relation)


@dataclass(frozen=True, slots=True)
class Link:
    """`src` supports, blocks or supersedes `dst`; any other word is kept as it is."""

    src: int
    dst: int
    relation: str
    created_seq: int = field(default=0, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """`{"src": …, "dst": …, "relation": …, "created_seq": …}`."""
        return asdict(self)


def derive(rationale: str, src: NodeKind, dst: NodeKind) -> str:
    """decompose, refine or support: by the words of the rationale, else by what the edge joins (seed 000)."""
    words = rationale.lower()
    if "decompos" in words:
        return "decompose"
    if "refin" in words:
        return "refine"
    if "support" in words:
        return "support"
    if dst is NodeKind.EVIDENCE or dst is NodeKind.SUMMARY:
        return "support"
    return "decompose" if src is NodeKind.TASK else "refine"


def as_relation(relation: object) -> str:
    """The word of a link, trimmed. Raises GraphError for an empty one, or one of more than 64 characters."""
    word = relation.strip() if isinstance(relation, str) else ""
    if not 0 < len(word) <= 64:
        raise GraphError(f"{relation!r} is not a relation", mend="say supports, blocks or supersedes")
    return word
