"""Options, arguments, keys and events that no other test uses through a public door: each once, for what it is there for."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive, __version__
from hivemind.coordination import StepLease
from hivemind.documents import ReadonlyError
from hivemind.longterm import UpsertMemoryResult
from hivemind.mcp_server.member import Member
from hivemind.memory import Selection
from hivemind.reasoning import Link, TaskGraph
from tests.cli.conftest import Command


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    from hivemind.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"hivemind {__version__}\n"


def test_a_letter_may_answer_another_and_say_how_important_it_is(run: Command, hive: Path) -> None:
    first = run("mail", "send", "--from", "human", "--to", "analyst", "--subject", "Sails", "Which?").out.strip()
    run(
        "mail",
        "send",
        "--to",
        "analyst",
        "--subject",
        "Re: Sails",
        "--reply-to",
        first,
        "--importance",
        "high",
        "Both.",
    )
    answer = max((hive / "mailboxes/analyst/new").iterdir(), key=lambda path: path.stat().st_mtime_ns).read_text()
    assert f"In-Reply-To: <{first}>" in answer
    assert "Importance: high" in answer


def test_what_is_reserved_as_shared_may_be_reserved_so_by_others(run: Command, hive: Path) -> None:
    assert run("reserve", "paths", "knowledge/*", "--shared", "--agent", "analyst").status == 0
    assert run("reserve", "paths", "knowledge/a.md", "--shared", "--agent", "reviewer").status == 0
    assert run("reserve", "paths", "knowledge/a.md", "--agent", "researcher").status != 0


def test_views_of_what_is_new_and_short_ones_keep_to_their_budget(run: Command, graph: TaskGraph) -> None:
    new = run("view", "watch", "t", "--since", "0", "--budget", "600", "--json").out
    short = run("view", "snapshot", "t", "--budget", "600", "--json").out
    for shown in (new, short):
        assert len(json.dumps(json.loads(shown), separators=(",", ":"), ensure_ascii=False).encode()) <= 600


def test_a_branch_is_merged_into_another(run: Command, graph: TaskGraph) -> None:
    for name in ("one", "other"):
        assert run("graph", "branch", "create", "t", name, "--agent", "researcher").status == 0
    with TaskGraph(graph.folder, branch="one").change("researcher") as changed:
        changed.add_node("note", "Only on one", title="Only on one")
        changed.add_edge(1, changed.next_id - 1)
    assert "Only on one" in run("graph", "show", "t", "--branch", "one").out
    assert "Only on one" not in run("graph", "show", "t").out
    assert run("graph", "branch", "merge", "t", "one", "--into", "other", "--agent", "researcher").status == 0
    assert "Only on one" in run("graph", "show", "t", "--branch", "other").out


def test_documents_are_found_below_a_node_and_summed_up_in_so_many_tokens(run: Command, hive: Path) -> None:
    opened = Hive.open(hive)
    one, other = (opened.documents.create_root(name, name) for name in ("sea", "land"))
    for root in (one, other):
        for text in ("The harbour lies east of the cape. " * 20, "Boats lie in the harbour. " * 20):
            opened.documents.append_child(root.id, "memory", "text", "note", text)
    found = run("doc", "find", "harbour", "--below", "sea", "--json").json
    assert found
    assert "land" not in json.dumps(found)
    summary = run("doc", "summarize", "sea", "--max-tokens", "40", "--json")
    assert summary.status == 0, summary.err
    leaf = opened.documents.append_child("sea", "memory", "text", "note", "fixed", readonly=1)
    with pytest.raises(ReadonlyError):
        opened.documents.update_content(leaf.id, "changed")


def test_memories_are_searched_and_listed_up_to_a_limit(run: Command, hive: Path) -> None:
    told = Hive.open(hive).memory.upsert_memory(("memories", "analyst"), "The boat is blue", key="boat")
    assert isinstance(told, UpsertMemoryResult)
    run("memory", "remember", "The oars are of ash", "--agent", "analyst", "--key", "oars")
    own = ("--agent", "analyst", "--json")
    assert len(run("memory", "search", "boat oars", "--limit", "1", *own).json) == 1
    assert len(run("memory", "list", "--limit", "1", *own).json) == 1
    assert [one["content"] for one in run("memory", "show", "boat", *own).json["versions"]] in (
        [],
        ["The boat is blue"],
    )
    run("memory", "remember", "The sea is grey", "--namespace", "shared/hive", "--key", "sea")
    run("memory", "remember", "The sea is green", "--namespace", "shared/hive", "--key", "sea")
    all_see = ("--namespace", "shared/hive", "--json")
    assert [one["key"] for one in run("memory", "search", "green sea", *all_see).json] == ["sea"]
    assert "The sea is grey" in [one["content"] for one in run("memory", "show", "sea", *all_see).json["versions"]]


def test_mail_tools_send_copies_list_up_to_a_limit_and_give_a_verdict(run: Command, hive: Path, call: Any) -> None:
    call("send_mail", agent="analyst", to=["reviewer"], cc=["human"], subject="Review: sails", body="Please look.")
    call("send_mail", agent="analyst", to=["reviewer"], subject="Another", body="x", expects_reply=True)
    [asks] = [one for path in (hive / "mailboxes/reviewer/new").iterdir() if "Another" in (one := path.read_text())]
    assert "X-Hive-Expects-Reply: yes" in asks
    assert list((hive / "mailboxes/human/new").iterdir())
    listed = call("check_mailbox", agent="reviewer", limit=1)
    assert len(listed["messages"]) == 1
    [request] = [row["id"] for row in run("mail", "list", "reviewer", "--json").json if "Review" in row["subject"]]
    call("reply_mail", agent="reviewer", id=request, body="approved: fine.", verdict="approved")
    answers = [path.read_text() for path in (hive / "mailboxes/analyst/new").iterdir()]
    assert any("approved" in text for text in answers)


@pytest.mark.shows("tool: check_citations", "argument: check_citations message")
def test_the_quotes_of_an_answer_are_checked_by_a_tool_that_the_reviewers_log_names(run: Command, hive: Path) -> None:
    (hive / "knowledge").mkdir(exist_ok=True)
    (hive / "knowledge/boats.md").write_text("A rowing boat is moved with oars.\n")
    (hive / "tasks/inbox").mkdir(parents=True, exist_ok=True)
    (hive / "tasks/inbox/ready.md").write_text("---\nassignee: reviewer\nsteps: [{run: 'true'}]\n---\nBe there.\n")
    head = "---\nassignee: analyst\ndependencies: [ready]\n---\n"  # else an analyst alone checks its quotes itself
    (hive / "tasks/inbox/oars.md").write_text(f"{head}What moves a rowing boat?\n")
    assert run("up", "--until-idle").status == 0
    [log] = (hive / ".hive/agents").glob("*/log.jsonl")  # of who checked: the verdict takes no turn
    assert log.parent.name != "analyst"
    [checked] = [call for line in log.read_text().splitlines() for call in json.loads(line).get("calls", ())]
    assert (checked["tool"], checked["result"]["problems"]) == ("check_citations", [])
    for agent in ("analyst", log.parent.name):
        assert "Review" not in (hive / f".hive/agents/{agent}/working-memory.json").read_text()


def test_what_an_agent_reads_as_a_tasks_text_is_what_was_dropped(run: Command, hive: Path, call: Any) -> None:
    text = "---\nid: boat\nassignee: analyst\nsteps: [{wait: {human: Well?}}]\n---\nBuild a boat.\n"
    (hive / "tasks/inbox").mkdir(parents=True)
    (hive / "tasks/inbox/boat.md").write_text(text)
    assert run("up", "--until-idle").status == 3
    copy = hive / "tasks/active/boat/task.md"
    copy.write_text(text.replace("boat.\n", "raft.\n"))  # as a command without a sandbox can
    read = call("read_file", agent="analyst", path="tasks/active/boat/task.md")
    assert read["text"] == text
    assert read["digest"] == hashlib.sha256(text.encode()).hexdigest()


def test_document_and_memory_tools_take_a_kind_and_a_limit(run: Command, hive: Path, call: Any) -> None:
    root = call("doc_append", agent="analyst", text="Where we go")["node"]
    made = call("doc_append", agent="analyst", text="We go east", parent=root, kind="decision")["node"]
    assert "decision" in run("doc", "show", made, "--json").out
    call("remember", agent="analyst", content="The keel is of oak", key="keel")
    call("remember", agent="analyst", content="The keel is four fathoms long", key="length")
    assert len(call("search_memory", agent="analyst", query="keel", limit=1)["memories"]) == 1


def test_add_task_says_for_whom_after_what_and_under_which_id(run: Command, hive: Path, call: Any) -> None:
    call("add_task", agent="analyst", title="First", text="Do it.", id="first")
    made = {"title": "Next", "text": "Then this.", "id": "next", "dependencies": ["first"]}
    call("add_task", agent="analyst", **made, assignee="reviewer")
    call("add_task", agent="analyst", title="Third", text="And that.", id="third", role="researcher")
    rows = {row["id"]: row for row in run("task", "list", "--json").json}
    assert (rows["next"]["assignee"], rows["third"]["role"], rows["first"]["maker"]) == (
        "reviewer",
        "researcher",
        "analyst",
    )
    assert "first" in rows["next"]["waiting"]
    assert len(call("list_tasks", agent="analyst", limit=1)["tasks"]) == 1


def test_step_and_card_tools_note_a_checkpoint_block_cite_and_link(run: Command, claude: Member) -> None:
    claude.call("note_step", {"text": "Laid.", "checkpoint": "tests"})
    lines = claude.call("read_file", {"path": "knowledge/keel.md"})
    place = {"path": "knowledge/keel.md", "start_line": 1, "end_line": 1, "digest": lines["digest"]}
    quote = {"kind": "evidence", "text": "The keel is of oak.", "title": "Keel", "citation": place}
    quoted, decided = (
        claude.call("add_card", card)
        for card in (quote, {"kind": "decision", "text": "It gets a keel.", "title": "Decided"})
    )
    src, dst = (one.get("node") or one["card"] for one in (quoted, decided))
    claude.call("link_cards", {"src": src, "dst": dst, "relation": "supports"})
    links = TaskGraph.__mro__ and run("graph", "show", "boat", "--json").json["links"]
    assert [(one["src"], one["dst"], one["relation"]) for one in links if one["src"] == src] == [(src, dst, "supports")]
    assert Link(src, dst, "supports").relation == "supports"
    claude.call("verify_step", {})
    claude.call("block_step", {"reason": "No oak left"})
    opened = claude.hive
    step, generation = "boat.s1", opened.leases.claim("boat.s1", "claude").generation
    assert isinstance(opened.leases.get(step), StepLease)
    opened.steps.unblock(step, agent_id="claude", generation=generation)
    opened.steps.done(step, agent_id="claude", generation=opened.leases.claim(step, "claude").generation)
    opened.steps.reopen(step, "not so", agent_id="claude")
    opened.steps.delete("boat.s2", agent_id="claude")
    kinds = {event["kind"] for event in run("log", "--json").json}
    assert kinds >= {"step.verified", "step.blocked", "step.unblocked", "step.done", "step.reopened", "step.deleted"}


def test_what_a_person_adds_to_a_task_and_how_it_ends_stands_in_the_journal(run: Command, claude: Member) -> None:
    run("task", "add", "Float", "--id", "float")
    claude.call("claim_task", {"task": "float"})
    assert run("task", "say", "float", "Of oak.").status == 0
    claude.call("finish_task", {"result": "It floats."})
    run("task", "add", "Sail", "--id", "sail")
    claude.call("claim_task", {"task": "sail"})
    claude.call("hand_over", {"to": "analyst", "reason": "You know sails"})
    every = {event["kind"] for event in run("log", "--json").json}
    assert every >= {"task.recorded", "task.said", "task.ending", "task.done"}


def test_a_file_that_is_no_text_becomes_a_question_where_a_person_says_so(run: Command, hive: Path) -> None:
    (hive / "hive.yaml").write_text("durability: relaxed\nsettle_ms: 0\nno_text: ask\n")
    inbox = hive / "tasks/inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    (inbox / "chart.bin").write_bytes(b"\x89\x00\xff" * 50)
    opened = Hive.open(hive)
    task = opened.tasks.claim("analyst")
    assert task is not None
    assert (task.path / "files/chart.bin").read_bytes() == b"\x89\x00\xff" * 50


def test_a_command_is_told_who_runs_it_for_which_step_and_is_bounded_in_processor_time_and_memory(
    run: Command, hive: Path
) -> None:
    for path in (hive / "agents").iterdir():
        path.unlink()
    (hive / "agents/ada.yaml").write_text("limits: {cpu_s: 1, memory_mb: 512}\n")
    (hive / "hive.yaml").write_text("durability: relaxed\nmax_active: 1\nmax_task_bytes: 400\nencoding: o200k_base\n")
    inbox = hive / "tasks/inbox"
    inbox.mkdir(parents=True)
    (inbox / "who.md").write_text(
        '---\nsteps: [{run: "echo $HIVEMIND_AGENT/$HIVEMIND_STEP; ulimit -t; ulimit -v"}]\n---\nx\n'
    )
    (inbox / "large.md").write_text("x" * 401)
    (inbox / "busy.md").write_text('---\nsteps: [{run: "while :; do :; done"}]\n---\nx\n')
    os.environ["HIVEMIND_EMBEDDER"] = "none"
    assert run("up", "--until-idle").status == 1
    told = (hive / "tasks/done/who/result.md").read_text()
    assert "ada/who.s1" in told
    assert f"1\n{512 * 1024}" in told.replace("\n> ", "\n")
    assert "400" in (hive / "tasks/failed/large/error.md").read_text()
    assert (hive / "tasks/failed/busy/error.md").exists()


def test_a_selection_can_be_named() -> None:
    assert Selection.__name__ == "Selection"
