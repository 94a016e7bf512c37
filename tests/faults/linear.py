"""Search one order of all calls, in keeping with when each began and ended, that one register or lock explains.

Wing and Gong's search (*Testing and verifying concurrent objects*, 1993), with the dead ends remembered as Lowe does. A
call that was never answered may have taken effect at any moment after it began, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Call", "Lease", "Reserved", "counter", "lease", "linearizable", "meet", "reservations"]

State = TypeVar("State", bound=Hashable)
_NEVER = 1 << 63


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call: when it began and ended (ns), who made it, what it was and what came back.

    `end` None: nobody lived to hear the answer, and `result` is None.
    """

    begin: int
    end: int | None
    agent: str
    name: str
    result: Any
    argument: Any = None


Model = Callable[[State, Call], Iterable[State]]
"""The states in which an object can be after the call, if it was in this state before: none, if it could not have
answered as it did. The specification: sequential, and obvious."""


def linearizable(calls: Sequence[Call], initial: State, model: Model[State]) -> bool:
    """True if some order explains every answer. Depth first, an explicit stack."""
    queue = sorted(calls, key=lambda call: call.begin)
    ends = [_NEVER if call.end is None else call.end for call in queue]
    replies = frozenset(at for at, call in enumerate(queue) if call.end is not None)
    dead: set[tuple[frozenset[int], State]] = set()
    todo: list[tuple[frozenset[int], State]] = [(frozenset(), initial)]
    while todo:
        done, state = todo.pop()
        if done >= replies:
            return True
        if (done, state) in dead:
            continue
        dead.add((done, state))
        first_end = min(ends[at] for at in range(len(queue)) if at not in done)
        for at, call in enumerate(queue):
            if call.begin > first_end:  # what ended before it began has not been placed yet
                break
            if at not in done:
                todo += [(done | {at}, after) for after in model(state, call)]
    return False


# leases: a lock with a number that grows with each new holder

Lease = tuple[str | None, int]  # holder, generation


def lease(state: Lease, call: Call) -> Iterator[Lease]:
    """claim, force, renew and release (with the generation that is shown, or None), get; a note is taken as a renewal is.

    Answers: `("mine", generation)`, `"held"` or `("held", holder, generation)`, `"done"`, `"refused"`; of get
    `(holder, generation)` or `(None, 0)`.
    """
    holder, generation = state
    answers: list[Any]
    if call.name == "get":
        if call.result in (None, (holder, generation if holder else 0)):
            yield state
        return
    if call.name in ("claim", "force"):
        if holder is not None and holder != call.agent and call.name == "claim":
            answers, after = ["held", ("held", holder, generation)], state
        else:
            after = state if holder == call.agent else (call.agent, generation + 1)
            answers = [("mine", after[1])]
    else:
        good = holder == call.agent and call.argument in (None, generation)
        answers = ["done" if good else "refused"]
        after = (None, generation) if good and call.name == "release" else state
    if call.result in (None, *answers):
        yield after


# reservations: patterns that agents keep for themselves

Reserved = frozenset[tuple[int, str, str, bool]]  # its number, who, pattern, shared


def reservations(state: Reserved, call: Call) -> Iterator[Reserved]:
    """reserve (argument: pattern, shared) is answered with `("got", number)` or `"held"`; release (all of one's own) with
    `"done"`; list with all that are held, sorted, each as who, pattern, shared."""
    if call.name == "list":
        if call.result in (None, tuple(sorted(row[1:] for row in state))):
            yield state
    elif call.name == "release":
        yield frozenset(row for row in state if row[1] != call.agent)
    else:
        pattern, is_shared = call.argument
        is_held = any(
            holder != call.agent and meet(path, pattern) and not (also and is_shared) for _, holder, path, also in state
        )
        if is_held:
            if call.result in (None, "held"):
                yield state
        elif call.result is None:
            yield state | {(-call.begin, call.agent, pattern, is_shared)}  # a number that no answer has
        elif isinstance(call.result, tuple):
            yield state | {(call.result[1], call.agent, pattern, is_shared)}


def meet(first: str, second: str) -> bool:
    """Check that a path could match both, for patterns of letters, `/` and `*` (within a folder's name)."""
    parts, rival = first.split("/"), second.split("/")
    return len(parts) == len(rival) and all(_part_meets(*pair) for pair in zip(parts, rival, strict=True))


def _part_meets(first: str, second: str) -> bool:
    if "*" not in first and "*" not in second:
        return first == second
    head = min(first.find("*") % (len(first) + 1), second.find("*") % (len(second) + 1))
    tails = [len(part) - 1 - part.rfind("*") if "*" in part else len(part) for part in (first, second)]
    tail = min(tails)
    return first[:head] == second[:head] and (tail == 0 or first[len(first) - tail :] == second[len(second) - tail :])


# a counter that is raised by compare-and-set


def counter(state: int, call: Call) -> Iterator[int]:
    """raise (argument: the new value) is answered with `"done"` or `"conflict"`; get with the value."""
    if call.name == "get":
        if call.result in (None, state):
            yield state
    elif call.result in (None, "done") and state == call.argument - 1:
        yield call.argument
    elif call.result in (None, "conflict"):
        yield state
