"""Every place that is cited is opened by code of its own: of all formats, and of the pages that packages of Debian ship."""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hivemind.documents import Citation, Knowledge
from hivemind.documents.passages import PassagePart, read_parts
from hivemind.search import Confidence
from tests.cited import FORMATS, PDF, SOURCES, VARIATIONS, has, lines_of, opened, pages_of
from tests.sample import sampled

_LEAF = re.compile(r"<(?:p|li|dt|dd|pre|table|blockquote|figcaption|caption|summary|title|h[1-6])\b", re.IGNORECASE)
GENERATED = [
    (form, how) for form in FORMATS for how in VARIATIONS if form != "pdf" or how in ("plain", "no end of line")
]


def parts(knowledge: Knowledge) -> list[PassagePart]:
    """All passages, after the files were read in."""
    assert not knowledge.sync().skipped
    with knowledge.docmem.database.read() as sql:
        rows = sql.execute("SELECT n.seq FROM places p JOIN nodes n ON n.id = p.node_id WHERE p.leads ORDER BY n.seq")
        return list(read_parts(sql, [seq for (seq,) in rows]).values())


def cuts(text: str) -> Iterator[tuple[int, int]]:
    """Return a text, its halves, and its middle half."""
    size = len(text)
    for first, last in ((0, size), (0, size // 2), (size // 2, size), (size // 4, size - size // 4)):
        while first < last and (text[first].isspace() or (first and not text[first - 1].isspace())):
            first += 1  # a word, or a masked secret, is not cut
        while first < last and (text[last - 1].isspace() or (last < size and not text[last].isspace())):
            last -= 1
        if first < last:
            yield first, last


def quoted(part: PassagePart, span: tuple[int, int]) -> Citation:
    return part.to_passage(0.0, "", Confidence(1.0, ""), span).cite()


def check_opened(root: Path, citation: Citation, part: PassagePart, span: tuple[int, int]) -> None:
    """The cited lines have the quote; those of an element at each end are among them, and no others."""
    path = root / citation.path
    assert has(opened(path, citation.start_line, citation.end_line), citation.text), citation
    if path.suffix not in (".html", ".pdf"):
        lines = citation.end_line - citation.start_line
        assert citation.text.count("\n") == lines, citation
        return
    touched, at = [], 0
    for member in part.members:
        if span[0] < at + len(member.text) and at < span[1]:
            touched.append((member.start_line, member.end_line))
        at += len(member.text) + len(member.gap)
    first, last = min(first for first, _ in touched), max(last for _, last in touched)
    assert (citation.start_line, citation.end_line) == (first, last), citation


def check_elements(root: Path, found: Sequence[PassagePart]) -> None:
    """Check that each element's lines contain it and no smaller range does; its tag may be on a line above its words."""
    elements: dict[tuple[str, int, int, str], str] = {}
    for part in found:
        for member in part.members:
            key = (part.file.path, member.start_line, member.end_line, member.kind)
            elements[key] = elements.get(key, "") + member.text
    for (path, first, last, _), text in elements.items():
        if first < last and not path.endswith(".pdf"):
            assert not has(opened(root / path, first, last - 1), text), (path, first, last)
            begins = _LEAF.search(lines_of(root / path)[first - 1]) if path.endswith(".html") else None
            assert begins or not has(opened(root / path, first + 1, last), text), (path, first, last)


def check_all(knowledge: Knowledge, seed: int = 0) -> int:
    """Every passage whole and cut; of each file one quote is verified."""
    root, found = knowledge.layout.root, parts(knowledge)
    choice = random.Random(seed)
    check_elements(root, found)
    by_file: dict[str, list[Citation]] = {}
    for part in found:
        for span in cuts(part.text):
            citation = quoted(part, span)
            check_opened(root, citation, part, span)
            by_file.setdefault(part.file.path, []).append(citation)
    for citations in by_file.values():
        citation = choice.choice(citations)
        assert knowledge.verify(citation), knowledge.verify(citation).reason
    return sum(map(len, by_file.values()))


@pytest.mark.parametrize(("form", "how"), GENERATED)
def test_every_quote_of_a_generated_document_stands_where_it_is_cited(
    knowledge: Knowledge, form: str, how: str
) -> None:
    (knowledge.layout.knowledge / f"zeppelin.{form}").write_bytes(VARIATIONS[how](FORMATS[form]("zeppelin")))
    assert check_all(knowledge) > 3


@pytest.mark.parametrize("form", FORMATS)
def test_a_place_is_right_only_if_it_is_exactly_that_of_the_quote(knowledge: Knowledge, form: str) -> None:
    (knowledge.layout.knowledge / f"zeppelin.{form}").write_bytes(FORMATS[form]("zeppelin"))
    citation = max(
        (part.to_passage(0.0, "", Confidence(1.0, "")).cite() for part in parts(knowledge)), key=lambda it: len(it.text)
    )
    first, last = citation.start_line, citation.end_line
    assert knowledge.verify(citation).lines == (first, last)
    for lines in ((first, last + 1), (max(1, first - 1), last + 1), (first + 1, last + 1)):
        verdict = knowledge.verify(replace(citation, start_line=lines[0], end_line=lines[1]))
        assert (verdict.is_confirmed, verdict.lines) == (False, (first, last))


@sampled
@pytest.mark.parametrize("source", SOURCES)
def test_every_quote_of_a_shipped_page_stands_where_it_is_cited(knowledge: Knowledge, source: str) -> None:
    pages = list(pages_of(source))
    if not pages:
        give_up = pytest.fail if os.environ.get("HIVEMIND_FAULTS") == "all" and "Rust" not in source else pytest.skip
        give_up(f"{source} is not installed: there is nothing in {SOURCES[source][0]}")
    for number, page in enumerate(pages):
        shutil.copyfile(page, knowledge.layout.knowledge / f"{number:03}-{page.name}")
    assert check_all(knowledge) > len(pages)


@pytest.mark.slow
@pytest.mark.skipif(not PDF.exists(), reason="debian-policy is not installed")
def test_every_quote_of_a_shipped_pdf_stands_on_the_page_that_is_cited(knowledge: Knowledge) -> None:
    (knowledge.layout.knowledge / "fhs.pdf").write_bytes(gzip.decompress(PDF.read_bytes()))
    assert check_all(knowledge) > 50
