"""Extract HTML in one pass over its tags, without a tree: work and memory grow with the page, not with its nesting.

Headings are interior nodes. Paragraphs, list items, tables and similar elements are leaves with everything inside them.
Text outside these elements becomes paragraphs. Optional end tags (`</p>`, `</li>`) may be missing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from html import unescape
from itertools import chain

from hivemind.documents.formats.extracted import Extract, ExtractPart, join_parts
from hivemind.documents.formats.outline import Headings, decode_text

_LEAVES = {
    "p": "paragraph", "li": "item", "dt": "term", "dd": "item", "pre": "code", "table": "table", "blockquote": "quote",
    "figcaption": "paragraph", "caption": "paragraph", "summary": "paragraph", "title": "title",
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "heading"),
}  # fmt: skip
_LISTS = frozenset({"ul", "ol", "dl", "menu"})
_ITEMS = frozenset({"li", "dt", "dd"})
_EXPLICIT_END = frozenset({"table", "blockquote", "pre"})
"""Elements that are leaves and end only at their end tag."""
_BLOCKS = _LISTS.union(
    _LEAVES,
    (
        "address", "article", "aside", "body", "center", "details", "dialog", "div", "fieldset", "figure", "footer", "form",
        "head", "header", "hgroup", "hr", "html", "main", "nav", "search", "section", "tbody", "td", "tfoot", "th", "thead", "tr",
    ),
)  # fmt: skip
_SILENT = frozenset({"template", "noscript", "svg", "iframe", "object"})
_END_OF_RAW = {name: re.compile(rf"</{name}", re.IGNORECASE) for name in ("script", "style")}
_IS_TAG = re.compile(r"</?[A-Za-z]")
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*+)(?:[^>\"']++|\"[^\"]*\"|'[^']*')*+>")
_TAG_TO_BRACKET = re.compile(r"<(/?)([A-Za-z][^\s/>]*+)[^>]*+>")
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9A-Fa-f]{7,});?")
_CHARSET = re.compile(rb"(?i)<(?:meta\s[^>]{0,500}?charset|\?xml\s[^>]{0,500}?encoding)\s*=\s*[\"']?\s*([\w.:-]{1,40})")
_ENCODINGS = re.compile(
    r"utf-8|ascii|iso8859-\d+|cp\d+|koi8-\w|gb\w+|big5\w*|euc_\w+|shift_jis\w*|iso2022_\w+|mac-\w+|tis-620"
)


def html(raw: bytes, path: object) -> Extract:
    page = _Page()
    return join_parts(page.parts(_decode(raw, path)), lambda: page.title, path)


def _decode(raw: bytes, path: object) -> str:
    """Decode the page by its declared encoding. With a byte-order mark or without a usable declaration, call `decode_text`."""
    charset = _CHARSET.search(raw[:2048])
    if charset and not raw.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        with suppress(LookupError):
            codec_name = codecs.lookup(charset[1].decode()).name
            if _ENCODINGS.fullmatch(codec_name):  # some others take quadratic time
                return raw.decode(codec_name, "replace")
    return decode_text(raw, path)


def _tags(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yield (start, end, name, True for an end tag) of each tag in order.

    A comment is yielded as a tag without a name. The tag of a script or style extends over the element's content.
    """
    at, tag = text.find("<"), _TAG
    while at >= 0:
        end, name, closes = at + 1, "", False
        if text.startswith("<!--", at):
            after = text.find("-->", at + 4)
            end = after + 3 if after >= 0 else len(text)
        elif text.startswith(("<!", "<?"), at):
            end = text.find(">", at) + 1 or len(text)
        elif _IS_TAG.match(text, at):
            match = tag.match(text, at)
            if match is None and tag is _TAG:
                tag = _TAG_TO_BRACKET  # unclosed quote: ignore quotes from here on
                match = tag.match(text, at)
            if match is None:
                return  # no further tag is closed
            end, name, closes = match.end(), match[2].lower(), bool(match[1])
            if name in _END_OF_RAW and not closes:
                after_raw = _END_OF_RAW[name].search(text, end)
                end = after_raw.start() if after_raw else len(text)
        if end > at + 1:
            yield at, end, name, closes
        at = text.find("<", end)


class _Page:
    """The state of reading a page: the open leaf ("" between leaves) and the leaf's text so far."""

    def __init__(self) -> None:
        self.title = ""
        self._headings = Headings()
        self._leaf = ""
        self._nested = 0  # open elements of the leaf's kind inside the leaf; inside an item: open lists
        self._texts: list[str] = []
        self._has_words = False
        self._first = self._last = 1

    def parts(self, text: str) -> Iterator[ExtractPart]:
        """Yield the parts of the page in order."""
        at, line, silent, depth = 0, 1, "", 0
        for start, end, name, closes in chain(_tags(text), [(len(text), len(text), "", False)]):
            if not silent:
                self._add_text(text[at:start], line)
            line += text.count("\n", at, start)
            if silent:
                depth += (-1 if closes else 1) if name == silent else 0
                silent = silent if depth else ""
            elif name in _SILENT and not closes:
                silent, depth = name, 1
            elif name in _BLOCKS:
                yield from self._end_element(name) if closes else self._begin_element(name, line)
            elif name == "br":
                self._texts.append("\n")
            line += text.count("\n", start, end)
            at = end
        yield from self._finish_leaf()

    def _add_text(self, text: str, line: int) -> None:
        if words := text.strip():
            first = line + text.count("\n", 0, text.index(words[0]))
            if not self._leaf and not self._has_words:
                self._first = first
            self._has_words = True
            self._last = first + words.count("\n")
        self._texts.append(unescape(_LONG_NUMBER.sub("\ufffd", text)))

    def _begin_element(self, name: str, line: int) -> Iterator[ExtractPart]:
        leaf = self._leaf
        if (leaf in _ITEMS and name in _LISTS) or (leaf in _EXPLICIT_END and name == leaf):
            self._nested += 1
        inside = leaf in _EXPLICIT_END or (leaf in _ITEMS and (self._nested > 0 or name not in _ITEMS))
        if inside or (leaf and leaf != "p" and leaf not in _ITEMS and not self._has_words):
            self._texts.append(" ")  # a block inside a heading does not end it
            return
        yield from self._finish_leaf()
        if name in _LEAVES:
            self._leaf, self._first, self._last = name, line, line

    def _end_element(self, name: str) -> Iterator[ExtractPart]:
        leaf = self._leaf
        if leaf in _EXPLICIT_END:
            ends, counts = name == leaf, name == leaf
        elif leaf in _ITEMS:
            counts = name in _LISTS
            ends = counts or (name in _ITEMS and not self._nested)
        else:
            ends, counts = True, False
        if ends and counts and self._nested:
            self._nested -= 1
            ends = False
        if ends:
            yield from self._finish_leaf()
        else:
            self._texts.append(" ")

    def _finish_leaf(self) -> Iterator[ExtractPart]:
        """Close the open leaf and yield it. If no leaf is open, yield the text since the last leaf, if it is not blank."""
        leaf, text = self._leaf, "".join(self._texts)
        self._leaf, self._nested, self._texts, self._has_words = "", 0, [], False
        kind = _LEAVES.get(leaf, "paragraph")
        text = text.strip("\n") if leaf == "pre" else " ".join(text.split())
        if not text.strip():
            return
        if kind == "title":
            self.title = self.title or text
            return
        depth = self._headings.enter(int(leaf[1])) if kind == "heading" else self._headings.depth
        yield ExtractPart(kind, depth, text, (self._first, self._last))
