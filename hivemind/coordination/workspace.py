"""The workspace record: a state folder belongs to one workspace of one project."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.coordination.errors import ProjectGuardMismatch, WorkspaceLocked
from hivemind.errors import UnknownVersion
from hivemind.fs import DamagedRecord, create, load_record

WORKSPACE_VERSION = 3
_VERSION_REMEDY = "finish its tasks with the version that made it, then: hivemind help hives of another version"


def fingerprint(root: str | os.PathLike[str]) -> str:
    """Return a digest of a project's canonical root: the project's guard if hive.yaml has no `guard:`."""
    return "root:" + hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:32]


def check_workspace(
    path: str | os.PathLike[str], workspace: str, root: str | os.PathLike[str], guard: str | None = None
) -> None:
    """Check that a state folder belongs to this workspace and project, by the folder's record at `path`.

    The first caller writes the record, which names the workspace and the project. The record's version covers all formats in
    `.hive/` and `tasks/`: a hive of another version is refused with UnknownVersion before anything in it is read or changed.
    `guard` comes from hive.yaml; without it, the root's fingerprint is used.

    Raises WorkspaceLocked for another workspace, ProjectGuardMismatch for another project.
    """
    expected_guard = fingerprint(root) if guard is None else guard
    record = load_workspace(path)
    if record is None:
        new_record = {
            "kind": "workspace",
            "version": WORKSPACE_VERSION,
            "workspace": workspace,
            "guard": expected_guard,
        }
        gitignore = Path(path).with_name(".gitignore")  # the state contains keys, and must not be committed
        for file, content in ((gitignore, "*"), (path, json.dumps(new_record, ensure_ascii=False))):
            with suppress(FileExistsError):  # another process was first: its record counts
                create(file, content + "\n")
        record = load_workspace(path) or new_record
    if not isinstance(record.get("workspace"), str) or not isinstance(record.get("guard"), str):
        raise DamagedRecord(
            "names no workspace or no guard", location=path, remedy="hivemind doctor --fix sets it aside"
        )
    if record.get("workspace") != workspace:
        raise WorkspaceLocked(
            f"belongs to the workspace {record['workspace']!r}, and hive.yaml has the id {workspace!r}"
            " (without `workspace:` it is 'hive')",
            location=path,
            remedy=f"write `workspace: {record['workspace']}` into hive.yaml, or move this file away to give the hive a new id",
        )
    if record.get("guard") != expected_guard:
        raise ProjectGuardMismatch(
            f"belongs to another project (its guard is {record.get('guard')}, this one is {expected_guard})",
            location=path,
            remedy="if the hive was moved on purpose, remove this file; `guard:` in hive.yaml keeps it valid through moves",
        )


def load_workspace(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the workspace record, or None if it is missing. Raises UnknownVersion for a hive of another version."""
    try:
        return load_record(path, "workspace", WORKSPACE_VERSION)
    except UnknownVersion as error:
        raise UnknownVersion(
            f"this hive is of another version of hivemind ({error.message})", location=path, remedy=_VERSION_REMEDY
        ) from None
