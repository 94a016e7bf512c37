"""What a person sets, says and does at the same time: methods, protected files, tries, a checkout in use, branches that go."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.cli.main import main
from hivemind.landing.lander import Lander
from hivemind.landing.queue import approve
from hivemind.layout import LANDING
from hivemind.presence.identity import lock_name
from hivemind.presence.status import StatusFile
from hivemind.swarm.until_idle import survey
from hivemind.taskrun.git import Repository
from tests.agent.conftest import Crew
from tests.agent.test_worktree import Repo
from tests.landing.conftest import FINISH, Harbour, with_hive, writes
from tests.messages import calls_of
from tests.waiting import until


def finish_twice_changed(harbour: Harbour) -> str:
    """A task with a commit for each of two turns, while the person commits. Returns the person's commit."""
    harbour.agent()
    harbour.crew.drop("---\nassignee: ada\n---\nDo mast.\n", "mast.md")
    harbour.turn(*writes(mast="a mast\n"))
    harbour.turn(*writes(oar="an oar\n"))
    person = harbour.repo.commit(boat="a red boat\n")
    harbour.turn(*FINISH)
    return person


@pytest.mark.parametrize(("how", "merges", "commits"), [("merge", 1, 3), ("squash", 0, 1), ("rebase", 0, 2)])
def test_work_lands_by_the_method_of_its_root(harbour, how, merges, commits):
    harbour.configure(how=how)
    person = finish_twice_changed(harbour)
    harbour.land()
    assert harbour.state("mast") == "done"
    count = ("rev-list", "--count", f"{person}..main")
    assert harbour.repo.git(*count, "--merges") == str(merges)
    assert harbour.repo.git(*count) == str(commits)
    assert [harbour.repo.show("main", name) for name in ("boat", "mast", "oar")] == ["a red boat", "a mast", "an oar"]
    trailers = harbour.repo.git("log", "-1", "--format=%(trailers:key=Hive-Task,valueonly)", "main")
    assert trailers.strip() == "mast"
    assert harbour.repo.git("log", "-1", "--format=%an", "main") == "ada"
    assert harbour.repo.git("status", "--porcelain") == ""


def test_work_that_changes_what_the_check_reads_waits_for_a_person_although_other_work_lands(harbour):
    harbour.configure(protect=["Makefile", ".ci/**"], check="true")
    harbour.work("easy", Makefile="test:\n\ttrue\n")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert (harbour.state("easy"), harbour.state("mast")) == ("active", "done")
    assert harbour.reason("easy") == "changes Makefile, which its check reads: look at it, then: hivemind land easy"
    approve(Hive.open(harbour.root), "easy")
    harbour.land()
    assert harbour.state("easy") == "done"


def test_a_person_whose_git_signs_can_have_work_wait(harbour):
    harbour.configure(sign="wait")
    harbour.work("mast", mast="a mast\n")
    harbour.repo.git("config", "commit.gpgsign", "true")
    harbour.land()
    assert harbour.reason("mast").startswith("your git signs commits in ")
    harbour.configure(sign="off")
    harbour.land()
    assert harbour.state("mast") == "done"


def letters(harbour: Harbour) -> int:
    return len([line for line in Hive.open(harbour.root).mail.list("human") if "Does not land" in line.subject])


def test_after_some_returns_a_person_is_asked_once_and_says_how_it_goes_on(harbour):
    harbour.configure(check="! test -e mast", land_tries=2)
    harbour.work("mast", mast="a mast\n")
    for number in range(2):
        harbour.land()
        assert harbour.state("mast") == "inbox"
        harbour.turn(*writes(sail=f"{number}\n"), *FINISH)
    harbour.land()
    assert harbour.state("mast") == "active"
    assert harbour.reason("mast").startswith("was returned 2 times, and still does not land: look at it")
    harbour.land()
    assert letters(harbour) == 1

    started = harbour.events().count(("started", "mast"))
    approve(Hive.open(harbour.root), "mast")
    harbour.land()
    assert harbour.events().count(("started", "mast")) == started + 1, "it was tried once more"
    assert harbour.reason("mast").startswith("was returned 2 times")
    assert letters(harbour) == 1

    Hive.open(harbour.root).tasks.say("mast", "Call it a pole.")
    harbour.land()
    assert harbour.state("mast") == "inbox"
    harbour.turn(("run_command", {"command": "mv mast pole"}), *FINISH)
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.show("main", "pole") == "a mast"


