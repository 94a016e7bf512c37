"""The database of documents, mended: in place, or by what can be read of it (README, *A damaged database*)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hivemind.documents.docmem import Docmem
from hivemind.documents.errors import DamagedError
from hivemind.documents.integrity import INDEX, LOST
from hivemind.documents.salvage import Salvaged, read_damaged, write_salvaged
from hivemind.fs import mending
from hivemind.fs.database import Database

__all__ = ["mend"]

_NAMED = 5


def mend(docmem: Docmem, aside: Path, tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Make the database sound again; gives what was done, one sentence each, nothing if it was sound.

    A full-text index that does not fit is built anew, a hash that does not fit is computed anew. Raises DocmemError, OSError,
    sqlite3.OperationalError; then nothing is lost, and the next call goes on. See `fs.mending.mend`.
    """
    return mending.mend(_Documents(docmem), aside, tell, locks=(".sync", ".lock"))


class _Documents:
    def __init__(self, docmem: Docmem) -> None:
        self._docmem = docmem

    @property
    def database(self) -> Database:
        return self._docmem.database

    def problems(self) -> list[str]:
        """What is still wrong; where SQLite gives up in the middle, that."""
        try:
            return self._docmem.check()
        except DamagedError as error:
            return [error.what]

    def mend_in_place(self) -> list[str]:
        """Mend what needs no new file."""
        docmem, done, left = self._docmem, [], self.problems()
        try:
            if any(INDEX in line for line in left):
                docmem.rebuild_index()
                done.append("the full-text index did not fit the texts and was built anew")
            if any(line.endswith(LOST) for line in left):
                done.append(f"{docmem.drop_lost_vectors()} {LOST} and were taken out")
            if changed := docmem.rehash():
                named = ", ".join(changed[:_NAMED]) + (" …" if len(changed) > _NAMED else "")
                done.append(f"{len(changed)} nodes did not fit their hash, look at them: {named}")
            if done:
                docmem.distrust_files()
        except DamagedError:  # it only looked sound
            return []
        return done

    def save(self, damaged: Path, new: Path) -> str:
        """A new database of what can be read."""
        saved = read_damaged(str(damaged))
        with Docmem(new) as docmem:
            with docmem.transaction() as edit:
                write_salvaged(edit, saved)
            left = docmem.check()
            if left:
                raise DamagedError(f"could not be saved: {left[0]}", where=self.database.path)
        return _report(saved)


def _report(saved: Salvaged) -> str:
    trees = sum(node.parent_id is None for node in saved.nodes.values())
    parts = [f"{len(saved.nodes)} nodes of {trees} documents could be read and stand in the new database"]
    if saved.orphans:
        parts.append(f"{saved.orphans} have lost what stood above them and hang below a root called Recovered")
    if saved.unfit:
        parts.append(f"{saved.unfit} do not fit their hash: look at them")
    parts.append(
        "what is in files is read in anew; what was only there and is missing can only come from a copy of yours"
    )
    return "; ".join(parts)
