"""Leases and the journal: claim + release, the longest wait, appends in a short and a long log, opening, resuming.

Run as `python -m benchmarks.leases [--quick]`. Floors (raw flock, append + fdatasync) and rivals (filelock, a SQLite
table, Redis where its server is installed) are measured in the same run on the same file system.
"""

from __future__ import annotations

import fcntl
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

from filelock import FileLock

from benchmarks.hives import placed
from benchmarks.processes import at_once
from benchmarks.rivals import redis_server, redis_set_nx, sqlite_table
from benchmarks.table import Row, show
from hivemind.coordination import Journal, StepLeases, Steps
from hivemind.coordination.journal import SEGMENT_BYTES, encode_line
from hivemind.fs import Log
from hivemind.layout import Layout
from hivemind.reasoning import TaskGraph
from hivemind.views import resume

__all__ = ["run"]

Pair = Callable[[], None]
Opener = Callable[[str, int], Pair]
_ROUNDS = 3
_KINDS = ("evidence", "hypothesis", "question", "test", "decision", "note")


def _leases(durable: bool) -> Opener:
    def open_pair(folder: str, number: int) -> Pair:
        leases = StepLeases(Journal(placed(folder, durable=durable)))
        step, agent = f"t.s{number}", f"agent-{number}"

        def pair() -> None:
            leases.claim(step, agent, ttl_seq=10_000)
            leases.release(step, agent)

        return pair

    return open_pair


def _flock(folder: str, number: int) -> Pair:
    file = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT)

    def pair() -> None:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_UN)

    return pair


def _filelock(folder: str, number: int) -> Pair:
    lock = FileLock(f"{folder}/lock")

    def pair() -> None:
        lock.acquire()
        lock.release()

    return pair


def _journal_append(durable: bool) -> Opener:
    def open_pair(folder: str, number: int) -> Pair:
        journal = Journal(placed(folder, durable=durable))

        def append() -> None:
            journal.append("agent.heartbeat", agent_id=f"agent-{number}")

        return append

    return open_pair


