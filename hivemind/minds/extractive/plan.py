"""Planning by rule: one step per list item or question in a task's text (spec 1, *The default mind*)."""

from __future__ import annotations

import re

__all__ = ["SENTENCE", "plan_steps", "questions_in"]

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^ {0,3}(?:[-*+]|\d{1,4}[.)])\s+(?:\[[ xX]\]\s+)?(?P<text>\S.*)$")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s")
SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
"""What stands between two sentences of a text on one line."""


def plan_steps(title: str, text: str) -> list[str]:
    """What to find out, in the order of the text: its list items and questions, or else the title or first sentence.

    Never empty, no repeats; what stands in fenced code is not read.
    """
    found = _items_and_questions(text)
    if len(found) > 1 and found[0] == _squeeze(title):
        del found[0]  # a heading that asks what its items ask
    if not found:
        found = [title] if title.strip() else [_squeeze(text)[:200] or "(an empty task)"]
    return list(dict.fromkeys(found))


def questions_in(subject: str, text: str) -> list[str]:
    """The questions of a mail: those in its body, else its subject if that is one, else its first sentence."""
    asked = [item for item in _items_and_questions(text) if item.endswith("?")]
    if asked:
        return list(dict.fromkeys(asked))
    if subject.rstrip().endswith("?"):
        return [_squeeze(subject)]
    first = SENTENCE.split(_squeeze(text))[0][:200]
    return [first] if first else []


def _items_and_questions(text: str) -> list[str]:
    found: list[str] = []
    paragraph: list[str] = []
    fenced = False

    def close_paragraph() -> None:
        sentences = SENTENCE.split(_squeeze(" ".join(paragraph)))
        found.extend(sentence for sentence in sentences if sentence.rstrip("\"')]").endswith("?"))
        paragraph.clear()

    item_open = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced, item_open = not fenced, False
            close_paragraph()
        elif fenced or line.lstrip().startswith(">"):
            continue
        elif item := _ITEM.match(line):
            close_paragraph()
            found.append(_squeeze(item["text"]))
            item_open = True
        elif not line.strip():
            close_paragraph()
            item_open = False
        elif item_open and line[:1].isspace() and found:
            found[-1] = _squeeze(f"{found[-1]} {line}")
        else:
            item_open = False
            paragraph.append(_HEADING.sub("", line))
            if _HEADING.match(line):
                close_paragraph()
    close_paragraph()
    return found


def _squeeze(text: str) -> str:
    return " ".join(text.split())
