"""A topic that fails, for the tests of the frame."""

from __future__ import annotations

from benchmarks.table import Row


def run(quick: bool = False) -> list[Row]:
    raise RuntimeError("the pump is dry")
