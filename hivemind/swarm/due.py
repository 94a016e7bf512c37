"""What a hive does by the clock, and what it tells people: one process that does what is due and ends (`hivemind due`).

The supervisor starts it when its time has come, and whenever a record in the outbox or a file of the schedule is new: so
nothing polls, and no task waits for a program or a webhook.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime

from hivemind.boundary import Unreadable
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.fs import Lock, load_value, reached, save_value
from hivemind.layout import HUMAN, POSTMASTER, Layout
from hivemind.masking import harmless, mask
from hivemind.outcome import OUTCOME_FILES
from hivemind.presence.parts import Parts
from hivemind.swarm.archive import ArchivedTasks, archive
from hivemind.tasks import Notice, Telling, why_failed
from hivemind.tasks.folder import folder_of

__all__ = ["DispatchReport", "DueWork", "do_due"]

_MOMENT = timedelta(seconds=1)
_FIRST_PAUSE = timedelta(seconds=30)
_LONGEST_PAUSE = timedelta(hours=1)
_GIVEN_UP_AFTER = _A_DAY = timedelta(days=1)
_PROGRAM_S, _WEBHOOK_S = 60.0, 10.0
_FACT_CHARS = 2_000  # an argument of a program has 128 KiB at most
_AT_ONCE = 2  # of these processes: one may wait for programs and webhooks, one does the rest
_LETTER = "letter"
_END_S = 1.0
_KIND, _VERSION = "due", 1
_log = logging.getLogger(__name__)


@frozen
class DispatchReport:
    """What was dropped and told (`way: task event`) and archived (None: it was not due), and when the next thing is due;
    None: when something is new."""

    dropped: tuple[str, ...]
    told: tuple[str, ...]
    archived: ArchivedTasks | None
    next: datetime | None


def do_due(hive: Parts, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> DispatchReport:
    """Drop the tasks whose time has come, send what is to be told.

    Tasks and letters are the turn of one process at a time: another one waits. No turn waits for a program or a webhook: those
    are told after it, by whoever comes first, and then there is another turn.
    """
    telling, dropped, archived = _Telling(hive, clock), list[str](), None
    while True:
        with Lock(hive.layout.locks / "due.lock"):
            ids, moment = hive.tasks.schedule.drop_due(clock())
            telling.tell(_LETTER)
            moved, last, tomorrow = _archive(hive, clock())
            following = min(filter(None, (moment, telling.settle(), tomorrow)), default=None)
            save_value(hive.layout.due_record, _KIND, _VERSION, _Due(following, last), durable=False)
        dropped, archived = [*dropped, *ids], archived or moved
        if not telling.tell_outside():
            return DispatchReport(tuple(dropped), tuple(telling.told), archived, following)


@frozen
class _Due:
    """The record: when the next thing is due, and when the hive was last archived."""

    at: AwareDatetime | None
    archived: AwareDatetime | None


def _known(layout: Layout) -> _Due | None:
    """None where there is no record, or none that can be read: the next run writes another."""
    with suppress(Unreadable, UserError):
        return load_value(_Due, layout.due_record, _KIND, _VERSION)
    return None


def _archive(hive: Parts, now: datetime) -> tuple[ArchivedTasks | None, datetime | None, datetime | None]:
    """Archive once a day; returns what was moved, when that was done last, and when it is done next."""
    if not hive.config.retention.is_set:
        return None, None, None
    known = _known(hive.layout)
    if known is not None and known.archived is not None and now - _A_DAY < known.archived <= now:
        return None, known.archived, known.archived + _A_DAY
    return archive(hive, hive.config.retention, now), now, now + _A_DAY


class _Telling:
    """Tells people what the outbox holds; `told` are the notices that a way has taken. Each notice has tries of its own."""

    def __init__(self, hive: Parts, clock: Callable[[], datetime]) -> None:
        self._hive, self._clock, self._outbox = hive, clock, hive.tasks.outbox
        notify = hive.config.notify
        ways = {_LETTER: self._letter, "program": self._program, "webhook": self._webhook}
        self._ways = {way: send for way, send in ways.items() if getattr(notify, way)}
        self.told: list[str] = []

    def tell_outside(self) -> bool:
        """Tell by programs and webhooks, all at the same time; False if there is nothing to be told by them now."""
        with ThreadPoolExecutor() as pool:  # threads, which only wait for other programs
            return any([*pool.map(self._tell_alone, [way for way in self._ways if way != _LETTER])])

    def _tell_alone(self, way: str) -> bool:
        """Tell by one way, unless another process does so: that one looks once more before it ends."""
        lock = Lock(self._hive.layout.locks / f"due-{way}.lock")
        if not self._ready(way) or not lock.acquire(wait=False):
            return False
        try:
            self.tell(way)
        finally:
            lock.release()
        return True

    def tell(self, way: str) -> None:
        """Tell by one way what it has not told yet."""
        for notice in self._ready(way):
            telling = self._outbox.telling(notice, way)
            facts = {"summary": notice.task}
            try:
                facts = self._facts(notice)
                self._ways[way](notice, facts)
                reached("due.sent")
                self.told.append(f"{way}: {notice.task} {notice.event}")
                telling = replace(telling, sent=True)
            except (HivemindError, OSError, subprocess.SubprocessError, ValueError) as error:
                _log.warning("%s: %s %s is not told: %s", way, notice.task, notice.event, error)
                telling = self._failed(notice, telling, way, facts)
            self._outbox.tell(notice, way, telling)

    def _ready(self, way: str) -> list[Notice]:
        """What a way is to tell now, oldest first."""
        if way not in self._ways:
            return []
        due = (one for one in self._outbox.list_notices() if self._outbox.telling(one, way).is_due(self._clock()))
        return [notice for notice in due if self._has_come(notice)]

    def settle(self) -> datetime | None:
        """Take away what is told, or over; returns when to look again (None: when there is something new)."""
        now = self._clock()
        moments = [now] if self._ready(_LETTER) else []  # it has come to that only just now
        for notice in self._outbox.list_notices():
            come = self._has_come(notice)
            tellings = [self._outbox.telling(notice, way) for way in self._ways]
            if come is None:  # or its agent has died on the way: look less and less often
                moments.append(now + min(_LONGEST_PAUSE, max(_MOMENT, now - notice.at)))
            elif not come or all(telling.sent for telling in tellings):
                self._outbox.done(notice)
            moments += [one.again for one in tellings if not one.sent and one.again is not None and one.again > now]
        return min(moments, default=None)

    def _failed(self, notice: Notice, telling: Telling, way: str, facts: dict[str, str]) -> Telling:
        """Try again, ever less often; after a day say that it is given up."""
        now = self._clock()
        if now - notice.at < _GIVEN_UP_AFTER:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(telling.tries, 10))
            return replace(telling, tries=telling.tries + 1, again=now + pause)
        _log.warning("%s: %s %s is given up after a day", way, notice.task, notice.event)
        if way != _LETTER:
            body = f"For a day the {way} named in hive.yaml (notify:) could not be told: {facts['summary']}\n"
            self._hive.mail.send(
                POSTMASTER, HUMAN, f"Not told by {way}: {notice.task}", body, message_id=f"not-told.{way}.{notice.id}"
            )
        return replace(telling, sent=True)

    def _has_come(self, notice: Notice) -> bool | None:
        """Whether it has come to what the notice tells of; None: not yet; False: it is over, or the task gone."""
        outcome = self._hive.tasks.listing.outcome(notice.task)
        if notice.event == outcome:
            return True
        if outcome is not None or not self._hive.tasks.listing.is_open(notice.task):
            return False
        if notice.event != "parked":
            return None
        with suppress(UserError):
            rest = self._hive.tasks.get(notice.task).parked
            return rest is not None and rest.reason == notice.why
        return None

    def _facts(self, notice: Notice) -> dict[str, str]:
        """Return what is told, in bounded lines that steer no terminal and have no secrets in them."""
        hive, title = self._hive, notice.task
        with suppress(UserError):  # what failed may be no task
            title = hive.tasks.get(notice.task).title
        ended = None if notice.event == "parked" else folder_of(hive.layout, notice.task)
        folder = ended or hive.layout.active / notice.task
        why = why_failed(folder) or "" if notice.event == "failed" else notice.why
        where, at = hive.layout.relative(folder), notice.at.isoformat(timespec="seconds")
        facts = {
            "id": notice.id, "event": notice.event, "task": notice.task, "title": title, "why": why, "at": at,
            "workspace": hive.config.workspace, "hive": str(hive.layout.root), "where": where,
            "summary": f"{notice.event.capitalize()}: {title}",
        }  # fmt: skip
        lines = {key: " ".join(harmless(mask(value)).split()) for key, value in facts.items()}
        return {key: line if len(line) <= _FACT_CHARS else line[:_FACT_CHARS] + "…" for key, line in lines.items()}

    # the ways

    def _letter(self, notice: Notice, facts: dict[str, str]) -> None:
        if notice.event == "parked" and notice.why.startswith("asks a person: "):
            return  # the question was a letter
        reasons = [facts["why"], ""] if facts["why"] else []
        lines = [facts["summary"], "", *reasons, f"{facts['where']}/{OUTCOME_FILES[notice.event]}"]
        then = {"done": "task show", "failed": "task retry", "parked": "task say"}[notice.event]
        body = "\n".join([*lines, "", f"hivemind {then} {notice.task}", ""])
        report = self._hive.mail.send(
            POSTMASTER, HUMAN, facts["summary"][:200], body, message_id=f"told.{notice.id}", task=notice.task
        )
        if report.failed:
            raise UserError("; ".join(map(str, report.failed.values())))

    def _program(self, notice: Notice, facts: dict[str, str]) -> None:
        words = [
            *self._hive.config.notify.program,
            facts["summary"],
            f"{notice.task}: {facts['why'] or facts['where']}",
        ]
        _run(words, json.dumps(facts), self._hive.layout.root)

    def _webhook(self, notice: Notice, facts: dict[str, str]) -> None:
        hook = self._hive.config.notify.webhook
        assert hook is not None
        request = {
            "url": hook.url, "id": notice.id, "body": json.dumps(facts), "secret_env": hook.secret_env,
            "at": int(self._clock().timestamp()), "within_s": _WEBHOOK_S,
        }  # fmt: skip
        # A process of its own: the limit is for all of it then, looking up the name and reading a slow answer included.
        _run([sys.executable, "-m", "hivemind.swarm.webhook"], json.dumps(request))


def _run(words: Sequence[str], text: str, folder: Path | None = None) -> None:
    """Run a program with a text as its input. Raises UserError with what it printed if it fails; SubprocessError, OSError."""
    ended = subprocess.run(
        words, input=text, text=True, errors="replace", timeout=_PROGRAM_S, cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if ended.returncode == -signal.SIGALRM:
        raise UserError(f"had not answered within {_WEBHOOK_S:g} s")
    if ended.returncode != 0:
        raise UserError(f"ended with status {ended.returncode}: {ended.stdout[-500:].strip()}")


class DueWork:
    """The supervisor's end: starts `hivemind due` when something is due, also while an earlier one waits for a webhook."""

    def __init__(self, layout: Layout, *, at_once: bool) -> None:
        """`at_once`: something may be due although no file says so."""
        self._layout = layout
        self._processes: list[subprocess.Popen[bytes]] = []
        self._seen: tuple[int, ...] | None = None
        self._recorded = _changed(layout.due_record)
        self._next = 0.0 if at_once else float("inf")  # seconds since the epoch

    def look(self, written: bool) -> None:
        """Start it if its time has come, if a record or a file is new, or one was `written`."""
        if (recorded := _changed(self._layout.due_record)) != self._recorded:
            self._recorded, self._next = recorded, self._due_at()
        for process in [*self._processes]:
            if (status := process.poll()) is not None:
                self._processes.remove(process)
                if status != 0:
                    self._next = min(self._next, time.time() + _FIRST_PAUSE.total_seconds())
        now = tuple(map(_changed, (self._layout.outbox, self._layout.schedule)))
        fresh = now != self._seen and any(map(_has_files, (self._layout.outbox, self._layout.schedule)))
        self._seen = now
        if not (fresh or written or time.time() >= self._next):
            return
        if len(self._processes) == _AT_ONCE:
            self._seen = None  # looked at again once one has ended
            return
        self._next = float("inf")
        command = [sys.executable, "-m", "hivemind", "--hive", os.fspath(self._layout.root), "due"]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
            self._processes.append(process)
        except OSError as error:  # no more processes for now
            _log.warning("hivemind due cannot be started: %s", error)
            self._next = time.time() + _FIRST_PAUSE.total_seconds()

    @property
    def busy(self) -> bool:
        return bool(self._processes)

    @property
    def left_s(self) -> float:
        """Seconds until it is to be started again; may be infinite."""
        return self._next - time.time()

    def close(self) -> None:
        """End it and the programs that it waits for: what it has not done is done the next time."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _due_at(self) -> float:
        known = _known(self._layout)
        if known is None:
            return time.time() + _LONGEST_PAUSE.total_seconds()
        return float("inf") if known.at is None else known.at.timestamp()


def _changed(folder: os.PathLike[str]) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _has_files(folder: os.PathLike[str]) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(not entry.name.startswith(".") for entry in entries)
    except OSError:
        return False
