"""What else people use, each in its ordinary form: leases in a SQLite table and by Redis' SET NX, huey's queue of tasks."""

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
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["huey_tasks", "redis_server", "redis_set_nx", "sqlite_table"]

Pair = Callable[[], None]
_START_S = 10.0


def sqlite_table(durable: bool) -> Callable[[str, int], Pair]:
    """A lease as a row: claimed where there is none or it has run out, then deleted; two transactions in WAL mode."""

    def opened(folder: str, number: int) -> Pair:
        base = sqlite3.connect(f"{folder}/leases.db", timeout=60, isolation_level=None)
        base.execute("PRAGMA journal_mode = WAL")
        base.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
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

    return opened


def redis_set_nx(path: str) -> Callable[[str, int], Pair]:
    """`SET step holder NX PX 60000`, then `DEL`, over a connection of its own to the server's Unix socket."""

    def opened(folder: str, number: int) -> Pair:
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        step, holder = f"t.s{number}".encode(), f"agent-{number}".encode()
        claim, release = _command(b"SET", step, holder, b"NX", b"PX", b"60000"), _command(b"DEL", step)

        def pair() -> None:
            for command in (claim, release):
                server.sendall(command)
                server.recv(64)

        return pair

    return opened


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


@contextlib.contextmanager
def redis_server(*, durable: bool) -> Iterator[str | None]:
    """A Redis server of our own on a Unix socket; gives the socket's path, or None where Redis is not installed."""
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
            _wait_for(path)
            yield path
        finally:
            server.terminate()
            server.wait()


def _wait_for(path: str) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
            return
        time.sleep(0.02)
    raise TimeoutError(f"no Redis server at {path} within {_START_S:g} s")


_HUEY = """
import subprocess
from huey import SqliteHuey
huey = SqliteHuey(filename={path!r}, fsync={durable})

@huey.task()
def work():
    return subprocess.run(["true"], capture_output=True, check=True).returncode
"""


def huey_tasks(number: int, workers: int, durable: bool) -> float | None:
    """Commands a second that huey's consumer runs, its queue and its results in SQLite; None where huey is not installed."""
    if importlib.util.find_spec("huey") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        module = f"huey_work_{time.time_ns()}"  # it is imported here and by the consumer: tasks have its name
        Path(folder, f"{module}.py").write_text(_HUEY.format(path=f"{folder}/huey.db", durable=durable))
        command = ["huey.bin.huey_consumer", f"{module}.huey", "-w", str(workers), "-k", "process"]
        consumer = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env={**os.environ, "PYTHONPATH": folder + _others()},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        sys.path.insert(0, folder)
        try:
            work = importlib.import_module(module).work
            work().get(blocking=True, timeout=_START_S)
            began = time.perf_counter()
            for result in [work() for _ in range(number)]:
                result.get(blocking=True, timeout=60)
            return number / (time.perf_counter() - began)
        finally:
            sys.path.remove(folder)
            consumer.terminate()
            consumer.wait()


def _others() -> str:
    return f"{os.pathsep}{given}" if (given := os.environ.get("PYTHONPATH")) else ""
