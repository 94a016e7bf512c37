"""What all drawings share: elements with escaped texts, their colours, how wide a text is."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from html import escape
from pathlib import Path

from hivemind.masking import harmless, mask

_STYLE = Path(__file__).parent.parent / "static" / "drawing.css"
_NARROW, _WIDE = frozenset("iljtfr.,:;'!|()[] "), frozenset("mwMW@%")


def told(text: object) -> str:
    """A text on one line, secrets masked."""
    return " ".join(harmless(mask(str(text))).split())


class Shape(str):
    """A part of a drawing, its texts escaped."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def element(name: str, *inside: str, **attributes: object) -> Shape:
    """`<name attribute="…">inside</name>`: names with `_` for `-`, `class_` for `class`. Of what is inside, Shapes stand as they
    are, and any other text is escaped."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(_short(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    parts = (one if isinstance(one, Shape) else escape(one, quote=False) for one in inside)
    return Shape(f"<{name}{shown}>{''.join(parts)}</{name}>")


def _short(value: object) -> object:
    return f"{value:.1f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def picture(
    width: float, height: float, title: str, *inside: Shape, alone: bool = False, class_: str = "drawing"
) -> Shape:
    """The whole drawing. One that stands `alone`, in a file, brings its colours and its ground with it."""
    own = [element("style", Shape(_colours())), element("rect", class_="ground", width="100%", height="100%")]
    frame = {"xmlns": "http://www.w3.org/2000/svg"} if alone else {}
    return element(
        "svg", element("title", told(title)), *(own if alone else ()), *inside,
        **frame, width=width, height=height, viewBox=f"0 0 {width:g} {height:g}", role="img", class_=class_,
    )  # fmt: skip


@cache
def _colours() -> str:
    """The style sheet of the page's drawings for a file: what knows no variables and no dark screens shows it as well."""
    told = _STYLE.read_text("utf-8")
    named = dict(re.findall(r"(--d-\w+): (#\w+)", told.partition("@media")[0]))
    rules = [line for line in told.splitlines() if line.startswith(".") and line.rstrip().endswith("}")]
    return "\n".join(re.sub(r"var\((--d-\w+)\)", lambda found: named[found[1]], line) for line in rules)


def text_width(text: str, size: float) -> float:
    """About how wide a text is in a proportional font of that size."""
    units = 0.0
    for char in text:
        if unicodedata.east_asian_width(char) in "WF":
            units += 1.0
        elif char in _NARROW:
            units += 0.36
        elif char in _WIDE or char.isupper():
            units += 0.74
        else:
            units += 0.6
    return units * size


def fitted(text: str, width: float, size: float) -> str:
    """The text cut to that width, with an ellipsis if something is missing."""
    text = told(text)
    if text_width(text, size) <= width:
        return text
    kept = text
    while kept and text_width(kept + "…", size) > width:
        kept = kept[: max(0, min(len(kept) - 1, int(len(kept) * 0.97)))]
    return kept.rstrip() + "…"


def wrapped(text: str, width: float, size: float, most: int) -> list[str]:
    """The text in at most so many lines of that width, broken between words where it can be."""
    lines: list[str] = []
    line = ""
    words = told(text).split(" ")
    for at, word in enumerate(words):
        if text_width(f"{line} {word}".strip(), size) <= width:
            line = f"{line} {word}".strip()
            continue
        if len(lines) == most - 1:
            return [*lines, fitted(" ".join([line, *words[at:]]).strip(), width, size)]
        if line:
            lines.append(line)
        line = word if text_width(word, size) <= width else fitted(word, width, size)
    return [*lines, line][:most]
