from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hivemind.coordination import CoordinateResolver, Journal, StepLeases, Steps
from hivemind.layout import Layout
from hivemind.reasoning import TaskGraph
from tests.durability import relaxed


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_days(self, days: float) -> None:
        self.now += timedelta(days=days)


class Place(SimpleNamespace):
    """A hive as views see it, with one task `t`, its graph with the task node, and ways to fill it."""

    def card(self, kind: str, text: str = "a thought", **fields: Any) -> int:
        agent = fields.pop("agent", "ada")
        under = fields.pop("under", None)
        with self.graph.change(agent) as graph:
            node = graph.add_node(kind, text, **fields)
            graph.add_edge(graph.root.node_id if under is None else under, node.node_id)
        return node.node_id

    def link(self, src: int, relation: str, dst: int) -> None:
        with self.graph.change("ada") as graph:
            graph.add_link(src, dst, relation)

    def update(self, number: int, **fields: Any) -> None:
        with self.graph.change("ada") as graph:
            graph.update_node(number, **fields)


def make_place(root: Path) -> Place:
    layout = Layout.at(root)
    (layout.active / "t").mkdir(parents=True)
    journal, clock = Journal(relaxed(layout.journal)), Clock()
    graph = TaskGraph(relaxed(layout.active / "t"), clock=clock)
    place = Place(
        layout=layout,
        config=SimpleNamespace(workspace="w"),
        agents={},
        journal=journal,
        steps=Steps(journal),
        leases=StepLeases(journal),
        coordinates=CoordinateResolver(journal, "w"),
        graph=graph,
        clock=clock,
    )
    with graph.change("ada") as tree:
        tree.add_node("task", "what is to be done")
    return place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


@pytest.fixture
def codes(place: Place) -> Callable[..., list[str]]:
    from hivemind.views import signals

    return lambda **more: [row["code"] for row in signals(place, "ada", "t", **more)]
