"""The plan of scenarios, faults, seeds and times; and the report of it."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import zip_longest
from pathlib import Path

from tests.program import REPOSITORY, Warm

from .faults import FAULTS, clock_library, gap_of
from .report import runs_of, write_part, write_table
from .scenarios import SCENARIOS
from .trial import Trial, try_once

__all__ = ["main"]

SHORT_S = 100  # of a quarter of an hour: make faults has power losses, fuzz, mutants and whole samples as well
LONG_S = 4 * 3600

_warm: Warm | None = None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--scenario", action="append", choices=sorted(SCENARIOS), help="only this one (may be repeated)"
    )
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), help="only this one (may be repeated)")
    parser.add_argument("--seed", type=int, help="one trial of each, with this seed")
    parser.add_argument("--long", action="store_true", help=f"go on for {LONG_S // 3600} hours, and sweep everything")
    parser.add_argument("--seconds", type=float, help="go on for so long instead")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="a swarm waits half of the time")
    parser.add_argument("--keep", type=Path, default=REPOSITORY / "tests" / "faults" / "kept", help="for traces")
    parser.add_argument("--report", action="store_true", help="write tests/faults/report/ and docs/promises.md")
    parser.add_argument("--strict", action="store_true", help="fail if a program is missing and a fault was left out")
    arguments = parser.parse_args(argv)
    skipped = {name: gap for name in arguments.fault or FAULTS if (gap := gap_of(FAULTS[name]))}
    for name, gap in skipped.items():
        print(f"{name}: left out: {gap.reason}", flush=True)
    faults = [name for name in arguments.fault or FAULTS if name not in skipped]
    seconds = arguments.seconds or (LONG_S if arguments.long else SHORT_S)
    trials = list(_run(arguments, faults, time.monotonic() + seconds))
    failures = [trial for trial in trials if trial.violations]
    print(f"{len(trials)} trials, {len(failures)} with violations")
    if arguments.report:
        write_part("scenarios", runs_of(trials), left_out={name: gap.reason for name, gap in skipped.items()})
        write_table()
    is_incomplete = arguments.strict and any(not gap.kernel for gap in skipped.values())
    return 1 if failures or is_incomplete else 0


def _run(arguments: argparse.Namespace, faults: Sequence[str], end: float) -> Iterator[Trial]:
    plans = _plans(arguments.scenario or list(SCENARIOS), faults, arguments.seed)
    keep, long = arguments.keep, arguments.long
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, mp_context=spawn) as pool:
        futures = set()
        for plan in plans:
            if time.monotonic() > end:
                break
            futures.add(pool.submit(_run_trial, *plan, keep, long))
            while len(futures) >= arguments.jobs:
                done = next((future for future in futures if future.done()), None)
                if done is None:
                    time.sleep(0.02)
                    continue
                futures.remove(done)
                yield _print_trial(done.result())
        for future in futures:
            yield _print_trial(future.result())


def _plans(scenarios: Sequence[str], faults: Sequence[str], seed: int | None) -> Iterator[tuple[str, str, int]]:
    """Each pair once, then each again with the next seed. First the pairs that meet most of the program, the turn under every
    fault; then, whenever the time is up, each other scenario had its turns with every kind of fault."""
    at = 1 if seed is None else seed
    every = _by_turns(faults)
    rest_names = [name for name in scenarios if name != "turn"]
    while True:
        pairs = [("turn", fault) for fault in every if "turn" in scenarios]
        pairs += [
            (name, every[(turn + number) % len(every)])
            for turn in range(len(every))
            for number, name in enumerate(rest_names)
        ]
        for scenario, fault in pairs:
            late = FAULTS[fault].after == "late" and seed is None  # asked for by its seed, it is tried all the same
            if SCENARIOS[scenario].late or not late:
                yield scenario, fault, at
        if seed is not None:
            return
        at += 1


def _by_turns(faults: Sequence[str]) -> list[str]:
    """Faults of different kinds one after the other."""
    kinds: dict[str, list[str]] = {}
    for name in faults:
        kinds.setdefault(FAULTS[name].after, []).append(name)
    return [name for turn in zip_longest(*kinds.values()) for name in turn if name is not None]


def _run_trial(scenario: str, fault: str, seed: int, keep: Path, long: bool) -> Trial:
    global _warm
    _warm = _warm or Warm(preload=clock_library())
    return try_once(SCENARIOS[scenario], FAULTS[fault], seed, warm=_warm, keep=keep, thorough=long)


def _print_trial(trial: Trial) -> Trial:
    word = "VIOLATION" if trial.violations else "ok"
    print(f"{word:9} {trial.scenario:12} {trial.fault:14} {trial.seed:4}  {trial.took_s:5.1f} s", flush=True)
    for promises, checker, sentence in trial.violations:
        print(f"    {' '.join(promises)} ({checker}): {sentence}", flush=True)
    if trial.violations:
        print(f"    again: {trial.command}\n    trace: {trial.trace}", flush=True)
    return trial
