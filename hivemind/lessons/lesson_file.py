"""The file of a root's lessons, `knowledge/lessons/ROOT.md` (its README describes the form): parse it, add and remove items."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable

from hivemind.frozen import frozen

MAX_CHARS = 1000
"""The length of an item that agents are shown."""
_ITEM, _FENCE = re.compile(r"[-*+][ \t]+(?=\S)"), re.compile(r" {0,3}(```|~~~)")
_PLACE = r"`[^`]+`"
_SOURCE = re.compile(
    rf" ?\((?=for |from )(?:for (?P<places>{_PLACE}(?:, ?{_PLACE})*))?(?:(?:; |(?<=\())from (?P<evidence>[^()]+))?\)$"
)


@frozen
class Lesson:
    """A sentence, the places where it holds (paths and programs), and its evidence in words."""

    text: str
    places: tuple[str, ...] = ()
    evidence: str = ""

    @classmethod
    def parse(cls, item: str) -> Lesson:
        """Return the lesson in an item without its bullet. White space counts as a blank; an invalid character becomes `?`."""
        item = " ".join(item.encode("utf-8", "replace").decode().split())
        source = _SOURCE.search(item)
        if source is None or not item[: source.start()].strip():
            return cls(item)
        places = tuple(re.findall(r"`([^`]+)`", source["places"] or ""))
        return cls(item[: source.start()], places, source["evidence"] or "")

    @property
    def line(self) -> str:
        """The item in the form of the file, without its bullet."""
        places = ", ".join(f"`{place}`" for place in self.places)
        parts = [*([f"for {places}"] if places else []), *([f"from {self.evidence}"] if self.evidence else [])]
        return f"{self.text} ({'; '.join(parts)})" if parts else self.text

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.line.encode()).hexdigest()[:16]


def lessons_in(text: str) -> list[Lesson]:
    """Return the lessons of a file's text, in order."""
    lines = text.split("\n")
    return [Lesson.parse(_ITEM.sub("", " ".join(lines[start:end]), count=1)) for start, end in _spans(lines)]


def with_changes(text: str, added: Iterable[Lesson], removed: Collection[str], title: str) -> str:
    """Return the text with items at its end for the `added` lessons, and without the items with a digest in `removed`.

    All else stays, except for blank lines before added items. An empty file gets a `title`.
    """
    lines = text.split("\n")
    for (start, end), lesson in reversed([*zip(_spans(lines), lessons_in(text), strict=True)]):
        if lesson.digest in removed:
            del lines[start:end]
    text = "\n".join(lines)
    items = "".join(f"- {lesson.line}\n" for lesson in added)
    if not items:
        return text
    if not text.strip():
        return f"# {title}\n\n{items}"
    if sum(bool(_FENCE.match(line)) for line in lines) % 2:
        # a person is writing: an item in a code block would be none
        text = f"{text.rstrip()}\n```\n"
    lines = text.rstrip().split("\n")
    continues_list = any(end == len(lines) for _, end in _spans(lines))
    return f"{text.rstrip()}{chr(10) if continues_list else chr(10) * 2}{items}"


def _spans(lines: list[str]) -> list[tuple[int, int]]:
    """Return the index of the first line, and of the line after the last, for each list item. An item is its first line and the
    indented lines after it."""
    spans, is_code, is_open = list[tuple[int, int]](), False, False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            is_code, is_open = not is_code, False
        elif is_code:
            continue
        elif _ITEM.match(line):
            spans.append((number, number + 1))
            is_open = True
        elif is_open and line[:1] in (" ", "\t") and line.strip():
            spans[-1] = (spans[-1][0], number + 1)
        else:
            is_open = False
    return spans
