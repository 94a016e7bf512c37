"""A damaged database is set aside and kept; what can be read of it is saved into a new one (README, *A damaged database*)."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from hivemind.documents.docmem import Docmem
from hivemind.documents.errors import DamagedError
from hivemind.documents.integrity import INDEX, LOST
from hivemind.documents.salvage import Salvaged, read_damaged, write_salvaged
from hivemind.fs import Lock, fsync_folder, move, reached, write
from hivemind.fs.soundness import unsound

__all__ = ["REPORT", "mend"]

REPORT = ".what-was-saved.txt"
"""The end of the name of the file beside a damaged database that says what became of it."""

_WITH_IT = ("-wal", "-shm")
_NAMED = 5


def mend(docmem: Docmem, aside: Path, tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Make the database sound again; gives what was done, one sentence each, nothing if it was sound.

    A full-text index that does not fit is built anew, a hash that does not fit is computed anew. A damaged file goes, as it
    is, into a folder below `aside`, with a report beside it, and what can be read of it stands in a new database under its
    name. Others may use the database meanwhile: they wait, and go on with the new one. Raises DocmemError, OSError,
    sqlite3.OperationalError; then nothing is lost, and the next call goes on.
    """
    path = Path(docmem.database.path)
    docmem.close()
    with _alone(path):
        if (wrong := unsound(path)) is not None:
            return [_exchange(path, wrong, aside, tell)]
    try:
        done = _in_place(docmem)
    except DamagedError:  # it only looked sound
        done = []
    left = _left(docmem)
    if left:
        docmem.close()
        with _alone(path):
            done.append(_exchange(path, left[0], aside, tell))
    elif done:
        docmem.distrust_files()
    return done


def _in_place(docmem: Docmem) -> list[str]:
    """Mend what needs no new file."""
    done = []
    left = _left(docmem)
    if any(INDEX in line for line in left):
        docmem.rebuild_index()
        done.append("the full-text index did not fit the texts and was built anew")
    if any(line.endswith(LOST) for line in left):
        done.append(f"{docmem.drop_lost_vectors()} {LOST} and were taken out")
    if changed := docmem.rehash():
        named = ", ".join(changed[:_NAMED]) + (" …" if len(changed) > _NAMED else "")
        done.append(f"{len(changed)} nodes did not fit their hash, look at them: {named}")
    return done


def _left(docmem: Docmem) -> list[str]:
    """What is still wrong; where SQLite gives up in the middle, that."""
    try:
        return docmem.check()
    except DamagedError as error:
        return [error.what]


def _exchange(path: Path, wrong: str, aside: Path, tell: Callable[[str], None]) -> str:
    new = path.with_name(path.name + ".mended")
    report = "a mending that was interrupted was brought to its end"
    if not new.exists():
        tell(f"{path.name} is damaged ({wrong}): saving what can be read")
        kept = _free(aside, path.name)
        _set_aside(path, kept)
        saved = _save(kept, new.with_name(new.name + ".tmp"))
        report = _report(path, kept, wrong, saved)
        write(kept.with_name(kept.name + REPORT), report + "\n")
        move(new.with_name(new.name + ".tmp"), new)
    reached("documents.mend.saved")
    for end in _WITH_IT:  # before the new one has the name: this log is not its own
        path.with_name(path.name + end).unlink(missing_ok=True)
    reached("documents.mend.unlogged")
    os.replace(new, path)
    fsync_folder(path.parent)
    return report


def _free(aside: Path, name: str) -> Path:
    """A name below today's folder that nothing has."""
    folder = aside / datetime.now(UTC).strftime("%Y-%m-%d")
    names = (f"{name}.{number}" if number else name for number in itertools.count())
    return next(folder / one for one in names if not (folder / one).exists())


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else reads files in or writes meanwhile, in the order in which they take the locks."""
    sync, writers = Lock(f"{path}.sync"), Lock(f"{path}.lock")
    with sync, writers:
        yield


def _set_aside(path: Path, kept: Path) -> None:
    """Copies of the file and of its log, on the disk; the originals stay until the new database is there."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    for end in ("", "-wal"):
        source = path.with_name(path.name + end)
        if source.exists():
            part = kept.with_name(f"{kept.name}{end}.tmp")
            shutil.copyfile(source, part)
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            move(part, kept.with_name(kept.name + end))
    fsync_folder(kept.parent)


def _save(kept: Path, new: Path) -> Salvaged:
    """Read a copy of what is kept, and write what it gives into a new database; nothing but its own file is left of it."""
    work = new.with_name(new.name + ".read")
    try:
        for end in ("", "-wal"):
            source = kept.with_name(kept.name + end)
            if source.exists():
                shutil.copyfile(source, work.with_name(work.name + end))
        saved = read_damaged(os.fspath(work))
    finally:
        for end in ("", *_WITH_IT):
            work.with_name(work.name + end).unlink(missing_ok=True)
    for end in ("", ".lock", *_WITH_IT):  # of one that was interrupted
        new.with_name(new.name + end).unlink(missing_ok=True)
    with Docmem(new) as docmem:
        with docmem.transaction() as edit:
            write_salvaged(edit, saved)
        left = docmem.check()
        if left:
            raise DamagedError(f"could not be saved: {left[0]}", where=kept)
    new.with_name(new.name + ".lock").unlink(missing_ok=True)
    return saved


def _report(path: Path, kept: Path, wrong: str, saved: Salvaged) -> str:
    trees = sum(node.parent_id is None for node in saved.nodes.values())
    parts = [f"{path.name} was damaged ({wrong}), on {datetime.now(UTC):%Y-%m-%d at %H:%M} UTC"]
    parts.append(f"it is kept as {kept}")
    parts.append(f"{len(saved.nodes)} nodes of {trees} documents could be read and stand in the new database")
    if saved.orphans:
        parts.append(f"{saved.orphans} have lost what stood above them and hang below a root called Recovered")
    if saved.unfit:
        parts.append(f"{saved.unfit} do not fit their hash: look at them")
    parts.append(
        "what is in files is read in anew; what was only there and is missing can only come from a copy of yours"
    )
    return "; ".join(parts)
