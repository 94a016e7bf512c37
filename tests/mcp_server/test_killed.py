"""A server that is killed in the middle of a call: nothing is lost, nothing is there twice, and what it held is free."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from mcp.shared.exceptions import MCPError

import hivemind
from hivemind.coordination import Reservations
from hivemind.errors import HivemindError
from hivemind.mcp_server.member import Member
from hivemind.presence.identity import lock_name
from hivemind.presence.status import StatusFile
from hivemind.swarm.overview import overview
from hivemind.taskrun.quote_check import choose_reviewer
from tests.mcp_server.conftest import LIMIT_S, run
from tests.tasks.conftest import killed_at

STEPS = {"steps": [{"title": "The keel"}, {"title": "The mast"}]}
LETTER = {"to": ["codex"], "subject": "The keel", "body": "It is on.", "key": "keel"}
CALLS = [("claim_task", {"task": "boat"}), ("plan_steps", STEPS), ("finish_step", {}), ("finish_step", {}),
         ("finish_task", {"result": "It floats."})]  # fmt: skip


def member(hive, name: str = "claude") -> Member:
    return Member(hivemind.Hive.open(hive.root), name, "full")


def use(hive, *calls, name: str = "claude") -> None:
    """The calls of one life, in a process that may die at any of them."""
    one = member(hive, name)
    for tool, arguments in calls:
        one.call(tool, arguments)
    one.close()


@pytest.mark.parametrize(
    "point", ["mail.send.remembered", "mail.send.staged", "mail.send.delivered", "agent-log.append.written"]
)
def test_a_letter_with_a_key_that_is_sent_again_after_a_crash_comes_once(hive, point):
    killed_at(point, lambda: use(hive, ("send_mail", LETTER)))
    again = member(hive)
    first, second = (again.call("send_mail", {**LETTER, "subject": subject}) for subject in ("The keel", "Another"))
    assert first["message_id"] == second["message_id"]
    [letter] = again.hive.mail.list("codex")
    assert (letter.subject, letter.id) == ("The keel", first["message_id"])
    assert again.call("send_mail", {**LETTER, "key": "mast"})["message_id"] != letter.id
    again.close()
    assert hive.lives("claude") == ["started", "exited"] * 2


@pytest.mark.parametrize("point", ["mail.send.staged", "mail.send.delivered"])
def test_a_letter_without_a_key_is_there_once_or_not_at_all_before_it_is_sent_again(hive, point):
    letter = {key: value for key, value in LETTER.items() if key != "key"}
    killed_at(point, lambda: use(hive, ("send_mail", letter)))
    assert len(hivemind.Hive.open(hive.root).mail.list("codex")) == (point == "mail.send.delivered")


@pytest.mark.parametrize(
    ("point", "at"),
    [("tasks.claim.taken", 0), ("tasks.claim.published", 0), ("journal.append.written:4", 1), ("tasks.close.written", 4),
     ("tasks.close.moved", 4)],
)  # fmt: skip
def test_a_task_goes_on_from_where_the_server_was_killed(hive, point, at):
    hive.run("task", "add", "--id", "boat", "Build a boat")
    killed_at(point, lambda: use(hive, *CALLS))
    again = member(hive)
    for tool, arguments in CALLS[at:]:
        try:
            again.call(tool, arguments)
        except HivemindError:  # it was done, and is refused: nothing is done twice
            continue
    again.close()
    assert "It floats." in (hive.root / "tasks/done/boat/result.md").read_text()
    kinds = [event["kind"] for event in hive.events() if event.get("task_id") == "boat" or "step" in event["kind"]]
    assert [kinds.count(kind) for kind in ("task.claimed", "step.added", "step.done", "task.done")] == [1, 1, 2, 1]


def test_a_client_that_lost_the_answer_learns_how_its_task_ended_and_that_none_waits(hive):
    hive.run("task", "add", "--id", "boat", "Build a boat")
    use(hive, *CALLS)
    again = member(hive)
    for tool, arguments in (("finish_task", {}), ("finish_step", {}), ("run_command", {"command": ["true"]})):
        with pytest.raises(HivemindError, match=r"your last task, boat, is done \(tasks/done/boat\)"):
            again.call(tool, arguments)
    assert again.call("resume", {})["capsule"]["next"]["primary"]["tool"] == "check_mailbox"
    hive.run("task", "add", "Rig it")
    assert again.call("resume", {})["capsule"]["next"]["primary"]["tool"] == "claim_task"
    again.close()


@pytest.mark.parametrize("harm", [os.unlink, lambda path: os.truncate(path, 0)], ids=["no log", "an empty log"])
def test_steps_whose_nodes_a_power_cut_took_are_in_the_graph_again(hive, harm):
    """Found by tests/faults: the journal had the plan, the graph's log was not synced yet."""
    hive.run("task", "add", "--id", "boat", "Build a boat")
    use(hive, *CALLS[:2])
    harm(hive.root / "tasks/active/boat/graph.jsonl")
    card = ("add_card", {"kind": "note", "title": "Oak", "text": "The keel is of oak."})
    use(hive, CALLS[0], card, *CALLS[2:])
    graph = (hive.root / "tasks/done/boat/graph.json").read_text()
    assert all(f'"{title}"' in graph for title in ("The keel", "The mast", "Oak"))


