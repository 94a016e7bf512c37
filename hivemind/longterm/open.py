"""Opening a store, in a hive or anywhere else."""

from __future__ import annotations

import os
from typing import Any, Literal

from hivemind.embedding import Embedder, open_embedder
from hivemind.longterm.errors import LongtermError
from hivemind.longterm.store import MemoryStore

__all__ = ["open_store"]

_SQLITE = "sqlite:///"


def open_store(
    path_or_url: str | os.PathLike[str], embedder: Embedder | Literal["auto"] | None = "auto", **options: Any
) -> MemoryStore:
    """The store in a file (`notes/memory.db`, `sqlite:///notes/memory.db`, or `:memory:`), made at its first use.

    `"auto"` is the embedder that is installed (as `embedder: auto` in a hive), loaded at the first text; with None, and
    where none is installed, words alone are searched. `options` are MemoryStore's. Raises LongtermError for any other
    URL, a folder, or a file in a folder that is not there.
    """
    path = _path_of(path_or_url)
    if path != ":memory:":
        path = os.path.abspath(path)
        if os.path.isdir(path):
            raise LongtermError("is a folder", where=path, mend="name a file in it, such as memory.db")
        if not os.path.isdir(os.path.dirname(path)):
            raise LongtermError(
                "the folder is not there", where=os.path.dirname(path), mend="make it, or check the path"
            )
    return MemoryStore(path, open_embedder() if embedder == "auto" else embedder, **options)


def _path_of(path_or_url: object) -> str:
    """The path that is meant. Raises LongtermError for what means none; no URL is shown, it may hold a password."""
    if not isinstance(path_or_url, str | os.PathLike):
        raise LongtermError(f"a {type(path_or_url).__name__} names no store", mend="give a path, or sqlite:///path")
    path = os.fsdecode(path_or_url).removeprefix(_SQLITE)
    scheme, found, _ = path.partition("://")
    if found and scheme.startswith("postgres"):
        raise LongtermError(
            "memories are kept in SQLite; a PostgreSQL store is not there yet", mend="give a path, or sqlite:///path"
        )
    if found:
        raise LongtermError(f"{scheme}:// is no kind of store that is known", mend="give a path, or sqlite:///path")
    if not path or "\0" in path:
        raise LongtermError(f"{path!r} is no path", mend="give that of a file, such as memory.db")
    return path
