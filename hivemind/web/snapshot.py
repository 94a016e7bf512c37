"""One snapshot of the hive for all who look at it: kept fresh by watching while somebody does, and by nobody otherwise."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import HivemindError
from hivemind.frozen import frozen
from hivemind.fs import Watcher, open_watcher
from hivemind.hive import Hive
from hivemind.layout import HUMAN, Layout
from hivemind.mail import Message
from hivemind.swarm.overview import AgentNow, Overview, overview
from hivemind.taskrun.waits import is_question
from hivemind.tasks import TaskState, TaskSummary
from hivemind.tasks.folder import why_failed

if TYPE_CHECKING:
    from hivemind.web.index import PageIndex

Kind = Literal["question", "letter", "parked", "failed", "agent", "disk"]
_REFRESH_S = 0.25  # so often at most is the hive looked at, however much happens in it
_SHARE = 8  # looking may take one part in so many of the time
_INDEXED_S = 0.2  # of a look is spent on what has ended; what takes longer is read on at the next
_FAILED_FOR = timedelta(days=1)  # a task that failed longer ago needs nobody any more
_FAILED_SHOWN = 20
_ASKED = re.compile(r"hivemind mail reply human (\S+) TEXT")


@frozen
class Need:
    """Something that waits for a person: `about` is the task, agent or sender, `letter` the question to be answered."""

    kind: Kind
    about: str
    what: str
    since: datetime | None = None
    letter: Message | None = None

    @property
    def is_review(self) -> bool:
        """Whether a result is to be approved or rejected: `approved` as an answer ends it."""
        return self.letter is not None and self.letter.subject.startswith("Review: ")


@frozen
class Snapshot:
    """The hive at one moment: what `hivemind status` shows, the tasks that are not over, and who waits for a person."""

    at: datetime
    overview: Overview
    open_tasks: tuple[TaskSummary, ...]
    needs: tuple[Need, ...]

    @property
    def agents(self) -> tuple[AgentNow, ...]:
        return self.overview.agents


def look(hive: Hive) -> Snapshot:
    """Look at everything once."""
    now = overview(hive)
    tasks = (*hive.tasks.list(TaskState.ACTIVE), *hive.tasks.list(TaskState.INBOX))
    moment = datetime.now(UTC)
    return Snapshot(moment, now, tasks, tuple(_needs(hive, now, tasks, moment)))


def _needs(hive: Hive, now: Overview, tasks: Iterable[TaskSummary], moment: datetime) -> Iterator[Need]:
    if now.disk_full:
        yield Need("disk", "disk", "The disk is full: all work rests. Make room, and it goes on.")
    for task in tasks:
        if task.parked is not None:
            question = _question(hive, task.parked.reason)
            if question is None and task.parked.until is None:
                yield Need("parked", task.id, task.parked.reason, task.parked.since)
            elif question is not None and "R" not in question.flags:  # else it goes on as soon as its agent looks
                yield Need("question", task.id, question.subject, question.date, question)
        elif task.problem and task.state is TaskState.ACTIVE:
            yield Need("parked", task.id, task.problem, task.since)
    for agent in now.agents:
        if agent.problem:
            yield Need("agent", agent.name, agent.problem)
    for letter, what in now.needs_you:
        yield Need("letter", letter, what)
    yield from _failed(hive.layout, moment)


def _question(hive: Hive, reason: str) -> Message | None:
    """The letter with the question that a parked task waits for an answer to; None if there is none, or none any more."""
    found = _ASKED.search(reason)
    if found is None or not is_question(found[1], hive.config.workspace):
        return None
    try:
        return hive.mail.read(HUMAN, found[1], mark=False)
    except HivemindError:
        return None


def _failed(layout: Layout, moment: datetime) -> Iterator[Need]:
    """What failed lately, newest first."""
    found = []
    if layout.failed.is_dir():
        for folder in layout.failed.iterdir():
            if folder.name.startswith("."):
                continue
            with boundary("time"):
                since = datetime.fromtimestamp(folder.lstat().st_ctime, UTC)
            if moment - since < _FAILED_FOR:
                found.append((since, folder))
    for since, folder in sorted(found, reverse=True)[:_FAILED_SHOWN]:
        why = why_failed(folder) or "It says nothing of why."
        if not why.startswith("Cancelled by human"):
            yield Need("failed", folder.name, why, since)


class Watch:
    """Keeps a snapshot, and tells who looks what has changed: `agents`, `tasks`, `mail`, `journal`, `index`, `task:ID`.

    May be used by many threads. Watches from the first onlooker on; what changes while nobody looks is looked at when somebody
    does. Keeps an `index` up as well, if it has one.
    """

    def __init__(self, root: Path, index: PageIndex | None = None) -> None:
        self._hive = Hive.look(root)
        self._index = index
        self._mutex = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._is_stale = False
        self._begun = self._told = 0.0  # the last look, and when onlookers were last told to look
        self._pause_s = _REFRESH_S
        self._telling = threading.Lock()
        self._listeners: list[Callable[[frozenset[str]], None]] = []
        self._changed: set[str] = set()
        self._timer: threading.Timer | None = None
        self._watcher: Watcher | None = None
        self.is_closing = False

    def snapshot(self) -> Snapshot:
        """The hive as it is, or was a moment ago where much happens or nobody watches. Raises UserError, OSError."""
        with self._mutex:
            is_fresh = self._watcher is not None and not self._is_stale
            is_recent = self._told < self._begun and time.monotonic() - self._begun < self._pause_s
            if self._snapshot is None or not (is_fresh or is_recent):
                self._snapshot = None  # if the hive cannot be looked at, the next one tries again
                self._snapshot = self._refreshed()
            return self._snapshot

    def forget(self) -> None:
        """Somebody has just changed something here: the next look is a new one."""
        with self._mutex:
            self._snapshot = None

    def _refreshed(self) -> Snapshot:
        self._begun = time.monotonic()
        self._is_stale = False
        found = look(self._hive)
        is_indexed = self._index is None or self._index.sync(_INDEXED_S)
        self._pause_s = max(_REFRESH_S, _SHARE * (time.monotonic() - self._begun))
        if not is_indexed:  # who looks is told, looks again, and so reads on
            self._hear("index")
        return found

    @contextmanager
    def onlooker(self, on_change: Callable[[frozenset[str]], None]) -> Iterator[None]:
        """While it lasts `on_change` is called, from a thread of the watch, with what has changed. It must be quick."""
        with self._telling:
            self._listeners.append(on_change)
            if self._watcher is None and not self.is_closing:
                trees = [self._hive.layout.journal]
                self._watcher = open_watcher(self._hive.config.watch, _folders(self._hive), trees, self._hear_of)
        try:
            yield
        finally:
            with self._telling:
                self._listeners.remove(on_change)

    def close(self) -> None:
        """End the watch."""
        self.is_closing = True
        if self._watcher is not None:
            self._watcher.close()
        if (timer := self._timer) is not None:
            timer.cancel()
            timer.join()

    def _hear_of(self, path: Path) -> None:
        topic = _topic(self._hive.layout, path)
        if topic:
            self._hear(topic)

    def _hear(self, topic: str) -> None:
        """Note what has changed; who looks is told after a pause, of all that has changed by then."""
        self._is_stale = True
        with self._telling:
            self._changed.add(topic)
            if self._timer is None and self._listeners and not self.is_closing:
                due = max(self._begun, self._told) + self._pause_s
                self._timer = threading.Timer(max(0.0, due - time.monotonic()), self._tell)
                self._timer.daemon = True
                self._timer.start()

    def _tell(self) -> None:
        with self._telling:
            self._timer, changes, self._changed = None, frozenset(self._changed), set()
            self._told = time.monotonic()
            watcher, listeners = self._watcher, list(self._listeners)
        if any(topic.startswith("task") for topic in changes):
            changes |= {"index"}
            self._follow(watcher)
        for tell in listeners:
            tell(changes)

    def _follow(self, watcher: Watcher | None) -> None:
        """Watch the folders of tasks in hand that have come since."""
        if watcher is not None and not self.is_closing:
            with suppress(OSError):
                for folder in self._hive.layout.active.glob("[!.]*"):
                    watcher.add(folder, passing=True)


def _folders(hive: Hive) -> list[Path]:
    layout = hive.layout
    boxes = [layout.mailbox(name) for name in (HUMAN, *hive.agents)]
    return [
        layout.agents,
        layout.inbox,
        layout.active,
        layout.done,
        layout.failed,
        *(layout.agent_state(name) for name in hive.agents),
        *(box / part for box in boxes for part in ("new", "cur")),
    ]


def _topic(layout: Layout, path: Path) -> str | None:
    """What a change at a path is about."""
    try:
        with boundary("path", path):
            parts = path.relative_to(layout.root).parts
    except Unreadable:
        return None
    if parts[0] == "tasks":
        return f"task:{parts[2]}" if len(parts) > 2 else "tasks"
    if parts[0] == "mailboxes":
        return "mail"
    if parts[:2] == (layout.state.name, layout.journal.name):
        return "journal"
    return "agents"
