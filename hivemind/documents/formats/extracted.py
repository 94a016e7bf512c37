"""Text that was got out of a file: a PDF (by a library that comes with the extra `docs`) or an HTML page (`html`).

It stands nowhere in the file byte for byte; its places are a PDF's pages and the lines of the HTML source.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from tempfile import TemporaryFile

from hivemind.documents.formats import outline
from hivemind.documents.formats.outline import Piece
from hivemind.documents.node import DocmemError, MissingLibraryError
from hivemind.frozen import frozen
from hivemind.guarded import Guarded
from hivemind.masking import mask, secret_names

__all__ = ["Extract", "Part", "joined", "pdf"]

MAX_CPU_S = 60
MAX_MEMORY_BYTES = 1 << 30
_SCRIPT = os.path.join(os.path.dirname(__file__), "pdf_text.py")


@frozen
class Extract:
    """What was got out of a file: the text, its pieces, where each stands (first and last line or page), the title."""

    text: str
    pieces: list[Piece]
    places: list[tuple[int, int]]
    title: str


@frozen
class Part:
    """A leaf or a heading that was got out: its text, and its first and last line or page."""

    kind: str
    depth: int
    text: str
    place: tuple[int, int]


def joined(parts: Iterator[Part], title: Callable[[], str], where: object) -> Extract:
    """The parts as one text, secrets masked; the title is asked for after the last one. Raises DocmemError past a bound."""
    pieces: list[Piece] = []
    places: list[tuple[int, int]] = []
    texts: list[str] = []
    at = 0
    for part in parts:
        text = mask(part.text)
        texts.append(text + "\n\n")
        pieces.append(Piece(part.kind, part.depth, at, at + len(text), text if part.kind == "heading" else ""))
        places.append(part.place)
        at += len(text) + 2
        outline.check(len(pieces), outline.MAX_PARTS, "parts", where)
    return Extract("".join(texts), pieces, places, mask(title()))


def pdf(raw: bytes, where: object) -> Extract:
    """A PDF by pages and paragraphs, read by a process of its own, whose time and memory have bounds.

    Raises DocmemError for a broken or locked one, one that needs more than there is for it, or if the library is missing.
    """
    if importlib.util.find_spec("pypdf") is None:
        raise MissingLibraryError(
            "PDF needs the library pypdf", where=where, mend="install it with: pip install 'hivemind-swarm[docs]'"
        )
    environment = {name: value for name, value in os.environ.items() if name not in secret_names()}
    program = [sys.executable, "-P", _SCRIPT, str(outline.LARGEST), str(outline.MAX_PARTS)]
    with TemporaryFile() as given, open(os.devnull, "wb") as nowhere:
        given.write(raw)
        given.seek(0)
        with Guarded(
            program, folder=None, environment=environment, cpu_s=MAX_CPU_S, memory_bytes=MAX_MEMORY_BYTES, stdin=given,
            stderr=nowhere,
        ) as process:  # fmt: skip
            told = process.output.read()
            ended = process.wait()
    if ended is not None and ended < 0:
        raise DocmemError(f"is a PDF whose reading takes more than {MAX_CPU_S} s of processor time", where=where)
    found = json.loads(told or b"{}")
    if "pages" not in found:
        why = f"more than {MAX_MEMORY_BYTES >> 20} MiB of memory" if found.get("error") == "MemoryError" else ""
        why = f"its reading takes {why}" if why else found.get("error", "its reading broke off")
        raise DocmemError(f"cannot be read as PDF ({why})", where=where, mend=found.get("mend"))
    paragraphs = (
        Part("paragraph", 1, paragraph.strip(), (number, number))
        for number, page in enumerate(found["pages"], 1)
        for paragraph in re.split(r"\n[ \t]*\n", page)
        if paragraph.strip()
    )
    return joined(paragraphs, lambda: found["title"], where)
