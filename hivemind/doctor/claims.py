"""Agents that are gone: their claims, their leases, their worktrees."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind import fs
from hivemind.coordination import Journal, JournalState
from hivemind.doctor.patient import CheckContext
from hivemind.errors import UserError
from hivemind.fs import HeldLock
from hivemind.fs.check import CheckFinding
from hivemind.layout import EXCHANGE
from hivemind.names import is_name
from hivemind.presence.identity import farewell, take_name
from hivemind.taskrun.worktree import left_reason, put_away


def check_claims(patient: CheckContext) -> Iterator[CheckFinding]:
    """Claims of agents that no longer exist, or that do not run although the swarm does."""
    layout = patient.layout
    needed = (layout.inbox, layout.active, layout.done, layout.failed, layout.locks)
    if patient.agents is None or not all(folder.is_dir() for folder in needed):  # told by the check of folders
        return
    try:
        orphans = patient.tasks.claims.orphans(patient.alive())
    except UserError as error:
        yield CheckFinding(error.location or "tasks/active", error.message, error.remedy or "mend or move the file")
        return
    for path, agent in ((orphan.path, orphan.agent) for orphan in orphans):
        known = agent in patient.agents or (agent == EXCHANGE and (layout.link / "link.json").exists())
        if agent is None:
            what = "lies in active/, and nobody has claimed it: nobody works on it"
            fix = partial(_to_inbox, patient, path, layout.inbox / path.name)
            yield CheckFinding(path, what, "hivemind doctor --fix moves it to the inbox", fix)
        elif known and not patient.up():
            yield CheckFinding(
                path, f"waits for {agent}, which goes on with it when it runs again", "hivemind up", note=True
            )
        else:
            what = f"is claimed by {agent}, which {'does not run' if known else 'does not exist'}: nobody works on it"
            mend = "hivemind doctor --fix gives it back to the inbox, with its log"
            yield CheckFinding(path, what, mend, partial(_reclaim, patient, agent, path))


def _to_inbox(patient: CheckContext, folder: Path, target: Path) -> str:
    fs.move(folder, target, durable=patient.durable)
    return f"now {patient.layout.relative(target)}"


def _reclaim(patient: CheckContext, agent: str, path: Path) -> str:
    """Give back what the agent has claimed; its name is held meanwhile, so that it cannot come to life under our hands."""
    if not path.exists():  # went back together with another one of the same agent
        return "given back already"
    try:
        name = take_name(patient.layout, agent)
    except HeldLock:
        return f"left alone: {agent} runs again"
    try:
        back = patient.tasks.claims.reclaim(agent)
    finally:
        name.release()
    return ", ".join(f"now {patient.layout.relative(one)}" for one in back) or "nothing was left to give back"


def check_farewells(patient: CheckContext) -> Iterator[CheckFinding]:
    """Agents that the journal takes to be at work and that no process is: their leases keep steps from others, if any
    others are at work."""
    if not patient.has_journal:
        return
    journal = Journal(patient.layout.journal, read_only=True)
    try:
        started = journal.view(_started)
    except (UserError, OSError):
        return  # told by the check of the journal
    finally:
        journal.close()
    running, alive = patient.running(), patient.alive()
    for name, incarnation, leases in started:
        if name not in alive:
            held = f", and holds {leases} lease{'s' if leases > 1 else ''} of steps" if leases else ""
            what = f"{name} has ended without a word (it was killed){held}"
            mend = "hivemind doctor --fix writes that it has ended; so does its next start"
            fix = partial(_say_farewell, patient, name, incarnation)
            yield CheckFinding(patient.layout.journal, what, mend, fix, note=running is None)


def _started(state: JournalState) -> list[tuple[str, int, int]]:
    """(name, incarnation, leases held) of each agent that has begun and not ended."""
    return [
        (name, entry.incarnation, len(state.leased_step_ids.get(name, ())))
        for name, entry in sorted(state.agents.items())
        if entry.state == "started"
    ]


def _say_farewell(patient: CheckContext, name: str, incarnation: int) -> str:
    try:
        lock = take_name(patient.layout, name)
    except HeldLock:
        return f"left alone: {name} runs again"
    journal = Journal(patient.layout.journal, durable=patient.durable)
    try:
        said = farewell(journal, name, incarnation, by="doctor")
    finally:
        journal.close()
        lock.release()
    return "agent.exited written, its leases are free" if said else "said already"


def check_worktrees(patient: CheckContext) -> Iterator[CheckFinding]:
    """Worktrees whose task is over or gone: their agent was killed before it could put them away."""
    for folder in patient.layout.worktrees.glob("*"):
        if is_name(folder.name) and not patient.tasks.listing.is_open(folder.name):
            reason = left_reason(patient.layout, folder.name)
            what = f"is left of a task that is over, or gone{f': {reason}' if reason else ''}"
            mend = "hivemind doctor --fix commits what is in no commit yet to its branch, and takes it away"
            yield CheckFinding(folder, what, mend, partial(_put_away, patient, folder.name), note=reason is None)


def _put_away(patient: CheckContext, task: str) -> str:
    put_away(patient.layout, task)
    return "its branch is kept, if anything was done on it"
