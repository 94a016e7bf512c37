"""Checks for landing (merging finished work): held roots, branches that are gone, checks without a box, roots that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from hivemind import fs
from hivemind.doctor.context import DoctorContext
from hivemind.errors import UserError
from hivemind.fs.integrity import DoctorFinding
from hivemind.fs.paths import names_in
from hivemind.landing.target import held_roots
from hivemind.layout import LANDING
from hivemind.sandbox import has_sandbox
from hivemind.taskrun.git import Repository
from hivemind.taskrun.landing_entry import LandingEntry
from hivemind.taskrun.target_branch import root_folder
from hivemind.tasks.record import load_sound


def check_landing(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Find what keeps finished work from landing (being merged), and leftovers of roots that are gone."""
    config, layout = context.config, context.layout
    if config is None:  # reported by check_settings
        return
    roots = config.repository_roots(layout)
    for root, hold in held_roots(config, layout).items():
        remedy = "hivemind land --resume" if hold.by == "person" else "mend the branch"
        yield DoctorFinding(str(root), f"nothing lands in it: {hold.reason}", remedy, note=True)
    for root, settings in roots.items():
        if settings.check and settings.check_box == "auto" and not has_sandbox():
            message = "bubblewrap does not run here: its check, which runs code of agents, has all your rights"
            yield DoctorFinding(str(root), message, "install bubblewrap, or set check_box: none", note=True)
    for name in sorted(names_in(layout.active)):
        yield from _check_branches(layout.active / name)
    known_folders = {root_folder(layout, root) for root in roots}
    for name in sorted(names_in(layout.landing)):
        if (folder := layout.landing / name) not in known_folders:
            message = "is of a root that hive.yaml does not list any more"
            yield DoctorFinding(
                folder, message, "hivemind doctor --fix removes it", partial(_remove, folder), note=True
            )


def _check_branches(folder: Path) -> Iterator[DoctorFinding]:
    """Find branches of a queued task that the repository does not have."""
    record = load_sound(folder)
    if record is None or record.claim is None or record.claim.agent != LANDING:
        return
    with suppress(UserError):  # the root is gone: its entry waits with that reason
        entry = LandingEntry.of(record.kept)
        for branch in () if entry is None else entry.branches:
            repository = Repository.at(Path(branch.root))
            if branch.landed or repository.commit_of(f"refs/heads/{branch.branch}") is not None:
                continue
            is_lost = repository.commit_of(branch.tip) is None
            message = f"its branch {branch.branch} is gone from {branch.root}"
            remedy = f"hivemind task cancel {folder.name}; its commit {branch.tip[:12]} is gone too" if is_lost else (
                f"hivemind makes it again from {branch.tip[:12]} when it lands"
            )  # fmt: skip
            yield DoctorFinding(folder, message, remedy, note=not is_lost)


def _remove(folder: Path) -> str:
    fs.remove_tree(folder)
    return "removed"
