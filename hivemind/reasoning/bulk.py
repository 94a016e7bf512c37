"""Making very many values that will all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Let the cyclic garbage collector rest meanwhile, if it is on.

    While a large graph is read or written, thousands of dicts and nodes come to be and none is garbage: the collector
    would walk over all of them again and again, which doubles the time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
