"""What a task has changed: the diffs of its branches, also after they have landed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hivemind.landing.target import Target
from hivemind.layout import HUMAN
from hivemind.presence.parts import Parts
from hivemind.taskrun.git import Repository
from hivemind.taskrun.landing_entry import LandingBranch, current_entry
from hivemind.taskrun.worktree import Worktrees
from hivemind.tasks import Task

DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")


def branch_diffs(hive: Parts, task: Task, *options: str) -> Iterator[tuple[str, str]]:
    """Yield each branch of a task that has changed something, with its diff. `options` are those of `git diff`. Raises
    UserError."""
    entry = current_entry(hive, task.kept)
    branches = {} if entry is None else {Path(branch.root): branch for branch in entry.branches}
    for worktree in Worktrees(hive, task, task.owner or HUMAN, 0).recorded:
        if worktree.root not in branches and worktree.branch is not None and (tip := worktree.tip) is not None:
            branches[worktree.root] = LandingBranch(
                str(worktree.root), worktree.branch, worktree.base, tip, worktree.into or ""
            )
    for root, branch in branches.items():
        repository = Repository.at(root)
        if branch.landed:
            target = Target.of(hive, root, branch.target)
            if target.is_unchanged_by(task.id, branch):
                continue
            commits = f"{commit_before(target, branch)}..{branch.commit}"
        else:
            tip = repository.commit_of(f"refs/heads/{branch.branch}") or branch.tip
            commits = f"{repository.start_of(tip, branch.base, branch.target)}..{tip}"
        text = repository.git(*DIFF, *options, commits, "--")
        yield branch.branch, text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def commit_before(target: Target, branch: LandingBranch) -> str:
    """Return the target's commit before a task landed its branch. With `how: rebase` the branch is several commits; this is the
    one before the first of them."""
    commits = target.repository.git("rev-list", "--first-parent", str(branch.commit), f"^{branch.old}").split()
    landed = target.landed()
    return next((commit for commit in commits[1:] if commit in landed), str(branch.old))
