"""Bytes that find their own way: `python -m tests.faults.fuzz.guided [--door NAME] [--seconds N] [--inputs N] [--report]`.

atheris (libFuzzer) changes files of a hive and of the corpus, keeps inputs that reach new code, and
continues from there. Finds are put into corpus/, as by `run.py`. Each door has a separate process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.faults.fuzz.run import CORPUS, PROMISES, corpus, keep
from tests.faults.report import write_part, write_table

NAMES = {  # what an input is called, by its first byte
    "task": ("in.md", "in.txt", "in.yaml"),
    "letter": ("note",),
    "file": (),  # each file of the hive
    "journal": ("",),
    "knowledge": ("in.md", "in.py", "in.html", "in.toml", "in.eml", "in.rst"),
    "mind": ("",),
    "page": ("text",),
    "mcp": ("",),  # the server is another process, its code is not seen: its lines are changed blindly
}
_SECONDS_EACH = 20


def fuzz(door: str, seconds: int, inputs: int, report: Path) -> None:
    """Never returns: libFuzzer ends the process when the time is up, or all inputs are tried. The file `report` holds
    the number of inputs and the finds."""
    import atheris

    with atheris.instrument_imports(include=["hivemind"]):
        from tests.faults.fuzz.doors import DOORS, Doors
    base = Path(tempfile.mkdtemp(prefix="hive-guided-"))
    doors = Doors(base)
    names = NAMES[door] or tuple(doors.files())
    seeds = base / "seeds"
    seeds.mkdir()
    first = [doors.content(name) for name in doors.files()] if door != "file" else []
    first += [data for _, of, _, data in corpus() if of == door]
    for number, data in enumerate(first):
        (seeds / str(number)).write_bytes(b"\0" + data)
    if door == "file":
        for number, name in enumerate(names):
            (seeds / str(number)).write_bytes(bytes([number]) + doors.content(name))
    causes: dict[str, str] = {}
    count = 0

    def take(data: bytes) -> None:
        nonlocal count
        count, name, body = count + 1, names[(data[:1] or b"\0")[0] % len(names)], data[1:]
        try:
            wrong = list(DOORS[door](doors, name, body))
        except Exception as error:  # the fuzzer looks for these
            wrong = [f"{type(error).__name__}: {str(error)[:200]}"]
        for problem in wrong:
            if (cause := problem[:60]) not in causes:
                causes[cause] = str(keep(door, name, body, problem))
        report.write_text(json.dumps({"tried": count, "found": causes}))

    limits = [
        f"-max_total_time={seconds}",
        f"-runs={inputs}",
        f"-timeout={_SECONDS_EACH}",
        "-rss_limit_mb=6000",
        "-max_len=20000",
    ]
    atheris.Setup([sys.argv[0], *limits, "-verbosity=0", str(seeds)], take)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--door", action="append", choices=NAMES)
    parser.add_argument("--seconds", type=int, default=600, help="for each door")
    parser.add_argument("--inputs", type=int, default=-1, help="for each door; else as many as there is time for")
    parser.add_argument(
        "--report", action="store_true", help="write tests/faults/report/guided.json and docs/promises.md"
    )
    parser.add_argument("--told", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.told:
        fuzz(options.door[0], options.seconds, options.inputs, options.told)
    rows: list[dict[str, Any]] = []
    for door in options.door or NAMES:
        with tempfile.TemporaryDirectory(prefix="hive-guided-") as folder:
            report = Path(folder) / "told.json"
            report.write_text('{"tried": 0, "found": {}}')
            words = [
                "--door",
                door,
                "--seconds",
                str(options.seconds),
                "--inputs",
                str(options.inputs),
                "--told",
                str(report),
            ]
            command = [sys.executable, "-m", "tests.faults.fuzz.guided", *words]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                cwd=folder,
                env={**_environment(), "TMPDIR": folder},
                check=False,
            )
            report_json = json.loads(report.read_text())
        violations = list(report_json["found"])
        if done.returncode:  # it took too long over one, or too much memory
            violations.append(f"the process ended with {done.returncode}: {done.stderr[-300:]}")
        print(f"{door}: {report_json['tried']} inputs, {len(violations)} found", *violations, sep="\n  ", flush=True)
        rows.append({
            "scenario": f"guided: {door}", "fault": "hostile input", "seed": 0, "count": report_json["tried"],
            "promises": list(PROMISES), "broken": list(PROMISES) if violations else [], "violations": violations,
        })  # fmt: skip
    if options.report:
        write_part("guided", rows)
        write_table()
    return 1 if any(row["violations"] for row in rows) else 0


def _environment() -> dict[str, str]:
    import os

    return {
        **os.environ,
        "PYTHONPATH": f"{CORPUS.parents[3]}:{os.environ.get('PYTHONPATH', '')}",
        "HIVEMIND_EMBEDDER": "none",
    }


if __name__ == "__main__":
    sys.exit(main())
