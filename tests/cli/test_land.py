"""What a person sees of landing on the command line, and says there."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable

import pytest

from hivemind import Hive
from hivemind.cli.land import landing_output
from hivemind.landing.queue import approve
from hivemind.web.snapshot import take_snapshot
from tests import program
from tests.cli.conftest import Ended
from tests.cli.test_terminal import shown as on_terminal
from tests.landing.conftest import *  # noqa: F403 - its fixtures
from tests.landing.conftest import FINISH, Harbour, writes
from tests.waiting import until


@pytest.fixture
def run(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """The command line, as a process, in the harbour's hive."""
    monkeypatch.setenv("HIVEMIND_HIVE", str(harbour.root))

    def call(*arguments: str) -> Ended:
        done = program.run(arguments, capture_output=True, env=dict(os.environ), timeout=120)
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def ask(harbour: Harbour, **settings: object) -> None:
    harbour.configure(land="ask", **settings)
    harbour.work("mast", mast="a mast\n")
    if "check" not in settings:  # else it would run before the person is asked
        harbour.land()


def recorded(harbour: Harbour) -> list[object]:
    """The changes of records."""
    return [event for event in Hive.look(harbour.root).journal.events() if event.kind == "task.recorded"]


def test_what_waits_for_a_person_is_listed_and_lands_when_it_is_named(harbour, run):
    ask(harbour)
    [row] = run("land", "--json").json["queue"]
    assert (row["id"], row["state"], row["agent"]) == ("mast", "waits", "ada")
    assert row["why"] == "waits for you: hivemind land mast"
    assert row["branches"] == [{"root": str(harbour.repo.path), "branch": "hive/mast", "into": "main"}]
    assert "app/main" in run("land").out
    landed = run("land", "mast")
    commit = harbour.repo.git("rev-parse", "main")
    assert (landed.status, landed.out) == (0, f"mast: landed, main has {commit[:12]}\n")
    assert harbour.repo.show("main", "mast") == "a mast"
    listed = run("land", "--json").json
    assert listed["queue"] == []
    assert [(row["task"], row["commit"]) for row in listed["landed"]] == [("mast", commit)]
    assert f"{commit[:12]} app/main: mast" in run("land").out


def test_a_task_that_depends_on_one_that_waits_for_a_person_says_how_to_land_that(harbour, run):
    ask(harbour)
    harbour.crew.drop("---\ndependencies: mast\n---\nSail.\n", "sail.md")
    assert "its dependency 'mast' waits for you: hivemind land mast" in run("task", "list").out
    run("land", "--hold", "app", "--reason", "a release")
    run("land", "mast")
    assert "its dependency 'mast' is parked: a release" in run("task", "show", "sail").out


def test_what_is_red_is_returned_with_status_1_and_listed_with_the_reason(harbour, run):
    ask(harbour, check="! test -e mast")
    returned = run("land", "mast")
    assert returned.status == 1
    assert returned.out.startswith("mast: returned, Not landed: `! test -e mast` fails on your work merged into main")
    [row] = run("land", "--json").json["returned"]
    assert (row["id"], row["state"], row["tries"]) == ("mast", "returned", 1)
    assert row["why"].startswith("Not landed: `! test -e mast` fails")
    assert "mast: was returned, and is not finished again" in run("land", "mast").err


def test_a_return_names_the_last_line_and_the_log_and_task_show_keeps_the_lines(harbour, run):
    check = "cat log; test ! -e mast"
    harbour.repo.commit(log="Traceback\n  File boat.py\n\nMastError\n")
    ask(harbour, check=check)
    reason = run("land", "mast").out
    assert reason.count(check) == 1
    assert reason.endswith("into main: MastError; its whole output is in landing.log in the task's folder.\n")
    assert (harbour.root / "tasks/inbox/mast/landing.log").read_text().count("MastError") == 2
    shown = run("task", "show", "mast").out
    indent = " " * 10
    assert shown.count("Traceback") == 1
    assert f"\n{indent}Traceback\n{indent}  File boat.py\n\n{indent}MastError\n" in shown


def test_what_waits_for_something_else_says_so_with_status_3(harbour, run):
    ask(harbour)
    assert run("land", "--hold", "app", "--reason", "a release").out == f"{harbour.repo.path}: is held: a release\n"
    waits = run("land", "mast")
    assert (waits.status, waits.out) == (3, "mast: waits, a release\n")
    assert f"{harbour.repo.path} is held: a release" in run("land").out
    assert run("land", "--json").json["held"][0]["by"] == "person"
    assert len(list((harbour.root / ".hive/landing").glob("*/hold.json"))) == 1
    assert harbour.events()[-2] == ("held", "")
    assert "is held: a release" in run("status").out
    assert run("land", "--resume").out == f"{harbour.repo.path}: goes on\n"
    assert run("land", "--json").json["held"] == []
    assert run("land", "mast").status == 0


