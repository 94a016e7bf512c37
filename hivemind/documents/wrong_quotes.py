"""The quotes that a person has called wrong, listed in `tasks/wrong-quotes.yaml`. No search quotes them again until
their files change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict

import yaml

from hivemind import fs
from hivemind.boundary import as_dataclass, boundary
from hivemind.documents.citation import Citation
from hivemind.documents.formats.reading import PAGED_FORMATS, format_of
from hivemind.documents.passages import Passage
from hivemind.frozen import frozen
from hivemind.layout import Layout
from hivemind.search.words import words_of

_HEADER = """# Quotes that a person has called wrong: hivemind task say TASK "that is wrong". None of them, and no other passage
# with its text, is quoted again until its file changes. Delete an entry, or this file, to allow it again.
"""
_REMEDY = "correct it, or delete it: its quotes are then allowed again"
_WRONG = re.compile(
    r"(?i)\b(?:wrong|incorrect|untrue|false|not (?:right|correct|true|the answer)|falsch|stimmt nicht|faux|incorrecto)\b"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_MIN_WORDS = 8  # a shorter passage may be part of a quote by chance


@frozen
class WrongQuote(Citation):
    """A wrong quote from the result of `task`. `said` is the text with which the person called it wrong.

    `digest` is only the beginning of the file's digest.
    """

    task: str
    said: str

    def is_in(self, passage: Passage) -> bool:
        """Return True if the passage overlaps the quote's lines in its file, or if one text contains all words of the
        other, in any file."""
        has_lines = self.start_line <= passage.end_line and passage.start_line <= self.end_line
        if has_lines and self.path == passage.path and format_of(self.path) not in PAGED_FORMATS:
            return True
        quote_words, passage_words = words_of(self.text), words_of(passage.text)
        shorter, longer = (f" {' '.join(words)} " for words in sorted((quote_words, passage_words), key=len))
        return shorter in longer and (len(passage_words) >= _MIN_WORDS or len(quote_words) <= len(passage_words))


def calls_wrong(text: str) -> bool:
    """Return True if the text has a sentence, other than a question, that says that something is wrong."""
    return any(_WRONG.search(line) and not line.endswith("?") for line in _SENTENCE_END.split(text.strip()))


def read_wrong_quotes(layout: Layout) -> list[WrongQuote]:
    """Return the quotes that were called wrong, oldest first. Raises Unreadable."""
    try:
        raw = layout.wrong_quotes.read_bytes()
    except FileNotFoundError:
        return []
    with boundary("list of wrong quotes", layout.wrong_quotes, remedy=_REMEDY):
        return [as_dataclass(WrongQuote, entry, "wrong quote") for entry in yaml.safe_load(raw) or ()]


def add_wrong_quotes(layout: Layout, quotes: Sequence[WrongQuote]) -> None:
    """Append quotes to the list in the file. Raises Unreadable if a person has damaged the file."""
    from filelock import FileLock  # late: most processes add none

    with FileLock(layout.locks / "wrong-quotes.lock"):
        entries = [asdict(quote) for quote in dict.fromkeys([*read_wrong_quotes(layout), *quotes])]
        text = _HEADER + yaml.safe_dump(entries, allow_unicode=True, sort_keys=False, width=120)
        fs.write(layout.wrong_quotes, text)
