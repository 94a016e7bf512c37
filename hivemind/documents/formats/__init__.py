"""Reading files into outlines: one module per format, each gives the pieces of a text in reading order."""

from __future__ import annotations

from hivemind.documents.formats.content import read_bytes
from hivemind.documents.formats.outline import Outline, Piece
from hivemind.documents.formats.reading import decoded, read_outline

__all__ = ["VERSION", "Outline", "Piece", "decoded", "read_bytes", "read_outline"]

VERSION = 4
"""Of all importers together: raise it when one of them gives other pieces, and files are read anew; ids stay."""
