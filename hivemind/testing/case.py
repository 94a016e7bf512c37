"""A sentence that an implementation of a port must keep to, and what checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Case", "refused", "says"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Case(Generic[_T]):
    """`check` takes an implementation as it is before anything was done with it, and raises AssertionError."""

    sentence: str
    check: Callable[[_T], None]

    def __str__(self) -> str:
        return self.check.__name__


def says(cases: list[Case[_T]], sentence: str) -> Callable[[Callable[[_T], None]], Callable[[_T], None]]:
    """Adds the function below to `cases`, as what checks the sentence."""

    def keep(check: Callable[[_T], None]) -> Callable[[_T], None]:
        cases.append(Case(sentence, check))
        return check

    return keep


@contextmanager
def refused(kind: type[Exception]) -> Iterator[None]:
    """What is done inside must raise an exception of that kind."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")
