"""Finished work whose branch was renamed, or whose repository was moved: it lands where hive.yaml says now."""

from __future__ import annotations

import json

import pytest

from hivemind import Hive
from hivemind.cli.main import main
from hivemind.landing.lander import Lander
from hivemind.landing.queue import approve
from hivemind.landing.reverts import request_revert, resume_claims
from hivemind.minds import Thought
from tests.landing.conftest import FINISH, Harbour, writes
from tests.landing.test_people import step


def move(harbour: Harbour, name: str = "port") -> None:
    """Move the repository, and say so nowhere."""
    harbour.repo.path = harbour.repo.path.rename(harbour.repo.path.with_name(name))


def listed(harbour: Harbour, capsys: pytest.CaptureFixture[str], task: str) -> dict[str, object]:
    """The task's row in `hivemind land`."""
    capsys.readouterr()
    assert main(["--hive", str(harbour.root), "land", "--json"]) == 0
    return next(row for row in json.loads(capsys.readouterr().out)["queue"] if row["id"] == task)


def test_a_retried_task_lands_by_the_lander_that_has_begun_with_its_first_attempt(harbour):
    harbour.configure(land="ask")
    harbour.work("mast", mast="a mast\n")
    hive = Hive.open(harbour.root)
    resume_claims(hive)
    lander = Lander(hive)
    lander.step()
    Hive.open(harbour.root).tasks.active.cancel("mast")
    Hive.open(harbour.root).tasks.active.retry("mast")
    harbour.turn(*writes(mast="another mast\n"), *FINISH)
    lander.step()
    assert (harbour.state("mast"), harbour.reason("mast")) == ("active", "waits for you: hivemind land mast")
    lander.close()


def test_work_that_waits_follows_the_branch_that_hive_yaml_names_now(harbour, capsys):
    harbour.configure(land="ask", branch="main")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    harbour.repo.git("branch", "-m", "main", "trunk")
    harbour.configure(branch="trunk")
    assert listed(harbour, capsys, "mast")["branches"][0]["into"] == "trunk"
    approve(Hive.open(harbour.root), "mast")
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.show("trunk", "mast") == "a mast"
    assert f"Landed in `trunk` of {harbour.repo.path}" in harbour.result("mast")
    harbour.repo.git("branch", "-m", "trunk", "stem")
    harbour.configure(branch="stem", land="auto")
    assert request_revert(Hive.open(harbour.root), "mast") == "mast.revert"
    harbour.land()
    assert harbour.state("mast.revert") == "done"
    assert not (harbour.repo.path / "mast").exists()


def test_work_that_is_in_hand_when_the_branch_is_renamed_lands_in_the_new_one(harbour):
    harbour.configure(branch="main")
    harbour.agent()
    harbour.crew.drop("---\nassignee: ada\n---\nDo mast.\n", "mast.md")
    harbour.turn(*writes(mast="a mast\n"))
    harbour.repo.git("branch", "-m", "main", "trunk")
    harbour.configure(branch="trunk")
    harbour.turn(*FINISH)
    harbour.land()
    assert harbour.repo.show("trunk", "mast") == "a mast"


def test_a_branch_that_hive_yaml_does_not_know_by_its_new_name_is_waited_for_with_both_remedies(harbour, capsys):
    harbour.configure(land="ask")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    harbour.repo.git("branch", "-m", "main", "trunk")
    reason = (
        f"{harbour.repo.path}: has no branch main; make it (git branch main COMMIT), or if you renamed it say branch: NEW "
        "in hive.yaml, then: hivemind down, hivemind up"
    )
    assert listed(harbour, capsys, "mast")["why"] == reason, "without a try"
    assert main(["--hive", str(harbour.root), "land", "--dry-run", "mast"]) == 2
    assert capsys.readouterr().err == f"hivemind: {reason}\n"
    assert main(["--hive", str(harbour.root), "doctor"]) == 1
    assert "has no branch main" in capsys.readouterr().out
    harbour.land()
    assert harbour.reason("mast") == reason
    harbour.repo.git("branch", "main", "trunk")
    assert listed(harbour, capsys, "mast")["why"] == "waits for you: hivemind land mast", "it is not stale"


