"""A graph as the index keeps it: a row for each node."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import NamedTuple

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.reasoning.finding.schema import NODES
from hivemind.reasoning.finding.sources import Source
from hivemind.reasoning.node import FLUSHED, ReasoningNode
from hivemind.reasoning.task_graph import TaskGraph

__all__ = ["Reading", "Row", "read"]


class Row(NamedTuple):
    """A node, as columns."""

    kind: str
    lane: str
    state: str
    title: str
    text: str
    tags: str

    @property
    def said(self) -> tuple[str, str, str]:
        """What it is found by."""
        return self.title, self.text, self.tags


@dataclass(frozen=True, slots=True)
class Reading:
    """What a graph said up to line `seq` of its log, by node; or why it could not be read."""

    source: Source
    seq: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    problem: str | None = None


def read(source: Source) -> Reading | None:
    """Read the main branch of a graph; None if its task has moved on. Takes no lock and changes nothing."""
    try:
        with boundary("graph", source.folder), TaskGraph(source.folder, durable=False).still() as graph:
            rows = {number: _row(node) for number, node in graph.nodes.items()}
            seq = graph.seq
    except UserError as error:
        return _unread(source, error.what if error.where is None else f"{error.where}: {error.what}")
    except OSError as error:
        return _unread(source, f"{error.filename or source.folder}: {error.strerror}")
    if any(not 0 < number < NODES for number in rows):
        return _unread(source, f"{source.folder}: a node has a number below 1 or above {NODES - 1}")
    return Reading(source, seq, rows)


def _unread(source: Source, problem: str) -> Reading | None:
    return Reading(source, problem=_clean(problem)) if os.path.isdir(source.folder) else None


def _row(node: ReasoningNode) -> Row:
    return Row(
        node.kind.value, node.lane, _state(node), _clean(node.title), _clean(node.text), _clean(" ".join(node.tags))
    )


def _state(node: ReasoningNode) -> str:
    if node.status == "superseded":
        return "superseded"
    return {True: "active", False: "folded", FLUSHED: "flushed"}[node.active]


def _clean(text: str) -> str:
    """Half a character, which JSON can hold and a database cannot, is replaced."""
    return text.encode("utf-8", "replace").decode()
