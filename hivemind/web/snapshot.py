"""One snapshot of the hive for all who look at it: kept fresh by watching while somebody does, and by nobody otherwise."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import HivemindError
from hivemind.fs import Watcher, open_watcher
from hivemind.hive import Hive
from hivemind.layout import HUMAN, Layout
from hivemind.mail import Message
from hivemind.swarm.overview import AgentNow, Overview, overview
from hivemind.taskrun.waits import is_question
from hivemind.tasks import TaskState, TaskSummary
from hivemind.tasks.folder import why_failed
from hivemind.web.index import Index

__all__ = ["Need", "Snapshot", "Watch", "look"]

Kind = Literal["question", "letter", "parked", "failed", "agent", "disk"]
_REFRESH_S = 0.25  # so often at most is the hive looked at, however much happens in it
_SHARE = 8  # looking may take one part in so many of the time
_LINGER_S = 20.0  # the watch goes on after the last onlooker: a page that is left is often come back to
_INDEXED_S = 0.2  # of a look is spent on what has ended; what takes longer goes on beside it
_FAILED_FOR = timedelta(days=1)  # a task that failed longer ago needs nobody any more
_FAILED_SHOWN = 20
_ASKED = re.compile(r"hivemind mail reply human (\S+) TEXT")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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

    May be used by many threads. Watches only while somebody looks, and a little longer. Keeps an `index` up as well, if it
    has one.
    """

    def __init__(self, root: Path, index: Index | None = None) -> None:
        self._hive = Hive.look(root)
        self._index = index
        self._indexing: threading.Thread | None = None
        self._mutex = threading.RLock()
        self._heard = threading.Condition()
        self._listeners: list[Callable[[frozenset[str]], None]] = []
        self._changed: set[str] = set()
        self._snapshot: Snapshot | None = None
        self._taken = 0.0
        self._cost = 0.0
        self._thread: threading.Thread | None = None
        self._quiet_since = 0.0
        self._closing = False
        self.refreshes = 0
        """How often the hive was looked at: what is not looked at costs nothing."""

    def snapshot(self) -> Snapshot:
        """The hive as it is: the watched snapshot, or one of a moment ago where nobody watches. Raises UserError, OSError."""
        with self._mutex:
            fresh = self._thread is not None and not self._changed
            if self._snapshot is None or not (fresh or time.monotonic() - self._taken < self._pause):
                self._refresh()
            assert self._snapshot is not None
            return self._snapshot

    @property
    def _pause(self) -> float:
        return max(_REFRESH_S, _SHARE * self._cost)

    @property
    def is_closing(self) -> bool:
        return self._closing

    def forget(self) -> None:
        """Somebody has just changed something here: the next look is a new one."""
        with self._mutex:
            self._snapshot = None

    def _refresh(self) -> None:
        began = time.monotonic()
        self._snapshot = look(self._hive)
        if self._index is not None and not self._index.sync(_INDEXED_S) and self._indexing is None and self._thread:
            self._indexing = threading.Thread(target=self._read_on, name="hivemind-index", daemon=True)
            self._indexing.start()
        self._taken = time.monotonic()
        self._cost = self._taken - began
        self.refreshes += 1

    @contextmanager
    def onlooker(self, on_change: Callable[[frozenset[str]], None]) -> Iterator[None]:
        """While it lasts `on_change` is called, from a thread of the watch, with what has changed. It must be quick."""
        with self._heard:
            self._listeners.append(on_change)
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="hivemind-snapshot", daemon=True)
                self._thread.start()
            self._heard.notify()
        try:
            yield
        finally:
            with self._heard:
                self._listeners.remove(on_change)
                self._quiet_since = time.monotonic()
                self._heard.notify()

    def close(self) -> None:
        """End the watch."""
        with self._heard:
            self._closing = True
            self._heard.notify()
            threads = self._thread, self._indexing
        for thread in filter(None, threads):
            thread.join()

    def _run(self) -> None:
        """The watch: rests until something is heard, looks, tells; ends a while after the last onlooker has gone."""
        layout = self._hive.layout
        watched: set[Path] = set()
        with open_watcher(self._hive.config.watch, _folders(self._hive), [layout.journal], self._hear) as watcher:
            while (changes := self._next()) is not None:
                self._follow(watcher, watched)
                with self._mutex:
                    try:
                        self._refresh()
                    except (HivemindError, OSError) as error:  # said to who looks: the page shows it
                        _log.warning("the hive cannot be looked at: %s", error)
                if any(topic.startswith("task") for topic in changes):
                    changes |= {"index"}
                for tell in list(self._listeners):
                    tell(changes)

    def _read_on(self) -> None:
        """Take in a long history, telling how far that is."""
        assert self._index is not None
        done = False
        while not (done or self._closing):
            done = self._index.sync(1.0)
            with self._heard:
                self._changed.add("index")
                self._heard.notify()
        self._indexing = None

    def _next(self) -> frozenset[str] | None:
        """What has changed, once something has and there was a pause; None when the watch is over."""
        with self._heard:
            while not self._changed or not self._listeners:
                left = _LINGER_S - (time.monotonic() - self._quiet_since)
                if self._closing or (not self._listeners and left <= 0):
                    self._thread = None
                    return None
                self._heard.wait(None if self._listeners else left)
        pause = self._pause - (time.monotonic() - self._taken)
        if pause > 0:
            time.sleep(pause)
        with self._heard:
            changes, self._changed = frozenset(self._changed), set()
        return changes

    def _hear(self, path: Path) -> None:
        topic = _topic(self._hive.layout, path)
        if topic:
            with self._heard:
                self._changed.add(topic)
                self._heard.notify()

    def _follow(self, watcher: Watcher, watched: set[Path]) -> None:
        """Watch the folders of tasks in hand and of agents that have come since."""
        try:
            active = {path for path in self._hive.layout.active.iterdir() if not path.name.startswith(".")}
        except OSError:
            active = set()
        watched &= active
        for folder in active - watched:
            watched.add(folder)
            watcher.add(folder)


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
