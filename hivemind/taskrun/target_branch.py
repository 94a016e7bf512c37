"""The target branch of a root: finished work is merged into it, and tasks begin from its last commit."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from hivemind import fs
from hivemind.config import RootConfig
from hivemind.errors import UserError
from hivemind.fs.records import as_line
from hivemind.layout import Layout
from hivemind.presence.parts import Parts
from hivemind.taskrun.git import GitProblem, Repository

OWN = "hive/"
"""The beginning of the names of tasks' branches."""
_KIND, _VERSION = "target", 1


def landing_place(
    roots: Mapping[Path, RootConfig], root: Path, branch: str | None, commit: str, target: str | None
) -> tuple[Path, str | None]:
    """Return the root and the target in which a task's branch lands by the `roots` of hive.yaml now. A repository that was moved
    is known by the branch and its commit, and a target other than a task's branch follows the root's `branch:`."""
    for other in () if root in roots else roots:
        with contextlib.suppress(UserError):
            repository = Repository.at(other)
            has_branch = branch is not None and repository.kept_tip(branch) is not None
            if has_branch and repository.commit_of(commit) is not None:
                root = other
                break
    settings = roots.get(root)
    if settings is not None and settings.branch is not None and target is not None and not target.startswith(OWN):
        target = settings.branch
    return root, target


def unlisted_root(root: Path) -> UserError:
    """Return the error for finished work in a root that hive.yaml does not list any more."""
    remedy = "list it in hive.yaml again, at its new path if you moved it: finished work lands there only"
    return UserError("is not a root with worktree: true any more", location=root, remedy=remedy)


def root_folder(layout: Layout, root: Path) -> Path:
    """Return the hive's folder for a root. It contains the target, the HOME of set-ups and checks, and the worktrees of
    checks."""
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
    return layout.landing / f"{root.name}-{digest}"


def remote_ref(remote: str, branch: str) -> str:
    """Return the ref in which the hive keeps the commit of a target's branch at the remote."""
    return f"refs/hivemind/remotes/{remote}/{branch}"


def target_branch(hive: Parts, root: Path) -> str | None:
    """Return the root's `branch:` in hive.yaml. Without one, return the branch that was checked out when the root was first used,
    and record it at that time. Return None on a detached HEAD. Raises UserError."""
    config = hive.config.repository_roots(hive.layout).get(root)
    if config is not None and config.branch is not None:
        return config.branch
    path = root_folder(hive.layout, root) / "target.json"
    recorded_branch = read_target(path.parent)
    if recorded_branch is None:
        repository = Repository.at(root)
        branch = checked_out_branch(repository)
        if branch is None:
            return None
        if hive.layout.read_only or repository.commit_of(f"refs/heads/{branch}") is None:
            return branch
        fs.make_folder(path.parent)
        with contextlib.suppress(FileExistsError):  # another agent was first
            fs.create(path, as_line({"kind": _KIND, "version": _VERSION, "branch": branch}))
        recorded_branch = read_target(path.parent) or branch
    return recorded_branch


def checked_out_branch(repository: Repository) -> str | None:
    """Return the branch that is checked out; None on a detached HEAD."""
    with contextlib.suppress(GitProblem):
        return repository.git("symbolic-ref", "--quiet", "--short", "HEAD")
    return None


def read_target(folder: Path) -> str | None:
    """Return the branch that is recorded in the folder of a root; None if there is none yet. Raises UserError."""
    record = fs.load_record(folder / "target.json", _KIND, _VERSION)
    return None if record is None else str(record["branch"])


def target_tip(hive: Parts, repository: Repository) -> tuple[str | None, str]:
    """Return the target branch and the commit from which a task begins: the branch's or, with `push:`, the remote's if it is
    ahead. On a detached HEAD, return None and the commit that is checked out. Raises UserError if the branch or a commit is
    missing."""
    branch = target_branch(hive, repository.root)
    commit = None if branch is None else repository.commit_of(f"refs/heads/{branch}")
    if commit is not None and branch is not None:
        push = hive.config.repository_roots(hive.layout)[repository.root].push
        remote_tip = None if push is None else repository.commit_of(remote_ref(push.remote, branch))
        is_ahead = remote_tip and not repository.git("rev-list", "--max-count=1", commit, f"^{remote_tip}")
        return branch, remote_tip if remote_tip and is_ahead else commit
    head = repository.head()
    if branch is None:
        return None, head
    remedy = "name a branch of it with branch: at the root in hive.yaml, or make that one"
    raise UserError(f"has no branch {branch}, where work lands", location=repository.root, remedy=remedy)
