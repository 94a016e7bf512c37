"""What other processes do in these tests: `python -m tests.reasoning.children WHAT FOLDER …`."""

from __future__ import annotations

import sys

from hivemind.reasoning import TaskGraph


def add(folder: str, agent: str, count: str) -> None:
    task = TaskGraph(folder, durable=False)
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


if __name__ == "__main__":
    {"add": add, "patch": patch, "publish": publish, "snapshot": snapshot, "repair": repair}[sys.argv[1]](*sys.argv[2:])
