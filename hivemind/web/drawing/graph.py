"""Draw a reasoning graph in layers, from the task on the left to the findings on the right.

A draft and its published copy are one box. Of a large graph, only the nodes nearest to the task are drawn. A number
next to a box counts the hidden nodes below it, and links to a drawing that shows its children.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from hivemind.reasoning import NodeKind, ReasoningGraph, ReasoningNode
from hivemind.reasoning.node import FLUSHED
from hivemind.web.drawing.svg import Shape, element, masked_line, picture, wrap_text

_WIDTH, _LINE, _PAD, _GAP_X, _GAP_Y, _MARGIN = 250, 15, 9, 56, 12, 12
_TEXT_SIZE, _HEADING_SIZE = 12, 10
_MAX_LINES = 4
_KINDS = {NodeKind.TASK: "task", NodeKind.SUBTASK: "step", NodeKind.EVIDENCE: "evidence", NodeKind.SUMMARY: "summary"}


@dataclass(slots=True)
class _Box:
    """The box of a node, with its texts and its position. A draft and its published copy have one box together."""

    node: ReasoningNode
    lines: list[str]
    text_start: int  # index of the first line after the title
    marks: list[str]
    depth: int = 0
    child_ids: list[int] = field(default_factory=list)
    hidden_count: int = 0
    y: float = 0.0

    @property
    def height(self) -> float:
        return 2 * _PAD + _HEADING_SIZE + 4 + len(self.lines) * _LINE

    @property
    def x(self) -> float:
        return _MARGIN + self.depth * (_WIDTH + _GAP_X)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def draw_graph(
    graph: ReasoningGraph,
    *,
    max_nodes: int = 10_000,
    open_ids: Collection[int] = (),
    link: Callable[[int], str] | None = None,
) -> Shape:
    """Draw a graph. Once `max_nodes` nodes are drawn, add only the children of the nodes in `open_ids`.

    `link` maps a node's id to the address of a drawing that also has this node's children (None: no links).
    """
    draft_ids = _find_drafts(graph)
    parents = _find_parents(graph, draft_ids)
    boxes = _boxes(graph, draft_ids, parents, max_nodes, open_ids)
    height = _position_boxes(boxes)
    width = max((box.x for box in boxes.values()), default=0.0) + _WIDTH + _MARGIN + 34
    shapes = [*_edge_shapes(graph, draft_ids, boxes, parents), *(_box_shape(box, link) for box in boxes.values())]
    return picture(width, height, f"Reasoning graph of {len(graph.nodes)} nodes", *shapes, class_="drawing graph")


def _find_drafts(graph: ReasoningGraph) -> dict[int, int]:
    """Map the id of each published copy to the id of its draft."""
    draft_ids: dict[int, int] = {}
    for number, node in graph.nodes.items():
        origin = node.meta.get("origin")
        draft = origin.get("node") if isinstance(origin, dict) else None
        if isinstance(draft, int) and draft in graph.nodes and draft != number:
            draft_ids[number] = draft
    return draft_ids


def _find_parents(graph: ReasoningGraph, draft_ids: dict[int, int]) -> dict[int, int | None]:
    """Map each node of the drawing to its parent there, None for a root. The nodes are in the order of the graph."""
    drawn_ids = {draft_ids.get(node.node_id, node.node_id) for node in graph.drawn_nodes()}
    parents: dict[int, int | None] = {}
    for number in graph.in_order():
        number = draft_ids.get(number, number)
        if number not in drawn_ids or number in parents:
            continue
        candidates = [draft_ids.get(parent_id, parent_id) for parent_id in graph.parent_ids(number)]
        parents[number] = next(
            (parent_id for parent_id in candidates if parent_id in parents and parent_id != number), None
        )
    return parents


def _boxes(
    graph: ReasoningGraph,
    draft_ids: dict[int, int],
    parents: dict[int, int | None],
    max_nodes: int,
    open_ids: Collection[int],
) -> dict[int, _Box]:
    children_by_parent: dict[int | None, list[int]] = {}
    for number, parent in parents.items():
        children_by_parent.setdefault(parent, []).append(number)
    copy_ids = {draft: copy for copy, draft in draft_ids.items()}
    boxes: dict[int, _Box] = {}
    level = [(number, 0) for number in children_by_parent.get(None, [])]
    remaining = max_nodes - len(level)
    while level:  # level by level: the nodes nearest to the task are drawn first
        next_level: list[tuple[int, int]] = []
        for number, depth in level:
            node = graph.nodes[number]
            marks = [node.kind.value]
            if number in copy_ids:
                marks.append("published")
            elif node.lane != "shared":
                marks.append(f"draft of {node.lane.removeprefix('agent/')}")
            marks += [] if node.status == "open" else [node.status]
            marks += {False: ["folded"], FLUSHED: ["flushed"]}.get(node.active, [])
            box = boxes[number] = _Box(node, *_text_lines(node), marks, depth)
            children = children_by_parent.get(number, [])
            if len(children) <= remaining or number in open_ids:
                remaining -= len(children)
                box.child_ids = children
                next_level += [(child, depth + 1) for child in children]
            else:
                box.hidden_count = _count_descendants(children, children_by_parent)
        level = next_level
    return boxes


def _text_lines(node: ReasoningNode) -> tuple[list[str], int]:
    """Return the lines in a node's box, and how many of these lines are the title's."""
    width = _WIDTH - 2 * _PAD
    title, text = masked_line(node.title), masked_line(node.text)
    if not title or text.startswith(title):
        lines = wrap_text(text or title, width, _TEXT_SIZE, _MAX_LINES)
        return lines, len(lines)
    title_lines = wrap_text(title, width, _TEXT_SIZE, 2)
    return [*title_lines, *wrap_text(text, width, _TEXT_SIZE, _MAX_LINES - len(title_lines))], len(title_lines)


def _count_descendants(children: list[int], children_by_parent: dict[int | None, list[int]]) -> int:
    stack, count = list(children), 0
    while stack:
        count += 1
        stack.extend(children_by_parent.get(stack.pop(), []))
    return count


def _position_boxes(boxes: dict[int, _Box]) -> float:
    """Set each box's vertical position: children below each other, a parent centred next to them. Return the height."""
    child_ids = {child for box in boxes.values() for child in box.child_ids}
    cursor = float(_MARGIN)
    band_starts: dict[int, float] = {}
    stack = [number for number in reversed(boxes) if number not in child_ids]
    while stack:
        number = stack.pop()
        box = boxes[number]
        if box.child_ids and number not in band_starts:
            band_starts[number] = cursor
            stack += [number, *reversed(box.child_ids)]
            continue
        start = band_starts.get(number, cursor)
        cursor = max(cursor, start + box.height + _GAP_Y)
        box.y = (start + cursor - _GAP_Y - box.height) / 2
    return cursor + _MARGIN


