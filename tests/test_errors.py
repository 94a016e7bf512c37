"""What an error comes down to."""

from __future__ import annotations

import errno

import pytest

from hivemind.errors import UserError, is_disk_full


@pytest.mark.parametrize(("code", "full"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_full_disk_is_found_behind_errors_that_stand_behind_each_other(code: int, full: bool):
    refused, told = OSError(code, "refused"), UserError("cannot be written")
    told.__cause__, refused.__context__ = refused, told  # as where a cause is raised again
    assert is_disk_full(refused) is full
    assert is_disk_full(told) is full
