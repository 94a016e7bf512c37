"""A target with a remote: real bare repositories, whose people push, refuse, squash, go away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.cli.main import main
from tests.agent.test_worktree import Repo
from tests.landing.conftest import FINISH, Harbour, writes
from tests.program import Python, run
from tests.sample import sample, sampled
from tests.waiting import until


class Forge:
    """The bare repository `origin` of the person's checkout, and a colleague's clone of it."""

    def __init__(self, harbour: Harbour, path: Path) -> None:
        self.path = path
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", path], check=True)
        harbour.repo.git("remote", "add", "origin", os.fspath(path))
        harbour.repo.git("push", "-q", "origin", "main")
        subprocess.run(["git", "clone", "-q", path, path.parent / "clone"], check=True, capture_output=True)
        self.clone = Repo.__new__(Repo)
        self.clone.path = path.parent / "clone"
        self.clone.git("config", "user.email", "colleague@example.org")
        self.clone.git("config", "user.name", "Colleague")

    def git(self, *words: str) -> str:
        return subprocess.run(
            ["git", "-C", self.path, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    def push(self, **files: str) -> str:
        """A commit by the colleague on top of what the remote has."""
        self.clone.git("pull", "-q", "--no-rebase")
        commit = self.clone.commit(**files)
        self.clone.git("push", "-q", "origin", "HEAD:main")
        return commit

    def hook(self, name: str, script: str) -> None:
        path = self.path / "hooks" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def go_away(self) -> None:
        self.path.rename(self.path.with_suffix(".away"))

    def come_back(self) -> None:
        self.path.with_suffix(".away").rename(self.path)


@pytest.fixture
def forge(harbour: Harbour, tmp_path: Path) -> Forge:
    made = Forge(harbour, tmp_path / "origin.git")
    harbour.configure(push="origin")
    return made


def files(harbour: Harbour) -> set[str]:
    return set(harbour.repo.git("ls-tree", "-r", "--name-only", "main").splitlines())


def test_a_landing_is_pushed(harbour, forge):
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")
    assert not list(harbour.root.glob(".hive/landing/*/push.json"))


def test_a_landing_is_built_on_what_the_remote_has(harbour, forge):
    pushed = forge.push(oar="an oar\n")
    harbour.work("mast", mast="a mast\n")
    harbour.repo.git("update-ref", "refs/remotes/origin/main", harbour.repo.git("rev-parse", "main"))
    harbour.land()
    assert harbour.state("mast") == "done"
    assert {"oar", "mast"} <= files(harbour)
    assert harbour.repo.git("rev-parse", "main^1") == pushed
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")
    assert harbour.repo.git("status", "--porcelain") == ""


def test_a_person_s_own_refs_of_the_remote_are_not_fetched_by_force(harbour, forge):
    forge.push(oar="an oar\n")
    harbour.repo.git("update-ref", "refs/remotes/origin/main", harbour.repo.commit(anchor="an anchor\n"))
    harbour.repo.git("reset", "-q", "--hard", "HEAD^")
    mine = harbour.repo.git("rev-parse", "refs/remotes/origin/main")
    forge.hook("pre-receive", "exit 1")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.repo.git("rev-parse", "refs/remotes/origin/main") == mine
    assert (
        harbour.repo.git("for-each-ref", "--format=%(refname)", "refs/hivemind/remotes")
        == "refs/hivemind/remotes/origin/main"
    )


def test_a_remote_that_is_away_holds_the_push_and_not_the_landing(harbour, forge, capsys):
    forge.go_away()
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert "mast" in files(harbour)
    main(["--hive", str(harbour.root), "land"])
    assert "origin is away" in capsys.readouterr().out
    main(["--hive", str(harbour.root), "status"])
    assert "origin is away" in capsys.readouterr().out
    forge.come_back()
    harbour.work("sail", new_sail="a sail\n")
    harbour.land()
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")


def test_a_push_that_is_due_is_made_without_another_task(harbour, forge, capsys):
    forge.go_away()
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    forge.come_back()
    harbour.land()
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")
    assert not list(harbour.root.glob(".hive/landing/*/push.json"))


def test_diverged_branches_wait_for_a_person_and_go_on(harbour, forge):
    forge.push(oar="an oar\n")
    harbour.repo.commit(anchor="an anchor\n")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.state("mast") == "active"
    assert "has diverged" in harbour.reason("mast")
    assert "git pull" in harbour.reason("mast")
    harbour.repo.git("pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert {"oar", "anchor", "mast"} <= files(harbour)
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")


def test_a_push_that_somebody_else_was_quicker_with_is_built_again(harbour, forge):
    """The check, which runs between the fetch and the push, is the colleague."""
    clone = forge.clone.path
    commands = "touch oar && git add oar && git commit -qm oar && git push -q origin HEAD:main"
    script = f"test -e {clone}/oar && exit 0; cd {clone} && {commands}"
    harbour.configure(check=script, check_box="none", check_network="open")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert {"oar", "mast"} <= files(harbour)
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")
    assert harbour.events().count(("landed", "mast")) == 1


def test_a_hook_that_refuses_lets_the_task_wait_with_its_words(harbour, forge):
    forge.hook("pre-receive", "echo only on Mondays >&2; exit 1")
    before = harbour.repo.git("rev-parse", "main")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.state("mast") == "active"
    assert "origin refuses main" in harbour.reason("mast")
    assert "only on Mondays" in harbour.reason("mast")
    assert harbour.repo.git("rev-parse", "main") == before
    (forge.path / "hooks/pre-receive").unlink()
    harbour.land()
    assert harbour.state("mast") == "done"
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")


def test_a_lock_that_somebody_left_at_the_remote_is_waited_for(harbour, forge):
    lock = forge.path / "refs/heads/main.lock"
    lock.touch()
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert "origin refuses main" in harbour.reason("mast")
    assert "File exists" in harbour.reason("mast")
    lock.unlink()
    harbour.land()
    assert harbour.state("mast") == "done"


def test_a_changed_file_in_the_checkout_holds_the_task_before_anything_is_pushed(harbour, forge):
    before = forge.git("rev-parse", "main")
    (harbour.repo.path / "boat").write_text("mine\n")
    harbour.work("paint", boat="painted\n")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.reason("paint") == "boat is changed in your checkout"
    assert harbour.state("mast") == "done"
    assert forge.git("rev-parse", "main^1") == before


LAND = """
import sys
from pathlib import Path
from tests.landing.conftest import with_hive
with_hive(Path(sys.argv[1]))
"""


KILLS = (
    "landing.moving", "landing.pushed", "landing.checkout.saved", "landing.checkout.moved", "landing.landed"
)  # fmt: skip


@sampled
@pytest.mark.parametrize(
    ("word", "is_away"), [*((word, False) for word in KILLS), *((word, True) for word in sample(KILLS, 2, 1))]
)
def test_after_a_kill_around_the_push_it_lands_once_in_both(harbour, forge, word, is_away):
    harbour.work("mast", mast="a mast\n")
    crashing = {**os.environ, "HIVEMIND_CRASH_AT": word}
    assert run(["-c", LAND, str(harbour.root)], start=Python, env=crashing).returncode == -signal.SIGKILL
    if is_away:
        forge.go_away()
        harbour.land()
        assert harbour.state("mast") == "done"
        forge.come_back()
    harbour.land()
    assert harbour.state("mast") == "done"
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")
    assert harbour.repo.git("log", "--format=%s%n%b", "main").count("Hive-Task: mast") == 1
    assert harbour.repo.git("status", "--porcelain") == ""
    assert ("landed", "mast") in harbour.events()


def test_two_clones_that_push_at_once_lose_nothing(harbour, forge):
    def push_all() -> None:
        for number in range(4):
            for _ in range(20):
                try:
                    forge.push(**{f"other{number}": "x\n"})
                    break
                except subprocess.CalledProcessError:  # the hive was quicker
                    continue

    for number in range(4):
        harbour.work(f"part{number}", **{f"part{number}": "x\n"})
    colleague = threading.Thread(target=push_all)
    colleague.start()
    harbour.land()
    colleague.join()
    harbour.work("last", last="x\n")
    harbour.land()
    names = {f"{word}{number}" for word in ("part", "other") for number in range(4)}
    assert names <= files(harbour)
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")
    assert [harbour.events().count(("landed", f"part{number}")) for number in range(4)] == [1, 1, 1, 1]


def test_a_remote_that_moves_while_it_takes_the_push_is_a_target_that_moved(harbour, forge, tmp_path):
    forge.clone.commit(oar="an oar\n")
    forge.clone.git("push", "-q", "origin", "HEAD:other")
    mark = tmp_path / "mark"
    forge.hook("update", f"test -e {mark} && exit 0; touch {mark}; git update-ref refs/heads/main refs/heads/other")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert {"oar", "mast"} <= files(harbour)
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")


def test_a_lander_that_is_killed_while_a_push_runs_lands_it_once(harbour, forge, tmp_path):
    fifo, mark = tmp_path / "fifo", tmp_path / "mark"
    os.mkfifo(fifo)
    forge.hook("pre-receive", f"test -e {mark} && exit 0; touch {mark}; cat {fifo}")
    harbour.work("mast", mast="a mast\n")
    with Python(["-c", LAND, str(harbour.root)]) as program:
        until(mark.exists)
        program.kill()
    harbour.land()
    assert harbour.state("mast") == "done"
    assert forge.git("rev-parse", "main") == harbour.repo.git("rev-parse", "main")
    assert harbour.repo.git("log", "--format=%b", "main").count("Hive-Task: mast") == 1


# requests


@pytest.fixture
def requests(harbour: Harbour, forge: Forge) -> Forge:
    harbour.configure(push={"remote": "origin", "as": "branch"})
    return forge


def test_a_branch_is_pushed_for_a_person_and_landed_when_the_remote_has_it(harbour, requests):
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.reason("mast") == "pushed as hive/mast to origin: request its merge"
    assert requests.git("show", "hive/mast:mast") == "a mast"
    assert "mast" not in files(harbour)
    harbour.land()
    assert harbour.state("mast") == "active"
    requests.clone.git("fetch", "-q")
    requests.clone.git("merge", "-q", "--no-ff", "--no-edit", "origin/hive/mast")
    requests.clone.git("push", "-q", "origin", "HEAD:main")
    merged = requests.git("rev-parse", "main")
    requests.push(oar="an oar\n")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert merged in harbour.result("mast")
    assert harbour.repo.branches() == ["main"]


def test_a_branch_that_the_forge_has_squashed_has_landed(harbour, requests):
    harbour.work("mast", mast="a mast\n", boat="a green boat\n")
    harbour.land()
    requests.push(oar="an oar\n")
    requests.clone.git("fetch", "-q")
    requests.clone.git("merge", "-q", "--squash", "origin/hive/mast")
    requests.clone.git("commit", "-qm", "Squashed")
    requests.clone.git("push", "-q", "origin", "HEAD:main")
    squashed = requests.git("rev-parse", "main")
    requests.push(boat="a red boat\n")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert squashed in harbour.result("mast")


def test_the_next_task_begins_from_what_the_remote_has(harbour, requests):
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    requests.clone.git("fetch", "-q")
    requests.clone.git("merge", "-q", "origin/hive/mast")
    requests.clone.git("push", "-q", "origin", "HEAD:main")
    harbour.land()
    harbour.work("flag", flag="a flag\n")
    assert harbour.repo.show("hive/flag", "mast") == "a mast"


def test_a_name_that_the_remote_has_for_something_else_is_passed_over(harbour, requests):
    requests.push(oar="an oar\n")
    requests.clone.git("push", "-q", "origin", "HEAD:refs/heads/hive/mast")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.reason("mast") == "pushed as hive/mast.2 to origin: request its merge"
    assert requests.git("show", "hive/mast.2:mast") == "a mast"


def test_a_pushed_branch_that_is_returned_and_finished_again_is_pushed_again(harbour, requests):
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    Hive.open(harbour.root).tasks.say("mast", "Of oak, please.")
    harbour.land()
    assert harbour.state("mast") == "inbox"
    harbour.turn(*writes(mast="an oak mast\n"), *FINISH)
    harbour.land()
    assert harbour.reason("mast") == "pushed as hive/mast to origin: request its merge"
    assert requests.git("show", "hive/mast:mast") == "an oak mast"


def test_a_branch_for_a_remote_that_is_away_waits_and_says_so(harbour, requests):
    shutil.rmtree(requests.path)
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.state("mast") == "active"
    assert "origin is away" in harbour.reason("mast")
