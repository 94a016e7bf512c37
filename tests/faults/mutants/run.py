"""`python -m tests.faults.mutants.run [NAME …]`: which mutants the harness finds, and what shows them.

A detector is a scenario under a fault (`tasks/kill`), or a power loss (`power/stores`). Each is run on the house as it is
first: one that finds something there shows nothing. Then each mutant is put under the detectors that its patch names, and
under all others until one finds it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.faults.faults import FAULTS, missing
from tests.faults.mutants import REPOSITORY, Mutant, mutants
from tests.faults.report import write_part, write_table
from tests.faults.scenarios import SCENARIOS

__all__ = ["Shown", "detect", "hunt"]

SEEDS = (1, 2, 3)
LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Shown:
    """How a mutant was found: by which detector with which seed, and its first sentence; None: it was not."""

    mutant: Mutant
    detector: str | None
    seed: int = 0
    sentence: str = ""
    tried: int = 0


def detect(house: Path, detector: str, seed: int) -> str | None:
    """What a detector finds in the program that lies at `house`: its first sentence, or None."""
    kind, _, what = detector.partition("/")
    if kind == "power":
        command = [
            "tests.faults.powerloss.run",
            what,
            "full",
            "--states",
            "8" if what == "swarm" else "100",
            "--seed",
            str(seed),
        ]
    else:
        keep = house.parent / f"kept-{house.name}"
        command = [
            "tests.faults",
            "--scenario",
            kind,
            "--fault",
            what,
            "--seed",
            str(seed),
            "--jobs",
            "1",
            "--keep",
            str(keep),
        ]
    environment = {**os.environ, "PYTHONPATH": str(house), "HIVEMIND_EMBEDDER": "none"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=house, env=environment, capture_output=True, text=True, check=False,
            timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{detector} did not come to an end in {LIMIT_S} s"
    if done.returncode == 0:
        return None
    lines = [
        line.strip() for line in done.stdout.splitlines() if line.startswith(("    P", "    (", "     (", "after "))
    ]
    return (lines or [done.stdout[-300:] + done.stderr[-500:]])[0][:400]


def _detectors(first: Sequence[str]) -> Iterator[str]:
    """Those that are named first, then all others."""
    every = ["power/stores", "power/swarm"]
    every += [f"{scenario}/{fault}" for fault in FAULTS if not missing(FAULTS[fault]) for scenario in SCENARIOS]
    yield from first
    yield from (one for one in every if one not in first)


def hunt(mutant: Mutant, folder: Path, most: int) -> Shown:
    """Try detectors until one finds the mutant, `most` at most."""
    house = mutant.house(folder / mutant.name)
    tried = 0
    for detector in _detectors(mutant.detectors):
        for seed in SEEDS if detector in mutant.detectors else SEEDS[:1]:
            if tried >= most:
                return Shown(mutant, None, tried=tried)
            tried += 1
            if (sentence := detect(house, detector, seed)) is not None:
                if detect(REPOSITORY, detector, seed) is not None:
                    continue  # it finds something without the mutant too
                return Shown(mutant, detector, seed, sentence, tried)
    return Shown(mutant, None, tried=tried)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*")
    parser.add_argument("--most", type=int, default=40, help="detectors that a mutant is put under at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--report", action="store_true", help="write tests/faults/report/mutants.json and docs/promises.md"
    )
    given = parser.parse_args()
    wanted = [one for one in mutants() if not given.name or one.name in given.name]
    found: list[Shown] = []
    with tempfile.TemporaryDirectory(prefix="hive-mutants-") as folder, ThreadPoolExecutor(given.jobs) as pool:
        for shown in pool.map(lambda one: hunt(one, Path(folder), given.most), wanted):
            found.append(shown)
            how = f"{shown.detector}, seed {shown.seed}: {shown.sentence}" if shown.detector else "NOT FOUND"
            print(f"{shown.mutant.name}: {how} ({shown.tried} tried)", flush=True)
    lost = [one.mutant.name for one in found if one.detector is None]
    print(f"{len(found)} mutants, {len(found) - len(lost)} found")
    if given.report:
        notes = [
            f"{len(found)} mutants, {len(found) - len(lost)} found" + (f"; not: {', '.join(lost)}" if lost else "")
        ]
        notes += [
            f"`{one.mutant.name}` ({one.mutant.broken_by}) is shown by {one.detector}, seed {one.seed}"
            for one in found
            if one.detector
        ]
        write_part("mutants", "python -m tests.faults.mutants.run", [], notes=notes)
        write_table()
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
