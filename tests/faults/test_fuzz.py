"""Whatever others write, each door takes it, sets it aside or refuses it in words; a short run of `tests/faults/fuzz`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.fuzz.run import DOOR_NAMES, corpus, fuzz
from tests.faults.fuzz.worker import Worker

INPUTS = 4  # of each door; `make faults` has fifty


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as one:
        yield one


@pytest.mark.shows("promise: P48")
@pytest.mark.parametrize("door", DOOR_NAMES)
def test_a_door_refuses_what_it_cannot_take_in_words_and_the_next_one_has_its_turn(door, worker):
    run = fuzz(door, worker, INPUTS)
    assert run.causes == {}, run.command


@pytest.mark.parametrize("found", list(corpus()), ids=lambda found: found[0].stem)
def test_what_was_found_before_stays_mended(found, worker):
    _, door, name, data = found
    assert worker.ask(door, name, data).wrong == ()


def test_a_worker_that_dies_over_an_input_says_so_and_the_next_input_is_taken(worker):
    [died] = worker.ask("die", "", b"").wrong
    assert "the process died over it with -9" in died
    assert worker.ask("mind", "", b"{}").wrong == ()
