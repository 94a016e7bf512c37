"""Show and control the landing of finished work: its merge into branches of git repositories."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hivemind.cli.command import Arg, CommandOutput, command
from hivemind.cli.open_hive import find_layout, open_hive, open_read_only
from hivemind.cli.output import table_lines
from hivemind.cli.styled import progress
from hivemind.cli.text import age, one_line
from hivemind.errors import UserError
from hivemind.layout import LANDING

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.landing.report import LandingOverview, Rehearsal
    from hivemind.layout import Layout

_COLUMNS = ("task", "state", "for", "into", "agent", "why")
_LOOK_S = 1.0
_WAITS = 3  # the exit status, as of `up --until-idle`
_Mode = Annotated[bool, Arg(exclusive_group="mode")]
_ADDED = "somebody has added to it."
_State = Literal["landed", "returned", "waits", "cancelled", "queued"]


@command("land", find_layout)
def land(
    layout: Layout,
    tasks: list[str] | None = None,
    *,
    hold: _Mode = False,
    resume: _Mode = False,
    again: _Mode = False,
    dry_run: _Mode = False,
    reason: str | None = None,
) -> CommandOutput:
    """List tasks whose work is to land, or approve tasks that wait for a person's approval to land.

    Without arguments, lists what waits and why, what is being checked, what was returned to its agent, held roots, and what
    has landed last. With ids, approves these tasks, and waits until each has landed, was returned or waits for another
    reason. If the swarm is not up, this command lands them itself. Exit status: 0 if all landed, 3 if any waits, 1 if any
    was returned or cancelled, 2 if any cannot land (then none was changed).
    `land revert TASK` undoes a landed task by a commit that lands in the same way.

    arguments:
      TASK  the ids of tasks; with --hold and --resume roots (default: all); revert TASK
      --hold  land nothing in these roots until --resume
      --resume  go on with landing in these roots
      --again  run the checks of these tasks again, from a clean worktree
      --dry-run  show what these tasks would change and what they conflict with; changes nothing
      --reason TEXT  why it is held

    examples:
      hivemind land
      hivemind land read-dates write-dates
      hivemind land --hold ../app --reason "a release"
      hivemind land revert read-dates
    """
    names = tasks or []
    if (again or dry_run) and not names:
        raise UserError("no task is named", remedy="hivemind land lists those that there are")
    if dry_run:
        return _rehearsal_output(open_read_only(str(layout.root)), names)
    if not (names or hold or resume):
        return _report_output(open_read_only(str(layout.root)))
    hive = open_hive(str(layout.root))
    if hold or resume:
        return _hold_output(hive, names, (reason or "a person has stopped it") if hold else None)
    start_seq = hive.journal.seq
    if names[0] == "revert":
        from hivemind.landing.reverts import request_revert

        if len(names) == 1:
            raise UserError("land revert names no task", remedy="hivemind land revert TASK")
        return landing_output(hive, [request_revert(hive, task_id) for task_id in names[1:]], start_seq)
    if again:
        from hivemind.landing.queue import change_entry

        for task_id in names:
            change_entry(hive, task_id, lambda entry: replace(entry, again=True, state="queued", reason=""))
        lines = [f"{task_id}: its check runs again, when it is its turn" for task_id in names]
        return CommandOutput([{"id": task_id} for task_id in names], lines)
    from hivemind.landing.queue import approve

    return landing_output(hive, names, start_seq, approve(hive, *names))


def _report_output(hive: Hive) -> CommandOutput:
    from hivemind.landing.report import report_landing

    report = report_landing(hive)
    record = {
        "queue": [row.as_dict() for row in report.queue],
        "returned": [row.as_dict() for row in report.returned],
        "held": [{"root": root, **asdict(hold)} for root, hold in report.holds.items()],
        "unpushed": [{"root": root, "why": reason} for root, reason in report.unpushed.items()],
        "landed": [asdict(landed) for landed in report.landed],
    }
    return CommandOutput(record, _report_lines(report))


def _report_lines(report: LandingOverview) -> Iterator[str]:
    rows = [
        {
            "task": row.task.id, "state": row.state, "for": None if row.since is None else age(row.since),
            "into": sorted({f"{Path(branch.root).name}/{branch.target}" for branch in row.entry.branches}),
            "agent": row.entry.agent, "why": row.reason or None,
        }
        for row in (*report.queue, *report.returned)
    ]  # fmt: skip
    yield from table_lines(rows, _COLUMNS, empty="Nothing is to land.")
    yield from (f"{root} is held: {one_line(hold.reason)}" for root, hold in report.holds.items())
    yield from (f"{root} is not pushed: {one_line(reason)}" for root, reason in report.unpushed.items())
    if report.landed:
        yield "\nLanded last:"
    yield from (f"  {landed.commit[:12]} {landed.root.name}/{landed.branch}: {landed.task}" for landed in report.landed)


def _hold_output(hive: Hive, names: Sequence[str], reason: str | None) -> CommandOutput:
    """Stop merging finished work into some roots, or go on if `reason` is None. Return the command's output.

    `names` are the roots' paths or last parts of these.
    """
    from hivemind.landing.target import hold_roots

    roots = hold_roots(hive, names, reason)
    state = "goes on" if reason is None else f"is held: {one_line(reason)}"
    return CommandOutput([{"root": root, "held": reason} for root in roots], [f"{root}: {state}" for root in roots])


def _rehearsal_output(hive: Hive, ids: Sequence[str]) -> CommandOutput:
    from hivemind.landing.report import rehearse

    rehearsals = [(task_id, rehearsal) for task_id in ids for rehearsal in rehearse(hive, task_id)]
    lines = (line for task_id, rehearsal in rehearsals for line in _rehearsal_lines(task_id, rehearsal))
    return CommandOutput([{"id": task_id, **asdict(rehearsal)} for task_id, rehearsal in rehearsals], lines)


def _rehearsal_lines(task_id: str, rehearsal: Rehearsal) -> Iterator[str]:
    yield f"{task_id}: {rehearsal.how} of {rehearsal.branch.branch} into {rehearsal.branch.target} of {rehearsal.branch.root}"
    yield f"  subject: {rehearsal.subject}"
    yield from (f"  {line}" for line in rehearsal.changes or ("no changes",))
    yield from (f"  conflict: {path}" for path in rehearsal.conflicts)
    yield from (f"  protected: {path}" for path in rehearsal.protected)
    yield f"  check: {'; '.join(rehearsal.check)} ({rehearsal.verdict})" if rehearsal.check else "  check: none"


def landing_output(hive: Hive, ids: Sequence[str], seq: int, landed_ids: Sequence[str] = ()) -> CommandOutput:
    """Wait until each task has landed (is merged), was returned to its agent or waits for something; return the outcomes.

    If no process `landing` runs, or it ends meanwhile, land the tasks in this process. A task that was returned after the
    event `seq` counts as returned, even if its agent has finished it again.
    """
    returns: dict[str, str] = {}

    def is_done(*_: object) -> bool:
        nonlocal seq
        for event in hive.journal.read(seq):
            seq = event.seq
            if event.kind == "landing.returned":
                returns[event.payload["task_id"]] = event.payload.get("reason") or _ADDED
        return all(_outcome(hive, task_id, returns)[0] != "queued" for task_id in ids)

    with progress() as report:
        report(f"landing {', '.join(ids)}")
        _land_until(hive, is_done)
    outcomes = {task_id: _outcome(hive, task_id, returns) for task_id in ids}
    outcomes |= {id_: (state, _commits(hive, id_)) for id_, (state, _) in outcomes.items() if state == "landed"}
    states = {state for state, _ in outcomes.values()}
    lines = [
        f"{task_id}: {'has landed already' if task_id in landed_ids else state}{f', {one_line(text)}' if text else ''}"
        for task_id, (state, text) in outcomes.items()
    ]
    record = [{"id": task_id, "state": state, "why": text} for task_id, (state, text) in outcomes.items()]
    status = 1 if states & {"returned", "cancelled"} else _WAITS if states & {"waits", "queued"} else 0
    return CommandOutput(record, lines, status)


def _outcome(hive: Hive, task_id: str, returns: Mapping[str, str]) -> tuple[_State, str]:
    """Return the state of a task's landing (the merging of its work), and the reason for it, "" if there is none.

    `returns` maps each task that was returned since the command began to the reason.
    """
    from hivemind.taskrun.landing_entry import LandingEntry

    task = hive.tasks.get(task_id)
    entry = LandingEntry.of(task.kept)
    if task.state in ("done", "failed") or entry is None:
        return "landed" if task.state == "done" else "cancelled", ""
    if entry.state == "returned":
        reasons = [addition.text.partition("\n")[0] for addition in task.said if addition.by == LANDING]
        return "returned", reasons[-1] if reasons else _ADDED
    if task_id in returns:
        return "returned", f"{returns[task_id]} It is finished again, and {entry.reason or 'waits to land'}"
    is_claimed = task.owner == LANDING
    if is_claimed and entry.parent is not None:
        return "waits", entry.reason or f"the agent of {entry.parent} lands it"
    return ("waits", entry.reason) if entry.state == "waits" and is_claimed else ("queued", "")


def _commits(hive: Hive, task_id: str) -> str:
    """Return a text that says, for each branch into which a task has landed, which of its commits the branch has."""
    from hivemind.landing.target import Target
    from hivemind.taskrun.landing_entry import LandingEntry
    from hivemind.tasks import landing_state

    task = hive.tasks.get(task_id)
    entry, texts = LandingEntry.of(task.kept), []
    for branch in () if entry is None else entry.branches:
        if branch.landed:
            is_unchanged = Target.of(hive, Path(branch.root), branch.target).is_unchanged_by(task_id, branch)
            texts.append(f"{branch.target} has {'all of it' if is_unchanged else str(branch.commit)[:12]}")
    return ", ".join([*texts, *filter(None, [landing_state(task)])])


def _land_until(hive: Hive, is_done: Callable[..., bool]) -> None:
    """Wait until `is_done`, while another process lands; land in this process once there is none, or it has died."""
    from hivemind.fs import open_watcher
    from hivemind.landing.process import run_landing
    from hivemind.presence.identity import holder_pid

    journal_changed = threading.Event()
    with open_watcher(hive.config.watch, [], [hive.layout.journal], lambda _: journal_changed.set()):
        while not is_done():
            if holder_pid(hive.layout, LANDING) is None and run_landing(hive, is_done=is_done) == 0:
                return
            journal_changed.wait(_LOOK_S)
            journal_changed.clear()
