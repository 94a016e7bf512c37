"""Git: a person's repository and the worktrees of tasks in it (spec 8).

Git is told where everything lies and runs no hook; what stands in a worktree (its `.git`, its HEAD) is not believed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from hivemind import fs
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs.locks import lock

__all__ = ["GitProblem", "Repository", "Worktree", "held", "in_the_name_of", "is_for", "run_git"]

_SET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.quotePath=false", "gc.auto=0", "maintenance.auto=false",
        "submodule.recurse=false", "advice.addEmbeddedRepo=false")  # fmt: skip
_LIMIT_S = 600
_TRIES, _PAUSE_S = 10, 0.1
_LOCKED = re.compile(r"Unable to create '(.+/(?:worktrees/[^/]+|refs/heads/hive)/[^/]+\.lock)': File exists")
_SAID = re.compile(r"^(?:fatal|error): (.+)", re.MULTILINE)
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_MEND = "make it one (git init), or list it without worktree: true"


class GitProblem(UserError):
    """Git refused, and said why."""


@frozen
class Worktree:
    """One task's worktree of one root. `branch` is None for one that is only looked at (a review), `into` the branch that it is
    to be merged into, `git` the folder that git keeps for it, once it is made."""

    root: Path
    path: Path
    branch: str | None
    base: str
    into: str | None
    git: Path | None = None

    @property
    def repository(self) -> Repository:
        assert self.git is not None
        return Repository(self.root, self.git.parents[1])

    @property
    def is_there(self) -> bool:
        return self.git is not None and self.path.is_dir() and is_for(self.git, self.path)

    @property
    def tip(self) -> str | None:
        """The last commit of its branch, if anything was done on that."""
        found = self.repository.commit_of(f"refs/heads/{self.branch}") if self.branch and self.git else None
        return None if found == self.base else found


@frozen
class Repository:
    """The repository of a root: a person's checkout, and git's folder of it. With `hold`, a descriptor that each git keeps open
    while it runs."""

    root: Path
    common: Path
    hold: int | None = None

    @classmethod
    def at(cls, root: Path, hold: int | None = None) -> Repository:
        """Raises UserError for what is no git repository with a working tree."""
        where = ("--path-format=absolute", "--show-toplevel", "--git-common-dir")
        try:
            top, common = map(Path, run_git(["-C", root, "rev-parse", *where], {}, hold).splitlines())
        except GitProblem as error:
            raise UserError(f"of this no worktrees can be made: {error.message}", location=root, remedy=_MEND) from None
        if os.path.realpath(top) != os.fspath(root):
            raise UserError(f"is a folder of the repository {top}", location=root, remedy="list that one in hive.yaml")
        return cls(root, common, hold)

    def git(self, *words: str | Path, of: Worktree | None = None, who: Mapping[str, str] = MappingProxyType({})) -> str:
        """What git prints, without the newline at its end. It knows the files and the index of the worktree `of`; commits are
        made in the name of `who`. Raises UserError, OSError for a full disk."""
        told = {"GIT_DIR": os.fspath(self.common), **who}
        if of is not None and of.git is not None:
            told |= {"GIT_WORK_TREE": os.fspath(of.path), "GIT_INDEX_FILE": os.fspath(of.git / "index")}
        return run_git(["-C", self.common if of is None else of.path, *words], told, self.hold)

    def commit_of(self, name: str) -> str | None:
        """The commit of a branch or another name; None if there is none."""
        with contextlib.suppress(GitProblem):
            return self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return None

    def head(self) -> str:
        """The commit that is checked out. Raises UserError if there is none yet."""
        found = self.commit_of("HEAD")
        if found is None:
            what = "has no commit yet that a worktree could begin from"
            raise UserError(what, location=self.root, remedy="git commit")
        return found

    def move(self, branch: str, new: str, old: str | None, why: str) -> None:
        """Move a branch from the commit `old` (None: make it). Raises UserError if it is somewhere else by now."""
        self.git("update-ref", "-m", f"hivemind: {why}", f"refs/heads/{branch}", new, old or "0" * len(new))

    def folder_of(self, path: Path) -> Path | None:
        """The folder that git keeps for the worktree at that path."""
        return next((one for one in sorted(self.common.glob("worktrees/*")) if is_for(one, path)), None)

    def merged(
        self, source: str, into: str, who: Mapping[str, str], *, mark: bool = False
    ) -> tuple[str, str, list[str]]:
        """The commit of the branch `into`, what it would be with `source` merged (that itself, if it has it already), and the
        files in conflict, between marks if they are to be marked. Moves neither branch. Raises UserError."""
        ours, theirs = (self.commit_of(f"refs/heads/{one}") for one in (into, source))
        if ours is None or theirs is None:
            what = f"there is no branch {into if ours is None else source}: it was deleted, or nothing was done on it"
            raise UserError(what, location=self.root)
        if not self.git("rev-list", "--max-count=1", theirs, f"^{ours}"):
            return ours, ours, []
        words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", ours, theirs)
        tree, *conflicts = self.git(*words).splitlines()
        if conflicts and not mark:
            what = f"{into} and {source} have changed the same lines in {', '.join(conflicts)}"
            raise UserError(
                what, location=self.root, remedy="merge_worktree with mark: true, or git merge, lets you edit them"
            )
        made = self.git("commit-tree", tree, "-p", ours, "-p", theirs, "-m", f"Merge {source} into {into}", who=who)
        return ours, made, conflicts


def run_git(words: list[str | Path], told: Mapping[str, str], hold: int | None) -> str:
    """Run git. A lock that stays was left by a git that was killed: where it is of this task's alone it is taken away."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **told}
    argv = ["git", *(word for one in _SET for word in ("-c", one)), *(os.fspath(word) for word in words)]
    for left in reversed(range(_TRIES)):
        try:
            done = subprocess.run(
                argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False,
                pass_fds=() if hold is None else (hold,), errors="surrogateescape",
            )  # fmt: skip
        except FileNotFoundError:
            raise UserError("git is not installed", remedy=_MEND) from None
        except subprocess.TimeoutExpired:
            raise GitProblem(f"git {words[2]} did not end in {_LIMIT_S} s", location=words[1]) from None
        locked = _LOCKED.search(done.stderr)
        if done.returncode == 0 or locked is None:
            break
        time.sleep(_PAUSE_S)
        if left == 1 and hold is not None:
            Path(locked[1]).unlink(missing_ok=True)
    if done.returncode == 0 or (done.returncode == 1 and words[2] == "merge-tree" and done.stdout):  # 1: conflicts
        return done.stdout.rstrip("\n")
    if _FULL.search(done.stderr):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(words[1]))
    said = "; ".join(_SAID.findall(done.stderr)[:3]) or f"status {done.returncode}"
    raise GitProblem(f"git {words[2]}: {said}", location=words[1])


def in_the_name_of(name: str, address: str) -> dict[str, str]:
    return {
        f"GIT_{one}_{key}": value
        for one in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", name), ("EMAIL", address))
    }


def is_for(folder: Path, path: Path) -> bool:
    """Whether a folder in .git/worktrees/ is that of the worktree at `path`."""
    with contextlib.suppress(OSError):
        said = os.fsdecode((folder / "gitdir").read_bytes()).strip()
        return os.path.normpath(folder / said) == os.fspath(path / ".git")
    return False


@contextlib.contextmanager
def held(folder: Path) -> Iterator[int]:
    """Hold a task's worktrees against other processes; made if they are not there. The lock ends with the last git that has
    the descriptor."""
    while True:
        fs.make_folder(folder)
        try:
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            lock(file)
            if os.path.lexists(folder) and os.path.samestat(os.fstat(file), os.stat(folder)):  # not put away meanwhile
                yield file
                return
        finally:
            os.close(file)
