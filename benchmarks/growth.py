"""Growth: the same operation on a small hive and on hives ten and a hundred times as large.

Run as `python -m benchmarks.growth [--quick]`, or `python -m benchmarks.growth PART SIZE…` for other sizes: each figure
is compared with the size before, in seconds of the processor, which a loaded machine measures as well.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.hives import new_hive
from benchmarks.processes import at_once, share_mb
from benchmarks.table import Row, show
from hivemind.doctor.checkup import examine
from hivemind.doctor.context import DoctorContext
from hivemind.hive import Hive
from hivemind.mail import Intake
from hivemind.swarm.overview import overview

__all__ = ["run"]

_Figures = dict[str, tuple[float, str]]
_LETTER = "A line of a message as agents write them.\n" * 12
_TIMES = 50


def _hive() -> Hive:
    return Hive.open(new_hive("role: worker\n").root)


def _drop(hive: Hive, number: int) -> None:
    for at in range(number):
        (hive.layout.inbox / f"t{at}-{time.time_ns()}.md").write_text(
            f"---\nsteps: [{{run: 'true'}}]\n---\n# Pump {at}\n"
        )
    time.sleep(0.3)  # where the file system knows no leases, files must have rested


def _ms(action: Callable[[], object], times: int = 1) -> float:
    """Processor milliseconds of one of so many calls."""
    began = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - began) * 1000 / times


def _backlog(number: int) -> _Figures:
    hive = _hive()
    _drop(hive, number)
    first = _ms(lambda: hive.tasks.claim("w"))
    return {
        "first claim, a file that waits": (first * 1000 / number, "µs"),
        "a claim, files waiting": (_ms(lambda: hive.tasks.claim("w"), _TIMES), "ms"),
        "status, a file that waits": (_ms(lambda: overview(hive)) * 1000 / number, "µs"),
    }


def _done(number: int) -> _Figures:
    hive = _hive()

    def work_off() -> None:
        task = hive.tasks.claim("w")
        assert task is not None
        step = hive.steps.plan(task.id, [{"title": "a"}], agent_id="w", leased_to="w")[0]
        hive.steps.done(step.id, "w", 1, evidence={"kind": "CMD", "text": "true"}, confirm=("criteria", "tests"))
        hive.tasks.finish(task, "done")
        hive.steps.end_task(task.id, agent_id="w", has_left_active=True)

    _drop(hive, number + _TIMES)
    for _ in range(number):
        work_off()
    hive.journal.snapshot()
    task_ms = _ms(work_off, _TIMES)
    hive.journal.close()
    gc.collect()
    before = share_mb(os.getpid())
    reader = Hive.open(hive.layout.root)
    opening = _ms(lambda: reader.journal.seq)
    return {
        "a task more, tasks over": (task_ms, "ms"),
        "opening the journal, tasks over": (opening, "ms"),
        "memory of an open journal, tasks over": (share_mb(os.getpid()) - before, "MB"),
        "status, tasks over": (_ms(lambda: overview(reader)), "ms"),
        "task list, a task that is over": (_ms(reader.tasks.list) * 1000 / number, "µs"),
        "the latest 50 of them, a task that is over": (_ms(lambda: reader.tasks.list(limit=50)) * 1000 / number, "µs"),
        "doctor, a task that is over": (_ms(lambda: examine(DoctorContext(reader.layout))) * 1000 / number, "µs"),
    }


def _letters(number: int) -> _Figures:
    hive = _hive()
    for at in range(number):
        hive.mail.send("human", "w", f"letter {at}", _LETTER)
    intake = Intake(hive.mail, "w", hive.layout.agent_state("w"))
    first = _ms(lambda: intake.new_messages(1)) * 1000 / number

    def take_in() -> None:
        while not (letters := intake.new_messages(1)):
            time.sleep(0.001)
        intake.mark_taken(letters[0])

    letter_ms = _ms(take_in, _TIMES)
    while intake.new_messages(1):
        take_in()
    hive.mail.send("human", "w", "one more", _LETTER)
    return {
        "first look, a letter in the box": (first, "µs"),
        "a letter taken in, letters waiting": (letter_ms, "ms"),
        "a letter taken in, letters read": (_ms(take_in), "ms"),
        "a letter sent, letters in the box": (_ms(lambda: hive.mail.send("human", "w", "x", _LETTER), _TIMES), "ms"),
    }


def _steps(number: int) -> _Figures:
    hive = _hive()
    plan = [{"title": f"step {at}"} for at in range(number)]
    planning_us = _ms(lambda: hive.steps.plan("t", plan, agent_id="w")) * 1000 / number
    step = hive.steps.list("t")[0].id
    return {
        "planning, a step": (planning_us, "µs"),
        "a note of a step, steps in the task": (_ms(lambda: hive.steps.note(step, "x", agent_id="w"), _TIMES), "ms"),
    }


def _apart(measure: Callable[[int], _Figures], number: int) -> _Figures:
    """Return the figures of a fresh process, for its memory."""
    return at_once(lambda _: lambda: measure(number))[0]


def _grown(measure: Callable[[int], _Figures], sizes: Sequence[int]) -> Iterator[Row]:
    before: _Figures = {}
    smaller = ""
    for number in sizes:
        figures = _apart(measure, number)
        for name, (value, unit) in figures.items():
            baseline_value, _ = before.get(name, (None, ""))
            yield Row(f"{name}: {number:,}", value, unit, smaller, baseline_value)
        before, smaller = figures, f"at {number:,}"


_PARTS: dict[str, tuple[Callable[[int], _Figures], Sequence[int]]] = {
    "waiting": (_backlog, (500, 5_000, 50_000)),
    "letters": (_letters, (500, 5_000, 50_000)),
    "done": (_done, (100, 1_000, 10_000)),
    "steps": (_steps, (30, 300, 3_000)),
}


def run(quick: bool = False) -> list[Row]:
    """The rows; about two minutes, with `quick` some seconds."""
    rows: list[Row] = []
    for measure, sizes in _PARTS.values():
        rows += _grown(measure, [size // 10 for size in sizes[:2]] if quick else sizes)
    return rows


if __name__ == "__main__":
    part, *sizes = [word for word in sys.argv[1:] if word != "--quick"] or [""]
    if part:
        show(f"How things grow: {part}", _grown(_PARTS[part][0], [int(size) for size in sizes]))
    else:
        show("How things grow", run(quick="--quick" in sys.argv))
