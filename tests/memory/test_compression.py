"""Smaller forms: outlines by a parser, counts, head and tail, summaries next to the original."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind import UserError
from hivemind.memory import (
    FileMemoryBlock,
    HistoryMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MemoryCompressor,
    StatusMemoryBlock,
    count_tokens,
)
from hivemind.memory.compression import code_outline, excerpt

PYTHON = (
    '''"""What the module is.

More of it.
"""
import os
from a import (b,
               c)

LIMIT = 3


@decorated
class Thing(Base, metaclass=Meta):
    """A thing."""

    async def act(self, x: int = 1, *rest: str) -> "list[str]":
        """Acts.

        At length.
        """
        def inner(): ...
        return []


def alone(): return 1
'''
    + "\n# filler\nx = 1" * 400
)


def compress(text: str, name: str, max_tokens: int) -> tuple[str, str]:
    return MemoryCompressor().compress(text, FileMemoryBlock(location=name), max_tokens)


def test_python_becomes_imports_signatures_and_first_docstring_lines() -> None:
    text, form = compress(PYTHON, "a.py", 200)
    assert form == "outline"
    assert text.splitlines() == [
        '"""What the module is."""',
        "import os",
        "from a import b, c",
        "class Thing(Base, metaclass=Meta):  # lines 13-22",
        '    """A thing."""',
        "    async def act(self, x: int=1, *rest: str) -> 'list[str]':  # lines 16-22",
        '        """Acts."""',
        "def alone():  # lines 25-25",
    ]


@pytest.mark.parametrize("text", ["def broken(:\n" * 400, "(" * 5_000, "x = '\\d'\n\0" * 900, "-" * 9_000 + "1"])
def test_what_only_looks_like_python_becomes_head_and_tail(text: str) -> None:
    small, form = compress(text, "a.py", 60)
    assert form == "excerpt"
    assert "cut …]" in small
    assert count_tokens(small) <= 60


def test_markdown_becomes_headings_and_first_sentences() -> None:
    text = "Intro here. More.\n\n# One\n\nFirst of one. Second.\n\n```\n# no heading\n```\n\n## Two\n\nOnly of\ntwo! And on.\n"
    small, form = compress(text + "filler. " * 900, "a.md", 100)
    assert form == "outline"
    assert small.splitlines() == ["Intro here.", "# One", "First of one.", "## Two", "Only of two!"]


def test_anything_else_becomes_head_and_tail_with_a_mark_of_what_was_cut() -> None:
    text = "".join(f"line {at}\n" for at in range(2_000))
    small, form = compress(text, "a.log", 100)
    lines = small.splitlines()
    assert form == "excerpt"
    assert (lines[0], lines[-1]) == ("line 0", "line 1999")
    mark = next(line for line in lines if "cut" in line)
    kept = len(lines) - 1
    assert mark.endswith(f"{2_000 - kept} lines cut …]")
    assert 80 <= count_tokens(small) <= 100


def test_history_becomes_counts_per_action_and_the_last_results() -> None:
    lines = [f"read_file: f{at}.py → {'x' * 40}" for at in range(60)] + ["run_command: pytest → 3 passed"]
    block = HistoryMemoryBlock(action_type="log", action_detail="")
    small, form = MemoryCompressor().compress("\n".join(lines), block, 200)
    assert form == "outline"
    assert small.splitlines()[0] == "read_file ×60, run_command ×1"
    assert small.splitlines()[-1] == "last: run_command: pytest → 3 passed"


def test_what_fits_stays_as_it_is_and_a_rom_stays_whatever_it_is() -> None:
    compressor = MemoryCompressor()
    assert compressor.compress_if_needed("short", FileMemoryBlock(location="a.py"), 10) == "short"
    assert compressor.compress_if_needed("long " * 99, FileMemoryBlock.rom("a.md"), 10) == "long " * 99


@settings(max_examples=60, deadline=None)
@given(
    text=st.one_of(st.text(max_size=2_000), st.text("ab \n", max_size=2_000), st.just(PYTHON)),
    name=st.sampled_from(["a.py", "a.md", "a.rs", "a"]),
    max_tokens=st.integers(1, 400),
)
def test_the_result_never_has_more_tokens_than_asked_for(text: str, name: str, max_tokens: int) -> None:
    for block in (FileMemoryBlock(location=name), KnowledgeMemoryBlock(topic="t", location=name)):
        assert count_tokens(MemoryCompressor().compress_if_needed(text, block, max_tokens)) <= max_tokens


def test_an_excerpt_of_next_to_nothing_is_the_beginning() -> None:
    assert excerpt("hello world and more", 1, count_tokens) == "hello"


def test_a_summary_by_a_mind_is_kept_beside_the_original_and_asked_for_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def summarizer(text: str, max_tokens: int) -> str:
        asked.append(len(text))
        return "In short: words."

    block: MemoryBlock = FileMemoryBlock(location="a.txt")
    text = "words " * 900
    for _ in range(2):  # the second as after a restart
        compressor = MemoryCompressor(summarizer=summarizer, folder=tmp_path / "summaries")
        assert compressor.compress(text, block, 50) == ("In short: words.", "outline")
    assert len(asked) == 1
    (kept,) = (tmp_path / "summaries").iterdir()
    assert json.loads(kept.read_text())["summary"] == "In short: words."
    assert compressor.compress(text + "new", block, 50)[0] == "In short: words."
    assert len(asked) == 2


def test_a_mind_that_is_down_or_says_too_much_leaves_it_to_the_rules() -> None:
    def down(text: str, max_tokens: int) -> str:
        raise UserError("no answer")

    block = StatusMemoryBlock(status_type="s", value="")
    for summarizer in (down, lambda text, max_tokens: text, lambda text, max_tokens: " "):
        assert MemoryCompressor(summarizer=summarizer).compress("words " * 900, block, 50)[1] == "excerpt"


def test_an_unknown_language_has_no_outline() -> None:
    assert code_outline("text", ".xyz") is None
    assert code_outline("x" * 2_000_001, ".py") is None


@pytest.mark.skipif(
    any(importlib.util.find_spec(f"tree_sitter{name}") is None for name in ("", "_go", "_javascript", "_rust")),
    reason="the extra `code`",
)
@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        (
            ".rs",
            "use std::io;\n\npub struct A {\n    x: i32,\n}\n\nimpl A {\n    pub fn f(&self, x: i32) -> i32 {\n x\n    }\n}\n",
            ["use std::io;", "pub struct A", "impl A", "    pub fn f(&self, x: i32) -> i32"],
        ),
        (
            ".js",
            "import a from 'b';\nclass A extends B {\n  act(x) {\n    return x;\n  }\n}\nfunction f(a, b) {\n  return a;\n}\n",
            ["import a from 'b';", "class A extends B", "    act(x)", "function f(a, b)"],
        ),
        (
            ".go",
            'package p\n\nimport "os"\n\nfunc F(a int) error {\n\treturn nil\n}\n',
            ["package p", 'import "os"', "func F(a int) error"],
        ),
    ],
)
def test_other_languages_are_outlined_by_tree_sitter(suffix: str, text: str, expected: list[str]) -> None:
    outline = code_outline(text, suffix)
    assert outline is not None
    assert [line.split("  // lines")[0] for line in outline.splitlines()] == expected


def test_where_room_is_short_signatures_are_kept_and_docstrings_go() -> None:
    code = "\n".join(f'def act_{at}(x):\n    """{"Says what it does. " * 9}"""\n    return x' for at in range(20))
    block = FileMemoryBlock(location="a.py")
    small, form = MemoryCompressor().compress(code, block, 400)
    assert form == "outline"
    assert all(f"def act_{at}(x):" in small for at in range(20))
    assert "Says" not in small
    assert "Says" in MemoryCompressor().compress(code + "\n" + "y = 1\n" * 600, block, 1_800)[0]
