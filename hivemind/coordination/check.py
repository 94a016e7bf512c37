"""What may be wrong with the journal: a damaged middle, a torn end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.coordination.journal import Journal
from hivemind.errors import UserError
from hivemind.fs.finding import Finding

__all__ = ["check_journal"]


def check_journal(folder: Path, *, durable: bool, running: bool) -> Iterator[Finding]:
    """Every event read once; the end only while nothing of the hive is `running`."""
    journal = Journal(folder, read_only=True)
    try:
        for _ in journal.events():
            pass
    except UserError as error:
        yield Finding(error.where or folder, error.what, error.mend or "put it back from a copy")
        return
    torn = b"" if running else journal.torn()
    if torn:
        what = f"its last line is torn ({len(torn)} bytes): a crash cut it short; that event did not happen"
        mend = "hivemind doctor --fix cuts it off and keeps it beside the file; so does the next event"
        yield Finding(journal.path, what, mend, partial(_mend, folder, durable))


def _mend(folder: Path, durable: bool) -> str:
    """The journal mends a torn end itself as soon as anyone holds its lock."""
    with Journal(folder, durable=durable).guarding(lambda _: None):
        return "cut off, and kept beside the file"