def test_a_subtask_that_was_returned_too_often_is_tried_again_only_when_a_person_says_so(harbour):
    harbour.configure(land_tries=1)
    harbour.agent("bob")
    harbour.crew.drop("---\nassignee: ada\n---\nBuild.\n", "build.md")
    harbour.turn(*writes(hull="a hull\n"), ("delegate", {"tasks": [{"text": "A boat.", "to": "bob"}]}))
    task = Hive.open(harbour.root).tasks.get("build").subtasks[0]
    harbour.turn(*writes(boat="bob's\n"), by="bob")
    harbour.turn(*writes(boat="ada's\n"))
    harbour.turn(*FINISH, by="bob")
    harbour.turn(*writes(hull="a red hull\n"))
    assert harbour.state(task) == "inbox"
    harbour.turn(*writes(boat="bob's and ada's\n"), by="bob")
    harbour.turn(*writes(boat="ada's again\n"))
    harbour.turn(*FINISH, by="bob")
    for color in ("blue", "green"):
        harbour.turn(*writes(hull=f"a {color} hull\n"))
        assert harbour.reason(task).startswith("was returned 1 times")
    assert harbour.events().count(("waits", task)) == 1
    assert letters(harbour) == 1
    harbour.turn(*writes(boat="ada's\n"))
    assert main(["--hive", str(harbour.root), "land", task]) == 3, "the parent's agent lands it"
    harbour.turn(*writes(hull="a hull\n"))
    assert harbour.state(task) == "done"
    assert harbour.repo.show("hive/build", "boat") == "bob's and ada's"


def test_a_conflict_without_marks_is_resolved_by_a_change_or_by_name(harbour):
    harbour.agent()
    harbour.crew.drop("---\nassignee: ada\n---\nDo red.\n", "red.md")
    harbour.turn(*writes(boat="a red boat\n"))
    harbour.repo.git("rm", "-q", "boat")
    harbour.repo.git("commit", "-qm", "No boat")
    harbour.turn(*FINISH)
    harbour.land()
    assert harbour.state("red") == "inbox"
    assert "* boat: deleted in one, changed in the other" in Hive.open(harbour.root).tasks.get("red").said[-1].text
    harbour.turn(*FINISH)
    assert Hive.open(harbour.root).tasks.get("red").owner == "ada", "nothing is said of the boat"
    harbour.turn(("finish_task", {"result": "It stays.", "resolved": ["boat"]}))
    harbour.land()
    assert harbour.state("red") == "done"
    assert harbour.repo.show("main", "boat") == "a red boat"


def test_a_task_with_two_roots_lands_in_both_or_in_none(harbour):
    (harbour.root.parent / "more").mkdir()
    other = Repo(harbour.root.parent / "more/port")
    other.commit(quay="a quay\n")
    roots = [
        {"path": "../app", "worktree": True, "land": "auto", "check": "test -e boat"},
        {"path": "../more/port", "worktree": True, "land": "auto", "check": "! test -e rock"},
    ]
    harbour.crew.configure(f"roots: {json.dumps(roots)}\n")
    harbour.close()
    before = harbour.repo.git("rev-parse", "main"), other.git("rev-parse", "main")
    harbour.work("mast", mast="a mast\n", worktrees__ada__port__rock="a rock\n")
    harbour.land()
    assert harbour.state("mast") == "inbox"
    assert f"on your work in `{other.path}` merged" in Hive.open(harbour.root).tasks.get("mast").said[-1].text
    assert (harbour.repo.git("rev-parse", "main"), other.git("rev-parse", "main")) == before
    harbour.turn(("run_command", {"command": "mv ../port/rock ../port/pier"}), *FINISH)
    harbour.land()
    assert harbour.state("mast") == "done"
    assert (harbour.repo.show("main", "mast"), other.show("main", "pier")) == ("a mast", "a rock")
    assert harbour.result("mast").count("Landed in `main`") == 2


