"""A file's bytes as an outline: what format it has, its title and labels, its pieces."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from hivemind import frontmatter
from hivemind.documents.errors import DocmemError
from hivemind.documents.formats.markdown import markdown
from hivemind.documents.formats.outline import Outline, Piece, split_long
from hivemind.documents.formats.plain import plain
from hivemind.errors import UserError

__all__ = ["decoded", "read_outline"]

_FORMATS = {
    ".md": "markdown", ".markdown": "markdown", ".mdown": "markdown", ".mkd": "markdown",
    ".txt": "plain", ".text": "plain",
}  # fmt: skip
_PARSERS: dict[str, Callable[[str], list[Piece]]] = {"plain": plain}


def decoded(raw: bytes, where: object) -> str:
    """The text of a file: UTF-8, UTF-16 with a byte-order mark, else one byte a character if it looks like text.

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
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        sample = raw[:65536]
        odd = sum(byte < 32 and byte not in (9, 10, 12, 13, 27) for byte in sample)
        high = sum(byte >= 127 for byte in sample)
        if odd or high * 4 > len(sample):
            raise DocmemError(f"is no text (not UTF-8 at byte {error.start})", where=where) from None
        return raw.decode("latin-1")


def read_outline(raw: bytes, path: str, count: Callable[[str], int]) -> Outline:
    """The outline of a file's content; `path` gives the format by its ending and the title where nothing else does.

    Raises DocmemError that names the file, and the line where there is one.
    """
    stem, ending = os.path.splitext(os.path.basename(path))
    text = decoded(raw, path)
    form = _FORMATS.get(ending.lower(), "plain")
    if form != "markdown":
        pieces = _PARSERS[form](text)
        return _outline(text, form, _title({}, pieces, stem), (), pieces, None, count)
    values, body_line, note = _front_matter(text, path)
    pieces = markdown(text, body_line - 1)
    if body_line > 1:
        end = len(text) if body_line > text.count("\n") + 1 else _offset(text, body_line)
        pieces.insert(0, Piece("frontmatter", 1, 0, len(text[:end].rstrip("\r\n"))))
    return _outline(text, form, _title(values, pieces, stem), _labels(values), pieces, note, count)


def _outline(
    text: str, form: str, title: str, labels: tuple[str, ...], pieces: Sequence[Piece], note: str | None,
    count: Callable[[str], int],
) -> Outline:  # fmt: skip
    found = tuple(split_long(text, pieces, count))
    tokens = tuple(count(text[piece.start : piece.end]) for piece in found)
    return Outline(text, form, title, labels, found, tokens, note)


def _front_matter(text: str, path: str) -> tuple[dict[str, Any], int, str | None]:
    """(values, line at which the body begins, what is wrong with it)."""
    head, _, body_line = frontmatter.split(text)
    if head is None:
        return {}, 1, None
    try:
        return frontmatter.parse(head, path, first_line=2).values, body_line, None
    except UserError as error:  # it is still text that people can be referred to
        return {}, body_line, f"front matter: {error}"


def _offset(text: str, line: int) -> int:
    at = 0
    for _ in range(line - 1):
        at = text.index("\n", at) + 1
    return at


def _title(values: dict[str, Any], pieces: Sequence[Piece], stem: str) -> str:
    named = values.get("title")
    if isinstance(named, str | int | float) and str(named).strip():
        return " ".join(str(named).split())
    return next((piece.title for piece in pieces if piece.title and piece.depth == 1), "") or stem


def _labels(values: dict[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for key in ("topic", "subtopic", "tags", "keywords", "aliases"):
        value = values.get(key)
        if isinstance(value, str):
            found += value.split(",") if key == "tags" else [value]
        elif isinstance(value, list):
            found += [str(part) for part in value]
    return tuple(dict.fromkeys(" ".join(part.split()) for part in found if part.strip()))
