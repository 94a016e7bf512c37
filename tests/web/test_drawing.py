"""Drawings: what stands in them, that nothing in them runs, and that commands write the same ones."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from hivemind import Hive
from hivemind.reasoning import ReasoningGraph
from hivemind.web.drawing.bars import draw_budget
from hivemind.web.drawing.graph import draw_graph
from hivemind.web.drawing.timeline import Span, draw_timeline
from tests.cli.conftest import Command, graph, hive, process, run

__all__ = ["graph", "hive", "process", "run"]

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "</text><script>alert(1)</script>\x1b[2J"


def texts(picture: str) -> list[str]:
    root = ElementTree.fromstring(picture)
    known = ["svg", "title", "style", "rect", "path", "g", "text", "tspan", "a", "line"]
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= set(known)
    return [one.text or "" for one in root.iter() if one.text]


def tree(width: int, depth: int) -> ReasoningGraph:
    made = ReasoningGraph()
    row = [made.add_node("task", "What is it?").node_id]
    for level in range(depth):
        below = []
        for parent in row:
            for number in range(width):
                node = made.add_node("subtask" if level == 0 else "evidence", f"Part {level}.{number} of {parent}")
                made.add_edge(parent, node.node_id)
                below.append(node.node_id)
        row = below
    return made


def test_no_two_boxes_of_a_graph_stand_on_each_other() -> None:
    root = ElementTree.fromstring(draw_graph(tree(4, 4)))
    boxes = [tuple(float(one.attrib[key]) for key in ("x", "y", "width", "height")) for one in root.iter("rect")
             if one.attrib.get("class") == "box"]  # fmt: skip
    assert len(boxes) == 1 + 4 + 16 + 64 + 256
    columns: dict[float, list[tuple[float, float]]] = {}
    for x, y, _, height in boxes:
        columns.setdefault(x, []).append((y, y + height))
    for column in columns.values():
        column.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(column))


def test_a_large_graph_is_drawn_to_where_there_is_room_and_opened_where_it_is_asked_for() -> None:
    made = tree(6, 4)
    drawn = draw_graph(made, max_nodes=60, link=lambda more: f"/tasks/t?open={more}")
    assert len(drawn) < 100_000
    assert drawn.count('class="box"') <= 60
    assert 'href="/tasks/t?open=' in drawn
    first = drawn.partition('href="/tasks/t?open=')[2].partition('"')[0]
    assert draw_graph(made, max_nodes=60, open_ids={int(first)}).count('class="box"') > drawn.count('class="box"')


def test_a_draft_and_its_published_copy_are_one_box() -> None:
    made = ReasoningGraph()
    top = made.add_node("task", "What is it?")
    draft = made.add_node("evidence", "It is a lease", lane="agent/ann")
    made.add_edge(top.node_id, draft.node_id)
    made.publish(draft.node_id)
    drawn = draw_graph(made)
    assert drawn.count('class="box"') == 2
    assert "evidence · published" in drawn


def test_long_texts_are_wrapped_and_cut_and_nothing_in_them_is_markup() -> None:
    made = ReasoningGraph()
    made.add_node("task", f"{EVIL} " + "and so on " * 200)
    found = texts(draw_graph(made))
    assert any("<script>" in one for one in found)
    assert max(map(len, found[2:])) < 1_100
    for picture in (
        draw_timeline([Span(EVIL, 1.0, 2.0, 1, EVIL, EVIL)], is_standalone=True),
        draw_budget([(EVIL, 10)], 100, is_standalone=True),
    ):
        assert "<script" not in picture
        texts(picture)


def test_a_timeline_has_a_lane_for_each_agent_and_folds_long_pauses() -> None:
    spans = [Span("ann", 0.0, 10.0, 1), Span("bob", 10.0, 15.0, 2), Span("ann", 100_000.0, 100_010.0, 3)]
    found = texts(draw_timeline(spans, is_standalone=True))
    assert found.count("ann") == found.count("bob") == 1
    assert "27 h" in found


def test_commands_write_the_drawings_of_the_page(process: Command, graph: object, hive: Path) -> None:
    opened = Hive.open(hive)
    task = opened.tasks.mine("researcher")[0]
    for number in (1, 2):
        at = f"2026-11-20T10:00:0{number}+00:00"
        opened.tasks.active.log(
            task, {"id": f"m{number}", "role": "assistant", "text": "x", "calls": [], "at": at, "agent": "researcher"}
        )
    assert texts(process("task", "timeline", "t", "--format", "svg").out)
    assert texts(process("context", "researcher", "--format", "svg").out)
    assert "researcher" in process("task", "timeline", "t").out
    assert [one["turn"] for one in process("task", "timeline", "t", "--json").json] == [1, 2]
