"""Stores and hives for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hivemind.documents import Docmem, Knowledge
from hivemind.layout import Layout
from tests.cited import pdf
from tests.durability import relaxed


@pytest.fixture
def docmem(tmp_path: Path) -> Iterator[Docmem]:
    with Docmem(relaxed(tmp_path / "documents.db")) as docmem:
        yield docmem
        assert docmem.check() == []


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.at(tmp_path / "hive")
    for folder in layout.folders():
        folder.mkdir(parents=True, exist_ok=True)
    return layout


@pytest.fixture
def knowledge(layout: Layout) -> Iterator[Knowledge]:
    with Docmem(relaxed(layout.documents_db)) as docmem:
        yield Knowledge(docmem, layout)
        assert docmem.check() == []


@pytest.fixture
def pdf_of() -> Callable[..., bytes]:
    """Makes a PDF of the lines of each page."""
    return pdf
