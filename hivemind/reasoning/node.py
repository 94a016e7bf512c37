"""A node of the graph: one step of reasoning, or a card (seed 000, *ReasoningNode*; seed 002, cards)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hivemind.errors import UserError
from hivemind.names import check_name
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.notes import Notes, as_thought

__all__ = [
    "FLUSHED",
    "SHARED",
    "NodeKind",
    "ReasoningNode",
    "as_flag",
    "as_kind",
    "as_lane",
    "as_tags",
    "as_turns",
    "check_meta",
    "meta_of",
    "node_from",
    "node_to_dict",
]

FLUSHED = "Flushed"
SHARED = "shared"
_SEED_FIELDS = ("node_id", "kind", "thought", "related_turn_ids", "active")
CARD_FIELDS = ("title", "status", "tags", "lane", "step", "pinned", "created_at")


class NodeKind(StrEnum):
    """What a node is. The first four are seed 000's, the others the cards of seed 002."""

    TASK = "task"
    SUBTASK = "subtask"
    EVIDENCE = "evidence"
    SUMMARY = "summary"
    FRAME = "frame"
    HYPOTHESIS = "hypothesis"
    QUESTION = "question"
    TEST = "test"
    DECISION = "decision"
    NOTE = "note"
    UPDATE = "update"


_KINDS: dict[str, NodeKind] = {kind.value: kind for kind in NodeKind}


@dataclass(slots=True)
class ReasoningNode:
    """One node. Read it freely; change it through the graph, which keeps its indexes and its log.

    `active` is True, False (folded into a summary) or "Flushed". `related_turn_ids` are ids of messages. `created_seq`
    counts the changes of the graph (or of its task's log), `created_at` is the time of making where a clock was given.
    """

    node_id: int
    kind: NodeKind
    thought: str | list[Notes]
    related_turn_ids: list[int] = field(default_factory=list)
    active: bool | str = True
    title: str = ""
    status: str = "open"
    tags: tuple[str, ...] = ()
    lane: str = SHARED
    step: str | None = None
    pinned: bool = False
    meta: dict[str, Any] = field(default_factory=dict)
    created_seq: int = 0
    created_at: str | None = None

    @property
    def text(self) -> str:
        """The thought as plain text: of Notes their contents, one to a line."""
        if isinstance(self.thought, str):
            return self.thought
        return "\n".join(note.content for note in self.thought)

    @property
    def heading(self) -> str:
        """The title, or else the thought, on one line."""
        return " ".join((self.title or self.text).split())


def as_kind(kind: object) -> NodeKind:
    """The kind of that name. Raises GraphError for an unknown one."""
    found = _KINDS.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise GraphError(f"{kind!r} is no kind of node", mend=f"known kinds: {', '.join(_KINDS)}")
    return found


def as_lane(lane: object) -> str:
    """`shared`, or `agent/<name>` with the name as names are written (spec 3, *Lanes*). Raises GraphError."""
    lane = lane.strip().lower() if isinstance(lane, str) else repr(lane)
    if lane == SHARED:
        return lane
    prefix, _, agent = lane.partition("/")
    try:
        if prefix == "agent":
            return f"agent/{check_name(agent, 'agent name')}"
    except UserError:
        pass  # the error below names the whole lane
    raise GraphError(f"{lane!r} is no lane", mend="a lane is 'shared' or 'agent/<name>'")


