"""A reasoning graph as a layered picture: from the task on the left to what was found on the right.

A draft and its published copy are one box. Of a large graph the nearest nodes are drawn; what is left out below one is a
number beside it, which can be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from hivemind.reasoning import NodeKind, ReasoningGraph, ReasoningNode
from hivemind.reasoning.node import FLUSHED
from hivemind.web.drawing.svg import Shape, element, picture, told, wrapped

_WIDTH, _LINE, _PAD, _GAP_X, _GAP_Y, _MARGIN = 250, 15, 9, 56, 12, 12
_TEXT, _HEAD = 12, 10
_LINES = 4
_KINDS = {NodeKind.TASK: "task", NodeKind.SUBTASK: "step", NodeKind.EVIDENCE: "evidence", NodeKind.SUMMARY: "summary"}


@dataclass(slots=True)
class _Box:
    """A node, or a draft with its published copy, and where it is drawn."""

    node: ReasoningNode
    lines: list[str]
    quoted: int  # from which line on it is the text, below the title
    marks: list[str]
    depth: int = 0
    below: list[int] = field(default_factory=list)
    hidden: int = 0
    y: float = 0.0

    @property
    def height(self) -> float:
        return 2 * _PAD + _HEAD + 4 + len(self.lines) * _LINE

    @property
    def x(self) -> float:
        return _MARGIN + self.depth * (_WIDTH + _GAP_X)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def draw_graph(
    graph: ReasoningGraph,
    *,
    most: int = 10_000,
    opened: Collection[int] = (),
    link: Callable[[int], str] | None = None,
) -> Shape:
    """The picture. Beyond `most` nodes only what hangs below one of `opened` is drawn, and `link` is where another is
    opened."""
    same = _published(graph)
    parents = _tree(graph, same)
    boxes = _boxes(graph, same, parents, most, opened)
    height = _place(boxes)
    width = max((box.x for box in boxes.values()), default=0.0) + _WIDTH + _MARGIN + 34
    shapes = [*_edges(graph, same, boxes, parents), *(_shape(box, link) for box in boxes.values())]
    return picture(width, height, f"Reasoning graph of {len(graph.nodes)} nodes", *shapes, class_="drawing graph")


def _published(graph: ReasoningGraph) -> dict[int, int]:
    """Of each published copy the draft that it stands for."""
    found: dict[int, int] = {}
    for number, node in graph.nodes.items():
        origin = node.meta.get("origin")
        draft = origin.get("node") if isinstance(origin, dict) else None
        if isinstance(draft, int) and draft in graph.nodes and draft != number:
            found[number] = draft
    return found


def _tree(graph: ReasoningGraph, same: dict[int, int]) -> dict[int, int | None]:
    """Each node to be drawn with the one that it is drawn below, in the order in which they stand in the graph."""
    there = {same.get(node.node_id, node.node_id) for node in graph.drawn_nodes()}
    found: dict[int, int | None] = {}
    for number in graph.in_order():
        number = same.get(number, number)
        if number not in there or number in found:
            continue
        above = [same.get(one, one) for one in graph.parent_ids(number)]
        found[number] = next((one for one in above if one in found and one != number), None)
    return found


def _boxes(
    graph: ReasoningGraph,
    same: dict[int, int],
    parents: dict[int, int | None],
    most: int,
    opened: Collection[int],
) -> dict[int, _Box]:
    below: dict[int | None, list[int]] = {}
    for number, parent in parents.items():
        below.setdefault(parent, []).append(number)
    copies = {draft: copy for copy, draft in same.items()}
    boxes: dict[int, _Box] = {}
    row = [(number, 0) for number in below.get(None, [])]
    room = most - len(row)
    while row:  # level by level: what is nearest to the task is drawn first
        after: list[tuple[int, int]] = []
        for number, depth in row:
            node = graph.nodes[number]
            marks = [node.kind.value]
            if number in copies:
                marks.append("published")
            elif node.lane != "shared":
                marks.append(f"draft of {node.lane.removeprefix('agent/')}")
            marks += [] if node.status == "open" else [node.status]
            marks += {False: ["folded"], FLUSHED: ["flushed"]}.get(node.active, [])
            box = boxes[number] = _Box(node, *_words(node), marks, depth)
            children = below.get(number, [])
            if len(children) <= room or number in opened:
                room -= len(children)
                box.below = children
                after += [(one, depth + 1) for one in children]
            else:
                box.hidden = _count(children, below)
        row = after
    return boxes


def _words(node: ReasoningNode) -> tuple[list[str], int]:
    """(the lines in the box, how many of them are the title)."""
    room = _WIDTH - 2 * _PAD
    title, text = told(node.title), told(node.text)
    if not title or text.startswith(title):
        lines = wrapped(text or title, room, _TEXT, _LINES)
        return lines, len(lines)
    head = wrapped(title, room, _TEXT, 2)
    return [*head, *wrapped(text, room, _TEXT, _LINES - len(head))], len(head)


def _count(children: list[int], below: dict[int | None, list[int]]) -> int:
    todo, count = list(children), 0
    while todo:
        count += 1
        todo.extend(below.get(todo.pop(), []))
    return count


def _place(boxes: dict[int, _Box]) -> float:
    """Each box has a band of its own, as high as what hangs below it, and stands in its middle; returns the whole height."""
    hanging = {one for box in boxes.values() for one in box.below}
    cursor = float(_MARGIN)
    begun: dict[int, float] = {}
    todo = [number for number in reversed(boxes) if number not in hanging]
    while todo:
        number = todo.pop()
        box = boxes[number]
        if box.below and number not in begun:
            begun[number] = cursor
            todo += [number, *reversed(box.below)]
            continue
        start = begun.get(number, cursor)
        cursor = max(cursor, start + box.height + _GAP_Y)
        box.y = (start + cursor - _GAP_Y - box.height) / 2
    return cursor + _MARGIN


def _edges(
    graph: ReasoningGraph, same: dict[int, int], boxes: dict[int, _Box], parents: dict[int, int | None]
) -> Iterator[Shape]:
    drawn: set[tuple[int, int]] = set()
    for src, dst, relation, is_link in graph.arrows():
        src, dst = same.get(src, src), same.get(dst, dst)
        if src == dst or src not in boxes or dst not in boxes or (src, dst) in drawn:
            continue
        drawn.add((src, dst))
        is_tree = parents.get(dst) == src
        start, end = boxes[src], boxes[dst]
        forward = end.depth > start.depth
        x1, x2 = start.x + _WIDTH, end.x + (0 if forward else _WIDTH)
        out = min((x2 - x1) / 2, 60.0) if forward else 40.0
        back = -out if forward else out
        y1, y2 = start.middle, end.middle
        way = f"M{x1:g} {y1:.1f} C{x1 + out:g} {y1:.1f} {x2 + back:g} {y2:.1f} {x2:g} {y2:.1f}"
        name = "edge" if is_tree and not is_link else "edge link"
        yield element("path", element("title", told(relation) or "link"), class_=name, d=way)


def _shape(box: _Box, link: Callable[[int], str] | None) -> Shape:
    kind = _KINDS.get(box.node.kind, "card")
    faded = "" if box.node.active is True else " faded"
    rows = [
        element(
            "tspan",
            line,
            class_="quote" if at >= box.quoted else None,
            x=box.x + _PAD,
            y=box.y + _PAD + _HEAD + 4 + (at + 0.8) * _LINE,
        )
        for at, line in enumerate(box.lines)
    ]
    parts = [
        element("title", told(f"{box.node.node_id} {box.node.heading}")[:1_000]),
        element("rect", class_="box", x=box.x, y=box.y, width=_WIDTH, height=box.height, rx=6),
        element("rect", class_="edge-mark", x=box.x, y=box.y + 6, width=3, height=box.height - 12, rx=1.5),
        element("text", told(" · ".join(box.marks)), class_="head", x=box.x + _PAD, y=box.y + _PAD + _HEAD - 1),
        element("text", *rows, class_="body"),
    ]
    if box.hidden:
        more = element("text", f"+{box.hidden}", class_="more", x=box.x + _WIDTH + 6, y=box.middle + 4)
        parts.append(
            more
            if link is None
            else element("a", more, href=link(box.node.node_id), aria_label=f"open {box.hidden} more")
        )
    return element("g", *parts, class_=f"node {kind}{faded}")
