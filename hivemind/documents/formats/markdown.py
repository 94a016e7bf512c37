"""Markdown by its heading hierarchy: headings are interior, paragraphs, list items, tables and code are leaves.

What CommonMark and GitHub's tables call blocks, as far as a hierarchy of citable lines needs them; a list item with a
list below it is interior. Thematic breaks and comments are gaps: they say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hivemind.documents.formats.headings import Headings
from hivemind.documents.formats.outline import Lines, Piece

__all__ = ["markdown", "plain_title"]

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)$")
_BREAK = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)")
_QUOTE = re.compile(r" {0,3}>")
_DELIMITER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_COMMENT = re.compile(r" {0,3}<!--")
_CLOSING = re.compile(r"(?:^|[ \t])#+$")
_LONGEST_TITLE = 1_000
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")


def plain_title(text: str) -> str:
    """A heading's words without its markup; of a very long one the first 1,000 characters."""
    text = text[:_LONGEST_TITLE]
    return " ".join(re.sub(r"[*`]+|(?<!\w)_+|_+(?!\w)", "", _LINK.sub(r"\1", text)).split())


def markdown(text: str, first_line: int = 0) -> list[Piece]:
    """The pieces of a Markdown text in reading order, from line `first_line` (counted from 0) on."""
    return list(_Blocks(Lines(text)).read(first_line))


@dataclass(frozen=True, slots=True)
class _Item:
    """A list item that may still go on: the columns at which its marker and its content stand."""

    indent: int
    content: int

    @property
    def inside(self) -> int:
        """From this column on a line belongs to the item. Two are enough, also below `10.`: many people write so."""
        return min(self.content, self.indent + 2)


class _Blocks:
    def __init__(self, source: Lines) -> None:
        self.source = source
        self.headings = Headings()
        self.last_comment_end = max((at for at, line in enumerate(source.lines) if "-->" in line), default=-1)

    @property
    def depth(self) -> int:
        return self.headings.depth

    def read(self, at: int) -> Iterator[Piece]:
        source = self.source
        while at < len(source):
            line = source.lines[at]
            if source.blank(at) or _BREAK.match(line):
                at += 1
            elif _COMMENT.match(line):
                at = self._after_comment(at)
            elif found := _ATX.match(line):
                yield self._heading(len(found[1]), _CLOSING.sub("", (found[2] or "").rstrip()), at, at + 1)
                at += 1
            elif fence := self._fence(at):
                yield source.piece("code", self.depth, at, fence)
                at = fence
            elif source.indent(at) >= 4:
                at, piece = self._indented(at)
                yield piece
            elif _ITEM.match(line):
                at, items = self._list(at)
                yield from items
            else:
                at, piece = self._text(at)
                yield piece

    def _heading(self, level: int, title: str, first: int, after: int) -> Piece:
        return self.source.piece("heading", self.headings.enter(level), first, after, plain_title(title))

    def _after_comment(self, at: int) -> int:
        if at > self.last_comment_end:
            return at + 1  # it never ends: not a comment
        return next(end for end in range(at, len(self.source)) if "-->" in self.source.lines[end]) + 1

    def _fence(self, at: int) -> int | None:
        """The line after the fenced code that begins here, or None."""
        found = _FENCE.match(self.source.lines[at])
        if found is None or (found[2][0] == "`" and "`" in found[3]):
            return None
        closing = re.compile(rf"[ \t]*{re.escape(found[2][0])}{{{len(found[2])},}}[ \t]*$")
        for end in range(at + 1, len(self.source)):
            if closing.match(self.source.lines[end]):
                return end + 1
        return len(self.source)

    def _indented(self, at: int) -> tuple[int, Piece]:
        end = at + 1
        while end < len(self.source) and (self.source.blank(end) or self.source.indent(end) >= 4):
            end += 1
        return end, self.source.piece("code", self.depth, at, end)

    def _text(self, at: int) -> tuple[int, Piece]:
        """A paragraph, quote or table; or a heading, if a line of = or - is below it."""
        source, first = self.source, at
        if _QUOTE.match(source.lines[at]):
            kind = "quote"
        elif "|" in source.lines[at] and at + 1 < len(source) and _is_delimiter(source.lines[at + 1]):
            kind = "table"
        else:
            kind = "paragraph"
        at += 1
        while at < len(source) and not source.blank(at):
            if kind == "paragraph" and (under := _SETEXT.match(source.lines[at])):
                title = " ".join(source.lines[first:at])
                return at + 1, self._heading(1 if under[1][0] == "=" else 2, title, first, at + 1)
            if self._interrupts(at, kind):
                break
            at += 1
        return at, source.piece(kind, self.depth, first, at)

    def _interrupts(self, at: int, kind: str) -> bool:
        line = self.source.lines[at]
        if _ATX.match(line) or _COMMENT.match(line) or _BREAK.match(line) or self._fence(at):
            return True
        if kind == "table":
            return "|" not in line
        if kind == "paragraph" and _QUOTE.match(line):
            return True
        item = _ITEM.match(line)
        # a number that merely begins a line of prose starts no list, unless it is 1 (CommonMark, list items)
        return item is not None and item.end() < len(line) and (item[2] in "-*+" or item[2][:-1] == "1")

    def _list(self, at: int) -> tuple[int, list[Piece]]:
        """The line after a list, and its items: those nested in one a level deeper, and paragraphs that go on one."""
        source = self.source
        found: list[Piece] = []
        items: list[_Item] = []  # the items that we are in, outermost first
        kind, first, depth = "item", at, self.depth  # the piece at work
        while at < len(source):
            if source.blank(at):
                at += 1
                continue
            marker, indent = self._marker(at, items), source.indent(at)
            if not marker and self._ends_list(at, indent, items[0]):
                break
            inner = len(items)
            if marker or source.blank(at - 1):
                while items and indent < items[-1].inside:
                    items.pop()
            if marker or len(items) < inner:
                if inner:
                    found.append(source.piece(kind, depth, first, at))
                first, depth = at, self.depth + len(items)
                kind = "item" if marker else "paragraph"
            if marker:
                items.append(_Item(indent, indent + marker))
            at = self._fence(at) or at + 1
        found.append(source.piece(kind, depth, first, at))
        return at, found

    def _marker(self, at: int, items: list[_Item]) -> int:
        """How many columns the list marker that the line begins with takes, or 0 if there is none."""
        line = self.source.lines[at]
        found = _ITEM.match(line)
        if found is None or _BREAK.match(line) or (items and self.source.indent(at) >= items[-1].content + 4):
            return 0
        return len(found[2]) + 1

    def _ends_list(self, at: int, indent: int, outermost: _Item) -> bool:
        if indent >= outermost.inside:
            return False
        line = self.source.lines[at]
        starts = _ATX.match(line) or _COMMENT.match(line) or _BREAK.match(line) or self._fence(at)
        return self.source.blank(at - 1) or bool(starts)


def _is_delimiter(line: str) -> bool:
    return "-" in line and _DELIMITER.match(line) is not None
