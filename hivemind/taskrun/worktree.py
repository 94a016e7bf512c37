"""Worktrees: each task's own checkout of a git repository that hive.yaml lists with `worktree: true` (spec 8).

What is to be made is recorded before it is made, and a git that outlives its agent keeps the lock of the task's worktrees:
whoever goes on makes the same, and may take away what git has left locked.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import shutil
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
from hivemind.taskrun.git import GitProblem, Repository, Worktree, held, in_the_name_of, run_git
from hivemind.tasks import Task, TaskState

__all__ = ["Worktrees", "check_repository", "merge_task", "put_away", "put_away_ended"]

_log = logging.getLogger(__name__)
_UNDER_WAY = ("MERGE_HEAD", "rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "REVERT_HEAD")
_NOTE = "hivemind"
"""In git's folder of a worktree: which branch it is for, and where that began. Complete worktrees have one."""


class Worktrees:
    """The worktrees of a task in hand. `keep` keeps their record with the task."""

    def __init__(
        self, hive: Parts, task: Task, agent: str, attempt: int, keep: Callable[[Any], object] = lambda _: None
    ) -> None:
        self._hive, self._task, self._attempt = hive, task, attempt
        self._keep = keep
        self._who = in_the_name_of(agent, f"{agent}@{hive.config.workspace}")
        self._top = hive.layout.worktrees / task.id

    @property
    def recorded(self) -> list[Worktree]:
        """Those that are recorded, whether they are there or not."""
        return _recorded(self._hive.layout, self._task.kept)

    @property
    def identity(self) -> dict[str, str]:
        """In whose name commits are made, as git is told."""
        return self._who if self.recorded else {}

    def ready(self) -> tuple[Worktree, ...]:
        """One for each root that is worked on so, in the order of hive.yaml; made now where it is not there. Raises UserError,
        OSError."""
        roots = self._hive.config.worktree_roots(self._hive.layout)
        found = {one.root: one for one in self.recorded}
        if not all(root in found and found[root].is_there for root in roots):
            with held(self._top) as hold:
                for root in roots:
                    self._make(Repository.at(root, hold))
            found = {one.root: one for one in self.recorded}
        return tuple(found[root] for root in roots)

    def _make(self, repository: Repository) -> None:
        """What is to be made is recorded first; a git that is killed leaves what is cleared away by the next."""
        known = self.recorded
        one = next((one for one in known if one.root == repository.root), None)
        if one is None:
            one = self._planned(repository, {one.path.name for one in known})
            self._record(one)
            fs.reached("worktree.recorded")
        if one.is_there:
            return
        _clear(repository, one)
        if one.branch is not None and repository.commit_of(f"refs/heads/{one.branch}") is None:
            repository.move(one.branch, one.base, None, f"begun for {self._task.id}")
        how = ("--detach", one.path, one.base) if one.branch is None else (one.path, one.branch)
        repository.git("worktree", "add", "--quiet", *how)
        fs.reached("worktree.added")
        folder = repository.folder_of(one.path)
        assert folder is not None
        (folder / "config.worktree").touch()
        fs.write(folder / _NOTE, json.dumps({"branch": one.branch, "base": one.base}))
        self._record(replace(one, git=folder))

    def _planned(self, repository: Repository, taken: Collection[str]) -> Worktree:
        """Where it will be, on which branch, and from where: the parent's branch for a subtask, else what the person has
        checked out. Raises UserError if there is no commit yet."""
        root, parent = repository.root, self._task.parent
        path = self._top / next(one for one in _numbered(root.name) if one not in taken)
        kept = {} if parent is None else self._hive.tasks.kept(parent)
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

    def _record(self, one: Worktree) -> None:
        told = {**asdict(one), "root": str(one.root), "path": self._hive.layout.relative(one.path)}
        rows = [each for each in self._task.kept.get("worktrees", ()) if each["root"] != told["root"]]
        self._keep([*rows, {**told, "git": None if one.git is None else str(one.git)}])

    def commit(self, why: str, *, ends: bool = False) -> None:
        """Commit what has changed and is in no commit yet. A merge or rebase under way is left to its agent; where the task
        `ends` it is refused. Raises UserError, OSError."""
        for one in self.recorded:
            if one.git is None or one.branch is None or not one.is_there:
                continue
            found = next((name for name in _UNDER_WAY if (one.git / name).exists()), None)
            if found is None:
                with held(self._top) as hold:
                    _commit(replace(one.repository, hold=hold), one, why, self._who)
            elif ends:
                mend = "end it: git commit, git rebase --continue, or --abort"
                raise UserError(f"a merge or a rebase is under way ({found})", location=one.path, remedy=mend)

    def merge(self, task: str, *, mark: bool) -> list[str]:
        """Merge what a subtask that is over has done into this task's own worktrees; returns what became of it, a line each.
        Raises UserError, for conflicts unless they are to be marked."""
        theirs = {one.root: one.branch for one in _recorded(self._hive.layout, self._hive.tasks.kept(task))}
        pairs = [(one, branch) for one in self.ready() if one.branch and (branch := theirs.get(one.root))]
        if not pairs:
            raise UserError("has no branch of a repository of yours", location=task)
        self.commit(f"Before the merge of {task}", ends=True)
        return [line for one, branch in pairs for line in self._merge(one, str(one.branch), branch, mark=mark)]

    def _merge(self, one: Worktree, mine: str, branch: str, *, mark: bool) -> list[str]:
        with held(self._top) as hold:
            repository = replace(one.repository, hold=hold)
            before, after, conflicts = repository.merged(branch, mine, self._who, mark=mark)
            if after != before:
                repository.git("read-tree", "-m", "-u", before, after, of=one)
                fs.reached("worktree.merging")  # the files first: a branch ahead of them would have them undone
                repository.move(mine, after, before, f"merge {branch}")
        return [_told(branch, mine, before, after), *(f"edit the marks in {path}" for path in conflicts)]

    def bound(self) -> dict[Path, bool | None]:
        """What a sandbox shows of them, and whether it may be written: files, objects, their branches; no settings, no hooks."""
        found: dict[Path, bool | None] = {}
        for one in self.ready():
            assert one.git is not None
            common, mine = one.git.parents[1], one.branch is not None
            found |= {one.path: mine, one.path / ".git": False, common: False}
            if mine:
                open_to = [common / name for name in ("objects", "refs/heads/hive", "logs/refs/heads/hive")]
                for folder in open_to:
                    folder.mkdir(parents=True, exist_ok=True)
                found |= dict.fromkeys((one.git, *open_to), True)
                found |= {one.git / name: False for name in ("commondir", "config.worktree", "gitdir", _NOTE)}
        return found

    def changes(self) -> list[str]:
        """For result.md: each branch, how it differs from where it began, and how to see and take it."""
        by_hand = f"hivemind task merge {self._task.id}"
        take, lines = "merge_worktree, by its parent's agent" if self._task.parent else by_hand, []
        for one, stat in self.diffs("--stat=100", "--stat-count=40"):
            begun = f"{one.base[:12]}{f' of {one.into}' if one.into else ''}"
            see = f"git -C {one.root} diff {one.base[:12]}..{one.branch}"
            lines += [f"Branch `{one.branch}` of {one.root}, begun at {begun}:", "", "```", *stat.splitlines(), "```", "",
                      f"All of it: `{see}`. To take it in: `{take}`.", ""]  # fmt: skip
        return ["## Changes", "", *lines] if lines else []

    def diffs(self, *options: str) -> Iterator[tuple[Worktree, str]]:
        """Those on whose branches something was done, each with what has changed since that began."""
        for one in self.recorded:
            if (tip := one.tip) is not None:
                told = one.repository.git("diff", "--no-ext-diff", "--no-textconv", *options, one.base, tip)
                yield one, told.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _recorded(layout: Layout, kept: Mapping[str, Any]) -> list[Worktree]:
    """The worktrees in a task's record. Raises Unreadable."""
    with boundary("record of a task's worktrees"):
        rows = [(one, one["git"] and Path(one["git"])) for one in kept.get("worktrees") or ()]
        return [
            Worktree(**{**one, "root": Path(one["root"]), "path": layout.root / one["path"], "git": git})
            for one, git in rows
        ]


