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
from hivemind.presence.identity import record_exit, lock_name
from hivemind.taskrun.worktree import failure_reason, put_away


def check_claims(patient: CheckContext) -> Iterator[CheckFinding]:
    """Claims of agents that no longer exist, or that do not run although the swarm does."""
    layout = patient.layout
    required_folders = (layout.inbox, layout.active, layout.done, layout.failed, layout.locks)
    if patient.agents is None or not all(folder.is_dir() for folder in required_folders):  # told by the check of folders
        return
    try:
        orphans = patient.tasks.orphans(patient.alive())
    except UserError as error:
        yield CheckFinding(error.location or "tasks/active", error.message, error.remedy or "mend or move the file")
        return
    for path, agent in ((orphan.path, orphan.agent) for orphan in orphans):
        is_known = agent in patient.agents or (agent == EXCHANGE and (layout.link / "link.json").exists())
        if agent is None:
            message = "lies in active/, and nobody has claimed it: nobody works on it"
            fix = partial(_to_inbox, patient, path, layout.inbox / path.name)
            yield CheckFinding(path, message, "hivemind doctor --fix moves it to the inbox", fix)
        elif is_known and not patient.up():
            yield CheckFinding(
                path, f"waits for {agent}, which goes on with it when it runs again", "hivemind up", note=True
            )
        else:
            message = f"is claimed by {agent}, which {'does not run' if is_known else 'does not exist'}: nobody works on it"
            remedy = "hivemind doctor --fix gives it back to the inbox, with its log"
            yield CheckFinding(path, message, remedy, partial(_reclaim, patient, agent, path))


def _to_inbox(patient: CheckContext, folder: Path, target: Path) -> str:
    fs.move(folder, target, durable=patient.durable)
    return f"now {patient.layout.relative(target)}"


def _reclaim(patient: CheckContext, agent: str, path: Path) -> str:
    """Give back what the agent has claimed; its name is held meanwhile, so that it cannot come to life under our hands."""
    if not path.exists():  # went back together with another one of the same agent
        return "given back already"
    try:
        lock = lock_name(patient.layout, agent)
    except HeldLock:
        return f"left alone: {agent} runs again"
    try:
        returned_folders = patient.tasks.reclaim(agent)
    finally:
        lock.release()
    return ", ".join(f"now {patient.layout.relative(folder)}" for folder in returned_folders) or "nothing was left to give back"


def check_farewells(patient: CheckContext) -> Iterator[CheckFinding]:
    """Agents that the journal takes to be at work and that no process is: their leases keep steps from others, if any
    others are at work."""
    if not patient.has_journal:
        return
    journal = Journal(patient.layout.journal, read_only=True)
    try:
        started_agents = journal.view(_started)
    except (UserError, OSError):
        return  # told by the check of the journal
    finally:
        journal.close()
    running, live_agents = patient.running(), patient.alive()
    for name, incarnation, leases in started_agents:
        if name not in live_agents:
            lease_note = f", and holds {leases} lease{'s' if leases > 1 else ''} of steps" if leases else ""
            message = f"{name} has ended without a word (it was killed){lease_note}"
            remedy = "hivemind doctor --fix writes that it has ended; so does its next start"
            fix = partial(_say_farewell, patient, name, incarnation)
            yield CheckFinding(patient.layout.journal, message, remedy, fix, note=running is None)


def _started(state: JournalState) -> list[tuple[str, int, int]]:
    """(name, incarnation, leases held) of each agent that has begun and not ended."""
    return [
        (name, agent_state.incarnation, len(state.leased_step_ids.get(name, ())))
        for name, agent_state in sorted(state.agents.items())
        if agent_state.state == "started"
    ]


def _say_farewell(patient: CheckContext, name: str, incarnation: int) -> str:
    try:
        lock = lock_name(patient.layout, name)
    except HeldLock:
        return f"left alone: {name} runs again"
    journal = Journal(patient.layout.journal, durable=patient.durable)
    try:
        is_new = record_exit(journal, name, incarnation, by="doctor")
    finally:
        journal.close()
        lock.release()
    return "agent.exited written, its leases are free" if is_new else "said already"


def check_worktrees(patient: CheckContext) -> Iterator[CheckFinding]:
    """Worktrees whose task is over or gone: their agent was killed before it could put them away."""
    for folder in patient.layout.worktrees.glob("*"):
        if is_name(folder.name) and not patient.tasks.is_open(folder.name):
            reason = failure_reason(patient.layout, folder.name)
            message = f"is left of a task that is over, or gone{f': {reason}' if reason else ''}"
            remedy = "hivemind doctor --fix commits what is in no commit yet to its branch, and takes it away"
            yield CheckFinding(folder, message, remedy, partial(_put_away, patient, folder.name), note=reason is None)


def _put_away(patient: CheckContext, task: str) -> str:
    put_away(patient.layout, task)
    return "its branch is kept, if anything was done on it"
