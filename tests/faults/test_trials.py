"""The most telling pairs of a scenario and a fault, one seed each; the rest is `make faults`'s.

Each of these faults comes at a place in the program, not at a time: what it meets does not depend on the machine's load.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.conftest import needs, needs_a_sandbox
from tests.faults.faults import FAULTS, crash_points
from tests.faults.report import BEGIN, PROMISES, numbers
from tests.faults.scenarios import SCENARIOS
from tests.faults.trial import try_once
from tests.program import REPOSITORY, Warm

PAIRS = [
    ("tasks", "crash-point", 1),
    ("tasks", "full-disk", 3),
    ("letters", "crash-point", 3),
    ("letters", "sweep", 3),
    ("leases", "none", 1),
    ("member", "none", 1),
    ("budgets", "none", 1),
    ("documents", "kill-at-call", 1),
    ("memory", "crash-point", 3),
    ("post", "none", 1),
    ("reservations", "none", 1),
    ("hand-over", "none", 1),
    ("turn", "crash-point", 1),
    ("hostile", "crash-point", 1),
    ("landing", "crash-point", 1),
]


@pytest.mark.slow
@pytest.mark.shows("promise: each of a scenario's")
@pytest.mark.parametrize(("scenario", "fault", "seed"), PAIRS)
def test_every_promise_holds_in_a_scenario_under_a_fault(
    scenario: str, fault: str, seed: int, warm: Warm, tmp_path: Path
) -> None:
    needs(fault)
    if scenario == "hostile":
        needs_a_sandbox()
    trial = try_once(SCENARIOS[scenario], FAULTS[fault], seed, warm=warm, keep=tmp_path)
    assert not trial.violations, (trial.command, trial.trace, *(sentence for _, _, sentence in trial.violations))


@pytest.mark.parametrize("fault", FAULTS)
def test_where_all_faults_are_wanted_each_can_be_made(fault: str) -> None:
    needs(fault)


def test_every_promise_that_a_checker_names_is_one_and_every_promise_is_shown_by_something() -> None:
    assert {scenario for scenario, _, _ in PAIRS} == set(SCENARIOS), "each is played in make test, once at least"
    checked = {one for scenario in SCENARIOS.values() for checker in scenario.checkers for one in checker.promises}
    promises = numbers()
    assert promises == sorted(set(promises), key=lambda one: int(one[1:]))  # those of one chapter may leave room
    assert checked <= set(promises)
    rows = re.findall(
        r"^\| (P\d+) \| (.+?) \| (.+?) \| (.+?) \|$", PROMISES.read_text("utf-8").partition(BEGIN)[0], re.MULTILINE
    )
    for number, _, _, shown_by in rows:
        for one in shown_by.split(", "):
            if one.startswith("tests/faults ("):
                names = one.partition("(")[2].rstrip(")")
                of = SCENARIOS.values() if names == "all" else [SCENARIOS[names]]
                assert any(number in checker.promises for scenario in of for checker in scenario.checkers), (
                    number,
                    one,
                )
            else:
                assert (REPOSITORY / one).is_file(), f"{number} is shown by {one}, which is not there"


def test_the_crash_points_on_the_way_of_each_scenario_are_some_of_the_programs() -> None:
    points = crash_points()
    assert len(points) > 60
    for scenario in SCENARIOS.values():
        for prefix in scenario.points:
            assert any(point.startswith(prefix) for point in points), f"{scenario.name}: no crash point begins {prefix}"
