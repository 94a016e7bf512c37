"""Files as outlines: nothing is lost, and every leaf leads back to its lines."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.documents import DocmemError, Knowledge
from hivemind.documents.formats import Outline, read_outline
from hivemind.tokens import count_tokens, estimate_tokens

_SIGNS = (
    "|  |# A|## B|text|more text.|- item|  - nested|10. ten|   para|```|    code|===|---|***|> quote|<!-- c|-->|~~~sh|.. note::"
    "|Title|::|+--+|\ttab|x\r"
)
_LINES = st.sampled_from([*_SIGNS.split("|"), "| a | b |", "|---|---|"])


def outline(text: str, name: str = "file.md") -> Outline:
    return read_outline(text.encode(), name, estimate_tokens)


def shape(found: Outline) -> list[tuple[int, str, str]]:
    return [(piece.depth, piece.kind, found.text[piece.start : piece.end]) for piece in found.pieces]


def assert_leads_back(found: Outline) -> None:
    before, *gaps = found.gaps()
    told = [found.text[piece.start : piece.end] + gap for piece, gap in zip(found.pieces, gaps, strict=True)]
    assert found.text == before + "".join(told)
    lines = found.text.split("\n")
    for piece, (first, last) in zip(found.pieces, found.lines(), strict=True):
        text = found.text[piece.start : piece.end]
        assert text.strip()
        assert text in "\n".join(lines[first - 1 : last])
        assert text.split("\n")[0] in lines[first - 1]
        assert text.split("\n")[-1] in lines[last - 1]


def test_every_leaf_of_a_shipped_document_leads_back_to_its_lines() -> None:
    site, repository = Path(sysconfig.get_paths()["purelib"]), Path(__file__).parents[2]
    shipped = [path for pattern in ("*.md", "*.rst", "*.txt", "METADATA") for path in sorted(site.rglob(pattern))[::3]]
    code = [*(site / "pygments").glob("*.py"), *(repository / "hivemind" / "fs").glob("*.py")]
    for path in (*shipped, *(repository / "docs").rglob("*.md"), *code):
        name = path.name + (".md" if path.suffix not in (".md", ".rst", ".txt", ".py") else "")
        if path.stat().st_size < 200_000:
            try:
                assert_leads_back(read_outline(path.read_bytes(), name, estimate_tokens))
            except AssertionError as error:
                error.add_note(str(path))
                raise


@settings(max_examples=150, deadline=None)
@given(st.lists(_LINES, max_size=14), st.sampled_from(["a.md", "a.rst", "a.txt", "a.py", "a.js"]))
def test_no_text_is_lost_whatever_the_markup(lines: list[str], name: str) -> None:
    assert_leads_back(outline("\n".join(lines), name))


@settings(max_examples=60, deadline=None)
@given(st.text(), st.sampled_from(["a.md", "a.rst", "a.txt", "a.py", "a.go"]))
def test_any_text_can_be_read(text: str, name: str) -> None:
    raw = text.encode("utf-8", "replace")
    if b"\0" not in raw:
        assert_leads_back(read_outline(raw, name, estimate_tokens))


def test_markdown_is_read_by_its_headings() -> None:
    text = (
        "---\ntitle: My *doc*\ntags: [a, b c]\n---\n\n# Top\n\nIntro text:\n\n- one\n- two\n  more\n\n  and more\n"
        "  - nested\n    - deeper\n\n  back in two\n- three\n\nSetext\n------\n| a | b |\n|---|---|\n| 1 | 2 |\n"
        "<!-- silent -->\n> quote\nlazy\n\n    code\n\n    code\n***\nlast\n#### Sub [link](x)\n~~~\n# no heading\n"
    )
    found = outline(text)
    assert (found.title, found.labels) == ("My *doc*", ("a", "b c"))
    assert shape(found) == [
        (1, "frontmatter", "---\ntitle: My *doc*\ntags: [a, b c]\n---"),
        (1, "heading", "# Top"),
        (2, "paragraph", "Intro text:"),
        (2, "item", "- one"),
        (2, "item", "- two\n  more\n\n  and more"),
        (3, "item", "  - nested"),
        (4, "item", "    - deeper"),
        (3, "paragraph", "  back in two"),
        (2, "item", "- three"),
        (2, "heading", "Setext\n------"),
        (3, "table", "| a | b |\n|---|---|\n| 1 | 2 |"),
        (3, "quote", "> quote\nlazy"),
        (3, "code", "    code\n\n    code"),
        (3, "paragraph", "last"),
        (3, "heading", "#### Sub [link](x)"),
        (4, "code", "~~~\n# no heading"),
    ]
    assert [piece.title for piece in found.pieces if piece.title] == ["Top", "Setext", "Sub link"]


def test_restructured_text_is_read_by_its_sections() -> None:
    text = (
        "=====\nTitle\n=====\n\n.. comment\n\nIntro::\n\n    literal\n\nPart\n----\n\n* one\n* two\n\n  - nested\n\n"
        ".. code-block:: sh\n\n   ls\n\n.. note:: mind this\n\n===  ===\na    b\n===  ===\n1    2\n===  ===\n\n"
        "Other\n-----\n\n.. _target:\n\nEnd.\n"
    )
    assert shape(outline(text, "file.rst")) == [
        (1, "heading", "=====\nTitle\n====="),
        (2, "paragraph", "Intro::"),
        (2, "code", "    literal"),
        (2, "heading", "Part\n----"),
        (3, "item", "* one"),
        (3, "item", "* two"),
        (4, "item", "  - nested"),
        (3, "code", ".. code-block:: sh\n\n   ls"),
        (3, "paragraph", ".. note:: mind this"),
        (3, "table", "===  ===\na    b\n===  ===\n1    2\n===  ==="),
        (2, "heading", "Other\n-----"),
        (3, "paragraph", "End."),
    ]


def test_python_is_read_by_classes_and_functions() -> None:
    text = (
        '"""Doc."""\n\nX = 1\n\n# of A\n@mark\nclass A:\n    y = 2\n\n    def m(self):\n        return "\\d"\n\n\n'
        "def f():\n    pass\n"
    )
    found = outline(text, "file.py")
    assert [(piece.depth, piece.title) for piece in found.pieces] == [(1, ""), (1, "A"), (2, "m"), (1, "f")]
    assert shape(found)[1][2] == "# of A\n@mark\nclass A:\n    y = 2"


def test_other_languages_are_read_by_what_looks_like_a_definition() -> None:
    text = "package x\n\n// Open opens.\nfunc (s *Store) Open() error {\n  return nil\n}\n\ntype T struct {\n}\n"
    found = outline(text, "file.go")
    assert [piece.title for piece in found.pieces] == ["", "Open"]
    assert shape(found)[1][2].startswith("// Open opens.")


def test_long_leaves_are_split_at_sentence_ends() -> None:
    sentence = "This is a sentence, e.g. one of Dr. No about 3.5 things. "
    table = "| a | b |\n|---|---|\n" + "| cell | cell |\n" * 200
    found = read_outline(f"{sentence * 60}\n\n{table}".encode(), "a.md", count_tokens)
    assert_leads_back(found)
    assert max(found.tokens) <= 400
    assert len(found.pieces) > 4
    assert all(text.endswith("things.") for _, kind, text in shape(found) if kind == "paragraph")
    assert all(text.endswith("|") for _, kind, text in shape(found) if kind == "table")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xff\xfea\x00b\x00", "ab"), ("\ufeffa".encode(), "a"), ("Grüße".encode("latin-1"), "Grüße"),
        (b"a\r\nb", "a\r\nb"), (b"", ""),
    ],
)  # fmt: skip
def test_texts_of_several_encodings_are_read(raw: bytes, text: str) -> None:
    assert read_outline(raw, "a.txt", estimate_tokens).text == text


@pytest.mark.parametrize("raw", [b"\x89PNG\r\n\0\0", b"\xff\xfe\x00", bytes(range(128, 256)) * 10])
def test_what_is_no_text_is_refused_by_name(raw: bytes) -> None:
    with pytest.raises(DocmemError, match=r"picture\.txt: is not"):
        read_outline(raw, "picture.txt", estimate_tokens)


def test_front_matter_that_is_no_yaml_is_noted_and_still_text() -> None:
    found = outline("---\na: [\n---\n# Title\n")
    assert "file.md:3" in (found.note or "")
    assert [kind for _, kind, _ in shape(found)] == ["frontmatter", "heading"]


def test_a_text_file_written_as_markdown_is_read_as_markdown() -> None:
    assert outline("# A\n\ntext\n\n## B\n\ntext\n", "file.txt").format == "markdown"
    assert outline("#!/bin/sh\n# a comment\n", "file.txt").format == "plain"


def test_html_is_read_by_its_headings_with_the_lines_of_its_source() -> None:
    page = (
        "<html><head><title>T</title></head><body>\n<h1>Top</h1>\n<p>Hello\n<b>world</b> &amp; all</p>\n"
        "<div><div>boxed</div></div>\n<ul><li>one</li>\n<li>two</li></ul><script>evil()</script>\n<h2>Sub</h2></body></html>"
    )
    found = read_outline(page.encode(), "a.html", estimate_tokens)
    assert found.title == "T"
    assert [(*place, text) for place, (_, _, text) in zip(found.lines(), shape(found), strict=True)] == [
        (2, 2, "Top"), (3, 4, "Hello world & all"), (5, 5, "boxed"), (6, 6, "one"), (7, 7, "two"), (8, 8, "Sub"),
    ]  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("pypdf") is None, reason="needs the extra docs")
def test_a_pdf_is_read_by_its_pages(pdf_of: Callable[..., bytes]) -> None:
    found = read_outline(pdf_of("First page.", "Second page."), "a.pdf", estimate_tokens)
    assert [(*place, text) for place, (_, _, text) in zip(found.lines(), shape(found), strict=True)] == [
        (1, 1, "First page."), (2, 2, "Second page."),
    ]  # fmt: skip
    with pytest.raises(DocmemError, match=r"broken\.pdf"):
        read_outline(b"%PDF-1.4\nnothing", "broken.pdf", estimate_tokens)


def test_a_missing_library_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(DocmemError, match=r"pip install 'hivemind-swarm\[docs\]'"):
        read_outline(b"x", "a.pdf", estimate_tokens)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.md", "# One\n\ntext\n\n## Two\n"), ("a.rst", "One\n===\n\ntext\n"), ("a.py", "def one():\n    pass\n")],
)
def test_a_byte_order_mark_hides_nothing(name: str, text: str) -> None:
    assert read_outline(text.encode("utf-8-sig"), name, count_tokens) == read_outline(text.encode(), name, count_tokens)


def test_one_line_of_two_megabytes_is_quoted_where_it_answers(knowledge: Knowledge) -> None:
    words = "lorem ipsum dolor sit amet " * 40_000
    text = f"{words} the ferry leaves from pier three at ten past nine {words}"
    (knowledge.layout.knowledge / "line.txt").write_text(text)
    knowledge.sync()
    passage = knowledge.search("When does the ferry leave pier three?")[0]
    citation = passage.cite()
    assert "leaves from pier three" in citation.text
    assert len(citation.text) < 2_000
    assert knowledge.verify(citation).is_confirmed


def test_a_binary_file_that_is_named_as_a_page_is_refused() -> None:
    with pytest.raises(DocmemError, match="is not text"):
        read_outline(b"\x89PNG\0\0" * 9, "logo.html", len)
