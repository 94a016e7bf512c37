"""The warm parent of the agents, with real processes: what is forked from it has what it knew, and nothing it held."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from hivemind.coordination import Journal
from hivemind.fs import set_durability
from hivemind.fs.sockets import wait_for_input
from hivemind.swarm.fork_server import ForkServer

LIMIT_S = 120  # of a machine that has other things to do
LONG = "a" * 2_000
MANY = 80  # more than sockets hold of orders with so long a name (their 208 KiB take some 50), and of reports


def until(fork_server: ForkServer, condition) -> list[dict]:
    """Reports, until they satisfy `condition`."""
    found: list[dict] = []
    end = time.monotonic() + LIMIT_S
    while not condition(found):
        assert time.monotonic() < end, f"only {len(found)} reports: {found[-3:]}"
        wait_for_input([fork_server.socket], 1)
        heard = fork_server.reports()
        assert heard is not None, "the fork server is gone"
        found += heard
    return found


@pytest.fixture
def alarm():
    """What blocks for ever ends the test."""

    def ring(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def counted(word: str, number: int):
    return lambda reports: sum(word in report for report in reports) >= number


def test_more_orders_than_a_socket_holds_block_nobody(alarm):
    fork_server = ForkServer(lambda: None, lambda name, lifeline: 3)
    try:
        for number in range(MANY):
            fork_server.start([f"{LONG}{number}"])
        reports = until(fork_server, counted("exited", MANY))
    finally:
        fork_server.close()
    assert {report["started"][len(LONG) :] for report in reports if "started" in report} == set(map(str, range(MANY)))
    assert {report["status"] for report in reports if "exited" in report} == {3}


def test_a_child_ends_when_its_fork_server_is_gone(tmp_path: Path):
    def wait_for_the_end(name: str, lifeline: int) -> int:
        (tmp_path / f"{name}.up").touch()
        wait_for_input([lifeline], LIMIT_S)
        (tmp_path / f"{name}.ended").touch()
        return 0

    fork_server = ForkServer(lambda: None, wait_for_the_end)
    fork_server.start(["a", "b"])
    until(fork_server, lambda reports: (tmp_path / "a.up").exists() and (tmp_path / "b.up").exists())
    os.kill(fork_server.pid, signal.SIGKILL)
    end = time.monotonic() + LIMIT_S
    while not ((tmp_path / "a.ended").exists() and (tmp_path / "b.ended").exists()):
        assert time.monotonic() < end
        time.sleep(0.01)
    fork_server.close()


@pytest.mark.parametrize("durable", [True, False])
def test_a_child_has_the_journal_that_its_parent_read_and_takes_turns_with_its_siblings(tmp_path: Path, durable: bool):
    set_durability(tmp_path, durable=durable)
    other = Journal(tmp_path)
    for number in range(500):
        other.append("x", number=number)
    shared = Journal(tmp_path)

    def warm() -> None:
        (tmp_path / "warm").write_text(str(shared.seq))

    def append(name: str, lifeline: int) -> int:
        for _ in range(20):
            shared.append("x", agent=name)
        return 0

    fork_server = ForkServer(warm, append)
    try:
        fork_server.start([f"a{number}" for number in range(5)])
        reports = until(fork_server, counted("exited", 5))
    finally:
        fork_server.close()
    assert {report["status"] for report in reports if "exited" in report} == {0}
    assert (tmp_path / "warm").read_text() == "500"
    assert other.seq == 600
    assert [event.seq for event in other.read()] == list(range(1, 601))


def test_who_is_started_later_is_forked_from_a_parent_that_has_read_on(tmp_path: Path):
    journal = Journal(tmp_path / "journal")
    shared = Journal(tmp_path / "journal")
    seen = tmp_path / "seen"

    def warm() -> None:
        seen.write_text(str(shared.seq))

    fork_server = ForkServer(warm, lambda name, lifeline: 0)
    try:
        until(fork_server, counted("ready", 1))
        assert seen.read_text() == "0"
        journal.append("x")
        end = time.monotonic() + LIMIT_S
        while seen.read_text() != "1":  # the parent stays warm for a second, and looks again after it
            assert time.monotonic() < end
            fork_server.start(["a"])
            until(fork_server, counted("exited", 1))
    finally:
        fork_server.close()


def test_a_journal_reads_a_restored_log_anew(tmp_path: Path):
    journal = Journal(tmp_path)
    journal.append("agent.started", agent_id="ada", incarnation=1)
    (log,) = tmp_path.glob("*.jsonl")
    restored = tmp_path / "restored"
    restored.write_bytes(log.read_bytes().replace(b"ada", b"bob"))
    restored.replace(log)
    assert journal.view(lambda state: sorted(state.agents)) == ["bob"]


def test_a_fork_that_fails_is_reported_and_ends_nobody(alarm):
    fork, refusals = os.fork, iter([True, False])

    def warm() -> (
        None
    ):  # runs in the fork server alone: root is not held to a limit of processes, so the refusal is made here
        os.fork = lambda: refuse() if next(refusals, False) else fork()

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    fork_server = ForkServer(warm, lambda name, lifeline: 3)
    try:
        fork_server.start(["ada", "bob"])
        reports = until(fork_server, counted("exited", 1))
        fork_server.start(["ada"])
        reports += until(fork_server, counted("exited", 1))
    finally:
        fork_server.close()
    assert [report["unborn"] for report in reports if "unborn" in report] == ["ada"]
    assert {report["exited"] for report in reports if "exited" in report} == {"ada", "bob"}


def test_a_warm_up_that_fails_does_not_end_the_fork_server(alarm):
    def warm() -> None:
        raise ModuleNotFoundError("No module named 'pydantic_ai'")

    fork_server = ForkServer(warm, lambda name, lifeline: 3)
    try:
        fork_server.start(["ada"])
        reports = until(fork_server, counted("exited", 1))
    finally:
        fork_server.close()
    assert [report["exited"] for report in reports if "exited" in report] == ["ada"]
