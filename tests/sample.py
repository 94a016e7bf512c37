"""The size of wide samples: `make test` tries a part of each, `make faults` all of it.

A test that widens a sample, and meets no other branch of the program with it, is marked `sampled` and takes its cases with
`sample`. `HIVEMIND_SAMPLE=all pytest -m sampled` tries everything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

__all__ = ["IS_WHOLE", "examples", "sample", "sampled"]

IS_WHOLE = os.environ.get("HIVEMIND_SAMPLE") == "all"
sampled = pytest.mark.sampled
T = TypeVar("T")


def sample(cases: Iterable[T], every: int, first: int = 0) -> list[T]:
    """Return every n-th case, or all in a whole run."""
    return list(cases) if IS_WHOLE else list(cases)[first::every]


def examples(whole: int, part: int, **more: Any) -> Callable[[Any], Any]:
    """Return a mark for a property that Hypothesis tries with `part` examples, and with `whole` in a whole run."""
    return lambda test: sampled(settings(max_examples=whole if IS_WHOLE else part, **more)(test))