def _edge_shapes(
    graph: ReasoningGraph, draft_ids: dict[int, int], boxes: dict[int, _Box], parents: dict[int, int | None]
) -> Iterator[Shape]:
    drawn_pairs: set[tuple[int, int]] = set()
    for src, dst, relation, is_link in graph.arrows():
        src, dst = draft_ids.get(src, src), draft_ids.get(dst, dst)
        if src == dst or src not in boxes or dst not in boxes or (src, dst) in drawn_pairs:
            continue
        drawn_pairs.add((src, dst))
        is_tree = parents.get(dst) == src
        start, end = boxes[src], boxes[dst]
        forward = end.depth > start.depth
        x1, x2 = start.x + _WIDTH, end.x + (0 if forward else _WIDTH)
        start_bend = min((x2 - x1) / 2, 60.0) if forward else 40.0
        end_bend = -start_bend if forward else start_bend
        y1, y2 = start.middle, end.middle
        path_data = f"M{x1:g} {y1:.1f} C{x1 + start_bend:g} {y1:.1f} {x2 + end_bend:g} {y2:.1f} {x2:g} {y2:.1f}"
        name = "edge" if is_tree and not is_link else "edge link"
        yield element("path", element("title", masked_line(relation) or "link"), class_=name, d=path_data)


def _box_shape(box: _Box, link: Callable[[int], str] | None) -> Shape:
    kind = _KINDS.get(box.node.kind, "card")
    faded = "" if box.node.active is True else " faded"
    rows = [
        element(
            "tspan",
            line,
            class_="quote" if index >= box.text_start else None,
            x=box.x + _PAD,
            y=box.y + _PAD + _HEADING_SIZE + 4 + (index + 0.8) * _LINE,
        )
        for index, line in enumerate(box.lines)
    ]
    parts = [
        element("title", masked_line(f"{box.node.node_id} {box.node.heading}")[:1_000]),
        element("rect", class_="box", x=box.x, y=box.y, width=_WIDTH, height=box.height, rx=6),
        element("rect", class_="edge-mark", x=box.x, y=box.y + 6, width=3, height=box.height - 12, rx=1.5),
        element(
            "text",
            masked_line(" · ".join(box.marks)),
            class_="head",
            x=box.x + _PAD,
            y=box.y + _PAD + _HEADING_SIZE - 1,
        ),
        element("text", *rows, class_="body"),
    ]
    if box.hidden_count:
        counter = element("text", f"+{box.hidden_count}", class_="more", x=box.x + _WIDTH + 6, y=box.middle + 4)
        parts.append(
            counter
            if link is None
            else element("a", counter, href=link(box.node.node_id), aria_label=f"open {box.hidden_count} more")
        )
    return element("g", *parts, class_=f"node {kind}{faded}")
