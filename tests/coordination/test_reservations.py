from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hivemind.coordination import CoordinationError, Journal, ReservationHeld, Reservations, escape, overlap
from hivemind.coordination.reservations import check_pattern
from tests.durability import relaxed


@pytest.fixture
def reservations(tmp_path: Path) -> Reservations:
    return Reservations(Journal(relaxed(tmp_path)))


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("a.md", "a.md", True), ("a.md", "b.md", False), ("*.md", "a.*", True), ("*.md", "*.txt", False),
        ("src/**", "src/a/b.py", True), ("src/**", "srcs/a.py", False), ("**/a.py", "a.py", True),
        ("**/a.py", "ba.py", False), ("**/a.py", "b/c/a.py", True), ("a/**/z", "a/z", True), ("a/**/z", "az", False),
        ("src/*", "src/a/b", False), ("src/**/*.py", "src/*/b.*", True), ("[a-c]x", "[c-e]x", True),
        ("[a-c]x", "[d-e]x", False), ("[!a]x", "ax", False), ("[!a]x", "[!b]x", True), ("?", "ab", False), ("?", "[/]", False),
        ("a[", "a[", True), ("a[[]b", "a[b", True), ("**", "anything/at/all", True), ("*a*b", "b*a", False), ("*a*b", "b*a*", True),  # noqa: E501
    ],
)  # fmt: skip
def test_two_patterns_meet_if_a_path_could_match_both_whichever_comes_first(one: str, other: str, meet: bool) -> None:
    assert overlap(one, other) is meet
    assert overlap(other, one) is meet


def plain(pattern: str) -> re.Pattern[str]:
    """The same language said another way: one regular expression."""
    out, parts = "", pattern.split("/")
    for at, part in enumerate(parts):
        last = at + 1 == len(parts)
        if part == "**":
            out += ".*" if last else "(?:[^/].*/|)"
            continue
        out += re.sub(
            r"\*+|\?|.", lambda found: {"*": "[^/]*", "?": "[^/]"}.get(found[0][0], re.escape(found[0])), part
        )
        out += "" if last else "/"
    return re.compile(out, re.DOTALL)


PATHS = ["".join(path) for size in range(1, 8) for path in itertools.product("ab/", repeat=size)]
PATHS = [path for path in PATHS if "//" not in path and path[0] != "/" and path[-1] != "/"]
DEEP = st.lists(st.sampled_from(["**", "*", "a", "b", "?"]), min_size=1, max_size=3).map("/".join)
WIDE = st.lists(st.sampled_from(["*", "a*", "*b", "b*a", "?", "a?", "ab", "*a*"]), min_size=1, max_size=2).map("/".join)


@settings(max_examples=200, deadline=None)
@given(st.tuples(DEEP, DEEP) | st.tuples(WIDE, WIDE))  # whatever these have in common, some path of PATHS shows it
@example(("**/a", "a/**"))
def test_what_meets_agrees_with_trying_every_short_path(pair: tuple[str, str]) -> None:
    one, other = pair
    first, second = plain(one), plain(other)
    shared = next((path for path in PATHS if first.fullmatch(path) and second.fullmatch(path)), None)
    assert overlap(one, other) is (shared is not None)


def test_a_path_with_special_characters_is_only_itself() -> None:
    assert overlap(escape("a[1]*.md"), escape("a[1]*.md"))
    assert not overlap(escape("a[1]*.md"), "a1b.md")


@settings(max_examples=200, deadline=None)
@given(st.text("ab*?[]{},! ", min_size=1, max_size=6), st.text("ab*?[]{},! ", min_size=1, max_size=6))
@example("{a,b}", "a")
@example(" a", "a")
def test_the_pattern_of_a_path_is_accepted_and_matches_that_path_alone(one: str, other: str) -> None:
    assert overlap(check_pattern(escape(one)), check_pattern(escape(other))) is (one == other)


@pytest.mark.parametrize("pattern", ["src/{a,b}.py", "{a..c}", "src/{a", "a/{b}/**", "[!a]{b,c}", "x[]{}]{"])
def test_braces_are_refused_with_what_to_write_instead_never_taken_literally(pattern: str) -> None:
    with pytest.raises(CoordinationError, match=r"one pattern for each") as refused:
        check_pattern(pattern)
    assert refused.value.code == "INVALID_PATTERN"


def test_a_brace_in_a_class_is_a_brace(reservations: Reservations) -> None:
    reservations.reserve("ada", "src/[{]a,b}.py")
    with pytest.raises(ReservationHeld):
        reservations.reserve("bob", escape("src/{a,b}.py"))
    reservations.reserve("bob", ["src/a.py", "src/b.py"])


@pytest.mark.parametrize("pattern", ["", "/etc", "../x", "a/../b", "a\0", ".", 7])
def test_a_pattern_stays_in_the_hive(pattern: object) -> None:
    with pytest.raises(CoordinationError):
        check_pattern(pattern)
    assert check_pattern("./a//b/") == "a/b/**"


def test_an_exclusive_reservation_keeps_others_out_and_not_its_holder(reservations: Reservations) -> None:
    reservations.reserve("ada", ["src/*.py", "doc/"])
    with pytest.raises(ReservationHeld) as caught:
        reservations.reserve("bob", "src/a.*")
    assert (caught.value.code, caught.value.holder) == ("RESERVATION_HELD", "ada")
    assert reservations.reserve("ada", "src/a.py").agent_id == "ada"
    reservations.reserve("bob", "src/a/b.py")


def test_shared_reservations_bear_each_other_and_no_exclusive_one(reservations: Reservations) -> None:
    reservations.reserve("ada", "a", shared=True)
    reservations.reserve("bob", "a", shared=True)
    with pytest.raises(ReservationHeld):
        reservations.reserve("ada", "a")
    with pytest.raises(ReservationHeld):
        reservations.reserve("cy", "*")


def test_reserving_the_same_again_changes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    reservations = Reservations(journal)
    assert reservations.reserve("ada", "a") == reservations.reserve("ada", "./a")
    assert journal.seq == 1


@pytest.mark.shows("event: paths.released")
def test_a_reservation_ends_when_released_by_its_holder_and_with_its_holder(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    reservations = Reservations(journal)
    held = reservations.reserve("ada", "a")
    assert not reservations.release(held, "bob")
    assert reservations.release(held, "ada")
    assert not reservations.release(held, "ada")
    reservations.reserve("ada", "b")
    reservations.reserve("bob", "c")
    journal.append("agent.exited", agent_id="ada")
    assert [one.agent_id for one in reservations.list()] == ["bob"]
    assert Reservations(Journal(tmp_path)).list() == reservations.list()
    assert reservations.release_all("bob") == 1
    assert [event.kind for event in journal.read()].count("paths.released") == 2
