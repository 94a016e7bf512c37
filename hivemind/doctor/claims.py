"""Checks for what agents leave behind when they end: claims, leases and worktrees."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind import fs
from hivemind.coordination import Journal, JournalState
from hivemind.doctor.context import DoctorContext
from hivemind.errors import UserError
from hivemind.fs import LockBusy
from hivemind.fs.integrity import DoctorFinding
from hivemind.layout import EXCHANGE, LANDING
from hivemind.names import is_name
from hivemind.presence.identity import journal_exit, lock_name
from hivemind.taskrun.worktree import commit_leftovers, failure_reason, leftover_task, put_away, worktree_paths


def check_claims(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Find claims of agents that do not exist, or that do not run although the swarm is up."""
    layout = context.layout
    required_folders = (layout.inbox, layout.active, layout.done, layout.failed, layout.locks)
    if context.agents is None or not all(folder.is_dir() for folder in required_folders):  # reported by check_folders
        return
    try:
        orphans = context.tasks.recovery.orphans(context.live_agents())
    except UserError as error:
        yield DoctorFinding(error.location or "tasks/active", error.message, error.remedy or "fix or move the file")
        return
    for path, agent in ((orphan.path, orphan.agent) for orphan in orphans):
        if agent == LANDING:  # it lands when the swarm is up
            continue
        is_known = agent in context.agents or (agent == EXCHANGE and (layout.link / "link.json").exists())
        if agent is None:
            message = "is in active/ without a claim: no agent works on it"
            fix = partial(_move_to_inbox, context, path, layout.inbox / path.name)
            yield DoctorFinding(path, message, "hivemind doctor --fix moves it to the inbox", fix)
        elif agent in context.agents.configs and context.agents.configs[agent].outside and context.is_swarm_up():
            message = f"was left by {agent}, an MCP client, and goes back to the inbox (mcp: return_after in hive.yaml)"
            yield DoctorFinding(path, message, "see: hivemind status", note=True)
        elif is_known and not context.is_swarm_up():
            yield DoctorFinding(
                path, f"waits for {agent}, which continues it at its next start", "hivemind up", note=True
            )
        else:
            message = (
                f"is claimed by {agent}, which {'does not run' if is_known else 'does not exist'}: no agent works on it"
            )
            remedy = "hivemind doctor --fix returns it to the inbox, with its log"
            yield DoctorFinding(path, message, remedy, partial(_reclaim, context, agent, path))


def _move_to_inbox(context: DoctorContext, folder: Path, target: Path) -> str:
    fs.move(folder, target)
    return f"now {context.layout.relative(target)}"


def _reclaim(context: DoctorContext, agent: str, path: Path) -> str:
    """Move the agent's tasks to the inbox. Return a sentence about it. Meanwhile the agent's name is locked, so it cannot start.

    `path` is one of the tasks' folders; if it is gone, the tasks have been moved already.
    """
    if not path.exists():  # returned together with another task of the same agent
        return "returned already"
    try:
        lock = lock_name(context.layout, agent)
    except LockBusy:
        return f"unchanged: {agent} runs again"
    try:
        returned_folders = context.tasks.recovery.reclaim(agent)
    finally:
        lock.release()
    return (
        ", ".join(f"now {context.layout.relative(folder)}" for folder in returned_folders)
        or "the agent had no tasks left"
    )


def check_unended_agents(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Find agents that have no process, although the journal says that they run. Their leases block steps for other
    agents."""
    if not context.has_journal:
        return
    journal = Journal(context.layout.journal, read_only=True)
    try:
        started_agents = journal.view(_started_agents)
    except (UserError, OSError):
        return  # reported by check_journal
    finally:
        journal.close()
    live_agents = context.live_agents()
    unended = [row for row in started_agents if row[0] not in live_agents]
    if unended:
        names = ", ".join(f"{name} (leases of steps: {leases})" if leases else name for name, _, leases in unended)
        message = f"{names}: killed, or running when this copy was made; the journal lacks agent.exited"
        remedy = "hivemind doctor --fix writes agent.exited; so does the agent's next start"

        def fix() -> str:
            return ", ".join(_record_end(context, name, incarnation) for name, incarnation, _ in unended)

        yield DoctorFinding(context.layout.journal, message, remedy, fix, note=context.describe_running() is None)


def _started_agents(state: JournalState) -> list[tuple[str, int, int]]:
    """Return name, incarnation and number of leases of each agent that has started and not ended."""
    return [
        (name, agent_state.incarnation, len(state.leased_step_ids.get(name, ())))
        for name, agent_state in sorted(state.agents.items())
        if agent_state.state == "started"
    ]


def _record_end(context: DoctorContext, name: str, incarnation: int) -> str:
    try:
        lock = lock_name(context.layout, name)
    except LockBusy:
        return f"{name} runs again"
    journal = Journal(context.layout.journal)
    try:
        is_new = journal_exit(journal, name, incarnation, by="doctor")
    finally:
        journal.close()
        lock.release()
    return f"{name}: agent.exited {'written, its leases are free' if is_new else 'was there already'}"


def check_worktrees(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Find worktrees of agents that are gone, and uncommitted work of tasks that no longer belong to the worktree's agent."""
    layout, agents = context.layout, context.agents
    for folder in layout.worktrees.glob("*"):
        if agents is None or not is_name(folder.name) or not folder.is_dir():
            continue
        if folder.name in agents:
            yield from _check_leftovers(context, folder.name)
        elif folder.name not in context.live_agents():
            message = "belongs to an agent that does not exist"
            remedy = "hivemind doctor --fix commits uncommitted changes to its branch, and removes it"
            yield DoctorFinding(folder, message, remedy, partial(_remove_worktrees, context, folder.name), note=True)


def _check_leftovers(context: DoctorContext, agent: str) -> Iterator[DoctorFinding]:
    for path in worktree_paths(context.layout, agent):
        try:
            task, reason = leftover_task(context.layout, path), failure_reason(path)
        except UserError as error:
            yield DoctorFinding(path, error.message, error.remedy or "keep what you need, and delete it")
            continue
        if task is not None:
            message = f"has uncommitted work of {task}, which {agent} has no more{f': {reason}' if reason else ''}"
            remedy = "hivemind doctor --fix commits it to its branch; so does the agent's next start"
            yield DoctorFinding(path, message, remedy, partial(_commit_leftovers, context, path), note=reason is None)


def _commit_leftovers(context: DoctorContext, path: Path) -> str:
    commit_leftovers(context.layout, path, context.tasks.listing.is_open)
    return "committed to its branch"


def _remove_worktrees(context: DoctorContext, name: str) -> str:
    put_away(context.layout, name, context.tasks.listing.is_open)
    return "removed; its branch is kept if it has commits"
