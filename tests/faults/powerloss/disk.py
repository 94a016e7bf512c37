"""A disk in memory: what programs asked of it, what of that was made durable, and what a power loss may leave.

A strict reading of POSIX, as ALICE (Pillai et al., OSDI 2014) takes it. A rename, a link and an unlink are each atomic. An
fsync of a file makes its data and its size durable and nothing else; an fsync of a folder makes the entries in it durable.
Of the rest any subset may be missing, a write may be there in part or as zeros, and none of it keeps its order.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Crash", "Disk", "Entries", "Said", "Size", "Sync", "Write"]


@dataclass(frozen=True, slots=True)
class Write:
    node: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Size:
    """truncate(), O_TRUNC, fallocate()."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Entries:
    """What one call does to folders, all of it or nothing: (folder, name, what it names from now on)."""

    changes: tuple[tuple[int, str, int | None], ...]
    what: str


@dataclass(frozen=True, slots=True)
class Sync:
    """fsync of a file or a folder; None: sync()."""

    node: int | None


@dataclass(frozen=True, slots=True)
class Said:
    """What got out of the machine: an acknowledgement, or the effect of a command. No power loss takes it back."""

    text: str


Operation = Write | Size | Entries | Sync | Said


@dataclass(slots=True)
class Node:
    kind: str  # file, folder, link
    mode: int
    target: str = ""


@dataclass(frozen=True, slots=True)
class Crash:
    """The power goes after `at` operations. Of those that were not durable by then `lost` are missing; `torn` are there in
    part: so many bytes of the write (what is missing of it is zeros if the number is negative)."""

    at: int
    lost: frozenset[int] = frozenset()
    torn: tuple[tuple[int, int], ...] = ()
    why: str = ""


