"""Check a hive, and repair it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hivemind.cli.command import CommandOutput, command
from hivemind.cli.open_hive import find_layout
from hivemind.cli.styled import progress
from hivemind.cli.text import one_line

if TYPE_CHECKING:
    from hivemind.doctor import FixOutcome
    from hivemind.layout import Layout


@command("doctor", find_layout)
def doctor(layout: Layout, *, fix: bool = False) -> CommandOutput:
    """Check the hive and explain its problems; repair them with --fix.

    Checks settings, permissions, mail, claims, locks, the journal and logs, records, databases, the file system
    and inotify's limits. Exit status 0 if the hive is healthy (notes do not count), 1 if problems remain.
    --fix moves files to .hive/aside/<date>/ instead of deleting them.

    arguments:
      --fix  repair the problems that can be repaired

    examples:
      hivemind doctor
      hivemind doctor --fix
    """
    from hivemind.doctor import DoctorContext, FixOutcome, apply_fixes, examine

    context = DoctorContext(layout)
    with progress() as report_progress:
        findings = examine(context, report_progress)
    if fix:
        reports = apply_fixes(context, findings)
    else:
        reports = [
            FixOutcome(finding, unresolved_reason=None if finding.note else "not mended yet") for finding in findings
        ]
    unmended = [report for report in reports if report.unresolved_reason is not None]
    fields = {"healthy": not unmended, "findings": [report.as_dict() for report in reports]}
    return CommandOutput(fields, _lines(reports, unmended, fix), 1 if unmended else 0)


def _lines(reports: Sequence[FixOutcome], unmended: Sequence[FixOutcome], fix: bool) -> Iterator[str]:
    for report in reports:
        finding = report.finding
        mark = "mended" if report.done is not None else "note" if finding.note else "problem"
        yield f"{mark + ':':9}{one_line(str(finding.location))}: {one_line(finding.message)}"
        remedy = one_line(finding.remedy)
        if report.done is not None:
            remedy = one_line(report.done)
        elif fix and report.unresolved_reason is not None:
            remedy = f"left: {one_line(report.unresolved_reason)}; {remedy}"
        yield f"         {remedy}"
    if not unmended:
        fixable_notes = sum(
            fix_report.finding.note and fix_report.finding.fix is not None and fix_report.done is None
            for fix_report in reports
        )
        yield f"The hive is healthy.{f' hivemind doctor --fix sees to {fixable_notes} of the notes.' if fixable_notes else ''}"
        return
    fixable = sum(fix_report.finding.fix is not None for fix_report in unmended)
    hint = f"; hivemind doctor --fix mends {fixable} of them" if fixable and not fix else ""
    yield f"{len(unmended)} problem{'s' if len(unmended) > 1 else ''}{hint}."
