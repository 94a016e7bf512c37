"""`python -m tests.faults.mutants.run [NAME …]`: which mutants the harness finds, and what shows them.

A detector is a scenario under a fault (`tasks/kill`), or a power loss in one (`power/letters`; of one operation alone:
`power/stores lost unlink tasks/inbox/`), with a seed where that matters (`letters/sweep:3`), or a file of tests, and
words of their names (`pytest/tests/landing/test_kills.py killed`). Each mutant is put under the
detectors that its patch names, then under all others, until a checker says something that it does not say of the house as it
is.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from tests.faults.faults import FAULTS, missing
from tests.faults.mutants import REPOSITORY, Mutant, mutants
from tests.faults.powerloss.plan import NAMES, PLAYS
from tests.faults.report import runs_of_this_commit, write_part, write_table
from tests.faults.scenarios import SCENARIOS

__all__ = ["Shown", "detect", "hunt"]

SEEDS = (1, 2, 3)
LIMIT_S = 600
_CHECKER = re.compile(
    r"    (?:after .*?: )?(?:P\d+ )*\((.+?)\): .*"
)  # `after 12, torn: 7 at 3: P13 (sent is there): …`
_ROOM = re.compile(
    r"    after \d+, [\w ]+?(?:: \d+(?: \w+ \d+)?)?: (\w+).*"
)  # `after 12, torn: 7 at 3: letter First: …`
_TEST = re.compile(r"FAILED \S+::(\w+).*")


@dataclass(frozen=True, slots=True)
class Shown:
    """How a mutant was found: by which detector with which seed, and its first sentence; None: it was not."""

    mutant: Mutant
    detector: str | None
    seed: int = 0
    sentence: str = ""
    tried: int = 0
    took_s: float = 0.0


def detect(house: Path, detector: str, seed: int) -> dict[str, str]:
    """What a detector finds in the program that lies at `house`: who says so (a checker, a room) -> its first sentence."""
    kind, _, what = detector.partition("/")
    if kind == "power":
        name, _, lost = what.partition(" lost ")
        command = ["tests.faults.powerloss", "--scenario", name, "--states", "150" if name in PLAYS else "100"]
        command += ["--seed", str(seed), "--jobs", "1", "--first", *(["--lost", lost] if lost else [])]
    elif kind == "pytest":
        file, _, words = what.partition(" ")
        command = ["pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", file, *(["-k", words] if words else [])]
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
        return {"no end": f"{detector} did not come to an end in {LIMIT_S} s"}
    if done.returncode == 0:
        return {}
    said: dict[str, str] = {}
    for line in done.stdout.splitlines():
        if told := _CHECKER.match(line) or _ROOM.match(line) or _TEST.match(line):
            said.setdefault(told[1], line.strip()[:400])
    return said or {"no answer": (done.stdout[-300:] + done.stderr[-500:]).strip()}


@cache
def known(detector: str, seed: int) -> frozenset[str]:
    """Who says something of the house as it is; nobody, where a run of this commit has said nothing."""
    kind, _, what = detector.partition("/")
    scenario, fault = (what.partition(" lost ")[0].partition("-relaxed")[0], kind) if kind == "power" else (kind, what)
    if any(
        (run["scenario"], run["fault"]) == (scenario, fault) and (fault == "power" or run["seed"] == seed)
        and not run["violations"] for run in runs_of_this_commit()
    ):  # fmt: skip
        return frozenset()
    said = detect(REPOSITORY, detector, seed)
    assert not {"harness", "no answer", "no end"} & said.keys(), f"{detector} says nothing of any house: {said}"
    return frozenset(said)


def _detectors(first: Sequence[str], others: bool) -> Iterator[tuple[str, int]]:
    """Those that are named first, with each seed, then all others."""
    every = [f"power/{name}" for name in NAMES]
    every += [f"{scenario}/{fault}" for fault in FAULTS if not missing(FAULTS[fault]) for scenario in SCENARIOS]
    for one in first:
        name, _, seed = one.partition(":")
        yield from ((name, number) for number in ((int(seed),) if seed else SEEDS))
    yield from ((one, SEEDS[0]) for one in every if others and one not in first)


def check_that_it_is_run(house: Path) -> None:
    """Raises AssertionError if a process that is started anywhere would run another hivemind than the mutant."""
    command = [sys.executable, "-P", "-c", "import hivemind; print(hivemind.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(house)}
    said = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert said.startswith(f"{house}/"), f"{sys.executable} puts {said} before PYTHONPATH: no mutant would be run"


def hunt(mutant: Mutant, folder: Path, most: int | None) -> Shown:
    """Try detectors until one finds the mutant: `most` at most, or those that its patch names."""
    house = mutant.house(folder / mutant.name)
    check_that_it_is_run(house)
    tried, began = 0, time.monotonic()
    for tried, (detector, seed) in enumerate(islice(_detectors(mutant.detectors, others=most is not None), most), 1):
        said = detect(house, detector, seed)
        assert "no answer" not in said, f"{mutant.name}, {detector}: {said}"
        if said and (new := sorted(said.keys() - known(detector, seed))):
            return Shown(mutant, detector, seed, said[new[0]], tried, time.monotonic() - began)
    return Shown(mutant, None, tried=tried, took_s=time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*")
    parser.add_argument("--most", type=int, default=40, help="detectors that a mutant is put under at most")
    parser.add_argument("--short", action="store_true", help="under the detectors that each patch names, and no other")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument(
        "--report", action="store_true", help="write tests/faults/report/mutants.json and docs/promises.md"
    )
    given = parser.parse_args()
    wanted = [one for one in mutants() if not given.name or one.name in given.name]
    found: list[Shown] = []
    with tempfile.TemporaryDirectory(prefix="hive-mutants-") as folder, ThreadPoolExecutor(given.jobs) as pool:
        for shown in pool.map(lambda one: hunt(one, Path(folder), None if given.short else given.most), wanted):
            found.append(shown)
            how = f"{shown.detector}, seed {shown.seed}: {shown.sentence}" if shown.detector else "NOT FOUND"
            print(f"{shown.mutant.name}: {how} ({shown.tried} tried, {shown.took_s:.0f} s)", flush=True)
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
        write_part("mutants", [], notes=notes)
        write_table()
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
