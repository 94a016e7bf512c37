"""Show what agents have learned from their work, and decide on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from hivemind.cli.command import CommandOutput, command
from hivemind.cli.open_hive import find_layout, open_hive, open_read_only
from hivemind.cli.output import header_line, table_lines
from hivemind.cli.text import one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.layout import Layout
    from hivemind.lessons.tracked_lesson import TrackedLesson

_VERBS = ("show", "adopt", "forget", "propose")
_COLUMNS = ("id", "state", "by", "shown", "used", "wrong", "lesson")
_NOTES = {
    "waiting": "Waiting lessons are shown to nobody (hivemind lessons adopt ID, or forget ID):",
    "foreign": "Foreign lessons are of linked hives. Agents see them, as material, until you adopt or forget them:",
}


@command("lessons", find_layout)
def lessons(layout: Layout, words: list[str] | None = None, *, all_: bool = False) -> CommandOutput:
    """List the lessons, or show, adopt or forget some.

    Without a word, lists the lessons of every root: live ones, which agents see; waiting ones, which a person has to adopt;
    and foreign ones, which linked hives offer. `show ID` shows a lesson with its evidence and its history. `adopt ID` makes
    a lesson yours and live. `forget ID` takes a lesson out of its file; it is not learned again. `propose ROOT` makes a
    commit that writes a root's lessons into its AGENTS.md, and removes lessons that were retired since the last proposal.
    The commit lands like the work of a task; output and exit status are those of `land`.
    The files are knowledge/lessons/ROOT.md.

    arguments:
      WORDS  a root (default: all), or show ID, adopt ID, forget ID, propose ROOT
      --all  also retired ones

    examples:
      hivemind lessons
      hivemind lessons my-repository --all
      hivemind lessons show my-repository-3
      hivemind lessons forget my-repository-3
    """
    verb, *names = words or [""]
    if verb in _VERBS and not names:
        raise UserError(f"lessons {verb} names nothing", remedy="hivemind lessons lists them")
    if verb == "propose":
        from hivemind.cli.land import landing_output
        from hivemind.landing.proposals import propose

        hive = open_hive(str(layout.root))
        start_seq = hive.journal.seq
        return landing_output(hive, [propose(hive, name) for name in names], start_seq)
    if verb in ("adopt", "forget"):
        from hivemind.lessons.choice import decide

        decide(open_hive(str(layout.root)), names, adopts=verb == "adopt")
        outcome = "shown to agents from now on" if verb == "adopt" else "forgotten"
        return CommandOutput([{"id": name} for name in names], [f"{name} is {outcome}." for name in names])
    hive = open_read_only(str(layout.root))
    records = _records(hive, () if verb == "show" else words or ())
    if verb == "show":
        from hivemind.lessons.choice import no_lesson

        by_id = {record.id: record for record in records}
        if unknown := [name for name in names if name not in by_id]:
            raise no_lesson(unknown)
        matches = [by_id[name] for name in names]
        return CommandOutput(
            [asdict(record) for record in matches], [line for record in matches for line in _details(record)]
        )
    records = [record for record in records if all_ or record.state != "retired"]
    rows = [
        {"id": record.id, "state": record.state, "by": record.source, "shown": record.shown, "used": record.helped,
         "wrong": record.wrong, "lesson": one_line(record.text)}
        for record in records
    ]  # fmt: skip
    lines = [*table_lines(rows, _COLUMNS, empty="There are no lessons yet.")]
    for state, note in _NOTES.items():
        if matches := [record for record in records if record.state == state]:
            lines += ["", note, *(f"  {record.id}: {one_line(record.reason)}" for record in matches)]
    return CommandOutput([asdict(record) for record in records], lines)


def _records(hive: Hive, names: Sequence[str]) -> list[TrackedLesson]:
    """Return the lessons of the roots with these names (none: of all roots). Raises UserError."""
    from hivemind.lessons.choice import all_books

    books = {book.name: book for book in all_books(hive)}
    if unknown := [name for name in names if name not in books]:
        raise UserError(
            f"there are no lessons of {', '.join(unknown)}", remedy=f"there are those of {', '.join(books)}"
        )
    return [record for name in names or books for record in books[name].read()]


def _details(record: TrackedLesson) -> Iterator[str]:
    yield one_line(record.lesson.line)
    yield header_line("state", f"{record.state}, by {record.source}")
    if record.failed:
        yield header_line("failed", record.failed)
        yield header_line("passed", record.passed)
    if record.task:
        yield header_line("evidence", f"hivemind task transcript {record.task}")
    yield header_line("shown", f"to {record.shown}, used in {record.helped}, found wrong in {record.wrong} (tasks)")
    yield header_line("in", ", ".join(record.tasks[-10:]) or "no opening yet")
    yield from (header_line("" if at else "history", line) for at, line in enumerate(record.history))
    yield ""
