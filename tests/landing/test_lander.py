"""Finished work comes into the branch that people use: in order, checked as merged, and once."""

from __future__ import annotations

import pytest

from hivemind import Hive
from hivemind.cli import main
from hivemind.landing.target import hold_roots
from tests.landing.conftest import FINISH, writes


def test_a_finished_task_is_done_when_its_work_is_in_the_target(harbour):
    harbour.work("mast", mast="a mast\n")
    assert harbour.state("mast") == "active"
    assert harbour.reason("mast") == "waits to land"
    harbour.land()
    assert harbour.state("mast") == "done"
    commit = harbour.repo.git("rev-parse", "main")
    assert f"Landed in `main` of {harbour.repo.path}: {commit}" in harbour.result("mast")
    assert (harbour.repo.path / "mast").read_text() == "a mast\n"
    assert harbour.repo.git("status", "--porcelain") == ""
    assert harbour.repo.branches() == ["main"]
    assert harbour.repo.git("for-each-ref", "refs/hivemind") == ""
    assert harbour.events() == [("queued", "mast"), ("started", "mast"), ("landed", "mast")]
    assert Hive.open(harbour.root).tasks.get("mast").owner == "ada"


def test_a_task_without_commits_is_done_at_once(harbour):
    harbour.work("look")
    assert harbour.state("look") == "done"
    assert harbour.events() == []


def test_what_depends_on_a_task_waits_until_that_has_landed(harbour):
    harbour.work("mast", mast="a mast\n")
    harbour.crew.drop("---\ndependencies: [mast]\n---\nSet sail.\n", "sail.md")
    assert not harbour.agent().cycle()
    harbour.land()
    harbour.turn(("read_file", {"path": "mast"}))
    assert harbour.state("sail") == "active"


def test_by_default_a_person_says_when_work_lands(harbour):
    harbour.configure(land="ask")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert harbour.reason("mast") == "waits for you: hivemind land mast"
    assert harbour.repo.git("log", "--oneline", "main").count("\n") == 0


def test_the_check_runs_before_a_person_is_asked_and_not_again_when_he_agrees(harbour, capsys):
    log = harbour.root.parent / "checks"
    harbour.configure(land="ask", check=f"echo ran >> {log}; ! grep red boat", check_box="none")
    harbour.work("red", boat="a red boat\n")
    harbour.work("mast", mast="a mast\n", by="bob")
    main(["--hive", str(harbour.root), "land", "--dry-run", "mast"])
    assert "  check: echo ran" in (text := capsys.readouterr().out)
    assert text.endswith("(not run yet)\n")
    harbour.land()
    assert harbour.state("red") == "inbox", "nobody was asked about red work"
    assert harbour.reason("mast") == "waits for you: hivemind land mast (its check is green)"
    main(["--hive", str(harbour.root), "land", "--dry-run", "mast"])
    assert capsys.readouterr().out.endswith("(green)\n")
    runs = log.read_text().count("ran")
    main(["--hive", str(harbour.root), "land", "mast"])
    assert harbour.state("mast") == "done"
    assert log.read_text().count("ran") == runs


def test_a_person_who_is_asked_hears_that_green_work_changes_what_its_check_reads(harbour):
    harbour.configure(land="ask", check="true", protect=["Makefile"])
    harbour.work("easy", Makefile="test:\n\ttrue\n")
    harbour.land()
    assert harbour.reason("easy") == "changes Makefile, which its check reads: look at it, then: hivemind land easy"
    main(["--hive", str(harbour.root), "land", "easy"])
    assert harbour.state("easy") == "done"


@pytest.mark.parametrize("land", ["ask", "auto"])
def test_work_that_comes_back_unchanged_after_a_red_check_has_a_person_asked_at_once(harbour, land):
    log = harbour.root.parent / "checks"
    harbour.configure(land=land, check=f"echo ran >> {log}; ! grep red boat", check_box="none")
    harbour.work("red", boat="a red boat\n")
    harbour.land()
    runs = log.read_text().count("ran")
    harbour.turn(*FINISH)
    harbour.land()
    assert harbour.reason("red").startswith("has come back unchanged since its check was red: look at it, then:")
    assert log.read_text().count("ran") == runs
    main(["--hive", str(harbour.root), "land", "red"])
    assert harbour.state("red") == "inbox", "it was tried once more"


def test_red_work_goes_back_to_its_agent_with_the_output_and_lands_when_it_is_mended(harbour):
    harbour.configure(check="grep -q oak mast || { echo the mast is not of oak; exit 1; }")
    harbour.repo.commit(mast="oak\n")
    harbour.work("paint", mast="painted\n")
    harbour.land()
    assert harbour.state("paint") == "inbox"
    said = Hive.open(harbour.root).tasks.get("paint").said[-1].text
    assert "the mast is not of oak" in said
    harbour.turn(*writes(mast="painted oak\n"), *FINISH)
    harbour.land()
    assert harbour.state("paint") == "done"
    assert harbour.repo.show("main", "mast") == "painted oak"
    assert [word for word, _ in harbour.events()] == ["queued", "started", "returned", "queued", "started", "landed"]


