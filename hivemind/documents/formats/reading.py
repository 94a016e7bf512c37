"""A file's bytes as an outline: what format it has, its title and labels, its pieces."""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hivemind import frontmatter
from hivemind.boundary import boundary
from hivemind.documents.formats import outline
from hivemind.documents.formats.code import python, source_code
from hivemind.documents.formats.extracted import Extract, pdf
from hivemind.documents.formats.html import html
from hivemind.documents.formats.markdown import markdown
from hivemind.documents.formats.outline import Outline, Piece, plain, split_long
from hivemind.documents.formats.restructured import restructured
from hivemind.documents.node import DocmemError
from hivemind.errors import UserError
from hivemind.masking import mask

__all__ = ["EXTRACTED", "decoded", "format_of", "read_bytes", "read_extract", "read_outline"]


def read_bytes(path: str, file: int | None = None) -> tuple[bytes, os.stat_result]:
    """The content of a file (of an open one, if given) and its stat, taken while it was open.

    Raises DocmemError for what is no regular file, is larger than 64 MiB or cannot be read.
    """
    try:
        with os.fdopen(file, "rb") if file is not None else open(path, "rb", opener=_without_waiting) as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise DocmemError("is no regular file", where=path)
            if found.st_size > outline.LARGEST:
                raise DocmemError(f"is larger than {outline.LARGEST >> 20} MiB", where=path, mend="split it")
            return opened.read(), found
    except OSError as error:
        raise DocmemError(f"cannot be read ({error.strerror})", where=path) from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would wait for its writer for ever


_ENDINGS = {
    "markdown": ".md .markdown .mdown .mkd .mdx",
    "restructured": ".rst .rest",
    "python": ".py .pyi .pyw",
    "code": ".js .mjs .cjs .ts .tsx .jsx .go .rs .java .c .h .cc .cpp .hpp .cs .rb .php .swift .kt .scala .lua .pl .ex .exs"
    " .jl .dart .zig .vue .svelte",
    "html": ".html .htm .xhtml",
    "pdf": ".pdf",
}
EXTRACTED = frozenset({"html", "pdf"})
"""Formats whose text is got out of the file: it stands there at the lines of elements, or on pages."""
_FORMATS = {ending: name for name, endings in _ENDINGS.items() for ending in endings.split()}
_HEADINGS = re.compile(r"^#{1,6} \S.*(?:\n|\Z)(?=\s|\Z)|^#{1,6} \S.*\n(?=[^#\n])", re.MULTILINE)


def decoded(raw: bytes, where: object) -> str:
    """The text of a file: UTF-8, UTF-16 with a byte-order mark, else one byte a character if it looks like text.

    A byte-order mark is left out.

    Raises DocmemError for what is no text.
    """
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return raw.decode("utf-16")
        except UnicodeDecodeError as error:
            raise DocmemError(f"is no UTF-16 text (byte {error.start})", where=where) from None
    if b"\0" in raw[:65536]:
        raise DocmemError("is no text (it has NUL bytes)", where=where)
    try:
        return raw.decode("utf-8-sig")  # a byte-order mark is no text: it would hide the first heading
    except UnicodeDecodeError as error:
        sample = raw[:65536]
        odd = sum(byte < 32 and byte not in (9, 10, 12, 13, 27) for byte in sample)
        high = sum(byte >= 127 for byte in sample)
        if odd or high * 2 > len(sample):
            raise DocmemError(f"is no text (not UTF-8 at byte {error.start})", where=where) from None
        try:
            return raw.decode("cp1252")
        except UnicodeDecodeError:
            return "".join(map(chr, raw))  # as Latin-1


def format_of(path: str) -> str:
    """The format that a file's name tells, "plain" for any other."""
    return _FORMATS.get(os.path.splitext(path)[1].lower(), "plain")


def read_extract(raw: bytes, path: str) -> Extract | None:
    """What is got out of a PDF or HTML file; None for a file that is its own text. Raises DocmemError."""
    match format_of(path):
        case "pdf":
            return pdf(raw, path)
        case "html":
            return html(raw, path)
        case _:
            return None


