"""One warm process for all trials of a test run."""

from __future__ import annotations

import os

import pytest

from hivemind.errors import UserError
from hivemind.sandbox import check_sandbox
from tests import program
from tests.faults.faults import FAULTS, gap_of
from tests.program import Warm


def needs(fault: str) -> None:
    """Skip the test if the machine cannot make a fault; fail where all are wanted and a program was not installed."""
    if gap := gap_of(FAULTS[fault]):
        assert gap.kernel or os.environ.get("HIVEMIND_FAULTS") != "all", gap.reason
        pytest.skip(gap.reason)


def needs_a_sandbox() -> None:
    """Skip the test if no sandbox can be made."""
    try:
        check_sandbox()
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def warm() -> Warm:
    return program.warm()
