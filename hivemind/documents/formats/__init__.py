"""Read files into outlines. Each module handles one format and returns the pieces of a text in reading order."""

from __future__ import annotations

from hivemind.documents.formats.outline import Outline, Piece
from hivemind.documents.formats.reading import EXTRACTED_FORMATS, decode_text, format_of, read_bytes, read_outline

__all__ = ["EXTRACTED_FORMATS", "VERSION", "Outline", "Piece", "decode_text", "format_of", "read_bytes", "read_outline"]

VERSION = 5
"""The version of all importers. Raise it when one of them splits files differently: files are read again; nodes
keep their ids."""
