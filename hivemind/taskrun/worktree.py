"""Worktrees: each task has its own checkout of each git repository that hive.yaml lists with `worktree: true`.

Worktrees are recorded before they are created, so a successor can finish an interrupted creation. The lock of a task's worktrees
is held while git runs in the person's repository; the git process holds it too.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.errors import HivemindError, UserError
from hivemind.fs.paths import names_in
from hivemind.layout import Layout
from hivemind.masking import mask
from hivemind.presence.parts import Parts
from hivemind.taskrun.agent_git import BrokenGit, MergeUnderWay, Worktree, has_git
from hivemind.taskrun.git import GitProblem, Repository, git_identity, lock_worktrees, run_git
from hivemind.tasks import Task, TaskState

_log = logging.getLogger(__name__)
_KIND, _VERSION = "worktree", 1
_FAILURE_NOTE, _NOTE = ".left", ".json"
_MAX_NAMES = 20


class Worktrees:
    """The worktrees of a claimed task. `keep` saves their record with the task."""

    def __init__(
        self, hive: Parts, task: Task, agent: str, attempt: int, keep: Callable[[Any], object] = lambda _: None
    ) -> None:
        self._hive, self._task, self._agent, self._attempt = hive, task, agent, attempt
        self._keep = keep
        self._identity = git_identity(agent, f"{agent}@{hive.config.workspace}")
        self._top = hive.layout.worktrees / task.id
        self._targets: dict[Path, str] = {}

    @property
    def recorded(self) -> list[Worktree]:
        """The recorded worktrees, whether they exist or not."""
        return _recorded(self._hive.layout, self._task.kept)

    @property
    def identity(self) -> dict[str, str]:
        """The author of commits, as environment variables of git."""
        return self._identity if self.recorded else {}

    def ready(self) -> tuple[Worktree, ...]:
        """Return one worktree per root with `worktree: true`, in the order of hive.yaml. Creates those that are missing. Raises
        UserError, OSError."""
        roots = self._hive.config.worktree_roots(self._hive.layout)
        by_root = {worktree.root: worktree for worktree in self.recorded}
        if not all(root in by_root and self._is_ready(by_root[root]) for root in roots):
            with lock_worktrees(self._top) as hold:
                for root in roots:
                    self._make(Repository.at(root, hold))
            by_root = {worktree.root: worktree for worktree in self.recorded}
        return tuple(by_root[root] for root in roots)

    def _is_ready(self, worktree: Worktree) -> bool:
        """Check whether its git belongs to this agent. Git could run code that another agent has planted in its repository."""
        return worktree.agent == self._agent and has_git(worktree.path)

    def _make(self, repository: Repository) -> None:
        """Create a worktree, or the agent's git in a worktree without one. Record it first; replace what a killed git left."""
        recorded = self.recorded
        worktree = next((worktree for worktree in recorded if worktree.root == repository.root), None)
        if worktree is None:
            worktree = self._choose(repository, {worktree.path.name for worktree in recorded})
            self._record(worktree)
            fs.crash_point("worktree.recorded")
        if self._is_ready(worktree):
            return
        path, branch, old_worktree = worktree.path, worktree.branch, _read_note(worktree.path)
        if old_worktree is not None and old_worktree.branch != branch:  # an earlier attempt's
            _put_away(repository, old_worktree)
        elif worktree.git is None:
            fs.remove_tree(path)
        elif not path.exists():
            # Until it is filled again, a missing file does not count as deleted.
            self._record(replace(worktree, git=None))
        elif has_git(path) and branch is not None:
            with contextlib.suppress(GitProblem):
                worktree.commit(repository, mask(self._task.title), self._identity)
        if branch is not None and repository.commit_of(f"refs/heads/{branch}") is None:
            repository.begin(branch, worktree.base, self._task.id)
        worktree = replace(worktree, git=repository.common, agent=self._agent)
        worktree.make_git(repository, worktree.tip or worktree.base, self._identity)
        fs.crash_point("worktree.added")
        note = {"root": str(worktree.root), "git": str(worktree.git), "branch": branch, "base": worktree.base}
        fs.save_record(f"{path}{_NOTE}", _KIND, _VERSION, note)
        self._record(worktree)

    def _choose(self, repository: Repository, used_names: Collection[str]) -> Worktree:
        """Choose the worktree's path, branch and base. A subtask starts from its parent's branch, any other task from the commit
        that is checked out. Raises UserError if there is no commit yet."""
        root, parent = repository.root, self._task.parent
        path = self._top / next(name for name in _numbered(root.name) if name not in used_names)
        parent_record = {} if parent is None else self._hive.tasks.listing.kept_values(parent)
        parent_worktree = next(
            (worktree for worktree in _recorded(self._hive.layout, parent_record) if worktree.root == root), None
        )
        if parent_worktree is not None:
            into, base = parent_worktree.branch, parent_worktree.tip or parent_worktree.base
            if any(
                self._task.id in ids
                for call, ids in parent_record.get("subtasks", {}).items()
                if call.startswith("review ")
            ):
                return Worktree(root, path, None, base, None)
        else:
            base, into = repository.head(), None
            with contextlib.suppress(GitProblem):  # on no branch
                into = repository.git("symbolic-ref", "--quiet", "--short", "HEAD")
        names = _numbered(f"hive/{self._task.id}".rstrip(".").removesuffix(".lock"), ".", self._attempt)
        branch = next(name for name in names if repository.commit_of(f"refs/heads/{name}") is None)
        return Worktree(root, path, branch, base, into)

    def _record(self, worktree: Worktree) -> None:
        path, git = self._hive.layout.relative(worktree.path), worktree.git and str(worktree.git)
        row = {**asdict(worktree), "root": str(worktree.root), "path": path, "git": git}
        rows = [old_row for old_row in self._task.kept.get("worktrees", ()) if old_row["root"] != row["root"]]
        self._keep([*rows, row])

    def commit(self, message: str, *, ends: bool = False) -> None:
        """Commit all changes in the worktrees, and move the branches. A worktree with an unfinished merge or rebase is skipped;
        if the task `ends`, it raises UserError. Raises UserError, OSError."""
        for worktree in self.recorded:
            if worktree.git is None or worktree.branch is None or not worktree.path.is_dir():
                continue
            with lock_worktrees(self._top) as hold:
                try:
                    _commit(worktree, replace(worktree.repository, hold=hold), message, self._identity)
                except MergeUnderWay:
                    if ends:
                        raise

    def merge(self, task: str, *, mark: bool) -> list[str]:
        """Merge the branches of a finished subtask into this task's worktrees; returns a line of outcome for each. Raises
        UserError, also for conflicts unless `mark`."""
        source_branches = {
            worktree.root: worktree.branch
            for worktree in _recorded(self._hive.layout, self._hive.tasks.listing.kept_values(task))
        }
        pairs = [
            (worktree, branch)
            for worktree in self.ready()
            if worktree.branch and (branch := source_branches.get(worktree.root))
        ]
        if not pairs:
            raise UserError("has no branch of a repository of yours", location=task)
        self.commit(f"Before the merge of {task}", ends=True)
        return [
            line
            for worktree, branch in pairs
            for line in self._merge(worktree, str(worktree.branch), branch, mark=mark)
        ]

    def _merge(self, worktree: Worktree, target: str, source: str, *, mark: bool) -> list[str]:
        with lock_worktrees(self._top) as hold:
            repository = replace(worktree.repository, hold=hold)
            before, after, conflicts = repository.merge_tips(source, target, self._identity, mark=mark)
            if after != before:
                worktree.forward(before, after)
                # files first: if the branch were ahead, the next commit would undo them
                fs.crash_point("worktree.merging")
                repository.move(target, after, before, f"merge {source}")
        return [_merge_line(source, target, before, after), *(f"edit the marks in {path}" for path in conflicts)]

    def take_in(self, root: Path, old: str, new: str) -> None:
        """Move the task's branch of a root from one commit to another: its files first, or its next commit would undo the move."""
        worktree = next(worktree for worktree in self.ready() if worktree.root == root)
        with lock_worktrees(self._top) as hold:
            worktree.forward(old, new)
            fs.crash_point("worktree.merging")
            replace(worktree.repository, hold=hold).move(str(worktree.branch), new, old, "a subtask has landed")

    def catch_up(self) -> tuple[Worktree, ...]:
        """Return the worktrees, after updating in the git of each the branch that it will be merged into."""
        worktrees = self.ready()
        for worktree in worktrees:
            target = worktree.into and worktree.repository.commit_of(f"refs/heads/{worktree.into}")
            if target and self._targets.get(worktree.path) != target:
                with contextlib.suppress(GitProblem):  # an agent may break its own git, and then mends it by commands
                    worktree.set_ref(f"refs/remotes/{worktree.into}", target)
                    self._targets[worktree.path] = target
        return worktrees

    def sandbox_folders(self) -> dict[Path, bool | None]:
        """Return the folders that a sandbox shows, and whether they are writable: the worktrees (not those of a review), and the
        objects of the repositories (not writable)."""
        folders: dict[Path, bool | None] = {}
        for worktree in self.catch_up():
            folders |= {worktree.path: worktree.branch is not None}
            folders |= dict.fromkeys(worktree.repository.object_folders, False)
        return folders

    def changes(self) -> list[str]:
        """Return the section of result.md on the branches: what each changed, and how to see and merge it."""
        by_hand = f"hivemind task merge {self._task.id}"
        take, lines = "merge_worktree, by its parent's agent" if self._task.parent else by_hand, []
        for worktree, stat in self.diffs("--stat=100", "--stat-count=40"):
            start = f"{worktree.base[:12]}{f' of {worktree.into}' if worktree.into else ''}"
            command = f"git -C {worktree.root} diff {worktree.base[:12]}..{worktree.branch}"
            lines += [
                f"Branch `{worktree.branch}` of {worktree.root}, begun at {start}:",
                "",
                "```",
                *stat.splitlines(),
                "```",
                "",
            ]
            if names := self._untracked_names(worktree):
                lines += [f"Not in it, as caches or repositories of their own: {names}.", ""]
            lines += [f"All of it: `{command}`. To take it in: `{take}`.", ""]
        return ["## Changes", "", *lines] if lines else []

    def _untracked_names(self, worktree: Worktree) -> str:
        """Return the names that the default excludes keep out of the commits."""
        if not self._is_ready(worktree):
            return ""
        names = worktree.untracked_files()
        quoted_names = [f"`{name}`" for name in names[:_MAX_NAMES]]
        return ", ".join(
            [*quoted_names, f"and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else quoted_names
        )

    def diffs(self, *options: str) -> Iterator[tuple[Worktree, str]]:
        """Yield each worktree whose branch has new commits, with the diff from its base."""
        for worktree in self.recorded:
            if (tip := worktree.tip) is not None:
                diff = worktree.repository.git("diff", "--no-ext-diff", "--no-textconv", *options, worktree.base, tip)
                yield worktree, diff.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _recorded(layout: Layout, record: Mapping[str, Any]) -> list[Worktree]:
    """Return the worktrees in a task's record. Raises Unreadable."""
    with boundary("record of a task's worktrees"):
        return [_worktree(layout, row) for row in record.get("worktrees") or ()]


def _worktree(layout: Layout, row: Mapping[str, Any]) -> Worktree:
    """Return a worktree from its record. Records of earlier versions name a git folder inside the person's repository."""
    git = row["git"] and Path(row["git"])
    if git is not None and "agent" not in row:
        git = git.parents[1]
    return Worktree(**{**row, "root": Path(row["root"]), "path": layout.root / row["path"], "git": git})


def _read_note(path: Path) -> Worktree | None:
    """Read the note next to a worktree, for its removal; None for a worktree that no agent has had yet."""
    with boundary("note of a worktree", path):
        note = fs.load_record(f"{path}{_NOTE}", _KIND, _VERSION)
        if note is None:
            return None
        return Worktree(Path(note["root"]), path, note["branch"], note["base"], None, Path(note["git"]))


def merge_task(hive: Parts, task_id: str) -> list[str]:
    """Merge the branches of a finished task into their base branches, for a person; returns a line of outcome for each. A
    checkout is updated only if it is clean. Raises UserError."""
    if hive.tasks.get(task_id).state in (TaskState.INBOX, TaskState.ACTIVE):
        raise UserError("is not over yet", location=task_id, remedy="its branch can be merged when it is")
    worktrees = [
        worktree
        for worktree in _recorded(hive.layout, hive.tasks.listing.kept_values(task_id))
        if worktree.branch is not None
    ]
    if not worktrees:
        raise UserError(
            "has no branch", location=task_id, remedy="roots with worktree: true in hive.yaml give tasks one"
        )
    parent = hive.tasks.get(task_id).parent
    if parent is not None and hive.tasks.listing.is_open(parent):
        raise UserError(f"is a part of {parent}, which is not over yet", location=task_id, remedy="its agent merges it")
    return [_merged_by_hand(worktree, str(worktree.branch)) for worktree in worktrees]


def _merged_by_hand(worktree: Worktree, branch: str) -> str:
    repository, by_hand = Repository.at(worktree.root), f"git -C {worktree.root} merge {branch}"
    if worktree.into is None:
        raise UserError("began on no branch that it could be merged into", location=branch, remedy=by_hand)
    target_path = Path(repository.git("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{worktree.into}") or "/")
    if target_path != Path("/") and run_git(
        ["-C", target_path, "status", "--porcelain", "--untracked-files=no"], {}, None
    ):
        raise UserError(
            "has changes that are not committed", location=target_path, remedy=f"commit or stash them, or: {by_hand}"
        )
    before, after, _ = repository.merge_tips(branch, worktree.into, {})
    if after != before and target_path != Path("/"):
        run_git(["-C", target_path, "merge", "--quiet", "--ff-only", after], {}, None)
    elif after != before:
        repository.move(worktree.into, after, before, f"merge {branch}")
    return _merge_line(branch, worktree.into, before, after)


def _merge_line(source: str, into: str, before: str, after: str) -> str:
    return f"{source} into {into}: {'was in it already' if before == after else f'merged, {after}'}"


def put_away(layout: Layout, task: str) -> None:
    """Remove the worktrees of a finished task. Commit their changes first, and keep branches with commits. The reason of a
    failure is saved next to the worktrees (`failure_reason`). Raises UserError, OSError."""
    top = layout.worktrees / task
    if not top.is_dir():
        return
    with lock_worktrees(top) as hold:
        fs.write(top / _FAILURE_NOTE, b"the process that removed it was killed")
        try:
            for path in sorted(top.iterdir()):
                if not path.name.startswith(".") and path.is_dir():
                    _put_away_at(path, hold)
        except (HivemindError, OSError) as error:
            fs.write(top / _FAILURE_NOTE, str(error).encode("utf-8", "replace"))
            raise
        fs.remove_tree(top)


def failure_reason(layout: Layout, task: str) -> str | None:
    """Return why removing a task's worktrees failed; None if nobody has tried."""
    with contextlib.suppress(FileNotFoundError):
        return (layout.worktrees / task / _FAILURE_NOTE).read_bytes().decode("utf-8", "replace")
    return None


def check_repository(root: Path) -> None:
    """Raise UserError for a root that cannot have worktrees."""
    Repository.at(root).head()


def put_away_ended(hive: Parts, *tasks: str) -> None:
    """Remove the worktrees of these tasks, or of all tasks, that are over. After a failure they are left to the doctor, so they
    do not delay every agent that starts."""
    layout = hive.layout
    for task in tasks or sorted(names_in(layout.worktrees)):
        try:
            if not hive.tasks.listing.is_open(task) and failure_reason(layout, task) is None:
                put_away(layout, task)
        except (HivemindError, OSError) as error:
            _log.warning("task %s: its worktrees are left: %s", task, error)


def _put_away_at(path: Path, hold: int) -> None:
    """Remove one worktree. A worktree without a note never had an agent, so there is no work in it."""
    worktree = _read_note(path)
    if worktree is not None:
        _put_away(replace(worktree.repository, hold=hold), worktree)
    elif any(path.iterdir()) and not has_git(path):
        raise UserError("is not a worktree of this hive", location=path, remedy="keep what you need, and delete it")
    fs.remove_tree(path)


def _put_away(repository: Repository, worktree: Worktree) -> None:
    if worktree.branch is not None:
        if worktree.path.is_dir():
            identity = git_identity("hivemind", "hivemind@localhost")
            _commit(worktree, repository, "What was left over at the end", identity, is_over=True)
        repository.let_go(worktree.branch, worktree.base)
    fs.remove_tree(worktree.path)
    fs.remove_tree(f"{worktree.path}{_NOTE}")


def _commit(
    worktree: Worktree, repository: Repository, message: str, identity: Mapping[str, str], *, is_over: bool = False
) -> None:
    """Commit the changes of a worktree and move its branch. If the agent's git is broken, or fails when the task is over, it is
    rebuilt from the files and the branch."""
    try:
        if not has_git(worktree.path):
            raise BrokenGit("has no git any more", location=worktree.path)
        worktree.commit(repository, mask(message), identity, is_over=is_over)
    except GitProblem as problem:
        if not is_over and not isinstance(problem, BrokenGit):
            raise
        worktree.make_git(repository, worktree.tip or worktree.base, identity)
        worktree.commit(repository, mask(message), identity, is_over=is_over)


def _numbered(name: str, mark: str = "-", first: int = 1) -> Iterator[str]:
    """Yield `name`, `name-2`, `name-3` …, starting at number `first`."""
    return (name if number == 1 else f"{name}{mark}{number}" for number in itertools.count(first))
