"""What tokens cost: by the hive's own price list, else by the one that pydantic-ai brings along."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hivemind.minds.turn import Usage

__all__ = ["Prices", "priced"]

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens in and a million tokens out, in whatever currency the budgets are in.

    `cached` is for tokens in that the provider reads from its cache; by default a tenth.
    """

    tokens_in: float
    tokens_out: float
    cached: float | None = None

    def of(self, tokens_in: int, tokens_out: int, cached: int = 0) -> float:
        """What a request costs, `cached` of whose tokens in were read from the cache."""
        rate = self.tokens_in / 10 if self.cached is None else self.cached
        new = max(0, tokens_in - cached)
        return (new * self.tokens_in + cached * rate + tokens_out * self.tokens_out) / _MILLION


def priced(used: Usage, prices: Prices | None) -> Usage:
    """The usage of one request with its price. Without prices all of its tokens are unpriced, and stay so in every sum."""
    if prices is None:
        return replace(used, money=0.0, unpriced=used.tokens)
    return replace(used, money=prices.of(used.tokens_in, used.tokens_out, used.cached), unpriced=0)
