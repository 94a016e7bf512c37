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
from hivemind.mail.intake import read_taken_keys

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
        beside = hive.layout.root / "beside.md"
        beside.write_text(_TASK % (f"t{at}", _marks(hive), at))
        os.rename(beside, hive.layout.inbox / f"t{at}.md")
    for at in letters:
        hive.mail.send("human", names[at % len(names)], f"letter {at}", _LETTER, message_id=f"letter-{at}@soak")


def _held(swarm: int, hive: Hive) -> Counter[str]:
    """What a swarm holds just now."""
    disk = subprocess.run(["du", "-sk", hive.layout.root], capture_output=True, text=True).stdout.split()[0]
    held = Counter({"disk, MB": int(disk) / 1024})
    for pid in family(swarm):
        with suppress(OSError):  # it has ended meanwhile
            descriptors, threads = os.listdir(f"/proc/{pid}/fd"), os.listdir(f"/proc/{pid}/task")
            held.update({"memory, MB": share_mb(pid), "descriptors": len(descriptors), "threads": len(threads)})
    return held


def _broken(hive: Hive, tasks: int, letters: int) -> Iterator[tuple[str, int]]:
    """How often each promise was broken: P1 to P4, P13, P16, P41."""
    layout, given = hive.layout, {f"t{at}" for at in range(tasks)}
    ran = Counter(_marks(hive).read_text().split()) if tasks else Counter()
    told = Counter(event.payload["task_id"] for event in hive.journal.events() if event.kind == "task.done")
    yield (
        "tasks that are not done",
        len(given ^ {path.name for path in layout.done.iterdir() if (path / "result.md").exists()}),
    )
    yield "tasks that lie elsewhere", sum(len(os.listdir(where)) for where in (layout.inbox, layout.failed))
    yield "tasks whose end was not told once", sum(told[name] != 1 for name in given)
    yield "tasks whose command did not run once", sum(ran[name] != 1 for name in given)
    boxes = {name: [one.id for one in hive.mail.list(name)] for name in hive.agents}
    there = Counter(id_ for ids in boxes.values() for id_ in ids)
    yield "letters that are not there once", sum(there[f"letter-{at}@soak"] != 1 for at in range(letters))
    taken = sum(len(read_taken_keys(layout.agent_state(name) / "mail-taken")) for name in boxes)
    yield "letters that were not taken in once", abs(letters - taken)
    doctor = subprocess.run(
        [sys.executable, "-m", "hivemind", "doctor", "--json"], cwd=layout.root, capture_output=True
    )
    yield "what the doctor finds", sum(not one["note"] for one in json.loads(doctor.stdout)["findings"])


def soak(agents: int, tasks: int, letters: int, minutes: int = 0) -> list[Row]:
    """The rows; what it holds is told on the way, too."""
    hive = Hive.open(new_hive(f"replicas: {agents}\nrole: worker\n").root)
    parts, what = minutes or 1, f"{agents} agents, {tasks:,} tasks, {letters:,} letters"
    given = [(range(at, tasks, parts), range(at, letters, parts)) for at in range(parts)]
    if not minutes:
        _give(hive, *given.pop())
    before, began = os.times(), time.monotonic()
    with up(hive.layout.root) as swarm:
        until(lambda: len(family(swarm)) > agents)
        first = _held(swarm, hive)
        for number, (some_tasks, some_letters) in enumerate(given, 1):
            _give(hive, some_tasks, some_letters)
            time.sleep(max(0.0, began + 60 * number - time.monotonic()))
            print(number, dict(_held(swarm, hive)), flush=True)
        until(
            lambda: len(os.listdir(hive.layout.done)) + len(os.listdir(hive.layout.failed)) >= tasks,
            limit_s=_HOUR_S,
            pause_s=0.5,
        )
        worked = time.monotonic() - began
        until(lambda: not any(hive.mail.count_unread(name) for name in hive.agents), limit_s=_HOUR_S, pause_s=0.5)
        took, last = time.monotonic() - began, _held(swarm, hive)
    now = os.times()
    used = now.children_user + now.children_system - before.children_user - before.children_system
    rows = [Row(f"{what}: all tasks done after", worked, "s"), Row(f"{what}: all letters read after", took, "s")]
    rows.append(Row(f"{what}: processor time of all", used, "s", note=f"{used / took:.1%} of a core"))
    rows += [Row(f"{what}: {name}", last[name], "", "at its beginning", first[name]) for name in sorted(first)]
    return rows + [Row(f"{what}: {name}", count, "", target=0) for name, count in _broken(hive, tasks, letters)]


if __name__ == "__main__":
    show("A soak", soak(*map(int, sys.argv[1:])))
