"""One task of 300 steps under a budget of 8,000 tokens: folded while it goes on, whoever dies, at the same cost each turn."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.presence.identity import announce
from hivemind.reasoning import ReasoningGraph, TaskGraph
from hivemind.taskrun.conversation import LAST_TURNS, TaskConversation
from hivemind.taskrun.said import said
from hivemind.taskrun.trail import Trail
from hivemind.tasks import TaskState
from hivemind.tokens import count_tokens

STEPS = 300
BUDGET = 8_000
QUESTION = "What do the engines weigh?"
ENGINES = "# Engines\n\n" + "\n\n".join(
    f"## Engine {number}\nThe engine number {number} weighs {number * 7} kilograms." for number in range(STEPS)
)
EARLY, LATE = range(STEPS // 4, STEPS // 4 + 40), range(STEPS - 40, STEPS)
Record = dict[str, Any]


def long_task(steps: int) -> str:
    """Questions, and every third step a command, in one task. Every tenth waits, and a turn that waited led to nothing."""
    rows = [f"  - {_step(number)}\n" for number in range(steps)]
    return f"---\ntitle: Weigh the engines\nmax_tokens: {BUDGET}\nsteps:\n{''.join(rows)}---\n{QUESTION}\n"


def _step(number: int) -> str:
    if number % 10 == 9:
        return "wait: 0.02s"
    if number % 3 == 2:
        return f"run: echo engine {number} was cleaned"
    return f"ask: What does engine number {number} weigh?"


def log_of(folder: Path) -> list[Record]:
    path = folder / "log.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def positions(text: str) -> set[int]:
    """`3, 5-7` as the numbers that it says."""
    runs = [part.partition("-") for part in text.split(", ") if part]
    return {number for first, _, last in runs for number in range(int(first), int(last or first) + 1)}


def check_each_context(records: Sequence[Record], unsaid: int = 0) -> None:
    """The promises for every turn of a log: the budget, the root, the open steps, the last four turns.

    Of up to `unsaid` steps the log does not know how they ended: their agent was killed between the deed and its record.
    """
    every = set(range(1, STEPS + 1))
    lost = every - {step for record in records for step in finished(record)}
    assert len(lost) <= unsaid
    left = set(every)
    heard: list[list[int]] = []
    for record in records:
        essentials = record["essentials"]
        assert record["asked"]["tokens"] <= BUDGET
        assert essentials["text"] == "full"
        assert left - lost <= positions(essentials["steps"]) <= left
        shown = set(essentials["conversation"]["turns"])
        assert {0, *(turn for turns in heard[-LAST_TURNS:] for turn in turns)} <= shown
        left -= finished(record)
        heard.append(record.get("turns", []))
    assert left == lost


def finished(record: Record) -> set[int]:
    """The positions of the steps that a turn closed."""
    closed = [one["result"]["step"] for one in record["actions"] if one["tool"] == "finish_step" and "error" not in one]
    return {int(step.removeprefix("long.s")) for step in closed}


def check_each_turn(graph: ReasoningGraph, records: Sequence[Record]) -> None:
    """Every turn is in the graph, on the nodes that it made or closed, or on one of its own, and on no other."""
    made_by = {
        turn: {one["result"]["node"] for one in record["actions"] if one["tool"] == "add_card" and "error" not in one}
        for record in records
        for turn in record["turns"]
    }
    homes: dict[int, list[int]] = {turn: [] for turn in made_by}
    own = [node for node in graph.nodes.values() if node.kind != "summary" and "origin" not in node.meta]
    for node in own:  # a summary and a published copy have the turns of what they stand for
        for turn in node.related_turn_ids:
            homes.setdefault(turn, []).append(node.node_id)
    assert homes.pop(0) == [1]
    for turn, nodes in homes.items():
        assert set(nodes) == made_by[turn] if made_by[turn] else len(nodes) == 1


def check_unfolding(folder: Path, records: Sequence[Record], tmp_path: Path) -> None:
    """Unfolded on a copy of its folder, the finished graph gives back the whole conversation, word for word.

    Only what was flushed is out of sight: turns that led to nothing.
    """
    (tmp_path / "graph.jsonl").write_bytes((folder / "graph.jsonl").read_bytes())
    store = TaskGraph(tmp_path, durable=False)
    with store.change("person") as graph:
        while standing := [node for node in graph.by_kind("summary") if node.active is True]:
            graph.unfold(standing[0].node_id)
        gone = [node for node in graph.nodes.values() if node.active is not True and node.kind != "summary"]
    assert {(node.active, node.status) for node in gone} == {("Flushed", "fruitless")}
    out_of_sight = {turn for node in gone for turn in node.related_turn_ids}
    task = Hive.open(folder.parents[2]).tasks.get(folder.name)
    trail = Trail(
        task,
        "person",
        f"agent/{records[0]['agent']}",
        durable=False,
        committed=lambda _: True,
        guard=lambda _: nullcontext(),
    )
    trail.store = store
    talk = TaskConversation(trail, task.title, records, count_tokens, looking=True)
    seen = [record for record in records if out_of_sight.isdisjoint(record["turns"])]
    assert talk._memory.context()[1:] == [message for record in seen for message in said(record)]
    assert gone


def check_task(folder: Path, tmp_path: Path) -> None:
    """All promises for the folder of a finished task."""
    records = log_of(folder)
    check_each_context(records, unsaid=1)
    told = records[:-1]  # the last one ended the task
    turns = [turn for record in told for turn in record["turns"]]
    assert turns == list(range(1, 2 * len(told) + 1))
    graph = TaskGraph(folder).graph
    check_each_turn(graph, told)
    summaries = [node for node in graph.by_kind("summary") if "folded" in node.meta]
    assert len(summaries) > STEPS // 20
    assert any(graph.nodes[member].kind == "summary" for node in summaries for member in node.meta["folded"])
    check_unfolding(folder, told, tmp_path)
    result = (folder / "result.md").read_text()
    asked = [number for number in range(STEPS) if _step(number).startswith("ask")]
    assert all(f"> The engine number {number} weighs {number * 7} kilograms." in result for number in asked)


def swarm_with(hive: Any) -> None:
    hive.configure(durability="relaxed", settle_ms=0)
    (hive.root / "knowledge" / "boats.md").unlink()
    (hive.root / "knowledge" / "engines.md").write_text(ENGINES)
    hive.drop("long.md", long_task(STEPS))


def test_three_hundred_steps_in_a_swarm_that_is_killed_on_the_way(hive: Any, tmp_path: Path) -> None:
    """Killed by us while it works, and at the worst moment twice: when a turn is in the log and not in the graph."""
    swarm_with(hive)
    up = hive.start("up", "--until-idle", HIVEMIND_CRASH_AT=f"conversation.logged:{STEPS // 3}")
    folder = hive.root / "tasks" / "active" / "long"
    hive.wait(lambda: len(log_of(folder)) > STEPS // 10, "a tenth of the task")
    owner = log_of(folder)[0]["agent"]
    os.kill(hive.pid_of(owner), signal.SIGKILL)
    assert up.wait(600) == 0, hive.logs()
    ends = [event for event in hive.events() if event["kind"] == "agent.exited" and event["agent_id"] == owner]
    assert len(ends) >= 3
    check_task(hive.root / "tasks" / "done" / "long", tmp_path)
    done = [event["step_id"] for event in hive.events() if event["kind"] == "step.done"]
    assert len(done) == len(set(done)) == STEPS


class Spy:
    """A mind, and what each context that it was given said."""

    def __init__(self, mind: Any) -> None:
        self.mind = mind
        self.contexts: list[dict[str, str]] = []

    def think(self, context: Sequence[Mapping[str, Any]], tools: Any) -> Any:
        self.contexts.append({str(entry["id"]): json.dumps(entry["content"]) for entry in context})
        return self.mind.think(context, tools)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mind, name)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """One agent in this process, with the long task before it and a bound for what a task may cost."""
    root = tmp_path / "hive"
    Hive.init(root)
    (root / "hive.yaml").write_text("durability: relaxed\nsettle_ms: 0\n")
    for path in [*(root / "agents").glob("*.yaml"), *(root / "knowledge").rglob("*.md")]:
        path.unlink()
    (root / "agents" / "analyst.yaml").write_text("budget: {task: {tokens: 1000000000}}\n")
    (root / "knowledge" / "engines.md").write_text(ENGINES)
    (root / "tasks" / "inbox" / "long.md").write_text(long_task(STEPS))
    hive = Hive.open(root)
    found = Agent(hive, "analyst", announce(hive.journal, "analyst", os.getpid()))
    found.mind = Spy(found.mind)
    found.scheduler.resume()
    yield found
    found.close()


def calls_of(work: Callable[[], object]) -> int:
    """How many functions a piece of work calls, in Python and below: the same on a slow machine."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def bytes_read() -> int:
    """What this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_turn_costs_the_same_at_the_end_and_its_context_says_what_it_must(agent: Agent) -> None:
    early, late = (0, 0), (0, 0)
    contexts: list[dict[str, str]] = agent.mind.contexts  # type: ignore[attr-defined]
    while agent.hive.tasks.counts()[TaskState.DONE] == 0:
        turn, before = len(contexts), bytes_read()
        calls = calls_of(agent.cycle) if turn in EARLY or turn in LATE else (agent.cycle() and 0)
        cost = (
            (calls, bytes_read() - before) if len(contexts) > turn else (0, 0)
        )  # it may have nothing to do: a step waits
        early = (early[0] + cost[0], early[1] + cost[1]) if turn in EARLY else early
        late = (late[0] + cost[0], late[1] + cost[1]) if turn in LATE else late
    assert late[0] <= 1.2 * early[0]
    assert late[1] <= 1.2 * early[1]
    records = log_of(agent.hive.layout.done / "long")
    check_each_context(records)
    for at, (context, record) in enumerate(zip(contexts, records, strict=True)):
        assert json.loads(context["task:long"]).strip() == QUESTION
        assert f"Still to do: {record['essentials']['steps'] or 'none'}." in context["context:steps:long"]
        told = json.loads(context["context:conversation:long"])
        for earlier in records[max(0, at - LAST_TURNS) : at]:
            assert earlier["thought"] in told
            assert all(f"step=long.s{step})" in told for step in finished(earlier))
