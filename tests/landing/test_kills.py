"""A lander, an agent or a git is killed at each step of a landing. The next one goes on, and the work lands once."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.errors import UserError
from hivemind.fs import crash
from hivemind.landing.reverts import claim_tasks, request_revert
from hivemind.taskrun.git import Repository
from tests.agent.test_worktree import killed
from tests.faults.faults import crash_points
from tests.landing.conftest import FINISH, Harbour, with_hive, writes
from tests.sample import IS_WHOLE, sample, sampled

STEPS = ["emptied", "checked", "moving", "landed", "put_away"]
STEPS += [
    f"checkout.{step}" for step in ("saved", "locked", "copied", "asked", "moved", "written", "renamed", "released")
]
ALONE = ["checkout.all_locked", "checkout.moved_alone"]
OTHERS = ["drafted", "queued", "subtask", "conflicting", "returned", "asking", "held", "reverting"]
GIT = """#!/bin/sh
echo x >> "$CALLS"
if [ $(wc -l < "$CALLS") = "$DIES_AT" ]; then
    case $DIES in
        before) kill -9 $PPID; exit 1;;
        after) $ITSELF "$@"; kill -9 $PPID; exit 1;;
        git) kill -9 $$;;
    esac
fi
exec $ITSELF "$@"
"""


def dies(harbour: Harbour, step: str, work: Callable[[], object] | None = None) -> None:
    """A lander that is killed at a step, in a process of its own."""
    assert in_child(work or (lambda: with_hive(harbour.root)), f"landing.{step}") == -signal.SIGKILL


def in_child(work: Callable[[], object], point: str = "", **environment: str) -> int:
    child = os.fork()
    if not child:
        status = 1
        try:
            os.environ.update(environment)
            crash._remaining_passes = crash._armed_points(point)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def assert_landed(harbour: Harbour, task: str, text: str = "a mast\n", name: str = "mast") -> None:
    """The task has landed once; nothing of it is left in the person's repository, and the checkout is clean."""
    repo = harbour.repo
    assert harbour.state(task) == "done", harbour.reason(task)
    assert "## Landing" in harbour.result(task)
    assert f"{repo.show('main', name)}\n" == text
    trailers = repo.git("log", "--first-parent", "--format=%(trailers:key=Hive-Task,valueonly)", "main").split()
    assert trailers.count(task) == 1
    assert harbour.events().count(("landed", task)) == 1
    assert_nothing_left(harbour)


def assert_nothing_left(harbour: Harbour) -> None:
    repo = harbour.repo
    assert [branch for branch in repo.branches() if branch.startswith("hive/")] == []
    assert repo.git("for-each-ref", "refs/hivemind") == ""
    assert repo.git("status", "--porcelain") == ""
    assert [
        *repo.path.glob(".git/**/*.lock"),
        *repo.path.glob(".git/hivemind-*"),
        *repo.path.glob(".git/worktrees/*"),
    ] == []
    assert not [*harbour.root.glob(".hive/landing/*/move.json")]
    repo.git("fsck", "--strict")


def subjects(harbour: Harbour) -> list[str]:
    return [letter.subject for letter in Hive.open(harbour.root).mail.list("human")]


def test_every_crash_point_of_landing_is_tried_here() -> None:
    """Those of candidates and remotes are tried in test_contests.py and test_remote.py."""
    elsewhere = {point for point in crash_points() if point.startswith("landing.candidates.")}
    elsewhere |= {"landing.pushed", "landing.requested"}
    points = {point for point in crash_points() if point.startswith("landing.")} - elsewhere
    assert {f"landing.{step}" for step in (*STEPS, *ALONE, *OTHERS)} == points


@pytest.mark.parametrize("step", STEPS)
def test_a_lander_killed_at_any_step_is_followed_by_one_that_goes_on(harbour: Harbour, step: str) -> None:
    harbour.configure(check="test -e mast")
    harbour.work("mast", mast="a mast\n")
    dies(harbour, step)
    harbour.land()
    assert_landed(harbour, "mast")


@sampled
@pytest.mark.parametrize("step", sample(STEPS, 2))
def test_a_batch_lands_once_each_although_the_lander_is_killed(harbour: Harbour, step: str) -> None:
    harbour.configure(check="test -e boat")
    for name in ("mast", "oar"):
        harbour.work(name, **{name: f"a {name}\n"})
    dies(harbour, step)
    harbour.land()
    for name in ("mast", "oar"):
        assert_landed(harbour, name, f"a {name}\n", name)


