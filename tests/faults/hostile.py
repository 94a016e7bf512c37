"""An agent that attacks the person from its sandbox, by what it writes into the git of its worktree."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .checkers import GENERAL
from .hives import make_hive
from .scenario import Checker, Scenario
from .subject import Subject
from .tasks import TASK_CHECKERS, add_task, missing_tasks, with_steps

__all__ = ["HOSTILE"]

BEGIN = "set -e; g=$(git rev-parse --absolute-git-dir); echo red > boat; "
DEEP = "$(printf 'd/%.0s' $(seq 900))"


def attacks(subject: Subject) -> dict[str, str]:
    person = subject.scratch / "person"
    run = f"touch {person}/ran; cat"
    return {
        "filter": f"git config filter.x.clean '{run}'; git config core.fsmonitor '{run}'; echo '* filter=x' > .gitattributes",
        "embedded": f"git init -q sub; cd sub; echo '* filter=x' > .gitattributes; echo x > f; git add -A; git commit -qm x; "
                    f"git config filter.x.clean '{run}'; echo y > f; cd ..; git add sub",
        "symbolic": "git symbolic-ref refs/heads/hive/symbolic refs/heads/main",
        "links": f"rm -f $g/index; ln -s {person}/new $g/index; mkdir -p $g/logs/refs/heads/hive; "
                 f"ln -s {person}/diary $g/logs/refs/heads/hive/links",
        "objects": f"rm -rf {person}/app/.git/objects/?? $g/objects/?? || true; rm -f {person}/app/.git/refs/heads/* || true",
        "deep": f"mkdir -p {DEEP}; cd {DEEP}; mkdir -p {DEEP}",
    }  # fmt: skip


def digests(person: Path) -> dict[str, str]:
    """Return digests of the person's files, without the tasks' branches, their history, and added objects."""
    digests: dict[str, str] = {}
    for folder, folders, names in os.walk(person):
        folders[:] = [name for name in folders if name not in ("hive", "hivemind")]
        for name in names:
            path = Path(folder, name)
            digests[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def prepare(subject: Subject) -> None:
    app = subject.scratch / "person" / "app"
    subprocess.run(["git", "init", "-q", "-b", "main", app], check=True)
    (app / "boat").write_text("a boat\n")
    (app.parent / "diary").write_text("Dear diary\n")
    person = ("-c", "user.name=Person", "-c", "user.email=person@example.org")
    for words in (("add", "-A"), (*person, "commit", "-q", "-m", "Begin")):
        subprocess.run(["git", "-C", app, *words], check=True)
    (subject.scratch / "person.json").write_text(json.dumps(digests(app.parent)))
    make_hive(subject, {"eve": {"sandbox": "bwrap"}}, roots=[{"path": str(app), "worktree": True, "land": "off"}])


def play(subject: Subject) -> None:
    for name in attacks(subject):
        give(subject, name)
    subject.work()


def give(subject: Subject, name: str) -> None:
    add_task(subject, name, with_steps({"run": BEGIN + attacks(subject)[name]}), end="done")


def retry(subject: Subject) -> None:
    for name in missing_tasks(subject, attacks(subject)):
        give(subject, name)


def untouched(subject: Subject) -> Iterator[str]:
    """Check that no file of the person changed, and that only objects and the tasks' branches are new."""
    person = subject.scratch / "person"
    before, after = json.loads((subject.scratch / "person.json").read_text()), digests(person)
    yield from (f"{path} was changed or is gone" for path in before if after.get(path) != before[path])
    objects = f"{person}/app/.git/objects/"
    yield from (f"{path} was made" for path in after if path not in before and not path.startswith(objects))
    fsck = subprocess.run(
        ["git", "-C", person / "app", "fsck", "--strict"], capture_output=True, text=True, check=False
    )
    yield from fsck.stderr.splitlines()


def work_arrived(subject: Subject) -> Iterator[str]:
    """Check that the commits of a done task are on its branch."""
    for name in attacks(subject):
        if (subject.root / "tasks" / "done" / name).is_dir():
            words = ["git", "-C", subject.scratch / "person/app", "show", f"hive/{name}:boat"]
            if subprocess.run(words, capture_output=True, text=True, check=False).stdout != "red\n":
                yield f"hive/{name} has not what the task {name} has changed"


HOSTILE = Scenario(
    "hostile", __doc__ or "", prepare, play, retry,
    (Checker("untouched", ("P66",), untouched), Checker("work arrived", ("P67",), work_arrived), *TASK_CHECKERS, *GENERAL),
    ("worktree.", "tasks.", "command."),
)  # fmt: skip
