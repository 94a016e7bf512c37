"""Work of three agents lands in a repository while a person works there too: conflicts, a red check, a target that is red."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .checkers import GENERAL
from .hives import make_hive
from .person import Person, git
from .scenario import Checker, Scenario
from .subject import Subject
from .tasks import TASK_CHECKERS, add_task, missing_tasks

__all__ = ["LANDING", "breaches", "coders", "fingerprint", "task_text"]

CHECK = 'test -z "$(ls -d red pieces/bad-* 2>/dev/null)"'
COUNT = 7


def app_of(subject: Subject) -> Path:
    """The person's repository. It is outside of the hive's folder: no fault kills the person's own git."""
    return subject.root.parent / "person" / "app"


def task_text(key: str, lines: Sequence[str], mend: str = "true") -> str:
    return "\n".join(["---", "role: coder", "---", f"Do {key}.", f"work: {'; '.join(lines)}", f"mend: {mend}", ""])


def add_part(name: str) -> str:
    """A command that adds a file of a task's own."""
    return f"mkdir -p pieces; echo {name} > pieces/{name}"


def workload() -> dict[str, str]:
    """Two tasks that conflict, one with a red check, one with a change to the person's changed file, three clean ones."""
    tasks = {}
    for name in ("pair-1", "pair-2"):
        tasks[name] = task_text(name, [add_part(name), f"grep -q {name} boat || sed -i '1s/.*/{name}/' boat"])
    tasks["bad"] = task_text(
        "bad", [add_part("bad"), "echo x > pieces/bad-1"], "git rm -q -f --ignore-unmatch pieces/bad-1"
    )
    tasks["notes"] = task_text("notes", [add_part("notes"), "echo noted > notes"])
    tasks |= {f"clean-{n}": task_text(f"clean-{n}", [add_part(f"clean-{n}")]) for n in range(COUNT - 4)}
    return tasks


def coders(names: Sequence[str] = ("ada", "bob", "cyd")) -> dict[str, dict[str, object]]:
    coder = str(Path(__file__).with_name("coder.py"))
    return {
        name: {"mind": {"command": [sys.executable, "-IS", coder]}, "role": "coder", "shell": True} for name in names
    }


def fingerprint(app: Path) -> dict[str, str]:
    """Return digests of the person's settings, hooks, stash, changed and untracked file, which must not change."""
    paths = [app / "notes", app / "scratch", app / ".git/config", *sorted((app / ".git/hooks").glob("*"))]
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}
    return {**digests, "stash": git(app, "stash", "list", "--format=%H")}


def prepare(subject: Subject) -> None:
    app = app_of(subject)
    shutil.rmtree(app.parent, ignore_errors=True)
    app.mkdir(parents=True)
    git(app, "init", "-q", "-b", "main")
    for name, text in {"boat": "a boat\n", "notes": "notes\n", "sail": "a sail\n"}.items():
        (app / name).write_text(text)
    git(app, "add", "-A")
    git(app, "commit", "-q", "-m", "Begin")
    person = Person(app, subject.random, "echo red > red", "rm -f red")
    person.prepare()
    (subject.scratch / "person.json").write_text(json.dumps(fingerprint(app)))
    root = {"path": str(app), "worktree": True, "branch": "main", "land": "auto", "check": CHECK}
    make_hive(subject, coders(), roots=[root])  # type: ignore[arg-type]


def give(subject: Subject, key: str) -> None:
    add_task(subject, key, workload()[key], end="done", result="Done.")


def play(subject: Subject) -> None:
    app = app_of(subject)
    person = Person(app, subject.random, "echo red > red", "rm -f red")
    person.start()
    try:
        for key in workload():
            give(subject, key)
        subject.work()
    finally:
        person.stop()
        breach_file = subject.scratch / "person.said"
        breach_file.write_text("".join(f"{line}\n" for line in person.said))