def test_a_conflict_goes_back_with_marks_and_with_what_the_other_side_set_out_to_do(harbour):
    harbour.work("red", by="ada", boat="a red boat\n")
    harbour.agent("bob")
    harbour.crew.drop("---\nassignee: bob\n---\nDo blue.\n", "blue.md")
    harbour.turn(*writes(boat="a blue boat\n"), by="bob")
    harbour.repo.commit(src__oar="an oar\n")
    harbour.land()
    assert harbour.state("red") == "done"
    harbour.turn(*FINISH, by="bob")
    harbour.land()
    assert harbour.state("blue") == "inbox"
    text = Hive.open(harbour.root).tasks.get("blue").said[-1].text
    assert "* boat" in text
    assert "Do red." in text
    harbour.turn(("read_file", {"path": "boat"}), *FINISH, by="bob")
    assert harbour.state("blue") == "active", "the marks are still there"
    assert "<<<<<<<" in harbour.repo.show("hive/blue", "boat")
    harbour.turn(*writes(boat="a violet boat\n", mast="a mast\n"), *FINISH, by="bob")
    harbour.land()
    assert harbour.state("blue") == "done"
    assert harbour.repo.show("main", "boat") == "a violet boat"
    changes = harbour.result("blue").partition("## Changes")[2]
    assert [name for name in ("boat", "mast", "sail", "oar") if f"{name} " in changes] == ["boat", "mast"]


def test_work_that_changes_nothing_any_more_makes_no_commit_and_says_so(harbour, capsys):
    harbour.repo.commit(oar="an oar\n")
    for name, by in (("red", "ada"), ("blue", "bob")):
        harbour.agent(by)
        harbour.crew.drop(f"---\nassignee: {by}\n---\nDo {name}.\n", f"{name}.md")
        harbour.turn(*writes(boat=f"a {name} boat\n"), by=by)
    harbour.turn(*FINISH, by="ada")
    harbour.land()
    harbour.turn(*FINISH, by="bob")
    harbour.land()
    red = harbour.repo.git("rev-parse", "main")
    harbour.configure(land="ask")
    harbour.turn(*writes(boat="a red boat\n"), *FINISH, by="bob")
    harbour.land()
    main(["--hive", str(harbour.root), "land", "--dry-run", "blue"])
    assert "  no changes\n" in capsys.readouterr().out
    main(["--hive", str(harbour.root), "land", "blue"])
    assert capsys.readouterr().out == "blue: landed, main has all of it\n"
    assert harbour.repo.git("rev-parse", "main") == red
    assert "## Changes" not in harbour.result("blue")
    assert "* No changes left for `main` of" in harbour.result("blue")
    main(["--hive", str(harbour.root), "task", "diff", "blue"])
    main(["--hive", str(harbour.root), "land", "revert", "blue"])
    err = capsys.readouterr().err
    assert "blue: has made no change in main to undo" in err
    main(["--hive", str(harbour.root), "land", "revert", "red"])
    assert harbour.repo.show("main", "boat") == "a boat", "the commit of red is still known as its own"


def test_an_agent_that_finishes_again_and_again_with_the_marks_has_a_person_asked(harbour):
    harbour.work("blue", by="bob", boat="a blue boat\n")
    harbour.repo.commit(boat="a red boat\n")
    harbour.land()
    for number in range(5):
        harbour.turn(("finish_task", {"result": f"Done, turn {number}."}), by="bob")
    mail = Hive.open(harbour.root).mail
    [letter] = mail.list("human")
    assert "The same calls have had the same results again and again." in mail.read("human", letter.id).body


def test_the_journal_says_what_becomes_of_work_with_branch_commit_and_reason(harbour):
    harbour.configure(check="! test -e mast", check_network="open")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    harbour.turn(("run_command", {"command": "mv mast pole"}), *FINISH)
    hold_roots(Hive.open(harbour.root), [], "a release")
    harbour.land()
    hold_roots(Hive.open(harbour.root), [], None)
    harbour.land()
    events = [event for event in Hive.open(harbour.root).journal.events() if event.kind.startswith("landing.")]
    assert [event.kind for event in events] == [
        "landing.queued", "landing.started", "landing.returned", "landing.queued", "landing.held", "landing.waits",
        "landing.started", "landing.landed",
    ]  # fmt: skip
    held = events.pop(4).payload
    assert (held["root"], held["branch"], held["reason"]) == (str(harbour.repo.path), "main", "a release")
    assert {event.payload["branch"] for event in events} == {"hive/mast"}
    assert all(harbour.repo.git("cat-file", "-t", event.payload["commit"]) == "commit" for event in events)
    reasons = [event.payload["reason"] for event in events if event.kind in ("landing.returned", "landing.waits")]
    assert reasons[0].startswith("Not landed: `! test -e mast` fails")
    assert reasons[1] == "a release"


