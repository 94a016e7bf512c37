"""Which entries are looked at closely, and that looking at fewer loses nothing."""

from __future__ import annotations

import pytest

from hivemind.longterm.search import Term, rarest


@pytest.mark.parametrize(
    ("often", "finding"),
    [
        ([5_000], ["w0"]),  # the only one finds, however common
        ([5_000, 7_000], ["w0"]),
        ([150, 40, 1_000], ["w1", "w0", "w2"]),  # too few to leave any out
        ([3_100, 215, 1], ["w2", "w1"]),
        ([500, 500, 500, 500, 500], ["w0", "w1", "w2", "w3"]),
        ([], []),
    ],
)
def test_common_words_find_no_more_where_the_rarer_ones_find_enough(often: list[int], finding: list[str]) -> None:
    terms = [Term(f"w{at}", f"w{at}", count, 1.0) for at, count in enumerate(often)]
    assert rarest(terms, 200) == finding
