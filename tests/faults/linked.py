"""Three linked hives, each in its own network, while they are killed and stopped, a network is cut, and the server dies.

    python -m tests.faults.linked [--rounds 10] [--tasks 100] [--letters 1000] [--seed 1] [--report]

Each round drops tasks that any hive may work on and sends letters across; meanwhile one hive's swarm is killed, another one's is
stopped (SIGSTOP) for longer than a lease lasts, the third one's network is cut for as long, and the server is killed and
started. Afterwards every task has one result, every letter arrived once, no event is missing, and late work was
refused. Networks are Linux namespaces on a bridge, which takes root; without it the network is not cut, which the report says.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from hivemind import Hive
from tests import waiting
from tests.postgres import Server

from .report import write_part, write_table

__all__ = ["main", "play"]

NAMES = ("berlin", "munich", "paris")
PROMISES = ("P57", "P58", "P59")
_AWAY_S = 40  # longer than a lease lasts
_until = partial(waiting.until, limit_s=600, pause_s=0.2)


class Machine:
    """One hive and its swarm, in its own network namespace if the machine allows it."""

    def __init__(self, root: Path, name: str, network: Network) -> None:
        self.root, self.name, self._within = root, name, network.within(name)
        root.mkdir()
        settings = {"workspace": name, "durability": "relaxed", "embedder": "none", "hang_after": 300}
        (root / "hive.yaml").write_text(json.dumps(settings))
        (root / "agents").mkdir()
        for agent in ("ada", "bob"):
            (root / "agents" / f"{agent}.yaml").write_text("role: writer\n")
        self.hive = Hive.open(root)

    def command(self, *words: str) -> list[str]:
        return [*self._within, sys.executable, "-m", "hivemind", "--hive", str(self.root), *words]

    def run(self, *words: str) -> str:
        return subprocess.run(self.command(*words), capture_output=True, text=True, check=True, timeout=120).stdout

    def up(self) -> None:
        with open(self.root.parent / f"{self.name}.log", "ab") as log:
            subprocess.Popen(self.command("up"), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the swarm."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def pids(self) -> list[int]:
        """Return the processes with the hive in their command: forked ones carry their parent's words."""
        pids = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
                if str(self.root).encode() in words and b"hivemind" in words:
                    pids.append(int(name))
        return pids


class Network:
    """A bridge that the server listens on, and a namespace for each hive; or loopback for all, if that cannot be."""

    def __init__(self) -> None:
        self._mark = f"hm{os.getpid() % 10_000}"
        self.address, self.why_not = "127.0.0.1", ""
        self._net = f"10.{os.getpid() % 200 + 20}.77"

    def __enter__(self) -> Network:
        try:
            self._ip("link", "add", self._mark, "type", "bridge")
            self._ip("addr", "add", f"{self._net}.1/24", "dev", self._mark)
            self._ip("link", "set", self._mark, "up")
            for at, name in enumerate(NAMES, 2):
                space, outer, inner = f"{self._mark}-{name}", f"{self._mark}{name[:4]}", f"{self._mark}{name[:4]}i"
                self._ip("netns", "add", space)
                self._ip("link", "add", outer, "type", "veth", "peer", "name", inner)
                self._ip("link", "set", inner, "netns", space)
                self._ip("link", "set", outer, "master", self._mark, "up")
                for words in (
                    ("addr", "add", f"{self._net}.{at}/24", "dev", inner),
                    ("link", "set", inner, "up"),
                    ("link", "set", "lo", "up"),
                ):
                    self._ip("-n", space, *words)
            self.address = f"{self._net}.1"
        except (OSError, subprocess.CalledProcessError) as error:
            self.why_not = str(getattr(error, "stderr", "") or error).strip()
            self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        for name in NAMES:
            self._ip("netns", "del", f"{self._mark}-{name}", check=False)
        self._ip("link", "del", self._mark, check=False)

    def _ip(self, *words: str, check: bool = True) -> None:
        if shutil.which("ip") is not None or check:
            subprocess.run(["ip", *words], capture_output=True, text=True, check=check)

    def within(self, name: str) -> list[str]:
        return [] if self.why_not else ["ip", "netns", "exec", f"{self._mark}-{name}"]

    def cut(self, name: str, *, off: bool) -> None:
        if not self.why_not:
            self._ip("link", "set", f"{self._mark}{name[:4]}", "down" if off else "up")


