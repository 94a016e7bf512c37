"""Settings, and the machine below the hive: its file system, room, sandbox, inotify limits, encodings."""

from __future__ import annotations

import os
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from pathlib import Path

from hivemind.config import load_agents, load_hive
from hivemind.doctor.patient import CheckContext
from hivemind.documents.formats.reading import decode_text
from hivemind.errors import UserError
from hivemind.fs import walk
from hivemind.fs.check import CheckFinding
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.fs.watch import Inotify
from hivemind.minds import open_mind
from hivemind.sandbox import check_sandbox as try_sandbox
from hivemind.swarm.idle import is_full

_LIMITS = Path("/proc/sys/fs/inotify")
_ROOM_BYTES = 64 * 1024 * 1024
_TEXTS = (".md", ".markdown", ".txt", ".text", ".rst", ".org", ".yaml", ".yml")
_KNOWLEDGE_BYTES = 4 * 1024 * 1024


def check_settings(patient: CheckContext) -> Iterator[CheckFinding]:
    """What hive.yaml and each agent's file say, each by itself, so that one error does not hide the next."""
    try:
        hive = load_hive(patient.layout)
    except UserError as error:
        yield _misread(error)
        return
    agents = load_agents(patient.layout, hive)
    yield from (_misread(problem, "that agent is set aside until it is mended") for problem in agents.problems.values())
    for name, config in agents.configs.items():
        try:
            if not config.outside:
                open_mind(config.mind, root=patient.layout.root)
        except UserError as error:
            yield _misread(error, "that agent is not started until it is mended", patient.layout.agent_config(name))
    if not agents:
        message = "there is no agent: nobody works on tasks"
        yield CheckFinding(patient.layout.agents, message, "hivemind agent add NAME", note=True)


def _misread(
    error: UserError, follows: str = "nothing starts until it is mended", where: object = None
) -> CheckFinding:
    return CheckFinding(error.location or str(where), f"{error.message}; {follows}", error.remedy or "mend the file")


def check_sandbox(patient: CheckContext) -> Iterator[CheckFinding]:
    """Whether bubblewrap runs here, if an agent's commands are to run in it: else each of them is refused."""
    agents = patient.agents.configs if patient.agents else {}
    sandboxed_agents = [name for name, config in agents.items() if config.sandbox == "bwrap"]
    try:
        if sandboxed_agents:
            try_sandbox()
    except UserError as error:
        affected_agents = sandboxed_agents[0] if len(sandboxed_agents) == 1 else f"{sandboxed_agents[0]} and {len(sandboxed_agents) - 1} more"
        yield CheckFinding(
            patient.layout.agents, f"{error.message}: every command of {affected_agents} is refused", error.remedy or ""
        )


def check_file_system(patient: CheckContext) -> Iterator[CheckFinding]:
    """Its type, its free room, whether it can be written."""
    root = str(patient.layout.root)
    file_system = needs_polling(patient.layout.root, mounts())
    if file_system is not None:
        message = (
            f"lies on {file_system}: changes made on other machines are not reported, so folders are polled and mail takes up to "
            "a tenth of a second; locks hold only if every machine mounts it with locking"
        )
        yield CheckFinding(root, message, "nothing, if that is wanted; a local disk is faster", note=True)
    volume = os.statvfs(root)
    if patient.read_only:
        message = (
            "is mounted read-only: it can be looked at (status, log, view, task show), nothing can be delivered or done"
        )
        yield CheckFinding(root, message, "mount it for writing, or work in a copy: cp -a")
    elif is_full(patient.layout):
        yield CheckFinding(root, "disk full: all work rests until there is room", "make room")
    elif volume.f_bavail * volume.f_frsize < _ROOM_BYTES:
        free_kib = volume.f_bavail * volume.f_frsize // 1024
        yield CheckFinding(root, f"has {free_kib} KiB of room left: deliveries and results will fail", "make room")
    elif volume.f_files and volume.f_favail < 1000:
        yield CheckFinding(root, f"has {volume.f_favail} inodes left: no new files soon", "remove files")


def check_inotify(patient: CheckContext) -> Iterator[CheckFinding]:
    """Whether the hive's one watcher gets what it needs: an instance, and a watch for each mailbox and folder."""
    if not sys.platform.startswith("linux") or (patient.config is not None and patient.config.watch == "poll"):
        return
    try:
        Inotify().close()
    except OSError as error:
        message = (
            f"there is no inotify instance left ({error.strerror}; the limit is {_limit('max_user_instances')} for a user): "
            "the hive polls, which is slower and costs processor time"
        )
        remedy = "end what holds them, or: sysctl fs.inotify.max_user_instances=512"
        yield CheckFinding(str(_LIMITS / "max_user_instances"), message, remedy)
    required_watches = len(patient.names) + sum(len(folders) for _, folders, _ in walk(patient.layout.knowledge)) + 16
    limit = _limit("max_user_watches")
    if limit is not None and required_watches > limit:
        message = f"{required_watches} folders are to be watched and a user may watch {limit}: the rest is polled each second"
        yield CheckFinding(str(_LIMITS / "max_user_watches"), message, f"sysctl fs.inotify.max_user_watches={4 * required_watches}")


def _limit(name: str) -> int | None:
    try:
        return int((_LIMITS / name).read_text())
    except (OSError, ValueError):
        return None


def check_encodings(patient: CheckContext) -> Iterator[CheckFinding]:
    """File names and texts that are not UTF-8; knowledge that is no text at all is not indexed, and need not be mended."""
    encoding = sys.getfilesystemencoding()
    if encoding.lower() not in ("utf-8", "utf8"):
        message = f"file names are taken for {encoding}, not UTF-8"
        yield CheckFinding("the environment", message, "export LC_ALL=C.UTF-8")
    layout = patient.layout
    for top in (layout.rom, layout.knowledge):
        for folder, folders, names in walk(top):
            for name in sorted([*folders, *names]):
                path = Path(folder, name)
                if _bad_byte(os.fsencode(name)) is not None:
                    visible_path = os.fsencode(layout.relative(path)).decode("utf-8", "backslashreplace")
                    yield CheckFinding(visible_path, "has a name that is not UTF-8: it cannot be cited", "rename it")
                elif name in names and path.suffix.lower() in _TEXTS:
                    yield from _bad_text(path, is_knowledge=top == layout.knowledge)


def _bad_text(path: Path, *, is_knowledge: bool) -> Iterator[CheckFinding]:
    if not path.is_file() or path.is_symlink() or path.stat().st_size > _KNOWLEDGE_BYTES:
        return
    if (position := _bad_byte(raw := path.read_bytes())) is None:
        return
    remedy, consequence = "save it as UTF-8 text", "it is not read"
    if is_knowledge:
        consequence = "its letters are guessed, and may be wrong"
        try:
            decode_text(raw, path)
        except UserError as error:
            yield CheckFinding(path, f"{error.message}: it is not indexed", remedy, note=True)
            return
        if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            return
    yield CheckFinding(path, f"is not UTF-8 (byte {position}): {consequence}", remedy)


def _bad_byte(raw: bytes) -> int | None:
    """The first byte that is not UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None
