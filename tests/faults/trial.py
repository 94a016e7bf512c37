"""One scenario under one fault, with one seed: from an empty folder to what the checkers found."""

from __future__ import annotations

import json
import shlex
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.program import Warm

from .checkers import DOCTOR_CONTENT, NOTHING_LEFT
from .faults import Fault
from .scenario import Checker, Scenario
from .subject import LIMIT_S, Subject, folder

__all__ = ["Trial", "check", "recover", "try_once"]


@dataclass(slots=True)
class Trial:
    """The finds of one run. `violations` are (promises, checker, sentence)."""

    scenario: str
    fault: str
    seed: int
    durability: str
    violations: list[tuple[tuple[str, ...], str, str]] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)  # the promises that were looked at
    notes: list[str] = field(default_factory=list)
    trace: str | None = None  # path of a violation's trace
    took_s: float = 0.0

    @property
    def command(self) -> str:
        words = [
            "python",
            "-m",
            "tests.faults",
            "--scenario",
            self.scenario,
            "--fault",
            self.fault,
            "--seed",
            str(self.seed),
        ]
        return shlex.join(words)


def try_once(
    scenario: Scenario, fault: Fault, seed: int, *, warm: Warm | None, keep: Path | None = None, thorough: bool = False
) -> Trial:
    """Play the scenario under the fault, end the fault, let the swarm go on, and look. The folder is deleted, or kept
    below `keep` if anything was found."""
    random = Random(f"{scenario.name} {fault.name} {seed}")
    durability = random.choice(("full", "relaxed"))
    trial = Trial(scenario.name, fault.name, seed, durability)
    began = time.monotonic()
    with folder("fault") as base:
        subject = Subject(base / "hive", base / "beside", random, warm, excuses=fault.excuses, points=scenario.points)
        subject.settings = {"durability": durability, **fault.settings}
        subject.thorough = thorough
        subject.scratch.mkdir()
        subject.root.mkdir()
        with fault.place(subject.root):
            try:
                _play(scenario, fault, subject, trial)
            except (
                Exception
            ):  # the boundary of a trial: a fault of the harness is reported like a find, and the rest go on
                trial.violations.append(((), "harness", traceback.format_exc()))
            subject.alone, subject.change = False, lambda command: command
            subject.kill_all()
            trial.notes = subject.notes
            if trial.violations and keep is not None:
                trace = keep / f"{scenario.name}.{fault.name}.{seed}"
                subject.copy_to(trace)
                trial.trace = str(trace)
    trial.took_s = time.monotonic() - began
    return trial


def _play(scenario: Scenario, fault: Fault, subject: Subject, trial: Trial) -> None:
    scenario.prepare(subject)
    if fault.after == "disk":  # a full disk is a pause: the swarm waits for room, and we for it not for long
        subject.patience_s = 20
    with fault.act(subject):
        with subject.follow_log():
            scenario.play(subject)
        trial.violations += _left_running(subject)
        if fault.tidy and not any("was killed" in note for note in subject.notes):
            trial.violations += _litter(subject)
    subject.alone, subject.patience_s = False, LIMIT_S
    recover(scenario, subject, trial)


def _left_running(subject: Subject) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Check that a swarm's processes end in any case: agents notice that their supervisor is gone."""
    end = time.monotonic() + 30
    while (pids := subject.processes()) and time.monotonic() < end:
        subject.tick()
    for pid in pids:
        yield ("P40",), "ends by itself", f"thirty seconds after the swarm's end a process of it lives: {pid}"
    subject.kill_all()


def _litter(subject: Subject) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Check that an error, unlike a kill, leaves no half-written file for the doctor to find."""
    for path in subject.root.rglob(".tmp-*"):
        yield ("P40",), "no litter", f"an error has left {path.relative_to(subject.root)}"


def recover(scenario: Scenario, subject: Subject, trial: Trial) -> None:
    """The fault is over: people ask again, the swarm works, the doctor mends, and every promise must hold."""
    if subject.random.random() < 0.5:  # some ask the doctor first, others just go on
        subject.run("doctor", "--fix")
    scenario.retry(subject)
    subject.work()
    subject.kill_all()
    trial.violations += check(subject, [row for row in scenario.checkers if row not in (DOCTOR_CONTENT, NOTHING_LEFT)])
    checkers = [NOTHING_LEFT] if _is_content(subject.run("doctor", "--fix", "--json").output()) else scenario.checkers
    trial.violations += [violation for violation in check(subject, checkers) if violation not in trial.violations]
    trial.covered = sorted({promise for checker in scenario.checkers for promise in checker.promises})


def _is_content(stdout: str) -> bool:
    """Check that the doctor finds a hive healthy, and has changed no file."""
    try:
        report = json.loads(stdout)
    except ValueError:
        return False
    return report["healthy"] and not any(finding["done"] for finding in report["findings"])


def check(subject: Subject, checkers: Iterable[Checker]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Everything that the checkers find."""
    with subject.at_rest():
        for checker in checkers:
            try:
                for sentence in checker.find(subject):
                    yield checker.promises, checker.name, sentence
            except (
                AssertionError,
                OSError,
                ValueError,
                KeyError,
            ) as error:  # what can't be looked at is not as promised
                yield checker.promises, checker.name, f"could not be looked at: {type(error).__name__}: {error}"
