"""The parts of a reasoning graph (nodes, edges and links), and the operations that a mind may request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

from hivemind.boundary import Unreadable, as_dataclass
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.names import check_name
from hivemind.words import truncate

_M = TypeVar("_M", bound=BaseModel)


class GraphError(UserError):
    """The graph refuses a change. It stays as it was."""


class BudgetTooSmall(GraphError):
    """A context cannot be made small enough. `min_budget` is the smallest budget that would do, in tokens."""

    def __init__(self, budget: int, min_budget: int) -> None:
        super().__init__(
            f"the context needs at least {min_budget} tokens, the budget is {budget}",
            remedy=f"set a budget of at least {min_budget} tokens",
        )
        self.min_budget = min_budget


def parse(model: type[_M], value: object) -> _M:
    """Return the value as an instance of `model`. Raises GraphError with the field and the problem if it is invalid."""
    if isinstance(value, model):
        return value
    try:
        return as_dataclass(model, value, model.__name__)
    except Unreadable as error:
        raise GraphError(error.message) from None


FLUSHED = "Flushed"
SHARED = "shared"
_SEED_FIELDS = ("node_id", "kind", "thought", "related_turn_ids", "active")
CARD_FIELDS = ("title", "status", "tags", "lane", "step", "pinned", "created_at")
_RESERVED = {*_SEED_FIELDS, *CARD_FIELDS}
_UNSET_VALUES = ("", "open", (), SHARED, None, False, None)
_card_values = attrgetter(*CARD_FIELDS)


class NodeKind(StrEnum):
    """The kinds of nodes. The first four give a graph its structure, in the others (cards) an agent argues."""

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


@frozen
class Notes:
    """One immutable utterance. `role` is assistant, user, system or an agent's name."""

    role: str
    content: str

    def as_dict(self) -> dict[str, str]:
        """Return `{"role": …, "content": …}`."""
        return {"role": self.role, "content": self.content}


@dataclass(slots=True)
class ReasoningNode:
    """One node. Change a node only through the graph, which logs the change.

    `active` is True, False (folded into a summary) or "Flushed" (hidden). `related_turn_ids` are ids of messages.
    `created_seq` is the graph's seq at the node's creation, `created_at` the time (None if the graph's `now` was not
    set).
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

    def set_fields(self, fields: Mapping[str, Any]) -> None:
        """Set fields of a card. Raises GraphError with the name of a bad field."""
        for name, value in checked_fields(fields).items():
            setattr(self, name, value)

    @property
    def text(self) -> str:
        """The thought as plain text; the contents of Notes on one line each."""
        if isinstance(self.thought, str):
            return self.thought
        return "\n".join(note.content for note in self.thought)

    @property
    def heading(self) -> str:
        """The title, or the thought if there is none, on one line."""
        return " ".join((self.title or self.text).split())

    def line(self, width: int) -> str:
        """Return one line: `7 [evidence] closed, pinned, agent/a: Title: thought …`."""
        text = truncate(self.text, width)
        if not text.isprintable():
            text = "".join([char if char.isprintable() else " " for char in " ".join(text.split())])
        if self.title:
            title = " ".join(self.title.split())
            text = f"{title}: {text}" if text and text != title else title
        marks = [self.status] if self.status != "open" else []
        marks += ["pinned"] if self.pinned else []
        marks += [self.lane] if self.lane != SHARED else []
        prefix = f"{', '.join(marks)}: " if marks else ""
        return f"{self.node_id} [{self.kind.value}] {prefix}{text}"

    def as_dict(self) -> dict[str, Any]:
        """Return the node's record in a snapshot: five fields always, the others under `meta` if they are set."""
        record: dict[str, Any] = {
            "node_id": self.node_id,
            "kind": self.kind.value,
            "thought": json_value(self.thought),
            "related_turn_ids": list(self.related_turn_ids),
            "active": self.active,
        }
        if self.meta or _card_values(self) != _UNSET_VALUES:
            fields = zip(CARD_FIELDS, _card_values(self), _UNSET_VALUES, strict=True)
            record["meta"] = self.meta | {name: json_value(value) for name, value, unset in fields if value != unset}
        return record


