"""The graph for other programs and for the eye: Mermaid, Graphviz DOT, and a picture (spec 4, *Queries*)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from hivemind.errors import UserError
from hivemind.fs import write
from hivemind.reasoning.errors import a_path, a_text
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import FLUSHED, NodeKind, ReasoningNode

__all__ = ["draw_picture", "save_picture", "to_dot", "to_mermaid", "to_svg"]

_LABEL = 60
_DOT_SECONDS = 120
_DOT_NODES = 2_000  # with more, dot's layout takes minutes
_COLOURS = {
    NodeKind.TASK: "#d7e3fc",
    NodeKind.SUBTASK: "#e8f0fe",
    NodeKind.EVIDENCE: "#e3f4e1",
    NodeKind.SUMMARY: "#fff3cd",
    NodeKind.DECISION: "#fde2e4",
}
_OTHER_COLOUR = "#f4f4f4"
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 230, 44, 24, 56


class _Arrow(NamedTuple):
    src: int
    dst: int
    label: str
    dashed: bool


def _drawn(graph: ReasoningGraph, every: bool) -> list[ReasoningNode]:
    """The nodes to draw: active ones, flushed ones that connect; with `every`, all."""
    return [
        node
        for number, node in graph.nodes.items()
        if every or node.active is True or (node.active == FLUSHED and graph.child_ids(number))
    ]


def _arrows(graph: ReasoningGraph, every: bool) -> Iterator[_Arrow]:
    shown = {node.node_id for node in _drawn(graph, every)}
    for edge in graph.edges:
        if edge.dst in shown:
            yield _Arrow(edge.src, edge.dst, _clean(edge.relation), dashed=False)
    for _, link in sorted(graph.links.items()):
        if link.src in shown and link.dst in shown:
            yield _Arrow(link.src, link.dst, _clean(link.relation), dashed=True)
    if every:
        for member, summary in sorted(graph.folded_into.items()):
            yield _Arrow(summary, member, "stands for", dashed=True)


def _clean(text: str) -> str:
    """The text on one line, without what could steer whoever shows it, or what can't be written as UTF-8."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def _label(node: ReasoningNode) -> str:
    text = _clean(node.heading)
    return f"{node.node_id} {node.kind.value}: {text if len(text) <= _LABEL else text[: _LABEL - 1] + '…'}"


