"""The meter: every request to a language model is announced before it is sent, and told when it is over."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hivemind.frozen import frozen
from hivemind.minds.mind import Usage

_MILLION = 1_000_000
_DIGITS = 12


@frozen
class Prices:
    """Money for a million tokens in and a million tokens out, in whatever currency the budgets are in.

    `cached` is for tokens in that the provider reads from its cache, by default a tenth; `written` for those that it writes
    there and reports, by default a quarter more.
    """

    tokens_in: float
    tokens_out: float
    cached: float | None = None
    written: float | None = None

    def of(self, used: Usage) -> float:
        """What a request costs."""
        read = self.tokens_in / 10 if self.cached is None else self.cached
        write = self.tokens_in * 1.25 if self.written is None else self.written
        new = max(0, used.tokens_in - used.cached - used.written)
        parts = (new * self.tokens_in, used.cached * read, used.written * write, used.tokens_out * self.tokens_out)
        return sum(parts) / _MILLION


class Pricing(Protocol):
    """What says what a request costs."""

    def of(self, used: Usage) -> float:
        """What a request costs."""
        ...


def priced(used: Usage, prices: Pricing | None) -> Usage:
    """The usage of one request with its price. Without prices all of its tokens are unpriced, and stay so in every sum."""
    if prices is None:
        return replace(used, money=0.0, unpriced=used.tokens)
    return replace(used, money=round(prices.of(used), _DIGITS), unpriced=0)


@frozen
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
