"""What may be wrong with the journal: it is gone, a damaged middle, a torn end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.coordination.journal import Journal
from hivemind.errors import UserError
from hivemind.fs import LogDamaged
from hivemind.fs.check import Aside, Finding


def check_journal(folder: Path, aside: Aside, *, durable: bool, running: bool) -> Iterator[Finding]:
    """Every event read once; the end only while nothing of the hive is `running`."""
    files = [*folder.glob("*.jsonl")]
    if not any(path.stat().st_size for path in files):
        # A journal that was only locked is an empty file with its lock beside; what was flushed of one is noted there.
        beside = [*folder.glob("journal.jsonl.*")]
        if (beside and not files) or any(path.stat().st_size for path in beside):
            what = "is gone or empty, though there was one: what it told of tasks and steps is lost"
            mend = "put it back from a copy, before the next event begins a new one"
            yield Finding(folder / "journal.jsonl", what, mend)
        return
    journal = Journal(folder, read_only=True)
    try:
        for _ in journal.events():
            pass
    except LogDamaged as error:
        mend = (
            "put it back from a copy, or hivemind doctor --fix goes on without what cannot be read, and keeps the file"
        )
        yield Finding(error.where or folder, error.what, mend, partial(_repair, folder, aside, durable), quiet=True)
        return
    except UserError as error:
        yield Finding(error.where or folder, error.what, error.mend or "put it back from a copy")
        return
    torn = b"" if running else journal.torn()
    if torn:
        what = f"its last line is torn ({len(torn)} bytes): a crash cut it short; that event did not happen"
        mend = "hivemind doctor --fix cuts it off and keeps it beside the file; so does the next event"
        yield Finding(journal.path, what, mend, partial(_mend, folder, durable))


def _repair(folder: Path, aside: Aside, durable: bool) -> str:
    """Requires that no agent runs: a lease whose event is lost would be given again under the same generation."""
    said = list[str]()
    lost = Journal(folder, durable=durable).repair(lambda path: said.append(aside.copy(Path(path))))
    return f"{'; '.join(said)}; {lost} events are lost, and called journal.lost"


def _mend(folder: Path, durable: bool) -> str:
    """The journal mends a torn end itself as soon as anyone holds its lock."""
    with Journal(folder, durable=durable).guarding(lambda _: None):
        return "cut off, and kept beside the file"