def step(lander: Lander) -> None:
    lander.step()
    while lander.is_busy:
        until(lambda: any(check.poll() for check in lander.checks) or not lander.checks)
        lander.step()


@pytest.mark.parametrize("check", ["", "true"])
def test_a_changed_file_of_the_person_lets_only_that_work_wait_until_it_is_restored(harbour, check):
    harbour.configure(check=check or [])
    harbour.work("red", boat="a red boat\n")
    harbour.work("mast", mast="a mast\n")
    (harbour.repo.path / "boat").write_text("my boat\n")
    lander = Lander(Hive.open(harbour.root))
    try:
        step(lander)
        assert (harbour.state("red"), harbour.state("mast")) == ("active", "done")
        assert harbour.reason("red") == "boat is changed in your checkout"
        assert (harbour.repo.path / "boat").read_text() == "my boat\n"
        assert 0 < lander.remaining_s < 60
        harbour.repo.git("checkout", "boat")
        until(lambda: step(lander) or harbour.state("red") == "done")
    finally:
        lander.close()
    assert harbour.repo.show("main", "boat") == "a red boat"
    assert harbour.repo.git("status", "--porcelain") == ""


def test_a_rebase_of_the_person_is_waited_for(harbour):
    harbour.repo.commit(oar="an oar\n")
    harbour.work("mast", mast="a mast\n")
    harbour.repo.git("-c", "sequence.editor=sed -i s/pick/edit/", "rebase", "-q", "-i", "HEAD~1")
    harbour.land()
    assert harbour.reason("mast").startswith("a rebase of main is under way in ")
    harbour.repo.git("rebase", "--continue")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.git("status", "--porcelain") == ""


