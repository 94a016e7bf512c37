"""The attempts of a task: which files a retry sets aside, and what the next attempt keeps of the record."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hivemind.fs import crash_point, fsync_folder, make_folder, move, write
from hivemind.fs.paths import names_in
from hivemind.layout import LANDING
from hivemind.tasks.record import ENDS, LOG, RECORD, SESSION, TaskRecord, has_ended
from hivemind.tasks.task import TaskProblem
from hivemind.trace_context import TraceContext

ATTEMPTS = "attempts"
_OF_AN_ATTEMPT = (
    "artifacts", "graph.json", "graph.jsonl", "graph.lock", LOG, "account.json", "landing.md", "landing.log",
)  # fmt: skip
_SHOWN_CHANGES = 40


def set_aside(folder: Path, *, before: Callable[[], object] | None = None) -> None:
    """Move the files of an ended attempt to `attempts/<n>/`. The record is copied there first, then `before` is called. It may
    replace the record in `folder`.

    The error or result is moved last. After a crash the whole operation is repeated. Raises TaskProblem if `attempts` is not a
    folder.
    """
    attempts = folder / ATTEMPTS
    if attempts.is_symlink() or (attempts.exists() and not attempts.is_dir()):
        raise TaskProblem("is not a folder of the task", location=attempts, remedy="take it away")
    target = attempts / str(_attempt_number(attempts))
    make_folder(target)
    if not (target / RECORD).exists():
        write(target / RECORD, (folder / RECORD).read_bytes())
    if before is not None:
        before()
    for name in (*_OF_AN_ATTEMPT, *ENDS):
        if os.path.lexists(folder / name):
            move(folder / name, target / name, durable=False)
            crash_point("tasks.retry.moved")
    for changed_folder in (target, attempts, folder):
        fsync_folder(changed_folder)


def _attempt_number(attempts: Path) -> int:
    """Return the number under which to set the attempt aside: the last one if a crash interrupted a move to it, else the next."""
    last = max((int(name) for name in names_in(attempts) if name.isdecimal()), default=0)
    folder = attempts / str(last)
    return last if folder.is_dir() and not has_ended(folder) else last + 1


def next_attempt(record: TaskRecord, previous: TaskRecord, raw: bytes, traceparent: str | None) -> TaskRecord:
    """Return the record of a task's next attempt: `record` with a new trace and a note on changes of the text `raw`.

    Additions to the text are kept, except the lander's about the earlier branch. Of the runtime's values (`kept`), only the
    session of a person's editor is kept.
    """
    return replace(
        record,
        notes=changes(previous, raw),
        said=tuple(addition for addition in record.said if addition.by != LANDING),
        kept={name: value for name, value in record.kept.items() if name == SESSION},
        trace=TraceContext.begin(traceparent),
    )


def changes(record: TaskRecord, raw: bytes) -> tuple[str, ...]:
    """Return a note of how a person changed the text between two attempts, or an empty tuple without changes."""
    if record.text is None or record.raw == raw:
        return ()
    now = raw.decode(errors="replace")
    import difflib

    lines = difflib.unified_diff(record.text.splitlines(), now.splitlines(), "before", "now", lineterm="", n=0)
    changed_lines = [line for line in list(lines)[2:] if not line.startswith("@@")]
    more = [f"… and {len(changed_lines) - _SHOWN_CHANGES} lines more"] if len(changed_lines) > _SHOWN_CHANGES else []
    return ("\n".join(["its text was changed for this attempt:", *changed_lines[:_SHOWN_CHANGES], *more]),)
