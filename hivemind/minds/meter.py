"""The meter: every request to a language model is announced before it is sent, and told when it is over."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol

from hivemind.minds.prices import Prices
from hivemind.minds.turn import Usage

__all__ = ["Asked", "Exchange", "Meter", "Unmetered"]


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
    prices: Prices | None = None
    pictures: int = 0
    id: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request that is over. `answer` is what came (text, calls), or None; then `error` says why, and `lost` whether
    it may have cost something nevertheless. `usage` is what was reported, or None if nothing was."""

    asked: Asked
    answer: dict[str, Any] | None = None
    usage: Usage | None = None
    error: str | None = None
    lost: bool = False


class Meter(Protocol):
    """Who counts what a mind's requests cost, and stops those that would cost too much."""

    def before(self, asked: Asked) -> None:
        """A request is about to be sent. What this raises stops it, and comes out of the mind as it is."""
        ...

    def after(self, exchange: Exchange) -> None:
        """A request is over."""
        ...


class Unmetered:
    """Counts nothing and stops nothing: a mind on its own."""

    def before(self, asked: Asked) -> None:
        """Nothing stops it."""

    def after(self, exchange: Exchange) -> None:
        """Nothing is counted."""
