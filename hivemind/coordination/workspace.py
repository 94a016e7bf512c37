"""The hard wall around a project: one state folder belongs to one workspace of one project (seed 002, invariant 6)."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from hivemind.coordination.errors import CoordinationError, ProjectGuardMismatch, WorkspaceLocked
from hivemind.errors import UnknownVersion
from hivemind.fs import DamagedRecord, create, load_record

WORKSPACE_VERSION = 3
_MEND = "end its tasks with the version that made it; then the manual (10, Hives of another version) says how to go on"


def fingerprint(root: str | os.PathLike[str]) -> str:
    """What stands for a project where hive.yaml names no `guard:`: a digest of its canonical root."""
    return "root:" + hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:32]


def check_workspace(
    path: str | os.PathLike[str],
    workspace: str,
    root: str | os.PathLike[str],
    guard: str | None = None,
    *,
    durable: bool = True,
) -> None:
    """Make sure that the state beside the record `path` is this workspace's and this project's.

    The first caller writes the record. Its version stands for all formats below `.hive/` and in `tasks/` together: a hive of
    another one is refused as a whole, with UnknownVersion, before anything in it is read or changed.
    The record names the workspace and the project. `guard` is what hive.yaml says; without it, the root's fingerprint stands.
    Raises WorkspaceLocked for another workspace, ProjectGuardMismatch for another project, and CoordinationError
    (`INVALID_WORKSPACE`) for a workspace id that is not 1 to 128 characters long.
    """
    if not isinstance(workspace, str) or not 1 <= len(workspace) <= 128:
        raise CoordinationError(
            f"{workspace!r} is no workspace id", code="INVALID_WORKSPACE", mend="1 to 128 characters in hive.yaml"
        )
    wanted = fingerprint(root) if guard is None else guard
    found = load_workspace(path)
    if found is None:
        record = {"kind": "workspace", "version": WORKSPACE_VERSION, "workspace": workspace, "guard": wanted}
        ignored = Path(path).with_name(".gitignore")  # state has keys in it, whatever a project's own .gitignore says
        for file, content in ((ignored, "*"), (path, json.dumps(record, ensure_ascii=False))):
            try:
                create(file, content + "\n", durable=durable)
            except FileExistsError:
                pass  # another process was first: its word counts
        found = load_workspace(path) or record
    if not isinstance(found.get("workspace"), str) or not isinstance(found.get("guard"), str):
        raise DamagedRecord("does not say whose state this is", where=path, mend="hivemind doctor --fix sets it aside")
    if found.get("workspace") != workspace:
        raise WorkspaceLocked(
            f"belongs to the workspace {found.get('workspace')!r}, not to {workspace!r}",
            where=path,
            mend="put that id back into hive.yaml, or move this file away to give the hive a new one",
        )
    if found.get("guard") != wanted:
        raise ProjectGuardMismatch(
            f"belongs to another project (its guard is {found.get('guard')}, this one is {wanted})",
            where=path,
            mend="if the hive was moved on purpose, remove this file; `guard:` in hive.yaml keeps it valid through moves",
        )


def load_workspace(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What the record says; None if there is none. Raises UnknownVersion for a hive of another version."""
    try:
        return load_record(path, "workspace", WORKSPACE_VERSION)
    except UnknownVersion as error:
        raise UnknownVersion(
            f"this hive is of another version of hivemind ({error.what})", where=path, mend=_MEND
        ) from None
