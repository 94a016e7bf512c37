"""Scenarios and checkers: plain values, to run each scenario under each fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .subject import Subject

__all__ = ["Checker", "Scenario"]


@dataclass(frozen=True, slots=True)
class Checker:
    """Looks at the hive from outside and names each breach of its promises (numbers of docs/promises.md) in a sentence."""

    name: str
    promises: tuple[str, ...]
    find: Callable[[Subject], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A small swarm with a known workload.

    `prepare` makes the hive, without a fault. `play` is the workload, under the fault: it asks through `Subject.ask`
    and `Subject.drop` and never insists. `retry` is what a person does once the fault is over: all requests that were not
    acknowledged are repeated, under the same key. Then the swarm works until it is idle, and checkers look.
    """

    name: str
    about: str
    prepare: Callable[[Subject], None]
    play: Callable[[Subject], None]
    retry: Callable[[Subject], None]
    checkers: tuple[Checker, ...]
    points: tuple[str, ...] = ("",)  # what the crash points on its way begin with
    late: bool = False  # promised also where two machines see the folder late: no journal and no database is in it
