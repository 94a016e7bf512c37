"""Split Markdown by its headings: headings are interior nodes; paragraphs, list items, tables and code are leaves.

markdown-it-py finds the blocks of CommonMark and GitHub's tables in linear time. A list item with a nested list is an
interior node. Thematic breaks and comments are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from hivemind.documents.formats.outline import Headings, LineReader, Piece

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_KINDS = {"fence": "code", "code_block": "code", "table_open": "table", "blockquote_open": "quote"}
_SILENT = frozenset({"hr", "inline", "paragraph_close", "heading_close"})
_MAX_TITLE_CHARS = 1_000
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    """Return a parser for blocks only; inline markup stays in the text."""
    from markdown_it import MarkdownIt  # imported only when Markdown is read

    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable("table").disable("reference")
    parser.core.ruler.enableOnly("block")
    return parser


def plain_title(text: str) -> str:
    """Return the first 1,000 characters of a heading's text, without markup."""
    text = text[:_MAX_TITLE_CHARS]
    return " ".join(re.sub(r"[*`]+|(?<!\w)_+|_+(?!\w)", "", _LINK.sub(r"\1", text)).split())


def markdown(text: str, first_line: int = 0) -> list[Piece]:
    """Return the pieces of a Markdown text in reading order, starting at line `first_line` (counted from 0)."""
    source = LineReader(text)
    starts = list(_starts(source, first_line))
    next_starts = [*(start[0] for start in starts[1:]), len(source)]
    return [
        source.piece(kind, depth, first, min(after, next_start), title)
        for (first, after, kind, depth, title), next_start in zip(starts, next_starts, strict=False)
    ]


def _starts(source: LineReader, first_line: int) -> Iterator[tuple[int, int, str, int, str]]:
    """Yield (first line, end of its block, kind, depth, title) of each piece. A piece ends earlier where the next piece
    begins."""
    visible_lines = [
        line.replace("\r", " ") if at >= first_line and line.strip() else "" for at, line in enumerate(source.lines)
    ]
    tokens = _parser().parse("\n".join(visible_lines))
    headings, items, skipped_level, last = Headings(), list[int](), -1, -1
    for at, token in enumerate(tokens):
        kind = token.type
        if skipped_level >= 0:  # inside a block that is one piece: skip to the block's end
            skipped_level = -1 if token.nesting < 0 and token.level == skipped_level else skipped_level
            continue
        if token.nesting > 0 and kind in _KINDS:
            skipped_level = token.level
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
                continue  # part of its item's piece, except after a nested list
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
