"""Landing the work of several tasks, compared with landing each branch by hand: wall time, checks, tokens; one task alone.

Run as `python -m benchmarks.landing [--quick]`. The branches are made by a script, as agents would have left them: three of the
16 tasks conflict with each other, two fail the check, and agents that mend these are a script too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.hives import up
from benchmarks.processes import until
from benchmarks.table import Row, show
from hivemind.hive import Hive
from tests.faults.landing import add_part, coders, task_text
from tests.faults.person import git

__all__ = ["run"]

_FAILS = 'test -z "$(ls -d pieces/bad-* 2>/dev/null)"'


def _repository(files: int = 0) -> Path:
    app = Path(tempfile.mkdtemp(prefix="app-"))
    git(app, "init", "-q", "-b", "main")
    (app / "boat").write_text("a boat\n")
    for number in range(files):
        path = app / f"d{number // 1000}/e{number // 50}/{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 10)
    git(app, "add", "-A")
    git(app, "commit", "-q", "-m", "Begin")
    return app


def _hive(app: Path, check: Sequence[str], agents: int = 3, land: str = "ask") -> Hive:
    root = Path(tempfile.mkdtemp(prefix="hive-"))
    roots = [{"path": str(app), "worktree": True, "land": land, "check": list(check), "check_box": "none"}]
    (root / "hive.yaml").write_text(f"durability: relaxed\nsettle_ms: 0\nroots: {json.dumps(roots)}\n")
    (root / "agents").mkdir()
    for name, settings in coders(("ada", "bob", "cyd")[:agents]).items():
        (root / "agents" / f"{name}.yaml").write_text(json.dumps(settings))
    return Hive.open(root)


def _tasks(clean: int, conflicts: int, red: int) -> dict[str, str]:
    tasks = {}
    for number in range(clean):
        name = f"clean-{number}"
        tasks[name] = task_text(name, [add_part(name)])
    for number in range(conflicts):
        name = f"conflict-{number}"
        tasks[name] = task_text(name, [add_part(name), f"grep -q {name} boat || sed -i '1s/.*/{name}/' boat"])
    for number in range(red):
        name, bad = f"red-{number}", f"pieces/bad-{number}"
        tasks[name] = task_text(name, [add_part(name), f"echo x > {bad}"], f"git rm -q -f --ignore-unmatch {bad}")
    return tasks


def _messages(hive: Hive, task: str) -> list[dict[str, Any]]:
    lines = (hive.layout.root / "tasks/done" / task / "messages.jsonl").read_text().splitlines()
    return [message for message in map(json.loads, lines) if "role" in message]


def _tokens_after_finish(hive: Hive, task: str) -> int:
    """The tokens that the task's mind has used after its first `finish_task`."""
    messages = _messages(hive, task)
    first = next(at for at, message in enumerate(messages) if message.get("result", {}).get("state") == "landing")
    return sum(sum(message.get("usage", {}).values()) for message in messages[first:])


def _several(clean: int, conflicts: int, red: int, check_s: float) -> Iterator[Row]:
    """All wait for a person, who says yes to all at once; the same branches are then landed by hand in a copy."""
    app = _repository()
    count = app.with_name(f"{app.name}.checks")
    check = [f"echo x >> {count}; sleep {check_s}; {_FAILS}"]
    hive, tasks = _hive(app, check), _tasks(clean, conflicts, red)
    for name, text in tasks.items():
        hive.tasks.add(text, id=name)
    with up(hive.layout.root):
        until(lambda: _parked_count(hive) == len(tasks), lambda: f"{_parked_count(hive)} tasks are finished")
    by_hand = Path(tempfile.mkdtemp(prefix="hand-"))
    subprocess.run(["cp", "-r", app, by_hand / "app"], check=True)
    root = hive.layout.root
    text = (root / "hive.yaml").read_text()
    (root / "hive.yaml").write_text(text.replace('"land": "ask"', '"land": "auto"'))
    began = time.perf_counter()
    with up(root):
        until(lambda: _done(hive, tasks) == len(tasks), lambda: f"{_done(hive, tasks)} tasks have landed")
        landed_s = time.perf_counter() - began
    checks = count.read_text().count("x")
    returned = {event.payload["task_id"] for event in hive.journal.events() if event.kind == "landing.returned"}
    tokens = {name: _tokens_after_finish(hive, name) for name in tasks}
    hand_s, hand_checks = _by_hand(by_hand / "app", list(tasks), check_s)
    title = f"{len(tasks)} tasks landed, {conflicts} of them in conflict, {red} red"
    yield Row(title, landed_s, "s", "one by one by hand", hand_s)
    yield Row("checks run for them", checks, "", "one by one by hand", hand_checks, target=hand_checks / 2)
    mergers = sum(count for name, count in tokens.items() if name not in returned)
    note = f"{len(returned)} returned used {sum(tokens.values()) - mergers:,}"
    yield Row("tokens of minds on merging, for tasks that were not returned", mergers, "", note=note, target=0)


