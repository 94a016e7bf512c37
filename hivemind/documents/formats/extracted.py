"""PDF and HTML, through libraries that come with the extra `docs`: text that was got out of a file.

It stands nowhere in the file byte for byte; its places are a PDF's pages and the lines of the HTML source.
"""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hivemind.documents.errors import DocmemError, MissingLibraryError
from hivemind.documents.formats.headings import Headings
from hivemind.documents.formats.outline import Piece

__all__ = ["Extract", "html", "pdf"]

_HEADING = re.compile(r"^h([1-6])$")
_LEAVES = {
    "p": "paragraph", "li": "item", "dt": "item", "dd": "item", "pre": "code", "table": "table", "blockquote": "quote",
    "figcaption": "paragraph", "caption": "paragraph", "summary": "paragraph",
}  # fmt: skip
_BOXES = ("div", "section", "article", "td")
_SILENT = ["script", "style", "template", "noscript", "svg", "iframe", "object"]


@dataclass(frozen=True, slots=True)
class Extract:
    """What was got out of a file: the text, its pieces, where each stands (first and last line or page), the title."""

    text: str
    pieces: list[Piece]
    places: list[tuple[int, int]]
    title: str


@dataclass(frozen=True, slots=True)
class _Part:
    kind: str
    depth: int
    text: str
    place: tuple[int, int]


def _library(name: str, what: str, where: object) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise MissingLibraryError(
            f"{what} needs the library {name}", where=where, mend="install it with: pip install 'hivemind[docs]'"
        ) from None


def _joined(parts: Iterator[_Part], title: str) -> Extract:
    text, pieces, places = "", [], []
    texts: list[str] = []
    at = 0
    for part in parts:
        texts.append(part.text + "\n\n")
        name = part.text if part.kind == "heading" else ""
        pieces.append(Piece(part.kind, part.depth, at, at + len(part.text), name))
        places.append(part.place)
        at += len(part.text) + 2
    text = "".join(texts)
    return Extract(text, pieces, places, title)


def html(raw: bytes, where: object) -> Extract:
    """An HTML page by its headings. Raises DocmemError if the library is missing."""
    soup = _library("bs4", "HTML", where).BeautifulSoup(raw, "html.parser")
    for silent in soup(_SILENT):
        silent.decompose()
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    if soup.head:
        soup.head.decompose()
    return _joined(_html_parts(soup), title)


def _html_parts(soup: Any) -> Iterator[_Part]:
    headings = Headings()
    inside: Any = None  # the leaf that we are in: what is nested in it belongs to it
    for tag in soup.find_all([_HEADING, *_LEAVES, *_BOXES]):
        if inside is not None and any(parent is inside for parent in tag.parents):
            continue
        level = _HEADING.match(tag.name)
        if tag.name in _BOXES and tag.find([_HEADING, *_LEAVES, *_BOXES]):
            continue  # its parts speak for it
        place = (tag.sourceline, tag.sourceline + str(tag).count("\n"))
        text = tag.get_text() if tag.name == "pre" else _flowing(tag)
        if not text.strip():
            continue
        inside = tag
        if level:
            yield _Part("heading", headings.enter(int(level[1])), text, place)
        else:
            yield _Part(_LEAVES.get(tag.name, "paragraph"), headings.depth, text.strip("\n"), place)


def _flowing(tag: Any) -> str:
    """The words of a tag; what stands in boxes of its own is kept apart, what is only marked up is not."""
    for box in tag.find_all(["br", "tr", *_LEAVES, *_BOXES, "th"]):
        box.insert_before(" ")
    return " ".join(tag.get_text().split())


def pdf(raw: bytes, where: object) -> Extract:
    """A PDF by pages and paragraphs. Raises DocmemError for a broken or locked one, or if the library is missing."""
    pypdf = _library("pypdf", "PDF", where)
    try:
        reader = pypdf.PdfReader(io.BytesIO(raw))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DocmemError("is encrypted", where=where, mend="save it without a password")
        title = str((reader.metadata or {}).get("/Title") or "").strip()
        pages = [page.extract_text() for page in reader.pages]
    except (
        pypdf.errors.PyPdfError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
    ) as error:
        # what a library meets in a broken file has no end of forms; all of them mean the same
        raise DocmemError(f"cannot be read as PDF ({type(error).__name__}: {error})", where=where) from None
    return _joined(_pdf_parts(pages), title)


def _pdf_parts(pages: list[str]) -> Iterator[_Part]:
    for number, page in enumerate(pages, 1):
        for paragraph in re.split(r"\n[ \t]*\n", page):
            if paragraph.strip():
                yield _Part("paragraph", 1, paragraph.strip(), (number, number))
