"""The scenarios of the frame under power loss: each is played once under strace; crash states of it are then recovered as after
every other fault, and its own checkers look, with the ledger of somebody who was cut off at that moment.

`python -m tests.faults.powerloss.played SCENARIO BASE SEED` is the recorded command.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from random import Random

from tests.faults.ledger import Ledger
from tests.faults.powerloss.recording import record
from tests.faults.powerloss.run import Outcome, StateFault, environment
from tests.faults.powerloss.states import choose
from tests.faults.report import held_after
from tests.faults.scenarios import SCENARIOS
from tests.faults.subject import Subject, folder
from tests.faults.trial import Trial, recover
from tests.program import Warm

__all__ = ["play_and_lose"]


def play_and_lose(
    name: str, *, states: int, warm: Warm, seed: int = 0, keep: Path | None = None, first: bool = False
) -> Outcome:
    """Record a scenario under `durability: full` and recover `states` crash states of it; violating states are
    kept below `keep`. With `first` stop after a violation."""
    outcome, scope = Outcome(name, "full", seed), held_after("power")
    with folder("power") as base:
        disks = base / "disks"
        disks.mkdir()
        command = [sys.executable, "-m", "tests.faults.powerloss.played", name, os.fspath(disks), str(seed)]
        disk = record(command, disks, base / "said", base / "log", environment(), outside="beside")
        (base / "log").unlink()
        ledger, ahead = Ledger.load(base / "ledger"), int((base / "ahead").read_text())
        outcome.operations = len(disk.operations)
        ends = [request.end + ahead for request in ledger.requests if request.acknowledged and request.end is not None]
        sample = choose(disk, states, seed, replies=disk.reply_points(ends))
        outcome.alike = sample.alike
        for number, crash in enumerate(sample.crashes):
            disk.build(crash, disks)
            outcome.swarms += 1
            subject = _subject(name, disks, Random(f"{name} {seed} {number}"), warm)
            subject.ledger = ledger.until(disk.moment(crash.at) - ahead)
            trial = Trial(name, "power", seed, "full")
            recover(SCENARIOS[name], subject, trial)
            subject.kill_all()
            outcome.covered |= scope & set(trial.covered)
            violations = [row for row in trial.violations if not row[0] or scope & set(row[0])]
            if violations:
                if keep is not None:
                    subject.copy_to(keep / f"{name}.power.{seed}.{number}")
                texts = tuple(f"{' '.join(promises)} ({checker}): {text}" for promises, checker, text in violations)
                outcome.broken |= scope & {promise for promises, _, _ in violations for promise in promises}
                outcome.faults.append(StateFault(number, crash, texts, tuple(disk.trace(crash))))
                if first:
                    break
    return outcome


def _subject(name: str, disks: Path, random: Random, warm: Warm) -> Subject:
    subject = Subject(disks / "hive", disks / "beside", random, warm, points=SCENARIOS[name].points)
    subject.settings = {"durability": "full"}
    return subject


def _play(name: str, disks: Path, seed: int) -> None:
    warm = Warm()
    subject = _subject(name, disks, Random(f"{name} {seed}"), warm)
    subject.root.mkdir()
    subject.scratch.mkdir()
    SCENARIOS[name].prepare(subject)
    os.sync()
    SCENARIOS[name].play(subject)
    subject.kill_all()
    subject.ledger.save(disks.parent / "ledger")
    # The ledger has the time that no fault touches, strace that of the day.
    (disks.parent / "ahead").write_text(str(time.time_ns() - time.monotonic_ns()))
    warm.close()


if __name__ == "__main__":
    _play(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
