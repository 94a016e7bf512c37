"""Recording, building, asking: one play under one durability, some crash states of it, the problems of each."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import hivemind
from tests.faults.powerloss.checks import Facts, inspect, set_going
from tests.faults.powerloss.disk import Crash
from tests.faults.powerloss.recording import record
from tests.faults.powerloss.states import choose, without_one
from tests.faults.subject import Subject, folder
from tests.program import Warm

__all__ = ["Outcome", "StateFault", "environment", "power_loss"]

HOUSE = Path(__file__).parents[3]
CPU_S = 60


@dataclass(frozen=True, slots=True)
class StateFault:
    """A violation: in which of the crash states, what was wrong there, and what the disk had been asked for by then."""

    number: int
    crash: Crash
    sentences: tuple[str, ...]
    trace: tuple[str, ...]


@dataclass
class Outcome:
    """The states that a run has tried in a process, and with a whole swarm, and the violations in them."""

    play: str
    durability: str
    seed: int
    operations: int = 0
    probed: int = 0
    swarms: int = 0
    alike: int = 0  # looked at, and the same as a tried one
    faults: list[StateFault] = field(default_factory=list)
    covered: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    took_s: float = 0.0

    @property
    def command(self) -> str:
        """Return the command that repeats the plan. A second recording differs in bytes: processes race, names are drawn."""
        name = self.play if self.durability == "full" else f"{self.play}-{self.durability}"
        return f"python -m tests.faults.powerloss --scenario {name} --seed {self.seed}"


class _Run:
    """One recording, and its crash states one after the other, all in the folder where it was recorded."""

    def __init__(self, base: Path, outcome: Outcome, warm: Warm | None) -> None:
        self._outcome, self._durable = outcome, outcome.durability == "full"
        self._hive, self._said, self._log = base / "hive", base / "said", base / "log"
        self._hive.mkdir()
        self._environment = environment()
        play = [outcome.play, os.fspath(self._hive), os.fspath(self._said), outcome.durability]
        workload = [sys.executable, "-m", "tests.faults.powerloss.workload", *play]
        self.disk = record(workload, self._hive, self._said, self._log, self._environment)
        self._log.unlink()
        outcome.operations = len(self.disk.operations)
        self._swarm = Subject(self._hive, base / "beside", Random(outcome.seed), warm)
        self._swarm.scratch.mkdir()

    def warm(self) -> None:
        """Have imported and looked up what every child would otherwise."""
        self.disk.build(Crash(len(self.disk.operations)), self._hive)
        with contextlib.redirect_stderr(io.StringIO()):
            list(inspect(self._hive, Facts(), self._durable))
        gc.collect()

    def ask(self, number: int, crash: Crash) -> None:
        """Ask one state in a separate process: it may hang, eat memory or die."""
        self.disk.build(crash, self._hive)
        self._outcome.probed += 1
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(out)
                resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
                wrong = list(self._inspected(crash))
                os.write(into, json.dumps(wrong)[:60_000].encode())
            finally:
                os._exit(0)
        os.close(into)
        with open(out, "rb") as reading:
            answer = reading.read()
        _, status = os.waitpid(child, 0)
        self._note(number, crash, json.loads(answer) if answer else [f"who opened it died: {status}"])

    def _inspected(self, crash: Crash) -> Iterator[str]:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as this process lives
        try:
            yield from inspect(self._hive, self._facts(crash), self._durable)
        except Exception as error:  # any exception is a find
            yield f"{type(error).__name__}: {error}"

    def _facts(self, crash: Crash) -> Facts:
        return Facts.of(self.disk.replies(crash.at))

    def go_on(self, number: int, crash: Crash) -> None:
        """Let a swarm go on with one state."""
        self.disk.build(crash, self._hive)
        self._said.write_bytes(b"")
        self._outcome.swarms += 1
        facts = self._facts(crash)
        try:
            wrong = list(set_going(self._hive, facts, self._durable, self._up))
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        effects = [*facts.effects, *(json.loads(line)["effect"] for line in self._said.read_text().splitlines())]
        if (ran := effects.count("once")) > 1:
            wrong.append(f"once: its command ran {ran} times")
        if (self._hive / "tasks" / "done" / "often").is_dir() and "often" not in effects:
            wrong.append("often: done, and its command never ran")
        self._note(number, crash, wrong)

    def _up(self, *arguments: str) -> tuple[int | None, str]:
        running = self._swarm.run(*arguments)
        self._swarm.kill_all()
        return running.poll(), running.output() + running.errors()

    def _note(self, number: int, crash: Crash, wrong: list[str]) -> None:
        if wrong:
            self._outcome.faults.append(StateFault(number, crash, tuple(wrong), tuple(self.disk.trace(crash))))


def power_loss(
    play: str, durability: str, *, states: int, seed: int = 0, warm: Warm | None = None, first: bool = False,
    pick: Callable[[str], bool] | None = None,
) -> Outcome:  # fmt: skip
    """Record a play and try `states` crash states of it: of the play `swarm` each is taken up by a whole swarm, of others each
    is asked by a process. With `pick` only states that lose one operation, accepted by `pick` in words; with `first`
    stop after a violation."""
    outcome = Outcome(play, durability, seed)
    with folder("power") as base:
        run = _Run(base, outcome, warm)
        if pick is None:
            sample = choose(run.disk, states, seed, journaled=durability == "relaxed")
            crashes, outcome.alike = sample.crashes, sample.alike
        else:
            crashes = without_one(run.disk, pick, states)
        if play != "swarm":
            run.warm()
        for number, crash in enumerate(crashes):
            if play == "swarm":
                run.go_on(number, crash)
            else:
                run.ask(number, crash)
            if first and outcome.faults:
                break
    return outcome


def environment() -> dict[str, str]:
    """The environment of programs that use this very hivemind, whichever it is."""
    paths = [os.fspath(Path(hivemind.__file__).parents[1]), os.fspath(HOUSE)]
    variables = {key: value for key, value in os.environ.items() if not key.startswith("HIVEMIND_")}
    return {**variables, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "HIVEMIND_EMBEDDER": "none"}
