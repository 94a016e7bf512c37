"""Loading the content of blocks: late, once, several at a time, and never a reason for a cycle to fail (spec 2).

A file is looked at (one `stat`) each time and read only if it looks different from when it was read last. Whatever is wrong
with it becomes one line of content with `error` beside it.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from pathlib import Path

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import HivemindError
from hivemind.frozen import frozen
from hivemind.fs import open_inside, time_tells
from hivemind.masking import mask
from hivemind.memory.blocks import FileMemoryBlock, KnowledgeMemoryBlock, MemoryBlock, MessageMemoryBlock
from hivemind.memory.compression import section

TOGETHER = 4  # so many files, not fewer, are worth threads
THREADS = 8
_FINE_TIMES = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 13)
"""Whether the kernel gives any two writes different times, if somebody looked between them."""
Look = tuple[int, int, int, int, int]
"""Size, mtime and ctime in ns, inode, device: what a file looks like. Another look may be another content."""

look_of: Callable[[os.stat_result], Look] = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_dev")


@dataclass(slots=True, eq=False)
class Text:
    """The text of a file as it was read, or, in `error`, why there is none."""

    text: str
    look: Look | None
    digest: str | None = None
    error: str | None = None
    outside: bool = False
    read_at: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        """Bytes that it takes in a cache."""
        return (self.look[0] if self.look else 0) + 256

    def lines(self, start: int, end: int | None) -> tuple[str, int]:
        """Lines `start` to `end` (1-based, inclusive; None: to the last), and how many lines the text has."""
        lines = io.StringIO(self.text, newline="\n").readlines()
        return "".join(lines[start - 1 : end]), len(lines)


class FileCache:
    """Texts by path, the least recently used dropped first. Safe to use from several threads."""

    def __init__(self, max_bytes: int, ttl: float | None) -> None:
        self.max_bytes = max_bytes
        self.ttl = inf if ttl is None else ttl
        self.bytes = 0
        self._texts: OrderedDict[str, Text] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._texts)

    def get(self, path: str, look: Look) -> Text | None:
        """The text of a file that looks like this, if it is kept and not older than `ttl` seconds."""
        with self._lock:
            text = self._texts.get(path)
            if text is None or text.look != look or time.monotonic() - text.read_at > self.ttl:
                return None
            self._texts.move_to_end(path)
            return text

    def put(self, path: str, text: Text) -> None:
        """Keep a text; one that is larger than the whole cache is not kept."""
        with self._lock:
            if (old := self._texts.pop(path, None)) is not None:
                self.bytes -= old.size
            if text.look is not None and text.size <= self.max_bytes:
                self._texts[path] = text
                self.bytes += text.size
            while self.bytes > self.max_bytes:
                self.bytes -= self._texts.popitem(last=False)[1].size


@frozen
class Given:
    """A source's content, and how much of the whole it is: `form` is full, outline or excerpt."""

    content: str
    form: str


Source = Callable[[str, int | None], str | Given]
"""Returns the content of a reference, within a number of tokens if one is passed (a store of another room)."""


@dataclass(slots=True, eq=False)
class Loaded:
    """The content of a block. `error`: why it is not there (then `content` says so in one line).

    `digest`: the file's, if it differs from the block's. `outside`: read from a root beside the hive. `source`:
    what was read; the same object as long as nothing changed. `form`: how much of it this is, where a source has said so.
    """

    content: str
    source: Text | None = None
    error: str | None = None
    digest: str | None = None
    outside: bool = False
    form: str | None = None


