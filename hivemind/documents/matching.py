"""Which node of a document a piece of its changed file is: by text first, then by place (spec 5, *Import*)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["Side", "match", "parents_of"]


@dataclass(frozen=True, slots=True)
class Side:
    """One state of a document, in reading order: of each piece its kind, text, section title and parent's position.

    A parent of −1 is the document itself.
    """

    kinds: Sequence[str]
    texts: Sequence[str]
    sections: Sequence[str]
    parents: Sequence[int]

    def __len__(self) -> int:
        return len(self.kinds)

    def children(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for at, parent in enumerate(self.parents):
            found[parent].append(at)
        return found


def parents_of(depths: Sequence[int]) -> list[int]:
    """The position of each one's parent: the nearest earlier one of smaller depth, or −1."""
    above: list[tuple[int, int]] = [(0, -1)]
    found = []
    for at, depth in enumerate(depths):
        while above[-1][0] >= depth:
            above.pop()
        found.append(above[-1][1])
        above.append((depth, at))
    return found


def match(old: Side, new: Side) -> list[int | None]:
    """For each new piece the old one that it is, or None. No old one is given twice; linear in both sides.

    First what has the same kind, text and section, then the same kind and text; what is left over: of the same kind,
    under the same parent, between the same neighbours.
    """
    found: list[int | None] = [None] * len(new)
    taken = [False] * len(old)
    for with_section in (True, False):
        waiting: dict[Hashable, deque[int]] = defaultdict(deque)
        for at in range(len(old)):
            if not taken[at]:
                waiting[_key(old, at, with_section)].append(at)
        for at in range(len(new)):
            if found[at] is None and (queue := waiting.get(_key(new, at, with_section))):
                found[at] = here = queue.popleft()
                taken[here] = True
    _by_place(old, new, found, taken)
    return found


def _key(side: Side, at: int, with_section: bool) -> Hashable:
    section = side.sections[at] if with_section else None
    return side.kinds[at], side.texts[at], section


def _by_place(old: Side, new: Side, found: list[int | None], taken: list[bool]) -> None:
    old_children, new_children = old.children(), new.children()
    for parent in (-1, *range(len(new))):  # parents come before their children
        old_parent = -1 if parent < 0 else found[parent]
        before = old_children.get(old_parent, []) if old_parent is not None else []
        position = {at: place for place, at in enumerate(before)}
        for siblings, step in ((new_children.get(parent, []), 1), (new_children.get(parent, [])[::-1], -1)):
            last = -1 if step > 0 else len(before)
            for at in siblings:
                here = found[at]
                if here is None:
                    here = _next_free(old, before, taken, last + step, step, new.kinds[at])
                    if here is not None:
                        found[at], taken[here] = here, True
                if here is not None and here in position:
                    last = position[here]


def _next_free(old: Side, before: Sequence[int], taken: Sequence[bool], place: int, step: int, kind: str) -> int | None:
    """The first free one of that kind from `place` on, before the next one that is taken."""
    while 0 <= place < len(before) and not taken[before[place]]:
        if old.kinds[before[place]] == kind:
            return before[place]
        place += step
    return None