def to_mermaid(graph: ReasoningGraph, *, every: bool = False) -> str:
    """A Mermaid flowchart. `every` draws folded nodes too, and loose ends of flushed ones."""
    lines = ["flowchart TD"]
    for node in _drawn(graph, every):
        label = escape(_label(node), quote=True).replace("#", "#35;").replace("&#35;x27;", "'").replace("`", "'")
        lines.append(f'  n{node.node_id}["{label}"]' + ("" if node.active is True else ":::gone"))
    for arrow in _arrows(graph, every):
        line = "-.->" if arrow.dashed else "-->"
        word = "".join(char for char in arrow.label if char.isalnum() or char in " -_")
        lines.append(f"  n{arrow.src} {line}|{word or 'link'}| n{arrow.dst}")
    lines.append("  classDef gone stroke-dasharray: 4 4,color:#888")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def to_dot(graph: ReasoningGraph, *, every: bool = False) -> str:
    """A Graphviz digraph. `every` as in `to_mermaid`."""
    lines = ["digraph reasoning {", '  node [shape=box, style="rounded,filled", fontname="sans-serif"];']
    for node in _drawn(graph, every):
        style = "" if node.active is True else ', style="rounded,dashed", fontcolor="#888888"'
        colour = _COLOURS.get(node.kind, _OTHER_COLOUR)
        lines.append(f'  {node.node_id} [label={_quoted(_label(node))}, fillcolor="{colour}"{style}];')
    for arrow in _arrows(graph, every):
        style = ", style=dashed" if arrow.dashed else ""
        lines.append(f"  {arrow.src} -> {arrow.dst} [label={_quoted(arrow.label)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def to_svg(graph: ReasoningGraph, *, every: bool = False) -> str:
    """A plain picture, drawn without Graphviz: one row per depth below the task."""
    drawn = _drawn(graph, every)
    places = _places(graph, drawn)
    width = max((x for x, _ in places.values()), default=0) + _BOX_WIDTH + _GAP_X
    height = max((y for _, y in places.values()), default=0) + _BOX_HEIGHT + _GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    for arrow in _arrows(graph, every):
        (x1, y1), (x2, y2) = places[arrow.src], places[arrow.dst]
        dash = ' stroke-dasharray="4 4"' if arrow.dashed else ""
        parts.append(
            f'<line x1="{x1 + _BOX_WIDTH // 2}" y1="{y1 + _BOX_HEIGHT}" x2="{x2 + _BOX_WIDTH // 2}" y2="{y2}" '
            f'stroke="#888"{dash}><title>{escape(arrow.label)}</title></line>'
        )
    parts += [_box(node, *places[node.node_id]) for node in drawn]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(node: ReasoningNode, x: int, y: int) -> str:
    label = _label(node)
    dash = "" if node.active is True else ' stroke-dasharray="4 4"'
    rows = "".join(
        f'<text x="{x + 8}" y="{y + 18 + 14 * at}">{escape(label[at * 36 : at * 36 + 36])}</text>' for at in range(2)
    )
    colour = _COLOURS.get(node.kind, _OTHER_COLOUR)
    box = f'<rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" fill="{colour}" stroke="#555"{dash}/>'
    return f"<g><title>{escape(label)}</title>{box}{rows}</g>"


def _places(graph: ReasoningGraph, drawn: list[ReasoningNode]) -> dict[int, tuple[int, int]]:
    """The upper left corner of each box: rows by the longest way down, in a row by id."""
    shown, rows = {node.node_id for node in drawn}, dict[int, int]()
    for number in [*graph.in_order(), *graph.folded_into]:
        if number in shown:
            rows[number] = max((rows[parent] for parent in graph.parent_ids(number) if parent in rows), default=-1) + 1
    used: dict[int, int] = {}
    places = {}
    for number, row in sorted(rows.items()):
        column = used.get(row, 0)
        used[row] = column + 1
        places[number] = (_GAP_X + column * (_BOX_WIDTH + _GAP_X), _GAP_Y // 2 + row * (_BOX_HEIGHT + _GAP_Y))
    return places


def save_picture(graph: ReasoningGraph, path: str | os.PathLike[str], *, every: bool = False) -> None:
    """Write a picture; its kind is the file's suffix, as for `draw_picture`. Raises UserError, also if it can't be written."""
    path = a_path(path)
    kind = os.path.splitext(path)[1].lstrip(".").lower()
    picture = draw_picture(graph, kind, every=every, where=path)
    try:
        write(path, picture)
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", where=path) from None


def draw_picture(graph: ReasoningGraph, kind: str, *, every: bool = False, where: object = None) -> bytes:
    """A picture of that kind: svg, or with Graphviz installed anything that `dot` draws.

    An svg of very many nodes is drawn without it. Raises UserError, about `where`, if Graphviz is missing or fails.
    """
    kind = a_text(kind, "the kind of a picture")
    import shutil  # late, as below: drawing is rare

    dot = shutil.which("dot")
    if kind == "svg" and (dot is None or len(_drawn(graph, every)) > _DOT_NODES):
        return to_svg(graph, every=every).encode("utf-8", "replace")
    if dot is None or not kind.isalnum():
        raise UserError(
            f"a picture of kind {kind!r} needs Graphviz",
            where=where,
            mend="install graphviz, or take svg, which needs nothing",
        )
    return _by_dot(dot, to_dot(graph, every=every), kind, where)


def _by_dot(dot: str, text: str, kind: str, where: object) -> bytes:
    import subprocess  # half of the room's import

    try:
        asked = text.encode("utf-8", "replace")
        done = subprocess.run([dot, f"-T{kind}"], input=asked, capture_output=True, timeout=_DOT_SECONDS)
    except subprocess.TimeoutExpired:
        mend = "take svg or mermaid, or fewer nodes: --at, or without --all"
        raise UserError(f"dot drew for more than {_DOT_SECONDS} s", where=where, mend=mend) from None
    if done.returncode != 0:
        raise UserError(f"dot failed ({done.stderr.decode(errors='replace').strip()[:200]})", where=where)
    return done.stdout