def play(folder: Path, *, rounds: int, tasks: int, letters: int, seed: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Play rounds; returns the runs as the report has them, and notes."""
    runs, notes = [], []
    with Network() as network, Server(network.address) as server:
        if network.why_not:
            notes.append(f"the network was not cut: {network.why_not}")
        url = server.new_database()
        machines = [Machine(folder / name, name, network) for name in NAMES]
        try:
            for machine in machines:
                machine.run("link", url)
                machine.up()
            _until(
                lambda: all(len(machine.hive.linked_hives.agents) == 2 for machine in machines),
                lambda: "they do not know one another",
            )
            givers: dict[str, str] = {}
            targets: dict[str, str] = {}
            for number in range(1, rounds + 1):
                began = time.monotonic()
                plan = random.Random(seed * 1000 + number)
                _round(plan, number, machines, network, server, (tasks, letters), (givers, targets))
                violations = [*_violations(machines, server, url, givers, targets)]
                runs.append({
                    "scenario": "linked", "fault": "linked hives", "seed": seed, "promises": list(PROMISES),
                    "broken": list(PROMISES) if violations else [], "violations": violations,
                })  # fmt: skip
                print(f"round {number}: {time.monotonic() - began:.0f} s, {len(violations)} violations", flush=True)
            late = sum(len(_late_tasks(machine)) for machine in machines)
            notes.append(
                f"{len(givers)} tasks, {len(targets)} letters; {late} tasks were taken from hives that were too late"
            )
        finally:
            for machine in machines:
                machine.signal(signal.SIGCONT)
                machine.signal(signal.SIGKILL)
    return runs, notes


def _round(
    plan: random.Random, number: int, machines: list[Machine], network: Network, server: Server,
    amount: tuple[int, int], ledgers: tuple[dict[str, str], dict[str, str]],
) -> None:  # fmt: skip
    givers, targets = ledgers

    def drop(numbers: range) -> None:
        for at in numbers:
            giver, key = plan.choice(machines), f"r{number}-{at}"
            steps = [{"wait": f"{plan.randrange(1, 6)}s"}, {"write": {"path": "out.txt", "text": key}}]
            giver.hive.tasks.add(f"Write {key}.", id=key, where="any", steps=steps)
            givers[key] = giver.name

    drop(range(amount[0] // 2))
    for at in range(amount[1]):
        giver, to = plan.sample(machines, 2)
        giver.hive.mail.send("ada", f"human@{to.name}", f"letter {number}-{at}", "")
        targets[f"letter {number}-{at}"] = to.name
    server.kill()
    time.sleep(plan.random() * 2)
    server.start()
    time.sleep(31)  # for so long no lease ends after its start
    drop(range(amount[0] // 2, amount[0]))
    time.sleep(1 + plan.random() * 3)  # some of them are in hand
    killed, paused, cut = plan.sample(machines, 3)
    killed.signal(signal.SIGKILL)
    paused.signal(signal.SIGSTOP)
    network.cut(cut.name, off=True)
    time.sleep(_AWAY_S)
    network.cut(cut.name, off=False)
    paused.signal(signal.SIGCONT)
    killed.up()
    by_name = {machine.name: machine for machine in machines}
    _until(
        lambda: all(by_name[name].hive.tasks.listing.outcome(key) is not None for key, name in givers.items()),
        lambda: (
            f"without an end: {[key for key, name in givers.items() if by_name[name].hive.tasks.listing.outcome(key) is None]}"
        ),
    )
    _until(
        lambda: all(len(host.hive.mail.list("human")) >= list(targets.values()).count(host.name) for host in machines),
        lambda: "letters are missing",
    )
    _until(
        lambda: not [path for machine in machines for path in (machine.root / ".hive/link/tasks").glob("*.json")],
        lambda: "tasks are in hand",
    )


def _violations(
    machines: list[Machine], server: Server, url: str, givers: dict[str, str], receivers: dict[str, str]
) -> Iterator[str]:
    database = url.rpartition("/")[2]
    done_counts = Counter(task for peer in machines for task in _done_for_others(peer))
    for key, name in givers.items():
        root = next(peer.root for peer in machines if peer.name == name)
        places = [
            path
            for state in ("inbox", "active", "done", "failed")
            for path in (root / "tasks" / state).glob(f"{key}*")
            if path.name in (key, f"{key}.md", f"{key}-2")
        ]
        if [path.parent.name for path in places] != ["done"] or not (places[0] / "result.md").is_file():
            yield f"the task {key} of {name} lies in {[str(path.relative_to(root)) for path in places]}"
            continue
        output = places[0] / "files/out.txt"
        if not output.is_file() or output.read_text().strip() != key:
            yield f"the task {key} of {name} came home without what it wrote"
        if done_counts[f"{name}-{key}"] > 1:
            yield f"the task {key} of {name} counts as done in {done_counts[f'{name}-{key}']} other hives"
    for peer in machines:
        counts = Counter(letter.subject for letter in peer.hive.mail.list("human"))
        subjects = {subject for subject, to in receivers.items() if to == peer.name}
        yield from (
            f"{subject} is with {peer.name} {counts[subject]} times" for subject in subjects if counts[subject] != 1
        )
        yield from (f"{peer.name} has got {subject}" for subject in counts if subject not in subjects)
        end = peer.hive.journal.seq
        shipped = f"select count(*), max(seq), min(seq) from hivemind_exchange.events where hive = '{peer.name}' and seq <= {end}"
        _until(lambda: server.execute(shipped, database)[0][1] == end, lambda: f"events of {peer.name} are missing")  # noqa: B023
        if server.execute(shipped, database)[0] != (end, end, 1):
            yield f"the events of {peer.name} have a gap: {server.execute(shipped, database)[0]}, and {end} were written"


def _done_for_others(peer: Machine) -> Iterator[str]:
    """Of the tasks that a hive has done for others what they are called where they are from, by giver."""
    for folder in (peer.root / "tasks/done").iterdir():
        if folder.name.startswith(NAMES):
            yield folder.name.rpartition("-")[0]


def _late_tasks(peer: Machine) -> list[str]:
    return [path.name for path in (peer.root / "tasks/failed").iterdir() if path.name.startswith(NAMES)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.linked", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=30, help="in each round")
    parser.add_argument("--letters", type=int, default=100, help="in each round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--long", action="store_true", help="ten rounds of 100 tasks and 1,000 letters")
    parser.add_argument("--report", action="store_true", help="write tests/faults/report/ and docs/promises.md")
    arguments = parser.parse_args()
    if arguments.long:
        arguments.rounds, arguments.tasks, arguments.letters = 10, 100, 1000
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # to clean up
    folder = Path(tempfile.mkdtemp(prefix="hivemind-linked-"))
    runs, notes = play(
        folder, rounds=arguments.rounds, tasks=arguments.tasks, letters=arguments.letters, seed=arguments.seed
    )
    for run in runs:
        print(*run["violations"], sep="\n", end="\n" if run["violations"] else "")
    print(*notes, sep="\n")
    if arguments.report:
        write_part("linked", runs, notes=notes)
        write_table()
    if any(run["violations"] for run in runs):
        print(f"kept: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