def test_tasks_land_in_the_order_in_which_they_are_named_and_the_list_says_which_conflict(harbour, capsys):
    harbour.configure(land="ask")
    harbour.agent("bob")
    harbour.work("red", boat="a red boat\n")
    harbour.work("blue", boat="a blue boat\n", by="bob")
    harbour.land()
    command = ["--hive", str(harbour.root), "land"]
    main(command)
    assert "waits for you: hivemind land blue; conflicts with red in boat" in capsys.readouterr().out
    main([*command, "blue", "red"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("blue: landed")
    assert lines[1].startswith("red: returned, Not landed: this work and main have changed the same places in boat.")


def test_a_target_that_is_deleted_is_waited_for(harbour):
    harbour.work("mast", mast="a mast\n")
    tip = harbour.repo.git("rev-parse", "main")
    harbour.repo.git("checkout", "-q", "-b", "mine")
    harbour.repo.git("branch", "-D", "main")
    harbour.land()
    assert "has no branch main" in harbour.reason("mast")
    harbour.repo.git("branch", "main", tip)
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.show("main", "mast") == "a mast"
    assert not (harbour.repo.path / "mast").exists()


def test_work_does_not_bring_back_what_the_person_has_taken_out_of_the_target(harbour):
    harbour.repo.commit(secret="a secret\n")
    harbour.work("mast", mast="a mast\n")
    harbour.repo.git("reset", "-q", "--hard", "HEAD~1")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.show("main", "mast") == "a mast"
    assert not (harbour.repo.path / "secret").exists()
    assert "by the person" not in harbour.repo.git("log", "--format=%s", "main~1..main"), "only the task's own commit"


def test_work_on_what_the_person_has_taken_out_of_the_target_waits_for_the_person(harbour):
    harbour.repo.commit(secret="a secret\n")
    harbour.work("mast", secret="a greater secret\n")
    harbour.repo.git("reset", "-q", "--hard", "HEAD~1")
    before = harbour.repo.git("rev-parse", "main")
    harbour.land()
    assert harbour.repo.git("rev-parse", "main") == before
    assert "main has lost" in harbour.reason("mast")
    approve(Hive.open(harbour.root), "mast")
    harbour.land()
    assert harbour.state("mast") == "done"


def test_a_person_who_has_allowed_a_merge_with_what_was_taken_out_is_not_asked_again_after_its_conflict(harbour):
    harbour.repo.commit(boat="a grey boat\n")
    harbour.work("mast", boat="a red boat\n")
    harbour.repo.git("reset", "-q", "--hard", "HEAD~1")
    harbour.repo.commit(boat="a blue boat\n")
    harbour.land()
    assert "main has lost" in harbour.reason("mast")
    approve(Hive.open(harbour.root), "mast")
    harbour.land()
    assert harbour.state("mast") == "inbox", "it has come back with the marks of the conflict"
    harbour.turn(*writes(boat="a violet boat\n"), *FINISH)
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.show("main", "boat") == "a violet boat"


def test_work_that_a_return_has_merged_does_not_bring_back_what_was_taken_out_since(harbour):
    harbour.work("mast", boat="a red boat\n")
    harbour.repo.commit(boat="a blue boat\n", secret="a secret\n")
    harbour.land()
    assert harbour.state("mast") == "inbox", "it has come back with the marks of the conflict"
    harbour.repo.git("rm", "-q", "secret")
    harbour.repo.git("commit", "-q", "--amend", "--no-edit")
    harbour.turn(*writes(boat="a violet boat\n"), *FINISH)
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.show("main", "boat") == "a violet boat"
    assert harbour.repo.git("ls-tree", "--name-only", "main", "secret") == ""


def test_work_lands_in_a_target_of_another_history_too(harbour):
    harbour.work("mast", mast="a mast\n")
    tree = harbour.repo.git("rev-parse", "main^{tree}")
    harbour.repo.git("reset", "-q", "--hard", harbour.repo.git("commit-tree", tree, "-m", "Anew"))
    approve(Hive.open(harbour.root), "mast")
    harbour.work("oar", oar="an oar\n")
    harbour.land()
    assert [harbour.state(task) for task in ("mast", "oar")] == ["done", "done"]
    assert harbour.repo.show("main", "mast") == "a mast"


def test_a_branch_that_was_deleted_by_hand_lands_from_its_recorded_tip(harbour):
    harbour.configure(land="ask")
    harbour.work("mast", mast="a mast\n")
    tip = harbour.repo.git("rev-parse", "hive/mast")
    harbour.repo.git("branch", "-D", "hive/mast")
    harbour.repo.git("reflog", "expire", "--expire=now", "--all")
    harbour.repo.git("gc", "-q", "--prune=now")
    approve(Hive.open(harbour.root), "mast")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.git("rev-parse", "main^2") == tip


def test_a_branch_that_was_deleted_by_hand_is_there_again_for_work_that_goes_back(harbour):
    harbour.configure(check="! test -e mast")
    harbour.work("mast", mast="a mast\n")
    tip = harbour.repo.git("rev-parse", "hive/mast")
    harbour.repo.git("branch", "-D", "hive/mast")
    harbour.land()
    assert harbour.state("mast") == "inbox"
    assert harbour.repo.git("rev-parse", "hive/mast") == tip
    harbour.turn(("run_command", {"command": "mv mast pole"}), *FINISH)
    harbour.land()
    assert harbour.repo.show("main", "pole") == "a mast"


def test_without_landing_a_full_queue_is_finished_with_its_branches(harbour):
    harbour.configure(land="ask")
    for name in ("mast", "oar"):
        harbour.work(name, **{name: f"a {name}\n"})
    harbour.land()
    before = harbour.repo.git("rev-parse", "main")
    harbour.configure(land="off")
    harbour.land()
    assert [harbour.state(name) for name in ("mast", "oar")] == ["done", "done"]
    assert harbour.repo.branches() == ["hive/mast", "hive/oar", "main"]
    assert harbour.repo.git("rev-parse", "main") == before
    assert "Branch `hive/mast`" in harbour.result("mast")
    assert not (harbour.root / "tasks/done/mast/landing.md").exists()


def test_setup_runs_for_a_check_again_when_its_files_have_changed(harbour):
    harbour.repo.commit(lock="1\n", **{".gitignore": "deps\nsetups\n"})
    harbour.configure(
        setup="cp lock deps; echo >> setups",
        setup_when=["lock"],
        check="cmp lock deps && wc -l setups",
        check_timeout_s=60,
    )
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    harbour.work("oar", oar="an oar\n")
    harbour.land()
    harbour.work("newer", lock="2\n")
    harbour.land()
    assert [harbour.state(name) for name in ("mast", "oar", "newer")] == ["done"] * 3
    logs = [(harbour.root / "tasks/done" / name / "landing.log").read_text() for name in ("mast", "oar", "newer")]
    assert ["1 setups" in logs[0], "1 setups" in logs[1], "2 setups" in logs[2]] == [True] * 3


def test_a_commit_of_an_agent_that_names_another_task_does_not_come_in(harbour):
    harbour.configure(land="ask")
    harbour.agent()
    harbour.crew.drop("---\nassignee: ada\n---\nDo mast.\n", "mast.md")
    command = "echo m > mast; git add mast; git commit -qm 'A mast' -m 'Hive-Task: other'"
    harbour.turn(("run_command", {"command": command}), *FINISH)
    answer = calls_of(Hive.open(harbour.root).tasks.get("mast").path)[-1]
    assert "take the Hive-* trailers out of your commit messages" in answer["error"]
    assert harbour.repo.git("log", "--all", "--format=%B").count("Hive-Task") == 0
    harbour.turn(("run_command", {"command": "git commit -q --amend -m 'A mast'"}), *FINISH)
    harbour.land()
    approve(Hive.open(harbour.root), "mast")
    harbour.land()
    assert harbour.repo.git("log", "--format=%(trailers:key=Hive-Task,valueonly)", "main").split() == ["mast"]


def test_a_commit_of_the_person_between_two_reads_of_the_branch_is_not_undone(harbour, monkeypatch):
    harbour.work("mast", mast="a mast\n")
    read_commit = Repository.commit_of
    readings = []

    def read_then_commit(repository, revision):
        commit = read_commit(repository, revision)
        if revision == "refs/heads/main" and len(readings) < 4 and not (harbour.repo.path / ".git/index.lock").exists():
            readings.append(commit)
            harbour.repo.commit(boat=f"painted {len(readings)} times\n")
        return commit

    monkeypatch.setattr(Repository, "commit_of", read_then_commit)
    Lander(Hive.open(harbour.root)).step()
    monkeypatch.undo()
    assert readings
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.show("main", "boat") == f"painted {len(readings)} times"
    assert harbour.repo.git("rev-list", "--count", "main", f"^{readings[0]}") == str(len(readings) + 2)


def test_the_landers_of_two_hives_lose_nothing_of_one_repository(harbour, tmp_path):
    other = Harbour.__new__(Harbour)
    crew = Crew(tmp_path / "second")
    other.__init__(crew, harbour.repo)
    try:
        for number in range(4):
            harbour.work(f"ours{number}", **{f"ours{number}": "x\n"})
            other.work(f"theirs{number}", **{f"theirs{number}": "x\n"})
        children = []
        for root in (harbour.root, other.root):
            child = os.fork()
            if not child:
                try:
                    until(lambda root=root: with_hive(root) and landed(root))
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    finally:
        other.close()
        crew.close()
    names = sorted(f"{who}{number}" for who in ("ours", "theirs") for number in range(4))
    trailers = harbour.repo.git("log", "--first-parent", "--format=%(trailers:key=Hive-Task,valueonly)", "main")
    assert sorted(trailers.split()) == names
    assert all((harbour.repo.path / name).exists() for name in names)
    assert harbour.repo.git("status", "--porcelain") == ""


def landed(root: Path) -> bool:
    return len(list((root / "tasks/done").iterdir())) == 4


def test_a_swarm_is_not_idle_before_its_lander_has_looked_whether_a_task_can_land_now(harbour: Harbour) -> None:
    harbour.work("paint", boat="red\n")
    (harbour.repo.path / "boat").write_text("mine\n")
    harbour.land()
    reason = "boat is changed in your checkout"
    hive = Hive.open(harbour.root)
    hive.layout.agent_state(LANDING).mkdir(parents=True, exist_ok=True)
    status = StatusFile(hive.layout.agent_state(LANDING), LANDING)
    lock = lock_name(hive.layout, LANDING)
    try:
        assert survey(hive, []).busy == ("task paint lands",)
        status.update(state="idle")
        assert survey(hive, []).parked == (("paint", reason),)
    finally:
        lock.release()
    assert survey(hive, []).parked == (("paint", reason),), "without a lander it waits"