def test_while_the_swarm_lands_the_command_waits_for_it_and_says_what_is_being_checked(harbour, run):
    gate = harbour.root.parent / "gate"
    os.mkfifo(gate)
    ask(harbour, check=f"cat {gate}", check_box="none")
    lander = program.Program(("land", "mast"), stdout=-1, text=True)  # the first command lands by itself
    until(lambda: run("land", "--json").json["queue"][0]["state"] == "checked")
    before = len(recorded(harbour))
    other = program.Program(("land", "mast"), stdout=-1, text=True)
    until(lambda: len(recorded(harbour)) > before)
    gate.write_text("")
    assert lander.wait(60) == 0
    assert other.wait(60) == 0
    assert lander.stdout is not None
    assert other.stdout is not None
    with lander.stdout, other.stdout:
        assert lander.stdout.read() == other.stdout.read()


def test_when_the_lander_dies_the_command_that_waits_for_it_lands_by_itself(harbour, run):
    gate = harbour.root.parent / "gate"
    os.mkfifo(gate)
    ask(harbour, check=f"cat {gate}", check_box="none")
    assert run("land", "--json").json["queue"][0]["why"] == "no swarm is up"
    lander = program.Program(("land", "mast"))
    until(lambda: run("land", "--json").json["queue"][0]["state"] == "checked")
    before = len(recorded(harbour))
    other = program.Program(("land", "mast"))
    until(lambda: len(recorded(harbour)) > before)
    lander.kill()
    lander.wait(60)
    gate.unlink()
    gate.write_text("")
    assert other.wait(60) == 0
    assert harbour.state("mast") == "done"


def test_what_is_not_in_the_queue_and_roots_that_there_are_not_are_refused(harbour, run):
    ask(harbour)
    assert "there is no such task" in run("land", "sail").err
    assert run("land", "--hold", "elsewhere").status == 2
    assert f"there are {harbour.repo.path}" in run("land", "--hold", "elsewhere").err
    assert run("land", "--again").status == 2
    assert run("land", "revert").status == 2
    assert "has not landed" in run("land", "revert", "mast").err
    assert run("task", "add", "Nothing", "--id", "oar").status == 0
    refused = run("land", "mast", "oar")
    assert (refused.status, refused.out) == (2, "")
    assert "oar: does not wait to land, so none of these tasks is changed" in refused.err
    assert harbour.entry("mast")["approved"] is False
    commit = run("land", "mast").out[-13:]
    landed = run("land", "mast")
    assert (landed.status, landed.out) == (0, f"mast: has landed already, main has {commit}")


def test_a_rehearsal_shows_files_conflicts_protected_files_and_the_check_and_changes_nothing(harbour, run):
    harbour.configure(land="ask", check="make test", protect=["Makefile"])
    harbour.work("red", boat="a red boat\n", Makefile="test:\n")
    harbour.repo.commit(boat="a blue boat\n")
    before = harbour.repo.git("for-each-ref"), harbour.entry("red")
    shown = run("land", "--dry-run", "red")
    assert shown.status == 0, shown.err
    assert shown.out.splitlines() == [
        f"red: merge of hive/red into main of {harbour.repo.path}", "  subject: Do red.", "  A\tMakefile", "  M\tboat",
        "  conflict: boat", "  protected: Makefile", "  check: make test (not run yet)",
    ]  # fmt: skip
    assert run("land", "--dry-run", "red", "--json").json[0]["conflicts"] == ["boat"]
    assert (harbour.repo.git("for-each-ref"), harbour.entry("red")) == before


def test_a_check_runs_again_if_a_person_says_so(harbour, run):
    ask(harbour)
    assert run("land", "--again", "mast").out == "mast: its check runs again, when it is its turn\n"
    assert harbour.entry("mast")["again"] is True


