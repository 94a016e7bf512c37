"""Recording, building, asking: one play under one durability, some crash states of it, what is wrong in each.

`python -m tests.faults.powerloss.run PLAY DURABILITY [--states N] [--swarms N] [--seed N] [--only N]`
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import hivemind
from tests.faults.powerloss.checks import Facts, inspect, set_going
from tests.faults.powerloss.disk import Crash, Disk
from tests.faults.powerloss.recording import record
from tests.faults.powerloss.states import choose

__all__ = ["Found", "Outcome", "power_loss"]

HOUSE = Path(__file__).parents[3]
CPU_S = 60


@dataclass(frozen=True, slots=True)
class Found:
    """A violation: in which crash state, and what was wrong there."""

    number: int
    crash: Crash
    what: tuple[str, ...]


@dataclass
class Outcome:
    """What a run has tried: states that were asked in a process, and with a whole swarm; what was found."""

    play: str
    durability: str
    seed: int
    operations: int = 0
    asked: int = 0
    swarms: int = 0
    found: list[Found] = field(default_factory=list)

    def command(self, number: int) -> str:
        """What repeats one state."""
        return f"python -m tests.faults.powerloss.run {self.play} {self.durability} --seed {self.seed} --only {number}"


def power_loss(
    play: str, durability: str, *, states: int, swarms: int, seed: int = 0, only: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:  # fmt: skip
    """Record a play and ask `states` crash states of it, `swarms` of them with a swarm as well."""
    outcome = Outcome(play, durability, seed)
    with _folder() as base:
        hive = base / "hive"
        hive.mkdir()
        environment = _environment()
        workload = [
            sys.executable,
            "-m",
            "tests.faults.powerloss.workload",
            play,
            str(hive),
            str(base / "said"),
            durability,
        ]
        disk = record(workload, hive, base / "said", base / "log", environment)
        (base / "log").unlink()
        outcome.operations = len(disk.operations)
        crashes = choose(disk, states, seed)
        if play != "swarm":  # what is imported and looked up at a first use need not be in each child
            disk.build(Crash(len(disk.operations)), hive)
            with contextlib.redirect_stderr(io.StringIO()):
                list(inspect(hive, Facts(), durability == "full"))
            gc.collect()
        every = max(1, len(crashes) // swarms) if swarms else 0
        for number, crash in enumerate(crashes):
            if only is not None and number != only:
                continue
            facts = Facts.of(disk.said(crash.at))
            if play != "swarm":  # of a swarm's tasks nothing is known before they are done
                outcome.asked += 1
                wrong = _ask(disk, crash, hive, facts, durability == "full")
                _note(outcome, number, crash, wrong, tell)
            if every and (number % every == 0 or only is not None):
                outcome.swarms += 1
                wrong = _swarm(disk, crash, hive, base / "said", facts, durability == "full", environment)
                _note(outcome, number, crash, wrong, tell)
    return outcome


def _note(outcome: Outcome, number: int, crash: Crash, wrong: list[str], tell: Callable[[str], None]) -> None:
    if wrong:
        outcome.found.append(Found(number, crash, tuple(wrong)))
        tell(f"{number}: after {crash.at} of {outcome.operations}, {crash.why}: " + "; ".join(wrong))


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder in memory where there is room for it; a crash state has the very path of the recording."""
    memory = Path("/dev/shm")
    base = Path(tempfile.mkdtemp(prefix="hivemind-power-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _environment() -> dict[str, str]:
    """The environment of programs that use this very hivemind, whichever it is."""
    paths = [os.fspath(Path(hivemind.__file__).parents[1]), os.fspath(HOUSE)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HIVEMIND_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "HIVEMIND_EMBEDDER": "none"}


def _ask(disk: Disk, crash: Crash, hive: Path, facts: Facts, durable: bool) -> list[str]:
    """Ask one state in a process of its own: it may hang, eat memory or die."""
    disk.build(crash, hive)
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(out)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            wrong = list(_inspected(hive, facts, durable))
            os.write(into, json.dumps(wrong)[:60_000].encode())
        finally:
            os._exit(0)
    os.close(into)
    with open(out, "rb") as reading:
        said = reading.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said else [f"whoever opened it died: {status}"]


def _inspected(hive: Path, facts: Facts, durable: bool) -> Iterator[str]:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as this process lives
    try:
        yield from inspect(hive, facts, durable)
    except Exception as error:  # whatever it is, it is what was looked for
        yield f"{type(error).__name__}: {error}"


def _swarm(
    disk: Disk, crash: Crash, hive: Path, said: Path, facts: Facts, durable: bool, environment: Mapping[str, str]
) -> list[str]:
    """Let a swarm go on with one state."""
    disk.build(crash, hive)
    said.write_bytes(b"")

    def up() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "hivemind", "--hive", os.fspath(hive), "up", "--until-idle"], check=False,
            env=dict(environment), cwd=hive.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    try:
        wrong = list(set_going(hive, facts, durable, up))
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error}"]
    again = [json.loads(line)["effect"] for line in said.read_text().splitlines()]
    if (ran := [*facts.effects, *again].count("once")) > 1:
        wrong.append(f"once: its command ran {ran} times")
    if (hive / "tasks" / "done" / "often").is_dir() and "often" not in [*facts.effects, *again]:
        wrong.append("often: done, and its command never ran")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("play")
    parser.add_argument("durability")
    parser.add_argument("--states", type=int, default=100)
    parser.add_argument("--swarms", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    os.environ["HIVEMIND_EMBEDDER"] = "none"
    began = time.monotonic()
    outcome = power_loss(
        given.play,
        given.durability,
        states=given.states,
        swarms=given.swarms,
        seed=given.seed,
        only=given.only,
        tell=print,
    )
    print(
        f"{outcome.play}, {outcome.durability}: {outcome.operations} operations, {outcome.asked} states asked, "
        f"{outcome.swarms} with a swarm, {len(outcome.found)} with violations, {time.monotonic() - began:.1f} s"
    )
