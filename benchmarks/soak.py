"""A soak: a whole swarm under load, what it holds meanwhile, and whether it kept what it promises.

`python -m benchmarks.soak AGENTS TASKS LETTERS [MINUTES]`: tasks and letters come at once, or in equal parts each minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.hives import new_hive, up
from benchmarks.processes import family, share_mb, until
from benchmarks.table import Row, show
from hivemind.hive import Hive
from hivemind.mail.intake import IntakeRecord

__all__ = ["soak"]

_HOUR_S = 3600.0
_TASK = "---\nsteps: [{run: 'echo %s >> %s'}]\n---\n# Look at pump %s\n"
_LETTER = "A line of a message as agents write them.\n" * 12


def _marks(hive: Hive) -> Path:
    """The file in which each command leaves its task's name, each time that it runs."""
    return hive.layout.root.with_name(hive.layout.root.name + ".ran")


def _give(hive: Hive, tasks: Iterable[int], letters: Iterable[int]) -> None:
    names = list(hive.agents)
    for at in tasks:
        draft = hive.layout.root / "beside.md"
        draft.write_text(_TASK % (f"t{at}", _marks(hive), at))
        os.rename(draft, hive.layout.inbox / f"t{at}.md")
    for at in letters:
        hive.mail.send("human", names[at % len(names)], f"letter {at}", _LETTER, message_id=f"letter-{at}@soak")


def _resources(swarm: int, hive: Hive) -> Counter[str]:
    """Count the resources that a swarm holds now."""
    disk = subprocess.run(["du", "-sk", hive.layout.root], capture_output=True, text=True).stdout.split()[0]
    resources = Counter({"disk, MB": int(disk) / 1024})
    for pid in family(swarm):
        with suppress(OSError):  # it ended meanwhile
            descriptors, threads = os.listdir(f"/proc/{pid}/fd"), os.listdir(f"/proc/{pid}/task")
            resources.update({"memory, MB": share_mb(pid), "descriptors": len(descriptors), "threads": len(threads)})
    return resources


def _broken(hive: Hive, tasks: int, letters: int) -> Iterator[tuple[str, int]]:
    """Count how often each promise was broken: P1 to P4, P13, P16, P41."""
    layout, task_ids = hive.layout, {f"t{at}" for at in range(tasks)}
    ran = Counter(_marks(hive).read_text().split()) if tasks else Counter()
    done_events = Counter(event.payload["task_id"] for event in hive.journal.events() if event.kind == "task.done")
    yield (
        "tasks that are not done",
        len(task_ids ^ {path.name for path in layout.done.iterdir() if (path / "result.md").exists()}),
    )
    yield "tasks that lie elsewhere", sum(len(os.listdir(folder)) for folder in (layout.inbox, layout.failed))
    yield "tasks whose end was not told once", sum(done_events[name] != 1 for name in task_ids)
    yield "tasks whose command did not run once", sum(ran[name] != 1 for name in task_ids)
    boxes = {name: [letter.id for letter in hive.mail.list(name)] for name in hive.agents}
    letter_counts = Counter(id_ for ids in boxes.values() for id_ in ids)
    yield "letters that are not there once", sum(letter_counts[f"letter-{at}@soak"] != 1 for at in range(letters))
    taken_letters = sum(len(IntakeRecord(str(layout.agent_state(name) / "mail-taken")).taken_keys) for name in boxes)
    yield "letters that were not taken in once", abs(letters - taken_letters)
    doctor = subprocess.run(
        [sys.executable, "-m", "hivemind", "doctor", "--json"], cwd=layout.root, capture_output=True
    )
    yield "what the doctor finds", sum(not finding["note"] for finding in json.loads(doctor.stdout)["findings"])


def soak(agents: int, tasks: int, letters: int, minutes: int = 0) -> list[Row]:
    """Return the rows; print the held resources on the way."""
    hive = Hive.open(new_hive(f"replicas: {agents}\nrole: worker\n").root)
    parts, load = minutes or 1, f"{agents} agents, {tasks:,} tasks, {letters:,} letters"
    batches = [(range(at, tasks, parts), range(at, letters, parts)) for at in range(parts)]
    if not minutes:
        _give(hive, *batches.pop())
    before, began = os.times(), time.monotonic()
    with up(hive.layout.root) as swarm:
        until(lambda: len(family(swarm)) > agents)
        first = _resources(swarm, hive)
        for number, (some_tasks, some_letters) in enumerate(batches, 1):
            _give(hive, some_tasks, some_letters)
            time.sleep(max(0.0, began + 60 * number - time.monotonic()))
            print(number, dict(_resources(swarm, hive)), flush=True)
        until(
            lambda: len(os.listdir(hive.layout.done)) + len(os.listdir(hive.layout.failed)) >= tasks,
            limit_s=_HOUR_S,
            pause_s=0.5,
        )
        worked = time.monotonic() - began
        until(lambda: not any(hive.mail.count_unread(name) for name in hive.agents), limit_s=_HOUR_S, pause_s=0.5)
        took, last = time.monotonic() - began, _resources(swarm, hive)
    now = os.times()
    busy_s = now.children_user + now.children_system - before.children_user - before.children_system
    rows = [Row(f"{load}: all tasks done after", worked, "s"), Row(f"{load}: all letters read after", took, "s")]
    rows.append(Row(f"{load}: processor time of all", busy_s, "s", note=f"{busy_s / took:.1%} of a core"))
    rows += [Row(f"{load}: {name}", last[name], "", "at its beginning", first[name]) for name in sorted(first)]
    return rows + [Row(f"{load}: {name}", count, "", target=0) for name, count in _broken(hive, tasks, letters)]


if __name__ == "__main__":
    show("A soak", soak(*map(int, sys.argv[1:])))
