"""`python -m tests.faults.mutants.run [NAME …]`: which mutants the harness finds, and what shows them.

A detector is a scenario under a fault (`tasks/kill`), or a power loss in one (`power/letters`; of one operation alone:
`power/stores lost unlink tasks/inbox/`), with a seed where that matters (`letters/sweep:3`), or a file of tests, and
words of their names (`pytest/tests/landing/test_kills.py killed`). Each mutant is put under the
detectors that its patch names, then under all others, until a checker reports a problem that it does not report of the
house itself.
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

from tests.faults.faults import FAULTS, gap_of
from tests.faults.mutants import REPOSITORY, Mutant, mutants
from tests.faults.powerloss.plan import NAMES, PLAYS
from tests.faults.report import runs_of_this_commit, write_part, write_table
from tests.faults.scenarios import SCENARIOS

__all__ = ["Detection", "detect", "hunt"]

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
class Detection:
    """The detector that found a mutant, with the seed and its first sentence; None: the mutant was not found."""

    mutant: Mutant
    detector: str | None
    seed: int = 0
    sentence: str = ""
    tries: int = 0
    took_s: float = 0.0


def detect(house: Path, detector: str, seed: int) -> dict[str, str]:
    """Run a detector on the program at `house`: return checker or room -> its first sentence."""
    kind, _, part = detector.partition("/")
    if kind == "power":
        name, _, lost = part.partition(" lost ")
        command = ["tests.faults.powerloss", "--scenario", name, "--states", "150" if name in PLAYS else "100"]
        command += ["--seed", str(seed), "--jobs", "1", "--first", *(["--lost", lost] if lost else [])]
    elif kind == "pytest":
        file, _, words = part.partition(" ")
        command = ["pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", file, *(["-k", words] if words else [])]
    else:
        keep = house.parent / f"kept-{house.name}"
        command = [
            "tests.faults",
            "--scenario",
            kind,
            "--fault",
            part,
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
    voices: dict[str, str] = {}
    for line in done.stdout.splitlines():
        if match := _CHECKER.match(line) or _ROOM.match(line) or _TEST.match(line):
            voices.setdefault(match[1], line.strip()[:400])
    return voices or {"no answer": (done.stdout[-300:] + done.stderr[-500:]).strip()}


@cache
def baseline(detector: str, seed: int) -> frozenset[str]:
    """Return the checkers that fail on the house itself; none if a run of this commit was clean."""
    kind, _, part = detector.partition("/")
    scenario, fault = (part.partition(" lost ")[0].partition("-relaxed")[0], kind) if kind == "power" else (kind, part)
    if any(
        (run["scenario"], run["fault"]) == (scenario, fault) and (fault == "power" or run["seed"] == seed)
        and not run["violations"] for run in runs_of_this_commit()
    ):  # fmt: skip
        return frozenset()
    voices = detect(REPOSITORY, detector, seed)
    assert not {"harness", "no answer", "no end"} & voices.keys(), f"{detector} cannot judge any house: {voices}"
    return frozenset(voices)


def _detectors(first: Sequence[str], extra: bool) -> Iterator[tuple[str, int]]:
    """Yield the detectors named first, with each seed, then all others."""
    every = [f"power/{name}" for name in NAMES]
    every += [f"{scenario}/{fault}" for fault in FAULTS if not gap_of(FAULTS[fault]) for scenario in SCENARIOS]
    for first_name in first:
        name, _, seed = first_name.partition(":")
        yield from ((name, number) for number in ((int(seed),) if seed else SEEDS))
    yield from ((name, SEEDS[0]) for name in every if extra and name not in first)


def check_that_it_is_run(house: Path) -> None:
    """Raises AssertionError if a process that is started anywhere would run another hivemind than the mutant."""
    command = [sys.executable, "-P", "-c", "import hivemind; print(hivemind.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(house)}
    path = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert path.startswith(f"{house}/"), f"{sys.executable} puts {path} before PYTHONPATH: no mutant would be run"


def hunt(mutant: Mutant, folder: Path, limit: int | None) -> Detection:
    """Try detectors until one finds the mutant: at most `limit`, or the ones that its patch names."""
    house = mutant.house(folder / mutant.name)
    check_that_it_is_run(house)
    count, began = 0, time.monotonic()
    for count, (detector, seed) in enumerate(islice(_detectors(mutant.detectors, extra=limit is not None), limit), 1):
        voices = detect(house, detector, seed)
        assert "no answer" not in voices, f"{mutant.name}, {detector}: {voices}"
        if voices and (new := sorted(voices.keys() - baseline(detector, seed))):
            return Detection(mutant, detector, seed, voices[new[0]], count, time.monotonic() - began)
    return Detection(mutant, None, tries=count, took_s=time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*")
    parser.add_argument("--most", type=int, default=40, help="detectors that a mutant is put under at most")
    parser.add_argument("--short", action="store_true", help="under the detectors that each patch names, and no other")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument(
        "--report", action="store_true", help="write tests/faults/report/mutants.json and docs/promises.md"
    )
    options = parser.parse_args()
    picks = [mutant for mutant in mutants() if not options.name or mutant.name in options.name]
    finds: list[Detection] = []
    with tempfile.TemporaryDirectory(prefix="hive-mutants-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        for find in pool.map(lambda mutant: hunt(mutant, Path(folder), None if options.short else options.most), picks):
            finds.append(find)
            detection = f"{find.detector}, seed {find.seed}: {find.sentence}" if find.detector else "NOT FOUND"
            print(f"{find.mutant.name}: {detection} ({find.tries} tried, {find.took_s:.0f} s)", flush=True)
    lost = [find.mutant.name for find in finds if find.detector is None]
    print(f"{len(finds)} mutants, {len(finds) - len(lost)} found")
    if options.report:
        notes = [
            f"{len(finds)} mutants, {len(finds) - len(lost)} found" + (f"; not: {', '.join(lost)}" if lost else "")
        ]
        notes += [
            f"`{find.mutant.name}` ({find.mutant.broken_by}) is shown by {find.detector}, seed {find.seed}"
            for find in finds
            if find.detector
        ]
        write_part("mutants", [], notes=notes)
        write_table()
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
