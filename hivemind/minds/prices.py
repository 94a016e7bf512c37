"""What tokens cost: by the hive's own price list, else by the one that pydantic-ai brings along."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from hivemind.minds.turn import Usage

__all__ = ["Prices", "Pricing", "priced"]

_MILLION = 1_000_000
_DIGITS = 12


@dataclass(frozen=True, slots=True)
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
