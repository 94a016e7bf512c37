"""Plain text by paragraphs: runs of lines with no blank line between them."""

from __future__ import annotations

from hivemind.documents.formats.outline import Lines, Piece

__all__ = ["plain"]


def plain(text: str) -> list[Piece]:
    """The paragraphs of a text, all at the top."""
    source = Lines(text)
    found, at = [], 0
    while at < len(source):
        if source.blank(at):
            at += 1
            continue
        first = at
        while at < len(source) and not source.blank(at):
            at += 1
        found.append(source.piece("paragraph", 1, first, at))
    return found
