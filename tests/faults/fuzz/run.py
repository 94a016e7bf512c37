"""Fuzz: `python -m tests.faults.fuzz.run [--door NAME] [--inputs N] [--seed N]`. Finds are kept in corpus/."""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.faults.fuzz.grammars import inputs
from tests.faults.fuzz.worker import Worker
from tests.faults.report import write_part, write_table

__all__ = ["CORPUS", "DOOR_NAMES", "Fuzzed", "corpus", "fuzz"]

CORPUS = Path(__file__).parent / "corpus"
PROMISES = ("P43", "P48")
DOOR_NAMES = ("task", "letter", "file", "journal", "knowledge", "mind", "mcp", "page", "row")


@dataclass
class Fuzzed:
    """The inputs of a run over one door and its finds: problem -> (name of the input, its bytes), the smallest."""

    door: str
    seed: int
    count: int = 0
    slowest_s: float = 0.0
    causes: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    @property
    def command(self) -> str:
        return f"python -m tests.faults.fuzz.run --door {self.door} --inputs {self.count} --seed {self.seed}"


def fuzz(door: str, worker: Worker, count: int, number: int = 0) -> Fuzzed:
    """Give `count` inputs to a door, chosen by the seed `number`."""
    run = Fuzzed(door, number)

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        derandomize=False,
    )
    @given(inputs(door, worker.files()))
    def take(sample: tuple[str, bytes]) -> None:
        name, data = sample
        answer = worker.ask(door, name, data)
        run.count += 1
        run.slowest_s = max(run.slowest_s, answer.cpu)
        for wrong in answer.wrong:
            cause = _cause(wrong)
            if cause not in run.causes or len(data) < len(run.causes[cause][1]):
                run.causes[cause] = (name, data)

    take()
    return run


def _fuzz(door: str, count: int, number: int) -> Fuzzed:
    with Worker() as worker:
        return fuzz(door, worker, count, number)


def _cause(wrong: str) -> str:
    """Return a problem without the parts that differ from input to input."""
    return wrong if len(wrong) < 240 else f"{wrong[:140]} … {wrong[-90:]}"


def corpus() -> Iterator[tuple[Path, str, str, bytes]]:
    """The corpus: (file, door, name of the input, its bytes)."""
    for path in sorted(CORPUS.glob("*.json")):
        record = json.loads(path.read_text())
        yield path, record["door"], record["name"], bytes.fromhex(record["data"])


def keep(door: str, name: str, data: bytes, problem: str) -> Path:
    """Put an input into the corpus, with what it did when it was found."""
    CORPUS.mkdir(exist_ok=True)
    path = CORPUS / f"{door}-{hashlib.sha256(name.encode() + data).hexdigest()[:12]}.json"
    path.write_text(json.dumps({"door": door, "name": name, "found": problem, "data": data.hex()}, indent=1) + "\n")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--door", action="append", choices=DOOR_NAMES)
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="put finds into the corpus")
    parser.add_argument(
        "--report", action="store_true", help="write tests/faults/report/fuzz.json and docs/promises.md"
    )
    options = parser.parse_args()
    total, rows, spawn = 0, [], multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        doors = options.door or DOOR_NAMES
        for run in pool.map(_fuzz, doors, repeat(options.inputs), repeat(options.seed)):
            door = run.door
            print(
                f"{door}: {run.count} inputs, the slowest {run.slowest_s:.2f} s of processor time, {len(run.causes)} found"
            )
            row = {"scenario": f"fuzz: {door}", "fault": "hostile input", "seed": options.seed, "count": run.count}
            broken = list(PROMISES) if run.causes else []
            rows.append({**row, "promises": list(PROMISES), "broken": broken, "violations": list(run.causes)})
            for problem, (name, data) in run.causes.items():
                total += 1
                print(f"  {problem}\n    {name!r} {len(data)} bytes: {data[:200]!r}", flush=True)
                if options.keep:
                    print(f"    {keep(door, name, data, problem)}")
    if options.report:
        write_part("fuzz", rows)
        write_table()
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
