"""`describe_damage` checks a database file without changing it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

from hivemind.fs.database import describe_damage

DIES_WITHIN_A_TRANSACTION = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("CREATE TABLE notes(text)")
database.execute("INSERT INTO notes VALUES ('before')")
database.execute("PRAGMA cache_size = 1")
database.execute("BEGIN")
database.executemany("INSERT INTO notes VALUES (?)", [("within" * 1000,)] * 100)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_database_whose_maker_died_within_a_transaction_is_sound_and_stays_as_it_is(tmp_path):
    path = tmp_path / "notes.db"
    died = subprocess.run([sys.executable, "-c", DIES_WITHIN_A_TRANSACTION, os.fspath(path)], check=False)
    assert died.returncode == -signal.SIGKILL
    assert (tmp_path / "notes.db-journal").stat().st_size
    before = path.read_bytes()
    assert describe_damage(path) is None
    assert path.read_bytes() == before
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT text FROM notes").fetchall() == [("before",)]


def test_a_damaged_database_is_told_of_also_beside_an_interrupted_transaction(tmp_path):
    path = tmp_path / "notes.db"
    subprocess.run([sys.executable, "-c", DIES_WITHIN_A_TRANSACTION, os.fspath(path)], check=False)
    with open(path, "r+b") as file:
        file.write(b"\0" * 100)
    assert describe_damage(path) is not None
