"""Scheduled work and notifications: a process that does all work that is due, and exits (`hivemind due`).

The supervisor starts it at the next due time, and when the outbox gets a record or the schedule a file. So no process
polls, and no task waits for a program or a webhook.
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
from typing import TYPE_CHECKING

from hivemind.boundary import Unreadable
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.fs import Lock, crash_point, load_dataclass, save_dataclass
from hivemind.layout import HUMAN, POSTMASTER, Layout
from hivemind.masking import mask, strip_controls
from hivemind.presence.parts import Parts
from hivemind.swarm.archive import ArchivedTasks, archive
from hivemind.tasks import Notice, Telling, why_failed
from hivemind.tasks.folder import folder_of

if TYPE_CHECKING:
    from pydantic import AwareDatetime

_MOMENT = timedelta(seconds=1)
_FIRST_PAUSE = timedelta(seconds=30)
_LONGEST_PAUSE = timedelta(hours=1)
_GIVEN_UP_AFTER = _DAY = timedelta(days=1)
_PROGRAM_S, _WEBHOOK_S = 60.0, 10.0
_FACT_CHARS = 2_000  # the system allows 128 KiB for an argument
_MAX_PROCESSES = 2  # one may wait for programs and webhooks while another does the rest
_LETTER = "letter"
_END_S = 1.0
_KIND, _VERSION = "due", 1
_log = logging.getLogger(__name__)


@frozen
class DispatchReport:
    """What a run of `do_due` did.

    It contains the dropped tasks, the sent notices (`way: task event`), the archived files (None: archiving was not due), and
    the time when the next work is due (None: when the outbox or schedule changes).
    """

    dropped: tuple[str, ...]
    notified: tuple[str, ...]
    archived: ArchivedTasks | None
    next: datetime | None


def do_due(hive: Parts, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> DispatchReport:
    """Drop the scheduled tasks that are due, and send the notices that are due.

    Each round has two parts. The first drops tasks, sends letters and archives, under one lock. The second notifies by programs
    and webhooks, which may take long, under another lock. Return after a round in which the second part had no notice to
    send.
    """
    notifier, dropped_ids, archived_tasks = _Notifier(hive, clock), list[str](), None
    while True:
        with Lock(hive.layout.locks / "due.lock"):
            ids, next_drop = hive.tasks.schedule.drop_due(clock())
            notifier.notify_by(_LETTER)
            archive_report, last_archive, next_archive = _archive(hive, clock())
            next_due = min(filter(None, (next_drop, notifier.clean_up(), next_archive)), default=None)
            save_dataclass(hive.layout.due_record, _KIND, _VERSION, _Due(next_due, last_archive), durable=False)
        dropped_ids, archived_tasks = [*dropped_ids, *ids], archived_tasks or archive_report
        if not notifier.notify_programs():
            return DispatchReport(tuple(dropped_ids), tuple(notifier.sent_notices), archived_tasks, next_due)


@frozen
class _Due:
    """The record of when the next work is due, and when the hive was last archived."""

    at: AwareDatetime | None
    archived: AwareDatetime | None


def _load_due(layout: Layout) -> _Due | None:
    """Load the record of due work. Return None if it is missing or unreadable; the next run writes a new one."""
    with suppress(Unreadable, UserError):
        return load_dataclass(_Due, layout.due_record, _KIND, _VERSION)
    return None


def _archive(hive: Parts, now: datetime) -> tuple[ArchivedTasks | None, datetime | None, datetime | None]:
    """Archive once a day. Return the report (None: not due), the time of the last archiving, and of the next."""
    if not hive.config.retention.is_set:
        return None, None, None
    due = _load_due(hive.layout)
    if due is not None and due.archived is not None and now - _DAY < due.archived <= now:
        return None, due.archived, due.archived + _DAY
    return archive(hive, hive.config.retention, now), now, now + _DAY


class _Notifier:
    """Sends the notices in the outbox by three channels: letter, program and webhook. Each channel retries a notice on
    its own.
    """

    def __init__(self, hive: Parts, clock: Callable[[], datetime]) -> None:
        self._hive, self._clock, self._outbox = hive, clock, hive.tasks.outbox
        notify = hive.config.notify
        senders = {_LETTER: self._send_letter, "program": self._run_program, "webhook": self._post_webhook}
        self._ways = {way: send for way, send in senders.items() if getattr(notify, way)}
        self.sent_notices: list[str] = []

    def notify_programs(self) -> bool:
        """Notify by program and webhook in parallel. Return False if neither sent a notice."""
        with ThreadPoolExecutor() as pool:  # the threads only wait for other programs
            return any([*pool.map(self._notify_exclusively, [way for way in self._ways if way != _LETTER])])

    def _notify_exclusively(self, way: str) -> bool:
        """Send the due notices by the channel `way` and return True. Return False if none is due, or another process sends them.

        That process makes another round afterwards, in which it finds notices that have become due meanwhile.
        """
        lock = Lock(self._hive.layout.locks / f"due-{way}.lock")
        if not self._due_notices(way) or not lock.acquire(wait=False):
            return False
        try:
            self.notify_by(way)
        finally:
            lock.release()
        return True

    def notify_by(self, way: str) -> None:
        """Send the notices that are due by the channel `way`."""
        for notice in self._due_notices(way):
            delivery = self._outbox.telling(notice, way)
            facts = {"summary": notice.task}
            try:
                facts = self._facts(notice)
                self._ways[way](notice, facts)
                crash_point("due.sent")
                self.sent_notices.append(f"{way}: {notice.task} {notice.event}")
                delivery = replace(delivery, sent=True)
            except (HivemindError, OSError, subprocess.SubprocessError, ValueError) as error:
                _log.warning("%s: the notice of %s %s was not sent: %s", way, notice.task, notice.event, error)
                delivery = self._after_failure(notice, delivery, way, facts)
            self._outbox.tell(notice, way, delivery)

    def _due_notices(self, way: str) -> list[Notice]:
        """Return the notices that are due by the channel `way`, oldest first."""
        if way not in self._ways:
            return []
        due = (
            notice for notice in self._outbox.list_notices() if self._outbox.telling(notice, way).is_due(self._clock())
        )
        return [notice for notice in due if self._has_occurred(notice)]

    def clean_up(self) -> datetime | None:
        """Remove notices that are sent or obsolete. Return when to check again (None: when the outbox changes)."""
        now = self._clock()
        moments = [now] if self._due_notices(_LETTER) else []  # they have become due just now
        for notice in self._outbox.list_notices():
            has_occurred = self._has_occurred(notice)
            deliveries = [self._outbox.telling(notice, way) for way in self._ways]
            if has_occurred is None:  # not yet, or its agent has died on the way: check less and less often
                moments.append(now + min(_LONGEST_PAUSE, max(_MOMENT, now - notice.at)))
            elif not has_occurred or all(delivery.sent for delivery in deliveries):
                self._outbox.done(notice)
            moments += [
                delivery.again
                for delivery in deliveries
                if not delivery.sent and delivery.again is not None and delivery.again > now
            ]
        return min(moments, default=None)

    def _after_failure(self, notice: Notice, delivery: Telling, way: str, facts: dict[str, str]) -> Telling:
        """Return the delivery with the time of its next try, after a pause that grows with each failure.

        After a day, return it as sent (given up) and tell the operator by mail, with the summary in `facts`.
        """
        now = self._clock()
        if now - notice.at < _GIVEN_UP_AFTER:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(delivery.tries, 10))
            return replace(delivery, tries=delivery.tries + 1, again=now + pause)
        _log.warning("%s: the notice of %s %s is given up after a day", way, notice.task, notice.event)
        if way != _LETTER:
            body = f"The {way} of notify: in hive.yaml has failed for a day. The notice was: {facts['summary']}\n"
            self._hive.mail.send(
                POSTMASTER, HUMAN, f"Not sent by {way}: {notice.task}", body, message_id=f"not-told.{way}.{notice.id}"
            )
        return replace(delivery, sent=True)

    def _has_occurred(self, notice: Notice) -> bool | None:
        """Return True if the event of the notice has occurred, None if it has not yet, and False if the notice is
        obsolete."""
        outcome = self._hive.tasks.listing.outcome(notice.task)
        if notice.event == outcome:
            return True
        if outcome is not None or not self._hive.tasks.listing.is_open(notice.task):
            return False
        if notice.event != "parked":
            return None
        with suppress(UserError):
            parking = self._hive.tasks.get(notice.task).parked
            return parking is not None and parking.reason == notice.why
        return None

    def _facts(self, notice: Notice) -> dict[str, str]:
        """Return the fields of a notice as lines of limited length, without secrets and control characters."""
        hive, title = self._hive, notice.task
        with suppress(UserError):  # a failed drop may not be a task
            title = hive.tasks.get(notice.task).title
        ended_folder = None if notice.event == "parked" else folder_of(hive.layout, notice.task)
        folder = ended_folder or hive.layout.active / notice.task
        reason = why_failed(folder) or "" if notice.event == "failed" else notice.why
        path, at = hive.layout.relative(folder), notice.at.isoformat(timespec="seconds")
        facts = {
            "id": notice.id, "event": notice.event, "task": notice.task, "title": title, "why": reason, "at": at,
            "workspace": hive.config.workspace, "hive": str(hive.layout.root), "where": path,
            "summary": f"{notice.event.capitalize()}: {title}",
        }  # fmt: skip
        lines = {key: " ".join(strip_controls(mask(value)).split()) for key, value in facts.items()}
        return {key: line if len(line) <= _FACT_CHARS else line[:_FACT_CHARS] + "…" for key, line in lines.items()}

    # Ways to notify

    def _send_letter(self, notice: Notice, facts: dict[str, str]) -> None:
        if notice.event == "parked" and notice.why.startswith("asks a person: "):
            return  # the question was a letter
        file_name, command = {
            "done": ("result.md", "show"), "failed": ("error.md", "retry"), "parked": ("task.md", "say"),
        }[notice.event]  # fmt: skip
        lines = [
            f"{facts['summary']}",
            "",
            *([facts["why"], ""] if facts["why"] else []),
            f"{facts['where']}/{file_name}",
        ]
        body = "\n".join([*lines, "", f"hivemind task {command} {notice.task}", ""])
        report = self._hive.mail.send(
            POSTMASTER, HUMAN, facts["summary"][:200], body, message_id=f"told.{notice.id}", task=notice.task
        )
        if report.failed:
            raise UserError("; ".join(map(str, report.failed.values())))

    def _run_program(self, notice: Notice, facts: dict[str, str]) -> None:
        words = [
            *self._hive.config.notify.program,
            facts["summary"],
            f"{notice.task}: {facts['why'] or facts['where']}",
        ]
        _run(words, json.dumps(facts), self._hive.layout.root)

    def _post_webhook(self, notice: Notice, facts: dict[str, str]) -> None:
        hook = self._hive.config.notify.webhook
        assert hook is not None
        request = {
            "url": hook.url, "id": notice.id, "body": json.dumps(facts), "secret_env": hook.secret_env,
            "at": int(self._clock().timestamp()), "within_s": _WEBHOOK_S,
        }  # fmt: skip
        # A separate process, so the time limit covers name lookup and a slow answer too.
        _run([sys.executable, "-m", "hivemind.swarm.webhook"], json.dumps(request))


def _run(words: Sequence[str], text: str, folder: Path | None = None) -> None:
    """Run a program in `folder` (None: this process's folder) with `text` as its input.

    Raises UserError with the output of a program that fails; SubprocessError, OSError.
    """
    process = subprocess.run(
        words, input=text, text=True, errors="replace", timeout=_PROGRAM_S, cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if process.returncode == -signal.SIGALRM:
        raise UserError(f"did not answer within {_WEBHOOK_S:g} s")
    if process.returncode != 0:
        raise UserError(f"ended with status {process.returncode}: {process.stdout[-500:].strip()}")


class DueWork:
    """Starts `hivemind due` for the supervisor when work is due, even while an earlier process waits for a webhook."""

    def __init__(self, layout: Layout, *, at_once: bool) -> None:
        """With `at_once`, the first `start_if_due` starts a process, even if no file says that work is due."""
        self._layout = layout
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder_times: tuple[int, ...] | None = None
        self._record_time = _modified_ns(layout.due_record)
        self._next_time = 0.0 if at_once else float("inf")  # seconds since the epoch

    def start_if_due(self, was_written: bool) -> None:
        """Start `hivemind due` if work is due: by the clock, or because of a new file in the outbox or schedule.

        With `was_written` start it in any case: a file of the schedule may have been changed in place.
        """
        if (record_time := _modified_ns(self._layout.due_record)) != self._record_time:
            self._record_time, self._next_time = record_time, self._due_at()
        for process in [*self._processes]:
            if (status := process.poll()) is not None:
                self._processes.remove(process)
                if status != 0:
                    self._next_time = min(self._next_time, time.time() + _FIRST_PAUSE.total_seconds())
        folder_times = tuple(map(_modified_ns, (self._layout.outbox, self._layout.schedule)))
        is_new = folder_times != self._folder_times and any(
            map(_has_files, (self._layout.outbox, self._layout.schedule))
        )
        self._folder_times = folder_times
        if not (is_new or was_written or time.time() >= self._next_time):
            return
        if len(self._processes) == _MAX_PROCESSES:
            self._folder_times = None  # checked again once one has ended
            return
        self._next_time = float("inf")
        command = [sys.executable, "-m", "hivemind", "--hive", os.fspath(self._layout.root), "due"]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
            self._processes.append(process)
        except OSError as error:  # the system allows no further process now
            _log.warning("hivemind due cannot be started: %s", error)
            self._next_time = time.time() + _FIRST_PAUSE.total_seconds()

    @property
    def is_busy(self) -> bool:
        return bool(self._processes)

    @property
    def remaining_s(self) -> float:
        """The seconds until the next start; may be infinite."""
        return self._next_time - time.time()

    def close(self) -> None:
        """End the processes, and the programs for which they wait. The next run does the remaining work."""
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
        due = _load_due(self._layout)
        if due is None:
            return time.time() + _LONGEST_PAUSE.total_seconds()
        return float("inf") if due.at is None else due.at.timestamp()


def _modified_ns(folder: os.PathLike[str]) -> int:
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
