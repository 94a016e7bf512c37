"""What was tried and what was found: JSON for programs, and the table in docs/promises.md, made from it.

Each part of the harness writes `tests/faults/report/<part>.json`: `{"part", "commit", "machine", "command", "runs":
[{"scenario", "fault", "seed", "promises", "broken", "violations"}], "left_out": {fault: why}, "notes": [sentences]}`.
`python -m tests.faults.report` makes the table anew from all parts that there are.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .subject import REPOSITORY
from .trial import Trial

__all__ = ["BEGIN", "FOLDER", "PROMISES", "held_after", "numbers", "runs_of", "write_part", "write_table"]

FOLDER = Path(__file__).parent / "report"
PROMISES = REPOSITORY / "docs" / "promises.md"
BEGIN, END = "<!-- the harness writes from here -->", "<!-- to here -->"


def write_part(part: str, command: str, runs: Iterable[Mapping[str, Any]], **more: Any) -> None:
    """Write what one part of the harness has found."""
    FOLDER.mkdir(exist_ok=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=REPOSITORY, check=False
    ).stdout.strip()
    machine = f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    told = {"part": part, "commit": commit, "machine": machine, "command": command, "runs": list(runs), **more}
    (FOLDER / f"{part}.json").write_text(json.dumps(told, indent=1) + "\n")


def runs_of(trials: Iterable[Trial]) -> Iterator[dict[str, Any]]:
    for trial in trials:
        broken = sorted({promise for promises, _, _ in trial.violations for promise in promises})
        yield {
            "scenario": trial.scenario, "fault": trial.fault, "seed": trial.seed, "durability": trial.durability,
            "promises": trial.checked, "broken": broken, "violations": [sentence for _, _, sentence in trial.violations],
        }  # fmt: skip


def write_table() -> None:
    """Put the last run beside each promise: the part of docs/promises.md that no person writes."""
    text = PROMISES.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    PROMISES.write_text(f"{before}{BEGIN}\n\n{table()}\n{END}{rest.partition(END)[2]}", "utf-8")


def table() -> str:
    parts = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    lines = []
    for part in parts:
        runs = part["runs"]
        if not runs:
            lines += [f"* {part['part']}: commit {part['commit']}; `{part['command']}`"]
            lines += _notes(part)
            continue
        seeds = sorted({run["seed"] for run in runs})
        lines += textwrap.wrap(
            f"* {part['part']}: {sum(map(_count, runs))} runs of {len({run['scenario'] for run in runs})} scenarios under "
            f"{len({run['fault'] for run in runs})} faults, seeds {seeds[0]} to {seeds[-1]}, "
            f"{sum(bool(run['violations']) for run in runs)} with violations; commit {part['commit']}; {part['machine']}; "
            f"`{part['command']}`",
            120, subsequent_indent="  ",
        )  # fmt: skip
        lines += [f"  * left out: {fault}: {why}" for fault, why in part.get("left_out", {}).items()]
        lines += _notes(part)
    lines += ["", "| promise | runs | violations | faults tried |", "|---|---|---|---|"]
    runs = [run for part in parts for run in part["runs"]]
    for promise in numbers():
        mine = [run for run in runs if promise in run["promises"] or promise in run["broken"]]
        broken = sum(promise in run["broken"] for run in mine)
        faults = ", ".join(sorted({run["fault"] for run in mine})) or "none by the harness; see the test beside it"
        lines.append(f"| {promise} | {sum(map(_count, mine))} | {broken} | {faults} |")
    return "\n".join(lines) + "\n"


def _notes(part: Mapping[str, Any]) -> Iterator[str]:
    for note in part.get("notes", ()):
        yield from textwrap.wrap(f"  * {note}", 120, subsequent_indent="    ", break_long_words=False)


def held_after(fault: str) -> set[str]:
    """The promises that hold after a fault: `kill`, `disk`, `pause`, `clock`, `late` or `power`."""
    rows = re.findall(r"^\| (P\d+) \| .+? \| (.+?) \|", PROMISES.read_text("utf-8").partition(BEGIN)[0], re.MULTILINE)
    return {number for number, faults in rows if fault in faults.split(", ")}


def _count(run: Mapping[str, Any]) -> int:
    """How many runs a row stands for: states of a disk, inputs of a fuzz."""
    return int(run.get("count", 1))


def numbers() -> list[str]:
    """The promises' numbers, in their order."""
    return re.findall(r"^\| (P\d+) \|", PROMISES.read_text("utf-8").partition(BEGIN)[0], re.MULTILINE)


if __name__ == "__main__":
    write_table()
