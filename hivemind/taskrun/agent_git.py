"""An agent's own git: a repository in its worktree, which borrows the objects of the person's and is nobody else's.

The runtime fills it before the agent is there. After that only programs in the sandbox open it, where there is one: what they
say is checked like the words of a stranger (`Repository.take_over`).
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO

from hivemind import fs
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.guarded import GuardedCommand
from hivemind.sandbox import check_sandbox, sandboxed
from hivemind.taskrun.git import GitProblem, Repository, problem_of, run_git, settings

__all__ = ["BrokenGit", "MergeUnderWay", "Worktree", "has_git"]

_CACHES = ("__pycache__/", "node_modules/", ".venv/", "target/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/")
"""What is in no commit where no ignore file says otherwise."""
_CARRIED = r"^core\.(autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode)$"
_COMMIT_S, _CHECKOUT_S = 50.0, 600.0  # a commit ends before the supervisor takes its agent for dead
_MAX_PRINTED, _MAX_LINE = 1 << 16, 200
_BROKEN, _UNDER_WAY = 9, 10
_FILL = "git read-tree --reset -u HEAD"
_TAKE_UP = "git read-tree HEAD; git update-index -q --refresh || :"
_FORWARD = 'git read-tree -m -u "$2" "$3"; git update-ref --no-deref "$1" "$3" "$2"'
_COMMIT = f"""
git rev-parse --quiet --verify HEAD^0 > /dev/null || exit {_BROKEN}
for name in MERGE_HEAD rebase-merge rebase-apply CHERRY_PICK_HEAD REVERT_HEAD BISECT_START; do
    [ "$5" ] || [ ! -e ".git/$name" ] || {{ echo "fatal: $name" >&2; exit {_UNDER_WAY}; }}
done
for wait in 1 2 3 4 5 6 7 8 9 10; do [ ! -e .git/index.lock ] || sleep 0.1; done
rm -f .git/index.lock
tip=$(git rev-parse --quiet --verify "$1^0") || tip=$2
[ "$(git symbolic-ref --quiet HEAD)" = "$1" ] || ! git merge-base --is-ancestor "$tip" HEAD || tip=$(git rev-parse HEAD)
git add --all .
git diff-index --cached --no-renames "$tip" | awk -F'\\t' '$1 ~ /^:[0-9]+ 160000 .* A$/ {{ print $2 }}' |
    while IFS= read -r path; do git update-index --force-remove -- "$path"; done
tree=$(git write-tree)
[ "$tree" = "$(git rev-parse "$tip^{{tree}}")" ] || tip=$(git commit-tree "$tree" -p "$tip" -m "$4")
git update-ref --no-deref -m "what was left over" "$1" "$tip"
echo "$tip"
[ "$tip" = "$2" ] || printf '%s\\n' "$tip" "^$2" "^$3" | git pack-objects -q --revs --thin --stdout --delta-base-offset
"""
"""Commits what is in no commit onto the branch $1, which was at $2 and began at $3; prints its commit and a pack of what is new.
A branch that the agent has checked out instead counts if it holds all of the task's. No repository is taken in as a submodule.
If the task is over ($5) a merge under way is committed as it is."""
_LEFT_OUT = "git -c core.excludesFile= ls-files --others --exclude-standard --directory"


class BrokenGit(GitProblem):
    """The agent's git cannot be opened by any git."""


class MergeUnderWay(GitProblem):
    """The agent has begun a merge or a rebase, which is its to end."""


