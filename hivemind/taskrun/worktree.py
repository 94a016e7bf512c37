"""Worktrees: each task's own checkout of a git repository that hive.yaml lists with `worktree: true`.

Worktrees are recorded before they are created, so a successor can finish an interrupted creation. The lock of a task's worktrees
is held while git runs in the person's repository, by that git as well.
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
from hivemind.taskrun.git import GitProblem, Repository, held, in_the_name_of, run_git
from hivemind.tasks import Task, TaskState

__all__ = ["Worktrees", "check_repository", "left_reason", "merge_task", "put_away", "put_away_ended"]

_log = logging.getLogger(__name__)
_KIND, _VERSION = "worktree", 1
_LEFT, _NOTE = ".left", ".json"
_SHOWN = 20


class Worktrees:
    """The worktrees of a task in hand. `keep` keeps their record with the task."""

    def __init__(
        self, hive: Parts, task: Task, agent: str, attempt: int, keep: Callable[[Any], object] = lambda _: None
    ) -> None:
        self._hive, self._task, self._agent, self._attempt = hive, task, agent, attempt
        self._keep = keep
        self._who = in_the_name_of(agent, f"{agent}@{hive.config.workspace}")
        self._top = hive.layout.worktrees / task.id
        self._targets: dict[Path, str] = {}

    @property
    def recorded(self) -> list[Worktree]:
        """Return those that are recorded, whether they are there or not."""
        return _recorded(self._hive.layout, self._task.kept)

    @property
    def identity(self) -> dict[str, str]:
        """Return in whose name commits are made, as git reads it."""
        return self._who if self.recorded else {}

    def ready(self) -> tuple[Worktree, ...]:
        """Return one worktree per root with `worktree: true`, in the order of hive.yaml. Creates those that are missing. Raises
        UserError, OSError."""
        roots = self._hive.config.worktree_roots(self._hive.layout)
        by_root = {worktree.root: worktree for worktree in self.recorded}
        if not all(root in by_root and self._is_ready(by_root[root]) for root in roots):
            with held(self._top) as hold:
                for root in roots:
                    self._make(Repository.at(root, hold))
            by_root = {worktree.root: worktree for worktree in self.recorded}
        return tuple(by_root[root] for root in roots)

    def _is_ready(self, worktree: Worktree) -> bool:
        """Say whether its git is this agent's: what another has written into one may be run by nobody else's commands."""
        return worktree.agent == self._agent and has_git(worktree.path)

    def _make(self, repository: Repository) -> None:
        """Create a worktree, or the agent's git in one without. It is recorded first; what a killed git left is replaced."""
        recorded = self.recorded
        worktree = next((worktree for worktree in recorded if worktree.root == repository.root), None)
        if worktree is None:
            worktree = self._planned(repository, {worktree.path.name for worktree in recorded})
            self._record(worktree)
            fs.reached("worktree.recorded")
        if self._is_ready(worktree):
            return
        path, branch, noted = worktree.path, worktree.branch, _noted(worktree.path)
        if noted is not None and noted.branch != branch:  # an earlier attempt's
            _put_away(repository, noted)
        elif worktree.git is None:
            fs.remove_tree(path)
        elif not path.exists():
            self._record(
                replace(worktree, git=None)
            )  # until it is filled again no file that lacks was deleted by anybody
        elif has_git(path) and branch is not None:
            with contextlib.suppress(GitProblem):
                worktree.commit(repository, mask(self._task.title), self._who)
        if branch is not None and repository.commit_of(f"refs/heads/{branch}") is None:
            repository.begin(branch, worktree.base, self._task.id)
        worktree = replace(worktree, git=repository.common, agent=self._agent)
        worktree.make_git(repository, worktree.tip or worktree.base, self._who)
        fs.reached("worktree.added")
        note = {"root": str(worktree.root), "git": str(worktree.git), "branch": branch, "base": worktree.base}
        fs.save_record(f"{path}{_NOTE}", _KIND, _VERSION, note)
        self._record(worktree)

    def _planned(self, repository: Repository, taken: Collection[str]) -> Worktree:
        """Choose the worktree's path, branch and base. A subtask starts from its parent's branch, any other task from the commit
        that is checked out. Raises UserError if there is no commit yet."""
        root, parent = repository.root, self._task.parent
        path = self._top / next(one for one in _numbered(root.name) if one not in taken)
        kept = {} if parent is None else self._hive.tasks.listing.kept_values(parent)
        above = next((one for one in _recorded(self._hive.layout, kept) if one.root == root), None)
        if above is not None:
            into, base = above.branch, above.tip or above.base
            if any(
                self._task.id in ids for call, ids in kept.get("subtasks", {}).items() if call.startswith("review ")
            ):
                return Worktree(root, path, None, base, None)
        else:
            base, into = repository.head(), None
            with contextlib.suppress(GitProblem):  # on no branch
                into = repository.git("symbolic-ref", "--quiet", "--short", "HEAD")
        names = _numbered(f"hive/{self._task.id}".rstrip(".").removesuffix(".lock"), ".", self._attempt)
        branch = next(one for one in names if repository.commit_of(f"refs/heads/{one}") is None)
        return Worktree(root, path, branch, base, into)

    def _record(self, worktree: Worktree) -> None:
        path, git = self._hive.layout.relative(worktree.path), worktree.git and str(worktree.git)
        row = {**asdict(worktree), "root": str(worktree.root), "path": path, "git": git}
        rows = [each for each in self._task.kept.get("worktrees", ()) if each["root"] != row["root"]]
        self._keep([*rows, row])

    def commit(self, why: str, *, ends: bool = False) -> None:
        """Commit what has changed and is in no commit yet, and take it over. A merge or rebase under way is left to its agent;
        where the task `ends` it is refused. Raises UserError, OSError."""
        for worktree in self.recorded:
            if worktree.git is None or worktree.branch is None or not worktree.path.is_dir():
                continue
            with held(self._top) as hold:
                try:
                    _commit(worktree, replace(worktree.repository, hold=hold), why, self._who)
                except MergeUnderWay:
                    if ends:
                        raise

    def merge(self, task: str, *, mark: bool) -> list[str]:
        """Merge what a subtask that is over has done into this task's own worktrees; returns what became of it, a line each.
        Raises UserError, for conflicts unless they are to be marked."""
        theirs = {one.root: one.branch for one in _recorded(self._hive.layout, self._hive.tasks.listing.kept_values(task))}
        pairs = [(one, branch) for one in self.ready() if one.branch and (branch := theirs.get(one.root))]
        if not pairs:
            raise UserError("has no branch of a repository of yours", location=task)
        self.commit(f"Before the merge of {task}", ends=True)
        return [line for one, branch in pairs for line in self._merge(one, str(one.branch), branch, mark=mark)]

    def _merge(self, worktree: Worktree, target: str, source: str, *, mark: bool) -> list[str]:
        with held(self._top) as hold:
            repository = replace(worktree.repository, hold=hold)
            before, after, conflicts = repository.merged(source, target, self._who, mark=mark)
            if after != before:
                worktree.forward(before, after)
                fs.reached("worktree.merging")  # the files first: a branch ahead of them would have them undone
                repository.move(target, after, before, f"merge {source}")
        return [_told(source, target, before, after), *(f"edit the marks in {path}" for path in conflicts)]

    def catch_up(self) -> tuple[Worktree, ...]:
        """Return the worktrees, once the git in each knows where the branch is that its own will be merged into."""
        worktrees = self.ready()
        for worktree in worktrees:
            target = worktree.into and worktree.repository.commit_of(f"refs/heads/{worktree.into}")
            if target and self._targets.get(worktree.path) != target:
                with contextlib.suppress(GitProblem):  # an agent may break its own git, and then mends it by commands
                    worktree.show(f"refs/remotes/{worktree.into}", target)
                    self._targets[worktree.path] = target
        return worktrees

    def bound(self) -> dict[Path, bool | None]:
        """Return what a sandbox shows of them, and whether it may be written: the worktrees (a review's not), and the objects of
        the repositories (not)."""
        folders: dict[Path, bool | None] = {}
        for worktree in self.catch_up():
            folders |= {worktree.path: worktree.branch is not None}
            folders |= dict.fromkeys(worktree.repository.object_folders, False)
        return folders

    def changes(self) -> list[str]:
        """For result.md: each branch, how it differs from where it began, and how to see and take it."""
        by_hand = f"hivemind task merge {self._task.id}"
        take, lines = "merge_worktree, by its parent's agent" if self._task.parent else by_hand, []
        for one, stat in self.diffs("--stat=100", "--stat-count=40"):
            begun = f"{one.base[:12]}{f' of {one.into}' if one.into else ''}"
            see = f"git -C {one.root} diff {one.base[:12]}..{one.branch}"
            lines += [
                f"Branch `{one.branch}` of {one.root}, begun at {begun}:",
                "",
                "```",
                *stat.splitlines(),
                "```",
                "",
            ]
            if names := self._left_out(one):
                lines += [f"Not in it, as caches or repositories of their own: {names}.", ""]
            lines += [f"All of it: `{see}`. To take it in: `{take}`.", ""]
        return ["## Changes", "", *lines] if lines else []

    def _left_out(self, worktree: Worktree) -> str:
        """Name what the default excludes keep out of the commits."""
        if not self._is_ready(worktree):
            return ""
        names = worktree.left_out()
        shown = [f"`{name}`" for name in names[:_SHOWN]]
        return ", ".join([*shown, f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else shown)

    def diffs(self, *options: str) -> Iterator[tuple[Worktree, str]]:
        """Those on whose branches something was done, each with what has changed since that began."""
        for one in self.recorded:
            if (tip := one.tip) is not None:
                told = one.repository.git("diff", "--no-ext-diff", "--no-textconv", *options, one.base, tip)
                yield one, told.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _recorded(layout: Layout, kept: Mapping[str, Any]) -> list[Worktree]:
    """The worktrees in a task's record. Raises Unreadable."""
    with boundary("record of a task's worktrees"):
        return [_worktree(layout, row) for row in kept.get("worktrees") or ()]


def _worktree(layout: Layout, row: Mapping[str, Any]) -> Worktree:
    """One of a record. Earlier versions had the person's repository keep a git folder for it, and named that."""
    git = row["git"] and Path(row["git"])
    if git is not None and "agent" not in row:
        git = git.parents[1]
    return Worktree(**{**row, "root": Path(row["root"]), "path": layout.root / row["path"], "git": git})


def _noted(path: Path) -> Worktree | None:
    """What the note beside a worktree says of it, for whoever puts it away; none for one that no agent was given yet."""
    with boundary("note of a worktree", path):
        note = fs.load_record(f"{path}{_NOTE}", _KIND, _VERSION)
        if note is None:
            return None
        return Worktree(Path(note["root"]), path, note["branch"], note["base"], None, Path(note["git"]))


def merge_task(hive: Parts, task_id: str) -> list[str]:
    """Merge the branches of a task that is over into those that it began from, as a person asks for it; returns what became of
    it, a line each. A checkout is brought forward only if it is clean. Raises UserError."""
    if hive.tasks.get(task_id).state in (TaskState.INBOX, TaskState.ACTIVE):
        raise UserError("is not over yet", location=task_id, remedy="its branch can be merged when it is")
    found = [one for one in _recorded(hive.layout, hive.tasks.listing.kept_values(task_id)) if one.branch is not None]
    if not found:
        raise UserError(
            "has no branch", location=task_id, remedy="roots with worktree: true in hive.yaml give tasks one"
        )
    parent = hive.tasks.get(task_id).parent
    if parent is not None and hive.tasks.listing.is_open(parent):
        raise UserError(f"is a part of {parent}, which is not over yet", location=task_id, remedy="its agent merges it")
    return [_merged_by_hand(one, str(one.branch)) for one in found]


def _merged_by_hand(one: Worktree, branch: str) -> str:
    repository, by_hand = Repository.at(one.root), f"git -C {one.root} merge {branch}"
    if one.into is None:
        raise UserError("began on no branch that it could be merged into", location=branch, remedy=by_hand)
    into = Path(repository.git("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{one.into}") or "/")
    if into != Path("/") and run_git(["-C", into, "status", "--porcelain", "--untracked-files=no"], {}, None):
        raise UserError(
            "has changes that are not committed", location=into, remedy=f"commit or stash them, or: {by_hand}"
        )
    before, after, _ = repository.merged(branch, one.into, {})
    if after != before and into != Path("/"):
        run_git(["-C", into, "merge", "--quiet", "--ff-only", after], {}, None)
    elif after != before:
        repository.move(one.into, after, before, f"merge {branch}")
    return _told(branch, one.into, before, after)


def _told(source: str, into: str, before: str, after: str) -> str:
    return f"{source} into {into}: {'was in it already' if before == after else f'merged, {after}'}"


def put_away(layout: Layout, task: str) -> None:
    """Remove the worktrees of a task that is over: what is in no commit yet is committed first, and the branch kept unless
    nothing was done on it. What stands in the way is kept beside them (`left_reason`). Raises UserError, OSError."""
    top = layout.worktrees / task
    if not top.is_dir():
        return
    with held(top) as hold:
        fs.write(top / _LEFT, b"whoever put it away was killed")
        try:
            for path in sorted(top.iterdir()):
                if not path.name.startswith(".") and path.is_dir():
                    _put_away_at(path, hold)
        except (HivemindError, OSError) as error:
            fs.write(top / _LEFT, str(error).encode("utf-8", "replace"))
            raise
        fs.remove_tree(top)


def left_reason(layout: Layout, task: str) -> str | None:
    """Return what stood in the way when the worktrees of a task were put away; None if nobody has tried."""
    with contextlib.suppress(FileNotFoundError):
        return (layout.worktrees / task / _LEFT).read_bytes().decode("utf-8", "replace")
    return None


def check_repository(root: Path) -> None:
    """Raises UserError for a root of which no worktrees can be made."""
    Repository.at(root).head()


def put_away_ended(hive: Parts, *tasks: str) -> None:
    """Put away the worktrees of these tasks, or of all, that are over. Where somebody has tried in vain they are left to the
    doctor: they must not hold up every agent that starts."""
    layout = hive.layout
    for task in tasks or sorted(names_in(layout.worktrees)):
        try:
            if not hive.tasks.listing.is_open(task) and left_reason(layout, task) is None:
                put_away(layout, task)
        except (HivemindError, OSError) as error:
            _log.warning("task %s: its worktrees are left: %s", task, error)


def _put_away_at(path: Path, hold: int) -> None:
    """A worktree without a note was never handed to an agent, so that nothing can have been done in it."""
    worktree = _noted(path)
    if worktree is not None:
        _put_away(replace(worktree.repository, hold=hold), worktree)
    elif any(path.iterdir()) and not has_git(path):
        raise UserError(
            "is no worktree that this hive has made", location=path, remedy="take what you want, and delete it"
        )
    fs.remove_tree(path)


def _put_away(repository: Repository, worktree: Worktree) -> None:
    if worktree.branch is not None:
        if worktree.path.is_dir():
            who = in_the_name_of("hivemind", "hivemind@localhost")
            _commit(worktree, repository, "What was left over at the end", who, over=True)
        repository.let_go(worktree.branch, worktree.base)
    fs.remove_tree(worktree.path)
    fs.remove_tree(f"{worktree.path}{_NOTE}")


def _commit(
    worktree: Worktree, repository: Repository, why: str, who: Mapping[str, str], *, over: bool = False
) -> None:
    """Commit what a worktree has, and take it over. Where the agent's git is broken, or fails when the task is `over`, it is made
    anew: the files are there, and what was taken over before."""
    try:
        if not has_git(worktree.path):
            raise BrokenGit("has no git any more", location=worktree.path)
        worktree.commit(repository, mask(why), who, over=over)
    except GitProblem as problem:
        if not over and not isinstance(problem, BrokenGit):
            raise
        worktree.make_git(repository, worktree.tip or worktree.base, who)
        worktree.commit(repository, mask(why), who, over=over)


def _numbered(name: str, mark: str = "-", first: int = 1) -> Iterator[str]:
    """`name`, `name-2`, `name-3` …, or from `name-<first>` on."""
    return (name if number == 1 else f"{name}{mark}{number}" for number in itertools.count(first))