def as_tags(tags: object) -> tuple[str, ...]:
    """The tags without repeats, in their order. Raises GraphError for what is no list, also one text."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise GraphError(f"tags are a list, not {tags!r}")
    return tuple(dict.fromkeys(str(tag) for tag in tags))


def as_turns(turns: object) -> list[int]:
    """The ids of messages as a list. Raises GraphError for what is no whole number: no snapshot of it could be read."""
    found: list[int]
    try:
        found = list(turns)  # type: ignore[call-overload]  # to ask an ABC before costs as much as all the rest
    except TypeError:
        raise GraphError(f"the ids of turns are a list, not {turns!r}") from None
    for turn in found:
        if turn.__class__ is not int:
            raise GraphError(f"the id of a turn is a whole number, not {turn!r}")
    return found


def as_flag(flag: object) -> bool:
    """True or False. Raises GraphError for anything else."""
    if not isinstance(flag, bool):
        raise GraphError(f"it is true or false, not {flag!r}")
    return flag


def check_meta(meta: object) -> dict[str, Any]:
    """A copy of `meta`. Raises GraphError for what is no mapping, for a key that is the name of a field, and for what JSON
    does not know: no log could hold it."""
    if not isinstance(meta, Mapping):
        raise GraphError(f"meta is a mapping, not {meta!r}")
    for name in meta:
        if name in _SEED_FIELDS or name in CARD_FIELDS:
            raise GraphError(f"{name!r} is a field of a node, not of its meta")
    copy = dict(meta)
    try:
        json.dumps(copy)
    except (TypeError, ValueError, RecursionError) as error:
        raise GraphError(f"meta is no JSON ({error})") from None
    return copy


def node_to_dict(node: ReasoningNode) -> dict[str, Any]:
    """The node as a snapshot has it: the seed's five fields, the others under `meta` where they are set."""
    thought = node.thought
    record: dict[str, Any] = {
        "node_id": node.node_id,
        "kind": node.kind._value_,  # as `value`, which is a descriptor in Python code
        "thought": thought
        if isinstance(thought, str)
        else [{"role": note.role, "content": note.content} for note in thought],
        "related_turn_ids": list(node.related_turn_ids),
        "active": node.active,
    }
    meta = meta_of(node)
    if meta:
        record["meta"] = meta
    return record


def meta_of(node: ReasoningNode) -> dict[str, Any]:
    """What a snapshot has of a node beside the seed's five fields."""
    fields = _card_fields(node)
    return {**node.meta, **fields} if fields else node.meta


def _card_fields(node: ReasoningNode) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if node.title:
        fields["title"] = node.title
    if node.status != "open":
        fields["status"] = node.status
    if node.tags:
        fields["tags"] = list(node.tags)
    if node.lane != SHARED:
        fields["lane"] = node.lane
    if node.step is not None:
        fields["step"] = node.step
    if node.pinned:
        fields["pinned"] = True
    if node.created_at is not None:
        fields["created_at"] = node.created_at
    return fields


def node_from(record: Mapping[str, Any], created_seq: int = 0) -> ReasoningNode:
    """The node that a snapshot describes; `meta` and, as in the seed, turns and active may be missing.

    To be called inside a boundary.
    """
    number, thought, active = record["node_id"], record["thought"], record.get("active", True)
    node = ReasoningNode(
        number if number.__class__ is int else int(number),
        as_kind(record["kind"]),
        thought if thought.__class__ is str else as_thought(thought),
        [turn if turn.__class__ is int else int(turn) for turn in record.get("related_turn_ids") or ()],
        active if active is True else _as_active(active),
    )
    node.created_seq = created_seq
    if record.get("meta"):
        _take_meta(node, dict(record["meta"]))
    return node


def _as_active(active: object) -> bool | str:
    if active is True or active is False or active == FLUSHED:
        return active
    raise GraphError(f"active is true, false or {FLUSHED!r}, not {active!r}")


def _take_meta(node: ReasoningNode, meta: dict[str, Any]) -> None:
    node.title = str(meta.pop("title", ""))
    node.status = str(meta.pop("status", "open"))
    node.tags = as_tags(meta.pop("tags", ()))
    node.lane = as_lane(meta.pop("lane", SHARED))
    step = meta.pop("step", None)
    node.step = None if step is None else str(step)
    node.pinned = bool(meta.pop("pinned", False))
    node.created_at = meta.pop("created_at", None)
    node.meta = meta
