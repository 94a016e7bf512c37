"""Which node of a document a piece of its changed file is: by text first, then by place (spec 5, *Import*)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Side", "match", "parents_of"]


_ALIKE = 0.4  # from this share of common words on, a changed text is taken for the same one
_MOST_PAIRS = 2_500  # beyond this, likeness costs more than it is worth
_COMPARED = 4_000  # characters of a text


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
        if old_parent is None or parent not in new_children:
            continue
        before = old_children.get(old_parent, [])
        position = {at: place for place, at in enumerate(before)}
        gap: list[int] = []
        left = -1
        for at in (*new_children[parent], None):
            here = None if at is None else found[at]
            if at is not None and here is None:
                gap.append(at)
            elif at is None or here in position:
                right = len(before) if here is None else position[here]
                end = min(right, left + 1 + max(_MOST_PAIRS, len(gap))) if gap else 0
                free = [there for there in before[left + 1 : end] if not taken[there]]
                for new_at, old_at in _align(old, new, free, gap):
                    found[new_at], taken[old_at] = old_at, True
                gap, left = [], right


def _align(old: Side, new: Side, free: Sequence[int], gap: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of one kind between the same neighbours: first those that share most words, then the others in order."""
    rest_old, rest_new = list(free), list(gap)
    if len(free) * len(gap) <= _MOST_PAIRS:
        alike = [
            (-_likeness(old.texts[old_at], new.texts[new_at]), new_at, old_at)
            for new_at in gap
            for old_at in free
            if old.kinds[old_at] == new.kinds[new_at]
        ]
        for likeness, new_at, old_at in sorted(alike):
            if -likeness >= _ALIKE and new_at in rest_new and old_at in rest_old:
                rest_new.remove(new_at)
                rest_old.remove(old_at)
                yield new_at, old_at
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for old_at in rest_old:
        waiting[old.kinds[old_at]].append(old_at)
    for new_at in rest_new:
        if queue := waiting[new.kinds[new_at]]:
            yield new_at, queue.popleft()


def _likeness(one: str, two: str) -> float:
    """The share of words that two texts have in common (Jaccard)."""
    words, others = (set(text[:_COMPARED].casefold().split()) for text in (one, two))
    return len(words & others) / len(words | others) if words or others else 1.0
