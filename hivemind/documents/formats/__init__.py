"""Read files into outlines. The module of a format splits a text into pieces and returns them in reading order."""

from __future__ import annotations

from hivemind.documents.formats.outline import Outline, Piece, decode_text
from hivemind.documents.formats.reading import PAGED_FORMATS, format_of, read_bytes, read_outline

__all__ = ["PAGED_FORMATS", "VERSION", "Outline", "Piece", "decode_text", "format_of", "read_bytes", "read_outline"]

VERSION = 9
"""The version of all importers. Raise it when an importer splits files differently: the next sync then reads all files
again; nodes keep their ids."""
