"""Nodes (a step of reasoning, or a card), edges (structure) and links (argument): seed 000, seed 002, spec 4."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any

from hivemind.errors import UserError
from hivemind.names import check_name
from hivemind.reasoning.errors import GraphError, a_list, a_text, a_text_or_none

__all__ = [
    "CARD_FIELDS",
    "FLUSHED",
    "SHARED",
    "Edge",
    "Link",
    "NodeKind",
    "Notes",
    "ReasoningNode",
    "as_kind",
    "as_lane",
    "as_relation",
    "as_thought",
    "as_turns",
    "checked",
    "derive",
    "node_from",
    "plain",
]


FLUSHED = "Flushed"
SHARED = "shared"
_SEED_FIELDS = ("node_id", "kind", "thought", "related_turn_ids", "active")
CARD_FIELDS = ("title", "status", "tags", "lane", "step", "pinned", "created_at")
_UNSET = ("", "open", (), SHARED, None, False, None)
_card = attrgetter(*CARD_FIELDS)


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


_KINDS = {kind.value: kind for kind in NodeKind}


@dataclass(slots=True, unsafe_hash=True)  # not frozen: that makes each one four times as dear, and there are many
class Notes:
    """One utterance, never changed. `role` is assistant, user, system, or an agent's own name."""

    role: str
    content: str

    def as_dict(self) -> dict[str, str]:
        """`{"role": …, "content": …}`."""
        return {"role": self.role, "content": self.content}


@dataclass(slots=True)
class ReasoningNode:
    """One node. Read it freely; change it through the graph, which keeps its log.

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

    def line(self, width: int) -> str:
        """`7 [evidence] closed, pinned, agent/a: Title: thought …` on one line."""
        thought = self.thought
        text = thought if isinstance(thought, str) else " ".join([note.content for note in thought])
        if len(text) > width:
            text = f"{text[: width - 1]}…"
        if not text.isprintable():
            text = "".join([char if char.isprintable() else " " for char in " ".join(text.split())])
        if self.title:
            title = " ".join(self.title.split())
            text = f"{title}: {text}" if text and text != title else title
        if self.status == "open" and self.lane == SHARED and not self.pinned:
            return f"{self.node_id} [{self.kind.value}] {text}"
        marks = [self.status] if self.status != "open" else []
        marks += ["pinned"] if self.pinned else []
        marks += [self.lane] if self.lane != SHARED else []
        return f"{self.node_id} [{self.kind.value}] {', '.join(marks)}: {text}"

    def as_dict(self) -> dict[str, Any]:
        """The node as a snapshot has it: the seed's five fields, the others under `meta` where they are set."""
        record: dict[str, Any] = {
            "node_id": self.node_id,
            "kind": self.kind.value,
            "thought": plain(self.thought),
            "related_turn_ids": list(self.related_turn_ids),
            "active": self.active,
        }
        if self.meta or _card(self) != _UNSET:
            fields = zip(CARD_FIELDS, _card(self), _UNSET, strict=True)
            record["meta"] = self.meta | {name: plain(value) for name, value, unset in fields if value != unset}
        return record


def plain(value: Any) -> Any:
    """The value of a field as JSON has it."""
    if isinstance(value, tuple | list):
        return [item.as_dict() if isinstance(item, Notes) else item for item in value]
    return value


def as_kind(kind: object) -> NodeKind:
    """The kind of that name. Raises GraphError for an unknown one."""
    found = _KINDS.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise GraphError(f"unknown kind of node: {kind!r}", mend=f"known kinds: {', '.join(NodeKind)}")
    return found


def as_lane(lane: object) -> str:
    """`shared`, or `agent/<name>` with the name as names are written (spec 3, *Lanes*). Raises GraphError."""
    lane = lane.strip().lower() if isinstance(lane, str) else repr(lane)
    if lane == SHARED:
        return lane
    prefix, _, agent = lane.partition("/")
    with suppress(UserError):  # the error below names the whole lane
        if prefix == "agent":
            return f"agent/{check_name(agent, 'agent name')}"
    raise GraphError(f"{lane!r} is not a lane", mend="a lane is 'shared' or 'agent/<name>'")


