"""Read a file into an outline: its text, title, labels and pieces. The file's extension decides the format."""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from hivemind import frontmatter
from hivemind.boundary import boundary
from hivemind.documents.formats import outline
from hivemind.documents.formats.code import python, source_code
from hivemind.documents.formats.extracted import Extract, pdf
from hivemind.documents.formats.html import html
from hivemind.documents.formats.letters import letters
from hivemind.documents.formats.markdown import markdown
from hivemind.documents.formats.outline import Outline, Piece, decode_text, split_long
from hivemind.documents.formats.plain import plain
from hivemind.documents.formats.restructured import restructured
from hivemind.documents.node import DocmemError
from hivemind.errors import UserError
from hivemind.masking import mask


def read_bytes(path: str, file: int | None = None) -> tuple[bytes, os.stat_result]:
    """Return the content and the stat of a file. `file` is the file's descriptor if it is open already; it is closed.

    Raises DocmemError if the file is not a regular file, is larger than 64 MiB or cannot be read.
    """
    try:
        with open(path if file is None else file, "rb", opener=_open_nonblocking) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DocmemError("is not a regular file", location=path)
            if status.st_size > outline.MAX_FILE_BYTES:
                size = f"{outline.MAX_FILE_BYTES >> 20} MiB"
                raise DocmemError(f"is larger than {size}", location=path, remedy="split it")
            return stream.read(), status
    except OSError as error:
        raise DocmemError(f"cannot be read ({error.strerror})", location=path) from None


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # O_NONBLOCK: do not wait for a FIFO's writer


_ENDINGS = {
    "markdown": ".md .markdown .mdown .mkd .mdx",
    "restructured": ".rst .rest",
    "python": ".py .pyi .pyw",
    "code": ".js .mjs .cjs .ts .tsx .jsx .go .rs .java .c .h .cc .cpp .hpp .cs .rb .php .swift .kt .scala .lua .pl .ex .exs"
    " .jl .dart .zig .vue .svelte",
    "html": ".html .htm .xhtml",
    "letters": ".eml .mbox",
    "pdf": ".pdf",
}
EXTRACTED_FORMATS = frozenset({"html", "letters", "pdf"})
"""The formats whose text is extracted. Places in it are lines of the HTML source, all lines of a letter, or pages of the PDF."""
PAGED_FORMATS = frozenset({"letters", "pdf"})
"""The formats in which several passages have the same place, and none spans two places."""
_FORMATS = {ending: name for name, endings in _ENDINGS.items() for ending in endings.split()}
_HEADINGS = re.compile(r"^#{1,6} \S.*(?:\n|\Z)(?=\s|\Z)|^#{1,6} \S.*\n(?=[^#\n])", re.MULTILINE)


def format_of(path: str) -> str:
    """Return the format that belongs to the file's extension, or "plain" for an unknown extension."""
    return _FORMATS.get(os.path.splitext(path)[1].lower(), "plain")


def read_extract(raw: bytes, path: str) -> Extract | None:
    """Extract the text of a PDF, an HTML file or letters; return None for a file of any other format. Raises DocmemError."""
    match format_of(path):
        case "pdf":
            return pdf(raw, path)
        case "html":
            return html(raw, path)
        case "letters":
            return letters(raw, path)
        case _:
            return None


def read_outline(raw: bytes, path: str, count_tokens: Callable[[str], int]) -> Outline:
    """Return the outline of a file. The extension of `path` decides the format; the file's stem is the default title.

    Raises DocmemError, which names the file and, if known, the line; Unreadable if reading fails in any other way.
    """
    with boundary("document", path):
        file_outline = _read(raw, path, count_tokens)
        outline.check_limit(
            max((piece.depth for piece in file_outline.pieces), default=0), outline.MAX_DEPTH, "levels", path
        )
        for text in (file_outline.text, file_outline.title, *file_outline.labels):
            text.encode()  # a lone surrogate could not be stored
        return file_outline


def _read(raw: bytes, path: str, count_tokens: Callable[[str], int]) -> Outline:
    format_name, title, places, values, note = format_of(path), "", None, dict[str, Any](), None
    if (extract := read_extract(raw, path)) is not None:
        text, pieces, places, title = extract.text, extract.pieces, extract.places, extract.title
    else:
        text = mask(decode_text(raw, path))
        outline.check_limit(text.count("\n"), outline.MAX_LINES, "lines", path)
        if format_name == "plain" and len(_HEADINGS.findall(text[:20_000])) >= 2:
            format_name = "markdown"  # a text file written as Markdown
        if format_name == "markdown":
            values, body_line, note = _front_matter(text, path)
            pieces = markdown(text, body_line - 1)
            if body_line > 1:
                head = "\n".join(text.split("\n", body_line - 1)[: body_line - 1])
                pieces.insert(0, Piece("frontmatter", 1, 0, len(head.rstrip("\r\n"))))
        else:
            parsers = {"restructured": restructured, "python": python, "code": source_code, "plain": plain}
            pieces = parsers[format_name](text)
    token_counts: dict[str, int] = {}  # counted while splitting

    def count_part(part: str) -> int:
        token_counts[part] = part_tokens = count_tokens(part)
        return part_tokens

    parts = tuple(split_long(text, pieces, count_part))
    outline.check_limit(len(parts), outline.MAX_PARTS, "parts", path)
    bodies = (text[piece.start : piece.end] for piece in parts)
    tokens = tuple(token_counts[body] if body in token_counts else count_tokens(body) for body in bodies)
    lines = None
    if places is not None:
        starts = [piece.start for piece in pieces]
        lines = tuple(places[bisect_right(starts, piece.start) - 1] for piece in parts)
    title = title or _title(values, pieces, os.path.splitext(os.path.basename(path))[0])
    return Outline(text, format_name, title, _labels(values), parts, tokens, note, lines, values)


def _front_matter(text: str, path: str) -> tuple[dict[str, Any], int, str | None]:
    """Parse the front matter; return its values, the first line of the body, and a parsing error or None."""
    head, _, body_line = frontmatter.split(text)
    if head is None:
        return {}, 1, None
    try:
        return frontmatter.parse(head, path, first_line=2).values, body_line, None
    except UserError as error:  # the body can still be searched and cited
        return {}, body_line, f"front matter: {error}"


def _title(values: dict[str, Any], pieces: Sequence[Piece], stem: str) -> str:
    title = values.get("title")
    if isinstance(title, str | int | float) and str(title).strip():
        return " ".join(str(title).split())
    return next((p.title for p in pieces if p.kind == "heading" and p.title and p.depth == 1), "") or stem


def _labels(values: dict[str, Any]) -> tuple[str, ...]:
    labels: list[str] = []
    for key in ("topic", "subtopic", "tags", "keywords", "aliases"):
        value = values.get(key)
        if isinstance(value, str):
            labels += value.split(",") if key in ("tags", "keywords") else [value]
        elif isinstance(value, list):
            labels += [str(part) for part in value]
    return tuple(dict.fromkeys(" ".join(part.split()) for part in labels if part.strip()))
