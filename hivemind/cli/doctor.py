"""Check a hive, and mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hivemind.cli.command import Answer, command
from hivemind.cli.opening import layout_of
from hivemind.cli.output import progress
from hivemind.cli.text import one_line

if TYPE_CHECKING:
    from hivemind.doctor import Treated
    from hivemind.layout import Layout


@command("doctor", layout_of)
def doctor(layout: Layout, *, fix: bool = False) -> Answer:
    """Check the hive, say what is wrong and what it means, mend it with --fix.

    Looks at settings, permissions, mail, claims, locks, the journal and logs, records, databases, the file system
    and inotify's limits. Exit status 0 if the hive is healthy (notes do not count), 1 if anything is left to mend.
    --fix deletes nothing that you may want: it sets files aside into .hive/aside/<date>/.

    arguments:
      --fix  mend what can be mended

    examples:
      hivemind doctor
      hivemind doctor --fix
    """
    from hivemind.doctor import Patient, Treated, examine, treat

    patient = Patient(layout)
    with progress() as began:
        findings = examine(patient, began)
    if fix:
        treated = treat(patient, findings)
    else:
        treated = [Treated(finding, left=None if finding.note else "not mended yet") for finding in findings]
    left = [one for one in treated if one.left is not None]
    record = {"healthy": not left, "findings": [one.as_dict() for one in treated]}
    return Answer(record, _lines(treated, left, fix), 1 if left else 0)


def _lines(treated: Sequence[Treated], left: Sequence[Treated], fix: bool) -> Iterator[str]:
    for one in treated:
        found = one.finding
        mark = "mended" if one.done is not None else "note" if found.note else "problem"
        yield f"{mark + ':':9}{one_line(str(found.where))}: {one_line(found.what)}"
        mend = one_line(found.mend)
        if one.done is not None:
            mend = one_line(one.done)
        elif fix and one.left is not None:
            mend = f"left: {one_line(one.left)}; {mend}"
        yield f"         {mend}"
    if not left:
        litter = sum(one.finding.note and one.finding.fix is not None and one.done is None for one in treated)
        yield f"The hive is healthy.{f' hivemind doctor --fix sees to {litter} of the notes.' if litter else ''}"
        return
    fixable = sum(one.finding.fix is not None for one in left)
    hint = f"; hivemind doctor --fix mends {fixable} of them" if fixable and not fix else ""
    yield f"{len(left)} problem{'s' if len(left) > 1 else ''}{hint}."
