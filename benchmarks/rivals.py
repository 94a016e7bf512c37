"""Rivals, each in its ordinary form: leases in a SQLite table and by Redis' SET NX, huey's and Celery's tasks."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock

from benchmarks.processes import until

__all__ = ["celery_tasks", "huey_tasks", "redis_server", "redis_set_nx", "sqlite_table"]

Pair = Callable[[], None]


def sqlite_table(durable: bool) -> Callable[[str, int], Pair]:
    """A lease as a row: claimed if there is none or the last expired, then deleted; two transactions in WAL mode."""

    def open_pair(folder: str, number: int) -> Pair:
        base = sqlite3.connect(f"{folder}/leases.db", timeout=60, isolation_level=None)
        base.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        with FileLock(f"{folder}/made.lock"):  # a change of the mode fails at once where another process is at it
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("CREATE TABLE IF NOT EXISTS leases (step TEXT PRIMARY KEY, holder TEXT, expires REAL)")
        step, holder = f"t.s{number}", f"agent-{number}"
        claim = (
            "INSERT INTO leases VALUES (?, ?, ?) ON CONFLICT (step) DO UPDATE SET holder = excluded.holder,"
            " expires = excluded.expires WHERE expires < ?"
        )

        def pair() -> None:
            now = time.time()
            base.execute(claim, (step, holder, now + 60, now))
            base.execute("DELETE FROM leases WHERE step = ? AND holder = ?", (step, holder))

        return pair

    return open_pair


def redis_set_nx(path: str) -> Callable[[str, int], Pair]:
    """`SET step holder NX PX 60000`, then `DEL`, over a separate connection to the server's Unix socket."""

    def open_pair(folder: str, number: int) -> Pair:
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        step, holder = f"t.s{number}".encode(), f"agent-{number}".encode()
        claim, release = _command(b"SET", step, holder, b"NX", b"PX", b"60000"), _command(b"DEL", step)

        def pair() -> None:
            for command in (claim, release):
                server.sendall(command)
                server.recv(64)

        return pair

    return open_pair


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


@contextlib.contextmanager
def redis_server(*, durable: bool) -> Iterator[str | None]:
    """Start a Redis server on a Unix socket; yield the socket's path, or None if Redis is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis.sock"
        log = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
        server = subprocess.Popen(
            [program, "--port", "0", "--unixsocket", path, "--dir", folder, "--save", "", *log],
            stdout=subprocess.DEVNULL,
        )
        try:
            until(lambda: _listens(path))
            yield path
        finally:
            server.terminate()
            server.wait()


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


_HUEY = """
import functools, subprocess
from huey import SqliteHuey
queue = SqliteHuey(filename={path!r}, fsync={durable})

@queue.task()
def work():
    return subprocess.run(["true"], capture_output=True, check=True).returncode

def begin():
    return functools.partial(work().get, blocking=True, timeout=60)
"""
_CELERY = """
import functools, subprocess
from celery import Celery
queue = Celery(broker="redis+socket://{path}", backend="redis+socket://{path}")

@queue.task
def work():
    return subprocess.run(["true"], capture_output=True, check=True).returncode

def begin():
    return functools.partial(work.delay().get, timeout=60)
"""


def huey_tasks(number: int, workers: int, durable: bool) -> float | None:
    """Commands a second that huey's consumer runs, its queue and its results in SQLite; None where huey is not installed."""
    if importlib.util.find_spec("huey") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        words = ("huey.bin.huey_consumer", "{}.queue", "-w", f"{workers}", "-k", "process")
        return _worked_off(number, _HUEY.format(path=f"{folder}/huey.db", durable=durable), words)


def celery_tasks(number: int, workers: int, durable: bool) -> float | None:
    """The same of Celery's worker, queue and results in Redis; None where Celery or Redis is not installed."""
    if importlib.util.find_spec("celery") is None:
        return None
    with redis_server(durable=durable) as path:
        words = ("celery", "-A", "{}.queue", "worker", "-c", f"{workers}", "-l", "error")
        return None if path is None else _worked_off(number, _CELERY.format(path=path), words)


def _worked_off(number: int, program: str, words: Sequence[str]) -> float:
    """Tasks a second, from the first that is given to the last result, once its worker has done one."""
    with tempfile.TemporaryDirectory() as folder:
        module = f"work_{time.time_ns()}"  # it is imported here and by the worker: tasks have its name
        Path(folder, f"{module}.py").write_text(program)
        worker = subprocess.Popen(
            [sys.executable, "-m", *(word.format(module) for word in words)], cwd=folder,
            env={**os.environ, "PYTHONPATH": folder + _paths()}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        sys.path.insert(0, folder)
        try:
            begin = importlib.import_module(module).begin
            begin()()
            began = time.perf_counter()
            for result in [begin() for _ in range(number)]:
                result()
            return number / (time.perf_counter() - began)
        finally:
            sys.path.remove(folder)
            worker.terminate()
            worker.wait()


def _paths() -> str:
    return f"{os.pathsep}{search_path}" if (search_path := os.environ.get("PYTHONPATH")) else ""