def json_value(value: Any) -> Any:
    """Convert a field's value to JSON."""
    if isinstance(value, tuple | list):
        return [item.as_dict() if isinstance(item, Notes) else item for item in value]
    return value


def as_kind(kind: str) -> NodeKind:
    """Return the kind with that name. Raises GraphError for an unknown kind."""
    if kind not in _KINDS:
        raise GraphError(f"unknown kind of node: {kind!r}", remedy=f"known kinds: {', '.join(NodeKind)}")
    return _KINDS[kind]


@lru_cache(maxsize=1024)  # a log repeats few lanes in many nodes
def as_lane(lane: str) -> str:
    """Return the normalized lane: `shared` or `agent/<name>`. Raises GraphError."""
    lane = lane.strip().lower()
    if lane == SHARED:
        return lane
    prefix, _, agent = lane.partition("/")
    with suppress(UserError):  # the error below shows the whole lane
        if prefix == "agent":
            return f"agent/{check_name(agent, 'agent name')}"
    raise GraphError(f"{lane!r} is not a lane", remedy="a lane is 'shared' or 'agent/<name>'")


def as_thought(thought: Any) -> str | list[Notes]:
    """Return the text, or a list of Notes from Notes or mappings. Raises GraphError."""
    if isinstance(thought, str):
        return thought
    try:
        notes = [item if isinstance(item, Notes) else Notes(item["role"], item["content"]) for item in thought]
    except (TypeError, KeyError):
        notes = [Notes("", None)]  # type: ignore[arg-type]
    for note in notes:
        if not isinstance(note.role, str) or not isinstance(note.content, str):
            raise GraphError("a thought must be a text or a list of notes, each with a role and a content")
    return notes


def as_turn_ids(turns: Iterable[int]) -> list[int]:
    """Return ids of messages as a list. Raises GraphError if one is not an integer."""
    turn_ids = list(turns)
    for turn in turn_ids:
        if type(turn) is not int:
            raise GraphError(f"ids of turns must be integers: {turn_ids!r}")
    return turn_ids


def _as_tags(tags: Iterable[object]) -> tuple[str, ...]:
    if isinstance(tags, str):
        raise GraphError(f"tags must be a list, not {tags!r}")
    return tuple(dict.fromkeys(map(str, tags)))


def _as_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `meta`. Raises GraphError if a key is the name of a field, or if a value is not JSON."""
    copy = dict(meta)
    if not copy:
        return copy
    try:
        json.dumps(copy)
    except (TypeError, ValueError, RecursionError) as error:
        raise GraphError(f"meta is not JSON ({error})") from None
    if reserved_keys := copy.keys() & _RESERVED:
        raise GraphError(f"{', '.join(sorted(reserved_keys))!r} is a field of a node, not of its meta")
    return copy


_TYPES = {"title": str, "status": str, "step": str | None, "pinned": bool}
_FIELD_PARSERS: dict[str, Callable[[Any], Any]] = {
    "tags": _as_tags, "lane": as_lane, "meta": _as_meta, "thought": as_thought, "related_turn_ids": as_turn_ids,
}  # fmt: skip


def checked_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as a node stores them. Raises GraphError with the name of a bad field."""
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if name in _FIELD_PARSERS:
            fields[name] = _FIELD_PARSERS[name](value)
        elif name in _TYPES and isinstance(value, _TYPES[name]):
            fields[name] = value
        else:
            known_fields = f"fields: {', '.join(sorted({*_TYPES, *_FIELD_PARSERS}))}"
            raise GraphError(f"{name} cannot be set to {value!r}", remedy=known_fields)
    if "pinned" in fields.get("tags", ()):
        fields.setdefault("pinned", True)
    return fields


