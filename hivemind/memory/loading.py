"""Load the content of blocks: only when needed, each file once, several files concurrently.

Each load calls `stat` once and reads the file only if it changed since the last read. A file that cannot be
loaded yields one line of content and an `error`; it never makes a turn fail.
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
from hivemind.fs import is_timestamp_reliable, open_inside
from hivemind.masking import mask
from hivemind.memory.blocks import FileMemoryBlock, KnowledgeMemoryBlock, MemoryBlock, MessageMemoryBlock
from hivemind.memory.compression import section

MIN_CONCURRENT_FILES = 4  # fewer files are read without threads, which is faster
THREADS = 8
_HAS_FINE_TIMES = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 13)
"""True if this kernel records different times for two writes whenever a `stat` came between the writes."""
FileStamp = tuple[int, int, int, int, int]
"""A file's size, mtime and ctime (ns), inode and device. While they are equal, the content is unchanged."""

file_stamp: Callable[[os.stat_result], FileStamp] = attrgetter(
    "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_dev"
)


@dataclass(slots=True, eq=False)
class LoadedText:
    """The text of a file, or the reason (`error`) why the file could not be read. Without an error, `error` is None."""

    text: str
    stamp: FileStamp | None
    digest: str | None = None
    error: str | None = None
    is_external: bool = False
    read_at: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        """Return the bytes that the text takes in a cache."""
        return (self.stamp[0] if self.stamp else 0) + 256

    def lines(self, start: int, end: int | None) -> tuple[str, int]:
        """Return the lines `start` to `end` (1-based, inclusive; None: the last), and the number of all lines."""
        lines = io.StringIO(self.text, newline="\n").readlines()
        return "".join(lines[start - 1 : end]), len(lines)


class FileCache:
    """A thread-safe cache of texts by path. When it is full, the least recently used texts are removed."""

    def __init__(self, max_bytes: int, ttl: float | None) -> None:
        self.max_bytes = max_bytes
        self.ttl = inf if ttl is None else ttl
        self.bytes = 0
        self._texts: OrderedDict[str, LoadedText] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._texts)

    def get(self, path: str, stamp: FileStamp) -> LoadedText | None:
        """Return the cached text of a path. Return None if there is none, if it is older than `ttl` seconds, or if
        `stamp` says that the file has changed."""
        with self._lock:
            text = self._texts.get(path)
            if text is None or text.stamp != stamp or time.monotonic() - text.read_at > self.ttl:
                return None
            self._texts.move_to_end(path)
            return text

    def put(self, path: str, text: LoadedText) -> None:
        """Add or replace the text of a path, unless it is larger than the whole cache."""
        with self._lock:
            if (old := self._texts.pop(path, None)) is not None:
                self.bytes -= old.size
            if text.stamp is not None and text.size <= self.max_bytes:
                self._texts[path] = text
                self.bytes += text.size
            while self.bytes > self.max_bytes:
                self.bytes -= self._texts.popitem(last=False)[1].size


@frozen
class SourceContent:
    """Content from a source, with its `form`: full, outline or excerpt."""

    content: str
    form: str


Source = Callable[[str, int | None], str | SourceContent]
"""A function that returns the content of a reference into a store, in at most so many tokens (None: any number)."""


@dataclass(slots=True, eq=False)
class BlockContent:
    """The content of a block. If it cannot be loaded, `error` is the reason, and `content` is a line that states it.

    `digest` is the file's digest if it differs from the block's digest, else None. `is_external` marks a file outside
    the hive. `source` is the file's text: the same object until the file changes. `form` says how complete content from
    a store is: full, outline or excerpt.
    """

    content: str
    source: LoadedText | None = None
    error: str | None = None
    digest: str | None = None
    is_external: bool = False
    form: str | None = None


