"""Builds SVG elements with escaped texts, and estimates the width of texts."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from html import escape
from pathlib import Path

from hivemind.masking import mask, strip_controls

_STYLE = Path(__file__).parent.parent / "static" / "drawing.css"
_NARROW, _WIDE = frozenset("iljtfr.,:;'!|()[] "), frozenset("mwMW@%")


def masked_line(text: object) -> str:
    """Return a text on one line, with secrets masked."""
    return " ".join(strip_controls(mask(str(text))).split())


class Shape(str):
    """SVG markup. All texts in it are escaped already."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def element(name: str, *children: str, **attributes: object) -> Shape:
    """Return `<name attribute="…">children</name>`. In attribute names `_` becomes `-`, and `class_` is `class`.

    A child that is a Shape is included unchanged; other text is escaped.
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(_format_attribute(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    parts = (child if isinstance(child, Shape) else escape(child, quote=False) for child in children)
    return Shape(f"<{name}{attribute_text}>{''.join(parts)}</{name}>")


def _format_attribute(value: object) -> object:
    return f"{value:.1f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def picture(
    width: float, height: float, title: str, *children: Shape, is_standalone: bool = False, class_: str = "drawing"
) -> Shape:
    """Return a complete drawing of the shapes. A standalone drawing, for a file, contains the style sheet and a background."""
    style_parts = [
        element("style", Shape(_style_sheet())),
        element("rect", class_="ground", width="100%", height="100%"),
    ]
    frame = {"xmlns": "http://www.w3.org/2000/svg"} if is_standalone else {}
    return element(
        "svg", element("title", masked_line(title)), *(style_parts if is_standalone else ()), *children,
        **frame, width=width, height=height, viewBox=f"0 0 {width:g} {height:g}", role="img", class_=class_,
    )  # fmt: skip


@cache
def _style_sheet() -> str:
    """Return the style sheet for a standalone file. Its CSS variables are replaced by their values, since some viewers
    do not support variables."""
    style_sheet = _STYLE.read_text("utf-8")
    colours = dict(re.findall(r"(--d-\w+): (#\w+)", style_sheet.partition("@media")[0]))
    rules = [line for line in style_sheet.splitlines() if line.startswith(".") and line.rstrip().endswith("}")]
    return "\n".join(re.sub(r"var\((--d-\w+)\)", lambda match: colours[match[1]], line) for line in rules)


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text in a proportional font of this size, in the same unit."""
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


def fit_text(text: str, width: float, size: float) -> str:
    """Cut a text to at most `width`, in a font of this size. A cut text ends with an ellipsis."""
    text = masked_line(text)
    if text_width(text, size) <= width:
        return text
    beginning = text
    while beginning and text_width(beginning + "…", size) > width:
        beginning = beginning[: max(0, min(len(beginning) - 1, int(len(beginning) * 0.97)))]
    return beginning.rstrip() + "…"


def wrap_text(text: str, width: float, size: float, max_lines: int) -> list[str]:
    """Break a text into at most `max_lines` lines of at most `width`, between words if possible. The rest is cut."""
    lines: list[str] = []
    line = ""
    words = masked_line(text).split(" ")
    for index, word in enumerate(words):
        if text_width(f"{line} {word}".strip(), size) <= width:
            line = f"{line} {word}".strip()
            continue
        if len(lines) == max_lines - 1:
            return [*lines, fit_text(" ".join([line, *words[index:]]).strip(), width, size)]
        if line:
            lines.append(line)
        line = word if text_width(word, size) <= width else fit_text(word, width, size)
    return [*lines, line][:max_lines]
