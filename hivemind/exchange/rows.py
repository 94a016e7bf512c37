"""Types of the rows that other hives write. `read_row` validates a row.

Each limit is also a CHECK of the tables (version_2.sql). Queries select JSON as text, because psycopg's own JSON parser
would raise before a bad row could be set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, fields
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, Json

from hivemind.boundary import Unreadable, as_dataclass
from hivemind.exchange.schema import LETTER_BYTES, LINE_LENGTH, MAX_COUNT, REASON_LENGTH
from hivemind.frozen import frozen
from hivemind.names import is_name

_Row = TypeVar("_Row")


def _lower_name(text: str) -> str:
    if not is_name(text) or text != text.lower():
        raise ValueError(f"{text[:64]!r} is not a name in lower case")
    return text


_Name = Annotated[str, AfterValidator(_lower_name)]
_Line = Annotated[str, Field(min_length=1, max_length=LINE_LENGTH)]
_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


@frozen
class LetterRow:
    number: int
    giver: _Name
    id: _Line
    hive: _Line
    name: _Line
    base: _Line
    raw: Annotated[bytes, Field(max_length=LETTER_BYTES)]
    reason: Annotated[str, Field(max_length=REASON_LENGTH)] | None = None


@frozen
class TaskRow:
    """An offered task. `check_received_files` (files.py) validates its `names` and `contents`."""

    generation: int
    giver: _Name
    id: _Name
    assignee: _Line | None
    role: _Line | None
    maker: _Line
    head: Json[dict[str, Any]]
    body: str
    names: list[str]
    contents: list[bytes]


@frozen
class EventRow:
    hive: _Name
    seq: Annotated[int, Field(ge=1)]
    at: str
    event: Json[dict[str, Any]]


@frozen
class HiveRow:
    """A hive, and the roles of its agents by name."""

    name: _Name
    agents: Json[dict[str, str | None]]


@frozen
class LessonsRow:
    """The lessons that a hive shares for one git remote. Each is validated when it is taken (lessons/sharing.py)."""

    name: _Name
    lessons: Json[list[Any]]


@frozen
class _Overview:
    agents: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, _Count] = field(default_factory=dict)


@frozen
class OverviewRow:
    """The overview that a hive last reported."""

    name: _Name
    seen_s: int
    overview: Json[_Overview]
    events: _Count


def read_row(row_type: type[_Row], columns: Sequence[object]) -> _Row:
    """Return an object of `row_type`, validated from a row with columns in the order of its fields. Raises Unreadable."""
    names = [column.name for column in fields(row_type)]  # type: ignore[arg-type]
    label = "/".join(str(column)[:64] for column in columns[:3])
    return as_dataclass(row_type, dict(zip(names, columns, strict=False)), "row of a linked hive", label)


def readable_rows(row_type: type[_Row], rows: Iterable[Sequence[object]], problems: set[str]) -> Iterator[_Row]:
    """Yield the rows that can be read, as `read_row` returns them. Add the problems of the others to `problems`."""
    for columns in rows:
        try:
            row = read_row(row_type, columns)
        except Unreadable as error:
            problems.add(str(error))
        else:
            yield row
