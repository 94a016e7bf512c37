"""`sandbox: bwrap`: run a command that has no network and sees only the system's programs, its work folder and the roots.

Bubblewrap creates namespaces with only an empty loopback interface, separate processes that die with the command, an empty
/tmp, and read-only system folders. The task's records are next to the work folder, and not visible.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from hivemind.errors import UserError

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_ETC_FILES = (
    "alternatives", "group", "ld.so.cache", "localtime", "mime.types", "passwd", "pki/ca-trust/extracted", "pki/tls/certs",
    "ssl/certs", "ssl/openssl.cnf",
)  # fmt: skip
_NETWORK_FILES = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf")
_EMPTY = "/tmp"  # noqa: S108 - inside the sandbox
_BWRAP = (
    "bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev",
    "--tmpfs", _EMPTY, "--setenv", "HOME", _EMPTY, "--unsetenv", "TMPDIR",
)  # fmt: skip
_TRIAL_S = 10


def sandbox_command(
    argv: Sequence[str],
    folder: Path,
    start: Path | None,
    roots: Mapping[Path, bool | None],
    *,
    home: Path | None = None,
    network: bool = False,
    mounts: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs `argv` in a sandbox. The caller must start it in the work folder `folder`.

    * `start`: the folder in which `argv` runs; None: the work folder.
    * `roots`: True for a writable root, False for a read-only one, None to hide a folder inside another root.
    * `home`: a writable folder for HOME; None: the empty /tmp.
    * `network`: let the command reach the machine's network.
    * `mounts`: further options of bubblewrap.

    Raises UserError if the sandbox is not available.
    """
    check_sandbox()
    work_folder = Path(os.path.realpath(folder))
    options: list[str] = []
    if network:
        options += ["--share-net", *(word for path in _NETWORK_FILES for word in ("--ro-bind-try", path, path))]
    if home is not None:
        roots = {**roots, home: True}
        options += ["--setenv", "HOME", os.fspath(home)]
    # Inner folders come after outer ones.
    for path, is_writable in sorted({**_folders_between(roots), **roots, work_folder: True}.items()):
        # By descriptor: another folder may have the work folder's name by now.
        source = "." if path == work_folder else os.fspath(path)
        mount = ("--tmpfs",) if is_writable is None else ("--bind-try" if is_writable else "--ro-bind-try", source)
        options += [*mount, os.fspath(path)]
    system = _system_mounts(argv[0])
    return [*_BWRAP, *system, *options, *mounts, "--chdir", os.fspath(start or work_folder), "--", *argv]


def _folders_between(roots: Mapping[Path, bool | None]) -> dict[Path, bool]:
    """Return the folders between a writable root and a read-only root inside it. All have the value True (writable).

    Each needs its own mount. Without that, a command could rename the folder, and move the read-only root to a writable place.
    """
    folders: dict[Path, bool] = {}
    for path, is_writable in roots.items():
        outer = next((parent for parent in path.parents if parent in roots), None)
        if not is_writable and outer is not None and roots[outer]:
            folders |= {parent: True for parent in path.parents if outer in parent.parents}
    return folders


@cache
def has_sandbox() -> bool:
    """Return True if the sandbox works on this machine."""
    try:
        check_sandbox()
    except UserError:
        return False
    return True


@cache
def check_sandbox() -> None:
    """Try the sandbox, once per process. Raises UserError if the program, or the right to use it, is missing."""
    import shutil
    import subprocess  # late: a short command tries no sandbox

    remedy = "install bubblewrap, or set sandbox: none in the agent's file"
    if shutil.which("bwrap") is None:
        raise UserError("sandbox: bwrap is not installed here", remedy=remedy)
    trial = [*_BWRAP, *_system_mounts("true"), "--", "true"]
    try:
        process = subprocess.run(trial, capture_output=True, text=True, timeout=_TRIAL_S, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"sandbox: bwrap did not start in {_TRIAL_S} s", remedy=remedy) from None
    if process.returncode != 0:
        reason = process.stderr.strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise UserError(
            f"sandbox: bwrap cannot run here ({reason[0]})",
            remedy="allow user namespaces (kernel.unprivileged_userns_clone=1), or set sandbox: none in the agent's file",
        )


def _system_mounts(program: str) -> Iterator[str]:
    """Yield the mount options for the system's folders, this process's Python, and the program if it is in another
    folder."""
    import shutil

    for name in SYSTEM_FOLDERS:
        if os.path.islink(name):
            yield from ("--symlink", os.readlink(name), name)
        elif os.path.isdir(name):
            yield from ("--ro-bind", name, name)
    for name in _ETC_FILES:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    visible = [name for name in SYSTEM_FOLDERS if os.path.isdir(name)]
    program_path = shutil.which(program)
    program_paths = (program_path, os.path.realpath(program_path)) if program_path else ()
    for path in (sys.base_prefix, sys.prefix, *program_paths):
        if any(Path(path).is_relative_to(folder) for folder in visible):
            continue
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        else:
            yield from ("--ro-bind", path, path)
        visible.append(path)
