from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.reasoning import ReasoningGraph, to_dot, to_mermaid

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


needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


ANY = st.text(st.characters(codec=None), max_size=40) | st.text(st.sampled_from('"\\<>&;#[]{}|`\n\r%:-'), max_size=20)


def hostile(texts: list[str], relation: str) -> ReasoningGraph:
    graph = ReasoningGraph()
    graph.add_node("task", "t")
    for text in texts:
        node = graph.add_node("evidence", text, title=text[::-1])
        graph.add_edge(1, node.node_id, text, relation)
        graph.add_link(node.node_id, 1, relation)
    return graph


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY, min_size=1, max_size=3), ANY.map(str.strip).filter(lambda text: 0 < len(text) <= 64))
def test_whatever_is_said_mermaid_stays_what_it_is(texts: list[str], relation: str) -> None:
    graph = hostile(texts, relation)
    first, *lines, last = to_mermaid(graph).rstrip("\n").split("\n")
    assert (first, last) == ("flowchart TD", "  classDef gone stroke-dasharray: 4 4,color:#888")
    assert len(lines) == 1 + 3 * len(texts)
    for line in lines:
        assert re.fullmatch(r'  n\d+\["[^"<>`]+"\]|  n\d+ -(\.-|-)>\|[\w -]+\| n\d+', line), line
    to_dot(graph).encode()


@needs_dot
@settings(max_examples=15, deadline=None)
@given(st.lists(ANY, min_size=1, max_size=3), ANY.map(str.strip).filter(lambda text: 0 < len(text) <= 64))
def test_whatever_is_said_graphviz_reads_the_same_nodes_and_edges(texts: list[str], relation: str) -> None:
    graph = hostile(texts, relation)
    read = dot_reads(graph)
    assert [one["name"] for one in read["objects"]] == [str(number) for number in graph.nodes]
    assert len(read["edges"]) == 2 * len(texts)
    for one, node in zip(read["objects"], graph.nodes.values(), strict=True):
        assert one["label"].startswith(f"{node.node_id} {node.kind.value}: ")


@needs_dot
def test_ten_thousand_nodes_are_drawn_and_read() -> None:
    graph = ReasoningGraph()
    graph.add_node("task", HOSTILE)
    for number in range(2, 10_001):
        graph.add_node("evidence", f"{HOSTILE} {number}")
        graph.add_edge(number // 3 or 1, number)
    counted = subprocess.run(["gc", "-n", "-e"], input=to_dot(graph).encode(), capture_output=True, check=True)
    assert counted.stdout.split()[:2] == [b"10000", b"9999"]  # gc is Graphviz's: it reads and counts
    assert len(to_mermaid(graph).splitlines()) == 1 + 10_000 + 9_999 + 1


def dot_reads(graph: ReasoningGraph) -> Any:
    """What Graphviz makes of the text, without laying it out."""
    done = subprocess.run(["dot", "-Tdot_json"], input=to_dot(graph).encode(), capture_output=True, check=True)
    assert not done.stderr
    return json.loads(done.stdout, strict=False)
