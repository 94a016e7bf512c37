"""Files that hives send with a task or its result. Their sizes and names are checked (README.md, *Tasks*)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from hivemind.boundary import Unreadable
from hivemind.errors import UserError
from hivemind.exchange.schema import FILES_BYTES, MAX_FILES, NAME_BYTES, PATH_DEPTH, PATH_LENGTH
from hivemind.fs import file_below, folder_below, open_inside, walk, write
from hivemind.tasks import Task

_GRAPH_FILES = ("graph.json", "graph.jsonl")
_RESULT_FOLDERS = ("files", "artifacts")


class FileBundle:
    """Files to send: `contents` by name, and the names of `omitted` files, which are too large or unreadable."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.omitted: list[str] = []
        self._remaining_bytes = FILES_BYTES

    def add(self, name: str, open_file: Callable[[], int]) -> None:
        """Add a file under `name`. `open_file` opens the file and returns its descriptor. A file that is too large or unreadable
        is omitted.
        """
        try:
            _split_path(name)
            with open(open_file(), "rb") as file:
                raw = file.read(self._remaining_bytes + 1)
        except (UserError, OSError):
            self.omitted.append(name)
            return
        if len(raw) > self._remaining_bytes or len(self.contents) == MAX_FILES:
            self.omitted.append(name)
            return
        self.contents[name] = raw
        self._remaining_bytes -= len(raw)


def attachments_of(task: Task, root: Path, roots: Iterable[Path]) -> FileBundle:
    """Return a task's attachments, named by their paths relative to the task's work folder."""
    bundle = FileBundle()
    for path in task.attachments:
        bundle.add(os.path.relpath(path, task.files), partial(open_inside, path, root, roots))
    return bundle


def result_files(folder: Path) -> FileBundle:
    """Return the files of a finished task: graph, work folder, output of commands. Links are not followed."""
    bundle = FileBundle()
    names = [name for name in _GRAPH_FILES if os.path.lexists(folder / name)]
    for part in _RESULT_FOLDERS:
        for parent, folders, files in walk(folder / part):
            folders.sort()
            names += sorted(os.path.relpath(os.path.join(parent, file), folder) for file in files)
    for name in names:
        bundle.add(name, partial(file_below, folder, name.split("/")))
    return bundle


def check_received_files(names: Sequence[object], contents: Sequence[object]) -> dict[str, bytes]:
    """Return the files that another hive sent: contents by name.

    Raises Unreadable if the files exceed the limits, or cannot all be written below one folder.
    """
    files = {
        name: raw
        for name, raw in zip(names, contents, strict=False)
        if isinstance(name, str) and isinstance(raw, bytes)
    }
    if not len(files) == len(names) == len(contents):
        raise Unreadable("has names without files, files without names, or duplicate names")
    check_paths(files)
    if len(files) > MAX_FILES or sum(map(len, files.values())) > FILES_BYTES:
        raise Unreadable(f"has more than {MAX_FILES} files or {FILES_BYTES >> 20} MiB")
    return files


def check_paths(paths: Iterable[str]) -> None:
    """Raise Unreadable for a path that is absolute, has an empty part, `.` or `..`, or must be both a file and a folder."""
    folders: set[str] = set()
    for path in paths:
        parts = _split_path(path)
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if conflicts := folders.intersection(paths):
        raise Unreadable("is both a file and a folder", location=repr(min(conflicts))[:NAME_BYTES])


def write_result(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write a result's files into the task's folder without following links. Return the names of refused files."""
    refused = []
    for name, raw in files.items():
        parts = _split_path(name)
        if name not in _GRAPH_FILES and (parts[0] not in _RESULT_FOLDERS or len(parts) == 1):
            refused.append(name)
            continue
        try:
            parent_fd = folder_below(folder, parts[:-1], create=True)
            try:
                write(folder.joinpath(*parts), raw, folder_fd=parent_fd)
            finally:
                os.close(parent_fd)
        except (NotADirectoryError, IsADirectoryError, FileExistsError):
            refused.append(name)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            refused.append(name)
    return refused


def _split_path(name: str) -> list[str]:
    """Return the parts of a relative path. Raises Unreadable for a path that is absolute or too long, or has an empty part, `.`
    or `..`.
    """
    parts = name.split("/")
    with suppress(UnicodeEncodeError):
        is_short = (
            len(name) <= PATH_LENGTH
            and len(parts) <= PATH_DEPTH
            and max(map(len, map(str.encode, parts))) <= NAME_BYTES
        )
        if is_short and "\0" not in name and not {"", ".", ".."}.intersection(parts):
            return parts
    raise Unreadable("is not a valid file name here", location=repr(name)[:NAME_BYTES])
