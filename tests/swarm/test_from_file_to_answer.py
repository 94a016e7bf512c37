from __future__ import annotations

import hashlib
import json
import mailbox
import os
import re
import shutil
import subprocess
import sys

from tests.messages import calls_of


def test_a_dropped_question_becomes_a_cited_answer_that_another_agent_checked(hive):
    hive.drop("boats.md", "What keeps a sailing boat upright?\n")
    hive.run("up", "--until-idle")
    result = hive.result("boats")
    assert "> A sailing boat needs wind and has a keel that keeps it upright." in result
    digest = hashlib.sha256((hive.root / "knowledge/boats.md").read_bytes()).hexdigest()
    assert f"`knowledge/boats.md:10` sha256 {digest}" in result
    assert re.search(r"Checked by (\w+): every quote is at its cited place", result)
    folder = hive.root / "tasks/done/boats"
    graph = json.loads((folder / "graph.json").read_text())
    kinds = [node["kind"] for node in graph["nodes"].values()]
    assert kinds[:2] == ["task", "subtask"]
    assert "evidence" in kinds
    tools = [call["tool"] for call in calls_of(folder)]
    assert tools[0] == "plan_steps"
    assert tools[-1] == "finish_task"


def test_what_is_not_known_is_said_to_be_unknown(hive):
    hive.drop("queen.md", "Who is the queen of Sheba?\n")
    printed = hive.run("up", "--until-idle")
    gap = "The documents were searched by their words alone, not by meaning."
    assert f"No answer stands out. {gap}" in hive.result("queen")
    assert gap in printed
    assert "There are no quotes" in hive.result("queen")
    assert "done    queen: no answer to 1 of 1 question: tasks/done/queen/result.md" in printed
    assert "no answer to 1 of 1 question" in hive.run("task", "list", "--state", "done")


def test_the_exit_status_tells_done_failed_and_parked(hive):
    hive.drop("good.md", "What moves a rowing boat?")
    hive.run("up", "--until-idle", status=0)
    hive.drop("bad.md", "---\nsteps: [{run: 'echo sorry; exit 7'}]\n---\nx")
    hive.drop("asks.md", "---\nsteps: [{wait: {human: 'Red or blue?'}}]\n---\nx")
    printed = hive.run("up", "--until-idle", status=1)
    assert "status 7" in printed
    assert "sorry" in hive.error("bad")
    printed = hive.run("up", "--until-idle", status=3)
    assert "asks" in printed
    assert "person" in printed


def test_every_kind_of_step_is_done_in_order_and_shown_in_the_result(hive):
    steps = """---
title: All of it
steps:
  - run: echo the number is $((6 * 7))
  - ask: What moves a rowing boat?
  - write: artifacts/so-far.md
  - write: {path: artifacts/fixed.txt, text: fixed}
  - mail: {to: human, subject: Done, body: Look at it.}
  - wait: 0.1s
---
"""
    hive.drop("all.md", steps)
    hive.run("up", "--until-idle")
    result = hive.result("all")
    order = ["the number is 42", "moved with oars", "artifacts/so-far.md", "artifacts/fixed.txt"]
    assert [result.index(part) for part in order] == sorted(result.index(part) for part in order)
    folder = hive.root / "tasks/done/all/files/artifacts"
    assert (folder / "fixed.txt").read_text() == "fixed"
    assert "the number is 42" in (folder / "so-far.md").read_text()
    letters = list(mailbox.Maildir(hive.root / "mailboxes/human"))
    assert [(letter["From"], letter["Subject"]) for letter in letters] == [(letters[0]["From"], "Done")]


def test_a_person_asks_by_dropping_a_file_into_a_mailbox_and_is_answered(hive):
    (hive.root / "mailboxes/analyst/new/hello").write_text("What moves a rowing boat?\n")
    hive.run("up", "--until-idle")
    [letter] = json.loads(hive.run("mail", "list", "human", "--json"))
    assert letter["from"] == "analyst"
    assert "moved with oars" in hive.run("mail", "read", "human", letter["id"])


def test_a_step_waits_for_a_persons_answer_and_goes_on_when_it_comes(hive):
    hive.drop("ask.md", "---\nsteps: [{wait: {human: Red or blue?}}, {ask: What moves a rowing boat?}]\n---\nx")
    hive.run("up", "--until-idle", status=3)
    [letter] = json.loads(hive.run("mail", "list", "human", "--json"))
    hive.run("mail", "reply", "human", letter["id"], "Blue, please.")
    hive.run("up", "--until-idle", status=0)
    assert "Blue, please." in hive.result("ask")
    assert len(json.loads(hive.run("mail", "list", "human", "--json"))) == 1, "an answer needs no answer"


def test_a_folder_moved_back_to_the_inbox_is_a_retry_and_keeps_the_first_attempt(hive):
    hive.drop("flaky.md", "---\nsteps: [{run: 'test -e $HIVEMIND_HIVE/now'}]\n---\nx")
    hive.run("up", "--until-idle", status=1)
    (hive.root / "now").touch()
    shutil.move(hive.root / "tasks/failed/flaky", hive.root / "tasks/inbox/flaky")
    hive.run("up", "--until-idle", status=0)
    assert hive.task("flaky") == "done"
    assert list((hive.root / "tasks/done/flaky/attempts").glob("*/error.md"))


