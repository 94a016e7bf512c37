"""A small linearizability checker: is there one order of all calls, respecting real time, that a single lease explains?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """One recorded call on one step: when it began and ended (ns), who made it, what it was and what came back."""

    begin: int
    end: int
    agent: str
    name: str
    result: str


State = tuple[str | None, int]  # holder, generation


def step(state: State, call: Call) -> tuple[str, State]:
    """What the call must return in this state, and the state after it: the specification, sequential and obvious."""
    holder, generation = state
    if call.name == "get":
        return f"{holder} {generation}" if holder else "free", state
    if call.name == "release":
        return ("released", (None, generation)) if holder == call.agent else ("not held", state)
    if holder == call.agent:
        return f"mine {generation}", state
    if holder is not None and call.name != "force":
        return f"held by {holder} {generation}", state
    return f"mine {generation + 1}", (call.agent, generation + 1)


def linearizable(calls: list[Call]) -> bool:
    """True if some order explains every result. Depth first, with the dead ends remembered."""
    calls = sorted(calls, key=lambda call: call.begin)
    dead: set[tuple[frozenset[int], State]] = set()
    todo: list[tuple[frozenset[int], State]] = [(frozenset(), (None, 0))]
    while todo:
        done, state = todo.pop()
        if len(done) == len(calls):
            return True
        if (done, state) in dead:
            continue
        dead.add((done, state))
        open_calls = [at for at in range(len(calls)) if at not in done]
        first_end = min(calls[at].end for at in open_calls)
        for at in open_calls:
            if calls[at].begin > first_end:  # something that had ended before it began has not been placed yet
                break
            result, after = step(state, calls[at])
            if result == calls[at].result:
                todo.append((done | {at}, after))
    return False
