"""Times as the database keeps them: microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["FIRST", "LAST", "as_micros", "as_time"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def as_micros(moment: datetime) -> int:
    """A time as microseconds; one without a zone is taken as UTC."""
    return ((moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - _EPOCH) // _MICROSECOND


def as_time(micros: int) -> datetime:
    """The time, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


FIRST, LAST = (as_micros(moment.replace(tzinfo=UTC)) for moment in (datetime.min, datetime.max))
"""Between them lie all the times that a datetime in UTC can say."""
