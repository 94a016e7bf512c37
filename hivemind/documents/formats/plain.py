"""Split plain text into titles and paragraphs.

A title is underlined, below a rule, numbered, in capitals, or marked by `=` or by Vim's tags (`*tag*`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hivemind.documents.formats.outline import Headings, LineReader, Piece

_RULE = re.compile(r"([=\-~^+*#_])\1{2,}[ \t]*$")
_MIN_RULER = 40  # a rule of this length separates sections: the line below it is a title
_MAX_TITLE = 80
_MARKED = re.compile(r"(={1,6})[ \t]+(\S.*?)(?:[ \t]+=+)?[ \t]*$")
_TAGS = re.compile(r"(?:(?:^|[ \t])[ \t]*\*[^\s*|]+\*)+[ \t]*$")  # Vim's: names by which the section is linked
_ERROR_TAGS = re.compile(r"(?:\s*\*E\d+\*)+\s*$")  # numbers of errors: within a section
_NUMBERED = re.compile(
    r"(\d{1,3}(?:\.\d{1,3}){0,5})\.?[ \t]+\S|(?:chapter|part|appendix)[ \t]+[\dIVXA-Z]{1,5}\b", re.IGNORECASE
)
_ENDS_SENTENCE = (".", ",", ";", ":", "!", ">")
_BELOW_RULES, _BELOW_NUMBERS, _TAG_LEVEL = 10, 20, 30  # levels of numbered titles, of titles in capitals, and of tags


def plain(text: str) -> list[Piece]:
    """Split a plain text; return its headings and paragraphs in reading order."""
    return list(_pieces(LineReader(text)))


def _pieces(source: LineReader) -> Iterator[Piece]:
    headings, styles, at = Headings(), list[str](), 0
    while at < len(source):
        if source.is_blank(at) or (_RULE.match(source.lines[at]) and _title(source, at, styles) is None):
            at += 1
            continue
        if (heading := _title(source, at, styles)) is not None:
            after, level, title = heading
            yield source.piece("heading", headings.enter(level), at, after, title)
            at = after
            continue
        first, at = at, at + 1
        while at < len(source) and not source.is_blank(at):
            if _TAGS.match(source.lines[at]) or _is_ruler(source.lines[at]):
                break  # the next section follows without a blank line
            at += 1
        yield source.piece("paragraph", headings.depth, first, at)


def _is_ruler(line: str) -> bool:
    return len(line) >= _MIN_RULER and _RULE.match(line) is not None


def _title(source: LineReader, at: int, styles: list[str]) -> tuple[int, int, str] | None:
    """Return the line after the title that begins at line `at`, its level and its text; None if none begins there.

    `styles` lists the characters that draw rules, in order of first use. A character's position decides the title's level.
    """
    line, under, below = (source.lines[place] if place < len(source) else "" for place in (at, at + 1, at + 2))
    title, is_alone = line.strip(), not under.strip()
    text, tags = (title[: found.start()], found[0]) if (found := _TAGS.search(title)) else (title, "")
    text = " ".join(text.split())
    is_error = _ERROR_TAGS.match(tags) is not None
    if rule := _RULE.match(line):
        is_over = (match := _RULE.match(below)) is not None and match[1] == rule[1]
        if not under.strip() or _RULE.match(under) or not (is_over or _is_ruler(line)):
            return None
        inner = _TAGS.sub("", under.strip())
        return at + 2 + is_over, _level(styles, rule[1]), " ".join((inner or under).replace("*", "").split())
    if (rule := _RULE.match(under)) and len(title) > 2 and abs(len(under.rstrip()) - len(line.rstrip())) <= 2:
        return at + 2, _level(styles, rule[1]), title
    if marked := _MARKED.match(line):
        return at + 1, len(marked[1]), marked[2]
    if tags and not text and not is_error:
        return at + 1, _TAG_LEVEL, " ".join(tags.replace("*", " ").replace("'", " ").split())
    is_above_indented = source.indent(at) == 0 < source.indent(min(at + 1, len(source) - 1))
    if len(text) > _MAX_TITLE or text.endswith(_ENDS_SENTENCE) or not (is_alone or is_above_indented):
        return None
    if (number := _NUMBERED.match(text)) and is_alone:
        return at + 1, _BELOW_RULES + (number[1] or "").count("."), text
    if (tags and is_alone) or (text.isupper() and len(text) > 3 and not text.isdigit()):
        return at + 1, _BELOW_NUMBERS, text
    return None


def _level(styles: list[str], sign: str) -> int:
    if sign not in styles:
        styles.append(sign)
    return 1 + styles.index(sign)
