"""Markdown by its heading hierarchy: headings are interior, paragraphs, list items, tables and code are leaves.

What CommonMark and GitHub's tables call blocks, by markdown-it-py, whose work grows with the text. A list item with a list
below it is interior. Thematic breaks and comments are gaps: they say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from hivemind.documents.formats.outline import Headings, Lines, Piece

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["markdown"]

_KINDS = {"fence": "code", "code_block": "code", "table_open": "table", "blockquote_open": "quote"}
_SILENT = frozenset({"hr", "inline", "paragraph_close", "heading_close"})
_LONGEST_TITLE = 1_000
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    """Blocks only: what stands within a line is the reader's."""
    from markdown_it import MarkdownIt  # late: who reads no Markdown need not load it

    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable("table").disable("reference")
    parser.core.ruler.enableOnly("block")
    return parser


def plain_title(text: str) -> str:
    """A heading's words without its markup; of a very long one the first 1,000 characters."""
    text = text[:_LONGEST_TITLE]
    return " ".join(re.sub(r"[*`]+|(?<!\w)_+|_+(?!\w)", "", _LINK.sub(r"\1", text)).split())


def markdown(text: str, first_line: int = 0) -> list[Piece]:
    """The pieces of a Markdown text in reading order, from line `first_line` (counted from 0) on."""
    source = Lines(text)
    starts = list(_starts(source, first_line))
    nexts = [*(start[0] for start in starts[1:]), len(source)]
    return [
        source.piece(kind, depth, first, min(after, following), title)
        for (first, after, kind, depth, title), following in zip(starts, nexts, strict=False)
    ]


def _starts(source: Lines, first_line: int) -> Iterator[tuple[int, int, str, int, str]]:
    """(first line, the line after it at the latest, kind, depth, title) of each piece; a piece ends where the next begins."""
    shown = [
        line.replace("\r", " ") if at >= first_line and line.strip() else "" for at, line in enumerate(source.lines)
    ]
    tokens = _parser().parse("\n".join(shown))
    headings, items, whole, last = Headings(), list[int](), -1, -1
    for at, token in enumerate(tokens):
        kind = token.type
        if whole >= 0:  # within what is read as a whole, up to its end on this level
            whole = -1 if token.nesting < 0 and token.level == whole else whole
            continue
        if token.nesting > 0 and kind in _KINDS:
            whole = token.level
        if kind == "list_item_close":
            items.pop()
        if token.map is None or kind in _SILENT or kind.endswith("list_open"):
            continue
        first, after = token.map
        depth, title = headings.depth + len(items), ""
        if kind == "list_item_open":
            items.append(after)
            kind = "item"
        elif items:
            if not tokens[at - 1].type.endswith("list_close"):
                continue  # it is a part of its item, unless a list within stands before it
            kind, after = "paragraph", items[-1]
        elif kind == "heading_open":
            title = plain_title(" ".join(tokens[at + 1].content.split()))
            kind, depth = "heading", headings.enter(int(token.tag[1]))
        elif kind == "html_block" and re.match(r"\s*<!--.*-->[^\n]*\s*\Z", token.content, re.DOTALL):
            continue
        else:
            kind = _KINDS.get(kind, "paragraph")
        if first > last:  # "- - a" begins two items on one line: one piece
            last = first
            yield first, after, kind, depth, title
