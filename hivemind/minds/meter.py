"""The meter: every request to a language model is announced before it is sent, and told when it is over."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from hivemind.minds.prices import Pricing
from hivemind.minds.turn import Usage

__all__ = ["Asked", "Exchange", "Meter", "unmetered"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request about to be sent, under an `id` of its own.

    `cause` is turn, correction, continuation, fold, patch or mail; `parts` are all of it as it counts (each is the same text in
    every request that has it, and need be counted once), `sha256` is its digest, `max_output` the most tokens that the answer
    may have, `prices` what they cost, or None if nobody knows. `pictures` go with it beside the parts.
    """

    cause: str
    model: str
    parts: tuple[str, ...] = field(repr=False)
    sha256: str
    max_output: int
    prices: Pricing | None = None
    pictures: int = 0
    id: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(slots=True)
class Exchange:
    """What came of a request. `answer` is what came (text, calls), or None; then `error` says why, and `lost` whether
    it may have cost something nevertheless. `usage` is what was reported, or None if nothing was."""

    answer: dict[str, Any] | None = None
    usage: Usage | None = None
    error: str | None = None
    lost: bool = False


Meter = Callable[[Asked], AbstractContextManager[Exchange]]
"""Counts what a mind's requests cost, and stops those that would cost too much: entered before a request is sent, left when
it is over and its exchange filled in. What it raises on entering stops the request, and comes out of the mind as it is."""


@contextmanager
def unmetered(asked: Asked) -> Iterator[Exchange]:  # noqa: ARG001 - a meter, which counts nothing
    """Counts nothing and stops nothing: for a mind on its own."""
    yield Exchange()