def test_a_landed_task_is_undone_once_by_a_commit_that_lands_like_any_other(harbour, run):
    harbour.configure(check="test -e boat")
    harbour.work("mast", mast="a mast\n", boat="a boat with a mast\n")
    harbour.land()
    commit = harbour.repo.git("rev-parse", "main")
    reverted = run("land", "revert", "mast")
    assert reverted.status == 0, reverted.err
    assert reverted.out.startswith("mast.revert: landed, main has ")
    assert harbour.repo.show("main", "boat") == "a boat"
    assert not (harbour.repo.path / "mast").exists()
    message = harbour.repo.git("log", "-1", "--format=%B", "main")
    assert message.splitlines() == ["Revert: Do mast.", "", f"Hive-Reverts: {commit}"]
    assert harbour.state("mast.revert") == "done"
    assert Hive.open(harbour.root).tasks.get("mast.revert").title == "Revert: Do mast."
    assert harbour.repo.branches() == ["main"]
    again = run("land", "revert", "mast")
    assert (again.status, "was undone by mast.revert" in again.err) == (2, True)


def test_a_reverted_task_says_so_and_no_agent_has_done_the_revert(harbour, run):
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    assert run("land", "revert", "mast").status == 0
    assert "Landing:  undone by mast.revert" in run("task", "show", "mast").out
    [row, revert] = [line for line in run("task", "list").out.splitlines() if "mast" in line]
    assert row.endswith("undone by mast.revert")
    assert "ada" not in revert + run("task", "show", "mast.revert").out
    assert run("task", "show", "mast.revert", "--json").json["agent"] is None
    assert run("land", "mast").out.endswith(", undone by mast.revert\n")
    assert run("land", "revert", "mast.revert").status == 0
    assert "undone by mast.revert.revert" in run("task", "show", "mast.revert").out


def test_a_task_that_was_returned_and_finished_again_meanwhile_was_returned(harbour, run):
    ask(harbour, check="! test -e mast", land_tries=9)
    hive = Hive.open(harbour.root)
    since = hive.journal.seq
    approve(hive, "mast")
    harbour.land()
    harbour.turn(*FINISH)
    harbour.land()
    reason = harbour.reason("mast")
    assert reason.startswith("has come back unchanged since its check was red: look at it")
    output = landing_output(hive, ["mast"], since)  # as if the command had not looked before
    [line] = output.lines
    assert line.startswith("mast: returned, Not landed: `! test -e mast` fails")
    assert line.endswith(f" It is finished again, and {reason}")
    assert output.status == 1
    [line] = landing_output(hive, ["mast"], hive.journal.seq).lines
    assert line == f"mast: waits, {reason}"


def test_a_revert_is_one_commit_on_the_target(harbour, run):
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    commit = harbour.repo.git("rev-parse", "main")
    run("land", "revert", "mast")
    assert harbour.repo.git("log", "-1", "--format=%P", "main") == commit


def test_killed_in_the_middle_of_a_move_the_next_one_lands_it_once(harbour, run, monkeypatch):
    ask(harbour)
    folder = harbour.root / ".hive/landing"
    monkeypatch.setenv("HIVEMIND_CRASH_AT", "landing.checkout.locked")
    assert run("land", "mast").status == -signal.SIGKILL
    assert list(folder.glob("*/move.json"))
    monkeypatch.delenv("HIVEMIND_CRASH_AT")
    landed = run("land", "mast")
    assert (landed.status, landed.out[:12]) == (0, "mast: landed"), landed.err
    assert not list(folder.glob("*/move.json"))
    assert len(list(folder.glob("*/landed.jsonl"))) == 1
    assert harbour.repo.git("log", "--merges", "--format=%s", "main") == "Do mast."
    assert harbour.repo.git("status", "--porcelain") == ""


def test_killed_while_it_asks_for_a_revert_the_next_one_makes_it(harbour, run, monkeypatch):
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    monkeypatch.setenv("HIVEMIND_CRASH_AT", "landing.reverting")
    assert run("land", "revert", "mast").status == -signal.SIGKILL
    monkeypatch.delenv("HIVEMIND_CRASH_AT")
    assert run("land", "revert", "mast").status == 0
    assert not (harbour.repo.path / "mast").exists()


def test_of_a_batch_of_rebased_commits_one_task_alone_is_undone(harbour, run):
    harbour.configure(how="rebase", check="true")
    harbour.work("one", one="1\n")
    harbour.work("two", two="2\n")
    harbour.work("three", three="3\n")
    harbour.land()
    assert run("land", "revert", "two").status == 0
    assert harbour.repo.git("ls-tree", "--name-only", "main").split() == ["boat", "one", "src", "three"]


