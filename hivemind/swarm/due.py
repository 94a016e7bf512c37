"""What a hive does by the clock, and what it tells people: one process that does what is due and ends (`hivemind due`).

The supervisor starts it when its time has come, and whenever a record in the outbox or a file of the schedule is new: so
nothing polls, and no task waits for a program or a webhook.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime

from hivemind.boundary import Unreadable
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import Lock, load_value, reached, save_value
from hivemind.layout import HUMAN, POSTMASTER, Layout
from hivemind.masking import harmless, mask
from hivemind.presence.parts import Parts
from hivemind.swarm.archive import Archived, archive
from hivemind.tasks import Notice, why_failed
from hivemind.tasks.folder import place_of

__all__ = ["Done", "DueWork", "do_due"]

_MOMENT = timedelta(seconds=1)
_FIRST_PAUSE = timedelta(seconds=30)
_LONGEST_PAUSE = timedelta(hours=1)
_GIVEN_UP_AFTER = _A_DAY = timedelta(days=1)
_PROGRAM_S = 60.0
_END_S = 1.0
_KIND, _VERSION = "due", 1
_log = logging.getLogger(__name__)


@frozen
class Done:
    """What was dropped and told (`way: task event`) and archived (None: it was not due), and when the next thing is due;
    None: when something is new."""

    dropped: tuple[str, ...]
    told: tuple[str, ...]
    archived: Archived | None
    next: datetime | None


def do_due(hive: Parts, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Done:
    """Drop the tasks whose time has come, send what is to be told. One process at a time does it: another one waits."""
    with Lock(hive.layout.locks / "due.lock"):
        dropped, moment = hive.tasks.schedule.drop_due(clock())
        told, again = _Sending(hive, clock).run()
        archived, last, tomorrow = _archive(hive, clock())
        following = min(filter(None, (moment, again, tomorrow)), default=None)
        save_value(hive.layout.due_record, _KIND, _VERSION, _Due(following, last), durable=False)
    return Done(tuple(dropped), tuple(told), archived, following)


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


def _archive(hive: Parts, now: datetime) -> tuple[Archived | None, datetime | None, datetime | None]:
    """Archive once a day; returns what was moved, when that was done last, and when it is done next."""
    if not hive.config.retention.is_set:
        return None, None, None
    known = _known(hive.layout)
    if known is not None and known.archived is not None and now - _A_DAY < known.archived <= now:
        return None, known.archived, known.archived + _A_DAY
    return archive(hive, hive.config.retention, now), now, now + _A_DAY


class _Sending:
    def __init__(self, hive: Parts, clock: Callable[[], datetime]) -> None:
        self._hive, self._clock = hive, clock
        told = hive.config.notify
        ways: dict[str, Callable[[Notice, dict[str, str]], object]] = {}
        if told.letter:
            ways["letter"] = self._letter
        if told.program:
            ways["program"] = self._program
        if told.webhook is not None:
            ways["webhook"] = self._webhook
        self._ways = ways

    def run(self) -> tuple[list[str], datetime | None]:
        """Send what is due by each way, letters first; a way that fails is left alone for this time."""
        outbox, now = self._hive.tasks.outbox, self._clock()
        ready, moments = [], []
        for notice in outbox.waiting():
            come = self._has_come(notice)
            if come:
                ready.append((notice, self._facts(notice)))
            elif come is None:  # or its agent has died on the way: look less and less often
                age = now - notice.at
                moments.append(now + min(_LONGEST_PAUSE, max(_MOMENT, age)))
            else:
                outbox.done(notice)
        told: list[str] = []
        for way, send in self._ways.items():
            fails = False
            for at, (notice, facts) in enumerate(ready):
                if way in notice.sent or (notice.again is not None and notice.again > self._clock()):
                    continue
                if not fails:
                    try:
                        send(notice, facts)
                        reached("due.sent")
                        told.append(f"{way}: {notice.task} {notice.event}")
                        notice = outbox.sent(notice, way)
                    except (OSError, subprocess.SubprocessError, UserError) as error:
                        _log.warning("%s: %s %s is not told: %s", way, notice.task, notice.event, error)
                        fails = True
                if way not in notice.sent:
                    notice = self._failed(notice, way, facts)
                ready[at] = notice, facts
        for notice, _ in ready:
            if all(way in notice.sent for way in self._ways):
                outbox.done(notice)
            elif notice.again is not None:
                moments.append(notice.again)
        return told, min(moments, default=None)

    def _failed(self, notice: Notice, way: str, facts: dict[str, str]) -> Notice:
        """Try again, ever less often; after a day say that it is given up."""
        outbox, now = self._hive.tasks.outbox, self._clock()
        if now - notice.at < _GIVEN_UP_AFTER:
            return outbox.later(notice, now + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(notice.tries, 10)))
        _log.warning("%s: %s %s is given up after a day", way, notice.task, notice.event)
        if way != "letter":
            body = f"For a day the {way} named in hive.yaml (notify:) could not be told: {facts['summary']}\n"
            self._hive.mail.send(
                POSTMASTER, HUMAN, f"Not told by {way}: {notice.task}", body, message_id=f"not-told.{way}.{notice.id}"
            )
        return outbox.sent(notice, way)

    def _has_come(self, notice: Notice) -> bool | None:
        """Whether it has come to what the notice tells of; None: not yet; False: it is over, or the task gone."""
        outcome = self._hive.tasks.outcome(notice.task)
        if notice.event == outcome:
            return True
        if outcome is not None or not self._hive.tasks.is_open(notice.task):
            return False
        if notice.event != "parked":
            return None
        with suppress(UserError):
            rest = self._hive.tasks.get(notice.task).parked
            return rest is not None and rest.reason == notice.why
        return None

    def _facts(self, notice: Notice) -> dict[str, str]:
        """What is told, in lines that steer no terminal and have no secrets in them."""
        hive, title = self._hive, notice.task
        with suppress(UserError):  # what failed may be no task
            title = hive.tasks.get(notice.task).title
        ended = None if notice.event == "parked" else place_of(hive.layout, notice.task)
        folder = ended or hive.layout.active / notice.task
        why = why_failed(folder) or "" if notice.event == "failed" else notice.why
        word = {"done": "Done", "failed": "Failed", "parked": "Parked"}[notice.event]
        where, at = hive.layout.relative(folder), notice.at.isoformat(timespec="seconds")
        told = {
            "id": notice.id, "event": notice.event, "task": notice.task, "title": title, "why": why, "at": at,
            "workspace": hive.config.workspace, "hive": str(hive.layout.root), "where": where,
            "summary": f"{word}: {title}",
        }  # fmt: skip
        return {key: " ".join(harmless(mask(value)).split()) for key, value in told.items()}

    # the ways

    def _letter(self, notice: Notice, facts: dict[str, str]) -> None:
        if notice.event == "parked" and notice.why.startswith("asks a person: "):
            return  # the question was a letter
        named = {"done": "result.md", "failed": "error.md", "parked": "task.md"}[notice.event]
        lines = [f"{facts['summary']}", "", *([facts["why"], ""] if facts["why"] else []), f"{facts['where']}/{named}"]
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
        done = subprocess.run(
            words, input=json.dumps(facts), text=True, errors="replace", timeout=_PROGRAM_S, cwd=self._hive.layout.root,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise UserError(f"{words[0]} ended with status {done.returncode}: {done.stdout[-500:].strip()}")

    def _webhook(self, notice: Notice, facts: dict[str, str]) -> None:
        hook = self._hive.config.notify.webhook
        assert hook is not None
        secret = None
        if hook.secret_env is not None:
            secret = os.environ.get(hook.secret_env)
            if not secret:
                raise UserError(f"its secret is not in the environment: {hook.secret_env}")
        from hivemind.swarm.webhook import post  # late: the supervisor, which only looks at the clock, needs no HTTP

        post(hook.url, notice.id, json.dumps(facts).encode(), secret, at=int(self._clock().timestamp()))


class DueWork:
    """The supervisor's end: starts `hivemind due` when something is due, one at a time."""

    def __init__(self, layout: Layout, *, at_once: bool) -> None:
        """`at_once`: something may be due although no file says so."""
        self._layout = layout
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: tuple[int, ...] | None = None
        self._next = 0.0 if at_once else float("inf")  # seconds since the epoch

    def look(self, written: bool) -> None:
        """Start it if its time has come, if a record or a file is new, or one was `written`."""
        if self._process is not None:
            if (status := self._process.poll()) is None:
                self._seen = None if written else self._seen
                return
            self._process = None
            self._next = self._due_at() if status == 0 else time.time() + _FIRST_PAUSE.total_seconds()
        now = tuple(map(_changed, (self._layout.outbox, self._layout.schedule)))
        fresh = now != self._seen and any(map(_has_files, (self._layout.outbox, self._layout.schedule)))
        if fresh or written or time.time() >= self._next:
            self._next = float("inf")
            command = [sys.executable, "-m", "hivemind", "--hive", os.fspath(self._layout.root), "due"]
            try:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            except OSError as error:  # no more processes for now
                _log.warning("hivemind due cannot be started: %s", error)
                self._next = time.time() + _FIRST_PAUSE.total_seconds()
        self._seen = now

    @property
    def busy(self) -> bool:
        return self._process is not None

    @property
    def left_s(self) -> float:
        """Seconds until it is to be started again; may be infinite."""
        return self._next - time.time()

    def close(self) -> None:
        """End it: what it has not done is done the next time."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

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