def test_work_that_waits_follows_its_repository_to_another_folder(harbour, capsys):
    harbour.configure(land="ask")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    old = harbour.repo.path
    move(harbour)
    reason = f"{old}: is gone; if you moved it, say path: NEW in hive.yaml, then: hivemind down, hivemind up"
    assert listed(harbour, capsys, "mast")["why"] == reason
    assert main(["--hive", str(harbour.root), "land", "mast"]) == 3
    assert capsys.readouterr().out == f"mast: waits, {reason}\n"
    assert main(["--hive", str(harbour.root), "doctor"]) == 1
    harbour.configure(path="../port")
    assert main(["--hive", str(harbour.root), "task", "diff", "mast"]) == 0
    assert "+a mast" in capsys.readouterr().out
    harbour.land()
    assert harbour.state("mast") == "done", "a person had said so"
    assert harbour.repo.show("main", "mast") == "a mast"


@pytest.mark.parametrize("returned", [True, False])
def test_work_that_goes_on_after_its_repository_was_moved_lands_with_all_its_commits(harbour, returned):
    harbour.agent()
    harbour.crew.drop("---\nassignee: ada\n---\nDo mast.\n", "mast.md")
    harbour.turn(*writes(mast="a mast\n"), *(FINISH if returned else ()))
    move(harbour)
    harbour.configure(path="../port")
    if returned:
        Hive.open(harbour.root).tasks.say("mast", "And an oar.")
        with_news = Lander(Hive.open(harbour.root))
        with_news.step()
        with_news.close()
    harbour.turn(("read_file", {"path": "mast"}), *writes(oar="an oar\n"), *FINISH)
    assert harbour.entry("mast")["branches"][0]["branch"] == "hive/mast"
    harbour.land()
    assert harbour.state("mast") == "done"
    assert [harbour.repo.show("main", name) for name in ("mast", "oar")] == ["a mast", "an oar"]


@pytest.mark.parametrize("by", ["ada", "bob"])
def test_work_that_is_finished_again_while_its_repository_is_gone_waits_for_that(harbour, by):
    harbour.agent("bob")
    harbour.work("mast", mast="a mast\n")
    old = harbour.repo.path
    move(harbour)
    if by == "bob":
        harbour.close()
        (harbour.root / "agents/ada.yaml").unlink()
    Hive.open(harbour.root).tasks.say("mast", "And an oar.")
    harbour.land()
    harbour.turn(*FINISH, by=by)
    assert (harbour.state("mast"), harbour.reason("mast").partition(";")[0]) == ("active", f"{old}: is gone")
    harbour.configure(path="../port")
    harbour.turn(*FINISH, by=by)
    harbour.land()
    assert harbour.state("mast") == "done"
    assert harbour.repo.show("main", "mast") == "a mast"


@pytest.mark.parametrize("is_gone", [True, False])
def test_work_on_a_root_that_hive_yaml_does_not_list_any_more_is_never_done_in_silence(harbour, is_gone, capsys):
    harbour.work("mast", mast="a mast\n")
    old = harbour.repo.path
    if is_gone:
        move(harbour)
    harbour.crew.configure("")
    harbour.close()
    Hive.open(harbour.root).tasks.say("mast", "And an oar.")
    harbour.land()
    assert harbour.state("mast") == "inbox"
    harbour.turn(*FINISH)
    reason = f"{old}: is not a root with worktree: true any more; list it in hive.yaml"
    assert harbour.reason("mast").startswith(reason), "although no lander runs"
    harbour.land()
    assert harbour.state("mast") == "active"
    assert harbour.reason("mast").startswith(reason)
    assert main(["--hive", str(harbour.root), "status"]) in (0, 1)
    assert reason in " ".join(capsys.readouterr().out.split())
    harbour.configure(path="../port" if is_gone else "../app")
    harbour.land()
    assert harbour.repo.show("main", "mast") == "a mast"


@pytest.mark.parametrize("heir", ["bob", "cy"])
def test_work_whose_agent_was_renamed_goes_back_to_its_role_else_to_anyone(harbour, heir):
    harbour.configure(check="! test -e mast")
    harbour.work("mast", mast="a mast\n")
    hive = Hive.open(harbour.root)
    lander = Lander(hive)
    assert "ada" in hive.agents
    (harbour.root / "agents/ada.yaml").unlink()
    harbour.close()
    harbour.crew.agent_file("shell: true\nrole: builder\n" if heir == "bob" else "shell: true\n", heir)
    step(lander)
    assert harbour.state("mast") == "inbox"
    task = Hive.open(harbour.root).tasks.get("mast")
    assert (task.assignee, task.role) == (None, "builder" if heir == "bob" else None)
    agent = harbour.crew.start(lambda turn: Thought(), heir)
    assert agent.cycle()
    assert Hive.open(harbour.root).tasks.get("mast").owner == heir
