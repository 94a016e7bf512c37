"""Limits of an import: size, lines, parts and depth. A file above a limit is refused, and the error names it."""

from __future__ import annotations

import importlib.util
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind.documents import Docmem, DocmemError, Knowledge
from hivemind.documents.formats import extracted, outline, read_outline
from hivemind.errors import UserError
from hivemind.tokens import estimate_tokens

_WORKER = Path(__file__).with_name("worker.py")
_SECONDS = 120  # of processor time, for hundreds of files of 150 KB: one whose work grows with the square needs hours


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def _worked_off(tmp_path: Path, what: str, name: str) -> None:
    command = [sys.executable, str(_WORKER), str(tmp_path / "documents.db"), what, str(tmp_path / name)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, preexec_fn=_limited)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-500:]


@pytest.mark.parametrize("ending", ["html", "md", "rst", "txt", "py", "js", "toml"])
def test_markup_without_an_end_is_read_with_work_in_proportion(ending: str, tmp_path: Path) -> None:
    _worked_off(tmp_path, "read_endless", f"a.{ending}")


def test_a_file_that_became_quite_another_is_taken_in_with_work_in_proportion(tmp_path: Path) -> None:
    _worked_off(tmp_path, "import_another", "a.md")


def test_a_megabyte_of_nested_boxes_is_one_paragraph(docmem: Docmem, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("<div>" * 200_000 + "inside" + "</div>" * 200_000)
    root = docmem.import_file(page)
    assert [node.text for node in docmem.serialize(root.id)] == ["a", "inside"]


@pytest.mark.parametrize("text", ["<p>{}</p>", "{}", "<ul><li>a<li>{}</ul>", "<h1>{}", "<table><tr><td>{}"])
def test_no_word_of_a_page_is_lost(text: str) -> None:
    page = f"<body>before {text.format('within &lt;b&gt; &#xe9;')}<div>between<p>a par</div> after <b>bold</b>ly"
    found = read_outline(page.encode(), "a.html", estimate_tokens).text.split()
    assert [
        word for word in ("before", "within", "<b>", "é", "between", "par", "after", "boldly") if word not in found
    ] == []


def test_a_page_is_read_in_the_encoding_that_it_names() -> None:
    named = '<?xml version="1.0"?><meta http-equiv=x content="text/html; charset=windows-1251"><p>Привет'.encode(
        "cp1251"
    )
    assert read_outline(named, "a.html", estimate_tokens).text.strip() == "Привет"
    unnamed = "<p>Grüße".encode("latin-1")
    assert read_outline(unnamed, "a.html", estimate_tokens).text.strip() == "Grüße"
    assert read_outline(b"<meta charset=punycode><p>plain", "a.html", estimate_tokens).text.strip() == "plain"


@pytest.mark.parametrize("name", ["a.md", "a.rst", "a.txt", "a.js", "a.py", "a.html"])
@pytest.mark.parametrize("bound", ["MAX_PARTS", "MAX_LINES", "MAX_DEPTH"])
def test_a_file_past_a_bound_is_refused_with_the_bound(name: str, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, bound, 2)
    texts = {
        "a.md": "- a\n  - b\n    - c\n\n", "a.rst": "A\n===\n\nB\n---\n\nC\n~~~\n\n", "a.js": "class A\n class B\n  class C\n",
        "a.py": "class A:\n class B:\n  class C: pass\n", "a.txt": "a\n\nb\n\nc\n\n", "a.html": "<h1>a</h1><h2>b</h2>\n<p>c\n\n",
    }  # fmt: skip
    if (name, bound) in {("a.txt", "MAX_DEPTH"), ("a.html", "MAX_LINES")}:
        return  # it has no depth; its lines are none of its own
    with pytest.raises(DocmemError, match=rf"{name}.* more than 2 "):
        read_outline(texts[name].encode(), name, estimate_tokens)


needs_pypdf = pytest.mark.skipif(importlib.util.find_spec("pypdf") is None, reason="needs the extra docs")


@needs_pypdf
@pytest.mark.parametrize(
    ("bound", "most", "told"), [("MAX_CPU_S", 1, "1 s"), ("MAX_MEMORY_BYTES", 200 << 20, "200 MiB")]
)
def test_a_pdf_that_needs_more_time_or_memory_than_there_is_for_it_is_refused(
    bound: str, most: int, told: str, monkeypatch: pytest.MonkeyPatch, pdf_of: Callable[..., bytes]
) -> None:
    monkeypatch.setattr(extracted, bound, most)
    with pytest.raises(DocmemError, match=rf"a\.pdf: .*takes more than {told} of"):
        read_outline(pdf_of("over and over) Tj (" * 1_500_000), "a.pdf", estimate_tokens)


@pytest.mark.parametrize(
    "text",
    [
        "[[node]]\nimportance = " + "9" * 100_000,
        "[[node]]\nimportance = 0x" + "f" * 100_000,
        "[[node]]\ndepth = 0x" + "f" * 100_000,
        "[[node]]\norder = 0x" + "f" * 100_000,
        "version = 0x" + "f" * 100_000,
        "[[node]]\nreadonly = 0x" + "f" * 100_000,
        "[[node]]\ntext = 0x" + "f" * 100_000,
        "[[node]]\n0x" + "f" * 100_000 + " = 1",
        "a = 0001-01-01T00:00:00+23:59\n",
        "[[node]]\ntext = 9999-12-31T23:59:59-23:59\n",
        "a = " + "[" * 100_000,
        "a = " + "{a=" * 100_000,
        ".".join("a" * 101) + " = 1",
    ],
)  # fmt: skip
def test_toml_that_cannot_be_read_is_refused_by_name_and_changes_nothing(
    docmem: Docmem, tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UserError, match=r"a\.toml"):
        docmem.import_file(tmp_path / "a.toml")
    assert docmem.roots() == []


@pytest.mark.parametrize(
    "head",
    [
        "title: 0x" + "f" * 5_000, "tags: [0x" + "f" * 5_000 + "]", "title: " + "9" * 5_000, 'title: "\\uD800"',
        "title: 9999-12-31T23:59:59-23:59", "class: 0x" + "f" * 5_000, "date: 99999-99-99", "title: !!python/name:os.system",
        "title: " + "1:" * 60_000 + "1",
    ],
)  # fmt: skip
def test_front_matter_that_cannot_be_read_stops_no_other_file(knowledge: Knowledge, head: str) -> None:
    folder = knowledge.layout.knowledge
    (folder / "a.md").write_text(f"---\n{head}\n---\nBees make honey.\n")
    (folder / "b.md").write_text("Ants make hills.\n")
    report = knowledge.sync()
    assert "knowledge/b.md" in report.imported
    assert "knowledge/a.md" in [*report.imported, *report.skipped]
    assert knowledge.search("What do ants make?")


def test_a_file_over_whose_reading_two_processes_died_is_not_read_a_third_time(knowledge: Knowledge) -> None:
    folder = knowledge.layout.knowledge
    (folder / "a.md").write_text("Bees make honey.\n")
    command = [sys.executable, str(_WORKER), str(knowledge.layout.documents_db), "die_over", str(knowledge.layout.root)]
    for _ in range(2):
        assert subprocess.run(command, check=False).returncode == -9
    (folder / "b.md").write_text("Ants make hills.\n")
    report = knowledge.sync()
    assert "2 processes died" in report.skipped["knowledge/a.md"]
    assert report.imported == ["knowledge/b.md"]
    (folder / "a.md").write_text("Bees make much honey.\n")
    os.utime(folder / "a.md", ns=(1, 1))
    assert knowledge.sync().imported == ["knowledge/a.md"]