def as_thought(thought: object) -> str | list[Notes]:
    """A thought as a node holds it: a text, or a list of Notes made from Notes or mappings. Raises GraphError."""
    if isinstance(thought, str):
        return thought
    if not isinstance(thought, list | tuple):
        raise GraphError(f"a thought must be a text or a list of notes, not {type(thought).__name__}")
    return [item if isinstance(item, Notes) else _as_notes(item) for item in thought]


def _as_notes(item: Any) -> Notes:
    try:
        role, content = item["role"], item["content"]
    except (KeyError, TypeError, IndexError):
        role = content = None
    if not isinstance(role, str) or not isinstance(content, str):
        raise GraphError(f"a note needs a role and a content, both text, not {str(item)[:80]!r}")
    return Notes(role, content)


def as_turns(turns: object) -> list[int]:
    """The ids of messages as a list. Raises GraphError for anything but whole numbers: no snapshot could be read back."""
    found = a_list(turns, "the ids of turns")
    for turn in found:
        if type(turn) is not int:
            raise GraphError(f"the id of a turn must be a whole number, not {turn!r}")
    return found


def _as_flag(flag: object, what: str) -> bool:
    if not isinstance(flag, bool):
        raise GraphError(f"{what} must be true or false, not {flag!r}")
    return flag


def _as_meta(meta: object, what: str) -> dict[str, Any]:
    """A copy. A key that is the name of a field, and what JSON does not know, are refused: no log could hold them."""
    if not isinstance(meta, Mapping):
        raise GraphError(f"{what} must be a mapping, not {meta!r}")
    for name in meta:
        if name in _SEED_FIELDS or name in CARD_FIELDS:
            raise GraphError(f"{name!r} is a field of a node, not of its {what}")
    copy = dict(meta)
    try:
        json.dumps(copy)
    except (TypeError, ValueError, RecursionError) as error:
        raise GraphError(f"{what} is not JSON ({error})") from None
    return copy


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "title": a_text,
    "status": a_text,
    "tags": lambda tags, what: tuple(dict.fromkeys(map(str, a_list(tags, what)))),
    "lane": lambda lane, _: as_lane(lane),
    "step": a_text_or_none,
    "pinned": _as_flag,
    "meta": _as_meta,
    "thought": lambda thought, _: as_thought(thought),
    "related_turn_ids": lambda turns, _: as_turns(turns),
}
"""The fields of a node that can be set, and what makes values of them."""


def checked(values: object) -> dict[str, Any]:
    """Values from JSON, or from a caller, as a node holds them. Raises GraphError that names the field."""
    if not isinstance(values, Mapping):
        raise GraphError(f"the fields of a node must be a mapping, not {values!r}")
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in _CHECKS:
            raise GraphError(f"{name!r} is not a field that can be set", mend=f"fields: {', '.join(sorted(_CHECKS))}")
        found[name] = _CHECKS[name](value, name)
    if "pinned" in found.get("tags", ()):
        found.setdefault("pinned", True)
    return found


def node_from(record: Mapping[str, Any], created_seq: int = 0) -> ReasoningNode:
    """The node that a snapshot describes; `meta` and, as in the seed, turns and active may be missing.

    Call it inside a boundary.
    """
    active = record.get("active", True)
    if active is not True and active is not False and active != FLUSHED:
        raise GraphError(f"active must be true, false or {FLUSHED!r}, not {active!r}")
    node = ReasoningNode(
        int(record["node_id"]),
        as_kind(record["kind"]),
        as_thought(record["thought"]),
        [int(turn) for turn in record.get("related_turn_ids") or ()],
        active,
        created_seq=created_seq,
    )
    if record.get("meta"):
        meta = dict(record["meta"])
        fields = {name: meta.pop(name) for name in CARD_FIELDS if name in meta}
        node.created_at = fields.pop("created_at", None)
        for name, value in checked(fields).items():
            setattr(node, name, value)
        node.meta = meta
    return node


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
