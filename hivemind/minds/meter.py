"""The meter: every request to a language model is announced before it is sent, and told when it is over."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol

from hivemind.minds.mind import Usage
from hivemind.minds.prices import Prices

__all__ = ["Asked", "Exchange", "Meter", "Unmetered"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request about to be sent. `purpose` is think or complete, `parts` all of it as it counts (those that are the same
    each time stand for themselves, and need be counted once), `sha256` its digest, `max_output` the most tokens that the
    answer may have, `prices` what they cost, or None if nobody knows; its `id` is another one each time."""

    purpose: str
    model: str
    parts: tuple[str, ...] = field(repr=False)
    sha256: str
    max_output: int
    prices: Prices | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request that is over. `answer` is what came (text, actions), or None; then `error` says why, and `lost` whether
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
