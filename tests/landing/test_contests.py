"""Several agents do the same task, and the work of one lands."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta

import pytest

from hivemind import Hive
from hivemind.cli import main
from hivemind.config import RetentionConfig
from hivemind.errors import UserError
from hivemind.landing.queue import approve
from hivemind.swarm.archive import archive
from hivemind.swarm.until_idle import survey
from hivemind.web.snapshot import take_snapshot
from tests.landing.conftest import FINISH, Harbour, with_hive, writes
from tests.tasks.conftest import in_process, killed_at

CHECK = "! grep -rq broken ."


@pytest.fixture
def contest(harbour: Harbour) -> Harbour:
    """A harbour with the task `boat`, which Ada and Bob do at once."""
    return begin(harbour)


def begin(harbour: Harbour, head: str = "", names: str = "[ada, bob]") -> Harbour:
    harbour.configure(check=CHECK)
    for name in ("ada", "bob"):
        harbour.agent(name)
    harbour.crew.drop(f"---\ncandidates: {names}\n{head}---\nBuild a boat.\n", "boat.md")
    harbour.land()
    return harbour


def do(harbour: Harbour, name: str, text: str) -> None:
    harbour.turn(*writes(boat=text), *FINISH, by=name)


def say(harbour: Harbour, text: str, task: str = "boat") -> None:
    Hive.open(harbour.root).tasks.say(task, text)
    harbour.land()


def test_a_person_chooses_one_of_the_green_candidates_and_that_lands_as_the_task(contest, capsys):
    do(contest, "ada", "an oak boat\n")
    do(contest, "bob", "a pine boat\n")
    contest.land()
    assert contest.state("boat") == "active"
    assert main(["--hive", str(contest.root), "task", "show", "boat"]) == 0
    assert "boat.a, boat.b" in capsys.readouterr().out
    assert 'hivemind task say boat "LETTER: your reason"' in contest.reason("boat")
    hive = Hive.open(contest.root)
    assert survey(hive, []).busy == (), "the swarm has nothing to do until then"
    assert [need.about for need in take_snapshot(hive).needs if need.kind == "landing"] == ["boat"]
    [letter] = [one for one in hive.mail.list("human") if one.subject.startswith("Choose a candidate")]
    body = hive.mail.read("human", letter.id).body
    assert all(part in body for part in ("Build a boat.", "+an oak boat", "+a pine boat", "| boat.a | ada |", "1 turn"))
    say(contest, "b: pine swims better")
    assert "R" in hive.mail.read("human", letter.id, mark=False).flags
    assert contest.state("boat") == contest.state("boat.a") == contest.state("boat.b") == "done"
    assert contest.repo.show("main", "boat") == "a pine boat"
    result = contest.result("boat")
    assert "Chosen: boat.b, the work of bob, by human. pine swims better" in result
    assert "| boat.a | ada |" in result
    assert Hive.open(contest.root).tasks.get("boat").owner == "bob"
    assert contest.repo.branches() == ["hive/boat.a", "main"], "the other one's branch stays"
    assert contest.repo.show("hive/boat.a", "boat") == "an oak boat"
    message = contest.repo.git("log", "-1", "--format=%B", "main")
    assert "Hive-Task: boat\n" in f"{message}\n"
    assert "Hive-Agent: bob" in message


def test_with_land_ask_candidates_are_checked_and_the_choice_of_a_person_lets_the_winner_land(harbour):
    harbour.configure(land="ask")
    begin(harbour)
    do(harbour, "ada", "an oak boat\n")
    do(harbour, "bob", "a pine boat\n")
    harbour.land()
    with pytest.raises(UserError, match="is a candidate: boat lands once one is chosen"):
        approve(Hive.open(harbour.root), "boat.a")
    say(harbour, "a: oak")
    assert harbour.state("boat") == "done"


def test_all_candidates_begin_from_the_same_commit_and_know_nothing_of_each_other(contest):
    contest.turn(*writes(mast="a mast\n"), by="ada")
    contest.repo.commit(sail="by the person\n")
    contest.turn(*writes(boat="a boat of Bob\n"), by="bob")
    hive = Hive.open(contest.root)
    rows = [hive.tasks.get(task).kept["worktrees"][0] for task in ("boat.a", "boat.b")]
    assert rows[0]["base"] == rows[1]["base"]
    assert [row["branch"] for row in rows] == ["hive/boat.a", "hive/boat.b"]
    contest.turn(*writes(boat="a boat of Ada\n"), by="ada")
    contest.turn(("read_file", {"path": "boat"}), by="bob")
    notes = [path.read_text() for path in contest.root.glob(".hive/landing/*/*/boat.?.json")]
    assert len(notes) == 2
    assert not any('"task":"boat.a"' in note and "boat.b" in note for note in notes), "they are no news to each other"


def test_the_branches_of_the_others_go_when_their_tasks_are_archived_unless_a_person_uses_them(harbour):
    harbour.agent("eve")
    begin(harbour, names="[ada, bob, eve]")
    for name in ("ada", "bob", "eve"):
        do(harbour, name, f"a boat of {name}\n")
    harbour.land()
    say(harbour, "b")
    harbour.repo.git("checkout", "-q", "hive/boat.a")
    hive = Hive.open(harbour.root)
    archived = archive(hive, RetentionConfig(tasks="1s"), datetime.now(UTC) + timedelta(days=1))
    assert len(archived.tasks) == 4
    assert harbour.repo.branches() == ["hive/boat.a", "main"]


def test_a_candidate_that_fails_costs_only_itself_and_the_only_green_one_lands_at_once(contest):
    contest.configure(land_tries=1)
    do(contest, "ada", "broken\n")
    do(contest, "bob", "a boat of Bob\n")
    contest.land()
    assert contest.state("boat.a") == "inbox", "it is returned like any other"
    assert contest.state("boat") == "active"
    do(contest, "ada", "still broken\n")
    contest.land()
    assert contest.state("boat.a") == "failed"
    assert contest.state("boat") == "done"
    assert contest.repo.show("main", "boat") == "a boat of Bob"
    assert "It is the only one that is green." in contest.result("boat")
    assert "| boat.a | ada |" in contest.result("boat")


def test_if_none_is_green_the_task_fails_with_the_reason_of_each(contest):
    contest.turn(("fail_task", {"reason": "there is no wood"}), by="ada")
    contest.turn(*FINISH, by="bob")
    contest.land()
    assert contest.state("boat") == "failed"
    error = (contest.root / "tasks/failed/boat/error.md").read_text()
    assert "there is no wood" in error
    assert "it has changed nothing" in error


def test_what_depends_on_the_task_waits_for_the_winner(contest):
    contest.crew.drop("---\ndependencies: [boat]\nassignee: ada\n---\nSet sail.\n", "sail.md")
    do(contest, "ada", "an oak boat\n")
    do(contest, "bob", "a pine boat\n")
    contest.land()
    assert not contest.agent().cycle()
    say(contest, "a")
    contest.turn(("read_file", {"path": "boat"}))
    assert contest.state("sail") == "active"


def test_a_reviewer_chooses_by_the_criteria_of_the_task(harbour):
    harbour.crew.agent_file("role: critic\nmind: command:true\n", "eve")
    begin(harbour, "review: {by: critic, criteria: [it floats]}\n")
    do(harbour, "ada", "an oak boat\n")
    assert "1. it floats" in Hive.open(harbour.root).tasks.get("boat.b").text
    do(harbour, "bob", "a pine boat\n")
    harbour.land()
    harbour._agents["eve"] = harbour.crew.start(None, "eve")
    text = Hive.open(harbour.root).tasks.get("boat.choice1").text
    assert all(part in text for part in ("1. it floats", "+an oak boat", "+a pine boat"))
    harbour.turn(("verdict", {"approved": True, "choice": "c", "reason": "x"}), by="eve")
    assert harbour.state("boat.choice1") == "active", "there is no c"
    harbour.turn(("verdict", {"approved": True, "choice": "A", "reason": "oak floats"}), by="eve")
    harbour.land()
    assert harbour.state("boat") == "done"
    assert "by eve (boat.choice1). oak floats" in harbour.result("boat")
    assert harbour.repo.show("main", "boat") == "an oak boat"
    assert "Reviewed-by: eve" in harbour.repo.git("log", "-1", "--format=%B", "main")


def test_a_reviewer_may_refuse_all_and_one_without_an_answer_leaves_it_to_a_person(harbour):
    harbour.crew.agent_file("role: reviewer\nmind: command:true\n", "eve")
    begin(harbour)
    do(harbour, "ada", "an oak boat\n")
    do(harbour, "bob", "a pine boat\n")
    harbour.land()
    harbour._agents["eve"] = harbour.crew.start(None, "eve")
    harbour.turn(("fail_task", {"reason": "I cannot read"}), by="eve")
    harbour.land()
    assert "boat.choice1 ended without a choice; waits for you to choose" in harbour.reason("boat")
    say(harbour, "Paint them, too.")
    assert harbour.state("boat.a") == harbour.state("boat.b") == "inbox", "it is for both"
    do(harbour, "ada", "a red oak boat\n")
    do(harbour, "bob", "a red pine boat\n")
    harbour.land()
    harbour.turn(("verdict", {"approved": False, "missing": ["it leaks"]}), by="eve")
    harbour.land()
    assert harbour.state("boat") == "failed"
    assert "it leaks" in (harbour.root / "tasks/failed/boat/error.md").read_text()


def test_a_choice_counts_only_for_what_was_judged(contest):
    do(contest, "ada", "an oak boat\n")
    do(contest, "bob", "a pine boat\n")
    contest.land()
    say(contest, "Longer, please.", task="boat.a")
    assert contest.state("boat.a") == "inbox"
    do(contest, "ada", "a long oak boat\n")
    contest.land()
    assert len(list(Hive.open(contest.root).mail.list("human"))) == 2, "it is asked again"
    say(contest, "a: it is long")
    assert contest.repo.show("main", "boat") == "a long oak boat"


def test_the_chosen_work_that_does_not_land_goes_back_to_its_agent(contest):
    do(contest, "ada", "an oak boat\n")
    do(contest, "bob", "a pine boat\n")
    contest.land()
    contest.repo.commit(boat="a boat of the person\n")
    say(contest, "b: pine")
    assert contest.state("boat") == "inbox"
    assert contest.state("boat.a") == "done"
    contest.turn(("read_file", {"path": "boat"}), *writes(boat="a boat of both\n"), *FINISH, by="bob")
    contest.land()
    assert contest.state("boat") == "done"
    assert contest.repo.show("main", "boat") == "a boat of both"
    assert "Chosen: boat.b" in contest.result("boat")


def test_cancelling_the_task_ends_its_candidates_and_keeps_their_branches(contest):
    do(contest, "ada", "an oak boat\n")
    contest.land()
    Hive.open(contest.root).tasks.cancel("boat")
    contest.land()
    assert [contest.state(task) for task in ("boat", "boat.a", "boat.b")] == ["failed"] * 3
    assert contest.repo.show("hive/boat.a", "boat") == "an oak boat"


def test_a_number_takes_that_many_agents_of_the_role(harbour):
    begin(harbour, "role: builder\n", "2")
    hive = Hive.open(harbour.root)
    assert {hive.tasks.get(task).assignee for task in ("boat.a", "boat.b")} == {"ada", "bob"}


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("candidates: 1", "write how many agents, 2 to 8"),
        ("candidates: [ada, ADA]", "each once"),
        ("candidates: 2\nassignee: ada", "leave assignee and where out"),
        ("candidates: 2\nwhere: any", "says which agents of this hive do it"),
        ("candidates: [ada, zoe]", "there is no agent zoe"),
        ("candidates: 7", "7 agents are asked for"),
    ],
)
def test_impossible_candidates_fail_with_the_reason(harbour, head, problem):
    harbour.agent()
    harbour.crew.drop(f"---\n{head}\n---\nBuild a boat.\n", "boat.md")
    harbour.agent().cycle()
    harbour.land()
    assert problem in (harbour.root / "tasks/failed/boat/error.md").read_text()


def test_where_no_work_lands_no_task_has_candidates(harbour):
    harbour.configure(land="off")
    harbour.crew.drop("---\ncandidates: 2\n---\nBuild a boat.\n", "boat.md")
    harbour.agent().cycle()
    assert "has no root where work lands" in (harbour.root / "tasks/failed/boat/error.md").read_text()


@pytest.mark.parametrize(
    "point",
    [
        "tasks.claim.published",
        "tasks.claim.recorded",
        "landing.candidates.recorded",
        "landing.candidates.added",
        "landing.candidates.added:2",
    ],
)
def test_a_kill_at_the_beginning_makes_no_candidate_twice(harbour, point):
    harbour.configure(check=CHECK)
    for name in ("ada", "bob"):
        harbour.agent(name)
    harbour.crew.drop("---\ncandidates: [ada, bob]\n---\nBuild a boat.\n", "boat.md")
    killed_at(point, lambda: with_hive(harbour.root))
    harbour.land()
    do(harbour, "ada", "an oak boat\n")
    do(harbour, "bob", "a pine boat\n")
    harbour.land()
    say(harbour, "a")
    assert harbour.repo.show("main", "boat") == "an oak boat"
    assert sorted(task.id for task in Hive.open(harbour.root).tasks.list()) == ["boat", "boat.a", "boat.b"]


@pytest.mark.parametrize("point", ["green", "green:2", "asking", "drafted", "chosen", "closed", "closed:2"])
def test_a_kill_at_any_step_of_the_choice_lands_one_candidate_once(contest, point):
    do(contest, "ada", "an oak boat\n")
    do(contest, "bob", "a pine boat\n")
    killed = in_process(lambda: with_hive(contest.root), f"landing.candidates.{point}")
    contest.land()
    Hive.open(contest.root).tasks.say("boat", "a: oak")
    killed = killed or in_process(lambda: with_hive(contest.root), f"landing.candidates.{point}")
    assert killed == signal.SIGKILL, "nobody came past it"
    contest.land()
    assert [contest.state(task) for task in ("boat", "boat.a", "boat.b")] == ["done"] * 3
    assert contest.repo.show("main", "boat") == "an oak boat"
    assert [event for event in contest.events() if event[0] == "landed"] == [("landed", "boat")]
    assert len(list(Hive.open(contest.root).mail.list("human"))) == 1, "a person is asked once"


def test_candidates_share_the_budget_of_their_task(harbour):
    from hivemind.agent.spending import Budget
    from hivemind.config import BudgetConfig, TokenBudget
    from hivemind.taskrun.task_run import TaskRun
    from hivemind.taskrun.waits import Parking

    begin(harbour, "budget: 100000\n")
    for name in ("ada", "bob"):
        harbour.turn(("read_file", {"path": "boat"}), by=name)
    hive, now = Hive.open(harbour.root), datetime.now(UTC)
    runs = {
        name: TaskRun(hive, hive.tasks.get(f"boat.{letter}"), name) for letter, name in (("a", "ada"), ("b", "bob"))
    }
    budgets = {name: Budget(BudgetConfig(), hive.layout, name, TokenBudget()) for name in runs}
    budgets["ada"].hold(60_000, 0.0, runs["ada"], now)(60_000, 0.0, now)
    with pytest.raises(Parking, match="the task's budget of 100000 tokens"):
        budgets["bob"].hold(60_000, 0.0, runs["bob"], now)


def test_a_candidate_whose_claim_was_interrupted_is_still_one(contest):
    killed_at("tasks.claim.emptied", lambda: Hive.open(contest.root).tasks.claim("ada"))
    task = Hive.open(contest.root).tasks.claim("ada")
    assert task is not None
    assert (task.id, task.parent) == ("boat.a", "boat")
