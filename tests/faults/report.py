"""Write what was tried and found as JSON, and a summary of it into docs/promises.md.

Each part of the harness writes `tests/faults/report/<part>.json`: `{"part", "commit", "machine", "command", "took_s", "load",
"runs": [{"scenario", "fault", "seed", "promises", "broken", "violations"}], "left_out": {fault: why}, "notes": [sentences]}`.
`python -m tests.faults.report` writes the summary again from all parts, and prints the runs of each promise and fault.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from .faults import FAULTS
from .subject import REPOSITORY
from .trial import Trial

__all__ = [
    "BEGIN",
    "FOLDER",
    "PROMISES",
    "held_after",
    "numbers",
    "runs_of",
    "runs_of_this_commit",
    "write_part",
    "write_table",
]

FOLDER = Path(__file__).parent / "report"
PROMISES = REPOSITORY / "docs" / "promises.md"
_FOREIGN = {
    "power": "power",
    "hostile input": "input",
    "linked hives": "hives",
}  # faults that are made elsewhere, and what they are after
_BEGAN = time.monotonic()
BEGIN, END = "<!-- the harness writes from here -->", "<!-- to here -->"


def write_part(part: str, runs: Iterable[Mapping[str, Any]], **more: Any) -> None:
    """Write the finds of one part of the harness since this program was started. A long run, and one of some scenarios,
    has a separate file, which the next `make faults` keeps."""
    FOLDER.mkdir(exist_ok=True)
    words = [word for word in sys.argv[1:] if word not in ("--report", "--strict")]
    names = [value for option, value in pairwise(words) if option in ("--scenario", "--fault", "--door")]
    part = "-".join([part, *(["long"] if "--long" in words else []), *names])
    report = {
        "part": part, "commit": _commit(), "command": shlex.join(["python", "-m", _module(), *words]),
        "took_s": round(time.monotonic() - _BEGAN), "load": os.getloadavg()[0],
        "machine": f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {os.cpu_count()} cores",
        "runs": list(runs), **more,
    }  # fmt: skip
    (FOLDER / f"{part}.json").write_text(json.dumps(report, indent=1) + "\n")


def _module() -> str:
    """The program that runs, as `python -m` names it."""
    name = str(sys.modules["__main__"].__spec__.name)  # type: ignore[union-attr]
    return name.removesuffix(".__main__")


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False).stdout.strip()


def runs_of_this_commit() -> list[dict[str, Any]]:
    """Return the report's runs of this very program."""
    parts = [json.loads(path.read_text()) for path in FOLDER.glob("*.json")]
    return [run for part in parts if part["commit"] == _commit() for run in part["runs"]]


def runs_of(trials: Iterable[Trial]) -> Iterator[dict[str, Any]]:
    for trial in trials:
        broken = sorted({promise for promises, _, _ in trial.violations for promise in promises})
        yield {
            "scenario": trial.scenario, "fault": trial.fault, "seed": trial.seed, "durability": trial.durability,
            "promises": trial.covered, "broken": broken, "violations": [sentence for _, _, sentence in trial.violations],
        }  # fmt: skip


def write_table() -> None:
    """Write the summary of the last run into docs/promises.md, between its two marks."""
    text = PROMISES.read_text("utf-8")
    before, _, tail = text.partition(BEGIN)
    PROMISES.write_text(f"{before}{BEGIN}\n\n{_summary()}\n{END}{tail.partition(END)[2]}", "utf-8")


def _parts() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]


def _summary() -> str:
    lines = ["| part | commit | runs | with violations |", "|---|---|---|---|"]
    for part in _parts():
        broken = sum(bool(run["violations"]) for run in part["runs"])
        runs = sum(map(_count, part["runs"])) if part["runs"] else part["notes"][0]
        lines.append(f"| {part['part']} | {part['commit']} | {runs} | {broken} |")
    return "\n".join(lines) + "\n"


def table() -> str:
    """Return the parts with their notes, and the runs of each promise and of each fault."""
    parts = _parts()
    runs = [run for part in parts for run in part["runs"]]
    lines = []
    for part in parts:
        took = f"{part['took_s']} s, load {part['load']:.1f} at its end; " if "took_s" in part else ""
        lines.append(f"* {part['part']}: commit {part['commit']}; `{part['command']}`; {took}{part['machine']}")
        lines += [f"  * left out: {fault}: {reason}" for fault, reason in part.get("left_out", {}).items()]
        lines += [f"  * {note}" for note in part.get("notes", ())]
    kinds = (*dict.fromkeys(fault.after for fault in FAULTS.values()), *_FOREIGN.values())
    lines += ["", "Runs of each promise, by the kind of fault:", "",
              f"| promise | {' | '.join(kinds)} | violations |", f"|---|{'---|' * len(kinds)}---|"]  # fmt: skip
    for promise in numbers():
        matches = [run for run in runs if promise in run["promises"] or promise in run["broken"]]
        counts = [sum(_count(run) for run in matches if _kind(run["fault"]) == kind) for kind in kinds]
        cells = (
            " | ".join(str(count or "") for count in counts)
            if matches
            else "see the test beside it" + " |" * (len(kinds) - 1)
        )
        lines.append(f"| {promise} | {cells} | {sum(promise in run['broken'] for run in matches)} |")
    lines += ["", "Runs of each fault, with the plans' seeds (`python -m tests.faults --scenario S --fault F --seed N`):",
              "", "| fault | runs | scenarios: seeds | violations |", "|---|---|---|---|"]  # fmt: skip
    for fault in dict.fromkeys(run["fault"] for run in runs):
        matches = [run for run in runs if run["fault"] == fault]
        seeds = {
            scenario: sorted({run["seed"] for run in matches if run["scenario"] == scenario})
            for scenario in dict.fromkeys(run["scenario"] for run in matches)
        }
        cells = ", ".join(f"{scenario}: {' '.join(map(str, numbers_))}" for scenario, numbers_ in seeds.items())
        lines.append(
            f"| {fault} | {sum(map(_count, matches))} | {cells} | {sum(bool(run['violations']) for run in matches)} |"
        )
    return "\n".join(lines) + "\n"


def _kind(fault: str) -> str:
    return _FOREIGN.get(fault) or FAULTS[fault].after


def held_after(fault: str) -> set[str]:
    """The promises that hold after a fault: `kill`, `disk`, `pause`, `clock`, `late` or `power`."""
    rows = re.findall(r"^\| (P\d+) \| .+? \| (.+?) \|", PROMISES.read_text("utf-8").partition(BEGIN)[0], re.MULTILINE)
    names = {fault, "all"} if fault in ("kill", "disk", "pause", "clock", "power") else {fault}
    return {number for number, faults in rows if names & set(faults.split(", "))}


def _count(run: Mapping[str, Any]) -> int:
    """Return the number of runs in a row: states of a disk, inputs of a fuzz."""
    return int(run.get("count", 1))


def numbers() -> list[str]:
    """The promises' numbers, in their order."""
    return re.findall(r"^\| (P\d+) \|", PROMISES.read_text("utf-8").partition(BEGIN)[0], re.MULTILINE)


if __name__ == "__main__":
    write_table()
    sys.stdout.write(table())
