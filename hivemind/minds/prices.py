"""What tokens cost: by the hive's own price list, else by the one that pydantic-ai brings along."""

from __future__ import annotations

from dataclasses import dataclass

from hivemind.minds.mind import Usage

__all__ = ["Prices", "priced"]

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens in and a million tokens out, in whatever currency the budgets are in."""

    tokens_in: float
    tokens_out: float

    def of(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.tokens_in + tokens_out * self.tokens_out) / _MILLION


def priced(tokens_in: int, tokens_out: int, prices: Prices | None) -> Usage:
    """The usage of one request. Without prices all of its tokens are unpriced, and stay so in every sum."""
    if prices is None:
        return Usage(tokens_in, tokens_out, 0.0, tokens_in + tokens_out)
    return Usage(tokens_in, tokens_out, prices.of(tokens_in, tokens_out))
