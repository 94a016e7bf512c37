from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.mail.maildir import (
    BaseNames,
    is_leftover,
    is_runtime_name,
    is_unique_name,
    join_name,
    original_base,
    second_base,
    sort_key,
    split_name,
)

_NOW = datetime(2026, 11, 21, 12, 0, 0, 42, tzinfo=UTC)
_FLAGS = st.text("DFPRST", max_size=6)


def test_names_are_unique_and_sort_by_time() -> None:
    names = BaseNames("box.example.org")
    made = [names.next_name(_NOW) for _ in range(1000)]
    assert len(set(made)) == 1000
    assert sorted(made, key=lambda name: sort_key(name) or ()) == made
    assert all(is_runtime_name(name) and is_unique_name(name) and name.endswith(".box") for name in made)


def test_two_programs_at_once_never_make_the_same_name() -> None:
    assert BaseNames().next_name(_NOW) != BaseNames().next_name(_NOW)


def test_a_forked_child_makes_other_names() -> None:
    names = BaseNames()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, names.next_name(_NOW).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000).decode() != names.next_name(_NOW)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("host", ["", "...", "a/b:c", "Ünïcode", "x" * 300])
def test_a_strange_host_name_makes_names_that_are_ours_all_the_same(host: str) -> None:
    assert is_runtime_name(BaseNames(host or "/").next_name(_NOW))


def test_a_clock_before_1970_makes_a_name_all_the_same() -> None:
    assert is_runtime_name(BaseNames().next_name(datetime(1960, 1, 1, tzinfo=UTC)))


@given(_FLAGS, _FLAGS)
def test_flags_are_kept_in_ascii_order_each_once(had: str, more: str) -> None:
    base, flags = split_name(join_name("1.a.b", had + more))
    assert base == "1.a.b"
    assert flags == "".join(sorted(set(had + more)))


@given(st.text(st.characters(exclude_characters="/\0:"), min_size=1))
def test_a_second_file_of_a_name_keeps_the_first_part(base: str) -> None:
    once = second_base(base, "1")
    assert original_base(once) == original_base(base)
    assert second_base(once, "2") == second_base(base, "2")


@pytest.mark.parametrize(
    ("name", "unique"),
    [
        ("1763765432.M123456P42Q1.host", True),
        ("1763765432.R12345.host", True),
        ("1763765432.42_1.host,S=12", True),
        ("note", False),
        ("note.txt", False),
        ("2026.11.21", False),
    ],
)
def test_names_of_mail_programs_are_told_from_those_of_people(name: str, unique: bool) -> None:
    assert is_unique_name(name) == unique
    assert (sort_key(name) is not None) == unique
    assert not is_runtime_name(name)


@pytest.mark.parametrize("name", [".note.swp", ".hidden", "note~", "note.tmp", "4913", ".tmp-1-2-3"])
def test_what_editors_leave_is_no_message(name: str) -> None:
    assert is_leftover(name)
    assert not is_leftover("note.txt")
