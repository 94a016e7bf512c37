"""Check that a quote is still in its file, at the cited lines."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from hivemind.boundary import boundary
from hivemind.documents.citation import Citation, Verdict
from hivemind.documents.formats.extracted import Extract
from hivemind.documents.formats.outline import decode_text, line_starts
from hivemind.documents.formats.reading import format_of, read_bytes, read_extract
from hivemind.documents.passages import Lines, Passage, line_range
from hivemind.errors import UserError
from hivemind.fs import open_inside
from hivemind.layout import Layout
from hivemind.masking import mask


def verify(passage: Citation | Passage, layout: Layout, roots: Iterable[Path] = ()) -> Verdict:
    """Check that the file contains the quote at exactly the cited lines.

    Only the file is read, not the database. Changes elsewhere in the file do not matter. If the quote has moved, the
    reason names its present lines.
    """
    try:
        raw, _ = read_file(passage.path, layout, roots)
        with boundary("document", passage.path):
            extract = read_extract(raw, passage.path)
            text = mask(decode_text(raw, passage.path)) if extract is None else extract.text
    except UserError as error:
        return Verdict(False, str(error))
    except OSError as error:
        return Verdict(False, f"{passage.path} cannot be read ({error.strerror})")
    is_file_changed = hashlib.sha256(raw).hexdigest() != passage.digest
    change_note = " (the file has changed elsewhere since it was read)" if is_file_changed else ""
    quote = passage.text.strip("\n")
    if not quote.strip():
        return Verdict(False, "the quote is empty")
    start, end = passage.start_line, passage.end_line

    def distance(place: Lines) -> tuple[bool, bool, int]:
        first, last = place
        return place != (start, end), not start <= first <= last <= end, abs(first - start)

    nearest = min(_occurrences(text, quote, extract), key=distance, default=None)
    if nearest is None:
        reason = "the file has changed since it was read" if is_file_changed else "the file is the one that was read"
        return Verdict(False, f"{passage.path} does not contain the quote; {reason}")
    first, last = nearest
    if nearest == (start, end):
        return Verdict(True, f"is at {passage.path}:{first}-{last}{change_note}", nearest)
    place = f"{'pages' if format_of(passage.path) == 'pdf' else 'lines'} {first}-{last}"
    return Verdict(False, f"is at {place}, not at the cited place{change_note}", nearest)


def _occurrences(text: str, quote: str, extract: Extract | None) -> Iterator[Lines]:
    """Yield the first and last line of each occurrence of a quote, at most one per line of `text`.

    If the text was extracted from a file, `extract` maps its offsets to the file's lines; otherwise it is None.
    """
    lines = line_starts(text)
    starts, places = (lines, None) if extract is None else ([piece.start for piece in extract.pieces], extract.places)
    at = text.find(quote)
    while at >= 0:
        yield line_range(at, at + len(quote), starts, places)
        line = bisect_right(lines, at)
        at = text.find(quote, lines[line]) if line < len(lines) else -1


def read_file(path: str, layout: Layout, roots: Iterable[Path]) -> tuple[bytes, os.stat_result]:
    """Read a file in the hive or in `roots`; return its content and its stat.

    Raises OutsideError for a file elsewhere, UserError for a file that is not regular or is too large, OSError.
    """
    return read_bytes(path, open_inside(path, layout.root, roots))
