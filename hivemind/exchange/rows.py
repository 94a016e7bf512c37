"""Rows that other hives wrote: one reader makes a checked value of a row, or says why it cannot.

Each bound is a CHECK of the tables as well (version_2.sql). JSON is asked for as text: psycopg's own reader raises where a row
could not be set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, Json

from hivemind.boundary import checked
from hivemind.exchange.schema import LETTER_BYTES, LINE_LENGTH, MAX_COUNT, REASON_LENGTH
from hivemind.frozen import frozen
from hivemind.names import is_name

__all__ = ["EventRow", "HiveRow", "LetterRow", "OverviewRow", "TaskRow", "read_row"]

_Row = TypeVar("_Row")


def _lower_name(text: str) -> str:
    if not is_name(text) or text != text.lower():
        raise ValueError(f"{text[:64]!r} is no name in small letters")
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
    """A task that was offered. `received` (files.py) reads its `names` and `contents`."""

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
    """A hive, and its agents with their roles."""

    name: _Name
    agents: Json[dict[str, str | None]]


@frozen
class _Overview:
    agents: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, _Count] = field(default_factory=dict)


@frozen
class OverviewRow:
    """A hive as it last told how it stands."""

    name: _Name
    seen_s: int
    overview: Json[_Overview]
    events: _Count


def read_row(row_type: type[_Row], columns: Sequence[object]) -> _Row:
    """Make a checked value of the columns of a row, which stand in the order of its fields. Raises Unreadable."""
    names = [column.name for column in fields(row_type)]  # type: ignore[arg-type]
    label = "/".join(str(column)[:64] for column in columns[:3])
    return checked(row_type, dict(zip(names, columns, strict=False)), "row of a linked hive", label)
