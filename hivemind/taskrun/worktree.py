"""Worktrees: each agent has its own checkout of each git repository that hive.yaml lists with `worktree: true`, and keeps it from
task to task.

A worktree is made when a task first needs it. The note next to it (`PATH.json`) says which task's work is in it; the record in
the task says which worktree, branch and base the task has. Before another task's files come in, the work of the previous task is
committed to its branch. A successor can finish interrupted work. While git runs in the person's repository, the agent and
the git process both hold the lock of the agent's worktrees.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.config import RootConfig
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.fs.paths import names_in
from hivemind.layout import Layout
from hivemind.masking import mask
from hivemind.presence.parts import Parts
from hivemind.taskrun.agent_git import BrokenGit, MergeUnderWay, Worktree, has_git
from hivemind.taskrun.box import is_boxed, start_lines
from hivemind.taskrun.contest import contest_of
from hivemind.taskrun.git import GitProblem, Repository, RootGone, git_identity, lock_worktrees
from hivemind.taskrun.target_branch import landing_place, root_folder, target_tip
from hivemind.taskrun.waits import Parking
from hivemind.tasks import Task
from hivemind.tasks.record import load

_log = logging.getLogger(__name__)
_KIND, _VERSION = "worktree", 2
_NOTE = ".json"
_MAX_NAMES, _MAX_TRIES, _TAIL_CHARS = 20, 3, 2000
_GONE_S = 10.0
_KILLED = "the process that committed what is left over was killed"


class WorktreeProblem(UserError):
    """A worktree cannot be made. The turn fails, since its mind cannot mend that."""


@frozen
class WorktreeNote:
    """The note next to a worktree. `task` is the task whose uncommitted work may be in it, or None. `setup` is the digest of the
    last set-up. `tries` counts failed attempts to commit, and `reason` is why the last one failed. After too many the worktree is
    left to the doctor."""

    root: Path
    git: Path
    branch: str | None
    base: str
    task: str | None = None
    setup: str | None = None
    tries: int = 0
    reason: str | None = None

    def save(self, path: Path) -> WorktreeNote:
        fields = {**asdict(self), "root": str(self.root), "git": str(self.git)}
        fs.save_record(f"{path}{_NOTE}", _KIND, _VERSION, fields)
        return self


class Worktrees:
    """The worktrees of a claimed task. `keep` saves their record with the task."""

    def __init__(
        self, hive: Parts, task: Task, agent: str, attempt: int, keep: Callable[[Any], object] = lambda _: None
    ) -> None:
        self._hive, self._task, self._agent, self._attempt = hive, task, agent, attempt
        self._keep = keep
        self._identity = git_identity(agent, f"{agent}@{hive.config.workspace}")
        self._top = hive.layout.worktrees / agent
        self._paths: dict[Path, Path] = {}
        self._ready_roots: set[Path] = set()
        self._mutex = threading.Lock()  # files are read in parallel
        self._targets: dict[Path, str] = {}

    @property
    def recorded(self) -> list[Worktree]:
        """The recorded worktrees, whether they exist or not."""
        return recorded_worktrees(self._hive, self._task.kept)

    @property
    def planned(self) -> tuple[Worktree, ...]:
        """One worktree per root with `worktree: true`, in the order of hive.yaml, even if it does not exist yet. If the task has
        not used a root yet, its worktree has no base, and the path is where it will be made."""
        by_root, worktrees = {worktree.root: worktree for worktree in self.recorded}, list[Worktree]()
        for root in self._hive.config.worktree_roots(self._hive.layout):
            worktree = by_root.get(root)
            if worktree is None:
                worktree = Worktree(root, Path(), None if self._is_review else next(self._branch_names()), "", None)
            if root not in self._ready_roots:
                path = self._paths[root] = self._free_path(root, worktree.path)
                worktree = replace(worktree, path=path, agent=None)
            worktrees.append(worktree)
        return tuple(worktrees)

    def target_of(self, worktree: Worktree) -> str | None:
        """Return the branch that a worktree will be merged into, even before the worktree is made. None if there is none."""
        if worktree.base:
            return worktree.into
        with contextlib.suppress(UserError):  # raised again when the worktree is made
            return self._choose(Repository.at(worktree.root), worktree.path).into
        return None

    @property
    def identity(self) -> dict[str, str]:
        """The author of commits, as environment variables of git."""
        return self._identity if self.recorded else {}

    def ready(self, *roots: Path) -> tuple[Worktree, ...]:
        """Return the worktrees of these roots, by default of all with `worktree: true`, in the order of hive.yaml. Makes those
        that are missing. Raises WorktreeProblem, OSError; Parking while the folder of a root is gone."""
        roots = roots or self._hive.config.worktree_roots(self._hive.layout)
        with self._mutex:
            try:
                for root in roots:
                    if not self.is_ready(root):
                        self._take_over_leftovers()
                        with lock_worktrees(self._top) as hold:
                            worktree = self._make(Repository.at(root, hold))
                        self._set_up(worktree)
                        self._ready_roots.add(root)
            except RootGone as gone:
                raise Parking(str(gone), again_s=_GONE_S) from None
            except UserError as error:
                raise WorktreeProblem(error.message, location=error.location, remedy=error.remedy) from error
        by_root = {worktree.root: worktree for worktree in self.recorded}
        return tuple(by_root[root] for root in roots)

    def is_ready(self, *roots: Path) -> bool:
        """Check whether these worktrees, by default all, exist and are this task's."""
        roots = roots or self._hive.config.worktree_roots(self._hive.layout)
        paths = {worktree.root: worktree.path for worktree in self.recorded if worktree.root in self._ready_roots}
        return all(root in paths and has_git(paths[root]) for root in roots)

    def begin(self) -> None:
        """Record the branch and the base of each root's worktree and make the branch: subtasks can begin from it. Do not
        create the worktrees. Raises UserError, OSError."""
        recorded_roots = {worktree.root for worktree in self.recorded}
        for root in self._hive.config.worktree_roots(self._hive.layout):
            if root not in recorded_roots:
                with lock_worktrees(self._top) as hold:
                    self._begin(Repository.at(root, hold), self._free_path(root, Path()))

    def _take_over_leftovers(self) -> None:
        """Commit the task's work in worktrees outside the agent's folder, which an earlier agent has left."""
        for worktree in self.recorded:
            if worktree.path.parent != self._top:
                with _logged(f"task {self._task.id}"):
                    _put_down(worktree.path, self._task.id, is_open=lambda _: True)

    def _make(self, repository: Repository) -> Worktree:
        """Prepare a worktree for the task and return it: bring its files to the task's branch, but keep uncommitted work of this
        task."""
        root = repository.root
        recorded_path = next((worktree.path for worktree in self.recorded if worktree.root == root), Path())
        path = self._free_path(root, recorded_path)
        worktree = self._begin(repository, path)
        note = _read_note(path)
        is_own = note is not None and note.task == self._task.id and note.branch == worktree.branch and path.exists()
        if note is not None and not is_own and not _commit_noted_work(path, note, repository.hold, self._is_open):
            return self._make(repository)  # this one is the doctor's now, another path is free
        note = _read_note(path) or WorktreeNote(root, repository.common, worktree.branch, worktree.base).save(path)
        tip = worktree.tip or worktree.base
        is_filled = False
        if is_own and note.git == repository.common and has_git(path) and worktree.agent in (None, self._agent):
            if worktree.branch is not None:
                with contextlib.suppress(GitProblem):  # said at the end of the turn
                    worktree.commit(repository, mask(self._task.title), self._identity, follow=True)
        else:
            if not is_own and (self._task.fresh or self._config(root).worktrees == "fresh"):
                fs.remove_tree(path)
            is_filled = worktree.make_git(repository, tip, self._identity, switch=not is_own)
        fs.crash_point("worktree.added")
        fields: dict[str, Any] = {"branch": worktree.branch, "base": worktree.base, "git": repository.common}
        setup = None if is_filled else note.setup
        replace(note, root=root, task=self._task.id, setup=setup, tries=0, reason=None, **fields).save(path)
        worktree = replace(worktree, agent=self._agent)
        self._record(worktree)
        self._paths[root] = path
        self._targets.pop(path, None)
        return worktree

    def _begin(self, repository: Repository, path: Path) -> Worktree:
        """Choose the task's branch and base if there is none yet, record them with the path, and make the branch. Return the
        worktree."""
        recorded = next((worktree for worktree in self.recorded if worktree.root == repository.root), None)
        worktree = replace(recorded or self._choose(repository, path), path=path, git=repository.common)
        self._record(worktree)
        fs.crash_point("worktree.recorded")
        branch = worktree.branch
        if branch is not None and repository.commit_of(f"refs/heads/{branch}") is None:
            tip = None if recorded is None else repository.kept_tip(branch)
            repository.begin(branch, worktree.base, self._task.id)
            if tip not in (None, worktree.base):  # somebody has deleted the branch
                repository.move(branch, str(tip), worktree.base, "made again")
        return worktree

    def _choose(self, repository: Repository, path: Path) -> Worktree:
        """Return the worktree with its new branch, base, and the branch to merge it into. A candidate has the base and target of
        its contest. Any other subtask begins at, and goes into, the parent's branch; any other task the root's target. A review
        has no branch. Raises UserError if there is no target, or no commit yet."""
        root, parent = repository.root, self._task.parent
        parent_worktrees = recorded_worktrees(self._hive, self._parent_record) if parent is not None else []
        parent_worktree = next((worktree for worktree in parent_worktrees if worktree.root == root), None)
        contest = contest_of(self._hive, self._task)
        start = next((start for start in contest.starts if start.root == str(root)), None) if contest else None
        into: str | None
        if start is not None:
            into, base = start.target, start.commit
        elif parent_worktree is not None:
            into, base = parent_worktree.branch, parent_worktree.tip or parent_worktree.base
        else:
            into, base = target_tip(self._hive, repository)
        if self._is_review:
            return Worktree(root, path, None, base, None)
        names = self._branch_names()
        branch = next(name for name in names if repository.commit_of(f"refs/heads/{name}") is None)
        return Worktree(root, path, branch, base, into)

    def _branch_names(self) -> Iterator[str]:
        return _numbered(f"hive/{self._task.id}".rstrip(".").removesuffix(".lock"), ".", self._attempt)

    @property
    def _parent_record(self) -> Mapping[str, Any]:
        return {} if self._task.parent is None else self._hive.tasks.listing.kept_values(self._task.parent)

    @cached_property
    def _is_review(self) -> bool:
        calls = self._parent_record.get("subtasks", {}).items()
        return any(call.startswith("review ") and self._task.id in ids for call, ids in calls)

    def _free_path(self, root: Path, recorded_path: Path) -> Path:
        """Return a path for the worktree: the recorded one if it is free, else the first free path for this root. A path is
        free if none of the agent's other tasks is at work there."""
        other_paths = {path for other_root, path in self._paths.items() if other_root != root}
        other_paths |= {worktree.path for worktree in self.recorded if worktree.root != root}

        def is_free(path: Path) -> bool:
            if path in other_paths or path.parent != self._top:
                return False
            try:
                note = _read_note(path)
            except UserError:
                return False  # the doctor's
            if note is None:
                return not path.exists()
            if note.tries >= _MAX_TRIES or (note.root != root and (path, note.task) != (recorded_path, self._task.id)):
                return False
            return note.task in (None, self._task.id) or not _has_claim(self._hive.layout, note.task, self._agent)

        name = root.name.lstrip(".").removesuffix(_NOTE) or "root"
        paths = (self._top / numbered_name for numbered_name in _numbered(name))
        return next(path for path in itertools.chain([recorded_path], paths) if is_free(path))

    def _is_open(self, task: str) -> bool:
        return self._hive.tasks.listing.is_open(task)

    def _config(self, root: Path) -> RootConfig:
        return self._hive.config.repository_roots(self._hive.layout)[root]

    def _set_up(self, worktree: Worktree) -> None:
        """Run the root's `setup:` in a new worktree, and again after a file of `setup_when` has changed. Its output goes to
        `.hive/logs`. Raises UserError with the end of the output."""
        roots = self._hive.config.repository_roots(self._hive.layout)
        config, note = roots.get(worktree.root), _read_note(worktree.path)
        if config is None or not config.setup or note is None:
            return
        digest = _setup_digest(config, worktree.path)
        if note.setup == digest:
            return
        folder, is_open = root_folder(self._hive.layout, worktree.root), config.check_network == "open"
        log_path = self._hive.layout.logs / f"setup-{self._agent}-{folder.name}.log"
        fs.make_folder(folder / "home", durable=False)
        with open(log_path, "wb") as log, start_lines(
            config.setup, worktree.path, folder / "home", boxed=is_boxed(config.check_box), network=is_open, log=log,
            readable=worktree.repository.object_folders, limits=self._hive.agents[self._agent].limits,
        ) as lines:  # fmt: skip
            result = lines.wait()
        if result.outcome != "passed":
            tail = log_path.read_bytes()[-_TAIL_CHARS:].decode("utf-8", "replace").strip()
            hint = "" if is_open else "; if it needs the network, set check_network: open at the root"
            raise UserError(
                f"cannot be set up: {result.reason}\n{tail}", location=worktree.path,
                remedy=f"see {self._hive.layout.relative(log_path)}{hint}",
            )  # fmt: skip
        replace(note, setup=digest).save(worktree.path)

    def _record(self, worktree: Worktree) -> None:
        path, git = self._hive.layout.relative(worktree.path), worktree.git and str(worktree.git)
        row = {**asdict(worktree), "root": str(worktree.root), "path": path, "git": git}
        old_rows = zip(self._task.kept.get("worktrees", ()), self.recorded, strict=True)
        rows = [old_row for old_row, recorded in old_rows if recorded.root != worktree.root]
        self._keep([*rows, row])

    def commit(self, message: str, *, ends: bool = False) -> None:
        """Commit all changes in the worktrees, and move the branches. A worktree with an unfinished merge or rebase is
        skipped, or raises UserError if the task `ends`. Raises UserError, OSError; Parking while the folder of a root is gone."""
        roots = self._hive.config.worktree_roots(self._hive.layout)
        for worktree in self.recorded:
            if worktree.root in roots and not worktree.root.is_dir():
                raise Parking(str(RootGone(worktree.root)), again_s=_GONE_S)
            if worktree.branch is None or worktree.path.parent != self._top:
                continue
            with lock_worktrees(self._top) as hold:
                if not self._has_work(worktree):
                    continue
                try:
                    repository = replace(worktree.repository, hold=hold)
                    follow = worktree.root not in self._ready_roots
                    _commit(worktree, repository, message, self._identity, follow=follow)
                except MergeUnderWay:
                    if ends:
                        raise

    def _has_work(self, worktree: Worktree) -> bool:
        """Check whether the worktree may have work of this task: the agent made it for the task, and its note still names the
        task."""
        if worktree.agent != self._agent or not worktree.path.is_dir():
            return False
        note = _read_note(worktree.path)
        return note is not None and note.task == self._task.id

    def put_down(self) -> None:
        """Commit uncommitted work, and leave the worktrees to the agent's next task. If this task is over, delete the refs that
        protect its commits, and its branches without commits. A failure is logged, and left to the doctor."""
        is_open = bool(self.recorded) and self._is_open(self._task.id)
        for worktree in self.recorded:
            with _logged(f"task {self._task.id}"):
                if worktree.path.parent.is_dir():
                    _put_down(worktree.path, self._task.id, is_open=self._is_open)
                if not is_open and worktree.branch is not None and worktree.git is not None:
                    worktree.repository.let_go(worktree.branch, worktree.base)
        self._ready_roots.clear()

    def take_in(self, root: Path, old: str, new: str) -> None:
        """Move the task's branch of a root, and the files of its worktree, from the commit `old` to `new`. The files are moved
        first: otherwise the next commit would undo the move."""
        worktree = next(worktree for worktree in self.ready() if worktree.root == root)
        with lock_worktrees(self._top) as hold:
            repository = replace(worktree.repository, hold=hold)
            repository.announce(str(worktree.branch), new)
            worktree.forward(old, new)
            fs.crash_point("worktree.merging")
            repository.move(str(worktree.branch), new, old, "a subtask has landed")

    def catch_up(self) -> tuple[Worktree, ...]:
        """Update, in each worktree, the remote-tracking ref of the branch that it will be merged into. Return the worktrees."""
        worktrees = self.ready()
        for worktree in worktrees:
            target = worktree.into and worktree.repository.commit_of(f"refs/heads/{worktree.into}")
            if target and self._targets.get(worktree.path) != target:
                with contextlib.suppress(GitProblem):  # an agent may break its own git, and then mends it by commands
                    worktree.set_ref(f"refs/remotes/{worktree.into}", target)
                    self._targets[worktree.path] = target
        return worktrees

    def sandbox_folders(self) -> dict[Path, bool | None]:
        """Return the folders that a sandbox shows, each with True if it is writable: the worktrees (but not a review's), and,
        read-only, the repositories' objects."""
        folders: dict[Path, bool | None] = {}
        for worktree in self.catch_up():
            folders |= {worktree.path: worktree.branch is not None}
            folders |= dict.fromkeys(worktree.repository.object_folders, False)
        return folders

    def changes(self) -> list[str]:
        """Return the section of result.md on the branches: what each changed, and how to see all of it."""
        lines = list[str]()
        stats = {worktree.root: stat for worktree, stat in self.diffs("--stat=100", "--stat-count=40")}
        for worktree in self.recorded:
            stat, names = stats.get(worktree.root, ""), self._untracked_names(worktree)
            if not stat and not names:
                continue
            start = f"{worktree.base[:12]}{f' of {worktree.into}' if worktree.into else ''}"
            lines += [
                f"Branch `{worktree.branch}` of {worktree.root}, begun at {start}:",
                "",
                "```",
                *(stat.splitlines() or ["no changes"]),
                "```",
                "",
            ]
            if names:
                lines += [f"Not in it, as caches, submodules or repositories of their own: {names}.", ""]
            if stat:
                lines += [f"All of it: `hivemind task diff {self._task.id}`.", ""]
        return ["## Changes", "", *lines] if lines else []

    def _untracked_names(self, worktree: Worktree) -> str:
        """Return the first names of `untracked_files` as text; "" without any."""
        if not self.is_ready(worktree.root):
            return ""
        names = worktree.untracked_files()
        quoted_names = [f"`{name}`" for name in names[:_MAX_NAMES]]
        return ", ".join(
            [*quoted_names, f"and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else quoted_names
        )

    def diffs(self, *options: str) -> Iterator[tuple[Worktree, str]]:
        """Yield each worktree with new commits on its branch, and the diff of the branch's own changes. `options` are those of
        `git diff`."""
        for worktree in self.recorded:
            if (tip := worktree.tip) is not None:
                start = worktree.repository.start_of(tip, worktree.base, worktree.into)
                diff = worktree.repository.git("diff", "--no-ext-diff", "--no-textconv", *options, start, tip)
                yield worktree, diff.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def recorded_worktrees(hive: Parts, record: Mapping[str, Any]) -> list[Worktree]:
    """Return the worktrees in a task's record, with the roots and targets of hive.yaml now. Raises Unreadable."""
    roots = hive.config.repository_roots(hive.layout)
    with boundary("record of a task's worktrees"):
        return [_worktree(hive.layout, roots, row) for row in record.get("worktrees") or ()]


def _worktree(layout: Layout, roots: Mapping[Path, RootConfig], row: Mapping[str, Any]) -> Worktree:
    """Return a worktree from its record, with its root and target as hive.yaml has them now."""
    git, recorded_root = row["git"] and Path(row["git"]), Path(row["root"])
    root, into = landing_place(roots, recorded_root, row["branch"], row["base"], row["into"])
    if root != recorded_root:
        git = Repository.at(root).common
    return Worktree(**{**row, "root": root, "path": layout.root / row["path"], "git": git, "into": into})


def _read_note(path: Path) -> WorktreeNote | None:
    """Read the note next to a worktree; None if there is none. Raises UserError."""
    with boundary("note of a worktree", path):
        fields = fs.load_record(f"{path}{_NOTE}", _KIND, _VERSION)
        if fields is None:
            return None
        return WorktreeNote(**{**fields, "root": Path(fields["root"]), "git": Path(fields["git"])})


def _has_claim(layout: Layout, task: str, agent: str) -> bool:
    """Check whether the agent has the claim of a task. A task with a damaged record counts as claimed."""
    try:
        record = load(layout.active / task)
    except UserError:
        return True
    return record is not None and record.claim is not None and record.claim.agent == agent


def _setup_digest(config: RootConfig, path: Path) -> str:
    """Return a digest of the set-up's lines and of the files of `setup_when`, where links count as missing."""
    digest = hashlib.sha256("\0".join(config.setup).encode())
    for name in config.setup_when:
        digest.update(f"\0{name}\0".encode())
        with contextlib.suppress(UserError, OSError), open(fs.file_below(path, Path(name).parts), "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def put_away(layout: Layout, name: str, is_open: Callable[[str], bool] = lambda _: False) -> None:
    """Commit the uncommitted work in the folder of worktrees of the agent `name`, which is gone, and remove the folder. Raises
    UserError, OSError."""
    top = layout.worktrees / name
    if not top.is_dir():
        return
    with lock_worktrees(top) as hold:
        for path in worktree_paths(layout, name):
            _put_away(path, hold, is_open)
        fs.remove_tree(top)


def put_down_ended(layout: Layout, agent: str, is_open: Callable[[str], bool]) -> None:
    """Commit uncommitted work of ended tasks in an agent's worktrees. A failure is logged and left to the doctor, so it
    does not delay the agent."""
    for path in worktree_paths(layout, agent):
        with _logged(f"worktree {path}"):
            if (task := leftover_task(layout, path)) is not None:
                _put_down(path, task, is_open=is_open)


def worktree_paths(layout: Layout, name: str) -> list[Path]:
    """Return the paths of the worktrees in an agent's folder, including worktrees with only a note."""
    top = layout.worktrees / name
    names = {entry.removesuffix(_NOTE) for entry in names_in(top) if not entry.startswith(".")}
    return [top / entry for entry in sorted(names)]


def leftover_task(layout: Layout, path: Path) -> str | None:
    """Return the task whose uncommitted work is in a worktree although its agent no longer has the task. Return None if there is
    no such work. Raises UserError."""
    note = _read_note(path)
    if note is None or note.task is None or _has_claim(layout, note.task, path.parent.name):
        return None
    return note.task


def failure_reason(path: Path) -> str | None:
    """Return why the leftovers in a worktree could not be committed; None if no attempt failed. Raises UserError."""
    note = _read_note(path)
    return None if note is None else note.reason


def check_repository(root: Path) -> None:
    """Raise UserError for a root that cannot have worktrees."""
    Repository.at(root).head()


def commit_leftovers(layout: Layout, path: Path, is_open: Callable[[str], bool]) -> None:
    """Commit the work in a worktree of an agent that no longer has the task, even if that has failed too often before. Raises
    UserError, OSError."""
    if (task := leftover_task(layout, path)) is not None:
        _put_down(path, task, is_open=is_open, is_last_try=True)


def _put_down(path: Path, task: str, *, is_open: Callable[[str], bool], is_last_try: bool = False) -> None:
    """Commit the task's uncommitted work in a worktree. Raises UserError, OSError."""
    if not path.parent.is_dir():
        return
    with lock_worktrees(path.parent) as hold:
        note = _read_note(path)
        if note is None or note.task != task or (note.tries >= _MAX_TRIES and not is_last_try):
            return
        _commit_noted_work(path, note, hold, is_open, raises=True)


def _commit_noted_work(
    path: Path, note: WorktreeNote, hold: int | None, is_open: Callable[[str], bool], *, raises: bool = False
) -> bool:
    """Commit the uncommitted work that the note names, and clear the note. If the commit fails, record why in the note, and
    return False. With `raises`, raise the error instead."""
    if note.task is None:
        return True
    try:
        if note.branch is not None:
            replace(note, tries=note.tries + 1, reason=_KILLED).save(path)
            repository = Repository(note.root, note.git, hold)
            if path.is_dir():
                worktree = Worktree(note.root, path, note.branch, note.base, None, note.git)
                identity = git_identity("hivemind", "hivemind@localhost")
                _commit(worktree, repository, "What was left over at the end", identity, is_over=True, follow=True)
            if not is_open(note.task):
                repository.let_go(note.branch, note.base)
        fs.crash_point("worktree.left")
        replace(note, task=None, tries=0, reason=None).save(path)
    except (HivemindError, OSError) as error:
        replace(note, tries=_MAX_TRIES, reason=str(error)).save(path)
        if raises:
            raise
        _log.warning("task %s: what is left over in %s is not committed: %s", note.task, path, error)
        return False
    return True


def _put_away(path: Path, hold: int, is_open: Callable[[str], bool]) -> None:
    """Commit what the note names, and remove one worktree. Raises UserError for a folder with files that has neither a note nor a
    repository."""
    note = _read_note(path)
    if note is not None:
        _commit_noted_work(path, note, hold, is_open, raises=True)
    elif path.is_dir() and any(path.iterdir()) and not has_git(path):
        raise UserError("is not a worktree of this hive", location=path, remedy="keep what you need, and delete it")
    fs.remove_tree(path)
    fs.remove_tree(f"{path}{_NOTE}")


@contextlib.contextmanager
def _logged(subject: str) -> Iterator[None]:
    """Log an error of the block instead of raising it."""
    try:
        yield
    except (HivemindError, OSError) as error:
        _log.warning("%s: what is left over is not committed: %s", subject, error)


def _commit(
    worktree: Worktree, repository: Repository, message: str, identity: Mapping[str, str], *, is_over: bool = False,
    follow: bool = False,
) -> None:  # fmt: skip
    """Commit the changes of a worktree and move its branch. If the agent's git is broken, rebuild it from the files and the
    branch, and try again; once the task `is_over`, do so after any failure."""
    try:
        if not has_git(worktree.path):
            raise BrokenGit("has no git any more", location=worktree.path)
        worktree.commit(repository, mask(message), identity, is_over=is_over, follow=follow)
    except GitProblem as problem:
        if not is_over and not isinstance(problem, BrokenGit):
            raise
        worktree.make_git(repository, worktree.tip or worktree.base, identity)
        worktree.commit(repository, mask(message), identity, is_over=is_over)


def _numbered(name: str, mark: str = "-", first: int = 1) -> Iterator[str]:
    """Yield `name`, `name-2`, `name-3` …, starting at number `first`."""
    return (name if number == 1 else f"{name}{mark}{number}" for number in itertools.count(first))