def test_a_target_that_is_red_itself_blames_no_task(harbour):
    harbour.configure(check="! test -e broken")
    harbour.work("mast", mast="a mast\n")
    harbour.repo.commit(broken="yes\n")
    harbour.land()
    assert harbour.state("mast") == "active"
    assert harbour.reason("mast") == "main itself fails: ! test -e broken"
    harbour.repo.git("rm", "-q", "broken")
    harbour.repo.git("commit", "-qm", "Mended")
    harbour.land()
    assert harbour.state("mast") == "done"


@pytest.mark.parametrize("bad", [0, 4])
def test_of_eight_with_one_bad_seven_land_with_at_most_five_checks(harbour, bad, monkeypatch):
    monkeypatch.setattr("hivemind.landing.batches._BATCH_S", 0)  # however quick the check is
    count = harbour.root.parent / "count"
    harbour.configure(check=f"echo x >> {count}; ! test -e bad", check_box="none")
    for number in range(8):
        name = "bad" if number == bad else f"part{number}"
        harbour.work(f"task{number}", **{name: "x\n"})
    harbour.land()
    states = [harbour.state(f"task{number}") for number in range(8)]
    assert states == ["inbox" if number == bad else "done" for number in range(8)]
    assert count.read_text().count("x") <= 5 + 1, "one more for the target itself, which no task may be blamed for"


def test_text_that_is_added_to_a_finished_task_brings_it_back_to_its_agent(harbour):
    harbour.configure(land="ask")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    Hive.open(harbour.root).tasks.say("mast", "Of oak, please.")
    harbour.land()
    assert harbour.state("mast") == "inbox"
    harbour.turn(*writes(mast="an oak mast\n"), *FINISH)
    assert harbour.state("mast") == "active"


def test_a_cancelled_task_leaves_the_queue_and_keeps_its_branch(harbour):
    harbour.configure(land="ask")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    Hive.open(harbour.root).tasks.cancel("mast")
    harbour.land()
    assert harbour.state("mast") == "failed"
    assert harbour.repo.show("hive/mast", "mast") == "a mast"


def test_a_subtask_lands_in_its_parents_branch_between_two_turns(harbour):
    harbour.agent("bob")
    harbour.crew.drop("---\nassignee: ada\n---\nBuild.\n", "build.md")
    harbour.turn(*writes(hull="a hull\n"), ("delegate", {"tasks": [{"text": "A mast.", "to": "bob"}]}))
    task = Hive.open(harbour.root).tasks.get("build").subtasks[0]
    harbour.turn(("wait_for", {"tasks": [task]}))
    harbour.turn(*writes(mast="a mast\n"), *FINISH, by="bob")
    assert harbour.state(task) == "active"
    harbour.turn(("read_file", {"path": "mast"}))
    assert harbour.state(task) == "done"
    assert harbour.repo.show("hive/build", "mast") == "a mast"
    harbour.turn(*FINISH)
    harbour.land()
    assert harbour.state("build") == "done"
    assert harbour.repo.show("main", "mast") == "a mast"
    assert harbour.repo.show("main", "hull") == "a hull"


@pytest.mark.shows("setting: roots.check_subtasks")
def test_subtasks_are_checked_too_before_they_land_in_their_parents_branch_if_the_root_says_so(harbour):
    harbour.configure(check="! test -e broken", check_subtasks=True)
    harbour.agent("bob")
    harbour.crew.drop("---\nassignee: ada\n---\nBuild.\n", "build.md")
    harbour.turn(("delegate", {"tasks": [{"text": "A mast.", "to": "bob"}]}))
    task = Hive.open(harbour.root).tasks.get("build").subtasks[0]
    harbour.turn(("wait_for", {"tasks": [task]}))
    harbour.turn(*writes(mast="a mast\n", broken="yes\n"), *FINISH, by="bob")
    assert not harbour.agent().cycle()
    harbour.land()
    assert harbour.state(task) == "inbox", "red, as merged into its parent's branch"
    harbour.turn(("run_command", {"command": "rm broken"}), *FINISH, by="bob")
    harbour.land()
    assert harbour.reason(task) == "is green, and lands between two turns of build"
    harbour.turn(("read_file", {"path": "mast"}))
    assert harbour.state(task) == "done"
    assert harbour.repo.show("hive/build", "mast") == "a mast"
