"""Checks of the tasks' folders: files in place of folders, ended tasks without an end, damaged logs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import Log
from hivemind.fs.integrity import Aside, DoctorFinding
from hivemind.fs.paths import names_in
from hivemind.layout import Layout
from hivemind.outcome import OUTCOME_FILES
from hivemind.tasks.drop import NOT_MOVABLE, is_movable
from hivemind.tasks.record import LOG, open_log


def check_folders(layout: Layout) -> Iterator[DoctorFinding]:
    """Yield files in place of folders, dropped folders that cannot be moved, and ended tasks without result.md or error.md."""
    for path in sorted((*layout.inbox.glob("[!.]*/"), *layout.claimed.glob("*/*/"))):
        if not is_movable(path):
            yield DoctorFinding(path, NOT_MOVABLE, f"chmod -R a+rwX {path}")
    for place in (layout.active, layout.done, layout.failed):
        for name in sorted(names_in(place)):
            path = place / name
            if name.startswith(".") or name.lower() == "readme.md":
                continue
            if not path.is_dir():
                mend = f"move it to {layout.relative(layout.inbox)}/ if it is to be done"
                yield DoctorFinding(path, "is not a folder, and so not a task: it is ignored", mend, note=True)
            elif place != layout.active and not (path / (end := OUTCOME_FILES[place.name])).exists():
                mend = f"its {LOG} may tell why; hivemind task retry {name} tries it again"
                yield DoctorFinding(path, f"has no {end}: it was moved here, or the file deleted", mend, note=True)


def check_log(folder: Path, aside: Aside) -> Iterator[DoctorFinding]:
    """Yield the problems of a task's log: it is damaged, of another version, or its last line is torn."""
    log = open_log(folder)
    path = Path(log.path)
    try:
        next(log.records(), None)
        torn = log.torn_bytes()
    except UnknownVersion as error:
        yield DoctorFinding(path, error.message, error.remedy or "use the hivemind that wrote it")
        return
    except UserError as error:
        mend = "restore it from a copy, or hivemind doctor --fix sets it aside"
        yield aside.finding(path, error.message, mend, quiet=True)
        return
    if torn:
        message = f"its last line is torn ({len(torn)} bytes): a crash cut it short"
        mend = f"hivemind doctor --fix moves the piece to {path.name}.torn"
        yield DoctorFinding(path, message, mend, partial(_mend, log), quiet=True)


def _mend(log: Log) -> str:
    with log.locked():
        return f"cut off, and kept in {log.path}.torn"