def read_outline(raw: bytes, path: str, count: Callable[[str], int]) -> Outline:
    """The outline of a file's content; `path` gives the format by its ending and the title where nothing else does.

    Raises DocmemError that names the file, and the line where there is one; Unreadable whatever it may be that cannot be read.
    """
    with boundary("document", path):
        found = _read(raw, path, count)
        outline.check(max((piece.depth for piece in found.pieces), default=0), outline.MAX_DEPTH, "levels", path)
        for text in (found.text, found.title, *found.labels):
            text.encode()  # half a character could not be stored
        return found


def _read(raw: bytes, path: str, count: Callable[[str], int]) -> Outline:
    form, stem = format_of(path), os.path.splitext(os.path.basename(path))[0]
    extract = read_extract(raw, path)
    if extract is not None:
        title = extract.title or _title({}, extract.pieces, stem)
        return _outline(path, extract.text, form, title, (), extract.pieces, None, count, extract.places)
    text = mask(decoded(raw, path))
    outline.check(text.count("\n"), outline.MAX_LINES, "lines", path)
    if form == "plain" and len(_HEADINGS.findall(text[:20_000])) >= 2:
        form = "markdown"  # a text file written as Markdown
    if form != "markdown":
        parsers = {"restructured": restructured, "python": python, "code": source_code}
        pieces = parsers.get(form, plain)(text)
        return _outline(path, text, form, _title({}, pieces, stem), (), pieces, None, count)
    values, body_line, note = _front_matter(text, path)
    pieces = markdown(text, body_line - 1)
    if body_line > 1:
        pieces.insert(
            0,
            Piece("frontmatter", 1, 0, len("\n".join(text.split("\n", body_line - 1)[: body_line - 1]).rstrip("\r\n"))),
        )
    found = _outline(path, text, form, _title(values, pieces, stem), _labels(values), pieces, note, count)
    return replace(found, values=values)


def _outline(
    path: str, text: str, form: str, title: str, labels: tuple[str, ...], pieces: Sequence[Piece], note: str | None,
    count: Callable[[str], int], places: Sequence[tuple[int, int]] | None = None,
) -> Outline:  # fmt: skip
    known: dict[str, int] = {}  # what had to be counted to see whether it is too long

    def counted(part: str) -> int:
        known[part] = found = count(part)
        return found

    found = tuple(split_long(text, pieces, counted))
    outline.check(len(found), outline.MAX_PARTS, "parts", path)
    bodies = (text[piece.start : piece.end] for piece in found)
    tokens = tuple(known[body] if body in known else count(body) for body in bodies)
    starts, lines = [piece.start for piece in pieces], None
    if places is not None:
        lines = tuple(places[bisect_right(starts, piece.start) - 1] for piece in found)
    return Outline(text, form, title, labels, found, tokens, note, lines)


def _front_matter(text: str, path: str) -> tuple[dict[str, Any], int, str | None]:
    """(values, line at which the body begins, what is wrong with it)."""
    head, _, body_line = frontmatter.split(text)
    if head is None:
        return {}, 1, None
    try:
        return frontmatter.parse(head, path, first_line=2).values, body_line, None
    except UserError as error:  # it is still text that people can be referred to
        return {}, body_line, f"front matter: {error}"


def _title(values: dict[str, Any], pieces: Sequence[Piece], stem: str) -> str:
    named = values.get("title")
    if isinstance(named, str | int | float) and str(named).strip():
        return " ".join(str(named).split())
    return next((p.title for p in pieces if p.kind == "heading" and p.title and p.depth == 1), "") or stem


def _labels(values: dict[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for key in ("topic", "subtopic", "tags", "keywords", "aliases"):
        value = values.get(key)
        if isinstance(value, str):
            found += value.split(",") if key in ("tags", "keywords") else [value]
        elif isinstance(value, list):
            found += [str(part) for part in value]
    return tuple(dict.fromkeys(" ".join(part.split()) for part in found if part.strip()))
