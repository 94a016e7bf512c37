"""The page's cache `.hive/web.db`: ended tasks, and the tokens and money that were used, by time, agent, task and model.

The cache is derived from the tasks' files and may be deleted at any time. A sync first lists the names and times of all ended
tasks, then reads their files, newest first.
"""

# ruff: noqa: S608 - statements are composed of constants of this module; values are bound
from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hivemind.boundary import boundary
from hivemind.coordination import Event
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.fs import Log, is_timestamp_reliable
from hivemind.fs.database import DerivedDatabase, Schema, Sql, select_by_keys
from hivemind.hive import Hive
from hivemind.layout import archived_folders
from hivemind.minds import Usage
from hivemind.presence.agent_log import AgentLog
from hivemind.taskrun.conversation import usage_of
from hivemind.tasks import TaskState
from hivemind.tasks.folder import ended_folder, why_failed
from hivemind.tasks.record import open_log

SLOT_S = 600  # usage is summed in slots of ten minutes
_ENDED_STATES = (TaskState.DONE, TaskState.FAILED)
_DAY_S = 86_400
_SLOTS_PER_DAY = _DAY_S // SLOT_S
_BATCH_TASKS = 100
_BATCH_EVENTS = 1_000
_LANDING_OUTCOMES = ("landed", "returned", "failed")
_MAX_COUNTED = 1_000  # a search counts at most this many matches
_ORDERS = {"newest": "since DESC", "oldest": "since", "title": "title", "tokens": "tokens DESC"}
_SUMS = "sum(tokens), sum(money), sum(unpriced), sum(turns), sum(output), sum(cached)"
DELETED_TASKS = "(deleted)"
"""Stands for the tasks whose folders a person has deleted: their usage still counts."""
_SEARCH_TEXT = "(id || ' ' || title || ' ' || ifnull(owner, '') || ' ' || ifnull(project, ''))"


class IndexProblem(UserError):
    """The index cannot be read or written."""


class IndexDamaged(IndexProblem):
    """The index's file is damaged. It is set aside, and the index is built again."""


