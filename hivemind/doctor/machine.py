"""Checks of the settings and the machine: file system, free space, sandbox, inotify limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hivemind.config import load_agents, load_hive
from hivemind.doctor.context import DoctorContext
from hivemind.errors import UserError
from hivemind.fs import walk
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.fs.integrity import DoctorFinding
from hivemind.fs.watch import Inotify
from hivemind.minds import open_mind
from hivemind.minds.agents.profile import Profile
from hivemind.sandbox import check_sandbox as try_sandbox
from hivemind.swarm.preflight import root_problems
from hivemind.swarm.until_idle import is_full

_LIMITS = Path("/proc/sys/fs/inotify")
_MIN_FREE_BYTES = 64 * 1024 * 1024


def check_settings(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check hive.yaml and each agent's file separately, so one error does not hide another."""
    try:
        hive = load_hive(context.unchanged)
    except UserError as error:
        yield _settings_finding(error)
        return
    for problem in root_problems(hive, context.layout):
        yield _settings_finding(problem, "a task that needs it cannot go on")
    agents = load_agents(context.unchanged, hive)
    yield from (
        _settings_finding(problem, "that agent is ignored until it is fixed") for problem in agents.problems.values()
    )
    for name, config in agents.configs.items():
        try:
            if not config.outside:
                open_mind(config.mind, root=context.layout.root)
        except UserError as error:
            yield _settings_finding(
                error, f"the agent {name} is not started until it is fixed", context.layout.agent_config(name)
            )
    for name in hive.minds:
        try:
            Profile.load(name, context.layout.root)
        except UserError as error:
            yield _settings_finding(error, f"no agent uses minds: {{{name}: …}}", context.layout.config)
    if not agents:
        message = "the hive has no agents: tasks stay in the inbox"
        yield DoctorFinding(context.layout.agents, message, "hivemind agent add NAME", note=True)


def _settings_finding(
    error: UserError, consequence: str = "no agent starts until it is fixed", path: object = None
) -> DoctorFinding:
    return DoctorFinding(error.location or str(path), f"{error.message}; {consequence}", error.remedy or "fix the file")


def check_sandbox(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check that bubblewrap works, if an agent's commands or program are to run in it."""
    agents = context.agents.configs if context.agents else {}
    for names, consequence, is_note in (
        (
            [name for name, config in agents.items() if config.sandbox == "bwrap"],
            "every command of {} is refused",
            False,
        ),
        ([name for name, config in agents.items() if config.lacks_box], "the program of {} has all your rights", True),
    ):
        try:
            if names:
                try_sandbox()
        except UserError as error:
            subjects = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
            message = f"{error.message}: {consequence.format(subjects)}"
            yield DoctorFinding(context.layout.agents, message, error.remedy or "", note=is_note)


def check_file_system(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check the file system's type and free space, and that it is writable."""
    root = str(context.layout.root)
    file_system = needs_polling(context.layout.root, mounts())
    if file_system is not None:
        message = (
            f"is on {file_system}, which does not report other machines' changes: folders are polled, so mail takes up to a"
            " tenth of a second; locks work only if every machine mounts it with locking"
        )
        yield DoctorFinding(
            root, message, "leave it there, or move the hive to a local disk, which is faster", note=True
        )
    volume = os.statvfs(root)
    if context.is_read_only:
        message = "is mounted read-only: status, log, view and task show work, but no agent can deliver or work"
        yield DoctorFinding(root, message, "mount it for writing, or work in a copy: cp -a")
    elif is_full(context.layout):
        yield DoctorFinding(root, "disk full: all work is suspended until space is free", "make room")
    elif volume.f_bavail * volume.f_frsize < _MIN_FREE_BYTES:
        free_kib = volume.f_bavail * volume.f_frsize // 1024
        yield DoctorFinding(root, f"has {free_kib} KiB free: when it is full, all work is suspended", "make room")
    elif volume.f_files and volume.f_favail < 1000:
        yield DoctorFinding(root, f"has {volume.f_favail} inodes free: soon no file can be created", "remove files")


def check_inotify(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Check the limits for the hive's file watcher. It needs one instance, and a watch for each mailbox and folder."""
    if not sys.platform.startswith("linux") or (context.config is not None and context.config.watch == "poll"):
        return
    try:
        Inotify().close()
    except OSError as error:
        message = (
            f"no inotify instance is free ({error.strerror}; the limit is {_limit('max_user_instances')} for a user): "
            "the hive polls, which is slower and costs processor time"
        )
        remedy = "end programs that use them, or: sysctl fs.inotify.max_user_instances=512"
        yield DoctorFinding(str(_LIMITS / "max_user_instances"), message, remedy)
    required_watches = (
        len(context.mailbox_owners) + sum(len(folders) for _, folders, _ in walk(context.layout.knowledge)) + 16
    )
    limit = _limit("max_user_watches")
    if limit is not None and required_watches > limit:
        message = f"{required_watches} folders need a watch, but a user may have {limit} watches: the rest is polled every second"
        yield DoctorFinding(
            str(_LIMITS / "max_user_watches"), message, f"sysctl fs.inotify.max_user_watches={4 * required_watches}"
        )


def _limit(name: str) -> int | None:
    try:
        return int((_LIMITS / name).read_text())
    except (OSError, ValueError):
        return None
