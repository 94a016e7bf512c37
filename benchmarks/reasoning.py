"""The reasoning graph: add, render, fold, context after folds, save and load, memorize (docs/design/reasoning.md).

CPU time. Each row has next to it the original algorithm, written down literally (a list of edges that every fold
rebuilds, a recursive outline, a snapshot with indentation), measured in the same run; the last column names the target.
Run with: python -m benchmarks.reasoning [--quick]
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.hives import placed
from benchmarks.table import Row, show
from hivemind.reasoning import ReasoningGraph, ReasoningMemory, TaskGraph

NODES = 10_000
FOLDS = 1_000
THOUGHT = [
    {"role": "assistant", "content": "I compare what the second source says about it. " * 5},
    {"role": "user", "content": "The second source says the following about it. " * 5},
]


def cpu_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU milliseconds of one call, and what it gave."""
    gc.collect()
    start = time.process_time()
    result = work()
    return (time.process_time() - start) * 1_000, result


@dataclass
class OriginalNode:
    node_id: int
    kind: str
    thought: Any
    related_turn_ids: list[int]
    active: bool | str = True


@dataclass
class OriginalEdge:
    src: int
    dst: int
    rationale: str = ""


@dataclass
class OriginalGraph:
    """The original algorithm, to the letter."""

    nodes: dict[int, OriginalNode] = field(default_factory=dict)
    edges: list[OriginalEdge] = field(default_factory=list)

    def add_node(self, kind: str, thought: Any, turns: list[int]) -> OriginalNode:
        node = OriginalNode(len(self.nodes) + 1, kind, thought, turns)
        self.nodes[node.node_id] = node
        return node

    def add_edge(self, src: int, dst: int, rationale: str = "") -> None:
        if src not in self.nodes or dst not in self.nodes:
            raise ValueError(src, dst)
        self.edges.append(OriginalEdge(src, dst, rationale))

    def fold_nodes(self, ids: list[int], thought: Any) -> None:
        members = set(ids)
        turns = sorted({turn for number in ids for turn in self.nodes[number].related_turn_ids})
        summary = self.add_node("summary", thought, turns).node_id
        edges = []
        for edge in self.edges:
            src, dst = (summary if end in members else end for end in (edge.src, edge.dst))
            if src != dst:
                edges.append(OriginalEdge(src, dst, edge.rationale))
        self.edges = edges
        for number in ids:
            self.nodes[number].active = False

    def pretty_print(self) -> str:
        children: dict[int, list[int]] = defaultdict(list)
        for edge in self.edges:
            if self.nodes[edge.src].active and self.nodes[edge.dst].active:
                children[edge.src].append(edge.dst)
        lines: list[str] = []

        def walk(number: int, indent: str) -> None:
            node = self.nodes[number]
            lines.append(f"{indent}- Node {number}: [{node.kind}] {node.thought}")
            for child in children[number]:
                walk(child, indent + "        ")

        walk(1, "")
        return "\n".join(lines)

    def save_and_load(self, path: Path) -> OriginalGraph:
        record = {
            "nodes": {number: asdict(node) for number, node in self.nodes.items()},
            "edges": [asdict(edge) for edge in self.edges],
        }
        path.write_text(json.dumps(record, ensure_ascii=False, indent=4))
        fields = json.loads(path.read_text())
        return OriginalGraph(
            {int(number): OriginalNode(**node) for number, node in fields["nodes"].items()},
            [OriginalEdge(**edge) for edge in fields["edges"]],
        )

    def rebuild_context(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        summaries = {}
        replaced_turns = set()
        for node in self.nodes.values():
            if node.kind == "summary" and node.active is True:
                replaced_turns.update(node.related_turn_ids)
                summaries[max(node.related_turn_ids)] = node.thought
        result = []
        for at, message in enumerate(messages):
            if at in summaries:
                result.append({"role": "assistant", "content": summaries[at]})
            if at not in replaced_turns:
                result.append(message)
        return result


def _grow(graph: Any, nodes: int) -> Any:
    graph.add_node("task", "T", [])
    for number in range(2, nodes + 2):
        graph.add_node("evidence", THOUGHT, [2 * number, 2 * number + 1])
        graph.add_edge(number // 3 or 1, number, "support")
    return graph


def _wide(graph: Any, folds: int) -> Any:
    """Subtasks with nine pieces of evidence each, one turn a piece."""
    graph.add_node("task", "T", [])
    for at in range(folds):
        subtask = graph.add_node("subtask", "s", []).node_id
        graph.add_edge(1, subtask)
        for piece in range(9):
            graph.add_edge(subtask, graph.add_node("evidence", "found", [9 * at + piece]).node_id)
    return graph


def _fold_all(graph: Any, folds: int) -> None:
    for at in range(folds):
        first = 3 + 10 * at
        graph.fold_nodes(list(range(first, first + 5)), "five findings in one line")


def _save_and_load(graph: ReasoningGraph, path: Path) -> ReasoningGraph:
    memory = ReasoningMemory(graph=graph)
    memory.save_memory(placed(path))
    memory.load_memory(path)
    return memory.graph


class _Stub:
    """A mind that answers at once: one piece of evidence below the task."""

    answer = json.dumps({"add_nodes": [{"tmp_id": "tmp1", "kind": "evidence", "thought": THOUGHT}],
                         "add_edges": [{"src": "1", "dst": "tmp1", "rationale": "support"}]})  # fmt: skip

    def complete(self, text: str, schema: Any = None) -> str:
        return self.answer


def _memorize(episodes: int) -> ReasoningMemory:
    memory = ReasoningMemory(_Stub())
    memory.init_memory("T")
    for number in range(episodes):
        memory.memorize(
            [{"role": "assistant", "content": f"look {number}"}, {"role": "user", "content": f"seen {number}"}]
        )
    return memory


def _memory_over(graph: ReasoningGraph, turns: int) -> ReasoningMemory:
    """Return a memory with the turns that the graph refers to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.json"
        messages = [
            {"role": "user" if at % 2 else "assistant", "content": f"turn {at} says something of use"}
            for at in range(turns)
        ]
        path.write_text(json.dumps({**graph.to_dict(), "messages": messages}))
        memory = ReasoningMemory()
        memory.load_memory(path)
    return memory


def _paired_medians(rounds: int, measure: Callable[[], float], original: Callable[[], float]) -> tuple[float, float]:
    """Medians of both, measured in turns."""
    pairs = [(measure(), original()) for _ in range(rounds)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def run(quick: bool = False) -> list[Row]:
    """All rows. `quick` does a fiftieth of the work once."""
    rounds, nodes, folds = (1, NODES // 50, FOLDS // 50) if quick else (5, NODES, FOLDS)
    rows = []

    def row(
        name: str, measure: Callable[[], float], original: Callable[[], float], target: float, rounds: int = rounds
    ) -> None:
        value, baseline_ms = _paired_medians(rounds, measure, original)
        rows.append(Row(name, value, "ms", "the original algorithm", baseline_ms, target=None if quick else target))

    row(f"add {nodes} nodes and edges", lambda: cpu_ms(lambda: _grow(ReasoningGraph(), nodes))[0],
        lambda: cpu_ms(lambda: _grow(OriginalGraph(), nodes))[0], 40)  # fmt: skip
    big, original_big = _grow(ReasoningGraph(), nodes), _grow(OriginalGraph(), nodes)
    row(f"render {nodes} nodes", lambda: cpu_ms(big.pretty_print)[0], lambda: cpu_ms(original_big.pretty_print)[0],
        50)  # fmt: skip

    def fold(graph: Any) -> float:
        return cpu_ms(lambda: _fold_all(graph, folds))[0]

    row(f"{folds} folds of 5", lambda: fold(_wide(ReasoningGraph(), folds)), lambda: fold(_wide(OriginalGraph(), folds)),
        40, rounds=1)  # fmt: skip
    wide_graph, original_wide_graph = _wide(ReasoningGraph(), folds), _wide(OriginalGraph(), folds)
    _fold_all(wide_graph, folds)
    _fold_all(original_wide_graph, folds)
    memory = _memory_over(wide_graph, 9 * folds)
    row(f"context after {folds} folds", lambda: cpu_ms(memory.context)[0],
        lambda: cpu_ms(lambda: original_wide_graph.rebuild_context(memory.messages))[0], 20)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json"
        row(f"save and load {nodes} nodes", lambda: cpu_ms(lambda: _save_and_load(big, path))[0],
            lambda: cpu_ms(lambda: original_big.save_and_load(path))[0], 150)  # fmt: skip
    count = 10 if quick else 500
    value, base = _paired_medians(min(rounds, 3), lambda: cpu_ms(lambda: _memorize(4 * count))[0],
                          lambda: cpu_ms(lambda: _memorize(count))[0])  # fmt: skip
    rows.append(Row(f"memorize {4 * count} episodes", value, "ms", f"{count} episodes", base, target=4.2 * base))
    rows += _on_disk(20 if quick else 1_000)
    rows.append(_long_task(20 if quick else 300))
    return rows


def _long_task(steps: int) -> Row:
    """A turn at the end of a long task under a budget of 8,000 tokens, against one in its second quarter.

    Whole turns of a real agent in this process, durability relaxed, by the extractive mind.
    """
    with tempfile.TemporaryDirectory() as folder:
        agent = _agent_with(Path(folder), steps)
        costs = [cpu_ms(agent.cycle)[0] for _ in range(steps)]
        agent.close()
    early, late = (median(costs[part * steps // 4 : (part + 1) * steps // 4]) for part in (1, 3))
    return Row(f"a turn in the last quarter of {steps}", late, "ms", "in the second quarter", early, target=1.2 * early)


def _agent_with(root: Path, steps: int) -> Any:
    """Create an agent with one task of that many questions, in a fresh hive."""
    from hivemind import Hive
    from hivemind.agent.agent import Agent
    from hivemind.presence.identity import journal_start

    Hive.init(root)
    (root / "hive.yaml").write_text("durability: relaxed\nsettle_ms: 0\n")
    for path in [*(root / "agents").glob("*.yaml"), *(root / "knowledge").rglob("*.md")]:
        path.unlink()
    (root / "agents" / "analyst.yaml").write_text("role: analyst\n")
    facts = [f"## Engine {at}\nThe engine number {at} weighs {at * 7} kilograms." for at in range(steps)]
    (root / "knowledge" / "engines.md").write_text("# Engines\n\n" + "\n\n".join(facts))
    questions = "".join(f"  - ask: What does engine number {at} weigh?\n" for at in range(steps))
    task = f"---\nmax_tokens: 8000\nsteps:\n{questions}---\nWhat do the engines weigh?\n"
    (root / "tasks" / "inbox" / "engines.md").write_text(task)
    hive = Hive.open(root)
    agent = Agent(hive, "analyst", journal_start(hive.journal, "analyst", os.getpid()))
    agent.scheduler.active_tasks.resume()
    return agent


def _on_disk(changes: int) -> list[Row]:
    """One change per line in a task's log, relaxed, and opening that log."""
    with tempfile.TemporaryDirectory() as folder:
        task = TaskGraph(placed(folder))
        with task.change() as graph:
            graph.add_node("task", "T")

        def write() -> None:
            for _ in range(changes):
                with task.change("a") as graph:
                    graph.add_edge(1, graph.add_node("evidence", THOUGHT).node_id)

        write_ms, _ = cpu_ms(write)
        open_ms, _ = cpu_ms(lambda: TaskGraph(folder).graph)
    return [
        Row("a change in a task's log, relaxed", write_ms / changes * 1_000, "µs"),
        Row(f"open a log of {changes} changes", open_ms, "ms"),
    ]


if __name__ == "__main__":
    show("Reasoning graph", run(quick="--quick" in sys.argv))
