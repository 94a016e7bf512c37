"""Checks for landing (merging finished work): held roots, branches that are gone, checks without a box, roots that are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from hivemind import fs
from hivemind.config import RootConfig
from hivemind.doctor.context import DoctorContext
from hivemind.errors import UserError
from hivemind.fs.integrity import DoctorFinding
from hivemind.fs.paths import names_in
from hivemind.landing.target import Target, held_roots
from hivemind.layout import LANDING, Layout
from hivemind.sandbox import has_sandbox
from hivemind.taskrun.landing_entry import LandingEntry
from hivemind.taskrun.target_branch import landing_place, root_folder
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
        yield from _check_branches(layout, roots, layout.active / name)
    known_folders = {root_folder(layout, root) for root in roots}
    for name in sorted(names_in(layout.landing)):
        if (folder := layout.landing / name) not in known_folders:
            message = "is of a root that hive.yaml does not list any more"
            yield DoctorFinding(
                folder, message, "hivemind doctor --fix removes it", partial(_remove, folder), note=True
            )


def _check_branches(layout: Layout, roots: Mapping[Path, RootConfig], folder: Path) -> Iterator[DoctorFinding]:
    """Find targets in which a queued task cannot land, and branches of it that the repository does not have."""
    record = load_sound(folder)
    if record is None or record.claim is None or record.claim.agent != LANDING:
        return
    with suppress(UserError):  # a damaged entry is reported with the task
        entry = LandingEntry.of(record.kept)
        for branch in () if entry is None else entry.branches:
            place = landing_place(roots, Path(branch.root), branch.branch, branch.tip, branch.target)
            try:
                target = Target.listed(layout, roots, place[0], str(place[1]))
                target.check()
            except UserError as error:
                message = f"cannot land: {error.location}: {error.message}"
                yield DoctorFinding(folder, message, error.remedy or "")
                continue
            repository = target.repository
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
