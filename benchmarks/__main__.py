"""`python -m benchmarks [TOPIC…] [--quick]` (`make bench`): measure, print the tables, write them and a picture."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from benchmarks.machine import Machine, load
from benchmarks.plot import NoPlot, plot
from benchmarks.report import Report
from benchmarks.table import show
from benchmarks.topics import TOPICS, Outcome, Topic, run

__all__ = ["main"]

RESULTS = Path(__file__).parent / "results"
LATEST = "latest"


def main(argv: Sequence[str] | None = None, *, topics: Sequence[Topic] = TOPICS, results: Path = RESULTS) -> int:
    """Run the benchmarks; 0 if all ran, 1 if a topic failed, 2 for wrong use."""
    arguments = _arguments(argv, topics)
    selected_topics = [topic for topic in topics if not arguments.topics or topic.name in arguments.topics]
    folder = Path(tempfile.mkdtemp(prefix="hivemind-benchmarks-"))
    folder.chmod(0o755)  # a PostgreSQL server that root starts is another user's
    try:
        report = _measure(selected_topics, arguments.quick, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # at the very end: creating files is slow where many were unlinked
    is_full_run = not arguments.quick and len(selected_topics) == len(topics)
    for name in [report.name, LATEST] if is_full_run else [report.name]:
        _write(report, results / name)
    if not is_full_run:
        _say(f"(only a full run of every topic becomes {LATEST}.md)")
    return 0 if all(outcome.error is None for outcome in report.outcomes) else 1


def _arguments(argv: Sequence[str] | None, topics: Sequence[Topic]) -> argparse.Namespace:
    names = [topic.name for topic in topics]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, to see that it runs")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.topics if name not in names]
    if unknown:
        parser.error(f"no topic {unknown[0]!r}; there are: {', '.join(names)}")
    return arguments


def _measure(topics: Sequence[Topic], quick: bool, folder: Path) -> Report:
    began, machine, loads = datetime.now(), Machine.detect(folder), [load()]
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(
        machine.cores if quick else 1
    ) as several:  # a quick run checks that topics run; its figures are worthless
        for outcome in several.map(lambda topic: run(topic, quick=quick, folder=folder / topic.name), topics):
            outcomes.append(outcome)
            loads.append(load())
            if outcome.error is None:
                show(f"{outcome.topic.title} ({outcome.seconds:.0f} s)", outcome.rows)
            else:
                _say(f"{outcome.topic.name} failed: {outcome.error}")
    return Report(began, machine, quick, outcomes, loads)


def _write(report: Report, path: Path) -> None:
    """Write a report and its picture; print their paths, or why the picture is missing."""
    report.write(path)
    _say(f"{path}.md")
    try:
        plot(report, path.with_name(path.name + ".png"))
    except NoPlot as problem:
        _say(str(problem))
    else:
        _say(f"{path}.png")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
