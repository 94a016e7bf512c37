"""The record of a root's lessons, `.hive/lessons/ROOT.json`: ids, counts, history, and which items the runtime has written.

It is compared with the file under one lock. The record is saved before the file changes, and again after that: `is_in_file`
then distinguishes an item that a person deleted from an item that a killed process did not add.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from hivemind.boundary import Unreadable, as_dataclass, boundary, read_input
from hivemind.documents.formats import decode_text
from hivemind.fs import DamagedRecord, Lock, crash_point, load_record, make_folder, save_record, set_aside, write
from hivemind.layout import Layout, template_folder
from hivemind.lessons.lesson_file import lessons_in, with_changes
from hivemind.lessons.retirement import retire_surplus
from hivemind.lessons.tracked_lesson import TrackedLesson

GENERAL = "general"
"""The name of the file for tasks without a repository."""
_MAX_BYTES = 1 << 20
_KIND, _VERSION = "lessons", 1
_log = logging.getLogger(__name__)


def make_lessons_folder(layout: Layout) -> None:
    """Create the folder of the lessons. An agent does this at its start, because a missing folder cannot be shown read-only in
    its sandbox. Raises OSError."""
    make_folder(layout.lessons, durable=False)


class LessonBook:
    """The lessons of one root: its file and its record."""

    def __init__(self, layout: Layout, name: str, *, trusts_file: bool) -> None:
        """Open the lessons of the root `name`. With `trusts_file`, an unknown item of the file counts as the operator's. Without
        it, an agent could have written the item, so the lesson waits for a person."""
        self.name, self.path = name, layout.lessons / f"{name}.md"
        self._layout, self._trusts_file = layout, trusts_file
        self._record_path = layout.lesson_records / f"{name}.json"

    def read(self) -> list[TrackedLesson]:
        """Return the lessons as the file and the record have them now. Writes neither."""
        return self._compared(self._text())

    @contextmanager
    def edit(self) -> Iterator[list[TrackedLesson]]:
        """Yield the lessons to change or add, under the lock; then write what has changed. Raises UserError, OSError."""
        with Lock(self._layout.locks / "lessons.lock"):
            text = self._text()
            records = self._compared(text)
            yield records
            retire_surplus(records)
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
        """Return the saved records, updated with what a person has written, changed or deleted in the file since they were
        saved."""
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
