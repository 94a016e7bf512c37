"""Every play and every scenario under power loss, and the report's part `power`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.faults.faults import FAULTS, gap_of
from tests.faults.powerloss.disk import Crash
from tests.faults.powerloss.played import play_and_lose
from tests.faults.powerloss.run import Outcome, StateFault, power_loss
from tests.faults.report import write_part, write_table
from tests.faults.scenarios import SCENARIOS
from tests.program import REPOSITORY, Warm

__all__ = ["main"]

# What the play `stores` asks after: the words that its findings begin with, and the promises that they are about.
PROBED = {
    ("letter",): ("P13", "P14", "P15", "P16"),
    ("task",): ("P1", "P2", "P3", "P7"),
    ("journal", "step"): ("P20",),
    ("lease",): ("P22",),
    ("reserved",): ("P25",),
    ("document",): ("P30", "P32"),
    ("memory",): ("P33", "P35"),
    ("doctor",): ("P41",),
    ("hive", "who opened"): ("P42",),
}
# What the play `swarm` does: tasks to their end, by whole swarms, with `once` and with letters of steps.
TAKEN_UP = {
    ("task",): ("P1", "P2", "P3"),
    ("often",): ("P4",),
    ("once",): ("P5",),
    ("letter",): ("P13", "P16"),
    ("up",): ("P42",),
}
# By name: the play, and its durability. Under `relaxed` no scenario holds: the play's own questions know what may be gone.
PLAYS = {"stores": ("stores", "full"), "stores-relaxed": ("stores", "relaxed"), "swarm-relaxed": ("swarm", "relaxed")}
NAMES = [
    "tasks",
    "budgets",
    *PLAYS,
    *(name for name in SCENARIOS if name not in ("tasks", "budgets")),
]  # the longest first
TRACES = REPOSITORY / "tests" / "faults" / "kept"
RELAXED = ("P41", "P42")  # without durability only that is promised after a power loss


def outcomes(
    names: Sequence[str], states: int, seed: int, jobs: int, first: bool, lost: str | None
) -> Iterator[Outcome]:
    """Of each `states` crash states, several at a time."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for run in [pool.submit(_lose, name, states, seed, first, lost) for name in names]:
            try:
                yield run.result()
            except Exception as error:  # the boundary of a run: a fault of the harness is reported like a find
                reasons = (f"harness: {type(error).__name__}: {error}",)
                yield Outcome("harness", "full", seed, faults=[StateFault(0, Crash(0), reasons, ())])


_warm: Warm | None = None


def _lose(name: str, states: int, seed: int, first: bool, lost: str | None = None) -> Outcome:
    global _warm
    _warm, began = _warm or Warm(), time.monotonic()
    if name in PLAYS:
        pick = None if lost is None else lambda words: words.startswith(lost)
        outcome = power_loss(*PLAYS[name], states=states, seed=seed, warm=_warm, first=first, pick=pick)
    else:
        outcome = play_and_lose(name, states=states, warm=_warm, seed=seed, keep=TRACES, first=first)
    outcome.took_s = time.monotonic() - began
    return outcome


def row(outcome: Outcome) -> dict[str, Any]:
    """Return the report's row of an outcome. States count as runs."""
    words = {"stores": PROBED, "swarm": TAKEN_UP}.get(outcome.play, {})
    covered = outcome.covered | {promise for promises in words.values() for promise in promises}
    broken = outcome.broken | {
        promise
        for find in outcome.faults
        for sentence in find.sentences
        for begin, promises in words.items()
        if sentence.startswith(begin)
        for promise in promises
    }
    if outcome.durability == "relaxed":
        covered &= {*RELAXED, *broken}
    return {
        "scenario": outcome.play, "fault": "power", "seed": outcome.seed, "durability": outcome.durability,
        "count": outcome.probed + outcome.swarms, "promises": sorted(covered), "broken": sorted(broken),
        "violations": [f"{find.crash.reason}: {'; '.join(find.sentences)}" for find in outcome.faults],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.powerloss", description=__doc__)
    parser.add_argument("--long", action="store_true", help="1,000 crash states of each instead of 100")
    parser.add_argument("--scenario", action="append", choices=NAMES, help="only of this one (may be repeated)")
    parser.add_argument("--states", type=int, help="so many crash states of each")
    parser.add_argument(
        "--lost", help="of a play: states that lack one operation alone, which begins so: `unlink tasks/`"
    )
    parser.add_argument("--first", action="store_true", help="stop a scenario after its first violation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=3 * (os.cpu_count() or 1), help="a swarm waits half of the time")
    parser.add_argument(
        "--report", action="store_true", help="write tests/faults/report/power.json and docs/promises.md"
    )
    options = parser.parse_args()
    os.environ["HIVEMIND_EMBEDDER"] = "none"
    if gap := gap_of(FAULTS["kill-at-call"]):  # which is done by strace as well
        print(f"power: left out: {gap.reason}")
        return 0 if gap.kernel else 1
    rows, probes, taken_up, alike = [], 0, 0, 0
    states = options.states or (1000 if options.long else 100)
    for outcome in outcomes(options.scenario or NAMES, states, options.seed, options.jobs, options.first, options.lost):
        rows.append(row(outcome))
        probes, taken_up, alike = probes + outcome.probed, taken_up + outcome.swarms, alike + outcome.alike
        word = "VIOLATION" if outcome.faults else "ok"
        print(
            f"{word:9} {outcome.play:12} power {outcome.durability:8} {outcome.probed + outcome.swarms:5} states of "
            f"{outcome.operations} operations, {outcome.alike} more the same  {outcome.took_s:5.1f} s",
            flush=True,
        )
        for find in outcome.faults:
            print(f"    after {find.crash.at}, {find.crash.reason}: {'; '.join(find.sentences)}")
            print("\n".join(f"      {line}" for line in find.trace[-30:]), flush=True)
    broken = sum(bool(row["violations"]) for row in rows)
    notes = [
        f"{probes + taken_up} crash states, all different: {taken_up} were taken up by a whole swarm and looked at by the "
        f"scenario's checkers and the doctor, {probes} opened and asked by a separate process; {alike} more were the same, "
        "byte for byte and with the same acknowledged, as one of these"
    ]
    print(f"{notes[0]}; {broken} runs with violations")
    if options.report:
        write_part("power", rows, notes=notes)
        write_table()
    return 1 if broken else 0
