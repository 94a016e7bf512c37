"""Docmem keeps to seed 003, sentence by sentence."""

from pathlib import Path

import pytest

from hivemind.documents import Docmem
from hivemind.testing.docmem import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_docmem_keeps_to_the_seed(case: Case[Docmem], tmp_path: Path) -> None:
    with Docmem(tmp_path / "documents.db", durable=False) as docmem:
        case.check(docmem)
        assert docmem.check() == []