def merge_task(hive: Parts, task_id: str) -> list[str]:
    """Merge the branches of a task that is over into those that it began from, as a person asks for it; returns what became of
    it, a line each. A checkout is brought forward only if it is clean. Raises UserError."""
    if hive.tasks.get(task_id).state in (TaskState.INBOX, TaskState.ACTIVE):
        raise UserError("is not over yet", location=task_id, remedy="its branch can be merged when it is")
    found = [one for one in _recorded(hive.layout, hive.tasks.kept(task_id)) if one.branch is not None]
    if not found:
        raise UserError("has no branch", location=task_id, remedy="roots with worktree: true in hive.yaml give tasks one")
    return [_merged_by_hand(hive.layout, one, str(one.branch)) for one in found]


def _merged_by_hand(layout: Layout, one: Worktree, branch: str) -> str:
    repository, by_hand = Repository.at(one.root), f"git -C {one.root} merge {branch}"
    if one.into is None:
        raise UserError("began on no branch that it could be merged into", location=branch, remedy=by_hand)
    into = Path(repository.git("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{one.into}") or "/")
    if layout.worktrees in into.parents:
        raise UserError(f"{one.into} is being worked on in {into}", location=branch, remedy="its agent merges it")
    if into != Path("/") and run_git(["-C", into, "status", "--porcelain", "--untracked-files=no"], {}, None):
        raise UserError("has changes that are not committed", location=into, remedy=f"commit or stash them, or: {by_hand}")
    before, after, _ = repository.merged(branch, one.into, {})
    if after != before and into != Path("/"):
        run_git(["-C", into, "merge", "--quiet", "--ff-only", after], {}, None)
    elif after != before:
        repository.move(one.into, after, before, f"merge {branch}")
    return _told(branch, one.into, before, after)


