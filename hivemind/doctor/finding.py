"""What the doctor found: one thing, what it means, and how it is put right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Finding", "Fix"]

Fix = Callable[[], str]
"""Puts one thing right and says what was done. Raises UserError or OSError, and then the thing is as it was."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` names the check, `where` the file, `what` what is wrong and what follows from it, `mend` how to mend it.

    `fix` mends it (None: only a person can). `quiet` says that nothing of the hive may be running meanwhile. A `note` is
    worth knowing and nothing that must be mended: with notes alone a hive is healthy. One with a `fix` is litter, which
    does no harm and can be tidied away.
    """

    check: str
    where: str
    what: str
    mend: str
    fix: Fix | None = field(default=None, compare=False)
    quiet: bool = False
    note: bool = False