def test_over_the_protocol_its_client_is_told_that_it_is_gone_and_connects_again(hive):
    async def scenario():
        hive.extra = {"HIVEMIND_CRASH_AT": "mail.send.delivered"}
        async with hive.joined("claude") as claude:
            with pytest.raises(MCPError, match="closed"):
                await claude.ask("send_mail", **LETTER)
        hive.extra = {}
        async with hive.joined("claude") as claude:
            await claude.ask("send_mail", **LETTER)
        assert len(hivemind.Hive.open(hive.root).mail.list("codex")) == 1

    run(scenario)
    assert hive.lives("claude") == ["started", "exited"] * 2


def test_what_a_killed_member_held_is_free_for_the_next_who_asks(hive):
    hive.run("task", "add", "--id", "boat", "Build a boat")
    held = [
        ("reserve", {"paths": ["knowledge/**"]}),
        *CALLS[:2],
        ("claim_step", {"step": "boat.s1"}),
        ("send_mail", LETTER),
    ]
    killed_at("mail.send.delivered", lambda: use(hive, *held))
    codex = member(hive, "codex")
    assert codex.hive.leases.get("boat.s1").holder_agent_id == "claude"
    assert codex.call("claim_step", {"step": "boat.s1"})["holder"] == "codex"
    codex.call("reserve", {"paths": ["knowledge/boats.md"]})
    codex.close()
    [gone] = [event for event in hive.events() if event["kind"] == "agent.exited" and event["agent_id"] == "claude"]
    assert gone["by"] == "codex"


