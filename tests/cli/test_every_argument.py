"""Options and tools' arguments that no other test gives by name: each once, with what it changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive, HivemindError
from hivemind.coordination import Event, Step
from hivemind.mcp_server.member import Member
from hivemind.reasoning import TaskGraph
from hivemind.views import signals, snapshot, watch
from tests.cli.conftest import Command


def test_a_view_is_limited_to_a_step_a_lane_and_a_number(run: Command, hive: Path, graph: TaskGraph) -> None:
    opened = Hive.open(hive)
    who = {"task": "t", "agent_id": "researcher"}
    shown = run("view", "snapshot", "t", "--agent", "researcher", "--limit", "2", "--view", "full", "--json").json
    assert shown == snapshot(opened, **who, limit=2, view="full")
    shown = run("view", "watch", "t", "--agent", "researcher", "--step", "t.s1", "--limit", "1", "--json").json
    assert shown == watch(opened, 0, **who, step="t.s1", limit=1)
    shown = run("view", "watch", "t", "--all-lanes", "--view", "full", "--json").json
    assert shown == watch(opened, 0, task="t", all_lanes=True, view="full")
    shown = run("view", "signals", "t", "--step", "t.s1", "--all-lanes", "--limit", "1", "--json").json
    assert shown == signals(opened, task="t", step="t.s1", all_lanes=True, limit=1)
    assert "t.s2" in run("view", "resume", "t", "--step", "t.s2").out


def test_reservations_and_memories_are_listed_and_given_back_by_agent(run: Command, hive: Path, call: Any) -> None:
    call("reserve", {"paths": ["knowledge/a.md"], "shared": True, "reason": "reading"})
    run("reserve", "add", "knowledge/b.md", "--agent", "analyst")
    [mine] = run("reserve", "list", "--agent", "researcher", "--json").json
    assert (mine["patterns"], mine["shared"], mine["reason"]) == (["knowledge/a.md"], True, "reading")
    assert run("reserve", "release", str(mine["id"]), "--agent", "researcher").status == 0
    assert run("reserve", "list", "--agent", "researcher", "--json").json == []
    for key in ("oar", "sail"):
        call("remember", {
            "content": f"The {key} is new.", "key": key, "category": "boats", "metadata": {"of": "boat"},
            "expires_at": "2999-01-01T00:00:00+00:00",
        })  # fmt: skip
    found = run("memory", "search", "new", "--agent", "researcher", "--category", "boats", "--json").json
    assert {one["key"] for one in found} == {"oar", "sail"}
    assert "oar is new" in run("memory", "show", "oar", "--agent", "researcher").out
    assert run("memory", "forget", "oar", "--agent", "researcher").status == 0
    space = "memories/researcher"
    assert run("memory", "forget", "sail", "--namespace", space).status == 0
    assert run("memory", "list", "--agent", "researcher", "--json").json == []
    call("remember", {"content": "The tide turns.", "key": "tide", "namespace": ["shared", "hive"]})
    assert [one["key"] for one in run("memory", "list", "--namespace", "shared/hive", "--json").json] == ["tide"]


def test_a_letter_of_the_command_line_names_its_task_and_brings_a_file(
    run: Command, hive: Path, tmp_path: Path
) -> None:
    (tmp_path / "plan.txt").write_text("12 cm\n")
    words = ("mail", "send", "--from", "human", "--to", "analyst", "--subject", "Plan", "--task", "boat", "See there.")
    assert run(*words, "--attach", str(tmp_path / "plan.txt")).status == 0
    [letter] = (hive / "mailboxes/analyst/new").iterdir()
    assert "boat" in letter.read_text()
    assert 'filename="plan.txt"' in letter.read_text()


def test_files_are_searched_by_their_names_hidden_ones_if_asked_for(call: Any, hive: Path) -> None:
    for name in ("a.md", "b.txt", ".c.md"):
        (hive / "knowledge").mkdir(exist_ok=True)
        (hive / "knowledge" / name).write_text("A keel.\n")
    shown = json.dumps(call("search_files", {"pattern": "keel", "path": "knowledge", "glob": "*.md"}))
    assert "a.md" in shown
    assert "b.txt" not in shown
    assert ".c.md" in json.dumps(call("search_files", {"pattern": "keel", "path": "knowledge", "hidden": True}))


def test_a_steps_tools_name_the_step(claude: Member, run: Command) -> None:
    claude.call("note_step", {"text": "Oak it is", "step": "boat.s1"})
    claude.call("verify_step", {"checkpoints": ["criteria"], "step": "boat.s1"})
    digest = claude.call("read_file", {"path": "knowledge/keel.md"})["digest"]
    quote = {"path": "knowledge/keel.md", "start_line": 1, "end_line": 1, "digest": digest}
    made = claude.call("add_card", {
        "kind": "evidence", "title": "Keel", "text": "The keel is of oak.", "step": "boat.s1", "tags": ["wood"],
        "citation": quote,
    })  # fmt: skip
    claude.call("publish", {"card": made.get("node") or made["card"]})
    claude.call("branch", {"name": "other", "base": "main"})
    ran = claude.call("run_command", {"command": ["true"], "timeout_s": 20, "step": "boat.s1"})
    claude.call("add_evidence", {"evidence": [ran["receipt"]], "step": "boat.s1"})
    claude.call("send_mail", {"to": ["analyst"], "subject": "Keel", "body": "Laid.", "step": "boat.s1"})
    here = claude.call("resume", {})  # a few lines, of which each is needed
    assert here.keys() == {"capsule"}
    assert here["capsule"]["next"]["primary"].keys() == {"tool", "arguments", "lacks"}
    shown = claude.call("resume", {"task": "boat", "step": "boat.s1", "view": "full", "max_chars": 4_000})
    assert "Keel" in json.dumps(shown)
    assert "signals" in json.dumps(claude.call("signals", {"task": "boat"}))
    [step] = [one for one in claude.hive.steps.list("boat") if one.id == "boat.s1"]
    assert isinstance(step, Step)
    kinds = {event.kind for event in claude.hive.journal.read() if isinstance(event, Event)}
    assert {"step.noted", "step.verified", "evidence.captured"} <= kinds
    claude.call("ask_human", {"question": "Which oak?", "step": "boat.s1"})
    claude.call("wait", {"until": {"human": "Which mast?"}, "step": "boat.s2"})
    claude.call("ask_human", {"question": "Which sail?", "step": "boat.s2"})
    questions = [claude.hive.mail.read("human", message.id).body for message in claude.hive.mail.list("human")]
    assert [any(name in body for body in questions) for name in ("Which oak?", "Which mast?", "Which sail?")] == [
        True
    ] * 3
    claude.call("block_step", {"reason": "No oak left", "step": "boat.s1"})
    with pytest.raises(HivemindError, match="nobody"):
        claude.hive.tasks.get("nobody")


def test_a_task_of_an_agents_waits_for_another(call: Any, run: Command) -> None:
    run("task", "add", "Build a boat.", "--id", "boat")
    call("add_task", {"title": "Sail it", "text": "Sail.", "id": "sail", "dependencies": ["boat"]})
    [sail] = [row for row in run("task", "list", "--json").json if row["id"] == "sail"]
    assert "boat" in json.dumps(sail)
    assert call("add_task", {"text": "Paint the keel.\n"})["task"] == "paint-the-keel"


def test_a_document_is_expanded_by_what_is_asked_and_noted(call: Any, hive: Path) -> None:
    root = call("doc_append", {"text": "Boats", "kind": "log"})["node"]
    for text in ("The keel is of oak.", "The mast is of pine."):
        call("doc_append", {"text": text, "parent": root})
    shown = call("doc_expand", {"node": root, "by": "relevance", "query": "mast", "max_tokens": 40})
    assert "pine" in shown["content"]
    call("doc_note", {"node": root, "text": "Written at sea."})
    assert "Written at sea." in json.dumps(call("doc_expand", {"node": root}))


THINKS = """
import json, os, sys
json.load(sys.stdin)
first = not os.path.exists("thought")
open("thought", "w").close()
tool = ("list_files", {"path": "knowledge"}) if first else ("finish_task", {"result": "Done."})
action = {"tool": tool[0], "arguments": tool[1]}
print(json.dumps({"text": "", "calls": [action], "usage": {"tokens_in": 1, "tokens_out": 1, "money": 2.0}}))
"""


@pytest.mark.shows(
    "key: a task: budget", "key: a task: budget.money", "key: a task: budget.tokens", "key: agents/<agent>.yaml: budget",
    "key: agents/<agent>.yaml: budget.day.money", "key: hive.yaml: budget", "key: hive.yaml: budget.day.money",
)  # fmt: skip
@pytest.mark.parametrize(
    "whose", ["hive.yaml budget.day", "agent's budget.day", "agent's budget.task", "money", "tokens"]
)
def test_a_budget_of_money_or_tokens_parks_the_task_once_it_is_used_up(run: Command, hive: Path, whose: str) -> None:
    (hive / "think.py").write_text(THINKS)
    (hive / "knowledge").mkdir(exist_ok=True)
    settings: dict[str, Any] = {"durability": "relaxed", "settle_ms": 0, "embedder": "none"}
    agent: dict[str, Any] = {"mind": {"command": [sys.executable, str(hive / "think.py")]}}
    if whose == "hive.yaml budget.day":
        settings |= {"budget": {"day": {"money": 1}}}
    elif whose == "agent's budget.day":
        agent |= {"budget": {"day": {"money": 1}}}
    elif whose == "agent's budget.task":
        agent |= {"budget": {"task": {"money": 1}}}
    budget = f"---\nbudget: {{{whose}: 1}}\n---\n" if whose in ("money", "tokens") else ""
    (hive / "hive.yaml").write_text(json.dumps(settings))
    (hive / "agents/dear.yaml").write_text(json.dumps(agent))
    run("task", "add", f"{budget}Think.", "--id", "think", "--assignee", "dear")
    assert run("up", "--until-idle").status == 3
    assert "budget" in run("status").out


def test_an_agents_file_bounds_what_its_commands_print(run: Command, hive: Path) -> None:
    agent = {"mind": "mcp", "commands": ["seq"], "limits": {"output_bytes": 100}}
    (hive / "agents/claude.yaml").write_text(json.dumps(agent))
    run("task", "add", "Count.", "--id", "count")
    claude = Member(Hive.open(hive), "claude", "full")
    claude.call("claim_task", {"task": "count"})
    claude.call("plan_steps", {"steps": [{"title": "Count"}]})
    claude.call("run_command", {"command": ["seq", "1000"]})
    claude.close()
    [output] = (hive / "tasks/active/count/artifacts").iterdir()
    assert output.stat().st_size < 400


def test_the_journal_is_told_that_the_holder_of_a_lease_lives_and_nothing_of_who_holds_none(
    run: Command, hive: Path
) -> None:
    def beats() -> int:
        return [one["kind"] for one in json.loads(run("log", "--json").out)].count("agent.heartbeat")

    (hive / "agents/claude.yaml").write_text("mind: mcp\n")
    run("task", "add", "Count.", "--id", "count")
    claude = Member(Hive.open(hive), "claude", "full")
    claude.beat()
    assert beats() == 0
    claude.call("claim_task", {"task": "count"})
    claude.call("plan_steps", {"steps": [{"title": "Count"}]})
    claude.call("add_card", {"kind": "note", "title": "One", "text": "There is one."})  # under the step's lease
    claude.beat()
    assert beats() >= 1
    claude.close()


def test_an_embedder_that_is_asked_for_its_vectors_is_named_in_the_hives_settings(
    run: Command, hive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"embedder": {"url": "http://127.0.0.1:9/v1", "model": "m", "dimension": 3, "key_env": "NO_SUCH_KEY"}}
    (hive / "hive.yaml").write_text(json.dumps({"durability": "relaxed", **told}))
    run("memory", "remember", "The boat is blue.", "--agent", "analyst", "--key", "boat")
    monkeypatch.delenv("HIVEMIND_EMBEDDER", raising=False)
    asked = run("memory", "search", "boat", "--agent", "analyst")
    assert "NO_SUCH_KEY" in asked.out + asked.err


def test_the_price_of_tokens_from_a_cache_is_said_in_the_hives_settings_or_an_agents_file(
    run: Command, hive: Path
) -> None:
    said = {"prices": {"in": 2, "out": 10, "cached": 0.5, "written": 3}, "budget": {"day": {"money": 1}}}
    (hive / "agents/dear.yaml").write_text(
        json.dumps({"mind": {"openai-compatible": {"url": "http://x/v1", "model": "m"}}, **said})
    )
    (hive / "hive.yaml").write_text(
        json.dumps({"prices": {"openai-compatible:m": {"in": 2, "out": 10, "cached": 0.25, "written": 4}}})
    )
    opened = Hive.look(hive)
    agents, hives = opened.agents["dear"].prices, opened.config.prices["openai-compatible:m"]
    assert (agents.cached, agents.written) == (0.5, 3)
    assert (hives.cached, hives.written) == (0.25, 4)
    (hive / "agents/dear.yaml").write_text(json.dumps({"prices": {"in": 2, "out": 10, "cached": -1}}))
    assert "prices.cached" in run("agent", "list").out
