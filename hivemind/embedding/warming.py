"""What is loaded in the parent of processes that will all compare vectors, so that they share it."""

from __future__ import annotations

import os

from hivemind.embedding.index import VectorIndex
from hivemind.embedding.packed import numpy_or_none

__all__ = ["warm"]

_THREADS = "OPENBLAS_NUM_THREADS"


def warm() -> None:
    """Load numpy, where it is installed, and look for a vector once.

    Without threads: OpenBLAS would start one for each core but one, which nothing here uses (`index.engines`), and a
    parent that forks must have none.
    """
    said = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        numpy_or_none()
    finally:
        if said is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = said
    index = VectorIndex(2, exact_to=0)
    index.put(1, [1.0, 0.0])
    index.search([1.0, 0.0], 1)
