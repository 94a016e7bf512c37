"""Files on their way to another hive with a task or with its result: bounded, their names checked (README.md, *Tasks*)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from hivemind.boundary import Unreadable
from hivemind.errors import UserError
from hivemind.exchange.schema import FILES_BYTES, MOST_FILES, NAME_BYTES, PATH_DEPTH, PATH_LENGTH
from hivemind.fs import file_below, folder_below, open_inside, walk, write_at
from hivemind.tasks import Task

__all__ = ["Files", "check_paths", "of_result", "of_task", "received", "write_result"]

_GRAPH = ("graph.json", "graph.jsonl")
_OF_RESULT = ("files", "artifacts")


class Files:
    """What goes to another hive, and the names of what is `left` because it is too much or cannot be read."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.left: list[str] = []
        self._room = FILES_BYTES

    def add(self, name: str, open_it: Callable[[], int]) -> None:
        """Add a file under a name. `open_it` returns a descriptor of it."""
        try:
            _parts(name)
            with open(open_it(), "rb") as file:
                raw = file.read(self._room + 1)
        except (UserError, OSError):
            self.left.append(name)
            return
        if len(raw) > self._room or len(self.contents) == MOST_FILES:
            self.left.append(name)
            return
        self.contents[name] = raw
        self._room -= len(raw)


def of_task(task: Task, root: Path, roots: Iterable[Path]) -> Files:
    """The attachments of a task, by their paths in its work folder."""
    found = Files()
    for path in task.attachments:
        found.add(os.path.relpath(path, task.files), partial(open_inside, path, root, roots))
    return found


def of_result(folder: Path) -> Files:
    """What a task has left behind beside its result: its graph, its work folder, what its commands printed. No link is
    followed."""
    found = Files()
    names = [name for name in _GRAPH if os.path.lexists(folder / name)]
    for part in _OF_RESULT:
        for here, folders, files in walk(folder / part):
            folders.sort()
            names += sorted(os.path.relpath(os.path.join(here, one), folder) for one in files)
    for name in names:
        found.add(name, partial(file_below, folder, name.split("/")))
    return found


def received(names: Sequence[object], contents: Sequence[object]) -> dict[str, bytes]:
    """Read the files that another hive has sent. Raises Unreadable unless they can lie in one folder, or for too much."""
    files = {
        name: raw
        for name, raw in zip(names, contents, strict=False)
        if isinstance(name, str) and isinstance(raw, bytes)
    }
    if not len(files) == len(names) == len(contents):
        raise Unreadable("has names without files, files without names, or a name twice")
    check_paths(files)
    if len(files) > MOST_FILES or sum(map(len, files.values())) > FILES_BYTES:
        raise Unreadable(f"has more than {MOST_FILES} files or {FILES_BYTES >> 20} MiB")
    return files


def check_paths(paths: Iterable[str]) -> None:
    """Raise Unreadable for a path that cannot lie below a folder, and for one that is both a file and a folder."""
    folders: set[str] = set()
    for path in paths:
        parts = _parts(path)
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if both := folders.intersection(paths):
        raise Unreadable("is both a file and a folder", location=repr(min(both))[:NAME_BYTES])


def write_result(folder: Path, files: Mapping[str, bytes], *, durable: bool) -> list[str]:
    """Write what came with a result into a task's folder, through no link; returns the names of what may not be there."""
    refused = []
    for name, raw in files.items():
        parts = _parts(name)
        if name not in _GRAPH and (parts[0] not in _OF_RESULT or len(parts) == 1):
            refused.append(name)
            continue
        try:
            below = folder_below(folder, parts[:-1], make=True)
            try:
                write_at(below, parts[-1], raw, durable=durable)
            finally:
                os.close(below)
        except (NotADirectoryError, IsADirectoryError, FileExistsError):
            refused.append(name)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            refused.append(name)
    return refused


def _parts(name: str) -> list[str]:
    """The parts of a relative path. Raises Unreadable for any other."""
    parts = name.split("/")
    with suppress(UnicodeEncodeError):
        is_short = (
            len(name) <= PATH_LENGTH
            and len(parts) <= PATH_DEPTH
            and max(map(len, map(str.encode, parts))) <= NAME_BYTES
        )
        if is_short and "\0" not in name and not {"", ".", ".."}.intersection(parts):
            return parts
    raise Unreadable("is no name that a file may have here", location=repr(name)[:NAME_BYTES])