@frozen
class Worktree:
    """One task's worktree of one root. `branch` is None for one that is only looked at (a review), `into` the branch that it is
    to be merged into, `git` the person's git folder, once it is made, and `agent` whose own git is in it."""

    root: Path
    path: Path
    branch: str | None
    base: str
    into: str | None
    git: Path | None = None
    agent: str | None = None

    @property
    def repository(self) -> Repository:
        assert self.git is not None
        return Repository(self.root, self.git)

    @property
    def tip(self) -> str | None:
        """The last commit of its branch, if anything was done on that."""
        commit = self.repository.commit_of(f"refs/heads/{self.branch}") if self.branch and self.git else None
        return None if commit == self.base else commit

    def make_git(self, repository: Repository, tip: str, who: Mapping[str, str]) -> None:
        """Put a new repository into the worktree in place of any other, at the commit `tip`, and fill an empty worktree.

        It is made beside the worktree, where no agent writes, and knows the person's branches under `refs/remotes/`. Raises
        GitProblem, OSError.
        """
        is_new = not self.path.exists()
        staging, top = self.path.with_name(".making"), self.path.parent
        fs.remove_tree(staging)
        kind = "sha256" if len(tip) == 64 else "sha1"
        run_git(["-C", top, "init", "--quiet", "--template=", f"--object-format={kind}", staging], {}, repository.hold)
        folder = staging / ".git"
        for name, text in self._contents(repository, folder, tip, who).items():
            fs.make_folder((folder / name).parent, durable=False)
            (folder / name).write_bytes(os.fsencode(text))
        fs.make_folder(self.path)
        fs.remove_tree(self.path / ".git")
        os.rename(folder, self.path / ".git")
        fs.remove_tree(staging)
        with self._inside(_FILL if is_new else _TAKE_UP, limit_s=_CHECKOUT_S):
            pass

    def _contents(self, repository: Repository, folder: Path, tip: str, who: Mapping[str, str]) -> dict[str, str]:
        """The files of a new repository."""
        config = os.fsdecode((folder / "config").read_bytes())
        with contextlib.suppress(GitProblem):  # none of them is set
            config += f"[core]\n{repository.git('config', '--get-regexp', _CARRIED).replace('core.', '').replace(' ', ' = ')}\n"
        config += f"[core]\nexcludesFile = {json.dumps(f'{self.path}/.git/info/caches', ensure_ascii=False)}\n"
        if who:
            config += f'[user]\nname = "{who["GIT_AUTHOR_NAME"]}"\nemail = "{who["GIT_AUTHOR_EMAIL"]}"\n'
        kinds = ("refs/remotes", "refs/tags", "refs/heads")
        listed = repository.git("for-each-ref", "--format=%(refname) %(objectname)", *kinds)
        refs = dict(line.split(" ") for line in listed.replace("refs/heads/", "refs/remotes/").splitlines())
        head = tip
        if self.branch is not None:
            head = f"ref: refs/heads/{self.branch}"
            refs[f"refs/heads/{self.branch}"] = tip
        made = {
            "config": config, "HEAD": f"{head}\n", "packed-refs": "".join(f"{refs[name]} {name}\n" for name in sorted(refs)),
            "objects/info/alternates": "".join(f"{path}\n" for path in repository.object_folders),
            "info/exclude": repository.excludes(), "info/caches": "\n".join((*_CACHES, "")),
        }  # fmt: skip
        with contextlib.suppress(FileNotFoundError):
            made["shallow"] = os.fsdecode((repository.common / "shallow").read_bytes())
        return made

    def commit(self, repository: Repository, why: str, who: Mapping[str, str], *, over: bool = False) -> None:
        """Commit what is in no commit yet with the agent's git, and take over what its branch has come to.

        Raises BrokenGit, MergeUnderWay, GitProblem for what the person's repository may not have, OSError.
        """
        assert self.branch is not None
        ref = f"refs/heads/{self.branch}"
        known = repository.commit_of(ref)
        words = (ref, known or self.base, self.base, why, "over" if over else "")
        with self._inside(_COMMIT, *words, who=who) as output:
            commit = os.fsdecode(_line(output.fileno()))
            if commit and commit != known:
                incoming = self.path.with_name(".incoming")
                repository.take_over(self.branch, commit, known, self.base, output.fileno(), incoming)

    def forward(self, before: str, after: str) -> None:
        """Bring files, index and the agent's branch from one commit of the person's repository to another. Raises GitProblem."""
        with self._inside(_FORWARD, f"refs/heads/{self.branch}", before, after, limit_s=_CHECKOUT_S):
            pass

    def show(self, ref: str, commit: str) -> None:
        """Tell the agent's git where a branch of the person's is now."""
        with self._inside('git update-ref --no-deref "$1" "$2"', ref, commit):
            pass

    def left_out(self) -> list[str]:
        """The files and folders that are in no commit though no ignore file of the person's names them."""
        with self._inside(_LEFT_OUT) as output:
            names = output.read(_MAX_PRINTED).decode("utf-8", "replace").splitlines()
            return [name for name in names if name.isprintable()]

    @contextlib.contextmanager
    def _inside(
        self, script: str, *words: str, who: Mapping[str, str] = MappingProxyType({}), limit_s: float | None = None
    ) -> Iterator[IO[bytes]]:
        """Run a shell script of git's commands in the worktree, with what it prints as the value: in a sandbox that shows the
        worktree and, read-only, the person's objects; where there is none, as the person. Raises GitProblem, OSError."""
        path = os.pathsep.join(filter(os.path.isabs, os.get_exec_path()))
        where = {"GIT_DIR": ".git", "GIT_WORK_TREE": ".", "GIT_CONFIG_GLOBAL": os.devnull}
        environment = {"PATH": path, "LC_ALL": "C", **where, **settings(), **who}
        argv = ["sh", "-euc", script, "sh", *words]
        if _has_sandbox():
            argv = sandboxed(argv, self.path, None, dict.fromkeys(self.repository.object_folders, False))
        with TemporaryFile() as errors:
            with GuardedCommand(argv, folder=self.path, environment=environment, stderr=errors) as process:
                timer = threading.Timer(limit_s or _COMMIT_S, process.terminate)
                timer.start()
                try:
                    yield process.output
                    status = process.wait()
                    late = not timer.is_alive()
                finally:
                    timer.cancel()
            errors.seek(0)
            reason = errors.read(_MAX_PRINTED).decode("utf-8", "replace")
        if status == _BROKEN:
            raise BrokenGit("its .git is no repository of the task's any more", location=self.path)
        if status == _UNDER_WAY:
            what, mend = "a merge or a rebase is under way", "end it: git commit, git rebase --continue, or --abort"
            raise MergeUnderWay(f"{what} ({reason.strip()[-40:]})", location=self.path, remedy=mend)
        if status:
            reason = f"fatal: it did not end in {limit_s or _COMMIT_S:g} s" if late else reason
            raise problem_of("in the worktree", reason, status, self.path)


def has_git(path: Path) -> bool:
    """Say whether a worktree has a git folder of an agent's, and not a link or a file that leads elsewhere."""
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(os.lstat(path / ".git").st_mode)
    return False


def _line(file: int) -> bytes:
    """Read one short line, and nothing of what comes after it."""
    line = b""
    while len(line) < _MAX_LINE and not line.endswith(b"\n") and (byte := os.read(file, 1)):
        line += byte
    return line.strip()


@cache
def _has_sandbox() -> bool:
    try:
        check_sandbox()
    except UserError:
        return False
    return True
