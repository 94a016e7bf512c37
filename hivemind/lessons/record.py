"""The record of a root's lessons, `.hive/lessons/ROOT.json`: ids, counts, history, and which items the runtime has written.

It is compared with the file under one lock. The record is saved before the file changes, and again after that: `is_in_file`
then distinguishes an item that a person deleted from an item that a killed process did not add.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from hivemind.boundary import Unreadable, as_dataclass, boundary, read_input
from hivemind.documents.formats import decode_text
from hivemind.fs import DamagedRecord, Lock, crash_point, load_record, make_folder, save_record, set_aside, write
from hivemind.layout import Layout, template_folder
from hivemind.lessons.lesson_file import MAX_CHARS, Lesson, lessons_in, with_changes

GENERAL = "general"
"""The name of the file for tasks without a repository."""
MAX_UNUSED, MAX_LIVE, MAX_CLAIMS, MAX_RETIRED, _MAX_TASKS = 50, 40, 2, 200, 50
_MAX_BYTES = 1 << 20
_KIND, _VERSION = "lessons", 1
_log = logging.getLogger(__name__)
LessonState = Literal["live", "foreign", "waiting", "retired"]


@dataclass
class TrackedLesson:
    """A lesson with its record. `author` is `work` until a person writes, changes or adopts it.

    `state`: a `live` lesson is shown to agents, a `waiting` one needs a person, a `retired` one is kept for its reason (the last
    line of `history`), a `foreign` one is offered by the linked hive `hive`. `failed` and `passed` are the commands that prove
    it. `shown` counts the tasks that were shown it; `tasks` are the last of them. `unused` counts those since its last use,
    `used_in` and `wrong_in` are the tasks that named it. `proposed` is the line that was proposed to AGENTS.md.
    """

    id: str
    text: str
    places: tuple[str, ...] = ()
    evidence: str = ""
    author: Literal["work", "person"] = "work"
    state: LessonState = "live"
    task: str = ""
    failed: str = ""
    passed: str = ""
    shown: int = 0
    unused: int = 0
    tasks: list[str] = field(default_factory=list)
    used_in: list[str] = field(default_factory=list)
    wrong_in: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    is_in_file: bool = False
    is_proposed: bool = False
    proposed: str = ""
    hive: str = ""

    @property
    def lesson(self) -> Lesson:
        return Lesson(self.text, tuple(self.places), self.evidence)

    @property
    def has_new_proposal(self) -> bool:
        """True if the lesson was proposed to AGENTS.md and its line would be different now."""
        return self.is_proposed and (self.proposed or self.text) != self.proposal.line

    @property
    def proposal(self) -> Lesson:
        return Lesson(self.text, tuple(self.places))

    @property
    def source(self) -> str:
        """`work` or `person`; the name of the hive for a lesson of a linked hive that no person here has adopted."""
        return f"hive {self.hive}" if self.hive and self.author == "work" else self.author

    @property
    def helped(self) -> int:
        return len(self.used_in)

    @property
    def wrong(self) -> int:
        return len(self.wrong_in)

    @property
    def reason(self) -> str:
        """The reason of the last change; "" without any."""
        return self.history[-1].partition(": ")[2] if self.history else ""

    @property
    def is_visible(self) -> bool:
        """True if agents may be shown the lesson."""
        return self.state in ("live", "foreign") and len(self.text) <= MAX_CHARS

    @property
    def is_settled(self) -> bool:
        """True if the same lesson is not learned again: it is live or waiting, or a person has decided on it."""
        return self.state in ("live", "waiting") or self.author == "person"

    def change(self, state: LessonState, reason: str) -> None:
        """Change the state, with the reason in the history."""
        self.state = state
        self.history.append(f"{datetime.now(UTC):%Y-%m-%d}: {reason}")

    def count_shown(self, task: str) -> None:
        """Count a task that was shown the lesson, once. After too many such tasks without use it is retired, unless it is a
        person's."""
        if task in self.tasks:
            return
        self.tasks = [*self.tasks, task][-_MAX_TASKS:]
        self.shown, self.unused = self.shown + 1, self.unused + 1
        if self.unused > MAX_UNUSED and self.author == "work" and self.is_visible:
            self.change("retired", f"no use in {MAX_UNUSED} tasks that were shown it")


def make_lessons_folder(layout: Layout) -> None:
    """Create the folder of the lessons. An agent does this at its start, because a missing folder cannot be shown read-only in
    its sandbox. Raises OSError."""
    make_folder(layout.lessons, durable=False)