@pytest.mark.parametrize("step", ["moving", "landed", "put_away", *ALONE])
def test_a_kill_while_the_branch_is_checked_out_nowhere(harbour: Harbour, step: str) -> None:
    harbour.configure(branch="main")
    harbour.repo.git("checkout", "-q", "-b", "elsewhere")
    harbour.work("mast", mast="a mast\n")
    dies(harbour, step)
    harbour.land()
    assert_landed(harbour, "mast")


@pytest.mark.parametrize("step", ["moving", "checkout.moved", "landed"])
def test_a_kill_and_then_the_person_commits(harbour: Harbour, step: str) -> None:
    harbour.work("mast", mast="a mast\n")
    dies(harbour, step)
    (harbour.repo.path / ".git/index.lock").unlink(missing_ok=True)  # as git advises
    shutil.copyfile(harbour.repo.path / "boat", harbour.repo.path / "other")
    harbour.repo.git("add", "other")
    if step == "checkout.moved":
        harbour.land()
    harbour.repo.git("commit", "-q", "-m", "Other", "--", "other")
    harbour.land()
    assert_landed(harbour, "mast")
    assert harbour.repo.show("main", "other") == "a boat"


@pytest.mark.parametrize("step", ["conflicting", "returned"])
def test_a_kill_in_the_return_of_a_conflict(harbour: Harbour, step: str) -> None:
    harbour.work("mast", mast="a mast\n", boat="a red boat\n")
    harbour.repo.commit(boat="a blue boat\n")
    dies(harbour, step)
    harbour.land()
    assert harbour.state("mast") == "inbox"
    assert harbour.entry("mast")["tries"] == 1
    assert len(Hive.open(harbour.root).tasks.get("mast").said) == 1
    harbour.turn(*writes(boat="a violet boat\n"), *FINISH)
    harbour.land()
    assert_landed(harbour, "mast")
    assert harbour.repo.show("main", "boat") == "a violet boat"


def test_a_kill_in_the_return_of_red_work(harbour: Harbour) -> None:
    harbour.configure(check="! test -e bad")
    harbour.work("mast", mast="a mast\n", bad="x\n")
    dies(harbour, "returned")
    harbour.land()
    assert harbour.state("mast") == "inbox"
    assert len(Hive.open(harbour.root).tasks.get("mast").said) == 1


def test_a_kill_while_a_person_is_asked(harbour: Harbour) -> None:
    harbour.configure(check="! test -e bad", land_tries=1)
    harbour.work("mast", mast="a mast\n", bad="x\n")
    harbour.land()
    harbour.turn(*writes(oar="an oar\n"), *FINISH)
    dies(harbour, "asking")
    harbour.land()
    assert "was returned 1 times" in harbour.reason("mast")
    assert subjects(harbour) == ["Does not land: Do mast."]


def test_a_kill_while_a_red_target_is_held(harbour: Harbour) -> None:
    harbour.configure(check="! test -e broken")
    harbour.work("mast", mast="a mast\n")
    harbour.repo.commit(broken="yes\n")
    dies(harbour, "held")
    harbour.land()
    assert harbour.reason("mast") == "main itself fails: ! test -e broken"
    assert subjects(harbour) == ["Landing is held: main itself fails: ! test -e broken"]
    harbour.repo.git("rm", "-q", "broken")
    harbour.repo.git("commit", "-qm", "Mended")
    harbour.land()
    assert_landed(harbour, "mast")


@pytest.mark.parametrize("step", ["drafted", "queued"])
def test_an_agent_killed_while_it_passes_its_task_to_the_lander(harbour: Harbour, step: str) -> None:
    harbour.agent()
    harbour.close()
    harbour.crew.drop("---\nassignee: ada\n---\nDo mast.\n", "mast.md")
    killed(harbour.crew, [[*writes(mast="a mast\n"), *FINISH]], f"landing.{step}")
    if step == "drafted":
        harbour.turn(*FINISH)
    harbour.land()
    assert_landed(harbour, "mast")


