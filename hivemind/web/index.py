"""What the page shows of tasks that are over, and what was used up when, by whom and for what: a cache, `.hive/web.db`.

It is derived from the tasks' own files and may be deleted at any time. Tasks are known by name and time at once, what they say
is read after that, newest first.
"""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hivemind.boundary import boundary
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.fs import Log, time_tells
from hivemind.fs.database import DerivedDatabase, Schema, Sql, select_by_keys
from hivemind.hive import Hive
from hivemind.layout import archived_places
from hivemind.minds import Usage
from hivemind.presence.agent_log import AgentLog
from hivemind.taskrun.conversation import used
from hivemind.tasks import TaskState
from hivemind.tasks.folder import ended_folder, open_log, why_failed

SLOT_S = 600  # what was used is kept by ten minutes
_ENDED = (TaskState.DONE, TaskState.FAILED)
_DAY_S = 86_400
_SLOTS = _DAY_S // SLOT_S
_BATCH = 100
_COUNTED = 1_000  # matches of a search are counted so far
_ORDERS = {"newest": "since DESC", "oldest": "since", "title": "title", "tokens": "tokens DESC"}
_TEXT = "(id || ' ' || title || ' ' || ifnull(owner, '') || ' ' || ifnull(project, ''))"


class IndexProblem(UserError):
    """The index cannot be read or written."""


class IndexDamaged(IndexProblem):
    """The file of the index is damaged; it is set aside and rebuilt."""


_SCHEMA = Schema(
    name="index of the page",
    crash_prefix="web.index",
    version=4,
    error=IndexProblem,
    damage_error=IndexDamaged,
    derived=True,
    statements=(
        """CREATE TABLE tasks (
            id TEXT PRIMARY KEY, state TEXT NOT NULL, since REAL NOT NULL, seen INTEGER NOT NULL, title TEXT NOT NULL,
            owner TEXT, project TEXT, error TEXT, tokens INTEGER NOT NULL, money REAL NOT NULL
        )""",
        "CREATE INDEX tasks_by_time ON tasks (state, since)",
        "CREATE INDEX tasks_by_since ON tasks (since)",
        "CREATE INDEX tasks_by_title ON tasks (title)",
        "CREATE INDEX tasks_by_tokens ON tasks (tokens)",
        "CREATE INDEX tasks_unseen ON tasks (seen, since)",
        """CREATE TABLE used (
            slot INTEGER NOT NULL, task TEXT NOT NULL, agent TEXT NOT NULL, model TEXT NOT NULL,
            tokens INTEGER NOT NULL, money REAL NOT NULL, unpriced INTEGER NOT NULL, turns INTEGER NOT NULL
        )""",
        "CREATE INDEX used_by_task ON used (task)",
        "CREATE INDEX used_by_slot ON used (slot, agent)",
        "CREATE TABLE archives (folder TEXT PRIMARY KEY, changed INTEGER NOT NULL)",
    ),
)


@frozen
class TaskRow:
    """A task of a list; `note` is why it waits, rests or failed."""

    id: str
    state: str
    since: float
    title: str
    owner: str | None
    note: str | None
    tokens: int
    money: float


@dataclass(slots=True)
class TokenUse:
    """What was used up: tokens, money, tokens whose price nobody knows, turns."""

    tokens: int = 0
    money: float = 0.0
    unpriced: int = 0
    turns: int = 0

    def add(self, other: TokenUse) -> None:
        self.tokens += other.tokens
        self.money += other.money
        self.unpriced += other.unpriced
        self.turns += other.turns