def _parked_count(hive: Hive) -> int:
    return sum(task.parked is not None and "hivemind land" in task.parked.reason for task in hive.tasks.list())


def _done(hive: Hive, tasks: dict[str, str]) -> int:
    return sum((hive.layout.root / "tasks/done" / name).is_dir() for name in tasks)


def _by_hand(app: Path, names: Sequence[str], check_s: float) -> tuple[float, int]:
    """Merge each branch, check, and go on; what conflicts or is red is mended at once, and checked again."""
    began, checks = time.perf_counter(), 0

    def check() -> bool:
        nonlocal checks
        checks += 1
        return subprocess.run(["sh", "-c", f"sleep {check_s}; {_FAILS}"], cwd=app, check=False).returncode == 0

    for name in names:
        git(app, "merge", "-q", "--no-ff", "--no-edit", f"hive/{name}", check=False)
        if git(app, "ls-files", "--unmerged"):
            (app / "boat").write_text(f"{name}\n")
            git(app, "commit", "-q", "-a", "--no-edit")
        if not check():
            git(app, "rm", "-q", "-r", *(f"pieces/{path.name}" for path in (app / "pieces").glob("bad-*")))
            git(app, "commit", "-q", "--amend", "--no-edit")
            assert check()
    return time.perf_counter() - began, checks


def _single_task_row(files: int, rounds: int, target: float) -> Row:
    """From `landing.queued`, in which `finish_task` ends, to `landing.landed`, by their times."""
    app = _repository(files)
    hive, times, hand = _hive(app, [], agents=1, land="auto"), [], []
    with up(hive.layout.root):
        for number in range(rounds):
            name = f"task-{number}"
            hive.tasks.add(task_text(name, [add_part(name)]), id=name)
            done = hive.layout.root / "tasks/done" / name
            until(done.is_dir, lambda: f"{name} has not landed")  # noqa: B023
            times.append(_landing_s(hive, name))
            git(app, "branch", "-q", "-f", "by-hand")
            began = time.perf_counter()
            git(app, "merge", "-q", "--no-ff", "--no-edit", "-m", "x", _side(app, number))
            hand.append(time.perf_counter() - began)
    name = "finish_task to landed, one clean task, no check"
    return Row(
        f"{name}{f', {files:,} files' if files else ''}",
        median(times),
        "s",
        "git merge in the checkout",
        median(hand),
        target=target,
    )


def _side(app: Path, number: int) -> str:
    """Create a commit next to main with one file more."""
    blob = subprocess.run(
        ["git", "-C", app, "hash-object", "-w", "--stdin"], input=b"x\n", capture_output=True, check=True
    ).stdout
    listing = git(app, "ls-tree", "HEAD^")
    line = f"100644 blob {blob.decode().strip()}\tside-{number}\n"
    tree = subprocess.run(
        ["git", "-C", app, "mktree"], input=f"{listing}\n{line}".encode(), capture_output=True, check=True
    ).stdout
    return git(app, "commit-tree", tree.decode().strip(), "-p", "HEAD^", "-m", f"side {number}")


def _landing_s(hive: Hive, task: str) -> float:
    """Seconds from the call of `finish_task` until the result is written."""
    end = next(message for message in _messages(hive, task) if message.get("result", {}).get("state") == "landing")
    landed = (hive.layout.root / "tasks/done" / task / "result.md").stat().st_mtime
    return landed - datetime.fromisoformat(end["at"]).timestamp() + float(end["seconds"])


def run(quick: bool = False) -> list[Row]:
    """The rows; about five minutes, with `quick` some seconds."""
    rows = [*(_several(1, 2, 1, 0.1) if quick else _several(11, 3, 2, 5))]
    rows.append(_single_task_row(0, 1 if quick else 15, 0.5))
    rows.append(_single_task_row(100 if quick else 50_000, 1 if quick else 7, 2))
    return rows


if __name__ == "__main__":
    show("Landing", run(quick="--quick" in sys.argv))