def test_a_hive_of_one_checks_its_own_sources_and_says_so(hive):
    for name in ("analyst", "reviewer"):
        (hive.root / "agents" / f"{name}.yaml").unlink()
    hive.drop("boats.md", "What keeps a sailing boat upright?\n")
    hive.run("up", "--until-idle")
    assert "Checked by researcher itself" in hive.result("boats")


def test_a_task_written_slowly_is_taken_only_when_it_is_whole(hive):
    program = """
import sys, time
with open(sys.argv[1], "w") as file:
    file.write("What moves a ")
    file.flush()
    time.sleep(3)
    file.write("rowing boat?")
"""
    up = hive.start("up")
    writer = subprocess.Popen([sys.executable, "-c", program, str(hive.root / "tasks/inbox/slow.md")])
    hive.wait(lambda: hive.task("slow") == "done", "the slow task's end")
    assert writer.wait() == 0
    assert "# What moves a rowing boat?" in hive.result("slow")
    up.terminate()
    assert up.wait(60) == 0


def test_a_run_step_of_a_task_that_an_agent_made_is_not_obeyed(hive):
    program = """
import sys
from hivemind import Hive
Hive.open(sys.argv[1]).tasks.add("x", by="analyst", title="sly", steps=[{"run": "touch $HIVEMIND_HIVE/owned"}])
"""
    subprocess.run([sys.executable, "-c", program, str(hive.root)], check=True)
    hive.run("up", "--until-idle", status=1)
    assert not (hive.root / "owned").exists()
    assert "is not one of the programs of" in hive.error("sly")


def test_what_a_commands_environment_holds_is_no_secret_and_tells_it_where_it_is(hive):
    hive.drop("env.md", "---\nsteps: [{run: env}]\n---\nx")
    hive.run("up", "--until-idle", OPENAI_API_KEY="sk-secret")
    printed = (hive.root / "tasks/done/env/artifacts/step-1.out").read_text()
    assert "sk-secret" not in printed
    assert f"HIVEMIND_HIVE={os.path.realpath(hive.root)}" in printed
    assert "HIVEMIND_TASK=env" in printed


def test_a_retry_is_checked_anew_and_says_who_checked_it_this_time(hive):
    hive.drop("boats.md", "What keeps a sailing boat upright?\n")
    hive.run("up", "--until-idle")
    shutil.move(hive.root / "tasks/done/boats", hive.root / "tasks/inbox/boats")
    (hive.root / "knowledge/boats.md").write_text("A sailing boat is kept upright by its ballast.\n")
    hive.run("up", "--until-idle")
    assert "> A sailing boat is kept upright by its ballast." in hive.result("boats")
    assert "needs wind" not in hive.result("boats")
    requests = [
        event for event in hive.events() if event["kind"] == "task.parked" and "check the sources" in event["reason"]
    ]
    assert len(requests) == 2


def test_an_attachment_is_cited_where_it_lies_when_the_task_is_done(hive):
    folder = hive.root / "tasks/inbox/zoo"
    folder.mkdir()
    (folder / "task.md").write_text("Where do the zebras live?")
    (folder / "notes.md").write_text("The zebras live in the old stable.\n")
    hive.run("up", "--until-idle")
    [citation] = re.findall(r"`(tasks/[^`]*notes.md:1)`", hive.result("zoo").split("## Sources")[1])
    assert (hive.root / citation.rsplit(":", 1)[0]).read_text() == "The zebras live in the old stable.\n"


def test_a_task_that_fails_again_after_a_retry_keeps_no_lease(hive):
    hive.drop("z.yaml", "steps:\n  - run: exit 3\n")
    hive.run("up", "--until-idle", status=1)
    hive.run("task", "retry", "z")
    hive.start("up")
    hive.wait(lambda: sum(event["kind"] == "task.failed" for event in hive.events()) == 2, "the second failure")
    hive.wait(lambda: json.loads(hive.run("lease", "list", "--json")) == [], "the lease's end")


def test_an_agent_that_is_added_while_the_swarm_is_up_is_answered_by_the_others(hive):
    hive.start("up")
    hive.wait(lambda: hive.pid_of("reviewer"), "the start")
    hive.run("agent", "add", "late")
    hive.start("agent", "run", "late")
    hive.wait(lambda: hive.pid_of("late"), "the late one's start")
    hive.drop("boats.md", "---\nassignee: late\n---\nWhat moves a rowing boat?")
    hive.wait(lambda: hive.task("boats") == "done", "the task's end")
    assert "Checked by reviewer" in hive.result("boats")


def test_what_a_person_calls_wrong_is_not_quoted_by_the_next_attempt(hive):
    (hive.root / "knowledge/rafts.md").write_text("# Rafts\n\nA rowing boat is pulled by seven tame swans.\n")
    hive.drop("rowing.md", "How is a rowing boat moved?\n")
    hive.run("up", "--until-idle")
    assert "swans" in hive.result("rowing")
    assert "knowledge/rafts.md:3" in hive.run("task", "say", "rowing", "That is wrong: knowledge/rafts.md:3")
    hive.drop("sailing.md", "What keeps a sailing boat upright?\n")
    hive.run("up", "--until-idle")
    assert "left out" not in hive.result("sailing"), "the wrong quote was no candidate for this answer"
    result = hive.result("rowing")
    assert "moved with oars" in result
    assert "swans" not in result
    assert "Quotes that were called wrong are left out." in result
    assert "## That" not in result  # what was said is no question
    (hive.root / "knowledge/boats.md").unlink()
    assert "knowledge/boats.md was deleted" in hive.run("task", "show", "rowing")
