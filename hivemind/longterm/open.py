"""Opening a store, in a hive or anywhere else."""

from __future__ import annotations

import os
from typing import Any

from hivemind.embedding import Embedder
from hivemind.longterm.errors import LongtermError
from hivemind.longterm.store import MemoryStore

__all__ = ["open_store"]

_SQLITE = "sqlite:///"


def open_store(path_or_url: str | os.PathLike[str], embedder: Embedder | None = None, **options: Any) -> MemoryStore:
    """The store in a file (`notes/memory.db`, `sqlite:///notes/memory.db`, or `:memory:`), made at its first use.

    `options` are MemoryStore's. Raises LongtermError for any other URL, a folder, or a file in a folder that is not there.
    """
    name = os.fspath(path_or_url)
    path = name.removeprefix(_SQLITE)
    if "://" in path:
        scheme = path.split("://", 1)[0]
        raise LongtermError(f"{scheme} is no kind of store that is known here", mend="give a path, or sqlite:///path")
    if path != ":memory:":
        path = os.path.abspath(path)
        if os.path.isdir(path):
            raise LongtermError("is a folder", where=path, mend="name a file in it, such as memory.db")
        if not os.path.isdir(os.path.dirname(path)):
            raise LongtermError(
                "the folder is not there", where=os.path.dirname(path), mend="make it, or check the path"
            )
    return MemoryStore(path, embedder, **options)
