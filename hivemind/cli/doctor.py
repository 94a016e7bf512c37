"""hivemind doctor: check a hive, and mend it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hivemind.cli.hive_of import layout_of
from hivemind.cli.output import print_json, progress, say
from hivemind.cli.parser import Commands, Parser, add_command, add_json
from hivemind.cli.reader import reader_may_go
from hivemind.cli.text import one_line

if TYPE_CHECKING:
    from hivemind.doctor import Treated

__all__ = ["add_to"]


def add_to(commands: Commands, common: Parser) -> None:
    parser = add_command(
        commands,
        common,
        "doctor",
        run,
        "check the hive, say what is wrong and what it means, mend it with --fix",
        about="Looks at settings, permissions, mail, claims, locks, the journal and logs, records, databases, the file system\n"
        "and inotify's limits. Exit status 0 if the hive is healthy (notes do not count), 1 if anything is left to mend.\n"
        "--fix deletes nothing that you may want: it sets files aside into .hive/aside/<date>/.",
        examples="  hivemind doctor\n  hivemind doctor --fix",
    )
    parser.add_argument("--fix", action="store_true", help="mend what can be mended")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from hivemind.doctor import Patient, Treated, examine, treat

    patient = Patient(layout_of(arguments))
    with progress() as began:
        findings = examine(patient, began)
    if arguments.fix:
        treated = treat(patient, findings)
    else:
        treated = [Treated(finding, left=None if finding.note else "not mended yet") for finding in findings]
    left = [one for one in treated if one.left is not None]
    with reader_may_go():
        if arguments.json:
            print_json({"healthy": not left, "findings": [_record(one) for one in treated]})
        else:
            _show(treated, left, arguments.fix)
    return 1 if left else 0


def _record(one: Treated) -> dict[str, Any]:
    found = one.finding
    return {
        "check": found.check,
        "where": found.where,
        "what": found.what,
        "mend": found.mend,
        "fixable": found.fix is not None,
        "note": found.note,
        "done": one.done,
        "left": one.left,
    }


def _show(treated: Sequence[Treated], left: Sequence[Treated], fix: bool) -> None:
    for one in treated:
        found = one.finding
        mark = "mended" if one.done is not None else "note" if found.note else "problem"
        say(f"{mark + ':':9}{one_line(found.where)}: {one_line(found.what)}")
        if one.done is not None:
            say(f"         {one_line(one.done)}")
        elif fix and one.left is not None:
            say(f"         left: {one_line(one.left)}; {one_line(found.mend)}")
        else:
            say(f"         {one_line(found.mend)}")
    if not left:
        litter = sum(one.finding.note and one.finding.fix is not None and one.done is None for one in treated)
        say(f"The hive is healthy.{f' hivemind doctor --fix tidies away {litter} leftovers.' if litter else ''}")
        return
    fixable = sum(one.finding.fix is not None for one in left)
    hint = f"; hivemind doctor --fix mends {fixable} of them" if fixable and not fix else ""
    say(f"{len(left)} problem{'s' if len(left) > 1 else ''}{hint}.")