def _bare_append(durable: bool) -> Opener:
    """One line at the end of a file, flushed if durable: what an append cannot be faster than with one process."""

    def open_pair(folder: str, number: int) -> Pair:
        file = os.open(f"{folder}/log-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        line = b"x" * 60 + b"\n"

        def append() -> None:
            os.write(file, line)
            if durable:
                os.fdatasync(file)

        return append

    return open_pair


def _appends(folder: str, number: int) -> Pair:
    """Two appends, each flushed: the lower bound of a durable claim and release with one process."""
    file = os.open(f"{folder}/log-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    line = b"x" * 90 + b"\n"

    def pair() -> None:
        for _ in range(2):
            os.write(file, line)
            os.fdatasync(file)

    return pair


def _race(opener: Opener, processes: int, seconds: float) -> tuple[float, float]:
    """(pairs a second of all together, the longest that any pair took in ms)."""
    with tempfile.TemporaryDirectory() as root:
        folder = f"{root}/journal"
        os.makedirs(folder)

        def prepared(number: int) -> Callable[[], tuple[int, float]]:
            pair = opener(folder, number)
            pair()
            return lambda: _repeated(pair, seconds)

        counts = at_once(prepared, processes)
    return sum(done for done, _ in counts) / seconds, max(longest for _, longest in counts) * 1000


def _repeated(pair: Pair, seconds: float) -> tuple[int, float]:
    """(how many in so many seconds, the longest that one took in seconds)."""
    done, longest, now = 0, 0.0, time.perf_counter()
    end = now + seconds
    while now < end:
        pair()
        before, now = now, time.perf_counter()
        longest = max(longest, now - before)
        done += 1
    return done, longest


def _races(openers: Mapping[str, Opener], processes: int, seconds: float) -> dict[str, tuple[float, float]]:
    """The races of all, interleaved: by name (pairs a second, the longest that any took in ms)."""
    races_by_name = {name: [_race(opener, processes, seconds / _ROUNDS)] for name, opener in openers.items()}
    for _ in range(_ROUNDS - 1):
        for name, opener in openers.items():
            races_by_name[name].append(_race(opener, processes, seconds / _ROUNDS))
    return {
        name: (statistics.fmean(rate for rate, _ in races), max(longest for _, longest in races))
        for name, races in races_by_name.items()
    }


def _lease_rows(seconds: float) -> Iterator[Row]:
    """Compare leases with other ways to take them, with and without flushing to the disk, and with the floor."""
    for durable, durability in ((False, "relaxed"), (True, "durable")):
        floors = {"2 × append + fdatasync": _appends} if durable else {"filelock": _filelock, "raw flock": _flock}
        with redis_server(durable=durable) as path:
            redis = {} if path is None else {"Redis SET NX": redis_set_nx(path)}
            openers = {"": _leases(durable), "SQLite table": sqlite_table(durable), **redis, **floors}
            for processes in (1, 4):
                raced = _races(openers, processes, seconds)
                lease_rate, longest = raced.pop("")
                table = raced["SQLite table"][0] if processes == 4 else None
                for rival, (rate, _) in raced.items():
                    target = None if rival != "SQLite table" else table if durable else 25_000
                    row_name = f"claim + release, {durability}, by {processes}"
                    yield Row(row_name, lease_rate, "1/s", rival, rate, "more", target=target)
                if path is None:
                    yield Row(row_name, lease_rate, "1/s", "Redis SET NX: not installed", None, "more")
                if not durable:
                    wait = raced["raw flock"][1]
                    yield Row(f"longest wait, by {processes}", longest, "ms", "raw flock", wait, target=25)


def _append_rows(seconds: float) -> list[Row]:
    rows = []
    for durable, durability in ((False, "relaxed"), (True, "durable")):
        for processes in (1, 4):
            openers = {"": _journal_append(durable), "bare append, a file each": _bare_append(durable)}
            (_, (append_rate, _)), (name, (bare, _)) = _races(openers, processes, seconds).items()
            rows.append(Row(f"journal appends, {durability}, by {processes}", append_rate, "1/s", name, bare, "more"))
    return rows


def _long_log(folder: Path, events: int) -> None:
    """A log of that many events as agents would leave it, written without folding it."""
    journal = Journal(placed(folder))
    journal.append("agent.started", agent_id="agent-0", incarnation=1)
    log = Log(journal.path, "journal", 2, numbered=True, shared=True, segment_bytes=SEGMENT_BYTES)
    log.read()
    while (seq := log.seq) < events:
        task, agent = f"task-{seq // 40}", f"agent-{seq % 8}"
        step = f"{task}.s{seq % 40 // 8 + 1}"
        kinds = (
            ("step.added", {"task_id": task, "step_id": step, "position": 1, "title": "find it out", "proof": "off"}),
            ("lease.claimed", {"step_id": step, "agent_id": agent, "ttl_seq": 200}),
            ("step.noted", {"step_id": step, "task_id": task, "agent_id": agent, "text": "looked at the first source"}),
            ("lease.renewed", {"step_id": step, "agent_id": agent, "ttl_seq": 200}),
            ("agent.heartbeat", {"agent_id": agent}),
            ("step.verified", {"step_id": step, "task_id": task, "checkpoints": ["criteria", "tests"]}),
            ("agent.heartbeat", {"agent_id": agent}),
            ("step.done", {"step_id": step, "task_id": task, "agent_id": agent}),
        )
        if seq % 40 == 39:
            kinds = (("task.done", {"task_id": task, "agent_id": agent}),) * 8
        with log.locked():
            log.append_line(encode_line(seq, [kinds[seq % 8]])[0], 1)


def _timed(action: Callable[[], object], times: int) -> float:
    """Median of that many runs, ms."""
    durations = []
    for _ in range(times):
        begin = time.perf_counter()
        action()
        durations.append(time.perf_counter() - begin)
    return statistics.median(durations) * 1000


def _journal_rows(events: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as root:
        short = Journal(placed(f"{root}/short"))
        short.append("x")
        quick = _timed(lambda: short.append("agent.heartbeat", agent_id="a"), 3000)
        folder = Path(root, "long")
        _long_log(folder, events)
        begin = time.perf_counter()
        long = Journal(placed(folder))
        long.append("x")
        replay_ms = (time.perf_counter() - begin) * 1000
        long.snapshot()
        opening = _timed(lambda: Journal(placed(folder)).seq, 3)
        name = f"open {events:,} events from a snapshot"
        rows.append(Row(name, opening, "ms", "from the log alone", replay_ms, target=1_000))
        slow = _timed(lambda: long.append("agent.heartbeat", agent_id="a"), 3000)
        rows.append(Row(f"append after {events:,} events", slow, "ms", "after 1 event", quick))
        late = _timed(lambda: long.read(long.seq - 20), 50)
        rows.append(Row(f"read the last 20 of {events:,} events", late, "ms"))
    return rows


def _resume_rows(cards: int, times: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as root:
        layout = Layout.at(root)
        (layout.active / "t").mkdir(parents=True)
        journal = Journal(placed(layout.root) / ".hive/journal")
        hive = SimpleNamespace(layout=layout, config=SimpleNamespace(workspace="w"), journal=journal, agents={})
        Steps(journal).plan("t", [{"title": "one"}, {"title": "two"}])
        graph = TaskGraph(layout.active / "t")
        with graph.change("ada") as task_graph:
            top = task_graph.add_node("task", "find it out")
            for at in range(cards):
                step, lane = "t.s1" if at % 7 == 0 else None, "agent/ada" if at % 2 else "shared"
                status = "open" if at % 5 == 0 else "closed"
                node = task_graph.add_node(_KINDS[at % 6], f"card {at} says so", step=step, lane=lane, status=status)
                task_graph.add_edge(top.node_id, node.node_id)
                if at > 5 and at % 3 == 0:
                    task_graph.add_link(node.node_id, node.node_id - 4, "supports")
        baseline_ms = _timed(lambda: resume(hive, "ada", task="none", context_budget=6000), times)
        cold = _timed(lambda: resume(hive, "ada", task="t", context_budget=6000), max(1, times // 3))
    return [Row(f"resume over {cards:,} cards, graph read anew", cold, "ms", "over none", baseline_ms)]


def run(quick: bool = False) -> list[Row]:
    """The rows; `quick` takes seconds and is for seeing that it runs."""
    if quick:
        return [*_lease_rows(0.1), *_append_rows(0.1), *_journal_rows(2_000), *_resume_rows(200, 1)]
    return [*_lease_rows(2.1), *_append_rows(2.1), *_journal_rows(1_000_000), *_resume_rows(10_000, 9)]


if __name__ == "__main__":
    show("Leases and the journal", run("--quick" in sys.argv))
