"""The swarm: how fast it starts, how much it holds, what it uses when idle, how many whole tasks it does.

Run as `python -m benchmarks.swarm [--quick]`. Real swarms in fresh hives: `hivemind up` as a person starts it, and for
the start of a warm parent the same supervisor without the command line around it. The baselines are what Python
offers for the same without us, measured in the same run.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.hives import new_hive, up
from benchmarks.processes import family, processor_s, share_mb, until
from benchmarks.rivals import celery_tasks, huey_tasks
from benchmarks.table import Row, show
from hivemind.embedding.local import is_installed
from hivemind.embedding.service import lock_of, users_folder
from hivemind.hive import Hive
from hivemind.layout import Layout
from hivemind.longterm.store import DIMENSION
from hivemind.presence.status import read_status

__all__ = ["run"]

_IMPORTS = "pydantic, watchdog.observers, tiktoken, yaml, filelock"
_KNOWLEDGE = """# Pumps

## Number seven
Pump number seven drips since the flood of March, because its gasket is worn out.
"""
_RUN = "---\nsteps: [{run: 'true'}]\n---\n# Nothing to do, number %d\n"
_ASK = "# Why does pump number seven drip? (%d)\n"


def _hive(agents: int, durability: str) -> Layout:
    """A new hive with so many agents of one kind."""
    return new_hive(f"replicas: {agents}\n", durability, _KNOWLEDGE)


class _Swarm:
    """A swarm that is up. `cold_s` is the time from the command, `warm_s` from the order, until all agents were idle."""

    def __init__(self, layout: Layout, pid: int, began: float) -> None:
        names = list(Hive.open(layout.root).agents)

        def rests(name: str) -> bool:
            status = read_status(layout.agent_state(name), name)
            self.agents[name] = status.pid or 0 if status is not None else 0
            return status is not None and status.rests and self.agents[name] in family(pid)

        self.agents: dict[str, int] = {}
        for name in names:  # one after the other: asking all at once would take a core from those who begin
            until(partial(rests, name))
        ready = max((layout.agent_state(name) / "status.json").stat().st_mtime for name in names)
        self.layout = layout
        self.pid = pid
        self.cold_s = ready - began
        order_file = layout.root / "ordered"
        self.warm_s = ready - float(order_file.read_text()) if order_file.exists() else None


@contextmanager
def _up(layout: Layout, *, warm: bool = False) -> Iterator[_Swarm]:
    """A running swarm: by the command, or with `warm` by this module, which notes when the agents were ordered."""
    began = time.time()
    with up(layout.root, *(("benchmarks.swarm", "--up", str(layout.root)) if warm else ())) as swarm:
        yield _Swarm(layout, swarm, began)


def _be_up(root: str) -> None:
    """Run a swarm with a warm parent; record the time of the order to start the agents."""
    from hivemind.swarm.swarm import run_swarm

    order_file = Path(root) / "ordered"
    order_file.unlink(missing_ok=True)

    def note() -> None:  # the first comes with the orders
        if not order_file.exists():
            order_file.write_text(repr(time.time()))

    run_swarm(lambda: Hive.open(root), on_tick=note)


# -- what Python offers


def _plain_start(number: int) -> float:
    """Seconds until so many interpreters have started and imported what any program of this kind needs."""
    began = time.perf_counter()
    command = [sys.executable, "-c", f"import {_IMPORTS}"]
    processes = [subprocess.Popen(command) for _ in range(number)]
    for process in processes:
        process.wait()
    return time.perf_counter() - began


_FORKSERVER = """
import multiprocessing, sys, time
def work(ready, end):
    ready.release()
    end.acquire()
if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(sys.argv[1].split(", "))
    ready, end = context.Semaphore(0), context.Semaphore(0)
    number = int(sys.argv[2])
    first = context.Process(target=work, args=(ready, end))
    first.start()
    ready.acquire()
    began = time.perf_counter()
    workers = [context.Process(target=work, args=(ready, end)) for _ in range(number)]
    for worker in workers:
        worker.start()
    for worker in workers:
        ready.acquire()
    print(time.perf_counter() - began, *(worker.pid for worker in workers), flush=True)
    input()
    for worker in [first, *workers]:
        end.release()
