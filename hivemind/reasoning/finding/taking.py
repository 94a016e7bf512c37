"""Bringing the index up to date with what graphs say now: only what differs is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from hivemind.reasoning.finding.reading import Reading, Row
from hivemind.reasoning.finding.schema import NODES, span
from hivemind.reasoning.finding.sources import Source

__all__ = ["adopt", "drop", "move", "take"]


def take(sql: sqlite3.Connection, found: Reading) -> None:
    """Let the index say what was read; nothing where another process has meanwhile taken in more of the same file."""
    source = found.source
    row = sql.execute("SELECT id, inode, seq FROM graphs WHERE task = ?", (source.task,)).fetchone()
    if row is not None and row[1] == source.inode and row[2] > found.seq and not source.is_current():
        return
    (graph,) = sql.execute(
        "INSERT INTO graphs(task, place, inode, stamp, seq, nodes, problem) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(task) DO UPDATE SET place = excluded.place, inode = excluded.inode, stamp = excluded.stamp,"
        " seq = excluded.seq, nodes = excluded.nodes, problem = excluded.problem RETURNING id",
        (source.task, source.place, source.inode, source.stamp, found.seq, len(found.rows), found.problem),
    ).fetchone()
    before = {
        key % NODES: Row(*row)
        for key, *row in sql.execute(
            "SELECT key, kind, lane, state, title, text, tags FROM nodes WHERE key BETWEEN ? AND ?", span(graph)
        )
    }
    now = found.rows
    gone = [number for number in before if number not in now]
    reworded = [number for number, row in now.items() if number in before and before[number].said != row.said]
    added = [number for number in now if number not in before]
    moved = [number for number, row in now.items() if number in before and before[number] != row]
    _take_out(sql, graph, [*gone, *reworded])
    _write(sql, graph, ((number, now[number]) for number in [*added, *moved]))
    _put_in(sql, graph, [*added, *reworded])


def drop(sql: sqlite3.Connection, task: str) -> None:
    """Take a task that is gone out of the index."""
    (graph,) = sql.execute("SELECT id FROM graphs WHERE task = ?", (task,)).fetchone() or (None,)
    if graph is not None:
        numbers = [
            key % NODES for (key,) in sql.execute("SELECT key FROM nodes WHERE key BETWEEN ? AND ?", span(graph))
        ]
        _take_out(sql, graph, numbers)
        sql.execute("DELETE FROM graphs WHERE id = ?", (graph,))


def move(sql: sqlite3.Connection, source: Source) -> None:
    """Note that a task lies elsewhere; its graph is what it was."""
    sql.execute("UPDATE graphs SET place = ? WHERE task = ? AND stamp = ?", (source.place, source.task, source.stamp))


def adopt(sql: sqlite3.Connection, model: str) -> None:
    """Keep vectors of this model from now on: all nodes wait for one."""
    sql.execute("DELETE FROM vectors")
    sql.execute("INSERT OR REPLACE INTO waiting(key) SELECT key FROM nodes")
    sql.execute("UPDATE embedded SET model = ?", (model,))


def _take_out(sql: sqlite3.Connection, graph: int, numbers: Collection[int]) -> None:
    """Take nodes out of all tables; the full-text index is told what they said."""
    keys = [(graph * NODES + number,) for number in numbers]
    sql.executemany(
        "INSERT INTO words(words, rowid, title, text, tags) SELECT 'delete', key, title, text, tags FROM nodes WHERE key = ?",
        keys,
    )
    for table in ("nodes", "vectors", "waiting"):
        sql.executemany(f"DELETE FROM {table} WHERE key = ?", keys)  # noqa: S608 - constants of this program


def _write(sql: sqlite3.Connection, graph: int, rows: Iterable[tuple[int, Row]]) -> None:
    sql.executemany(
        "INSERT OR REPLACE INTO nodes(key, kind, lane, state, title, text, tags) VALUES (?, ?, ?, ?, ?, ?, ?)",
        ((graph * NODES + number, *row) for number, row in rows),
    )


def _put_in(sql: sqlite3.Connection, graph: int, numbers: Collection[int]) -> None:
    """Let nodes that stand in their table be found by their words, and wait for their vectors."""
    keys = [(graph * NODES + number,) for number in numbers]
    sql.executemany(
        "INSERT INTO words(rowid, title, text, tags) SELECT key, title, text, tags FROM nodes WHERE key = ?", keys
    )
    sql.executemany("INSERT INTO waiting(key) VALUES (?)", keys)
