"""`sandbox: bwrap`: a command without network that sees the system's programs, its work folder, and nothing else (spec 7).

Bubblewrap makes namespaces for it: no network interface but an empty loopback, processes of its own that die with it, an
empty /tmp, the system's folders read-only. The program's records of the task lie beside the work folder, out of its sight.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from hivemind.errors import UserError

__all__ = ["check_sandbox", "sandbox_command"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC_FILES = ("alternatives", "group", "ld.so.cache", "localtime", "mime.types", "passwd", "ssl/certs", "ssl/openssl.cnf")
_EMPTY = "/tmp"  # noqa: S108 - the sandbox's own
_BWRAP = (
    "bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev",
    "--tmpfs", _EMPTY, "--setenv", "HOME", _EMPTY, "--unsetenv", "TMPDIR",
)  # fmt: skip
_TRIAL_S = 10


def sandbox_command(argv: Sequence[str], folder: Path, start: Path | None, roots: Mapping[Path, bool | None]) -> list[str]:
    """The command that runs `argv`, from `start` or the work folder, in a sandbox around the work folder, in which it is to be
    started, and the roots: whether each of them may be written, None for what is hidden in another.

    Raises UserError where there can be no sandbox.
    """
    check_sandbox()
    work_folder = Path(os.path.realpath(folder))
    mounts: list[str] = []
    for path, is_writable in sorted({**_folders_between(roots), **roots, work_folder: True}.items()):  # what is in another comes after it
        source = "." if path == work_folder else os.fspath(path)  # not by its name: something else may have that by now
        mount = ("--tmpfs",) if is_writable is None else ("--bind-try" if is_writable else "--ro-bind-try", source)
        mounts += [*mount, os.fspath(path)]
    return [*_BWRAP, *_read_only(argv[0]), *mounts, "--chdir", os.fspath(start or work_folder), "--", *argv]


def _folders_between(roots: Mapping[Path, bool | None]) -> dict[Path, bool]:
    """The folders between a root that may be written and one in it that may not: each is a mount of its own, or a command could
    rename it, and what may not be written would lie elsewhere, where it may."""
    folders: dict[Path, bool] = {}
    for path, is_writable in roots.items():
        outer = next((parent for parent in path.parents if parent in roots), None)
        if not is_writable and outer is not None and roots[outer]:
            folders |= {parent: True for parent in path.parents if outer in parent.parents}
    return folders


@cache
def check_sandbox() -> None:
    """Try it once in a process. Raises UserError that says what is missing: the program, or the right to use it."""
    remedy = "install bubblewrap, or say sandbox: none in the agent's file"
    if shutil.which("bwrap") is None:
        raise UserError("sandbox: bwrap is not installed here", remedy=remedy)
    trial = [*_BWRAP, *_read_only("true"), "--", "true"]
    try:
        process = subprocess.run(trial, capture_output=True, text=True, timeout=_TRIAL_S, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"sandbox: bwrap did not start in {_TRIAL_S} s", remedy=remedy) from None
    if process.returncode != 0:
        reason = process.stderr.strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise UserError(
            f"sandbox: bwrap can't run here ({reason[0]})",
            remedy="let users make namespaces (kernel.unprivileged_userns_clone=1), or say sandbox: none in the agent's file",
        )


def _read_only(program: str) -> Iterator[str]:
    """The system's folders, the Python that this runs on, and the program itself if it lies elsewhere."""
    for name in _SYSTEM:
        if os.path.islink(name):
            yield from ("--symlink", os.readlink(name), name)
        elif os.path.isdir(name):
            yield from ("--ro-bind", name, name)
    for name in _ETC_FILES:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    visible = [name for name in _SYSTEM if os.path.isdir(name)]
    program_path = shutil.which(program)
    for path in (sys.base_prefix, sys.prefix, *((program_path, os.path.realpath(program_path)) if program_path else ())):
        if any(Path(path).is_relative_to(folder) for folder in visible):
            continue
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        else:
            yield from ("--ro-bind", path, path)
        visible.append(path)
