"""Nothing is lost, nothing is done twice, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from hivemind.coordination import Journal
from hivemind.presence.status import StatusFile, read_status
from tests.sample import sample, sampled
from tests.swarm.conftest import is_alive
from tests.swarm.test_gone import family

QUESTION = "---\ntitle: Boats\n---\n* What keeps a sailing boat upright?\n* What moves a rowing boat?\n"
RUN = "echo begun >> $HIVEMIND_HIVE/runs; while [ ! -e $HIVEMIND_HIVE/go ]; do sleep 0.05; done"
SLOW = f"---\nsteps: [{{run: '{RUN}', once: %s}}]\n---\nx"

# Everything that an agent passes on the way from a dropped file to a finished task.
POINTS = [
    "tasks.claim.taken",
    "tasks.claim.made",
    "tasks.claim.moved",
    "tasks.claim.recorded",
    "tasks.claim.published",
    "graph-log.append.written",
    "journal.append.locked",
    "journal.append.written:7",
    "mail.send.written",
    "mail.send.staged",
    "mail.send.kept",
    "mail.send.delivered",
    "mail.send.remembered",
    "mail.intake.recorded",
    "mail.intake.moved",
    "fs.write.written:3",
    "fs.write.renamed:4",
    "messages.append.written",
    "tasks.close.written",
    "tasks.close.moved",
    "documents.write.before_commit",
    "documents.write.committed",
]


@sampled
@pytest.mark.parametrize("point", sample(POINTS, 4))
def test_an_agent_that_dies_anywhere_on_the_way_loses_nothing_and_repeats_nothing(hive, point, tmp_path):
    hive.drop("boats.md", QUESTION)
    died = tmp_path / "died"
    hive.run("up", "--until-idle", status=0, HIVEMIND_CRASH_AT=point, HIVEMIND_CRASH_ONCE=str(died))
    assert died.exists(), f"nobody came past {point}"
    assert hive.task("boats") == "done"
    assert not [name for name in os.listdir(hive.root / "tasks/active") if not name.startswith(".")]
    result = hive.result("boats")
    assert result.count("> A sailing boat needs wind") == 1
    assert result.count("> A rowing boat is moved with oars") == 1
    assert "every quote is at its cited place" in result
    owners = {event["agent_id"] for event in hive.events() if event["kind"] == "task.done"}
    assert len(owners) == 1
    requests = [
        letter["id"]
        for agent in ("analyst", "researcher", "reviewer")
        for letter in json.loads(hive.run("mail", "list", agent, "--json"))
        if letter["subject"].startswith("Review:")
    ]
    assert len(requests) == len(set(requests)) == 1
    assert not [name for name in os.listdir(hive.root / ".hive") if name.endswith(("-wal", "-shm"))]
    assert [event["seq"] for event in hive.events()] == list(range(1, len(hive.events()) + 1))


def begun(hive):
    path = hive.root / "runs"
    return path.read_text().count("begun") if path.exists() else 0


def test_an_agent_killed_in_the_middle_of_a_command_runs_it_again_and_finishes(hive):
    hive.configure(agents={"replicas": 1})
    hive.drop("slow.md", SLOW % "false")
    up = hive.start("up", "--until-idle")
    hive.wait(lambda: begun(hive) == 1, "the command's start")
    [owner] = {event["agent_id"] for event in hive.wait(lambda: claimed(hive), "the claim")}
    os.kill(hive.pid_of(owner), signal.SIGKILL)
    hive.wait(lambda: begun(hive) == 2, "the command's second start")
    (hive.root / "go").touch()
    assert up.wait(60) == 0, hive.logs()
    assert hive.task("slow") == "done"


def test_the_first_death_of_an_agent_is_in_the_log_and_in_the_journal_with_its_signal(hive):
    up = hive.start("up")
    pid = hive.wait(lambda: all_up(hive), "the start")["analyst"]
    os.kill(pid, signal.SIGSEGV)
    hive.wait(lambda: hive.pid_of("analyst") not in (pid, None), "another process for the agent")
    up.terminate()
    assert up.wait(60) == 0
    assert "analyst has died: Segmentation fault" in hive.logs()
    exited = [event for event in hive.events() if event["kind"] == "agent.exited" and event["agent_id"] == "analyst"]
    assert [event.get("reason") for event in exited] == ["Segmentation fault", None]


def claimed(hive):
    return [event for event in hive.events() if event["kind"] == "task.claimed"]


def test_a_command_that_may_run_once_is_not_run_again_and_the_task_says_that_nobody_knows(hive):
    hive.drop("slow.md", SLOW % "true")
    up = hive.start("up", "--until-idle")
    hive.wait(lambda: begun(hive) == 1, "the command's start")
    [owner] = {event["agent_id"] for event in hive.wait(lambda: claimed(hive), "the claim")}
    os.kill(hive.pid_of(owner), signal.SIGKILL)
    assert up.wait(60) == 1, hive.logs()
    assert "it is unknown whether it took effect" in hive.error("slow")
    assert begun(hive) == 1
    (hive.root / "go").touch()
    hive.run("task", "retry", "slow")
    hive.run("up", "--until-idle")
    assert (hive.task("slow"), begun(hive)) == ("done", 2), "a person has looked and wants it done again"


def test_agents_end_when_their_supervisor_is_killed_and_the_next_one_goes_on(hive):
    hive.drop("slow.md", SLOW % "false")
    up = hive.start("up")
    hive.wait(lambda: begun(hive) == 1, "the command's start")
    up.kill()
    up.wait()
    hive.wait(lambda: not hive.agents_alive(), "the agents' end")
    assert hive.task("slow") == "active"
    (hive.root / "go").touch()
    hive.run("up", "--until-idle")
    assert hive.task("slow") == "done"


def test_everything_killed_at_once_goes_on_from_the_disk(hive):
    hive.drop("slow.md", SLOW % "false")
    hive.drop("boats.md", QUESTION)
    up = hive.start("up")
    hive.wait(lambda: begun(hive) == 1, "the command's start")
    os.killpg(up.pid, signal.SIGKILL)  # the supervisor, the fork server and every agent are one group
    up.wait()
    hive.wait(lambda: not hive.agents_alive(), "the end of all")
    (hive.root / "go").touch()
    hive.run("up", "--until-idle")
    assert (hive.task("slow"), hive.task("boats")) == ("done", "done")


def test_a_killed_fork_server_is_replaced_and_its_agents_come_back(hive):
    up = hive.start("up")
    before = hive.wait(lambda: all_up(hive), "the start")
    [fork_server] = {parent_of(pid) for pid in before.values()}
    os.kill(fork_server, signal.SIGKILL)
    hive.wait(lambda: (now := all_up(hive)) and not set(now.values()) & set(before.values()), "the agents' return")
    hive.drop("boats.md", QUESTION)
    hive.wait(lambda: hive.task("boats") == "done", "the task's end")
    up.terminate()
    assert up.wait(60) == 0


def is_parked(hive, task: str) -> bool:
    record = hive.root / "tasks/active" / task / "task.json"
    return record.exists() and "parked" in json.loads(record.read_text())


def all_up(hive):
    pids = {agent.name: agent.pid for agent in hive.agents() if agent.pid and agent.state == "idle"}
    return pids if len(pids) == 3 else None


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def test_an_agent_that_hangs_is_killed_and_started_again(hive):
    hive.configure(hang_after=2, heartbeat_s=0.5)
    hive.start("up")
    pid = hive.wait(lambda: all_up(hive), "the start")["analyst"]
    os.kill(pid, signal.SIGSTOP)
    hive.wait(lambda: hive.pid_of("analyst") not in (pid, None), "another process for the agent")
    assert not is_alive(pid)
    exited = [event for event in hive.events() if event["kind"] == "agent.exited" and event["agent_id"] == "analyst"]
    assert (exited[0]["by"], exited[0]["reason"]) == ("supervisor", "Killed")
    assert "analyst has shown no sign of life for 2 s and is killed" in hive.logs()


def test_an_agent_that_has_to_wait_for_a_processor_is_not_taken_for_hung(hive):
    hive.configure(hang_after=2, heartbeat_s=0.4, settle_ms=0)
    hive.start("up")
    pids = hive.wait(lambda: all_up(hive), "the start")
    one = {min(os.sched_getaffinity(0))}
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(12)]
    try:
        for pid in (*pids.values(), *(other.pid for other in others)):
            os.sched_setaffinity(pid, one)
        for number in range(600):
            hive.drop(f"later{number}.md", "---\nassignee: analyst\ndependencies: [never]\n---\nLater")
        hive.drop("boats.md", "---\npriority: 9\n---\nWhat moves a rowing boat?")
        hive.wait(lambda: hive.task("boats") == "done", "the task's end")
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert [event["agent_id"] for event in hive.events() if event["kind"] == "agent.exited"] == []


@pytest.mark.shows("promise: P27")
def test_a_second_supervisor_and_a_second_agent_of_one_name_say_who_is_there(hive):
    up = hive.start("up")
    pids = hive.wait(lambda: all_up(hive), "the start")
    hive.run("up", status=2)
    assert f"up already: process {up.pid}" in hive.errors
    hive.run("agent", "run", "analyst", status=2)
    assert f"running already: process {pids['analyst']}" in hive.errors


@pytest.mark.shows("promise: P44")
def test_a_swarm_told_to_end_ends_within_five_seconds_and_gives_its_leases_back(hive):
    hive.drop("slow.md", SLOW % "false")
    up = hive.start("up")
    hive.wait(lambda: begun(hive) == 1, "the command's start")
    up.terminate()
    assert up.wait(60) == 0, hive.logs()
    assert not hive.agents_alive()
    released = [event for event in hive.events() if event["kind"] in ("lease.released", "agent.exited")]
    assert {event["by"] for event in released if event["kind"] == "agent.exited"} == {"itself"}
    assert hive.task("slow") == "active"


@pytest.mark.parametrize("words", [["down"], ["agent", "stop", "analyst"]])
def test_a_running_command_may_end_in_the_time_that_is_given(hive, words):
    run = RUN.replace("sleep", "echo tick >> $HIVEMIND_HIVE/ticks; sleep")
    hive.drop("slow.md", SLOW.replace("steps", "assignee: analyst\nsteps").replace(RUN, run) % "true")
    up = hive.start("up")
    hive.wait(lambda: begun(hive) == 1, "the command's start")
    down = hive.start(*words, "--timeout", "60")
    hive.wait(lambda: read_status(hive.root / ".hive/agents/analyst", "analyst").state == "stopping", "the signal")
    ticks = (hive.root / "ticks").stat().st_size
    hive.wait(lambda: (hive.root / "ticks").stat().st_size > ticks + 100, "twenty more rounds of the command")
    (hive.root / "go").touch()
    assert down.wait(60) == 0, hive.logs()
    hive.run("agent", "start", "analyst")
    if words != ["down"]:
        up.terminate()
    assert up.wait(60) == 0
    assert not (hive.root / ".hive/deadline").exists()
    hive.run("up", "--until-idle")
    assert (hive.task("slow"), begun(hive)) == ("done", 1)


def test_a_command_that_does_not_end_in_time_is_asked_to_end_and_a_task_that_may_run_once_says_so(hive):
    run = "echo begun >> $HIVEMIND_HIVE/runs; trap 'echo bye >> $HIVEMIND_HIVE/runs; exit 1' TERM; while :; do sleep 0.05; done"
    hive.drop("slow.md", SLOW.replace(RUN, run.replace("'", "''")) % "true")
    up = hive.start("up")
    hive.wait(lambda: begun(hive) == 1, "the command's start")
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 0, hive.logs()
    assert (hive.root / "runs").read_text() == "begun\nbye\n"
    assert {event["by"] for event in hive.events() if event["kind"] == "agent.exited"} == {"itself"}
    hive.run("up", "--until-idle", status=1)
    assert "its agent was stopped or died): it is unknown" in hive.error("slow")
    assert "then retry the task" in hive.error("slow")


def test_a_swarm_that_was_stopped_like_a_job_of_the_shell_ends_all_the_same(hive):
    hive.run("up", "--detach")
    supervisor = json.loads(hive.run("status", "--json"))["supervisor"]["pid"]
    group = os.getpgid(supervisor)
    processes = [pid for pid in family(supervisor) if os.getpgid(pid) == group]
    os.killpg(group, signal.SIGSTOP)
    assert "has ended" in hive.run("down")
    hive.wait(lambda: not any(map(is_alive, processes)), "the processes' end")


def test_no_agent_is_started_on_a_damaged_journal_and_it_is_said(hive):
    for number in range(2):
        Journal(hive.root / ".hive/journal").append("agent.note", number=number)
    (journal,) = (hive.root / ".hive/journal").glob("*.jsonl")
    journal.write_bytes(journal.read_bytes().replace(b'{"seq":1', b"rubbish", 1))
    assert "is up" not in hive.run("up", "--detach", status=2)
    assert "journal.jsonl:2" in hive.errors
    assert not (hive.root / ".hive/agents/analyst/status.json").exists()
    assert "Nothing is up" in hive.run("down")
    hive.run("doctor", "--fix")
    hive.run("up", "--detach")


def test_a_reviewer_that_never_answers_is_replaced_by_another(hive):
    hive.configure(review_timeout_s=1, heartbeat_s=0.5, hang_after=60)
    hive.start("up")
    pids = hive.wait(lambda: all_up(hive), "the start")
    os.kill(pids["reviewer"], signal.SIGSTOP)
    hive.drop("boats.md", "---\nassignee: analyst\n---\nWhat moves a rowing boat?")
    hive.wait(lambda: hive.task("boats") == "done", "the task's end")
    assert "Checked by researcher" in hive.result("boats")
    os.kill(pids["reviewer"], signal.SIGCONT)


def test_a_reviewer_that_runs_a_command_is_not_waited_for_while_another_agent_is_idle(hive):
    hive.configure(review_timeout_s=600, heartbeat_s=0.5)
    hive.start("up")
    hive.wait(lambda: all_up(hive), "the start")
    runs = "touch begun; until test -e ends; do sleep 0.05; done"
    hive.drop("long.md", f"---\nassignee: reviewer\nsteps: [{{run: '{runs}'}}]\n---\nSail round the world\n")
    files = hive.root / "tasks/active/long/files"
    hive.wait((files / "begun").exists, "the command")
    hive.drop("boats.md", "---\nassignee: analyst\n---\nWhat moves a rowing boat?")
    hive.wait(lambda: hive.task("boats") == "done", "the task's end")
    assert "Checked by researcher" in hive.result("boats")
    (files / "ends").touch()


def test_a_reviewer_that_is_busy_once_it_was_asked_is_replaced_by_an_agent_that_is_idle(hive):
    hive.configure(review_timeout_s=600, heartbeat_s=0.5)
    hive.start("up")
    pids = hive.wait(lambda: all_up(hive), "the start")
    hive.wait(lambda: read_status(hive.root / ".hive/agents/reviewer", "reviewer").state == "idle", "rest")
    os.kill(pids["reviewer"], signal.SIGSTOP)
    hive.drop("boats.md", "---\nassignee: analyst\n---\nWhat moves a rowing boat?")
    hive.wait(lambda: is_parked(hive, "boats"), "the request")
    StatusFile(hive.root / ".hive/agents/reviewer", "reviewer").update(pid=pids["reviewer"], state="working")
    hive.wait(lambda: hive.task("boats") == "done", "the task's end")
    assert "Checked by researcher" in hive.result("boats")
    os.kill(pids["reviewer"], signal.SIGCONT)


def test_a_source_that_changes_before_it_is_checked_is_rejected_and_asked_for_again(hive):
    hive.configure(review_timeout_s=50, heartbeat_s=0.5)
    hive.start("up")
    pids = hive.wait(lambda: all_up(hive), "the start")
    os.kill(pids["reviewer"], signal.SIGSTOP)
    hive.drop("boats.md", "---\nassignee: analyst\n---\nWhat moves a rowing boat?")
    hive.wait(lambda: is_parked(hive, "boats"), "the request")
    (hive.root / "knowledge/boats.md").write_text("# Boats\n\nA rowing boat is moved by rowers who sit backwards.\n")
    os.kill(pids["reviewer"], signal.SIGCONT)
    hive.wait(lambda: hive.task("boats") == "done", "the task's end")
    assert "> A rowing boat is moved by rowers who sit backwards." in hive.result("boats")
    assert "oars" not in hive.result("boats")
    assert "every quote is at its cited place" in hive.result("boats")


def test_agents_work_without_a_supervisor_and_are_woken_by_what_people_drop(hive):
    hive.start("agent", "run", "researcher")
    hive.wait(lambda: hive.pid_of("researcher"), "the agent's start")
    hive.drop("boats.md", "What moves a rowing boat?")
    hive.wait(lambda: hive.task("boats") == "done", "the task's end")
    assert "Checked by researcher itself" in hive.result("boats")
    (hive.root / "mailboxes/researcher/new/hello").write_text("What moves a rowing boat?\n")
    hive.wait(lambda: json.loads(hive.run("mail", "list", "human", "--json")), "the answer")


def test_a_swarm_whose_mind_thinks_for_ever_ends_at_once_and_leaves_nothing_behind(hive):
    program = "cat > /dev/null; cd $HIVEMIND_HIVE; sleep 1000 & echo $! > child.new; mv child.new child; wait"
    (hive.root / "agents/analyst.yaml").write_text(json.dumps({"mind": {"command": ["sh", "-c", program]}}))
    hive.drop("think.md", "---\nassignee: analyst\n---\nThink.")
    up = hive.start("up")
    hive.wait((hive.root / "child").exists, "the thought's beginning")
    hive.run("down")
    assert up.wait(60) == 0, hive.logs()
    child = int((hive.root / "child").read_text())
    hive.wait(lambda: not is_alive(child), "the end of what the mind had started")
    assert {event["by"] for event in hive.events() if event["kind"] == "agent.exited"} == {"itself"}, (
        "nobody was killed"
    )
    assert hive.task("think") == "active"
    assert not is_parked(hive, "think")


def test_a_command_that_may_run_once_and_whose_receipt_is_in_the_journal_is_known_to_have_run(hive, tmp_path):
    hive.drop("once.md", "---\nsteps: [{run: 'echo ran >> $HIVEMIND_HIVE/runs; echo told', once: true}]\n---\nx")
    died = tmp_path / "died"
    hive.run("up", "--until-idle", HIVEMIND_CRASH_AT="command.captured", HIVEMIND_CRASH_ONCE=str(died))
    assert died.exists()
    assert (hive.root / "runs").read_text() == "ran\n"
    assert "told" in hive.result("once")


def test_when_the_agent_that_watches_ends_another_takes_over(hive):
    hive.configure(heartbeat_s=600, hang_after=3600)
    first = hive.start("agent", "run", "analyst")
    hive.wait(lambda: idle(hive, "analyst"), "the first one's start")
    hive.start("agent", "run", "researcher")
    hive.wait(lambda: idle(hive, "researcher"), "the second one's start")
    first.terminate()
    assert first.wait(60) == 0
    hive.drop("boats.md", "What moves a rowing boat?")
    hive.wait(lambda: hive.task("boats") == "done", "the task's end")


def idle(hive, name):
    return any(agent.name == name and agent.state == "idle" for agent in hive.agents())
