from __future__ import annotations

import gc
import os
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from hivemind.errors import UserError
from hivemind.fs import Doorbell, ring, socket_paths
from hivemind.fs.doorbell import Ringer

from .children import start_child

_WAIT = """
import sys
from pathlib import Path
from hivemind.fs import Doorbell
bell = Doorbell(Path(sys.argv[1]), "bob")
print("ready", flush=True)
print(bell.wait(30), flush=True)
"""


def test_a_ring_wakes_another_process(tmp_path: Path) -> None:
    child = start_child(_WAIT, tmp_path)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    assert ring(tmp_path, "bob")
    assert child.communicate()[0] == "True\n"


def test_rings_before_the_wait_are_heard_once(tmp_path: Path) -> None:
    with Doorbell(tmp_path, "bob") as bell:
        assert ring(tmp_path, "bob")
        assert ring(tmp_path, "BOB")
        assert bell.wait(None)
        assert not bell.wait(0)


def test_a_bell_that_nobody_answers_is_rung_without_blocking(tmp_path: Path) -> None:
    with Doorbell(tmp_path, "bob") as bell:
        assert all(ring(tmp_path, "bob") for _ in range(1000))  # far more than the socket has room for
        assert bell.wait(0)


def test_nobody_hears_a_bell_that_is_not_there(tmp_path: Path) -> None:
    assert not ring(tmp_path, "bob")
    Doorbell(tmp_path, "bob").close()
    assert not ring(tmp_path, "bob")
    assert os.listdir(tmp_path) == []


def test_a_killed_holder_leaves_a_socket_that_the_next_one_replaces(tmp_path: Path) -> None:
    child = start_child(_WAIT, tmp_path)
    assert child.stdout is not None
    child.stdout.readline()
    child.kill()
    child.communicate()
    assert not ring(tmp_path, "bob")
    with Doorbell(tmp_path, "bob") as bell:
        assert ring(tmp_path, "bob")
        assert bell.wait(1)


@pytest.mark.parametrize("owner", [Doorbell, Ringer])
def test_an_unclosed_socket_in_a_cycle_of_references_ends_without_a_warning(owner, tmp_path: Path) -> None:
    """The collector may end the socket before its owner."""
    arguments = (tmp_path, "bob")[: owner.__init__.__code__.co_argcount - 1]
    cycle = [owner(*arguments)]
    cycle.append(cycle)
    held = cycle[0]._socket
    gc.collect()  # what only the list holds comes after the socket in the collector's order from here on
    descriptor = held.fileno()
    del held, cycle
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_closing_leaves_the_bell_of_a_successor_alone(tmp_path: Path) -> None:
    first = Doorbell(tmp_path, "bob")
    second = Doorbell(tmp_path, "bob")
    first.close()
    assert ring(tmp_path, "bob")
    assert second.wait(1)
    second.close()


def test_a_bell_that_was_cleared_away_hangs_again_after_the_next_wait(tmp_path: Path) -> None:
    with Doorbell(tmp_path, "bob") as bell:
        os.unlink(bell.path)
        assert not bell.wait(0)
        assert ring(tmp_path, "bob")
        assert bell.wait(1)


def test_a_hive_with_a_long_path_hangs_its_bells_in_the_temporary_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / "doorbells"
    with Doorbell(folder, "a" * 64) as bell:
        assert len(os.fsencode(bell.path)) < 104
        assert ring(folder, "a" * 64)
        assert bell.wait(1)
    os.rmdir(bell.path.parent)


def test_a_temporary_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    spare = Path(socket_paths(os.fspath(folder), "bob")[-1]).parent
    spare.mkdir()
    spare.chmod(0o777)
    with pytest.raises(UserError, match="someone else"):
        Doorbell(folder, "bob")
    spare.rmdir()


def test_a_bell_that_cannot_be_made_says_where() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a longer path would have its bell elsewhere
        file = Path(folder, "file")
        file.write_text("")
        with pytest.raises(UserError, match="cannot create a doorbell"):
            Doorbell(file, "bob")


def test_wait_returns_when_a_ring_comes_later(tmp_path: Path) -> None:
    with Doorbell(tmp_path, "bob") as bell:
        waiting = threading.Event()
        heard: list[bool] = []

        def wait() -> None:
            waiting.set()
            heard.append(bell.wait(20))

        thread = threading.Thread(target=wait)
        thread.start()
        waiting.wait()
        assert ring(tmp_path, "bob")
        thread.join()
        assert heard == [True]


def test_a_bell_is_no_place_for_a_stream(tmp_path: Path) -> None:
    with Doorbell(tmp_path, "bob") as bell, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        with pytest.raises(OSError, match="wrong type"):
            stream.connect(os.fspath(bell.path))
        assert bell.fileno() > 2
