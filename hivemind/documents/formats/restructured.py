"""Split reStructuredText by its sections: titles are interior nodes; paragraphs, items, tables and code are leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hivemind.documents.formats.outline import Headings, LineReader, Piece

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+[ \t]*$")
_ITEM = re.compile(r"[ \t]*([-*+•]|(?:\d{1,9}|#|[A-Za-z])[.)]|\((?:\d{1,9}|#|[A-Za-z])\))[ \t]+\S")
_MARKUP = re.compile(r"\.\.(?:[ \t]|$)")
_CODE = re.compile(r"\.\.[ \t]+(?:code|code-block|sourcecode|parsed-literal|highlight|doctest|testcode|math)::")
_TARGET = re.compile(r"\.\.[ \t]+_|__[ \t]")
_SAYS = re.compile(r"\.\.[ \t]+(?:\[|\|)|\.\.[ \t]+[\w:+.-]+::")
_GRID = re.compile(r"[ \t]*\+[-=+]+\+[ \t]*$")
_RULE = re.compile(r"[ \t]*=+(?:[ \t]+=+)+[ \t]*$")
_ROLE = re.compile(r":[\w:+.-]+:`([^`<]*?)(?:\s*<[^`>]*>)?`|`([^`<]*?)(?:\s*<[^`>]*>)?`_{0,2}")


def restructured(text: str) -> list[Piece]:
    """Split a reStructuredText document; return its pieces in reading order."""
    return list(_BlockReader(LineReader(text)).read())


class _BlockReader:
    def __init__(self, source: LineReader) -> None:
        self.source = source
        self.headings = Headings()
        self.styles: list[tuple[str, bool]] = []  # adornments in order of first use

    def read(self) -> Iterator[Piece]:
        source, at, literal = self.source, 0, False
        while at < len(source):
            line = source.lines[at]
            if source.is_blank(at):
                at += 1
                continue
            kind, end = "paragraph", self._block_end(at)  # indented lines belong to the block
            if literal and source.indent(at) > 0:
                kind = "code"
            elif after := self._title(at):
                yield self._heading(at, after)
                at, literal = after, False
                continue
            elif _ADORNMENT.match(line) and len(line.strip()) >= 4:
                at += 1  # a transition has no text
                continue
            elif _MARKUP.match(line):
                if _TARGET.match(line) or not _SAYS.match(line):
                    at = end  # a target or a comment
                    continue
                kind = "code" if _CODE.match(line) else "paragraph"
            elif table_end := self._table_end(at):
                kind, end = "table", table_end
            elif _ITEM.match(line):
                at, items = self._list(at)
                literal = self._leads_to_literal(items[-1])
                yield from items
                continue
            elif source.indent(at) > 0:
                kind = "quote"
            else:
                end = at + 1
                while end < len(source) and not source.is_blank(end) and not _MARKUP.match(source.lines[end]):
                    end += 1
            piece = source.piece(kind, self.headings.depth, at, end)
            at, literal = end, self._leads_to_literal(piece)
            yield piece

    def _leads_to_literal(self, piece: Piece) -> bool:
        return self.source.text[piece.start : piece.end].rstrip().endswith("::")

    def _title(self, at: int) -> int:
        """Return the line after the section title that begins at line `at`, or 0 if none begins there."""
        lines = self.source.lines
        under = lines[at + 1] if at + 1 < len(lines) else ""
        over = _ADORNMENT.match(lines[at])
        if over:
            below = lines[at + 2] if at + 2 < len(lines) else ""
            same = _ADORNMENT.match(below) and below.strip() == lines[at].strip()
            return at + 3 if same and under.strip() and len(below.strip()) >= len(under.strip()) else 0
        is_under = _ADORNMENT.match(under) and len(under.strip()) >= min(len(lines[at].rstrip()), 4)
        return at + 2 if is_under and self.source.indent(at) == 0 else 0

    def _heading(self, at: int, after: int) -> Piece:
        overlined = after - at == 3
        style = (self.source.lines[after - 1].strip()[0], overlined)
        if style not in self.styles:
            self.styles.append(style)
        title = _ROLE.sub(lambda match: match[1] or match[2] or "", self.source.lines[at + overlined])
        title = " ".join(title.replace("*", "").replace("``", "").split())
        return self.source.piece("heading", self.headings.enter(self.styles.index(style)), at, after, title)

    def _block_end(self, at: int) -> int:
        """Return the line after the block that begins at line `at`. Indented lines below it belong to the block."""
        end = at + 1
        while end < len(self.source) and (self.source.is_blank(end) or self.source.indent(end) > 0):
            end += 1
        return end

    def _table_end(self, at: int) -> int:
        """Return the line after the table that begins at line `at`, or 0 if none begins there."""
        source, is_simple = self.source, _RULE.match(self.source.lines[at]) is not None
        if not is_simple and not _GRID.match(source.lines[at]):
            return 0
        end = at + 1
        while end < len(source) and not source.is_blank(end):
            end += 1
        if is_simple:  # it may contain blank lines and ends with a rule before a blank line
            while end < len(source) and not _RULE.match(source.lines[end - 1]):
                end += 1
                while end < len(source) and not source.is_blank(end):
                    end += 1
            if end >= len(source) and not any(map(_RULE.match, source.lines[at + 1 :])):
                return 0
        return end

    def _list(self, at: int) -> tuple[int, list[Piece]]:
        """Return the line after a list, and its items; nested items are one level deeper."""
        source, base = self.source, self.source.indent(at)
        items: list[Piece] = []
        open_at: list[int] = []  # columns of the open items' markers
        first, depth = at, self.headings.depth
        while at < len(source):
            if source.is_blank(at):
                at += 1
                continue
            indent = source.indent(at)
            can_begin_item = at == first or source.is_blank(at - 1) or (bool(open_at) and indent == open_at[-1])
            has_marker = can_begin_item and _ITEM.match(source.lines[at]) is not None
            if indent < base or (indent == base and not has_marker and at > first):
                break
            if has_marker:
                while open_at and open_at[-1] >= indent:
                    open_at.pop()
                if at > first:
                    items.append(source.piece("item", depth, first, at))
                first, depth = at, self.headings.depth + len(open_at)
                open_at.append(indent)
            at += 1
        items.append(source.piece("item", depth, first, at))
        return at, items
