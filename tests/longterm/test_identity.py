"""Ids of entries: unique, and in the order of time."""

from __future__ import annotations

import uuid

from hivemind.longterm.entry import new_id


def test_ids_are_uuids_of_version_7_in_the_order_of_time() -> None:
    made = [new_id() for _ in range(2_000)]

    assert len(set(made)) == len(made)
    assert {uuid.UUID(one).version for one in made} == {7}
    assert {uuid.UUID(one).variant for one in made} == {uuid.RFC_4122}
    beginnings = [one[:18] for one in made]  # milliseconds and their fraction
    assert beginnings == sorted(beginnings)
