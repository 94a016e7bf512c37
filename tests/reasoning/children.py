"""The actions of other processes in these tests: `python children.py ACTION FOLDER …`."""

from __future__ import annotations

import sys
from pathlib import Path

from hivemind.embedding import HashingEmbedder
from hivemind.layout import Layout
from hivemind.reasoning import GraphIndex, TaskGraph
from tests.durability import relaxed


def add(folder: str, agent: str, count: str) -> None:
    task = TaskGraph(relaxed(folder))
    for number in range(int(count)):
        with task.change(agent) as graph:
            node = graph.add_node("note", f"{agent} {number}", lane=f"agent/{agent}")
            graph.add_edge(1, node.node_id)


def patch(folder: str) -> None:
    task = TaskGraph(folder)
    with task.change("dying") as graph:
        graph.add_edge(1, graph.add_node("evidence", "one").node_id)
        graph.add_edge(1, graph.add_node("evidence", "two").node_id)


def publish(folder: str) -> None:
    def commit(name: str) -> None:
        with open(f"{folder}/journal", "a") as journal:
            journal.write(f"{name}\n")

    TaskGraph(folder).publish(2, agent_id="dying", commit=commit)


def snapshot(folder: str) -> None:
    TaskGraph(folder).save_snapshot()


def repair(folder: str) -> None:
    TaskGraph(folder).add_note("after the storm")


def written(folder: Path, *texts: str) -> TaskGraph:
    """Create the graph of a task in a new folder, with evidence below the task."""
    folder.mkdir(parents=True)
    task = TaskGraph(relaxed(folder))
    with task.change() as graph:
        graph.add_node("task", "What is so?")
        for text in texts:
            graph.add_edge(1, graph.add_node("evidence", text).node_id)
    return task


def find(root: str, query: str) -> None:
    GraphIndex(Layout.at(root), HashingEmbedder()).find(query)


def search(root: str, agent: str, count: str) -> None:
    """Write findings into this process's graph, and search each of them at once."""
    layout = Layout.at(root)
    task, index = written(layout.active / agent), GraphIndex(layout, HashingEmbedder())
    for number in range(int(count)):
        with task.change(agent) as graph:
            node = graph.add_node("note", f"finding {agent}{number}").node_id
            graph.add_edge(1, node)
        hits = index.find(f"{agent}{number}", task=agent).hits
        assert hits[0].node_id == node, (agent, number, hits)


if __name__ == "__main__":
    {
        "add": add,
        "find": find,
        "patch": patch,
        "publish": publish,
        "repair": repair,
        "search": search,
        "snapshot": snapshot,
    }[sys.argv[1]](*sys.argv[2:])
