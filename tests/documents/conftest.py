"""Stores and hives for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hivemind.documents import Docmem, Knowledge
from hivemind.layout import Layout


@pytest.fixture
def docmem(tmp_path: Path) -> Iterator[Docmem]:
    with Docmem(tmp_path / "documents.db", durable=False) as found:
        yield found
        assert found.check() == []


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout.at(tmp_path / "hive")
    for folder in made.folders():
        folder.mkdir(parents=True, exist_ok=True)
    return made


@pytest.fixture
def knowledge(layout: Layout) -> Iterator[Knowledge]:
    with Docmem(layout.documents_db, durable=False) as docmem:
        yield Knowledge(docmem, layout)
        assert docmem.check() == []


@pytest.fixture
def pdf_of() -> Callable[..., bytes]:
    """Makes a PDF of texts: of one line on each page."""
    return _pdf


def _pdf(*pages: str) -> bytes:
    """A PDF with one line of text on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents {5 + 2 * number} 0 R>>"
        )
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    out, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    return (
        f"{out}xref\n0 {size}\n0000000000 65535 f \n{table}trailer<</Size {size}/Root 1 0 R>>\nstartxref\n{len(out)}\n%%EOF"
    ).encode()
