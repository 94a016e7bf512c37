"""What an error comes down to."""

from __future__ import annotations

import errno

from hivemind.errors import UserError, is_disk_full


def raised_again(code: int) -> OSError:
    """An OSError that is raised again out of the UserError that it caused: each stands behind the other."""
    try:
        try:
            try:
                raise OSError(code, "refused")
            except OSError as error:
                raise UserError("cannot be written") from error
        except UserError as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None
    except OSError as error:
        return error


def test_a_full_disk_is_found_behind_errors_that_stand_behind_each_other():
    assert is_disk_full(raised_again(errno.ENOSPC))
    assert not is_disk_full(raised_again(errno.EIO))
