"""Claiming tasks: claims by queue length and number of processes, and a whole empty task.

Run as `python -m benchmarks.claims [--quick]`. Floors and rivals are measured in the same run, on the same file system,
each case in a fresh folder (creating files is ten times slower where thousands were just unlinked). huey is measured
too if it is installed; it is not a dependency.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.hives import placed
from benchmarks.processes import at_once
from benchmarks.table import Row, show
from hivemind.coordination import Journal
from hivemind.layout import Layout
from hivemind.tasks import Tasks

__all__ = ["run"]

Claim = Callable[[], object]
Claimant = Callable[[Path, int], Claim]
TEXT = b"# Look at the pump\n\nIs it number %d that drips, and since when?\n"


def _hive(root: Path, count: int) -> Path:
    layout = Layout.at(root)
    for folder in layout.folders():
        folder.mkdir(parents=True)
    for number in range(count):
        file = os.open(f"{layout.inbox}/t{number}.md", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(file, TEXT % number)
        os.close(file)
    return layout.root


def _take(durable: bool) -> Claimant:
    def open_one(root: Path, number: int) -> Claim:
        drops, agent = Tasks(Layout.at(placed(root, durable=durable))).recovery.drops, f"agent-{number}"

        def take() -> object:
            if (task := drops.take(agent)) is not None:
                drops.sync(agent)
            return task

        return take

    return open_one


def _rename(durable: bool) -> Claimant:
    """The floor: one listing for each process, a rename and a read for each claim; no order, no check, no record."""

    def open_one(root: Path, number: int) -> Claim:
        layout = Layout.at(root)
        folder = layout.claimed / str(number)
        folder.mkdir(parents=True)
        handle = os.open(folder, os.O_RDONLY)
        names = iter(os.listdir(layout.inbox))

        def claim() -> bytes | None:
            for name in names:
                try:
                    os.rename(f"{layout.inbox}/{name}", f"{folder}/{name}")
                except FileNotFoundError:
                    continue
                if durable:
                    os.fsync(handle)
                return Path(f"{folder}/{name}").read_bytes()
            return None

        return claim

    return open_one


def _sqlite_rows(root: Path, count: int) -> Path:
    root.mkdir()
    # Closed before anyone forks, which leaving the block does not: in a child SQLite would take our locks for its own.
    with closing(sqlite3.connect(root / "queue.db")) as db, db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE task (id INTEGER PRIMARY KEY, priority INT, text BLOB, owner TEXT)")
        db.execute("CREATE INDEX waiting ON task (priority, id) WHERE owner IS NULL")
        db.executemany("INSERT INTO task (priority, text) VALUES (3, ?)", ((TEXT % number,) for number in range(count)))
    return root


def _sqlite(durable: bool) -> Claimant:
    def open_one(root: Path, number: int) -> Claim:
        db = sqlite3.connect(root / "queue.db", isolation_level=None, timeout=60)
        db.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        claim_query = (
            "UPDATE task SET owner = ? WHERE id = (SELECT id FROM task WHERE owner IS NULL "
            "ORDER BY priority, id LIMIT 1) RETURNING text"
        )
        return lambda: db.execute(claim_query, (str(number),)).fetchone()

    return open_one


def _huey_rows(root: Path, count: int) -> Path:
    from huey.storage import SqliteStorage

    root.mkdir()
    store = SqliteStorage(name="q", filename=str(root / "huey.db"), timeout=120)
    for number in range(count):
        store.enqueue(TEXT % number)
    store.close()
    return root


def _huey(root: Path, number: int) -> Claim:
    from huey.storage import SqliteStorage

    return SqliteStorage(name="q", filename=str(root / "huey.db"), timeout=120).dequeue


def _race(root: Path, claimant: Claimant, processes: int, tasks: int) -> tuple[float, float]:
    """(claims a second of all processes together, the smallest share as a part of the fair one)."""

    def prepared(number: int) -> Callable[[], tuple[int, float, float]]:
        claim = claimant(root, number)
        return lambda: _emptied(claim)

    counts_and_times = at_once(prepared, processes)
    counts = [count for count, _, _ in counts_and_times]
    assert sum(counts) == tasks, f"{sum(counts)} claims of {tasks} tasks"
    seconds = max(end for _, _, end in counts_and_times) - min(began for _, began, _ in counts_and_times)
    return tasks / seconds, min(counts) * processes / tasks


def _emptied(claim: Claim) -> tuple[int, float, float]:
    """(how many, from when, until when)."""
    began, count = time.perf_counter(), 0
    while claim() is not None:
        count += 1
    return count, began, time.perf_counter()


def _claims(root: Path, count: int, durable: bool, rounds: int) -> list[Row]:
    rivals: dict[str, tuple[Callable[[Path, int], Path], Claimant]] = {
        "claim": (_hive, _take(durable)),
        "rename and read": (_hive, _rename(durable)),
        "SQLite": (_sqlite_rows, _sqlite(durable)),
    }
    if importlib.util.find_spec("huey"):
        rivals["huey"] = (_huey_rows, _huey)
    kind = "durable" if durable else "relaxed"
    rows = []
    for processes in (1, 4, 8):
        best = dict.fromkeys(rivals, (0.0, 0.0))
        for at in range(rounds):  # interleaved: another program's load falls on all alike
            for name, (make, claimant) in rivals.items():
                folder = make(root / f"{kind}-{name}-{processes}-{at}", count)
                best[name] = max(best[name], _race(folder, claimant, processes, count))
        rate, share = best.pop("claim")
        for name, (value, _) in best.items():
            ahead = durable and processes >= 4 and name in ("SQLite", "huey")
            target = value if ahead else 20_000 if not durable and name == "rename and read" else None
            rows.append(Row(f"claim, {kind}, by {processes}", rate, "claims/s", name, value, "more", target=target))
        if processes > 1:
            name = f"smallest share, {kind}, by {processes}"
            target = 0.7 if not durable and processes == 8 else None
            rows.append(Row(name, share, "of a fair one", better="more", target=target))
    return rows


def _backlog_rows(root: Path, sizes: tuple[int, ...]) -> list[Row]:
    """The cost of one claim once the board is made, and of making it, by how many tasks wait."""
    rows: list[Row] = []
    for size in sizes:
        tasks = Tasks(Layout.at(placed(_hive(root / f"waiting-{size}", size))))
        began = time.perf_counter()
        tasks.recovery.drops.take("a")
        first_look_s = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(400):
            tasks.recovery.drops.take("a")
        claim_us = (time.perf_counter() - began) / 400 * 1e6
        base = rows[0].value if rows else None
        rows.append(Row(f"one claim, {size:,} waiting", claim_us, "µs", f"{sizes[0]:,} waiting", base))
        rows.append(Row(f"first look, {size:,} waiting", first_look_s / size * 1e6, "µs a file"))
    return rows


def _empty_task_row(root: Path, count: int) -> Row:
    """A whole empty task: claim, log, journal, result, done/; durable; one process."""
    layout = Layout.at(_hive(root / "whole", count))
    tasks = Tasks(layout)
    journal = Journal(layout.journal)
    began = time.perf_counter()
    while (task := tasks.claim("a")) is not None:
        tasks.active.log(task, {"event": "started"})
        journal.append("task.claimed", task=task.id)
        tasks.finish(task, "nothing to do")
        journal.append("task.done", task=task.id)
    rate = count / (time.perf_counter() - began)
    return Row("whole empty task, durable", rate, "tasks/s", better="more", target=300)


def run(quick: bool = False) -> list[Row]:
    """The rows; about four minutes, with `quick` some seconds."""
    root = Path(tempfile.mkdtemp(prefix="hivemind-claims-"))
    try:
        # Relaxed, 2,000 are claimed in a tenth of a second: a few slices of the scheduler, too few to compare shares.
        count, rounds = (1_000, 1) if quick else (20_000, 2)
        rows = _claims(root, count, durable=False, rounds=rounds)
        rows += _claims(root, count // 10, durable=True, rounds=rounds)
        rows += _backlog_rows(root, (1_000,) if quick else (1_000, 10_000, 100_000))
        return [*rows, _empty_task_row(root, 10 if quick else 1_000)]
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    show("Claiming tasks", run(quick="--quick" in sys.argv))
