"""Text on a terminal: widths, cuts, and nothing that steers it."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hivemind.cli.output import table
from hivemind.cli.text import age, fit, natural_key, one_line, width
from hivemind.masking import strip_controls

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@given(st.text(), st.integers(0, 40))
def test_a_cut_line_is_never_wider_than_asked(text: str, columns: int) -> None:
    assert width(fit(text, columns)) <= columns


@given(st.text(max_size=30))
def test_a_line_that_fits_is_left_as_it_is(text: str) -> None:
    assert fit(text, width(text)) == text


def test_a_cut_is_marked() -> None:
    assert fit("a long title", 6) == "a lon…"
    assert fit("測試文字", 5) == "測試…"


@given(st.text())
def test_nothing_that_is_shown_steers_the_terminal(text: str) -> None:
    assert all(char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs") for char in strip_controls(text))
    assert "\n" not in one_line(text)


def test_an_escape_sequence_and_a_reversed_name_lose_their_power() -> None:
    assert strip_controls("\x1b]0;owned\x07 \u202egpj.exe") == "\ufffd]0;owned\ufffd \ufffdgpj.exe"


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.text("abc測 ", max_size=30), min_size=n, max_size=n), min_size=1)
    ),
    st.integers(20, 100),
)
def test_a_table_keeps_to_the_terminal_if_its_first_column_lets_it(rows: list[list[str]], columns: int) -> None:
    lines = table(rows, columns)
    assert len(lines) == len(rows)
    assert all(line.startswith(row[0].rstrip()) for line, row in zip(lines, rows, strict=True))  # whole, to be copied
    if max(width(row[0]) for row in rows) + 8 * (len(rows[0]) - 1) <= columns:
        assert all(width(line) <= columns for line in lines)


def test_a_table_for_a_program_leaves_nothing_out() -> None:
    assert table([["x" * 300, "y"]], None) == ["x" * 300 + "  y"]


def test_ages_are_said_in_the_unit_that_a_person_would_use() -> None:
    said = [age(NOW - timedelta(seconds=seconds), NOW) for seconds in (0, 119, 120, 7199, 7200, 172_799, 172_800)]
    assert said == ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]
    assert age(NOW + timedelta(days=1), NOW) == "0 s"


def test_names_are_sorted_as_people_count() -> None:
    names = ["worker-10", "worker-2", "analyst", "2b", "10a", "worker"]
    assert sorted(names, key=natural_key) == ["2b", "10a", "analyst", "worker", "worker-2", "worker-10"]
