"""Sharing: linked hives exchange the lessons of a root. Lessons of another hive are material until a person adopts them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, as_dataclass
from hivemind.errors import UserError
from hivemind.lessons.admission import is_same, refusal_of
from hivemind.lessons.choice import edited
from hivemind.lessons.evidence import Trail
from hivemind.lessons.lesson_file import MAX_CHARS, Lesson
from hivemind.lessons.record import LessonBook
from hivemind.lessons.retirement import MAX_LIVE
from hivemind.lessons.tracked_lesson import TrackedLesson
from hivemind.masking import mask
from hivemind.presence.parts import Parts
from hivemind.taskrun.git import run_git

_REMOTE = re.compile(
    r"(?i)(?:[a-z][a-z0-9+.-]*://(?:[^/]*@)?(?P<host>[^/:@]*)(?::\d*)?/|(?:[^/:]*@)?(?P<scp_host>[^/:@]+):(?!//)|/)"
    r"/*(?P<path>.+?)(?:\.git)?/*"
)
_EVIDENCE = re.compile(r"task `[\w.-]{1,64}`, (?:\w{1,9} and \w{1,9}, )?\d{4}-\d\d-\d\d")


def remote_of(root: Path, name: str) -> str | None:
    """Return the address of a root's remote, without user, password and port: it is equal for HTTPS and SSH, and with or
    without `.git`. Return None if the root has no remote of that name."""
    with suppress(UserError):
        match = _REMOTE.fullmatch(run_git(["-C", root, "remote", "get-url", name], {}, None))
        address = match and f"{(match['host'] or match['scp_host'] or '').lower()}/{match['path']}"
        return address if address and address.isprintable() and mask(address) == address else None
    return None


def exchange_lessons(hive: Parts, book: LessonBook, offers: Mapping[str, Sequence[Any]]) -> list[Lesson]:
    """Update a book's foreign lessons from the offers of linked hives (by hive), and return the lessons to offer to them.

    Neither hive trusts the other: the rules of admission check a lesson when it is offered and again when it arrives. Raises
    UserError, OSError.
    """
    records = book.read()
    if _with_shared_lessons(records, book.name, offers) != records:
        with edited(hive, book) as records:
            records[:] = _with_shared_lessons(records, book.name, offers)
    return [record.lesson for record in records if record.state == "live" and _is_sound(record.lesson)][:MAX_LIVE]


def _with_shared_lessons(
    records: Sequence[TrackedLesson], name: str, offers: Mapping[str, Sequence[Any]]
) -> list[TrackedLesson]:
    """Return the records with the offers that say something new, and without foreign lessons that are no longer offered.

    An id is made of hive and text, so a known offer is not added again. A foreign lesson that was retired here stays retired.
    """
    offered = {record.id: record for record in _foreign_records(name, offers)}
    own_texts = [record.text for record in records if record.is_settled and record.state != "waiting"]
    current = [
        record
        for record in records
        if not record.hive
        or record.author == "person"
        or (record.id in offered and (record.state == "retired" or not _is_among(record.text, own_texts)))
    ]
    known_ids = {record.id for record in records}
    for record in offered.values():
        texts = [*own_texts, *(other.text for other in current if other.hive)]
        if record.id not in known_ids and not _is_among(record.text, texts):
            current.append(record)
    return current


def _is_among(text: str, texts: Sequence[str]) -> bool:
    return any(is_same(text, other) for other in texts)


def _foreign_records(name: str, offers: Mapping[str, Sequence[Any]]) -> Iterator[TrackedLesson]:
    """Yield a record for each readable offer that passes the rules, at most as many per hive as a root may have lessons."""
    for hive, rows in sorted(offers.items()):
        for row in rows[:MAX_LIVE]:
            with suppress(Unreadable):
                lesson = as_dataclass(Lesson, row, "lesson of a linked hive", hive)
                evidence = f", {lesson.evidence}" if _EVIDENCE.fullmatch(lesson.evidence) else ""
                lesson = Lesson(lesson.text, lesson.places, f"hive {hive}{evidence}")
                if _is_sound(lesson):
                    lesson_id = f"{name}-{Lesson(lesson.text, lesson.places, hive).digest[:8]}"
                    record = TrackedLesson(lesson_id, lesson.text, lesson.places, lesson.evidence, hive=hive)
                    record.change("foreign", f"hive {hive} offers it")
                    yield record


def _is_sound(lesson: Lesson) -> bool:
    """Check that a lesson passes the rules of admission, and that its item reads back as the same lesson."""
    refusal = "" if len(lesson.line) > MAX_CHARS else refusal_of(lesson.text, lesson.places, Trail((), ()), "")
    return refusal is None and Lesson.parse(lesson.line) == lesson
