"""A damaged memory database, mended: in place, or by what can be read of it (README, *A damaged database*)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hivemind.fs import mending
from hivemind.fs.database import Database
from hivemind.longterm.errors import StoreDamaged
from hivemind.longterm.integrity import NONSENSE
from hivemind.longterm.namespace import shown
from hivemind.longterm.salvage import Salvaged, read_damaged, write_salvaged
from hivemind.longterm.store import MemoryStore

__all__ = ["mend"]

_NAMED = 5


def mend(store: MemoryStore, aside: Path, tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Make the database sound again; gives what was done, one sentence each, nothing if it was sound.

    What follows from the entries is made anew in place. A damaged file is kept below `aside`, and what can be read of it
    stands in a new one. Raises LongtermError, OSError, sqlite3.OperationalError; then nothing is lost, and the next call
    goes on. See `fs.mending.mend`.
    """
    return mending.mend(_Memories(store), aside, tell)


class _Memories:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    @property
    def database(self) -> Database:
        return self._store.database

    def problems(self) -> list[str]:
        """What is wrong; where SQLite gives up in the middle, that."""
        try:
            return self._store.check()
        except StoreDamaged as error:
            return [error.what]

    def mend_in_place(self) -> list[str]:
        """Make anew what follows from the entries, if anything is wrong with it."""
        wrong = self.problems()
        if not wrong or any(line.endswith(NONSENSE) for line in wrong):
            return []
        try:
            self._store.rebuild()
        except StoreDamaged:  # it only looked sound
            return []
        said = f"{wrong[0]}, and {len(wrong) - 1} more" if len(wrong) > 1 else wrong[0]
        return [f"the index, counts and vectors of memories were made anew ({said})"]

    def save(self, damaged: Path, new: Path) -> str:
        """A new database of what can be read."""
        saved = read_damaged(str(damaged))
        with MemoryStore(new) as store:
            with store.database.write() as sql:
                write_salvaged(sql, saved)
            if left := store.check():
                raise StoreDamaged(f"could not be saved: {left[0]}", where=self.database.path)
        return _report(saved)


def _report(saved: Salvaged) -> str:
    spaces = {entry[2] for entry in saved.entries.values()}
    memories, where = (
        _counted(len(saved.entries), "memory", "memories"),
        _counted(len(spaces), "namespace", "namespaces"),
    )
    before = _counted(len(saved.versions), "earlier version", "earlier versions")
    parts = [f"{memories} of {where} could be read, with {before}; they stand in the new database, vectors come anew"]
    if saved.lost:
        named = ", ".join(f"{shown((*namespace, key))}" for namespace, key in saved.lost[:_NAMED])
        parts.append(f"{len(saved.lost)} could not be: {named}{' …' if len(saved.lost) > _NAMED else ''}")
    if saved.strayed:
        parts.append(f"{saved.strayed} have lost their namespace and lie below recovered/")
    if saved.unfit:
        parts.append(f"{saved.unfit} do not say what they said when they were written: look at them")
    parts.append("what is missing can only come from a copy of yours")
    return "; ".join(parts)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
