from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hivemind.errors import UserError
from hivemind.reasoning import ReasoningGraph, draw_picture, save_picture, to_dot, to_mermaid, to_svg

HOSTILE = 'say "hi" <b>&amp; `x` ]; end\n  n9[forged] \\'


@pytest.fixture
def graph() -> ReasoningGraph:
    graph = ReasoningGraph()
    graph.add_node("task", HOSTILE)
    for kind in ("subtask", "evidence", "evidence"):
        graph.add_node(kind, HOSTILE)
    graph.add_edge(1, 2)
    graph.add_edge(2, 3)
    graph.add_edge(2, 4)
    graph.add_link(4, 1, "blocks")
    graph.fold_nodes([3], "sum")
    return graph


def test_mermaid_and_dot_draw_what_is_active(graph: ReasoningGraph) -> None:
    for text in (to_mermaid(graph), to_dot(graph)):
        assert "3 evidence" not in text
        assert "5 summary" in text
        assert "blocks" in text
    assert "3 evidence" in to_dot(graph, every=True)
    assert "stands for" in to_mermaid(graph, every=True)


def test_no_thought_breaks_out_of_its_label(graph: ReasoningGraph) -> None:
    assert len(to_mermaid(graph).splitlines()) == 1 + 4 + 4 + 1
    assert '"hi"' not in to_mermaid(graph)
    assert len(to_dot(graph).splitlines()) == 2 + 4 + 4 + 1
    for line in to_dot(graph).splitlines()[2:-1]:
        assert line.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 0


def test_a_picture_needs_no_graphviz(graph: ReasoningGraph, tmp_path: Path) -> None:
    root = ElementTree.fromstring(to_svg(graph, every=True))
    assert len(root.findall("{*}g")) == 5
    save_picture(graph, tmp_path / "g.svg")
    assert (tmp_path / "g.svg").read_bytes().lstrip().startswith(b"<")
    ElementTree.fromstring(to_svg(ReasoningGraph()))


def test_other_pictures_are_drawn_by_graphviz_or_refused(graph: ReasoningGraph, tmp_path: Path) -> None:
    if shutil.which("dot"):
        save_picture(graph, tmp_path / "g.png")
        assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    else:
        with pytest.raises(UserError, match="Graphviz"):
            save_picture(graph, tmp_path / "g.png")
    with pytest.raises(UserError):
        save_picture(graph, tmp_path / "g")


def test_a_picture_is_made_without_a_file_too(graph: ReasoningGraph) -> None:
    ElementTree.fromstring(draw_picture(graph, "svg"))
    if not shutil.which("dot"):
        with pytest.raises(UserError, match=r"^there: .*Graphviz"):
            draw_picture(graph, "png", where="there")
