"""Text that is extracted from a PDF (by the library pypdf) or from an HTML page (by the module `html`).

The file does not contain the extracted text byte for byte. Places are pages of the PDF or lines of the HTML source.
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
from hivemind.masking import mask, secret_names
from hivemind.reaped_command import ReapedCommand

MAX_CPU_S = 60
MAX_MEMORY_BYTES = 1 << 30
_SCRIPT = os.path.join(os.path.dirname(__file__), "pdf_text.py")


@frozen
class Extract:
    """The text extracted from a file, the file's title, the pieces of the text, and the first and last line or page of
    each piece."""

    text: str
    pieces: list[Piece]
    places: list[tuple[int, int]]
    title: str


@frozen
class ExtractPart:
    """An extracted leaf or heading, with its first and last line or page in the file."""

    kind: str
    depth: int
    text: str
    place: tuple[int, int]


def join_parts(parts: Iterator[ExtractPart], title: Callable[[], str], path: object) -> Extract:
    """Join the parts into one text, and mask its secrets. `title` is called after the last part has been read.

    `path` is named in errors. Raises DocmemError if there are too many parts.
    """
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
        outline.check_limit(len(pieces), outline.MAX_PARTS, "parts", path)
    return Extract("".join(texts), pieces, places, mask(title()))


def pdf(raw: bytes, path: object) -> Extract:
    """Extract the paragraphs of a PDF, page by page, in a separate process with limits of time and memory.

    Raises DocmemError if the PDF is damaged or encrypted or exceeds a limit, MissingLibraryError without pypdf.
    """
    if importlib.util.find_spec("pypdf") is None:
        raise MissingLibraryError(
            "PDF needs the library pypdf", location=path, remedy="install it with: pip install 'hivemind-swarm[docs]'"
        )
    environment = {name: value for name, value in os.environ.items() if name not in secret_names()}
    program = [sys.executable, "-P", _SCRIPT, str(outline.MAX_FILE_BYTES), str(outline.MAX_PARTS)]
    with TemporaryFile() as stdin, open(os.devnull, "wb") as devnull:
        stdin.write(raw)
        stdin.seek(0)
        with ReapedCommand(
            program, folder=None, environment=environment, cpu_s=MAX_CPU_S, memory_bytes=MAX_MEMORY_BYTES, stdin=stdin,
            stderr=devnull,
        ) as process:  # fmt: skip
            output = process.output.read()
            exit_status = process.wait()
    if exit_status is not None and exit_status < 0:
        raise DocmemError(f"is a PDF that takes more than {MAX_CPU_S} s of processor time to read", location=path)
    extraction = json.loads(output or b"{}")
    if "pages" not in extraction:
        reason = f"more than {MAX_MEMORY_BYTES >> 20} MiB of memory" if extraction.get("error") == "MemoryError" else ""
        reason = f"reading takes {reason}" if reason else extraction.get("error", "reading it was interrupted")
        raise DocmemError(f"cannot be read as PDF ({reason})", location=path, remedy=extraction.get("mend"))
    paragraphs = (
        ExtractPart("paragraph", 1, paragraph.strip(), (number, number))
        for number, page in enumerate(extraction["pages"], 1)
        for paragraph in re.split(r"\n[ \t]*\n", page)
        if paragraph.strip()
    )
    return join_parts(paragraphs, lambda: extraction["title"], path)
