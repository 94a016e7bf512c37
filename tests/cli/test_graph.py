"""hivemind graph: what was thought, as a tree, a file, a picture; publishing and branches."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.cli.graph import ranges, tree_lines
from hivemind.coordination import Commits
from hivemind.reasoning import ReasoningGraph, TaskGraph
from tests.cli.conftest import Command

BRANCH = ("graph", "branch")


def test_the_tree_says_kind_status_lane_and_what_a_summary_stands_for(run: Command, graph: TaskGraph) -> None:
    assert run("graph", "show", "t").out.splitlines() == [
        "t (active), branch main, line 2 of 2: 7 nodes, 2 folded",
        "1 [task] Which lock: Which lock is it?",
        "  2 [subtask] Look",
        "    7 [summary, agent/researcher, stands for 4 5] Two kinds of lock",
        "  3 [subtask] Decide",
        "    6 [decision, accepted, agent/researcher] Take \ufffd[2J the flock",
        "--all shows folded and flushed nodes, too.",
    ]


def test_all_shows_what_is_folded_below_its_summary_and_what_is_flushed(run: Command, graph: TaskGraph) -> None:
    with graph.change() as changed:
        changed.flush_node(3)
    plain, every = run("graph", "show", "t").out, run("graph", "show", "t", "--all").out
    assert "\n  6 [decision" in plain, "what hangs below a flushed node stands in its place"
    assert "3 [subtask" not in plain
    assert "    7 [summary" in every
    assert "\n      4 [evidence, folded, agent/researcher, supports 6] It is a flock\n" in every
    assert "\n  3 [subtask, flushed] Decide\n    6 [decision" in every
    assert "--all" not in every


def test_the_graph_is_shown_as_it_was(run: Command, graph: TaskGraph) -> None:
    before = run("graph", "show", "t", "--at", "1").out
    assert before.startswith("t (active), branch main, line 1 of 2: 6 nodes\n")
    assert "4 [evidence" in before
    assert run("graph", "show", "t", "--at", "0").out == "t (active), branch main, line 0 of 2: 0 nodes\n"
    ended = run("graph", "show", "t", "--at", "3")
    assert (ended.status, ended.out) == (2, "")
    assert "the last is 2" in ended.err


def test_a_graph_is_found_wherever_its_task_lies(run: Command, hive: Path, graph: TaskGraph) -> None:
    run("task", "cancel", "t")
    assert run("graph", "show", "t").out.startswith("t (failed), branch main")
    run("task", "add", "Wait", "--id", "waits")
    ended = run("graph", "show", "waits")
    assert ended.status == 2
    assert ended.err.startswith("hivemind: waits: the task has no graph yet; ")
    run("task", "cancel", "waits")
    assert run("graph", "show", "waits").err.startswith("hivemind: waits: the task has ended without a graph; ")
    assert run("graph", "show", "nothing-there").status == 2


def test_nothing_in_a_graph_steers_the_terminal(run: Command, graph: TaskGraph) -> None:
    with graph.change() as changed:
        for text in ("yes", "no\x1b[2J"):
            changed.add_node("note", text, title="\x9b", status="so\x1b[2J", tags=("a\u202e",))
            changed.add_edge(1, changed.next_id - 1)
        changed.add_link(8, 9, "blocks\x1b")
    graph.add_trace("run\x1b[2J", "a\x1bb", step="t.s1")
    graph.add_note("c\x1bd")
    for words in (["graph", "show", "t", "--all"], ["view", "resume", "t", "--view", "full", "--all-lanes"]):
        shown = run(*words).out
        assert ("so\ufffd[2J" if words[0] == "graph" else r"so\e[2J") in shown
        assert all(line.isprintable() for line in shown.splitlines())
    assert "Conflict: note 8 9 of tag a\ufffd disagree.\n" in run("graph", "show", "t").out


def test_a_chain_of_any_depth_is_shown_with_indents_that_end() -> None:
    graph = ReasoningGraph()
    graph.add_node("task", "top")
    for number in range(2, 5_001):
        graph.add_node("subtask", "down")
        graph.add_edge(number - 1, number)
    graph.add_edge(1, graph.add_node("note", "twice").node_id)
    graph.add_edge(2, 5_001)
    graph.add_node("note", "loose")
    lines = list(tree_lines(graph, every=False))
    assert len(lines) == 5_003
    assert lines[4_999].startswith(" " * 32 + "5000 [subtask]")
    assert lines[-3:] == ["  5001 [note, below 1 2] twice", "Without a parent:", "5002 [note] loose"]


def test_numbers_in_a_row_are_told_by_their_ends() -> None:
    assert ranges([9, 3, 4, 5, 7, 8]) == "3–5 7–9"
    assert ranges([1, 2, 4]) == "1 2 4"


def test_a_finished_task_of_a_swarm_is_shown(process: Command, hive: Path) -> None:
    (hive / "knowledge").mkdir(exist_ok=True)
    (hive / "knowledge" / "locks.md").write_text("# Locks\n\nA zebra lock is a lock that guards a zebra.\n")
    process("task", "add", "What is a zebra lock?", "--id", "zebra")
    ended = process("up", "--until-idle")
    assert ended.status == 0, ended.out + ended.err
    shown = process("graph", "show", "zebra").out
    assert shown.startswith("zebra (done), branch main, line ")
    assert "  2 [subtask, closed] What is a zebra lock?" in shown
    assert "knowledge/locks.md:3" in shown
    assert "pinned, supports" in shown, "the answer's evidence was published"
    snapshot = json.loads((hive / "tasks" / "done" / "zebra" / "graph.json").read_text())
    assert ReasoningGraph.from_dict(snapshot).root is not None
    assert snapshot.items() <= process("graph", "show", "zebra", "--json").json.items()
    capsule = process("view", "resume", "zebra", "--json").json["capsule"]
    assert capsule["next"] == {"primary": None, "backup": None}


# publishing


def test_a_draft_is_published_once_and_the_journal_is_told(run: Command, hive: Path, graph: TaskGraph) -> None:
    said = run("graph", "publish", "t", "6", "--agent", "researcher")
    assert said.out == "Node 6 is in the shared lane as node 8, revision 1.\n"
    (event,) = run("log", "--kind", "lane", "--json").json
    assert (event["card"], event["agent_id"], event["step_id"]) == (6, "researcher", "t.s2")
    assert run("graph", "publish", "t", "6", "--agent", "Researcher", "--json").json["node"] == 8
    assert len(run("log", "--kind", "lane", "--json").json) == 1, "nothing has changed, so nothing is told"
    with graph.change() as changed:
        changed.update_node(6, title="The flock")
    assert "revision 2" in run("graph", "publish", "t", "6", "--agent", "researcher").out


def test_what_is_published_of_a_finished_task_is_found(run: Command, hive: Path, graph: TaskGraph) -> None:
    done = hive / "tasks" / "done"
    os.rename(graph.folder, done / "t")
    os.utime(done, (1_000_000_000, 1_000_000_000))
    found = ("graph", "find", "flock", "--json")
    assert 8 not in [hit["node_id"] for hit in run(*found).json]
    assert run("graph", "publish", "t", "6", "--agent", "researcher").status == 0
    assert 8 in [hit["node_id"] for hit in run(*found).json]


def test_the_lane_that_an_agents_file_names_is_its_own(run: Command, hive: Path, graph: TaskGraph) -> None:
    (hive / "agents" / "helper.yaml").write_text("lane: agent/researcher\n")
    refused = run("graph", "publish", "t", "6", "--agent", "analyst")
    assert refused.err == "hivemind: node 6 is a draft of agent/researcher; --agent helper\n"
    assert run("graph", "publish", "t", "6", "--agent", "helper", "--json").json["node"] == 8
    (event,) = run("log", "--kind", "lane", "--json").json
    assert (event["agent_id"], event["lane"]) == ("helper", "agent/researcher")


def test_a_card_under_anothers_lease_is_refused_and_nothing_is_written(
    run: Command, hive: Path, graph: TaskGraph
) -> None:
    Hive.open(hive).leases.claim("t.s2", "analyst")
    ended = run("graph", "publish", "t", "6", "--agent", "researcher")
    assert ended.status == 1
    assert ended.err.startswith("hivemind: STEP_LEASE_HELD: ")
    assert "hivemind lease list, or researcher calls send_mail: to analyst" in ended.err
    assert len(graph.graph) == 7
    assert run("log", "--kind", "lane", "--json").json == []
    assert run("graph", "publish", "t", "6", "--agent", "researcher", "--json").json["code"] == "STEP_LEASE_HELD"


@pytest.mark.parametrize(
    ("node", "agent", "said"),
    [
        ("6", "analyst", "node 6 is a draft of agent/researcher; --agent researcher"),
        ("3", "researcher", "node 3 is in the shared lane already"),
        ("4", "researcher", "node 4 is not active"),
        ("99", "researcher", "there is no node 99"),
    ],
)
def test_what_cannot_be_published_is_said(run: Command, graph: TaskGraph, node: str, agent: str, said: str) -> None:
    ended = run("graph", "publish", "t", node, "--agent", agent)
    assert ended.status == 2
    assert ended.err == f"hivemind: {said}\n"
    assert len(graph.graph) == 7


@pytest.mark.parametrize(("point", "counts"), [("graph.commit.prepared", False), ("graph.commit.committed", True)])
def test_killed_while_publishing_the_journal_decides(
    process: Command, run: Command, graph: TaskGraph, point: str, counts: bool
) -> None:
    ended = process("graph", "publish", "t", "6", "--agent", "researcher", HIVEMIND_CRASH_AT=point)
    assert ended.status == -signal.SIGKILL
    again = run("graph", "publish", "t", "6", "--agent", "researcher", "--json")
    assert again.json["node"] == (8 if counts else 9), "an id is never used twice"
    assert len(run("log", "--kind", "lane", "--json").json) == 1
    assert [node.node_id for node in graph.graph.nodes.values() if node.pinned] == [again.json["node"]]


# branches


def alternative(run: Command, graph: TaskGraph) -> None:
    """Branch `alt`, in which node 6 was rejected and a node added, while main has accepted it under another title."""
    assert run(*BRANCH, "create", "t", "alt").out == "Branch alt sees main up to line 2.\n"
    alt = TaskGraph(graph.folder, branch="alt")
    with alt.change("analyst") as changed:
        changed.update_node(6, status="rejected")
        changed.add_edge(3, changed.add_node("question", "And if it dies?").node_id)
    with graph.change("researcher") as changed:
        changed.update_node(6, title="The flock")


@pytest.mark.parametrize(("point", "counts"), [("graph.commit.prepared", False), ("graph.commit.committed", True)])
@pytest.mark.parametrize("word", ["created", "merged"])
def test_killed_while_changing_branches_the_journal_decides(
    process: Command, run: Command, graph: TaskGraph, word: str, point: str, counts: bool
) -> None:
    command = {"created": ("create", "t", "new"), "merged": ("merge", "t", "alt")}[word]
    alternative(run, graph)
    resolved = ("--use-from", "all") if word == "merged" else ()
    assert process(*BRANCH, *command, *resolved, HIVEMIND_CRASH_AT=point).status == -signal.SIGKILL
    told = [event["kind"] for event in run("log", "--kind", "branch", "--json").json]
    assert told == ["branch.created", *([f"branch.{word}"] if counts else [])]
    committed = Commits(Hive.open(os.environ["HIVEMIND_HIVE"]).journal, "t").has
    TaskGraph(graph.folder, is_committed=committed).add_note("whoever changes the graph next settles it")
    names = [branch.name for branch in graph.branches()]
    if word == "merged":
        assert (graph.graph.node(6).status == "rejected") == counts
    else:
        assert names == ["main", "alt", *(["new"] if counts else [])]
    assert graph.graph == TaskGraph(graph.folder).graph


def test_branches_are_made_and_listed(run: Command, graph: TaskGraph) -> None:
    alternative(run, graph)
    assert run(*BRANCH, "list", "t", "--json").json == [
        {"name": "main", "base": None, "base_seq": 0},
        {"name": "alt", "base": "main", "base_seq": 2},
    ]
    assert "8 [question]" in run("graph", "show", "t", "--branch", "alt").out
    assert run(*BRANCH, "create", "t", "third", "--from", "alt", "--at", "4", "--json").json["base_seq"] == 4
    kinds = [event["kind"] for event in run("log", "--kind", "branch", "--json").json]
    assert kinds == ["branch.created", "branch.created"]


def test_a_dry_run_names_what_would_be_done_and_writes_nothing(run: Command, graph: TaskGraph) -> None:
    alternative(run, graph)
    before = (graph.folder / "graph.jsonl").read_bytes()
    ended = run(*BRANCH, "merge", "t", "alt", "--dry-run")
    assert ended.status == 1
    assert "take node 8 [question] And if it dies?\n" in ended.out
    assert (
        "conflict node 6\n  status: rejected (alt), accepted (main)\n  title: - (alt), The flock (main)\n" in ended.out
    )
    assert "alt into main: nothing is written. Choose" in ended.out
    told = run(*BRANCH, "merge", "t", "alt", "--dry-run", "--json").json
    assert [conflict["name"] for conflict in told["conflicts"]] == ["node 6"]
    would = run(*BRANCH, "merge", "t", "alt", "--dry-run", "--use-from", "node 6")
    assert (would.status, would.out.splitlines()[-1]) == (
        0,
        "alt into main: 3 would be taken over, nothing is written.",
    )
    assert (graph.folder / "graph.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("choice", "status"),
    [
        (["--use-from", "all"], "rejected"),
        (["--use-from", "node 6"], "rejected"),
        (["--use-into", "all"], "accepted"),
        (["--use-from", "all", "--use-into", "node 6"], "accepted"),
    ],
    ids=" ".join,
)
@pytest.mark.shows("option: graph branch merge --use-into")
def test_conflicts_are_resolved_and_never_come_up_again(
    run: Command, graph: TaskGraph, choice: list[str], status: str
) -> None:
    alternative(run, graph)
    left = run(*BRANCH, "merge", "t", "alt")
    assert left.status == 1
    assert 8 not in graph.graph.nodes
    ended = run(*BRANCH, "merge", "t", "alt", *choice)
    assert ended.status == 0, ended.out
    assert graph.graph.node(6).status == status
    assert graph.graph.node(8).heading == "And if it dies?"
    again = run(*BRANCH, "merge", "t", "alt")
    assert (again.status, again.out) == (0, "alt into main: no change is missing in main.\n")
    assert [event["into"] for event in run("log", "--kind", "branch.merged", "--json").json] == ["main"]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (["--use-from", "all", "--use-into", "all"], "conflict 'all' has two choices"),
        (["--use-from", "node 8"], "there is no conflict 'node 8'; there are: node 6"),
        (["--use-from", "node 6", "--use-into", "node 6"], "conflict 'node 6' has two choices"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_choices_that_cannot_be_are_refused(run: Command, graph: TaskGraph, choice: list[str], said: str) -> None:
    alternative(run, graph)
    ended = run(*BRANCH, "merge", "t", "alt", *choice)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err


def test_a_merge_that_takes_cards_of_a_leased_step_needs_its_holder(run: Command, hive: Path, graph: TaskGraph) -> None:
    alternative(run, graph)
    Hive.open(hive).leases.claim("t.s2", "analyst")
    refused = run(*BRANCH, "merge", "t", "alt", "--use-from", "all")
    assert refused.status == 1
    assert refused.err.startswith("hivemind: STEP_LEASE_HELD: step t.s2 is leased by analyst")
    assert graph.graph.node(6).status == "accepted"
    assert run(*BRANCH, "merge", "t", "alt", "--use-from", "all", "--agent", "analyst").status == 0


@pytest.fixture
def wordy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches by words only."""
    monkeypatch.setenv("HIVEMIND_EMBEDDER", "none")


