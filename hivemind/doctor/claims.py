"""Tasks: claims of agents that are not there any more, and what lies in the tasks' folders without being a task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind import fs
from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.errors import UserError
from hivemind.fs import HeldLock
from hivemind.presence.identity import take_name
from hivemind.swarm.supervisor import supervisor_lock

__all__ = ["check_claims", "check_task_folders"]

_NAME = "tasks"
_ERROR, _LOG = "error.md", "messages.jsonl"


def check_claims(patient: Patient) -> Iterator[Finding]:
    """Claims of agents that no longer exist, or that do not run although the swarm does."""
    layout = patient.layout
    needed = (layout.inbox, layout.active, layout.done, layout.failed, layout.locks)
    if patient.agents is None or not all(folder.is_dir() for folder in needed):  # told by the check of folders
        return
    up = supervisor_lock(patient.layout.locks).holder() is not None
    try:
        orphans = patient.tasks.orphans(patient.alive())
    except UserError as error:
        yield Finding(_NAME, error.where or "tasks/active", error.what, error.mend or "mend or move the file")
        return
    for orphan in orphans:
        if orphan.agent is None:
            yield _nobodys(patient, orphan.path)
            continue
        known = orphan.agent in patient.agents
        where = patient.layout.relative(orphan.path)
        if known and not up:
            what = f"waits for {orphan.agent}, which goes on with it when it runs again"
            yield Finding(_NAME, where, what, "hivemind up", note=True)
            continue
        yield Finding(
            _NAME,
            where,
            f"is claimed by {orphan.agent}, which {'does not run' if known else 'does not exist'}: nobody works on it",
            "hivemind doctor --fix gives it back to the inbox, with its log",
            partial(_reclaim, patient, orphan.agent, orphan.path),
        )


def _nobodys(patient: Patient, folder: Path) -> Finding:
    inbox = patient.layout.inbox
    return Finding(
        _NAME,
        patient.layout.relative(folder),
        "lies in active/, and nobody has claimed it: nobody works on it",
        "hivemind doctor --fix moves it to the inbox",
        partial(_to_inbox, patient, folder, inbox / folder.name),
    )


def _to_inbox(patient: Patient, folder: Path, target: Path) -> str:
    fs.move(folder, target, durable=patient.durable)
    return f"now {patient.layout.relative(target)}"


def _reclaim(patient: Patient, agent: str, path: Path) -> str:
    """Give back what the agent has claimed; its name is held meanwhile, so that it cannot come to life under our hands."""
    if not path.exists():  # went back together with another one of the same agent
        return "given back already"
    try:
        name = take_name(patient.layout, agent)
    except HeldLock:
        return f"left alone: {agent} runs again"
    try:
        back = patient.tasks.reclaim(agent)
    finally:
        name.release()
    return ", ".join(f"now {patient.layout.relative(one)}" for one in back) or "nothing was left to give back"


def check_task_folders(patient: Patient) -> Iterator[Finding]:
    """Files where folders belong, and failed tasks that do not say why."""
    layout = patient.layout
    for place in (layout.active, layout.done, layout.failed):
        for name in _names(place):
            path = place / name
            if not path.is_dir():
                yield Finding(
                    _NAME,
                    layout.relative(path),
                    "is no folder, and so no task: nobody looks at it there",
                    f"move it to {layout.relative(layout.inbox)}/ if it is to be done",
                    note=True,
                )
            elif place == layout.failed and not (path / _ERROR).exists():
                yield Finding(
                    _NAME,
                    layout.relative(path),
                    f"has no {_ERROR}: nothing says why it failed",
                    f"its messages.jsonl may tell; hivemind task retry {name} tries it again",
                    note=True,
                )


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith(".") and name.lower() != "readme.md")
    except OSError:  # told by the check of folders
        return []