class PageIndex:
    """The cache of one hive. May be used by many threads; `sync` by one at a time."""

    def __init__(self, root: Path) -> None:
        self._hive = Hive.look(root)
        self._layout = self._hive.layout
        self._folders: dict[str, int] = {}
        self._active: dict[str, tuple[int, int]] = {}
        self._logs: dict[str, Log] = {}
        path = os.fspath(self._layout.web_db) if os.access(self._layout.state, os.W_OK) else ":memory:"
        self._database = DerivedDatabase(path, _SCHEMA, durable=False)
        self._database.run_with_rebuild(self._forget_agents)

    def _forget_agents(self) -> None:
        """What agents used for no task is read again: a log tells what is new only to who keeps reading it."""
        with self._database.write() as sql:
            _book(sql, "", {})

    def close(self) -> None:
        self._database.close()

    def _all(self, statement: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with self._database.read() as sql:
            return sql.execute(statement, tuple(values)).fetchall()

    # keeping up

    def sync(self, seconds: float) -> bool:
        """Take in what has changed, for at most so long; returns whether that was all."""
        until = time.monotonic() + seconds
        for state in _ENDED:
            self._list(state.value, self._layout.tasks / state.value)
        self._read_active()
        self._read_agents()
        return self._read_ended(until) and self._read_archive(until)

    def _list(self, state: str, folder: Path) -> None:
        """Know which tasks lie there, and since when; a folder that has not changed is not listed."""
        try:
            changed = os.stat(folder).st_mtime_ns
            if self._folders.get(state) == changed:
                return
            first = state not in self._folders
            known = dict(self._all("SELECT id, since FROM tasks WHERE state = ?", [state]))
            found: dict[str, float] = {}
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    since = known.get(entry.name)
                    if since is None or first:
                        with suppress(FileNotFoundError):
                            found[entry.name] = entry.stat(follow_symlinks=False).st_ctime
                    else:
                        found[entry.name] = since
        except FileNotFoundError:
            return
        gone = [(name,) for name in known.keys() - found.keys()]
        lost = [(name,) for (name,) in gone if ended_folder(self._layout, name) is None]
        new = [(name, state, since, name) for name, since in found.items() if known.get(name) != since]
        with self._database.write() as sql:
            sql.executemany("DELETE FROM tasks WHERE id = ?", gone)
            sql.executemany("DELETE FROM used WHERE task = ?", lost)
            sql.executemany("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, 0, ?, NULL, NULL, NULL, 0, 0)", new)
        if time_tells(changed):
            self._folders[state] = changed

    def _read_ended(self, until: float) -> bool:
        while rows := self._all("SELECT id, state FROM tasks WHERE seen = 0 ORDER BY since DESC LIMIT ?", [_BATCH]):
            read = [(task, state, *self._told(task, self._layout.tasks / state / task)) for task, state in rows]
            with self._database.write() as sql:
                for task, _, facts, slots in read:
                    sql.execute(
                        "UPDATE tasks SET seen = 1, title = ?, owner = ?, project = ?, error = ?, tokens = ?, money = ?"
                        " WHERE id = ?",
                        (*facts, task),
                    )
                    _book(sql, task, slots)
            if time.monotonic() > until:
                return not self._all("SELECT 1 FROM tasks WHERE seen = 0 LIMIT 1")
        return True

    def _read_archive(self, until: float) -> bool:
        """What archived tasks used, where that is not known from before: the months whose folders have changed."""
        known = dict(self._all("SELECT folder, changed FROM archives"))
        for place in archived_places(self._layout):
            with suppress(FileNotFoundError):
                changed = os.stat(place).st_mtime_ns
                if known.get(os.fspath(place)) == changed:
                    continue
                for name in sorted(os.listdir(place)):
                    if time.monotonic() > until:
                        return False
                    if not self._all("SELECT 1 FROM used WHERE task = ? LIMIT 1", [name]):
                        slots = _usage(self._records(place / name), "")
                        with self._database.write() as sql:
                            _book(sql, name, slots)
                if time_tells(changed):
                    with self._database.write() as sql:
                        sql.execute("INSERT OR REPLACE INTO archives VALUES (?, ?)", [os.fspath(place), changed])
        return True

    def _told(self, task: str, folder: Path) -> tuple[tuple[Any, ...], dict[Any, TokenUse]]:
        """What a task says of itself; one that cannot be read has its name for a title."""
        slots = _usage(self._records(folder), "")
        spent = TokenUse()
        for one in slots.values():
            spent.add(one)
        error = why_failed(folder) if folder.parent.name == TaskState.FAILED else None
        try:
            found = self._hive.tasks.get(task)
        except (HivemindError, OSError):
            return (task, None, None, error, spent.tokens, spent.money), slots
        return (found.title, found.owner, found.project, error, spent.tokens, spent.money), slots

    def _records(self, folder: Path) -> Iterator[dict[str, Any]]:
        with suppress(HivemindError, OSError):
            yield from open_log(folder, durable=False).records()

    def _read_active(self) -> None:
        """What tasks in hand have used so far, where their logs have changed."""
        there: set[str] = set()
        with suppress(FileNotFoundError):
            there = {name for name in os.listdir(self._layout.active) if not name.startswith(".")}
        for task in there:
            folder = self._layout.active / task
            try:
                found = os.stat(open_log(folder, durable=False).path)
            except OSError:
                continue
            stamp = found.st_size, found.st_mtime_ns
            if self._active.get(task) != stamp:
                slots = _usage(self._records(folder), "")
                with self._database.write() as sql:
                    sql.execute("DELETE FROM tasks WHERE id = ?", [task])  # it was over, and is not any more
                    _book(sql, task, slots)
                self._active[task] = stamp
        self._active = {task: stamp for task, stamp in self._active.items() if task in there}

    def _read_agents(self) -> None:
        """What agents have used for no task: mail above all."""
        for name in self._hive.agents:
            log = self._logs.get(name)
            with suppress(HivemindError, OSError):
                if log is None:
                    log = self._logs[name] = AgentLog(self._layout.agent_state(name))
                    records = [*log.records()]
                    log.read()
                else:
                    records = log.read()
                slots = _usage(iter(records), name)
                with self._database.write() as sql:
                    _add(sql, "", slots)

    # looking

    @property
    def progress(self) -> tuple[int, int]:
        """(of how many ended tasks it is known what they say, how many there are)."""
        [(seen, total)] = self._all("SELECT coalesce(sum(seen), 0), count(*) FROM tasks")
        return int(seen), int(total)

    def ended(self, states: Iterable[str], text: str, order: str, limit: int, offset: int) -> tuple[list[TaskRow], int]:
        """(tasks that are over, how many there are in all): in these states, with this text in id, title, owner or project.
        Of those that have a text 1,000 are counted."""
        wanted = list(states)
        words = [word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for word in text.split()]
        # Of all states there is nothing to be compared, and each order has its index.
        one_state = [f"state = '{state}'" for state in wanted if len(wanted) == 1 and state in _ENDED]
        where = " AND ".join(one_state + [f"{_TEXT} LIKE ? ESCAPE '\\'"] * len(words)) or "1"
        values = [f"%{word}%" for word in words]
        if words:
            matches = [key for (key,) in self._all(f"SELECT rowid FROM tasks WHERE {where} LIMIT {_COUNTED}", values)]
            total = len(matches)
            if total < _COUNTED:  # these are all: no second look through what everything says
                where, values = f"rowid IN ({','.join(map(str, matches))})", []
        else:
            [(total,)] = self._all(f"SELECT count(*) FROM tasks WHERE {where}")
        rows = self._all(
            f"SELECT id, state, since, title, owner, error, tokens, money FROM tasks WHERE {where}"
            f" ORDER BY {_ORDERS.get(order, _ORDERS['newest'])} LIMIT ? OFFSET ?",
            [*values, limit, offset],
        )
        return [TaskRow(*row) for row in rows], int(total)

    def used_by(self, what: str, since: float) -> dict[tuple[int, str], TokenUse]:
        """What was used from the day of `since` on, by day (of UTC, as its number) and `agent`, `task` or `model`."""
        assert what in ("agent", "task", "model")
        rows = self._all(
            f"SELECT slot / {_SLOTS}, {what}, sum(tokens), sum(money), sum(unpriced), sum(turns) FROM used"
            " WHERE slot >= ? GROUP BY 1, 2",
            [int(since // _DAY_S) * _SLOTS],
        )
        return {(int(day), str(name)): TokenUse(*row) for day, name, *row in rows}

    def activity(self, since: float) -> dict[str, dict[int, TokenUse]]:
        """What each agent used from `since` on, by ten minutes."""
        rows = self._all(
            "SELECT agent, slot, sum(tokens), sum(money), sum(unpriced), sum(turns) FROM used WHERE slot >= ?"
            " GROUP BY 1, 2",
            [int(since // SLOT_S)],
        )
        found: dict[str, dict[int, TokenUse]] = {}
        for agent, slot, *row in rows:
            found.setdefault(agent, {})[int(slot)] = TokenUse(*row)
        return found

    def spent_on(self, tasks: Iterable[str]) -> dict[str, TokenUse]:
        """What was used for each of these tasks so far."""
        spent = (
            "SELECT task, sum(tokens), sum(money), sum(unpriced), sum(turns) FROM used WHERE task IN KEYS GROUP BY 1"
        )
        with self._database.read() as sql:
            return {task: TokenUse(*row) for task, *row in select_by_keys(sql, spent, tasks)}


def _book(sql: Sql, task: str, slots: Mapping[Any, TokenUse]) -> None:
    """Let a task have used this, and nothing else."""
    sql.execute("DELETE FROM used WHERE task = ?", [task])
    _add(sql, task, slots)


def _add(sql: Sql, task: str, slots: Mapping[Any, TokenUse]) -> None:
    sql.executemany(
        "INSERT INTO used VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (slot, task, agent, model, one.tokens, one.money, one.unpriced, one.turns)
            for (slot, agent, model), one in slots.items()
        ],
    )


def _usage(records: Iterator[Mapping[str, Any]], agent: str) -> dict[Any, TokenUse]:
    """Return what a log says was used, by slot, agent and model: of a request the last line counts, and what is reserved for it
    until there is one."""
    slots: dict[Any, TokenUse] = defaultdict(TokenUse)
    models: dict[str, str] = {}
    booked: dict[str, tuple[TokenUse, Usage]] = {}
    mind = ""
    for record in records:
        with suppress(HivemindError), boundary("record"):
            at = record.get("at", record.get("time"))
            moment = datetime.fromisoformat(at).timestamp() if isinstance(at, str) else float(at or 0)
            if "opening" in record:
                mind = record["mind"] if isinstance(record.get("mind"), str) else ""
                agent = str(record.get("agent") or agent)
            if "reserved" in record:
                models[str(record["request"])] = str(record.get("model") or "")
            is_turn = record.get("role") == "assistant" or record.get("kind") == "turn"
            if is_turn or "answered" in record or "reserved" in record:
                usage = used(record)
                request = str(record.get("answered") or record.get("request") or "")
                who = str(record.get("agent") or agent)
                slot = slots[int(moment // SLOT_S), who, models.get(request) or mind or "by rule"]
                slot.add(TokenUse(usage.tokens, usage.money, usage.unpriced, int(is_turn)))
                if request in booked:
                    before, replaced = booked[request]
                    before.add(TokenUse(-replaced.tokens, -replaced.money, -replaced.unpriced))
                if request:
                    booked[request] = slot, usage
    return {key: slot for key, slot in slots.items() if slot != TokenUse()}