@pytest.mark.usefixtures("wordy")
def test_nodes_of_all_tasks_are_found_and_said_where_they_stand(run: Command, graph: TaskGraph) -> None:
    found = run("graph", "find", "which flock?")
    lines = found.out.splitlines()
    assert lines[:2] == ["t 4 [evidence, folded, agent/researcher]  tasks/active/t/graph.jsonl", "    It is a flock"]
    assert re.fullmatch(r"    score \d\.\d\d, similarity 0\.00: has flock", lines[2])
    assert lines[3:5] == [
        "t 6 [decision, active, agent/researcher]  tasks/active/t/graph.jsonl",
        "    Take \ufffd[2J the flock",
    ]
    assert run("graph", "find", "umbrella").out == "Nothing was found.\n"
    (hit,) = run("graph", "find", "two kinds", "--task", "t", "--limit", "1", "--json").json
    assert (hit["task"], hit["place"], hit["node_id"], hit["kind"]) == ("t", "active", 7, "summary")
    assert Path(os.environ["HIVEMIND_HIVE"], hit["path"]).is_file()


@pytest.mark.usefixtures("wordy")
def test_a_search_that_cannot_be_is_refused_in_words(run: Command, hive: Path) -> None:
    Hive.open(hive).tasks.add("No graph yet", id="waiting")
    for arguments, said in (
        (("  ",), "the query is empty"),
        (("x", "--task", "nope"), "nope: there is no such task"),
        (("x", "--task", "waiting"), "has no graph"),
        (("x", "--limit", "0"), "--limit"),
    ):
        ended = run("graph", "find", *arguments)
        assert (ended.status, ended.out) == (2, "")
        assert said in ended.err


@pytest.mark.usefixtures("wordy")
def test_what_a_search_passes_over_goes_to_standard_error(run: Command, hive: Path, graph: TaskGraph) -> None:
    log = graph.folder / "graph.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"kind":"task"', b'"kind":"tusk"'))
    found = run("graph", "find", "lock", "--json")
    assert found.json == []
    assert f"skipped: {log}:2: does not fit" in found.err
