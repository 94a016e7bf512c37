"""Reading files into outlines: one module per format, each returns the pieces of a text in reading order."""

from __future__ import annotations

from hivemind.documents.formats.outline import Outline, Piece
from hivemind.documents.formats.reading import EXTRACTED, decoded, format_of, read_bytes, read_outline

__all__ = ["EXTRACTED", "VERSION", "Outline", "Piece", "decoded", "format_of", "read_bytes", "read_outline"]

VERSION = 5
"""Of all importers together: raise it when one of them reads other pieces, and files are read anew; ids stay."""