@dataclass(slots=True)
class Disk:
    """The operations in their order, and the tree as it stands after all of them. Node 0 is the root."""

    operations: list[Operation] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=lambda: [Node("folder", 0o755)])
    tree: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    sizes: dict[int, int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)  # of each operation, in nanoseconds; where they were recorded
    durable: set[int] = field(default_factory=set)  # what no power loss takes back: of people, of another machine
    modified: dict[int, int] = field(default_factory=dict)  # when files were written last (ns); where that was recorded

    # what happens

    def find(self, path: str) -> int | None:
        """The node at a path below the root (``, `a/b`), or None."""
        node = 0
        for name in filter(None, path.split("/")):
            below = self.tree.get(node, {}).get(name)
            if below is None:
                return None
            node = below
        return node

    def _place(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        found = self.find(folder)
        assert found is not None, f"{folder} is not there"
        return found, name

    def add(self, path: str, kind: str, mode: int, what: str, target: str = "") -> int:
        folder, name = self._place(path)
        self.nodes.append(Node(kind, mode, target))
        made = len(self.nodes) - 1
        if kind == "folder":
            self.tree[made] = {}
        elif kind == "file":
            self.sizes[made] = 0
        self._change(what, (folder, name, made))
        return made

    def link(self, source: str, target: str) -> None:
        self._change("link", (*self._place(target), self.find(source)))

    def remove(self, path: str) -> None:
        self._change("unlink", (*self._place(path), None))

    def rename(self, source: str, target: str, exchange: bool = False) -> None:
        what, there = self.find(source), self.find(target) if exchange else None
        assert what is not None, source
        self._change("rename", (*self._place(source), there), (*self._place(target), what))

    def _change(self, what: str, *changes: tuple[int, str, int | None]) -> None:
        self.operations.append(Entries(changes, what))
        for folder, name, node in changes:
            if node is None:
                self.tree[folder].pop(name, None)
            else:
                self.tree[folder][name] = node

    def write(self, node: int, offset: int, data: bytes) -> None:
        self.operations.append(Write(node, offset, data))
        self.sizes[node] = max(self.sizes[node], offset + len(data))

    def resize(self, node: int, size: int) -> None:
        self.operations.append(Size(node, size))
        self.sizes[node] = size

    def sync(self, node: int | None) -> None:
        self.operations.append(Sync(node))

    def say(self, text: str) -> None:
        self.operations.append(Said(text))

    # what a power loss may leave

    def pending(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """For every number of operations: those among them that are not durable."""
        waiting: dict[int, set[int]] = {}  # operation -> the nodes whose sync makes it durable
        yield 0, ()
        for at, operation in enumerate(self.operations):
            match operation:
                case Write() | Size() | Entries() if at in self.durable:
                    pass
                case Write(node) | Size(node):
                    waiting[at] = {node}
                case Entries(changes):
                    waiting[at] = {folder for folder, _, _ in changes}
                case Sync(None):
                    waiting.clear()
                case Sync(node):
                    waiting = {key: nodes for key, nodes in waiting.items() if node not in nodes}
            yield at + 1, tuple(waiting)

    def answered(self, moments: Collection[int]) -> list[int]:
        """After how many operations something was acknowledged at each of these moments (ns)."""
        times = sorted(self.times)
        return sorted({bisect_right(times, moment) for moment in moments})

    def moment(self, at: int) -> int:
        """Just before the operation after so many: what was answered by then was answered before the power went."""
        return self.times[at] - 1000 if at < len(self.times) else self.times[-1]

    def said(self, at: int) -> list[str]:
        """What had got out after so many operations."""
        return [one.text for one in self.operations[:at] if isinstance(one, Said)]

    def words(self) -> list[str]:
        """Each operation in words."""
        paths, found = {0: "."}, []
        for operation in self.operations:
            match operation:
                case Entries(changes, what):
                    named = [os.path.normpath(f"{paths[folder]}/{name}") for folder, name, _ in changes]
                    found.append(f"{what} {' -> '.join(named)}")
                    paths |= {node: path for (_, _, node), path in zip(changes, named, strict=True) if node is not None}
                case Write(node, offset, data):
                    found.append(f"write {paths[node]} {len(data)} bytes at {offset}: {data[:60]!r}")
                case Size(node, size):
                    found.append(f"size {paths[node]} {size}")
                case Sync(node):
                    found.append("sync" if node is None else f"fsync {paths[node]}")
                case Said(text):
                    found.append(f"said {text[:100]}")
        return found

    def told(self, crash: Crash, most: int = 60) -> Iterator[str]:
        """The last operations before the power loss, a line each, with what became of them."""
        torn = dict(crash.torn)
        for at, words in enumerate(self.words()[: crash.at]):
            mark = "LOST" if at in crash.lost else f"TORN {torn[at]}" if at in torn else ""
            if at >= crash.at - most or mark:
                yield f"{at:5} {mark:5} {words}"

    def content(self, crash: Crash) -> tuple[dict[int, dict[str, int]], dict[int, bytearray]]:
        """Folders and files as the power loss leaves them."""
        tree: dict[int, dict[str, int]] = {0: {}}
        files: dict[int, bytearray] = {}
        torn = dict(crash.torn)
        for at, operation in enumerate(self.operations[: crash.at]):
            if at in crash.lost:
                continue
            match operation:
                case Write(node, offset, data):
                    _put(files.setdefault(node, bytearray()), offset, data, torn.get(at))
                case Size(node, size):
                    file = files.setdefault(node, bytearray())
                    file[size:] = bytes(max(0, size - len(file)))
                case Entries(changes):
                    for folder, name, below in changes:
                        if below is None:
                            tree.setdefault(folder, {}).pop(name, None)
                        else:
                            tree.setdefault(folder, {})[name] = below
        return tree, files

    def digest(self, crash: Crash) -> bytes:
        """Of all that the disk holds after the power loss: names, kinds, content, and which names are one file."""
        tree, files = self.content(crash)
        found = hashlib.blake2b(digest_size=16)
        numbers: dict[int, int] = {}

        def add(node: int, above: Collection[int]) -> None:
            for name, below in sorted(tree.get(node, {}).items()):
                if below in above:
                    continue
                known = below in numbers
                found.update(
                    os.fsencode(f"{name}\0{self.nodes[below].kind}\0{numbers.setdefault(below, len(numbers))}\0")
                )
                if not known:
                    content = bytes(files.get(below, b""))
                    found.update(b"%d\0" % len(content) + content)
                add(below, {*above, below})

        add(0, frozenset())
        return found.digest()

    def build(self, crash: Crash, where: Path) -> None:
        """Make the folder `where` what the disk holds after the power loss."""
        tree, files = self.content(crash)
        shutil.rmtree(where, ignore_errors=True)
        os.mkdir(where)
        self._build(0, os.fspath(where), tree, files, {}, frozenset())

    def _build(
        self, node: int, where: str, tree: Mapping[int, Mapping[str, int]], files: Mapping[int, bytes],
        made: dict[int, str], above: Collection[int],
    ) -> None:  # fmt: skip
        for name, below in tree.get(node, {}).items():
            path, what = f"{where}/{name}", self.nodes[below]
            if what.kind == "folder":
                if below in above:
                    continue
                os.mkdir(path, what.mode)
                self._build(below, path, tree, files, made, {*above, below})
            elif what.kind == "link":
                os.symlink(what.target, path)
            elif below in made:
                os.link(made[below], path)
            else:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, what.mode)
                with open(file, "wb") as opened:
                    opened.write(files.get(below, b""))
                if below in self.modified:
                    os.utime(path, ns=(self.modified[below],) * 2)
                made[below] = path


def _put(file: bytearray, offset: int, data: bytes, kept: int | None) -> None:
    """Write, or only a part: the rest stays as it was; with a negative `kept` the size is there and zeros where nothing was."""
    whole = offset + len(data)
    if kept is not None:
        data = data[: kept if kept >= 0 else -kept - 1]
    end = whole if kept is not None and kept < 0 else offset + len(data)
    file.extend(bytes(max(0, end - len(file))))
    file[offset : offset + len(data)] = data
