"""What a tool gives is text for a reader: whole up to a limit, else its beginning and its end with the way to the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.tools.excerpt import as_lines, result_limit, shortened


def lines(first: int, last: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, last + 1))


def test_a_text_is_whole_up_to_the_limit_and_beyond_it_has_a_head_and_a_tail_that_say_where_the_rest_is() -> None:
    text = lines(1, 1000)
    assert shortened(text, len(text)) == text
    cut = shortened(text, 1000, lambda first, last: f"read_file(start_line={first}, end_line={last})")
    head, note, tail = cut.partition("[")[0], cut.partition("[")[2].partition("]\n")[0], cut.partition("]\n")[2]
    end = head.count("\n")
    begin = 1001 - tail.count("\n")
    assert (head, tail) == (lines(1, end), lines(begin, 1000))
    left_out = len(text) - len(head) - len(tail)
    assert note == (
        f"{left_out:,} characters left out, lines {end + 1} to {begin - 1} of 1,000: "
        f"read_file(start_line={end + 1}, end_line={begin - 1})"
    )
    assert len(cut) <= 1000
    assert len(tail) > len(head)


def test_one_long_line_is_cut_too() -> None:
    cut = shortened("x" * 5000, 1000)
    assert len(cut) <= 1000
    assert "characters left out, line 1 of 1]" in cut


@given(st.text(alphabet="ab\n", max_size=3000), st.integers(300, 3000))
def test_an_excerpt_never_exceeds_its_limit_and_begins_and_ends_as_the_text_does(text: str, limit: int) -> None:
    cut = shortened(text, limit)
    assert len(cut) <= limit
    if cut != text:
        head, _, rest = cut.partition("[")
        assert text.startswith(head.rstrip("\n"))
        assert text.endswith(rest.partition("]\n")[2])


def test_a_small_context_has_small_results() -> None:
    assert [result_limit(tokens) for tokens in (20_000, 100_000, 1_000_000)] == [4_000, 10_000, 10_000]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"task": "t", "state": "done"}, "task: t\nstate: done"),
        ({"over": False, "none": None, "empty": [], "count": 0}, "over: no\ncount: 0"),
        (
            {"names": ["a", "b"], "rows": [{"x": 1, "y": "two\nlines"}]},
            "names: a, b\nrows:\n  - x: 1\n    y:\n      two\n      lines",
        ),
    ],
)
def test_a_small_result_is_lines_not_json(result: dict[str, object], text: str) -> None:
    assert as_lines(result) == text
