"""A hostile agent in its sandbox: whatever it writes, nothing of the person's changes but the branch of its task."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.minds import Thought
from hivemind.sandbox import check_sandbox
from tests.agent.conftest import Crew, until_idle
from tests.agent.test_worktree import FINISH, Repo, at_work, does, said, write

check_sandbox()

Attack = Callable[[str], None]

PREAMBLE = """
g=$(git rev-parse --absolute-git-dir); c=$(git rev-parse --path-format=absolute --git-common-dir)
ran="{ran}"; victim="{victim}"; person="{person}"; home="{home}"
"""


def digests(top: Path) -> dict[str, str]:
    """Every file and link below a folder, with what it holds."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(top):
        for name in (*names, *folders):
            path = Path(folder, name)
            if path.is_symlink():
                found[str(path)] = f"-> {os.readlink(path)}"
            elif path.is_file():
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


class Person:
    """What is the person's: a repository with another task's branch, and a home. `harm` says what has become of it."""

    def __init__(self, repo: Repo, home: Path) -> None:
        self.repo, self.home = repo, home
        self.ran = home / "ran"
        home.mkdir()
        (home / "diary").write_text("Dear diary\n")
        repo.git("branch", "hive/other")
        self._before = self._all()

    def _all(self) -> dict[str, str]:
        return digests(self.repo.path) | digests(self.home)

    def harm(self) -> list[str]:
        git = self.repo.path / ".git"
        own = (
            git / "refs/heads/hive/t",
            git / "logs/refs/heads/hive/t",
            git / "refs/hivemind",
            git / "logs/refs/hivemind",
        )
        after = self._all()
        changed = [path for path in self._before if after.get(path) != self._before[path]]
        made = [
            path for path in after.keys() - self._before.keys()
            if not any(Path(path).is_relative_to(one) for one in own)
            and not (Path(path).is_relative_to(git / "objects") and not Path(path).is_symlink())
        ]  # fmt: skip
        checked = subprocess.run(["git", "-C", self.repo.path, "fsck", "--strict"], capture_output=True, text=True)
        return sorted(changed + made) + checked.stderr.splitlines()


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "app")
    made.commit(boat="a boat\n", src__sail="a sail\n")
    return made


@pytest.fixture
def person(repo: Repo, tmp_path: Path) -> Person:
    return Person(repo, tmp_path / "home")


@pytest.fixture
def crew(crew: Crew, repo: Repo) -> Crew:
    crew.configure("roots: [{path: ../app, worktree: true}]\n")
    crew.agent_file("shell: true\nsandbox: bwrap\n")
    return crew


ATTACKS = {
    "an embedded repository with a filter of its own": """
        git init -q sub && cd sub && echo x > f && echo 'f filter=x' > .gitattributes && git add -A && git commit -qm x
        git config filter.x.clean "touch $ran; cat"; echo y > f; cd .. && git add sub; echo z > sub/f""",
    "a symbolic ref to main": """
        mkdir -p $c/refs/heads/hive; rm -f $c/refs/heads/hive/t; echo 'ref: refs/heads/main' > $c/refs/heads/hive/t""",
    "a link at the branch's log": "rm -f $c/logs/refs/heads/hive/t; ln -s $home/diary $c/logs/refs/heads/hive/t",
    "a link at the index": "rm $g/index; ln -s $home/new $g/index",
    "links among the objects": """
        for a in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do for b in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
        ln -s $home $c/objects/$a$b; done; done""",
    "no objects any more": "rm -rf $c/objects/??",
    "another task's branch": "git rev-parse HEAD^{tree} > $c/refs/heads/hive/other",
    "3,000 folders": "for i in $(seq 60); do mkdir -p $(printf 'd/%.0s' $(seq 50)); cd $(printf 'd/%.0s' $(seq 50)); done",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_nothing_of_the_persons_changes_and_the_next_task_is_done(crew, repo, person, attack):
    told = PREAMBLE.format(ran=person.ran, victim=person.home / "diary", person=repo.path, home=person.home)
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"))
    does(ada, ("run_command", {"command": told + attack}))
    print(said(crew)["text"][:600])
    does(ada, write("mast", "a mast\n"), *FINISH)
    if not (crew.root / "tasks/done/t").exists():
        print(said(crew))
        Hive.open(crew.root).tasks.cancel("t")
        ada.mind.think = lambda turn: Thought()
        until_idle(ada)
    assert person.harm() == []
    crew.drop("Next.\n", "u.md")
    does(ada, write("boat", "a blue boat\n"), *FINISH)
    assert repo.show("hive/u", "boat") == "a blue boat"