def test_an_agent_killed_while_it_lands_a_subtask(harbour: Harbour) -> None:
    harbour.agent("bob")
    harbour.agent("ada")
    harbour.crew.drop("---\nassignee: ada\n---\nBuild.\n", "build.md")
    harbour.turn(*writes(hull="a hull\n"), ("delegate", {"tasks": [{"text": "A mast.", "to": "bob"}]}))
    task = Hive.open(harbour.root).tasks.get("build").subtasks[0]
    harbour.turn(*writes(mast="a mast\n"), *FINISH, by="bob")
    harbour.close()
    killed(harbour.crew, [[("read_file", {"path": "hull"})]], "landing.subtask")
    harbour.turn(("read_file", {"path": "mast"}))
    assert harbour.state(task) == "done"
    harbour.turn(*FINISH)
    harbour.land()
    assert_landed(harbour, "build")
    assert harbour.repo.git("log", "--format=%(trailers:key=Hive-Task,valueonly)", "main").split().count(task) == 1


def test_a_revert_that_was_killed_can_be_asked_for_again(harbour: Harbour) -> None:
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    dies(harbour, "reverting", lambda: request_revert(Hive.open(harbour.root), "mast"))
    hive = Hive.open(harbour.root)
    request_revert(hive, "mast")
    claim_tasks(hive)
    harbour.land()
    assert harbour.repo.git("ls-tree", "main", "mast") == ""
    assert (
        len(
            harbour.repo.git("log", "--first-parent", "--format=%(trailers:key=Hive-Reverts,valueonly)", "main").split()
        )
        == 1
    )


def test_a_branch_whose_work_the_person_took_out_again_is_kept(harbour: Harbour) -> None:
    harbour.work("mast", mast="a mast\n")
    dies(harbour, "landed")
    harbour.repo.git("reset", "-q", "--hard", "main^")
    harbour.land()
    assert harbour.repo.show("hive/mast", "mast") == "a mast"


def test_a_lock_of_a_branch_that_a_killed_git_has_left_is_removed(harbour: Harbour) -> None:
    harbour.work("mast", mast="a mast\n")
    dies(harbour, "landed")
    (harbour.repo.path / ".git/refs/heads/hive/mast.lock").touch()
    harbour.land()
    assert_landed(harbour, "mast")


def test_an_end_that_failed_is_made_later_and_moves_nothing_back(harbour: Harbour) -> None:
    harbour.work("mast", mast="a mast\n")
    dies(harbour, "landed")
    [folder] = harbour.root.glob(".hive/landing/*")
    (folder / "landed.jsonl").mkdir()
    harbour.land()
    assert harbour.state("mast") == "active"
    commit = harbour.repo.commit(oar="an oar\n")
    harbour.land()
    assert harbour.repo.git("rev-parse", "main") == commit
    (folder / "landed.jsonl").rmdir()
    harbour.land()
    assert harbour.repo.git("rev-parse", "main") == commit
    assert_landed(harbour, "mast")


def test_a_git_that_is_killed_is_not_the_absence_of_a_branch(harbour: Harbour, tmp_path: Path) -> None:
    tools = fake_git(tmp_path)
    repository, calls = Repository.at(harbour.repo.path), tmp_path / "calls"
    calls.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        for name, text in {**tools, "DIES": "git", "DIES_AT": "1"}.items():
            patch.setenv(name, text)
        with pytest.raises(UserError, match="rev-parse"):
            repository.commit_of("main")
        assert repository.commit_of("main") == harbour.repo.git("rev-parse", "main")
        assert repository.commit_of("nothing") is None


def fake_git(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a git that counts its calls, and dies at one of them."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(GIT)
    (tools / "git").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    return {"PATH": path, "CALLS": str(tmp_path / "calls"), "ITSELF": shutil.which("git") or ""}


@sampled
@pytest.mark.parametrize(("victim", "first"), [("before", 1), ("after", 2), ("git", 3)])
def test_the_lander_or_its_git_is_killed_at_each_git_that_it_starts(
    harbour: Harbour, tmp_path: Path, victim: str, first: int
) -> None:
    """`before` and `after` kill the lander before and after what that git does; `git` kills that git. Each is done at every third
    git, of which the sample has every other."""
    environment, calls = {**fake_git(tmp_path), "DIES": victim}, tmp_path / "calls"
    for number in itertools.count(first, 3 if IS_WHOLE else 6):
        task = f"mast-{number}"
        harbour.work(task, **{task: "a mast\n"})
        calls.write_text("")
        status = in_child(lambda: with_hive(harbour.root), **environment, DIES_AT=str(number))
        if calls.read_text().count("x") < number:
            assert status == 0
            break
        harbour.land()
        assert_landed(harbour, task, name=task)
    assert number > 10