def retry(subject: Subject) -> None:
    """Give missing tasks, answer tasks that wait for the person, who has rewritten main; then take the changed file back."""
    for key in missing_tasks(subject, workload()):
        give(subject, key)
    subject.work()
    for task in subject.read("land")["queue"]:
        if task["why"].startswith("main has lost"):
            subject.run("land", task["id"])
            subject.work()
    app = app_of(subject)
    before = json.loads((subject.scratch / "person.json").read_text())
    now = fingerprint(app)
    wrong = [path for path in before.keys() | now.keys() if before.get(path) != now.get(path)]
    with open(subject.scratch / "person.said", "a") as file:
        file.writelines(f"{path} of the person was changed\n" for path in wrong)
    git(app, "checkout", "-q", "--", "notes", check=False)


def person_content(subject: Subject) -> Iterator[str]:
    yield from (subject.scratch / "person.said").read_text().splitlines()


def once_in_target(subject: Subject) -> Iterator[str]:
    done = [key for key in workload() if (subject.root / "tasks/done" / key).is_dir()]
    queued = [event for event in subject.read("log") if event["kind"] == "landing.queued"]
    violations = [*breaches(app_of(subject), done, [str(event["commit"]) for event in queued])]
    if violations:
        shutil.copytree(app_of(subject).parent, subject.scratch / "person", symlinks=True, dirs_exist_ok=True)
    yield from violations


def breaches(app: Path, done: Sequence[str], tips: Sequence[str]) -> Iterator[str]:
    """Check the target's history: each task has landed once; no commit of an agent is lost; no lock or worktree is left."""
    for key in done:
        part = f"pieces/{key}"
        commits = git(app, "log", "--first-parent", "-m", "--format=%H", "main", "--", part).split()
        if len(commits) != 1 or git(app, "show", f"main:{part}", check=False) != key:
            yield f"{key} is done, and its work came {len(commits)} times into main"
        trailers = git(app, "log", "--first-parent", "--format=%(trailers:key=Hive-Task,valueonly)", "main").split()
        if trailers.count(key) != 1:
            yield f"main has {trailers.count(key)} commits of the landing of {key}"
    for tip in tips:
        if not git(app, "for-each-ref", "--contains", tip, check=False):
            yield f"the commit {tip} of an agent is in no branch"
    moves = git(app, "log", "-g", "--format=%H %gs", "main").splitlines()
    for commit, _, words in (line.partition(" ") for line in moves):
        if words == "hivemind: landed" and (
            bad := git(app, "ls-tree", "--name-only", commit, "red", "pieces/bad-1", "bad/")
        ):
            yield f"main was moved to {commit}, which is red: {bad}"
    yield from (f"{path} is left" for path in sorted((app / ".git").rglob("*.lock")))
    yield from (f"{path} is left" for path in sorted((app / ".git").glob("hivemind-*")))
    if worktrees := [path.name for path in (app / ".git/worktrees").iterdir() if path.name != "side"]:
        yield f"the repository has worktrees of the hive's: {worktrees}"
    status = git(app, "status", "--porcelain").splitlines()
    if wrong := [line for line in status if line not in ("?? scratch", " M notes")]:
        yield f"the person's checkout is not clean: {wrong[:10]}"
    if git(app, "symbolic-ref", "--short", "HEAD", check=False) != "main":
        yield "the person's checkout is on another branch"
    fsck = subprocess.run(["git", "-C", app, "fsck", "--strict"], capture_output=True, text=True, check=False)
    yield from (line for line in fsck.stderr.splitlines() if not line.startswith(("notice:", "Checking")))


def put_away(subject: Subject) -> Iterator[str]:
    """Once all have landed, none of their branches and refs is left, but to commits that the target does not contain."""
    app = app_of(subject)
    if all((subject.root / "tasks/done" / key).is_dir() for key in workload()):
        yield from (
            f"{ref} is left"
            for ref in git(app, "for-each-ref", "--format=%(refname)", "refs/hivemind", "refs/heads/hive").split()
            if not (ref.endswith("/tip") and git(app, "rev-list", "--max-count=1", ref, "^main"))
        )


LANDING = Scenario(
    "landing", __doc__ or "", prepare, play, retry,
    (Checker("once in the target", ("P78", "P79", "P80"), once_in_target), Checker("put away", ("P78",), put_away),
     Checker("person", ("P81", "P82"), person_content), *TASK_CHECKERS, *GENERAL),
    ("landing.", "worktree.", "tasks.", "command."),
)  # fmt: skip
