"""Meter requests to language models. A meter is a context manager around each request: it sees the request first, and the outcome
at the end."""

from __future__ import annotations

import os
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
    """Prices of a million input tokens and a million output tokens, in the currency of the budgets.

    `cached` is the price of input tokens that are read from the provider's cache, by default a tenth of `tokens_in`.
    `written` is the price of input tokens that are written to the cache, by default 1.25 times `tokens_in`.
    """

    tokens_in: float
    tokens_out: float
    cached: float | None = None
    written: float | None = None

    def price_of(self, usage: Usage) -> float:
        cached_price = self.tokens_in / 10 if self.cached is None else self.cached
        write_price = self.tokens_in * 1.25 if self.written is None else self.written
        uncached_tokens = max(0, usage.tokens_in - usage.cached - usage.written)
        costs = (
            uncached_tokens * self.tokens_in,
            usage.cached * cached_price,
            usage.written * write_price,
            usage.tokens_out * self.tokens_out,
        )
        return sum(costs) / _MILLION


class Pricing(Protocol):
    """Calculates the price of a request."""

    def price_of(self, usage: Usage) -> float:
        """Return the price of a request."""
        ...


def with_price(usage: Usage, prices: Pricing | None) -> Usage:
    """Return the usage of one request with its price. Without prices, all tokens of the request count as unpriced."""
    if prices is None:
        return replace(usage, money=0.0, unpriced=usage.tokens)
    return replace(usage, money=round(prices.price_of(usage), _DIGITS), unpriced=0)


@frozen
class MeteredRequest:
    """A request before it is sent, with a unique `id`.

    `cause` is turn, correction, continuation, fold, patch or mail. `parts` are the texts to count; a message that several
    requests have in common is the same part in each, so its tokens are counted once. `sha256` is the request's digest,
    `max_output` the answer's limit in tokens, `prices` the prices or None, and `pictures` the number of pictures.
    """

    cause: str
    model: str
    parts: tuple[str, ...] = field(repr=False)
    sha256: str
    max_output: int
    prices: Pricing | None = None
    pictures: int = 0
    id: str = field(default_factory=lambda: os.urandom(8).hex())


@dataclass(slots=True)
class MeteredExchange:
    """The outcome of a request.

    `answer` has the text and calls. If `answer` is None, `error` says why, and `lost` is True if the request may have cost
    something. `usage` is None if the provider reported none.
    """

    answer: dict[str, Any] | None = None
    usage: Usage | None = None
    error: str | None = None
    lost: bool = False


Meter = Callable[[MeteredRequest], AbstractContextManager[MeteredExchange]]
"""Counts the cost of a mind's requests and may stop them.

A meter is entered before a request is sent, and left when the request is over and its exchange is filled in. An exception on
entering stops the request; the mind passes it on unchanged.
"""


@contextmanager
def unmetered(request: MeteredRequest) -> Iterator[MeteredExchange]:  # noqa: ARG001 - has a meter's signature
    """Act as a meter that neither counts nor stops requests, for a mind without an agent."""
    yield MeteredExchange()
