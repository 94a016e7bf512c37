"""`every:` of a task: the times of its repetitions (README.md, *Work that comes again*)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hivemind.frozen import frozen
from hivemind.pattern import pattern
from hivemind.tasks.step import parse_duration

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_LEAST_S = 60.0
_CRON = pattern(r"[\d*]\S*(?: +\S+){4}")
_AT = pattern(r"(?:([A-Za-z][A-Za-z,-]*) +)?(\d{1,2}):(\d{2})")
_DAY = "MON|TUE|WED|THU|FRI|SAT|SUN"
_DAYS = pattern(rf"(?:{_DAY})(?:[,-](?:{_DAY}))*")
_LOOK_BACK = (timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=3700))


@frozen
class Every:
    """The times of a repeated task: every `seconds` since its file was written, or the times of a cron line.

    `zone` is the cron line's time zone, None for the hive's.
    """

    seconds: float | None
    cron: str = ""
    zone: str | None = None

    @classmethod
    def parse(cls, text: str) -> Every:
        """Parse an interval or a repeated time: `1h`, `07:30`, `Mon-Fri 07:30 Europe/Berlin`, `30 7 * * 1`. Raises
        ValueError."""
        normalized_text = " ".join(text.split())
        words, zone = normalized_text, None
        if re.search(r" [A-Z][A-Za-z]+(/\S+)?$", normalized_text) and not _CRON.fullmatch(normalized_text):
            words, _, zone = normalized_text.rpartition(" ")
            zone_of(zone)
        if match := _AT.fullmatch(words):
            days = (match[1] or "*").upper()
            if days != "*" and not _DAYS.fullmatch(days):
                raise ValueError(f"{match[1]!r} names no days: write Mon, Mon-Fri or Mon,Thu")
            words = f"{int(match[3])} {int(match[2])} * * {_wrapped(days)}"
        if _CRON.fullmatch(words):
            from cronsim import CronSim, CronSimError  # most tasks are not repeated

            try:
                CronSim(words, datetime(2026, 1, 1, tzinfo=UTC))
            except CronSimError as error:
                raise ValueError(f"{text!r} is not a time: {error}") from None
            return cls(None, words, zone)
        try:
            seconds = parse_duration(words)
        except ValueError:
            raise ValueError(
                f"{text!r} is not a repeated time: write 1h, 07:30, Mon 07:30, Mon-Fri 07:30 Europe/Berlin, or a cron "
                "line (30 7 * * 1)"
            ) from None
        if zone is not None or seconds < _LEAST_S:
            problem = "must be a minute or more" if seconds < _LEAST_S else "has no time zone"
            raise ValueError(f"{text!r}: an interval {problem}")
        return cls(seconds)

    def times_after(self, origin: datetime, moment: datetime, zone: str) -> Iterator[datetime]:
        """Yield the times after `moment`, oldest first, in UTC. Intervals count from `origin`. Cron lines without a time zone of
        their own are in `zone`.
        """
        if self.seconds is not None:
            count = max(0, int((moment - origin).total_seconds() // self.seconds))
            while True:
                count += 1
                yield origin + timedelta(seconds=self.seconds * count)
        from cronsim import CronSim

        for local_time in CronSim(self.cron, moment.astimezone(zone_of(self.zone or zone))):
            time = local_time.astimezone(UTC)
            if time > moment:  # in the second of two equal hours it returns times of the first
                yield time

    def newest_time(self, origin: datetime, moment: datetime, now: datetime, zone: str) -> datetime | None:
        """Return the last time after `moment` and up to `now`, or None if there is none. `origin` and `zone` are as for
        `times_after`.
        """
        if self.seconds is not None:
            count = int((now - origin).total_seconds() // self.seconds)
            newest = origin + timedelta(seconds=self.seconds * count)
            return newest if moment < newest <= now else None
        for back in _LOOK_BACK:  # short ones first: they are enough for frequent times
            start = max(moment, now - back)
            newest = moment
            for time in self.times_after(origin, start, zone):
                if time > now:
                    break
                newest = time
            if newest > moment:
                return newest
        return None


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone `name`. Raises ValueError if it is unknown."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(f"{name!r} is not a time zone: write Europe/Berlin, or UTC") from None


def _wrapped(days: str) -> str:
    """Return the days, with each range over the end of the week spelled out as single days: cron lines have no `FRI-MON`."""
    order = _DAY.split("|")
    names: list[str] = []
    for part in days.split(","):
        first, dash, last = part.partition("-")
        if not dash or part == "*":
            names.append(part)
            continue
        at, end = order.index(first), order.index(last)
        names += [order[(at + number) % 7] for number in range((end - at) % 7 + 1)]
    return ",".join(dict.fromkeys(names))
