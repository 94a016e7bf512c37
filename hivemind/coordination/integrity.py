"""Check the journal for a missing file, damaged lines and an incomplete last line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.coordination.journal import Journal
from hivemind.errors import UserError
from hivemind.fs import LogDamaged
from hivemind.fs.integrity import Aside, DoctorFinding


def check_journal(folder: Path, aside: Aside, *, running: bool) -> Iterator[DoctorFinding]:
    """Report a missing journal and damaged lines. Report a torn last line only if no process of the hive is `running`."""
    files = [*folder.glob("*.jsonl")]
    if not any(path.stat().st_size for path in files):
        # Locking alone leaves an empty journal with empty files next to it; flushing events writes to one of them.
        sidecar_files = [*folder.glob("journal.jsonl.*")]
        if (sidecar_files and not files) or any(path.stat().st_size for path in sidecar_files):
            message = "is missing or empty, but events were written: the state of tasks and steps is lost"
            remedy = "restore it from a backup before the next event begins a new journal"
            yield DoctorFinding(folder / "journal.jsonl", message, remedy)
        return
    journal = Journal(folder, read_only=True)
    try:
        for _ in journal.events():
            pass
    except LogDamaged as error:
        remedy = "restore it from a backup, or let hivemind doctor --fix remove the damaged lines (it keeps a copy)"
        yield DoctorFinding(
            error.location or folder, error.message, remedy, partial(_repair_damage, folder, aside), quiet=True
        )
        return
    except UserError as error:
        yield DoctorFinding(error.location or folder, error.message, error.remedy or "restore it from a backup")
        return
    torn = b"" if running else journal.torn_tail()
    if torn:
        message = f"its last line is torn ({len(torn)} bytes), cut short by a crash; that event did not happen"
        remedy = "hivemind doctor --fix moves it to a file next to the journal; so does the next event"
        yield DoctorFinding(journal.path, message, remedy, partial(_cut_torn_line, folder))


def _repair_damage(folder: Path, aside: Aside) -> str:
    """Remove damaged lines, after copying the files. Return a sentence about it.

    No agent may run meanwhile: if the event of a lease is lost, that lease's generation can be issued twice.
    """
    copies = list[str]()
    lost = Journal(folder).repair(lambda path: copies.append(aside.copy(Path(path))))
    return f"{'; '.join(copies)}; {lost} events are lost and replaced by journal.lost"


def _cut_torn_line(folder: Path) -> str:
    """Move the incomplete last line to a file next to the journal, as every locking of the journal does. Return a sentence."""
    with Journal(folder).locked(lambda _: None):
        return "moved to a file next to the journal"