"""


def _forkserver(number: int) -> tuple[float, float]:
    """(seconds until so many processes of a warm forkserver are ready, MB of each)."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write(_FORKSERVER)
        program.flush()
        command = [sys.executable, program.name, _IMPORTS, str(number)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        seconds, *pids = process.stdout.readline().split()
        size = statistics.fmean(share_mb(int(pid)) for pid in pids)
        process.communicate("\n")
    return float(seconds), size


_POLLING = "import os, sys, time\nwhile True:\n    os.listdir(sys.argv[1])\n    time.sleep(0.05)\n"


def _polling(seconds: float) -> float:
    """Share of a core, in percent, that one process takes that looks into a folder every 50 ms."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([sys.executable, "-c", _POLLING, folder])
        time.sleep(1.0)
        before = processor_s([process.pid])
        time.sleep(seconds)
        processor_time = processor_s([process.pid]) - before
        process.kill()
        process.wait()
    return processor_time / seconds * 100


# -- start


def _starts(number: int, rounds: int) -> Iterator[Row]:
    layout = _hive(number, "full")
    with _up(layout) as first:
        first_s = first.cold_s
    cold, warm, plain, server = [], [], [], []
    for _ in range(rounds):  # interleaved: a machine that slows down slows all of them
        with _up(layout) as swarm:
            cold.append(swarm.cold_s)
        plain.append(_plain_start(number))
        with _up(layout, warm=True) as swarm:
            assert swarm.warm_s is not None
            warm.append(swarm.warm_s)
        server.append(_forkserver(number)[0])
    agents = f"{number} agent{'s' if number > 1 else ''}"
    warm_target, cold_target = {1: (None, 400.0), 100: (500.0, None)}.get(number, (None, None))
    middle = [statistics.median(times) * 1000 for times in (warm, server, cold, plain)]
    yield Row(f"{agents} ready, parent warm", middle[0], "ms", "forkserver, preloaded", middle[1], target=warm_target)
    yield Row(
        f"{agents} ready, from the command", middle[2], "ms", "python -c 'import …' each", middle[3], target=cold_target
    )
    yield Row(f"{agents} ready, first time in a new hive", first_s * 1000, "ms", "later times", middle[2])


# -- idling


def _idle(number: int, seconds: float) -> Iterator[Row]:
    _, floor = _forkserver(number)
    layout = _hive(number, "full")
    with _up(layout) as swarm:
        time.sleep(1.0)
        size = statistics.fmean(share_mb(pid) for pid in swarm.agents.values())
        target = 5.0 if number >= 100 else None
        yield Row(f"memory of each of {number} idle agents", size, "MB", "forkserver, preloaded", floor, target=target)
        if number >= 100:
            everyone = family(swarm.pid)
            before, began = processor_s(everyone), time.monotonic()
            time.sleep(seconds)
            share = (processor_s(everyone) - before) / (time.monotonic() - began) * 100
            polls = _polling(min(5.0, seconds)) * number
            note = "supervisor and fork server with them"
            name = f"processor time of {number} idle agents"
            yield Row(name, share, "% of a core", f"{number} polling each 50 ms", polls, note=note, target=1.0)
        for kind, task in (
            ("command", "steps: [{run: 'true'}]\n---\n# Nothing to do\n"),
            ("question more", f"---\n{_ASK % 0}"),
        ):
            _do(layout, [f"---\nassignee: {agent}\n{task}" for agent in swarm.agents])
            after = statistics.fmean(share_mb(pid) for pid in swarm.agents.values())
            yield Row(f"memory of each of {number} agents after one {kind}", after, "MB", "before", size)
            size = after


# -- remembering

_LONE = """
import sys
from hivemind.embedding import MiniLM
MiniLM().embed(["Why does pump number seven drip?"])
print(flush=True)
input()
"""


def _remembering(number: int, entries: int) -> Iterator[Row]:
    """Measure agents that have all searched a memory by meaning, MiniLM served by the user's embedding process."""
    if not is_installed():
        return
    layout = _hive(number, "relaxed")
    names = list(Hive.open(layout.root).agents)
    _remember(layout, entries)
    with _up(layout) as swarm:
        idle = statistics.fmean(share_mb(pid) for pid in swarm.agents.values())
        _do(layout, [f"---\nassignee: {name}\n---\n{_ASK % at}" for at, name in enumerate(names)])
        service = (lock_of(users_folder(), "minilm").holder() or {}).get("pid")
        assert isinstance(service, int), "nobody asked for a vector"
        mean = statistics.fmean(share_mb(pid) for pid in swarm.agents.values())
        total_mb = sum(share_mb(pid) for pid in [*family(swarm.pid), service])
        lone = _lone_embedder()
        has = f"{number} agents that have searched {entries:,} memories"
        note = "proportional share"
        yield Row(f"memory of each of {has}", mean, "MB", "before", idle, note=note, target=20.0)
        yield Row(
            f"memory of all of {has}", total_mb, "MB", f"{number} of these processes with a MiniLM of their own",
            number * (mean + lone), note=f"supervisor, fork server and the embedding process ({share_mb(service):.0f} MB) too",
        )  # fmt: skip


def _remember(layout: Layout, entries: int) -> None:
    """So many memories that all agents search, with vectors that nobody had to compute."""
    chance, hive = random.Random(7), Hive.open(layout.root)
    values = {
        f"k{at}": {
            "content": f"Pump number {at} was last seen in hall {at % 17}",
            "embedding": [chance.gauss(0, 1) for _ in range(DIMENSION)],
        }
        for at in range(entries)
    }
    with hive.memory as store:
        store.put_many(("shared", hive.config.workspace), values)


def _lone_embedder() -> float:
    """MB that a process holds which has MiniLM to itself."""
    process = subprocess.Popen([sys.executable, "-c", _LONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    size = share_mb(process.pid)
    process.communicate(b"\n")
    return size


# -- whole tasks


def _drop(layout: Layout, texts: Sequence[str]) -> float:
    """Drop tasks at once, as a person's program does: write them elsewhere, move them in. Return the time before the first."""
    staging = layout.root / "beside"
    staging.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (staging / f"t{number}-{time.time_ns()}.md").write_text(text)
    names = os.listdir(staging)
    began = time.time()
    for name in names:
        os.rename(staging / name, layout.inbox / name)
    return began


def _results(layout: Layout) -> dict[str, float]:
    """Return the write time of each result."""
    times = {}
    for entry in os.scandir(layout.done):
        try:
            times[entry.name] = os.stat(f"{entry.path}/result.md").st_mtime
        except FileNotFoundError:  # on its way
            continue
    return times


def _do(layout: Layout, texts: Sequence[str]) -> float:
    """Seconds from the first drop to the last result."""
    before = _results(layout)
    began = _drop(layout, texts)
    total = len(before) + len(texts)
    until(lambda: len(os.listdir(layout.done)) >= total or bool(os.listdir(layout.failed)))
    if failures := os.listdir(layout.failed):
        raise RuntimeError((layout.failed / failures[0] / "error.md").read_text())
    return max(moment for name, moment in _results(layout).items() if name not in before) - began


def _bare(number: int, durable: bool) -> float:
    """Return the commands per second of a bare loop that stores each output."""
    folder = tempfile.mkdtemp()
    began = time.perf_counter()
    for at in range(number):
        stdout = subprocess.run(["true"], capture_output=True, check=True).stdout
        file = os.open(f"{folder}/{at}", os.O_WRONLY | os.O_CREAT)
        os.write(file, stdout)
        if durable:
            os.fsync(file)
        os.close(file)
    return number / (time.perf_counter() - began)


def _tasks(durability: str, quick: bool) -> Iterator[Row]:
    durable = durability == "full"
    alone: dict[str, float] = {}
    number, rounds = (
        (3, 1) if quick else (120, 2)
    )  # the same for one agent as for four: questions search finished tasks
    for agents in (1, 4):
        layout, some = _hive(agents, durability), f"{agents} agent{'s' if agents > 1 else ''}"
        name = f"tasks of one step (%s), {'durable' if durable else 'relaxed'}, {some}"
        rivals: dict[str, Callable[[], float | None]] = {
            f"huey, {agents} processes": partial(huey_tasks, number, agents, durable),
            f"Celery with Redis, {agents} processes": partial(celery_tasks, number, agents, durable),
            "a bare loop running true": partial(_bare, number, durable),
        }
        best = dict.fromkeys(rivals, 0.0)
        rates = {"run: true": 0.0, "a question": 0.0}
        with _up(layout):
            _do(layout, [_RUN % 0, _ASK % 0])  # loads what the first use loads
            for _ in range(rounds):  # interleaved
                for rival, measure in rivals.items():
                    best[rival] = max(best[rival], measure() or 0)
                rates["run: true"] = max(rates["run: true"], number / _do(layout, [_RUN % at for at in range(number)]))
            rates["a question"] = number / _do(layout, [_ASK % at for at in range(number)])
        for rival, rate in best.items():
            baseline, baseline_rate = (rival, rate) if rate else (f"{rival}: not installed", None)
            target = baseline_rate if rival.startswith("Celery") else None
            yield Row(name % "run: true", rates["run: true"], "tasks/s", baseline, baseline_rate, "more", target=target)
        for kind, rate in rates.items():
            if alone or kind == "a question":
                yield Row(name % kind, rate, "tasks/s", "one agent" if alone else "", alone.get(kind), "more")
        alone = alone or rates


def _latency(durability: str, quick: bool) -> Iterator[Row]:
    layout = _hive(3, durability)
    word = "durable" if durability == "full" else "relaxed"
    with _up(layout):
        _do(layout, [_RUN % 0, _ASK % 0])
        for kind, text in (("run: true", _RUN), ("a question, reviewed", _ASK)):
            took, plain = [], []
            for at in range(1 if quick else 20):
                took.append(_do(layout, [text % at]) * 1000)
                plain.append(_plain_start(1) * 1000)
            name = f"from a dropped file to its result ({kind}), {word}"
            yield Row(name, statistics.median(took), "ms", "starting a Python for it", statistics.median(plain))


def run(quick: bool = False) -> list[Row]:
    """The rows; about five minutes on two cores, with `quick` some seconds."""
    rows: list[Row] = []
    for number in (1, 3) if quick else (1, 10, 100):
        rows += _starts(number, 1 if quick else 2 if number == 100 else 3)
    for number in (3,) if quick else (10, 100):
        rows += _idle(number, 2.0 if quick else 20.0)
    rows += _remembering(2, 200) if quick else _remembering(50, 10_000)
    for durability in ("relaxed",) if quick else ("relaxed", "full"):
        rows += _tasks(durability, quick)
        rows += _latency(durability, quick)
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--up"]:
        _be_up(sys.argv[2])
    else:
        show("The swarm: start, memory, idling, whole tasks", run(quick="--quick" in sys.argv))