_SCHEMA = Schema(
    name="index of the page",
    crash_prefix="web.index",
    version=6,
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
            tokens INTEGER NOT NULL, money REAL NOT NULL, unpriced INTEGER NOT NULL, turns INTEGER NOT NULL,
            output INTEGER NOT NULL, cached INTEGER NOT NULL
        )""",
        "CREATE TABLE counts (name TEXT, subject TEXT, outcome TEXT, value INTEGER, PRIMARY KEY (name, subject, outcome))",
        "CREATE INDEX used_by_task ON used (task)",
        "CREATE INDEX used_by_slot ON used (slot, agent)",
        "CREATE TABLE archives (folder TEXT PRIMARY KEY, changed INTEGER NOT NULL)",
    ),
)


@frozen
class TaskRow:
    """A task in a list. `note` says why the task waits, is parked (set aside until something happens) or failed, or what it left
    unanswered."""

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
    """The amounts of tokens, money and turns that were used, and of tokens without a known price (`unpriced`). `output` and
    `cached` (input that the provider had in its cache) are parts of the tokens."""

    tokens: int = 0
    money: float = 0.0
    unpriced: int = 0
    turns: int = 0
    output: int = 0
    cached: int = 0

    def add(self, other: TokenUse) -> None:
        self.tokens += other.tokens
        self.money += other.money
        self.unpriced += other.unpriced
        self.turns += other.turns
        self.output += other.output
        self.cached += other.cached


class PageIndex:
    """The cache of one hive. Thread-safe, except that only one thread at a time may call `sync`."""

    def __init__(self, root: Path) -> None:
        self._hive = Hive.look(root)
        self._layout = self._hive.layout
        self._folder_times: dict[str, int] = {}
        self._active_stamps: dict[str, tuple[int, int]] = {}
        self._agent_logs: dict[str, Log] = {}
        path = os.fspath(self._layout.web_db) if os.access(self._layout.state, os.W_OK) else ":memory:"
        self._database = DerivedDatabase(path, _SCHEMA)
        self._database.run_with_rebuild(self._forget_agent_usage)

    def _forget_agent_usage(self) -> None:
        """Delete the usage outside tasks. It is read again: a new index reads the agents' logs from the start."""
        with self._database.write() as sql:
            _replace_usage(sql, "", {})

    def close(self) -> None:
        self._database.close()

    def _select(self, statement: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with self._database.read() as sql:
            return sql.execute(statement, tuple(values)).fetchall()

    # keeping up

    def sync(self, seconds: float) -> bool:
        """Read changes of the hive into the index, for about `seconds`. Return True if the index is complete, False if
        time ran out."""
        deadline = time.monotonic() + seconds
        for state in _ENDED_STATES:
            self._sync_folder(state.value, self._layout.tasks / state.value)
        self._read_active()
        self._read_agents()
        is_counted = self._count_events(deadline)
        return self._read_ended(deadline) and self._read_archive(deadline) and is_counted

    def _sync_folder(self, state: str, folder: Path) -> None:
        """Update the names of the tasks in a folder, and the times when they came there. A folder that has not changed
        is skipped."""
        try:
            modified_ns = os.stat(folder).st_mtime_ns
            if self._folder_times.get(state) == modified_ns:
                return
            is_first = state not in self._folder_times
            known_times = dict(self._select("SELECT id, since FROM tasks WHERE state = ?", [state]))
            current_times: dict[str, float] = {}
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    since = known_times.get(entry.name)
                    if since is None or is_first:
                        with suppress(FileNotFoundError):
                            current_times[entry.name] = entry.stat(follow_symlinks=False).st_ctime
                    else:
                        current_times[entry.name] = since
        except FileNotFoundError:
            return
        removed_rows = [(name,) for name in known_times.keys() - current_times.keys()]
        lost_rows = [(name,) for (name,) in removed_rows if ended_folder(self._layout, name) is None]
        new_rows = [
            (name, state, since, name) for name, since in current_times.items() if known_times.get(name) != since
        ]
        with self._database.write() as sql:
            sql.executemany("DELETE FROM tasks WHERE id = ?", removed_rows)
            sql.executemany(f"UPDATE used SET task = '{DELETED_TASKS}' WHERE task = ?", lost_rows)
            sql.executemany("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, 0, ?, NULL, NULL, NULL, 0, 0)", new_rows)
        if is_timestamp_reliable(modified_ns):
            self._folder_times[state] = modified_ns

    def _read_ended(self, deadline: float) -> bool:
        while rows := self._select(
            "SELECT id, state FROM tasks WHERE seen = 0 ORDER BY since DESC LIMIT ?", [_BATCH_TASKS]
        ):
            task_reports = [
                (task, state, *self._read_task(task, self._layout.tasks / state / task)) for task, state in rows
            ]
            with self._database.write() as sql:
                for task, _, facts, slots in task_reports:
                    sql.execute(
                        "UPDATE tasks SET seen = 1, title = ?, owner = ?, project = ?, error = ?, tokens = ?, money = ?"
                        " WHERE id = ?",
                        (*facts, task),
                    )
                    _replace_usage(sql, task, slots)
            if time.monotonic() > deadline:
                return not self._select("SELECT 1 FROM tasks WHERE seen = 0 LIMIT 1")
        return True

    def _read_archive(self, deadline: float) -> bool:
        """Index the missing usage of archived tasks, in the folders that have changed. Return False if time ran out."""
        known_times = dict(self._select("SELECT folder, changed FROM archives"))
        for folder in archived_folders(self._layout):
            with suppress(FileNotFoundError):
                modified_ns = os.stat(folder).st_mtime_ns
                if known_times.get(os.fspath(folder)) == modified_ns:
                    continue
                for name in sorted(os.listdir(folder)):
                    if time.monotonic() > deadline:
                        return False
                    if not self._select("SELECT 1 FROM used WHERE task = ? LIMIT 1", [name]):
                        slots = _read_usage(self._records(folder / name), "")
                        with self._database.write() as sql:
                            _replace_usage(sql, name, slots)
                if is_timestamp_reliable(modified_ns):
                    with self._database.write() as sql:
                        sql.execute("INSERT OR REPLACE INTO archives VALUES (?, ?)", [os.fspath(folder), modified_ns])
        return True

    def _read_task(self, task_id: str, folder: Path) -> tuple[tuple[Any, ...], dict[Any, TokenUse]]:
        """Return the columns of a task in the index, and its usage as `_read_usage` does. The title of an unreadable
        task is its id."""
        slots = _read_usage(self._records(folder), "")
        total = TokenUse()
        for usage in slots.values():
            total.add(usage)
        error = why_failed(folder) if folder.parent.name == TaskState.FAILED else None
        try:
            task_details = self._hive.tasks.get(task_id)
        except (HivemindError, OSError):
            return (task_id, None, None, error, total.tokens, total.money), slots
        error = error or task_details.unanswered
        return (task_details.title, task_details.owner, task_details.project, error, total.tokens, total.money), slots

    def _records(self, folder: Path) -> Iterator[dict[str, Any]]:
        with suppress(HivemindError, OSError):
            yield from open_log(folder).records()

    def _read_active(self) -> None:
        """Index the usage of active tasks with changed logs."""
        active_ids: set[str] = set()
        with suppress(FileNotFoundError):
            active_ids = {name for name in os.listdir(self._layout.active) if not name.startswith(".")}
        for task in active_ids:
            folder = self._layout.active / task
            try:
                log_status = os.stat(open_log(folder).path)
            except OSError:
                continue
            stamp = log_status.st_size, log_status.st_mtime_ns
            if self._active_stamps.get(task) != stamp:
                slots = _read_usage(self._records(folder), "")
                with self._database.write() as sql:
                    sql.execute("DELETE FROM tasks WHERE id = ?", [task])  # an ended task became active again
                    _replace_usage(sql, task, slots)
                self._active_stamps[task] = stamp
        self._active_stamps = {task: stamp for task, stamp in self._active_stamps.items() if task in active_ids}

    def _read_agents(self) -> None:
        """Index the tokens and money that agents have used outside tasks since the last call, mostly for mail."""
        for name in self._hive.agents:
            log = self._agent_logs.get(name)
            with suppress(HivemindError, OSError):
                if log is None:
                    log = self._agent_logs[name] = AgentLog(self._layout.agent_state(name))
                    records = [*log.records()]
                    log.read()
                else:
                    records = log.read()
                slots = _read_usage(iter(records), name)
                with self._database.write() as sql:
                    _add_usage(sql, "", slots)

    def _count_events(self, deadline: float) -> bool:
        """Add the journal's new events to the counts (see `counts`). Return False if time ran out at `deadline`.

        A journal that is shorter than the counted one comes from a backup; the counts then begin again.
        """
        counts = self.counts("journal")
        seq = counts.get(("", ""), 0)
        if seq > self._hive.journal.seq:
            with self._database.write() as sql:
                sql.execute("DELETE FROM counts")
            seq = 0
        is_complete = True
        added: Counter[tuple[str, str, str]] = Counter()
        for event in self._hive.journal.events(seq):
            seq = event.seq
            if (key := _counted_as(event)) is not None:
                added[key] += 1
            if seq % _BATCH_EVENTS == 0 and time.monotonic() > deadline:
                is_complete = False
                break
        if seq != counts.get(("", ""), 0):
            with self._database.write() as sql:
                sql.executemany(
                    "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value",
                    [(*key, count) for key, count in added.items()],
                )
                sql.execute("INSERT OR REPLACE INTO counts VALUES ('journal', '', '', ?)", [seq])
        return is_complete

    # looking

    def counts(self, name: str) -> dict[tuple[str, str], int]:
        """Return the numbers of counted events by (subject, outcome). A part that `name` does not use is "".

        `name` is `restarts` (by agent), `tasks` (by outcome) or `landings` (by repository and outcome). For `journal`,
        the result has only the `seq` of the last event that was counted.
        """
        rows = self._select("SELECT subject, outcome, value FROM counts WHERE name = ?", [name])
        return {(subject, outcome): value for subject, outcome, value in rows}

    def usage_by_agent(self) -> dict[str, TokenUse]:
        """Return what each agent has used since the hive began."""
        return {agent: TokenUse(*row) for agent, *row in self._select(f"SELECT agent, {_SUMS} FROM used GROUP BY 1")}

    @property
    def progress(self) -> tuple[int, int]:
        """The number of ended tasks that were read, and the number of all ended tasks."""
        [(seen, total)] = self._select("SELECT coalesce(sum(seen), 0), count(*) FROM tasks")
        return int(seen), int(total)

    def ended_tasks(
        self, states: Iterable[str], text: str, order: str, limit: int, offset: int
    ) -> tuple[list[TaskRow], int]:
        """Return a page of the matching tasks, and the number of all matching tasks (counted up to 1,000 if there is a text).

        An ended task matches if it is in one of `states` and each word of `text` is in its id, title, owner or project.
        The page has at most `limit` tasks, from `offset` on in this `order`.
        """
        state_list = list(states)
        words = [word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for word in text.split()]
        # All states need no condition, so each order can use its index.
        state_condition = [
            f"state = '{state}'" for state in state_list if len(state_list) == 1 and state in _ENDED_STATES
        ]
        condition = " AND ".join(state_condition + [f"{_SEARCH_TEXT} LIKE ? ESCAPE '\\'"] * len(words)) or "1"
        values = [f"%{word}%" for word in words]
        if words:
            matches = [
                key
                for (key,) in self._select(f"SELECT rowid FROM tasks WHERE {condition} LIMIT {_MAX_COUNTED}", values)
            ]
            total = len(matches)
            if total < _MAX_COUNTED:  # the matches are complete: do not search the text again
                condition, values = f"rowid IN ({','.join(map(str, matches))})", []
        else:
            [(total,)] = self._select(f"SELECT count(*) FROM tasks WHERE {condition}")
        rows = self._select(
            f"SELECT id, state, since, title, owner, error, tokens, money FROM tasks WHERE {condition}"
            f" ORDER BY {_ORDERS.get(order, _ORDERS['newest'])} LIMIT ? OFFSET ?",
            [*values, limit, offset],
        )
        return [TaskRow(*row) for row in rows], int(total)

    def usage_by(self, column: str, since: float) -> dict[tuple[int, str], TokenUse]:
        """Return the usage since `since` (seconds since 1970), by the number of the day (UTC, from 1970) and by
        `column`: agent, task or model."""
        assert column in ("agent", "task", "model")
        rows = self._select(
            f"SELECT slot / {_SLOTS_PER_DAY}, {column}, {_SUMS} FROM used WHERE slot >= ? GROUP BY 1, 2",
            [int(since // _DAY_S) * _SLOTS_PER_DAY],
        )
        return {(int(day), str(name)): TokenUse(*row) for day, name, *row in rows}

    def activity(self, since: float) -> dict[str, dict[int, TokenUse]]:
        """Return the usage of each agent since `since` (seconds since 1970), by the number of the ten-minute slot (from 1970)."""
        rows = self._select(
            f"SELECT agent, slot, {_SUMS} FROM used WHERE slot >= ? GROUP BY 1, 2", [int(since // SLOT_S)]
        )
        usage: dict[str, dict[int, TokenUse]] = {}
        for agent, slot, *row in rows:
            usage.setdefault(agent, {})[int(slot)] = TokenUse(*row)
        return usage

    def usage_of_tasks(self, tasks: Iterable[str]) -> dict[str, TokenUse]:
        """Return what each of the tasks has used so far, by task id."""
        statement = f"SELECT task, {_SUMS} FROM used WHERE task IN KEYS GROUP BY 1"
        with self._database.read() as sql:
            return {task: TokenUse(*row) for task, *row in select_by_keys(sql, statement, tasks)}


def _token_use(usage: Usage, *, turns: int = 0, sign: int = 1) -> TokenUse:
    amounts = (usage.tokens, usage.money, usage.unpriced, 0, usage.tokens_out, usage.cached)
    use = TokenUse(*(sign * amount for amount in amounts))  # type: ignore[arg-type]
    use.turns = turns
    return use


def _replace_usage(sql: Sql, task: str, slots: Mapping[Any, TokenUse]) -> None:
    """Replace the usage of a task in the index; "" means usage outside tasks."""
    sql.execute("DELETE FROM used WHERE task = ?", [task])
    _add_usage(sql, task, slots)


def _add_usage(sql: Sql, task: str, slots: Mapping[Any, TokenUse]) -> None:
    sql.executemany(
        "INSERT INTO used VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(slot, task, agent, model, *astuple(usage)) for (slot, agent, model), usage in slots.items()],
    )


def _counted_as(event: Event) -> tuple[str, str, str] | None:
    """Return the (name, subject, outcome) under which an event is counted, or None if the event is not counted."""
    room, _, word = event.kind.partition(".")
    if event.kind == "agent.exited" and event.payload.get("by") != "itself":
        return "restarts", str(event.payload.get("agent_id", "")), ""
    if room == "task" and word in ("done", "failed"):
        return "tasks", "", word
    if room == "landing" and word in _LANDING_OUTCOMES:
        return "landings", str(event.payload.get("root", "")), word
    return None


def _read_usage(records: Iterator[Mapping[str, Any]], agent: str) -> dict[Any, TokenUse]:
    """Return the usage that a log records, by ten-minute slot, agent and model. `agent` is the agent of records that name none.

    An amount is reserved for each request to a model. It counts until the log has the answer; then only the answer's
    usage counts.
    """
    slots: dict[Any, TokenUse] = defaultdict(TokenUse)
    models: dict[str, str] = {}
    usage_by_request: dict[str, tuple[TokenUse, Usage]] = {}
    mind = ""
    for record in records:
        with suppress(HivemindError), boundary("record"):
            timestamp = record.get("at", record.get("time"))
            moment = (
                datetime.fromisoformat(timestamp).timestamp() if isinstance(timestamp, str) else float(timestamp or 0)
            )
            if "opening" in record:
                mind = record["mind"] if isinstance(record.get("mind"), str) else ""
                agent = str(record.get("agent") or agent)
            if "reserved" in record:
                models[str(record["request"])] = str(record.get("model") or "")
            is_turn = record.get("role") == "assistant" or record.get("kind") == "turn"
            if is_turn or "answered" in record or "reserved" in record:
                usage = usage_of(record)
                request = str(record.get("answered") or record.get("request") or "")
                agent_name = str(record.get("agent") or agent)
                slot = slots[int(moment // SLOT_S), agent_name, models.get(request) or mind or "by rule"]
                slot.add(_token_use(usage, turns=int(is_turn)))
                if request in usage_by_request:
                    previous_slot, previous_usage = usage_by_request[request]
                    previous_slot.add(_token_use(previous_usage, sign=-1))
                if request:
                    usage_by_request[request] = slot, usage
    return {key: slot for key, slot in slots.items() if slot != TokenUse()}