def card_fields(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a card from the `meta` of a record. The keys that are no fields stay together as the field `meta`."""
    if not meta:
        return {}
    node_meta = dict(meta)
    return {name: node_meta.pop(name) for name in CARD_FIELDS if name in node_meta} | {"meta": node_meta}


def node_from(record: Mapping[str, Any], created_seq: int = 0) -> ReasoningNode:
    """Return the node of a snapshot's record. `meta`, turns and `active` may be missing. Call this inside `boundary(…)`."""
    active = record.get("active", True)
    if active is not True and active is not False and active != FLUSHED:
        raise GraphError(f"active must be true, false or {FLUSHED!r}, not {active!r}")
    node = ReasoningNode(
        int(record["node_id"]),
        as_kind(record["kind"]),
        as_thought(record["thought"]),
        as_turn_ids(record.get("related_turn_ids") or ()),
        active,
        created_seq=created_seq,
    )
    if record.get("meta"):
        card = card_fields(record["meta"])
        node.created_at = card.pop("created_at", None)
        node.set_fields(card)
    return node


@frozen
class Edge:
    """An edge from an older or enclosing node to a newer node: parent → child. Edges are equal by ends and rationale.

    `relation` is decompose, refine, support or another word.
    """

    src: int
    dst: int
    rationale: str = ""
    relation: str = field(default="", compare=False)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Edge:
        """Return the edge of a snapshot's record; its ends may be numbers or texts. Call this inside `boundary(…)`."""
        rationale, relation = str(record.get("rationale") or ""), str(record.get("relation") or "")
        return cls(int(record["src"]), int(record["dst"]), rationale, relation)


@frozen
class Link:
    """An argument between two nodes: `src` supports, blocks or supersedes `dst`. `relation` may also be another word."""

    src: int
    dst: int
    relation: str
    created_seq: int = field(default=0, compare=False)


def derive_relation(rationale: str, src: NodeKind, dst: NodeKind) -> str:
    """Return the relation of an edge from `src` to `dst`: decompose, refine or support.

    It is the one of these words that the rationale contains. If there is none, it depends on the kinds of the two
    nodes.
    """
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


# -- operations of minds -----------------------------------------------------------------------------------------------


class _Op(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


def _as_end(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class AddNodeOp(_Op):
    """A node to add. `tmp_id` names it within the patch; `kind` is subtask or evidence."""

    tmp_id: str
    kind: NodeKind
    thought: list[Notes] | str


class AddEdgeOp(_Op):
    """An edge to add, parent → child. Each end is the id of a node or a `tmp_id` of the patch."""

    src: Annotated[str, BeforeValidator(_as_end)]
    dst: Annotated[str, BeforeValidator(_as_end)]
    rationale: str = ""


class MemoryPatch(_Op):
    """The new nodes and edges by which one episode is recorded in the graph."""

    add_nodes: list[AddNodeOp] = []
    add_edges: list[AddEdgeOp] = []


class EpisodePatch(MemoryPatch):
    """The new nodes and edges by which one episode is recorded, with the number of the episode in the prompt."""

    episode: int


class EpisodePatches(_Op):
    """One patch for each of several episodes."""

    episodes: list[EpisodePatch]


class FlushOp(_Op):
    """A node to flush (to hide from contexts), and the reason."""

    id: int
    rationale: str = ""


class FoldOp(_Op):
    """Nodes to fold into one summary, the summary's text, and the reason."""

    ids: list[int]
    notes: list[Notes] | str
    rationale: str = ""


class FlushAndFoldOp(_Op):
    """The flushes and folds that make a context smaller. Each id may be in one operation only."""

    flush_ops: list[FlushOp] = []
    fold_ops: list[FoldOp] = []


def is_number_like(text: str) -> bool:
    """Return True if a name could be read as the id of a node."""
    try:
        float(text.strip())
    except ValueError:
        return text.strip().isnumeric()  # "²" and "Ⅳ" are numeric, but not for float
    return True
