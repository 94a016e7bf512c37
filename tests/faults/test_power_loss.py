"""What was acknowledged outlives the power, by the strictest reading of POSIX; a short run of `tests/faults/powerloss`."""

from __future__ import annotations

import pytest

from tests.faults.conftest import needs
from tests.faults.powerloss.run import Outcome, power_loss
from tests.sample import IS_WHOLE, sampled


@pytest.fixture(scope="module", autouse=True)
def _traced() -> None:
    """It is recorded with strace, as some of the other faults are made."""
    needs("kill-at-call")


SHARE = 1 if IS_WHOLE else 2  # of the crash states


def told(outcome: Outcome, *words: str) -> list[str]:
    """What was found that begins with one of the words, with what repeats it."""
    return [
        f"{what} ({found.crash.reason}; {outcome.command})"
        for found in outcome.faults
        for what in found.sentences
        if what.startswith(words)
    ]


@pytest.fixture(scope="module")
def durable() -> Outcome:
    return power_loss("stores", "full", states=60 // SHARE)


@sampled
@pytest.mark.parametrize(
    "words",
    [("letter",), ("journal", "step", "lease", "reserved"), ("memory",), ("document",), ("task",), ("doctor", "hive")],
)
def test_what_a_room_acknowledged_is_there_after_a_power_loss(durable, words):
    assert told(durable, *words) == []


@sampled
@pytest.mark.parametrize("lost", ["rename tasks/inbox/", "mkdir tasks/active/.claimed/ann/"])
def test_a_task_is_in_one_place_if_the_power_fails_while_it_is_claimed(lost):
    outcome = power_loss("stores", "full", states=80 // SHARE, pick=lambda what: what.startswith(lost))
    assert told(outcome, "task") == []


@sampled
def test_a_relaxed_hive_opens_after_a_power_loss_with_nothing_doubled_and_nothing_half_that_is_believed():
    outcome = power_loss("stores", "relaxed", states=40 // SHARE)
    assert [(found.crash.reason, found.sentences) for found in outcome.faults] == []