def _told(source: str, into: str, before: str, after: str) -> str:
    return f"{source} into {into}: {'was in it already' if before == after else f'merged, {after}'}"


def put_away(layout: Layout, roots: Collection[Path], task: str) -> None:
    """Take away the worktrees of a task that is over: what is in no commit yet is committed first, and the branch kept unless
    nothing was done on it. Raises UserError for what is no worktree of a repository in `roots`, OSError."""
    top = layout.worktrees / task
    if not top.is_dir():
        return
    with held(top) as hold:
        repositories = [Repository.at(root, hold) for root in roots]
        for path in sorted(top.iterdir()):
            found = next((one for one in repositories if one.folder_of(path) is not None), None)
            if found is None:
                raise UserError(
                    "is no worktree of a root in hive.yaml", location=path, remedy="take what you want, and delete it"
                )
            _put_away(found, path)
        top.rmdir()


def check_repository(root: Path) -> None:
    """Raises UserError for a root of which no worktrees can be made."""
    Repository.at(root).head()


def put_away_ended(hive: Parts, *tasks: str) -> None:
    """The same for these tasks, or all, that are over. What cannot be put away now is a finding of the doctor's."""
    layout = hive.layout
    for task in tasks or sorted(names_in(layout.worktrees)):
        try:
            if not hive.tasks.is_open(task):
                put_away(layout, hive.config.worktree_roots(layout), task)
        except (HivemindError, OSError) as error:
            _log.warning("task %s: its worktrees are left: %s", task, error)


def _put_away(repository: Repository, path: Path) -> None:
    """A worktree without a note was never handed to an agent, so that nothing can have been done in it."""
    folder = repository.folder_of(path)
    assert folder is not None
    branch, base = _note(folder)
    if branch is not None and path.is_dir():
        one = Worktree(repository.root, path, branch, base, None, folder)
        _commit(repository, one, "What was left over at the end", in_the_name_of("hivemind", "hivemind@localhost"))
    _remove(path, folder)
    if branch is not None and repository.commit_of(f"refs/heads/{branch}") == base:
        repository.git("update-ref", "-d", f"refs/heads/{branch}", base)


def _note(folder: Path) -> tuple[str | None, str]:
    """The branch that a worktree is for, and where it began."""
    with contextlib.suppress(FileNotFoundError), boundary("note of a worktree", folder / _NOTE):
        told = json.loads((folder / _NOTE).read_text())
        return told["branch"], told["base"]
    return None, ""


def _clear(repository: Repository, one: Worktree) -> None:
    """Make room for a worktree: what a killed git left goes, an earlier attempt's is put away, and files that git knows nothing
    of any more are set aside."""
    folder = repository.folder_of(one.path)
    if folder is not None and _note(folder)[0] not in (None, one.branch):
        _put_away(repository, one.path)
    elif folder is None and one.git is not None and one.path.exists():
        names = (one.path.with_name(name) for name in _numbered(f"{one.path.name}.aside"))
        aside = one.path.rename(next(name for name in names if not name.exists()))
        _log.warning("%s: git knows nothing of it any more; it is %s now", one.path, aside)
    _remove(one.path, folder)


def _remove(*folders: Path | None) -> None:
    for one in folders:
        if one is not None and one.exists():
            shutil.rmtree(one)


def _commit(repository: Repository, one: Worktree, why: str, who: Mapping[str, str]) -> None:
    """Commit all that the worktree has, onto its branch; one that was deleted begins anew where it began."""
    assert one.branch is not None
    before = repository.commit_of(f"refs/heads/{one.branch}")
    repository.git("add", "--all", ".", of=one)
    tree = repository.git("write-tree", of=one)
    if before is None or tree != repository.git("rev-parse", f"{before}^{{tree}}"):
        made = repository.git("commit-tree", tree, "-p", before or one.base, "-m", mask(why), who=who)
        fs.reached("worktree.committing")
        repository.move(one.branch, made, before, "what was left over")


def _numbered(name: str, mark: str = "-", first: int = 1) -> Iterator[str]:
    """`name`, `name-2`, `name-3` …, or from `name-<first>` on."""
    return (name if number == 1 else f"{name}{mark}{number}" for number in itertools.count(first))
