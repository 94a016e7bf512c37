"""The search finds an order where there is one, and none where there is none."""

from __future__ import annotations

import pytest

from tests.faults.linear import Call, counter, lease, linearizable, meet, reservations

FREE = (None, 0)
A = Call(0, 10, "a", "claim", ("mine", 1))


@pytest.mark.parametrize(
    "more",
    [
        [],
        [Call(5, 15, "b", "claim", "held"), Call(20, 30, "a", "release", "done")],
        [Call(5, 15, "b", "claim", ("held", "a", 1))],
        [Call(5, 15, "b", "get", (None, 0))],
        [Call(5, 15, "b", "get", ("a", 1))],
        [Call(20, 30, "b", "force", ("mine", 2)), Call(31, 32, "a", "renew", "refused", 1)],
        [Call(20, None, "a", "release", None), Call(90, 95, "b", "claim", ("mine", 2))],
        [Call(20, None, "a", "release", None), Call(90, 95, "b", "claim", "held")],
        [Call(20, 40, "a", "release", "done"), Call(25, 35, "b", "claim", ("mine", 2))],
    ],
)
def test_a_history_that_one_lease_explains_is_found_good(more: list[Call]) -> None:
    assert linearizable([A, *more], FREE, lease)


@pytest.mark.parametrize(
    "more",
    [
        [Call(5, 15, "b", "claim", ("held", "c", 1))],  # by somebody who never asked
        [Call(5, 15, "b", "claim", ("mine", 1))],  # two holders of one generation
        [Call(5, 15, "b", "claim", ("mine", 2))],  # two holders at a time
        [Call(20, 30, "b", "get", (None, 0))],  # a claim that was answered is not seen
        [Call(11, 12, "a", "release", "done"), Call(20, 30, "b", "claim", ("mine", 1))],  # a generation twice
        [Call(11, 12, "b", "force", ("mine", 2)), Call(20, 30, "a", "renew", "done", 1)],  # an old key opens
        [Call(11, 12, "b", "force", ("mine", 2)), Call(20, 30, "a", "release", "done", None)],
        [
            Call(20, None, "b", "release", None),
            Call(90, 95, "b", "claim", ("mine", 2)),
        ],  # who holds nothing gives nothing
        [Call(90, None, "a", "release", None), Call(20, 30, "b", "claim", ("mine", 2))],  # before it was asked
    ],
)
def test_a_history_that_no_lease_explains_is_found_out(more: list[Call]) -> None:
    assert not linearizable([A, *more], FREE, lease)


def reserve(begin: int, agent: str, pattern: str, result: object, *, shared: bool = False) -> Call:
    return Call(begin, begin + 5, agent, "reserve", result, (pattern, shared))


@pytest.mark.parametrize(
    ("calls", "good"),
    [
        ([reserve(0, "a", "k/*.md", ("got", 1)), reserve(9, "b", "k/x.md", "held")], True),
        ([reserve(0, "a", "k/*.md", ("got", 1)), reserve(9, "b", "k/x.md", ("got", 2))], False),
        ([reserve(0, "a", "k/*.md", ("got", 1)), reserve(9, "b", "k/x.txt", "held")], False),
        ([reserve(0, "a", "k/x", ("got", 1), shared=True), reserve(9, "b", "k/x", ("got", 2), shared=True)], True),
        ([reserve(0, "a", "k/x", ("got", 1), shared=True), reserve(9, "b", "k/x", ("got", 2))], False),
        ([reserve(0, "a", "k/x", ("got", 1)), Call(9, 11, "a", "release", "done"), reserve(20, "b", "k/x", ("got", 2))], True),
        ([reserve(0, "a", "k/x", ("got", 1)), Call(9, 11, "b", "release", "done"), reserve(20, "b", "k/x", ("got", 2))], False),
        ([reserve(0, "a", "k/x", ("got", 1)), Call(9, 11, "b", "list", ())], False),
        ([Call(0, None, "a", "reserve", None, ("k/x", False)), Call(9, 11, "b", "list", (("a", "k/x", False),))], True),
        ([Call(0, None, "a", "reserve", None, ("k/x", False)), Call(9, 11, "b", "list", ())], True),
        ([Call(0, None, "a", "reserve", None, ("k/x", False)), reserve(20, "b", "k/x", "held")], True),
        ([Call(0, None, "a", "reserve", None, ("k/x", False)), reserve(20, "b", "k/x", ("got", 2))], True),
        ([Call(0, None, "a", "reserve", None, ("k/y", False)), reserve(20, "b", "k/x", "held")], False),
    ],
)  # fmt: skip
def test_reservations_exclude_each_other_or_the_history_is_found_out(calls: list[Call], good: bool) -> None:
    assert linearizable(calls, frozenset(), reservations) is good


def test_a_lost_update_of_a_counter_is_found_out() -> None:
    one, other = (Call(at, at + 10, "x", "raise", "done", 1) for at in (0, 5))
    assert not linearizable([one, other], 0, counter)
    assert linearizable([one, Call(5, 15, "y", "raise", "conflict", 1), Call(20, 21, "y", "get", 1)], 0, counter)
    assert not linearizable([one, Call(20, 21, "y", "get", 0)], 0, counter)
    assert linearizable([Call(0, None, "x", "raise", None, 1), Call(20, 21, "y", "get", 0)], 0, counter)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [("k/a.md", "k/a.md", True), ("k/a.md", "k/b.md", False), ("k/*", "k/b.md", True), ("k/*.md", "k/b.txt", False),
     ("k/a*", "k/*b", True), ("k/a*", "k/b*", False), ("k/*", "k/x/y", False)],
)  # fmt: skip
def test_patterns_meet_if_a_path_could_match_both(one: str, other: str, both: bool) -> None:
    assert meet(one, other) is meet(other, one) is both