class ContentLoader:
    """A loader of the content of blocks, from files in `filesystem_root` and in the folders `roots`.

    The cache has at most `cache_bytes`; texts older than `ttl` seconds are read again. Files larger than
    `max_file_bytes` are refused. `sources` maps a scheme to the function that returns the content of knowledge with
    the location `scheme:reference`. `loads` counts the reads of files and sources.
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
        self.root = Path(os.path.realpath(filesystem_root))
        self.roots = tuple(Path(os.path.realpath(root)) for root in roots)
        self.sources = dict(sources or {})
        self.cache = FileCache(cache_bytes, ttl)
        self.max_file_bytes = max_file_bytes
        self.loads = 0

    def path_of(self, location: str) -> str:
        """Return the path of a location, which may be relative to the root. Does not read the disk."""
        return location if location.startswith("/") else os.path.join(self.root, location)

    def load_content(self, block: MemoryBlock) -> str:
        """Return the content of a block, or a line that says why it cannot be loaded."""
        return self.load(block).content

    def load(self, block: MemoryBlock) -> BlockContent:
        """Return the content of a block with its error, digest and source."""
        return self.load_many([block])[0]

    def load_many(self, blocks: Iterable[MemoryBlock]) -> list[BlockContent]:
        """Return the contents of blocks, in the order of the blocks. Files that are not cached are read concurrently."""
        block_locations = [(block, self._file_location(block)) for block in blocks]
        cached_texts = {
            location: self._cached_text(location) for _, location in block_locations if location is not None
        }
        texts = self._read_files([location for location, text in cached_texts.items() if text is None])
        texts |= {location: text for location, text in cached_texts.items() if text is not None}
        return [
            self._content_without_file(block) if location is None else self._block_content(block, texts[location])
            for block, location in block_locations
        ]

    def _cached_text(self, location: str) -> LoadedText | None:
        """Return the cached text of a file, or None if there is none or the file has changed. Costs one `stat`."""
        path = self.path_of(location)
        try:
            return self.cache.get(path, file_stamp(os.stat(path)))
        except (OSError, ValueError):
            return None

    def _file_location(self, block: MemoryBlock) -> str | None:
        """Return the location of the block's file; None if the content does not come from a file."""
        if not (location := block.content_location) or self.has_source(block):
            return None
        return current_mail_path(location, self.path_of) if isinstance(block, MessageMemoryBlock) else location

    def has_source(self, block: MemoryBlock) -> bool:
        """Return True if the block is knowledge with content from a source: its location begins with a scheme of
        `sources`."""
        scheme, colon, _ = (block.content_location or "").partition(":")
        return isinstance(block, KnowledgeMemoryBlock) and bool(colon) and scheme in self.sources

    def _content_without_file(self, block: MemoryBlock) -> BlockContent:
        if isinstance(block, KnowledgeMemoryBlock):
            return self.from_source(block, None)
        return BlockContent(block.preview if isinstance(block, MessageMemoryBlock) else block.inline_content() or "")

    def from_source(self, block: KnowledgeMemoryBlock, max_tokens: int | None) -> BlockContent:
        """Return the block's content from its source, in at most `max_tokens` (None: any number)."""
        scheme, _, reference = block.location.partition(":")
        self.loads += 1
        try:
            source_content = self.sources[scheme](reference, max_tokens)
        except (HivemindError, OSError, LookupError) as error:
            return _error_content(block.location, f"cannot be loaded ({error})")
        return (
            BlockContent(source_content)
            if isinstance(source_content, str)
            else BlockContent(source_content.content, form=source_content.form)
        )

    def _read_files(self, locations: list[str]) -> dict[str, LoadedText]:
        self.loads += len(locations)
        if len(locations) < MIN_CONCURRENT_FILES:
            texts = dict(zip(locations, map(self._read_file, locations), strict=True))
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(THREADS, len(locations)), thread_name_prefix="load") as pool:
                texts = dict(zip(locations, pool.map(self._read_file, locations), strict=True))
        for location, text in texts.items():
            self.cache.put(self.path_of(location), text)
        return texts

    def _read_file(self, location: str) -> LoadedText:
        path = self.path_of(location)
        try:
            descriptor = open_inside(path, self.root, self.roots)
        except (OSError, HivemindError, ValueError) as error:
            return LoadedText("", None, error=_describe_error(error))
        try:
            status = os.fstat(descriptor)
            if status.st_size > self.max_file_bytes:
                size = f"{status.st_size / 1_048_576:,.1f} MiB"
                return LoadedText("", None, error=f"is too large to be loaded ({size}); load it in parts")
            with os.fdopen(os.dup(descriptor), "rb") as stream:
                raw = stream.read()
        except OSError as error:
            return LoadedText("", None, error=_describe_error(error))
        finally:
            os.close(descriptor)
        stamp = file_stamp(status)
        is_settled = _HAS_FINE_TIMES or is_timestamp_reliable(status.st_mtime_ns)
        text, problem = _decode(raw)
        return LoadedText(
            mask(text),
            stamp if is_settled and len(raw) == status.st_size else None,
            digest=hashlib.sha256(raw).hexdigest(),
            error=problem,
            is_external=not Path(os.path.realpath(path)).is_relative_to(self.root),
        )

    def _block_content(self, block: MemoryBlock, text: LoadedText) -> BlockContent:
        if (
            isinstance(block, MessageMemoryBlock) and text.text
        ):  # `letter_body` decodes a letter by its declared character set
            try:
                return BlockContent(letter_body(text.text), text, is_external=text.is_external)
            except Unreadable as error:
                return _error_content(block.full_path, error.message, text)
        location = block.content_location or block.id
        if text.error is not None:
            return _error_content(location, text.error, text)
        content = text.text
        line_range = _line_range(block)
        if line_range is not None:
            content, line_count = text.lines(*line_range)
            if not content and line_range[0] > line_count:
                return _error_content(location, f"has {line_count} lines, there is no line {line_range[0]}", text)
        elif isinstance(block, KnowledgeMemoryBlock) and block.subtopic:
            content = section(text.text, block.subtopic)
        return BlockContent(content, text, digest=_changed_digest(block, text), is_external=text.is_external)


