"""Where nodes are found without looking at all of them: by kind, lane, tag, step; pinned, active, flushed ones."""

from __future__ import annotations

from hivemind.reasoning.node import FLUSHED, NodeKind, ReasoningNode

__all__ = ["Index"]

_Ids = dict[int, None]


class Index:
    """Ids of nodes under the values that queries ask for; every answer is sorted by id."""

    __slots__ = ("_active", "_flushed", "_kinds", "_lanes", "_pinned", "_steps", "_tags")

    def __init__(self) -> None:
        self._kinds: dict[str, _Ids] = {kind.value: {} for kind in NodeKind}
        self._lanes: dict[str, _Ids] = {}
        self._tags: dict[str, _Ids] = {}
        self._steps: dict[str, _Ids] = {}
        self._pinned: _Ids = {}
        self._active: _Ids = {}
        self._flushed: _Ids = {}

    def add(self, node: ReasoningNode) -> None:
        """Take a node in as it is now."""
        number = node.node_id
        active = node.active
        self._kinds[node.kind._value_][number] = None  # the member itself would hash in Python code
        try:
            self._lanes[node.lane][number] = None
        except KeyError:
            self._lanes[node.lane] = {number: None}
        if active is True:
            self._active[number] = None
        elif active == FLUSHED:
            self._flushed[number] = None
        if node.step is not None:
            self._steps.setdefault(node.step, {})[number] = None
        for tag in node.tags:
            self._tags.setdefault(tag, {})[number] = None
        if node.pinned:
            self._pinned[number] = None

    def drop(self, node: ReasoningNode) -> None:
        """Forget a node; it must still be as it was when it was taken in."""
        number = node.node_id
        del self._kinds[node.kind.value][number]
        del self._lanes[node.lane][number]
        self._active.pop(number, None)
        self._flushed.pop(number, None)
        if node.step is not None:
            del self._steps[node.step][number]
        for tag in node.tags:
            del self._tags[tag][number]
        self._pinned.pop(number, None)

    def state(self, node: ReasoningNode) -> None:
        """Note whether the node is active."""
        number = node.node_id
        self._active.pop(number, None)
        self._flushed.pop(number, None)
        if node.active is True:
            self._active[number] = None
        elif node.active == FLUSHED:
            self._flushed[number] = None

    def is_active(self, number: int) -> bool:
        return number in self._active

    def active(self) -> list[int]:
        return sorted(self._active)

    def flushed(self) -> list[int]:
        return sorted(self._flushed)

    def pinned(self) -> list[int]:
        return sorted(self._pinned)

    def of_kind(self, kind: NodeKind) -> list[int]:
        return sorted(self._kinds[kind.value])

    def in_lane(self, lane: str) -> list[int]:
        return sorted(self._lanes.get(lane, ()))

    def of_step(self, step: str) -> list[int]:
        return sorted(self._steps.get(step, ()))

    def tagged(self, tag: str) -> list[int]:
        return sorted(self._tags.get(tag, ()))

    def tags(self) -> list[str]:
        """The tags that some node has, sorted."""
        return sorted(tag for tag, ids in self._tags.items() if ids)

    def lanes(self) -> list[str]:
        """The lanes that some node is in, sorted."""
        return sorted(lane for lane, ids in self._lanes.items() if ids)
