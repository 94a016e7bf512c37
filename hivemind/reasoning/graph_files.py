"""The graphs of all tasks as files: where they lie, how they look without being opened, and what they say."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.reasoning.history import LOG_NAME
from hivemind.reasoning.node import FLUSHED, ReasoningNode
from hivemind.reasoning.task_graph import TaskGraph

__all__ = ["Reading", "Row", "Source", "read", "source_of", "sources"]

_STATES = {True: "active", False: "folded", FLUSHED: "flushed"}


class Source(NamedTuple):
    """The log of a task's graph: whose it is, the folder it lies in, and how it looks (`stamp` changes with each write)."""

    task: str
    folder: str
    inode: int
    stamp: str

    @property
    def place(self) -> str:
        """The state of its task: inbox, active, done, failed."""
        return os.path.basename(os.path.dirname(self.folder))

    def is_current(self) -> bool:
        """Whether the file still looks so."""
        return _source(os.path.dirname(self.folder), self.task) == self


class Row(NamedTuple):
    """A node, as columns of the index."""

    kind: str
    lane: str
    state: str
    title: str
    text: str
    tags: str

    @property
    def words(self) -> tuple[str, str, str]:
        """What it is found by."""
        return self.title, self.text, self.tags


class Reading(NamedTuple):
    """What a graph said up to line `seq` of its log, by node; or why it could not be read."""

    source: Source
    seq: int
    rows: Mapping[int, Row]
    problem: str | None = None


def sources(layout: Layout) -> dict[str, Source]:
    """The graph of every task that has one, by task. Costs a stat for each task.

    A task that is moved on meanwhile may be missed: `source_of` tells whether one is really gone.
    """
    found = {}
    for place in _places(layout):
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = sorted(os.listdir(place))
        found.update({name: source for name in names if (source := _source(place, name)) is not None})
    return found


def source_of(layout: Layout, task: str) -> Source | None:
    """The graph of one task, wherever that lies; None if it has none."""
    found = [source for place in _places(layout) if (source := _source(place, task)) is not None]
    return found[-1] if found else None


def _places(layout: Layout) -> list[str]:
    """Where tasks lie, in the order in which they go: one that moves on while we look is seen further on."""
    return [os.fspath(place) for place in (layout.inbox, layout.active, layout.done, layout.failed)]


def _source(place: str, name: str) -> Source | None:
    """The graph in the folder of that name; None where there is none, or nothing was ever written to it."""
    if name.startswith(".") or "/" in name or "\0" in name:
        return None
    folder = f"{place}/{name}"
    try:
        name.encode()  # no task can be asked for by a name that is not UTF-8
        found = os.lstat(f"{folder}/{LOG_NAME}")
    except (UnicodeEncodeError, FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    return Source(name, folder, found.st_ino, f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}")


def read(source: Source, most: int) -> Reading | None:
    """Read the main branch of a graph, of at most that many nodes; None if its task has moved on. Takes no lock and changes
    nothing."""
    try:
        with boundary("graph", source.folder):
            graph = TaskGraph(source.folder, durable=False).graph
            if all(0 < number < most for number in graph.nodes):
                return Reading(source, graph.seq, {number: _row(node) for number, node in graph.nodes.items()})
            problem = f"{source.folder}: a node has a number below 1 or above {most - 1}"
    except UserError as error:
        problem = error.what if error.where is None else f"{error.where}: {error.what}"
    except OSError as error:
        problem = f"{error.filename or source.folder}: {error.strerror}"
    return Reading(source, 0, {}, _clean(problem)) if os.path.isdir(source.folder) else None


def _row(node: ReasoningNode) -> Row:
    state = "superseded" if node.status == "superseded" else _STATES[node.active]
    return Row(node.kind.value, node.lane, state, _clean(node.title), _clean(node.text), _clean(" ".join(node.tags)))


def _clean(text: str) -> str:
    """Half a character, which JSON can hold and a database cannot, is replaced."""
    return text.encode("utf-8", "replace").decode()