def test_a_supervisor_buries_it(hive):
    config = hive.root / "hive.yaml"
    config.write_text(config.read_text().replace("hang_after: 60", "hang_after: 1"))
    killed_at("mail.send.staged", lambda: use(hive, ("reserve", {"paths": ["knowledge/**"]}), ("send_mail", LETTER)))
    assert hive.lives("claude") == ["started"]
    up = hive.start("up", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        hive.until(lambda: hive.lives("claude") == ["started", "exited"])
    finally:
        up.terminate()
        up.wait(LIMIT_S)
    assert Reservations(hivemind.Hive.open(hive.root).journal).list() == []


# ending


@pytest.mark.parametrize("away", ["removed", "moved"])
def test_when_the_hive_goes_away_it_ends_and_makes_nothing_anew(hive, served, away):
    if away == "moved":
        hive.root.rename(hive.root.parent / "elsewhere")
    else:
        subprocess.run(["rm", "-r", hive.root], check=True)
    served.wait(LIMIT_S)
    assert "the hive was removed, moved or taken over" in served.stderr.read()
    assert not hive.root.exists()


def test_told_to_end_while_another_holds_the_journal_it_ends_all_the_same(hive):
    program = (
        "import hivemind.mcp_server.serve as serve; from hivemind.layout import Layout; serve.END_WITHIN_S = 0.2\n"
        f"serve.serve_stdio(Layout.at({os.fspath(hive.root)!r}), 'claude')"
    )
    served = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        hive.until(lambda: hive.lives("claude") == ["started"])
        hive.until(lambda: (hive.root / ".hive/agents/claude/heartbeat").exists())
        with hivemind.Hive.open(hive.root).journal.locked(lambda _: None):
            served.send_signal(signal.SIGTERM)
            assert served.wait(LIMIT_S) == 1
    finally:
        served.kill()
        _, said = served.communicate(timeout=LIMIT_S)
    assert "exited at once" in said
    member(hive).close()
    assert hive.lives("claude") == ["started", "exited"] * 2


def test_a_member_that_cannot_settle_in_leaves_again(hive):
    (hive.root / ".hive/agents").mkdir(exist_ok=True)
    (hive.root / ".hive/agents/claude").write_text("in the way")
    with pytest.raises(OSError, match="exists"):
        member(hive)
    assert hive.lives("claude") == ["started", "exited"]


# whom others count on


def test_a_member_reviews_only_while_it_is_there_and_if_its_role_says_so(hive):
    (hive.root / "agents/codex.yaml").write_text("mind: mcp\nrole: reviewer\n")
    for name in ("researcher", "reviewer", "writer"):
        (hive.root / f"agents/{name}.yaml").unlink(missing_ok=True)
    (hive.root / "agents/scout.yaml").write_text("role: finder\n")
    (hive.root / "agents/maker.yaml").write_text("role: maker\n")
    opened = hivemind.Hive.open(hive.root)

    def chosen():
        return choose_reviewer(opened, "maker", "boat", ())

    claude = lock_name(opened.layout, "claude")
    assert chosen() is None
    scout = lock_name(opened.layout, "scout")
    assert chosen() == "scout"
    (opened.layout.agent_state("scout")).mkdir(parents=True)
    StatusFile(opened.layout.agent_state("scout"), "scout").update(mind="mcp")  # a client uses it
    assert chosen() is None
    codex = lock_name(opened.layout, "codex")
    assert chosen() == "codex"
    for lock in (claude, scout, codex):
        lock.release()


def test_status_says_that_mail_waits_for_a_member_and_why_an_agent_is_stuck(hive):
    opened = hivemind.Hive.open(hive.root)
    opened.mail.send("human", ["codex", "claude"], "The keel", "Is it on?")
    claude = member(hive)
    assert overview(opened).mail_waits == (
        ("codex", "1 unread, until its program connects: hivemind mcp --agent codex"),
    )
    claude._status.update(state="stuck", problem="mail-taken: another version")
    said = hive.run("status")
    assert "Mail waits:\n  codex: 1 unread" in said
    assert "Needs you:\n  claude: mail-taken: another version" in said
    claude.close()
    assert "Needs you" not in hive.run("status")


def test_an_answer_is_heard_although_a_file_beside_it_is_no_message(hive):
    hive.run("task", "add", "--id", "boat", "Build a boat")
    claude = member(hive)
    for tool, arguments in (*CALLS[:2], ("ask_human", {"question": "Of what wood?"})):
        claude.call(tool, arguments)
    assert [task for task, _ in overview(claude.hive).parked] == ["boat"]
    os.mkdir(hive.root / "mailboxes/claude/new/no-message")
    [question] = claude.hive.mail.list("human")
    claude.hive.mail.reply("human", question.id, "Oak.")
    assert claude.call("list_tasks", {"state": "mine"})["new_mail"] == 2
    assert overview(claude.hive).parked == ()
    assert claude.call("finish_step", {"step": "boat.s1"})["status"] == "done"
    claude.close()
