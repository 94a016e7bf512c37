"""A topic that fails in one of its processes, for the tests of the frame."""

from __future__ import annotations

from benchmarks.processes import at_once
from benchmarks.table import Row


def run(quick: bool = False) -> list[Row]:
    return at_once(_pump)


def _pump(number: int) -> None:
    raise RuntimeError("the pump is dry")
