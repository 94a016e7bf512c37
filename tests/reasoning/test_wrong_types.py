"""Whatever is given to the room's public names, an error is one of its own, in words, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hivemind.errors import UserError
from hivemind.reasoning import (
    ReasoningGraph,
    ReasoningMemory,
    TaskGraph,
    to_dot,
    to_mermaid,
)

WRONG: list[Any] = [
    None,
    True,
    4,
    -1,
    2.5,
    float("nan"),
    "x",
    "",
    b"x",
    [],
    [None],
    [[1]],
    {},
    {"x": 1},
    {1},
    (1, {}),
    object(),
]
NODE: dict[str, Any] = {"kind": "note", "thought": "n"}


def graph_of() -> ReasoningGraph:
    graph = ReasoningGraph()
    graph.add_node("task", "T")
    for number in (2, 3, 4):
        graph.add_node("evidence", f"E{number}", [number], tags=["t"], lane="agent/ann", step="s")
        graph.add_edge(1, number)
    graph.add_link(2, 3, "supports")
    return graph


Call = tuple[str, dict[str, Any]]

GRAPH: list[Call] = [
    ("add_node", {**NODE, "related_turn_ids": [1], "title": "t", "status": "open", "tags": ["a"], "lane": "shared", "step": "s",
                  "pinned": True, "meta": {}}),
    ("add_edge", {"src": 2, "dst": 3, "rationale": "r", "relation": "refine"}),
    ("add_link", {"src": 2, "dst": 4, "relation": "blocks"}),
    ("update_node", {"node_id": 2, "thought": "x", "related_turn_ids": [3], "title": "t", "status": "open", "tags": ["a"],
                     "lane": "shared", "step": "s", "pinned": True, "meta": {"run": "x"}}),
    ("flush_node", {"node_id": 2, "rationale": "r"}),
    ("fold_nodes", {"ids": [2, 3], "notes": "sum", "rationale": "r"}),
    ("unfold", {"summary_id": 5}),
    ("supersede", {"old": 2, "new": 3}),
    ("apply_patch", {"patch": {"add_nodes": [{"tmp_id": "a", "kind": "evidence", "thought": "x"}],
                               "add_edges": [{"src": 1, "dst": "a"}]}, "related_turn_ids": [7], "lane": "shared", "step": "s"}),
    ("apply_operations", {"operations": {"flush_ops": [{"id": 2}]}}),
    ("publish", {"node_id": 2, "hidden": True}),
    *((name, {"node_id": 2}) for name in ("node", "children", "parents", "standing", "path_to_root", "subtree", "is_attached")),
    ("by_kind", {"kind": "evidence"}),
    ("by_lane", {"lane": "shared"}),
    ("by_tag", {"tag": "t"}),
    ("by_step", {"step": "s"}),
    ("history", {"tag": "t"}),
    ("visible", {"agent_id": "ann", "all_lanes": False}),
    ("links_from", {"node_id": 2, "relation": "supports"}),
    ("links_to", {"node_id": 2, "relation": "supports"}),
    ("pretty_print", {"width": 10}),
    ("to_json", {"indent": 2}),
    ("from_dict", {"snapshot": graph_of().to_dict()}),
]  # fmt: skip

TASK: list[Call] = [
    ("at", {"seq": 1, "branch": "main"}),
    ("traces", {"last": 1}),
    ("add_note", {"text": "n", "agent_id": "ann", "lane": "shared", "step": "s"}),
    ("add_trace", {"kind": "k", "text": "n", "agent_id": "ann", "lane": "shared", "step": "s"}),
    ("publish", {"node_id": 2, "agent_id": "ann", "hidden": True}),
    ("checkout", {"name": "other"}),
    ("create_branch", {"name": "new", "base": "main", "base_seq": 1, "agent_id": "ann"}),
    ("delete_branch", {"name": "other", "agent_id": "ann"}),
    ("diff", {"one": "main", "other": "other"}),
    ("merge", {"source": "other", "into": "main", "resolve": "use_from", "dry_run": False, "agent_id": "ann"}),
]

MEMORY: list[Call] = [
    ("init_memory", {"task": "t"}),
    ("memorize", {"messages": [{"role": "user", "content": "x"}]}),
    ("recall", {"max_tokens": 5_000}),
    ("save_memory", {"path": "memory.json"}),
    ("load_memory", {"path": "memory.json"}),
]


def tried(made: Callable[[], Any], state: Callable[[Any], Any], call: Call) -> None:
    """Each argument in turn is each wrong value."""
    name, arguments = call
    for argument in arguments:
        for value in WRONG:
            one = made()
            before = state(one)
            try:
                getattr(one, name)(**{**arguments, argument: value})
            except UserError:
                unchanged = state(one) == before
                assert unchanged, (argument, value)
            except Exception as error:
                pytest.fail(f"{name}({argument}={value!r}) raises {type(error).__name__}: {error}")
            state(one)


def by_name(call: Call) -> str:
    return call[0]


@pytest.mark.parametrize("call", GRAPH, ids=by_name)
def test_a_graph_refuses_in_words(call: Call) -> None:
    def made() -> ReasoningGraph:
        graph = graph_of()
        if call[0] == "unfold":
            graph.fold_nodes([2, 3], "sum")
        return graph

    tried(made, ReasoningGraph.to_json, call)


@pytest.mark.parametrize("call", TASK, ids=by_name)
def test_a_task_graph_refuses_in_words(tmp_path: Path, call: Call) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    task = TaskGraph(folder, durable=False)
    with task.change() as graph:
        graph.become(graph_of())
    (folder / "graph.jsonl").unlink()
    task = TaskGraph(folder, durable=False)
    with task.change() as graph:
        graph.add_node("task", "T")
        graph.add_edge(1, graph.add_node("evidence", "E", lane="agent/ann", step="s").node_id)
    task.create_branch("other")
    log = (folder / "graph.jsonl").read_bytes()

    def made() -> TaskGraph:
        (folder / "graph.jsonl").write_bytes(log)
        return TaskGraph(folder, durable=False)

    tried(made, lambda one: (folder / "graph.jsonl").read_bytes(), call)


@pytest.mark.parametrize("call", MEMORY, ids=by_name)
def test_a_memory_refuses_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.chdir(tmp_path)

    def made() -> ReasoningMemory:
        memory = ReasoningMemory(None, len)
        if call[0] != "init_memory":
            memory.init_memory("T")
        memory.save_memory("memory.json", durable=False)
        return memory

    tried(made, lambda memory: memory.graph.to_json(), call)


@pytest.mark.parametrize("value", WRONG, ids=lambda value: type(value).__name__)
def test_texts_of_a_graph_and_budgets_refuse_in_words(value: Any) -> None:
    for made in (
        lambda: [make(graph_of(), every=value) for make in (to_dot, to_mermaid)],
        lambda: ReasoningMemory(None, len, max_tokens=value),
    ):
        with suppress(UserError):
            made()


def test_what_came_in_is_what_stays() -> None:
    graph = graph_of()
    assert graph.add_edge(2, 3, None).rationale == ""  # type: ignore[arg-type]  # as if none were given
    with pytest.raises(UserError, match="ids of a fold"):
        graph.fold_nodes(4, "sum")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not a field"):
        graph.add_node("note", "x", colour="red")  # type: ignore[call-arg]
    with pytest.raises(UserError, match="meta is not JSON"):
        graph.add_node("note", "x", meta={"x": object()})