class ContentLoader:
    """Loads contents from below `filesystem_root` and from `roots` beside it (folders, resolved).

    The cache holds at most `cache_bytes`; with a `ttl` (seconds) older copies are read again. A file of
    more than `max_file_bytes` is not read whole. `sources` returns the content of knowledge whose location begins
    with `name:`. `loads` counts how often a file or a source was read.
    """

    def __init__(
        self,
        filesystem_root: str | os.PathLike[str],
        *,
        roots: Iterable[str | os.PathLike[str]] = (),
        sources: Mapping[str, Source] | None = None,
        cache_bytes: int = 64 * 1024 * 1024,
        max_file_bytes: int = 16 * 1024 * 1024,
        ttl: float | None = None,
    ) -> None:
        self.filesystem_root = os.fspath(filesystem_root)
        self.root = Path(os.path.realpath(filesystem_root))
        self.roots = tuple(Path(os.path.realpath(root)) for root in roots)
        self.sources = dict(sources or {})
        self.cache = FileCache(cache_bytes, ttl)
        self.max_file_bytes = max_file_bytes
        self.loads = 0

    def path_of(self, location: str) -> str:
        """The path of a location: one that is not absolute lies below the root. Touches no disk."""
        return location if location.startswith("/") else os.path.join(self.root, location)

    def load_content(self, block: MemoryBlock) -> str:
        """The content of a block; where there is none, a line that says why."""
        return self.load(block).content

    def load(self, block: MemoryBlock) -> Loaded:
        """The content of a block, and what is to be known about it."""
        return self.load_many([block])[0]

    def load_many(self, blocks: Iterable[MemoryBlock]) -> list[Loaded]:
        """The contents of blocks, in their order; files that are not in the cache are read concurrently."""
        wanted = [(block, self._location_of(block)) for block in blocks]
        kept = {location: self._kept(location) for _, location in wanted if location is not None}
        texts = self._read_all([location for location, text in kept.items() if text is None])
        texts |= {location: text for location, text in kept.items() if text is not None}
        return [
            self._without_file(block) if location is None else self._content(block, texts[location])
            for block, location in wanted
        ]

    def _kept(self, location: str) -> Text | None:
        """The text of a file if it has been read and the file has not changed since: one `stat`."""
        path = self.path_of(location)
        try:
            return self.cache.get(path, look_of(os.stat(path)))
        except (OSError, ValueError):
            return None

    def _location_of(self, block: MemoryBlock) -> str | None:
        """Where the block's file lies, or None if it has none."""
        if not (location := block.points_at) or self.has_source(block):
            return None
        return moved_to(location, self.path_of) if isinstance(block, MessageMemoryBlock) else location

    def has_source(self, block: MemoryBlock) -> bool:
        """Whether the block is knowledge that one of the `sources` has."""
        scheme, colon, _ = (block.points_at or "").partition(":")
        return isinstance(block, KnowledgeMemoryBlock) and bool(colon) and scheme in self.sources

    def _without_file(self, block: MemoryBlock) -> Loaded:
        if isinstance(block, KnowledgeMemoryBlock):
            return self.from_source(block, None)
        return Loaded(block.preview if isinstance(block, MessageMemoryBlock) else block.own_content() or "")

    def from_source(self, block: KnowledgeMemoryBlock, max_tokens: int | None) -> Loaded:
        """The content that the source of the block's location has for it, within `max_tokens`."""
        scheme, _, reference = block.location.partition(":")
        self.loads += 1
        try:
            given = self.sources[scheme](reference, max_tokens)
        except (HivemindError, OSError, LookupError) as error:
            return _failed(block.location, f"cannot be had ({error})")
        return Loaded(given) if isinstance(given, str) else Loaded(given.content, form=given.form)

    def _read_all(self, locations: list[str]) -> dict[str, Text]:
        self.loads += len(locations)
        if len(locations) < TOGETHER:
            texts = dict(zip(locations, map(self._read, locations), strict=True))
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(THREADS, len(locations)), thread_name_prefix="load") as pool:
                texts = dict(zip(locations, pool.map(self._read, locations), strict=True))
        for location, text in texts.items():
            self.cache.put(self.path_of(location), text)
        return texts

    def _read(self, location: str) -> Text:
        path = self.path_of(location)
        try:
            file = open_inside(path, self.root, self.roots)
        except (OSError, HivemindError, ValueError) as error:
            return Text("", None, error=_reason(error))
        try:
            found = os.fstat(file)
            if found.st_size > self.max_file_bytes:
                size = f"{found.st_size / 1_048_576:,.1f} MiB"
                return Text("", None, error=f"is too large to be loaded ({size}); ask for it in parts")
            with os.fdopen(os.dup(file), "rb") as stream:
                raw = stream.read()
        except OSError as error:
            return Text("", None, error=_reason(error))
        finally:
            os.close(file)
        look = look_of(found)
        settled = _FINE_TIMES or time_tells(found.st_mtime_ns)
        text, problem = _decoded(raw)
        return Text(
            mask(text),
            look if settled and len(raw) == found.st_size else None,
            digest=hashlib.sha256(raw).hexdigest(),
            error=problem,
            outside=not Path(os.path.realpath(path)).is_relative_to(self.root),
        )

    def _content(self, block: MemoryBlock, text: Text) -> Loaded:
        if isinstance(block, MessageMemoryBlock) and text.text:  # a mail says itself which character set it is in
            try:
                return Loaded(body_of(text.text), text, outside=text.outside)
            except Unreadable as error:
                return _failed(block.full_path, error.what, text)
        where = block.points_at or block.id
        if text.error is not None:
            return _failed(where, text.error, text)
        content = text.text
        lines = _lines(block)
        if lines is not None:
            content, count = text.lines(*lines)
            if not content and lines[0] > count:
                return _failed(where, f"has {count} lines, none of them is {lines[0]}", text)
        elif isinstance(block, KnowledgeMemoryBlock) and block.subtopic:
            content = section(text.text, block.subtopic)
        return Loaded(content, text, digest=_new_digest(block, text), outside=text.outside)


