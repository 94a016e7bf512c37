"""Seed 003, sentence by sentence, for any implementation of Docmem.

`CASES` holds a sentence and a check each; a check takes a new, empty Docmem and raises AssertionError. With pytest:

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_docmem_keeps_to_the_seed(case, docmem):
        case.check(docmem)
"""

from __future__ import annotations

from hivemind.documents import Docmem
from hivemind.testing.case import Case
from hivemind.testing.docmem import asking, changing, importing, moving, nodes, orders, reading, summaries

__all__ = ["CASES", "Case"]

CASES: list[Case[Docmem]] = [
    case
    for chapter in (nodes, orders, reading, changing, moving, summaries, importing, asking)
    for case in chapter.CASES
]
