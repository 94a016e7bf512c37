"""Tasks that another hive works on: offered, claimed, brought home, once each, whatever dies on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from hivemind.tasks import TaskMoved
from hivemind.tasks.record import load
from tests.exchange.hives import LinkedHive, claim_pay_once
from tests.postgres import Server
from tests.waiting import until


def rows(server: Server, database: str, what: str = "id, state, taker") -> list[tuple[object, ...]]:
    return server.execute(f"select {what} from hivemind_exchange.tasks order by number", database.rpartition("/")[2])


def end_leases(server: Server, database: str) -> None:
    """As if the hives that have them had not been heard of for longer than a lease lasts."""
    server.execute(
        "update hivemind_exchange.tasks set lease = now() - interval '1 s'; select 1", database.rpartition("/")[2]
    )


def test_a_task_for_any_hive_is_worked_on_where_an_agent_is_idle_and_its_result_comes_home(
    pair: tuple[LinkedHive, LinkedHive],
) -> None:
    berlin, munich = pair
    folder = berlin.hive.layout.inbox / "report"
    (folder / "data").mkdir(parents=True)
    (folder / "data/figures.csv").write_text("1,2\n")
    (folder / "task.md").write_text(
        "---\nwhere: any\nproject: spring\nsteps: [{run: [make, report]}]\n---\nAdd the figures.\n"
    )
    munich.idle()
    for one in pair:
        one.start()
    task = munich.claimed()
    assert (task.text, task.maker, task.project) == ("Add the figures.\n", "human@berlin", "spring")
    assert (task.files / "data/figures.csv").read_text() == "1,2\n"
    given_trace, trace = load(berlin.hive.layout.active / "report").trace, load(task.path).trace
    assert (trace.trace, trace.parent) == (given_trace.trace, given_trace.span)
    until(lambda: "munich works on it" in berlin.command("task", "show", "report"))
    assert "1 task elsewhere" in berlin.command("status")
    assert "1 task of other hives here" in munich.command("status")
    (task.files / "sum.txt").write_text("3\n")
    munich.finish(task, "It is 3.")
    until(lambda: berlin.hive.tasks.listing.outcome("report") == "done")
    done = berlin.hive.layout.done / "report"
    assert (done / "result.md").read_text() == "It is 3."
    assert (done / "files/sum.txt").read_text() == "3\n"
    assert "Done by hive" in berlin.command("task", "show", "report")
    assert "munich" in berlin.command("task", "list")


def start_with_reviewer(pair: tuple[LinkedHive, LinkedHive], settings: str) -> None:
    """Start both hives with an idle agent of these settings in Munich, and wait until Berlin knows its role."""
    berlin, munich = pair
    munich.hive.layout.agent_config("coder").write_text(settings)
    munich.idle()
    for hive in pair:
        hive.start()
    until(lambda: berlin.hive.linked_hives.agents.get("munich", {}).get("coder") == "reviewer")


def test_a_task_goes_only_where_it_may(pair: tuple[LinkedHive, LinkedHive], tmp_path: Path) -> None:
    berlin, munich = pair
    start_with_reviewer(pair, "role: reviewer\n")
    berlin.command("task", "add", "For nobody there", "--where", "any", "--role", "engineer", "--id", "engineers")
    berlin.command("task", "add", "For its role", "--role", "reviewer", "--id", "reviewers")
    assert munich.claimed().title == "For its role"
    assert "it is for the hive 'paris'" in berlin.command("task", "show", berlin.add("Elsewhere", "paris"))
    assert berlin.hive.tasks.claim("coder") is None  # what is for others is not for an agent here
    assert munich.hive.tasks.claim("coder") is None
    berlin.idle()
    assert berlin.claimed().title == "For nobody there"


def test_where_a_task_is_and_which_hive_is_not_there_is_said(
    pair: tuple[LinkedHive, LinkedHive], postgres: Server, database: str
) -> None:
    berlin, munich = pair
    assert "no linked hive is called 'paris' yet" in berlin.command("task", "add", "Wait", "--where", "paris")
    munich.idle()
    for one in pair:
        one.start()
    until(lambda: "munich" in berlin.hive.linked_hives.agents)
    refused = berlin.command("task", "add", "Wait", "--where", "paris", status=2)
    assert "write one of any, berlin, munich" in refused
    assert "NAME@berlin or NAME@munich" in berlin.command("mail", "send", "--to", "human@paris", "x", status=2)
    berlin.add("Measure", "munich")
    munich.claimed()
    until(lambda: "munich works on it" in berlin.command("task", "show", "measure"))
    munich.stop(kill=True)
    reopen = "update hivemind_exchange.tasks set state = 'open', taker = null; select 1"  # as the end of its lease does
    postgres.execute(reopen, database.rpartition("/")[2])
    berlin.restart()
    until(lambda: "offered to munich" in berlin.command("task", "show", "measure"))


def test_a_task_for_any_agent_is_not_brought_to_a_hive_whose_agents_take_only_named_tasks(
    pair: tuple[LinkedHive, LinkedHive],
) -> None:
    berlin, munich = pair
    start_with_reviewer(pair, "role: reviewer\nclaims: named\n")
    berlin.command("task", "add", "For any agent", "--where", "any", "--id", "anybodys")
    berlin.command("task", "add", "For its role", "--where", "any", "--role", "reviewer", "--id", "reviewers")
    until(lambda: [task for task in munich.hive.tasks.list("inbox") if task.title == "For its role"])
    assert [task.title for task in munich.hive.tasks.list("inbox")] == ["For its role"]


@pytest.mark.shows("promise: P57")
@pytest.mark.parametrize(
    ("dies", "point"),
    [
        ("berlin", "exchange.tasks.claimed"),
        ("munich", "exchange.tasks.taken"),
        ("munich", "exchange.tasks.noted"),
        ("munich", "exchange.tasks.dropped"),
        ("munich", "exchange.tasks.reported"),
        ("berlin", "exchange.tasks.finished"),
    ],
)
def test_a_task_has_one_result_wherever_a_process_is_killed(
    pair: tuple[LinkedHive, LinkedHive], dies: str, point: str, postgres: Server, database: str
) -> None:
    berlin, munich = pair
    munich.idle()
    berlin.add("Once", "any")
    died = berlin if dies == "berlin" else munich
    for one in pair:
        one.start(**({"HIVEMIND_CRASH_AT": point} if one is died else {}))
    if point.endswith(("reported", "finished")):
        munich.finish(munich.claimed(), "First.")
    assert died.process is not None
    died.process.wait(60)
    died.start()
    if not point.endswith(("reported", "finished")):
        munich.finish(munich.claimed(), "First.")
    until(lambda: rows(postgres, database) == [("once", "closed", "munich")])
    assert (berlin.hive.layout.done / "once/result.md").read_text() == "First."
    until(lambda: not list((munich.hive.layout.link / "tasks").iterdir()))
    assert (munich.hive.tasks.listing.counts()["done"], munich.hive.tasks.listing.counts()["failed"]) == (1, 0)


def test_what_a_hive_does_late_is_refused_and_kept_and_the_task_is_done_elsewhere(
    pair: tuple[LinkedHive, LinkedHive], postgres: Server, database: str, third: LinkedHive
) -> None:
    berlin, munich = pair
    munich.idle()
    berlin.add("Slow", "any")
    berlin.add("Slower", "any")
    for one in pair:
        one.start()
    slow = munich.claimed()
    slower = munich.claimed()
    munich.stop(kill=True)
    munich.finish(slow, "Too late.")  # it ended, and the hive died before it could say so
    end_leases(postgres, database)
    third.idle()
    third.start()
    for task in (third.claimed(), third.claimed()):
        third.finish(task, f"Done: {task.title}")
    until(lambda: berlin.hive.tasks.listing.counts()["done"] == 2)
    munich.start()
    until(lambda: munich.hive.tasks.listing.counts()["failed"] == 2)
    assert (berlin.hive.layout.done / "slow/result.md").read_text() == "Done: Slow"
    assert (munich.hive.layout.failed / slow.id / "attempts/1/result.md").read_text() == "Too late."
    with pytest.raises(TaskMoved) as late:
        munich.hive.tasks.finish(slower, "Later still.")
    assert late.value.kept is not None
    assert (late.value.kept / "result.md").read_text() == "Later still."


def test_a_task_whose_step_must_run_once_is_given_to_no_other_hive_and_a_person_is_asked(
    pair: tuple[LinkedHive, LinkedHive], postgres: Server, database: str, third: LinkedHive
) -> None:
    berlin, munich = pair
    task = claim_pay_once(pair)
    munich.stop(kill=True)
    end_leases(postgres, database)
    third.idle()
    third.start()
    berlin.restart()
    assert "A decision is needed: Pay." in until(lambda: berlin.subjects())
    assert "must run once" in berlin.command("task", "show", "pay")
    assert "would be stranded: pay (with munich" in berlin.command("unlink", status=2)
    assert third.hive.tasks.claim("coder") is None
    munich.start()  # it comes back, and goes on with it
    munich.finish(task, "Paid.")
    until(lambda: berlin.hive.tasks.listing.outcome("pay") == "done")


def test_unlinked_a_hive_works_on_its_own_tasks_and_those_of_others_go_on_elsewhere(
    pair: tuple[LinkedHive, LinkedHive], third: LinkedHive
) -> None:
    berlin, munich = pair
    munich.idle()
    berlin.add("Of berlin", "any")
    for one in pair:
        one.start()
    task = munich.claimed()
    munich.says("working")
    munich.add("Of munich", "any")
    until(lambda: "offered to any" in munich.command("task", "list"))
    assert f"{task.id} has ended here: it is the task of-berlin of berlin" in munich.command("unlink")
    assert "of-berlin" not in munich.command("status"), "nobody has to do anything about it"
    assert "This hive was unlinked; the task of-berlin of berlin" in munich.command("task", "show", task.id)
    assert munich.claimed().title == "Of munich"
    with pytest.raises(TaskMoved):
        munich.hive.tasks.finish(task, "")
    third.idle()
    third.start()
    third.finish(third.claimed(), "Done.")
    until(lambda: berlin.hive.tasks.listing.outcome("of-berlin") == "done")


def test_what_another_hive_says_is_checked(
    pair: tuple[LinkedHive, LinkedHive], postgres: Server, database: str
) -> None:
    berlin, munich = pair
    berlin.start()
    until(lambda: berlin.hive.linked_hives.agents)
    berlin.stop()
    name = database.rpartition("/")[2]
    told = (
        "('berlin', '{id}', '{id}', 'any', 3, false, 'human', '{head}', '---\nevery: 1d\n---\nDo.', array['{file}'],"
        " array['x'::bytea])"
    )
    values = ", ".join(
        told.format(id=id_, head=head, file=file)
        for id_, head, file in (
            ("own", '{"id": "x", "where": "any", "notify": "done", "title": "T"}', "Task.md"),
            ("unreadable", "[", "x"),
            ("strange", '{"steps": 3}', "x"),
        )
    )
    postgres.execute(
        "insert into hivemind_exchange.tasks (giver, id, key, place, priority, once, maker, head, body, names, contents)"
        f" values {values}",
        name,
    )
    munich.idle()
    munich.start()
    task = munich.claimed()
    assert (task.title, task.maker) == ("T", "human@berlin")
    assert task.text.startswith("\n---\nevery")
    assert (task.files / "attachments/Task.md").read_text() == "x"
    until(lambda: len([row for row in rows(postgres, database) if row[1] == "failed"]) == 2)