def test_a_revert_that_git_cannot_make_waits_for_a_person_and_lands_what_that_one_commits(harbour, run):
    harbour.work("red", boat="a red boat\n")
    harbour.land()
    harbour.repo.commit(boat="a red boat with a mast\n")
    waits = run("land", "revert", "red")
    assert waits.status == 3
    assert "later changes of boat are in the way" in waits.out
    assert "is being undone by red.revert" in run("land", "revert", "red").err
    harbour.repo.git("checkout", "-q", "hive/red.revert")
    harbour.repo.commit(boat="a boat with a mast\n")
    harbour.repo.git("checkout", "-q", "main")
    landed = run("land", "red.revert")
    assert landed.status == 0, landed.out + landed.err
    assert harbour.repo.show("main", "boat") == "a boat with a mast"


def test_no_agent_claims_what_is_the_landers_and_the_lander_claims_nothing_else(harbour, run):
    harbour.agent()
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    harbour.crew.drop("---\nassignee: landing\n---\nLand me.\n", "me.md")
    harbour.crew.drop("---\nassignee: bob\n---\nBuild.\n", "build.md")
    harbour.crew.drop("Anything.\n", "any.md")
    run("land", "revert", "mast")
    assert harbour.state("me") == "failed"
    assert harbour.state("build") == "inbox"
    assert harbour.state("any") == "inbox"


def test_what_a_task_has_changed_is_shown_while_it_works_waits_and_after_it_has_landed(harbour, run):
    harbour.configure(land="ask")
    harbour.agent()
    harbour.crew.drop("---\nassignee: ada\n---\nDo mast.\n", "mast.md")
    assert run("task", "diff", "mast").out == "mast has changed nothing in a repository.\n"
    harbour.turn(*writes(mast="a mast\n"))
    assert "+a mast" in run("task", "diff", "mast").out
    harbour.turn(*FINISH)
    assert "+a mast" in run("task", "diff", "mast").out
    harbour.repo.commit(sail="another's\n")
    assert run("land", "mast").status == 0
    landed = run("task", "diff", "mast")
    assert "+a mast" in landed.out
    assert "another's" not in landed.out
    assert landed.out.startswith("# hive/mast\n")
    assert "mast | 1 +" in run("task", "diff", "mast", "--stat").out
    [row] = run("task", "diff", "mast", "--json").json
    assert row["branch"] == "hive/mast"


def test_a_terminal_shows_a_diff_with_colours_and_nothing_in_it_steers(harbour):
    harbour.configure(land="ask")
    harbour.work("mast", mast=f"a [bold]mast[/] {'m' * 100}\n\x1b[2J\n")
    text = on_terminal(harbour.root, "task", "diff", "mast")
    assert re.search(r"\x1b\[[\d;]*m\+a \[bold]mast\[/] m{100}\x1b\[0m\r\n", text)
    assert "\x1b[2J" not in text
    plain = on_terminal(harbour.root, "task", "diff", "mast", NO_COLOR="1")
    assert set(re.findall(r"\x1b\[([\d;]*)m", plain)) <= {"0", "1"}


def test_a_task_that_lands_is_nobodys_in_hand_wherever_it_is_shown(harbour, run):
    harbour.configure(land="ask", check="true", check_box="auto", sign="off")
    harbour.repo.git("config", "commit.gpgsign", "true")
    harbour.work("mast", mast="a mast\n")
    assert "lands" in run("task", "list").out
    assert "Landing:" in run("task", "show", "mast").out
    status = run("status").out
    assert "Landing    1 task is to land" in status
    assert f"your git signs commits in {harbour.repo.path}, landings are not signed" in status
    harbour.land()
    assert "waits for you: hivemind land mast" in run("task", "list").out
    assert "Landing    1 task waits" in run("status").out
    assert 'mast: "Do mast.": waits for you: hivemind land mast' in run("status").out.partition("Needs you:")[2]
    needs = take_snapshot(Hive.look(harbour.root)).needs
    assert (
        [row["id"] for row in run("status", "--json").json["needs_you"]] == [need.about for need in needs] == ["mast"]
    )
    assert "Parked:" not in run("status").out
    top = run("top", "--once").out
    assert "landing" in top
    assert " landing " not in "".join(line for line in top.splitlines() if line.startswith("  task"))


def test_a_person_is_told_of_a_task_that_waits_to_land(harbour, run):
    harbour.crew.configure(f"notify: {{events: [parked]}}\nroots: {json.dumps([harbour.settings | {'land': 'ask'}])}\n")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    [notice] = Hive.open(harbour.root).tasks.outbox.list_notices()
    assert (notice.event, notice.task, notice.why) == ("parked", "mast", "waits for you: hivemind land mast")
