"""A disk in memory: the operations of programs, which of them are durable, and what a power loss may leave.

A strict reading of POSIX, as ALICE (Pillai et al., OSDI 2014) takes it. A rename, a link and an unlink are each atomic. An
fsync of a file makes only its data and its size durable; an fsync of a folder makes the entries in it durable.
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

__all__ = ["Crash", "Disk", "Entries", "Reply", "Size", "Sync", "Write"]


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
    """The change of folders by one call, atomic: (folder, name, the node that it names from now on)."""

    changes: tuple[tuple[int, str, int | None], ...]
    call: str


@dataclass(frozen=True, slots=True)
class Sync:
    """fsync of a file or a folder; None: sync()."""

    node: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A message that left the machine: an acknowledgement, or the effect of a command. No power loss takes it back."""

    text: str


Operation = Write | Size | Entries | Sync | Reply


@dataclass(slots=True)
class Node:
    kind: str  # file, folder, link
    mode: int
    target: str = ""


@dataclass(frozen=True, slots=True)
class Crash:
    """The power goes after `at` operations. Of the operations not durable by then `lost` are missing; `torn` are there in
    part: so many bytes of the write (the rest is zeros if the number is negative)."""

    at: int
    lost: frozenset[int] = frozenset()
    torn: tuple[tuple[int, int], ...] = ()
    reason: str = ""


@dataclass(slots=True)
class Disk:
    """The operations in their order, and the tree after all of them. Node 0 is the root."""

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
        node = self.find(folder)
        assert node is not None, f"{folder} is not there"
        return node, name

    def add(self, path: str, kind: str, mode: int, call: str, target: str = "") -> int:
        folder, name = self._place(path)
        self.nodes.append(Node(kind, mode, target))
        number = len(self.nodes) - 1
        if kind == "folder":
            self.tree[number] = {}
        elif kind == "file":
            self.sizes[number] = 0
        self._change(call, (folder, name, number))
        return number

    def link(self, source: str, target: str) -> None:
        self._change("link", (*self._place(target), self.find(source)))

    def remove(self, path: str) -> None:
        self._change("unlink", (*self._place(path), None))

    def rename(self, source: str, target: str, exchange: bool = False) -> None:
        node, swapped_node = self.find(source), self.find(target) if exchange else None
        assert node is not None, source
        self._change("rename", (*self._place(source), swapped_node), (*self._place(target), node))

    def _change(self, call: str, *changes: tuple[int, str, int | None]) -> None:
        self.operations.append(Entries(changes, call))
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
        self.operations.append(Reply(text))

    # what a power loss may leave

    def open_operations(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield every number of operations with the ones among them that are not durable."""
        syncs: dict[int, set[int]] = {}  # operation -> the nodes to sync to make it durable
        yield 0, ()
        for at, operation in enumerate(self.operations):
            match operation:
                case Write() | Size() | Entries() if at in self.durable:
                    pass
                case Write(node) | Size(node):
                    syncs[at] = {node}
                case Entries(changes):
                    syncs[at] = {folder for folder, _, _ in changes}
                case Sync(None):
                    syncs.clear()
                case Sync(node):
                    syncs = {key: nodes for key, nodes in syncs.items() if node not in nodes}
            yield at + 1, tuple(syncs)

    def reply_points(self, moments: Collection[int]) -> list[int]:
        """After how many operations something was acknowledged at each of these moments (ns)."""
        times = sorted(self.times)
        return sorted({bisect_right(times, moment) for moment in moments})

    def moment(self, at: int) -> int:
        """Just before the operation after so many: what was answered by then was answered before the power went."""
        return self.times[at] - 1000 if at < len(self.times) else self.times[-1]

    def replies(self, at: int) -> list[str]:
        """Return the acknowledgements and effects after so many operations."""
        return [operation.text for operation in self.operations[:at] if isinstance(operation, Reply)]

    def words(self) -> list[str]:
        """Each operation in words."""
        paths, lines = {0: "."}, []
        for operation in self.operations:
            match operation:
                case Entries(changes, call):
                    names = [os.path.normpath(f"{paths[folder]}/{name}") for folder, name, _ in changes]
                    lines.append(f"{call} {' -> '.join(names)}")
                    paths |= {node: path for (_, _, node), path in zip(changes, names, strict=True) if node is not None}
                case Write(node, offset, data):
                    lines.append(f"write {paths[node]} {len(data)} bytes at {offset}: {data[:60]!r}")
                case Size(node, size):
                    lines.append(f"size {paths[node]} {size}")
                case Sync(node):
                    lines.append("sync" if node is None else f"fsync {paths[node]}")
                case Reply(text):
                    lines.append(f"said {text[:100]}")
        return lines

    def trace(self, crash: Crash, limit: int = 60) -> Iterator[str]:
        """The last operations before the power loss, a line each, with what became of them."""
        torn = dict(crash.torn)
        for at, words in enumerate(self.words()[: crash.at]):
            mark = "LOST" if at in crash.lost else f"TORN {torn[at]}" if at in torn else ""
            if at >= crash.at - limit or mark:
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
        digest = hashlib.blake2b(digest_size=16)
        numbers: dict[int, int] = {}

        def add(node: int, above: Collection[int]) -> None:
            for name, below in sorted(tree.get(node, {}).items()):
                if below in above:
                    continue
                is_numbered = below in numbers
                digest.update(
                    os.fsencode(f"{name}\0{self.nodes[below].kind}\0{numbers.setdefault(below, len(numbers))}\0")
                )
                if not is_numbered:
                    content = bytes(files.get(below, b""))
                    digest.update(b"%d\0" % len(content) + content)
                add(below, {*above, below})

        add(0, frozenset())
        return digest.digest()

    def build(self, crash: Crash, root: Path) -> None:
        """Make the folder `where` what the disk holds after the power loss."""
        tree, files = self.content(crash)
        shutil.rmtree(root, ignore_errors=True)
        os.mkdir(root)
        self._build(0, os.fspath(root), tree, files, {}, frozenset())

    def _build(
        self, node: int, folder: str, tree: Mapping[int, Mapping[str, int]], files: Mapping[int, bytes],
        links: dict[int, str], above: Collection[int],
    ) -> None:  # fmt: skip
        for name, below in tree.get(node, {}).items():
            path, entry = f"{folder}/{name}", self.nodes[below]
            if entry.kind == "folder":
                if below in above:
                    continue
                os.mkdir(path, entry.mode)
                self._build(below, path, tree, files, links, {*above, below})
            elif entry.kind == "link":
                os.symlink(entry.target, path)
            elif below in links:
                os.link(links[below], path)
            else:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, entry.mode)
                with open(file, "wb") as stream:
                    stream.write(files.get(below, b""))
                if below in self.modified:
                    os.utime(path, ns=(self.modified[below],) * 2)
                links[below] = path


def _put(file: bytearray, offset: int, data: bytes, size: int | None) -> None:
    """Write, or only a part: the rest keeps its content; with a negative `size` the file has its full size, filled with zeros."""
    full_end = offset + len(data)
    if size is not None:
        data = data[: size if size >= 0 else -size - 1]
    end = full_end if size is not None and size < 0 else offset + len(data)
    file.extend(bytes(max(0, end - len(file))))
    file[offset : offset + len(data)] = data
