"""Docmem keeps to seed 003, sentence by sentence."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind.documents import Docmem
from hivemind.testing.docmem import DocmemConformance


class TestDocmem(DocmemConformance):
    @pytest.fixture
    def docmem(self, tmp_path: Path) -> Iterator[Docmem]:
        with Docmem(tmp_path / "documents.db", durable=False) as docmem:
            yield docmem
            assert docmem.check() == []