class LessonBook:
    """The lessons of one root: its file and its record."""

    def __init__(self, layout: Layout, name: str, *, trusts_file: bool) -> None:
        """With `trusts_file`, an unknown item of the file counts as the operator's. Without, an agent could have written it, so
        the lesson waits for a person."""
        self.name, self.path = name, layout.lessons / f"{name}.md"
        self._layout, self._trusts_file = layout, trusts_file
        self._record_path = layout.lesson_records / f"{name}.json"

    def read(self) -> list[TrackedLesson]:
        """Return the lessons as the file and the record have them now. Nothing is written."""
        return self._compared(self._text())

    @contextmanager
    def edit(self) -> Iterator[list[TrackedLesson]]:
        """Yield the lessons to change or add, under the lock; then write what has changed. Raises UserError, OSError."""
        with Lock(self._layout.locks / "lessons.lock"):
            text = self._text()
            records = self._compared(text)
            yield records
            live_records = [record for record in records if record.state == "live"]
            own_records = [record for record in live_records if record.author == "work"]
            own_records.sort(key=lambda record: (record.helped - record.wrong, -record.unused))
            for record in own_records[: max(0, len(live_records) - MAX_LIVE)]:
                record.change("retired", f"more than {MAX_LIVE} lessons, and this one of the least use")
            waiting_records = [record for record in records if record.state == "waiting" and not record.is_in_file]
            for record in waiting_records[: max(0, len(waiting_records) - MAX_LIVE)]:
                record.change("retired", f"more than {MAX_LIVE} wait, and this one is the oldest")
            own_retired = [record for record in records if record.state == "retired" and record.author == "work"]
            for record in own_retired[:-MAX_RETIRED]:  # the oldest: an id is never given twice
                if not record.is_in_file and not record.is_proposed:
                    records.remove(record)
            self._save(records)
            crash_point("lessons.recorded")
            added = [record.lesson for record in records if record.state == "live" and not record.is_in_file]
            removed = {record.lesson.digest for record in records if record.state == "retired" and record.is_in_file}
            if added or removed:
                new_text = with_changes(text, added, removed, f"Lessons: {self.name}")
                make_lessons_folder(self._layout)
                if not (readme := self.path.with_name("README.md")).exists():
                    write(readme, (template_folder() / "knowledge/lessons/README.md").read_bytes(), durable=False)
                write(self.path, new_text.encode())
                crash_point("lessons.written")
                for record in records:
                    record.is_in_file = record.state == "live" or (record.is_in_file and record.state == "waiting")
                self._save(records)

    def new_id(self, records: Sequence[TrackedLesson]) -> str:
        numbers = (int(record.id.rpartition("-")[2]) for record in records if not record.hive)
        return f"{self.name}-{1 + max(numbers, default=0)}"

    def _text(self) -> str:
        with suppress(FileNotFoundError):
            raw = read_input(self.path, _MAX_BYTES)
            # by line: another encoding of a line that a person adds leaves the others
            parts = [raw] if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else raw.split(b"\n")
            with boundary("lessons", self.path):
                return "\n".join(decode_text(part, self.path) for part in parts)
        return ""

    def saved(self) -> list[TrackedLesson]:
        """Return the lessons as the runtime last saved them."""
        try:
            fields = load_record(self._record_path, _KIND, _VERSION) or {"lessons": []}
            return [as_dataclass(TrackedLesson, row, "lesson", self._record_path) for row in fields["lessons"]]
        except (DamagedRecord, Unreadable, KeyError, TypeError) as error:
            if not self._layout.read_only:
                _log.warning("%s: kept as %s; its counts begin at 0", error, set_aside(self._record_path).name)
            return []

    def _save(self, records: Sequence[TrackedLesson]) -> None:
        make_folder(self._record_path.parent)
        rows: list[Mapping[str, Any]] = [asdict(record) for record in records]
        save_record(self._record_path, _KIND, _VERSION, {"lessons": rows})

    def _compared(self, text: str) -> list[TrackedLesson]:
        """Return the saved records, updated with what a person has since written, changed or deleted in the file."""
        records = self.saved()
        by_digest = {record.lesson.digest: record for record in records}
        in_file = {lesson.digest: lesson for lesson in lessons_in(text)}
        written_records = [record for record in records if record.is_in_file and record.state != "retired"]
        missing_records = [record for record in written_records if record.lesson.digest not in in_file]
        for digest, lesson in in_file.items():
            record = by_digest.get(digest)
            if record is None:
                previous = (record for record in missing_records if record.evidence == lesson.evidence != "")
                if (record := next(previous, None)) is not None:
                    missing_records.remove(record)
                    self._adopt(record, f"a person changed it; it was: {record.text}")
                else:
                    record = TrackedLesson(self.new_id(records), lesson.text)
                    records.append(record)
                    self._adopt(record, "a person wrote it")
                record.text, record.places, record.evidence = lesson.text, lesson.places, lesson.evidence
            elif record.state in ("retired", "foreign") and not record.is_in_file:
                self._adopt(record, "a person put it back" if record.state == "retired" else "a person copied it")
            record.is_in_file = True
        for record in records:
            if record.state == "retired" and record.lesson.digest not in in_file:
                record.is_in_file = False
        for record in missing_records:
            record.author, record.is_in_file = "person", False
            record.change("retired", "a person deleted it")
        return records

    def _adopt(self, record: TrackedLesson, reason: str) -> None:
        record.author = "person"
        record.change(*(("live", reason) if self._trusts_file else ("waiting", f"{reason}, it seems")))