def _lines(block: MemoryBlock) -> tuple[int, int | None] | None:
    if isinstance(block, FileMemoryBlock):
        return None if block.start_line is None else (block.start_line, block.end_line)
    start, _, end = str(block.metadata.get("lines", "")).partition("-")
    return (int(start), int(end) if end.isdecimal() else None) if start.isdecimal() and int(start) > 0 else None


def _new_digest(block: MemoryBlock, text: Text) -> str | None:
    """The file's digest, if it has changed since the block was made."""
    known = block.digest if isinstance(block, FileMemoryBlock) else block.metadata.get("digest")
    if not known or text.digest is None:
        return None
    return None if str(known).removeprefix("sha256:") == text.digest else text.digest


def _failed(where: str, error: str, text: Text | None = None) -> Loaded:
    return Loaded(f"[{where}: {error}]", text, error=error, outside=text.outside if text else False)


def _reason(error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case PermissionError():
            return "may not be read"
        case OSError(errno=int(code)):
            return f"cannot be read ({os.strerror(code)})"
    return " ".join(str(getattr(error, "what", error)).split())


def _decoded(raw: bytes) -> tuple[str, str | None]:
    """The text, and what is wrong with it. What is not UTF-8 can be had back with `surrogateescape`."""
    if b"\0" in raw:
        return "", "is binary, no text"
    try:
        return raw.decode("utf-8-sig"), None
    except UnicodeDecodeError as error:
        return raw.decode("utf-8", "surrogateescape"), f"is not UTF-8 (byte {error.start})"


def body_of(text: str) -> str:
    """The text of a message (RFC 5322, or none at all: then all of it). Raises Unreadable."""
    from hivemind.mail.parse import parse_message  # late: a context without mail needs no parser

    with boundary("letter"):
        return parse_message(text.encode("utf-8", "surrogateescape"), "").body


def moved_to(full_path: str, path_of: Callable[[str], str]) -> str:
    """The path of a message of a Maildir: as it was, or in cur/ with flags, if it has been read since."""
    path = path_of(full_path)
    if os.path.exists(path):
        return full_path
    folder, name = os.path.split(path)
    box, place = os.path.split(folder)
    if place not in ("new", "cur"):
        return full_path
    base = name.partition(":")[0]
    try:
        names = sorted(os.listdir(os.path.join(box, "cur")))
    except OSError:
        return full_path
    return next((os.path.join(box, "cur", name) for name in names if name.partition(":")[0] == base), full_path)