def _line_range(block: MemoryBlock) -> tuple[int, int | None] | None:
    if isinstance(block, FileMemoryBlock):
        return None if block.start_line is None else (block.start_line, block.end_line)
    start, _, end = str(block.metadata.get("lines", "")).partition("-")
    return (int(start), int(end) if end.isdecimal() else None) if start.isdecimal() and int(start) > 0 else None


def _changed_digest(block: MemoryBlock, text: LoadedText) -> str | None:
    """Return the file's present digest if the file has changed since the block was created, else None."""
    previous_digest = block.digest if isinstance(block, FileMemoryBlock) else block.metadata.get("digest")
    if not previous_digest or text.digest is None:
        return None
    return None if str(previous_digest).removeprefix("sha256:") == text.digest else text.digest


def _error_content(location: str, error: str, text: LoadedText | None = None) -> BlockContent:
    return BlockContent(f"[{location}: {error}]", text, error=error, is_external=text.is_external if text else False)


def _describe_error(error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return "does not exist"
        case PermissionError():
            return "cannot be read (permission denied)"
        case OSError(errno=int(code)):
            return f"cannot be read ({os.strerror(code)})"
    return " ".join(str(getattr(error, "message", error)).split())


def _decode(raw: bytes) -> tuple[str, str | None]:
    """Return the text, and the problem if it is not UTF-8, else None. Bytes that are not UTF-8 become surrogate escapes."""
    if b"\0" in raw:
        return "", "is a binary file, not text"
    try:
        return raw.decode("utf-8-sig"), None
    except UnicodeDecodeError as error:
        return raw.decode("utf-8", "surrogateescape"), f"is not UTF-8 (byte {error.start})"


def letter_body(text: str) -> str:
    """Return the body of a letter (RFC 5322), or the whole text without a header. Raises Unreadable."""
    from hivemind.mail.parse import parse_message  # imported here, because contexts without mail need no parser

    with boundary("letter"):
        return parse_message(text.encode("utf-8", "surrogateescape"), "").body


def current_mail_path(full_path: str, path_of: Callable[[str], str]) -> str:
    """Return the current path of a letter in a Maildir: `full_path`, or the path in cur/ to which a mail program has moved it."""
    path = path_of(full_path)
    if os.path.exists(path):
        return full_path
    folder, name = os.path.split(path)
    mailbox, subfolder = os.path.split(folder)
    if subfolder not in ("new", "cur"):
        return full_path
    base = name.partition(":")[0]
    try:
        names = sorted(os.listdir(os.path.join(mailbox, "cur")))
    except OSError:
        return full_path
    return next((os.path.join(mailbox, "cur", name) for name in names if name.partition(":")[0] == base), full_path)
