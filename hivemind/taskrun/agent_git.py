"""An agent's git: a separate repository in its worktree, which borrows the objects of the person's repository.

The runtime creates it before the agent starts. After that only programs in a sandbox open it, if there is a sandbox, and their
output is not trusted: `Repository.take_over` checks each commit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO

from hivemind import fs
from hivemind.frozen import frozen
from hivemind.reaped_command import ReapedCommand
from hivemind.sandbox import has_sandbox, sandbox_command
from hivemind.taskrun.git import GitProblem, Repository, problem_of, run_git, settings

_CACHES = ("__pycache__/", "node_modules/", ".venv/", "target/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/")
"""Names that are excluded from commits, unless an ignore file includes them."""
_COPIED = r"^core\.(autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode)$"
_COMMIT_S, _CHECKOUT_S = 50.0, 600.0  # a commit must end before the supervisor considers its agent dead
_MAX_PRINTED, _MAX_LINE = 1 << 16, 200
_BROKEN, _MERGE_UNDER_WAY = 9, 10
_FILL = "git read-tree --reset -u HEAD"
_SWITCH = """
problems=$({
    git reset -q --hard "$1" && {
        find . -path ./.git -prune -o ! -type d -name .gitignore -printf '%P\\0' -o '(' -type p -o -type s ')' -exec rm -f {} +
        git ls-files -z -- ':(glob)**/.gitignore'
    } | sort -z | uniq -zu | xargs -0 -r rm -rf -- &&
    git ls-tree -rdz "$1" | grep -z ^040000 | cut -zf 2- | sed -z 's|$|/.git|' | xargs -0 -r rm -rf -- &&
    git clean -q -ffd &&
    git ls-tree -rdz "$1" | grep -z ^160000 | cut -zf 2- |
        xargs -0 -r -I{} sh -c '[ -e "./$1/.git" ] || [ ! -d "./$1" ] || find "./$1" -mindepth 1 -delete' sh {}
} 2>&1) && [ -z "$problems" ] || { echo "fatal: $problems" >&2; exit 1; }
"""
"""Bring index and files to the commit $1, and remove what its ignore files do not name. An ignore file that is not in the commit
does not count: it is listed once. Git overlooks FIFOs, sockets, and repositories in tracked folders. A warning is a failure: git
skips what it cannot read. The folder of a submodule that was never filled is emptied: git does not look into it."""
_TAKE_UP = "git read-tree HEAD; git update-index -q --refresh || :"
_SWITCH_INDEX = f"if git ls-files -v | grep -q '^[a-zS]'; then exit 1; fi\n{_SWITCH}"
"""Switch with the index that an agent has left. It fails if that hides changes (`assume-unchanged`, `skip-worktree`)."""
_FORWARD = 'git read-tree -m -u "$2" "$3"; git update-ref --no-deref "$1" "$3" "$2"'
_COMMIT = f"""
git rev-parse --quiet --verify HEAD^0 > /dev/null || exit {_BROKEN}
for name in MERGE_HEAD rebase-merge rebase-apply CHERRY_PICK_HEAD REVERT_HEAD BISECT_START; do
    [ "$5" ] || [ ! -e ".git/$name" ] || {{ echo "fatal: $name" >&2; exit {_MERGE_UNDER_WAY}; }}
done
for wait in 1 2 3 4 5 6 7 8 9 10; do [ ! -e .git/index.lock ] || sleep 0.1; done
rm -f .git/index.lock
[ -f .git/index ] || rm -rf .git/index
tip=$(git rev-parse --quiet --verify "$1^0") || tip=$2
[ "$(git symbolic-ref --quiet HEAD)" = "$1" ] || ! git merge-base --is-ancestor "$tip" HEAD || tip=$(git rev-parse HEAD)
git add --all .
git diff-index --cached --no-renames "$tip" | awk -F'\\t' '$1 ~ /^:[0-9]+ 160000 .* A$/ {{ print $2 }}' |
    while IFS= read -r path; do git update-index --force-remove -- "$path"; done
if [ "$6" ] && [ "$tip" != "$2" ] && git merge-base --is-ancestor "$tip" "$2"; then
    git read-tree -m -u "$tip" "$2" && tip=$2
fi
tree=$(git write-tree)
[ "$tree" = "$(git rev-parse "$tip^{{tree}}")" ] || tip=$(git commit-tree "$tree" -p "$tip" -m "$4")
git update-ref --no-deref -m "what was left over" "$1" "$tip"
echo "$tip"
[ "$tip" = "$2" ] || printf '%s\\n' "$tip" "^$2" "^$3" | git pack-objects -q --revs --thin --stdout --delta-base-offset
"""
"""Commit all changes to the branch $1, which was at $2 and began at $3; print the commit and a pack of the new objects. If the
agent has checked out another branch that contains the task's, that one counts. Repositories are not added as submodules. If the
task is over ($5), an unfinished merge is committed too. If others may have moved the branch ahead ($6), the files follow first
if git can keep the changes in them."""
_LIST_UNTRACKED = """
git -c core.excludesFile= ls-files --others --exclude-standard --directory
git ls-files -sz | grep -z ^160000 | cut -zf 2- | xargs -0 -r -I{} sh -c '
    if [ ! -e "$1/.git" ]; then find "./$1" ! -type d -printf "$1/%P\\n"
    else env -u GIT_DIR -u GIT_WORK_TREE git -C "$1" status --porcelain | sed "s|^...|$1/|"; fi' sh {}
"""


class BrokenGit(GitProblem):
    """Git cannot open the agent's repository."""


class MergeUnderWay(GitProblem):
    """The agent has begun a merge or a rebase, which it must end itself."""


@frozen
class Worktree:
    """A worktree of one root, as one task uses it. `base` is the commit from which its branch begins, `into` the branch that
    it will be merged into. `branch` is None for a read-only worktree (a review). `git` is the person's git folder; None until
    the branch exists. `agent` is the owner of the repository in the worktree; None until it was made for the task."""

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
        """The last commit of the worktree's branch; None if the branch has no new commits."""
        commit = self.repository.commit_of(f"refs/heads/{self.branch}") if self.branch and self.git else None
        return None if commit == self.base else commit

    def make_git(self, repository: Repository, tip: str, identity: Mapping[str, str], *, switch: bool = False) -> bool:
        """Create a repository in the worktree at the commit `tip`, in place of an older one. Fill an empty worktree with the
        files of `tip`. With `switch`, bring existing files from the commit of the old index to `tip`. Return True if the worktree
        was empty.

        The repository is created next to the worktree, where no agent writes. The person's branches are under `refs/remotes/`.
        Raises GitProblem, OSError.
        """
        is_new = not self.path.exists()
        if not is_new and switch:
            with contextlib.suppress(GitProblem):
                if self._replace_git(repository, tip, identity, keep_index=True):
                    self._run_script(_SWITCH_INDEX, tip)
                    return False
            fs.remove_tree(self.path)
            is_new = True
        self._replace_git(repository, tip, identity)
        self._run_script(_FILL if is_new else _TAKE_UP)
        return is_new

    def switch(self, repository: Repository, commit: str, index: Path) -> bool:
        """Bring a worktree without a branch to a commit, and give it a new repository. Remove what checks have left in it, except
        files that the commit's ignore files name. Return False if the worktree had to be filled from nothing.

        `index` is the path of a copy of git's index where no check can write. Without that copy git would read every file. Raises
        GitProblem, OSError.
        """
        is_kept = True
        try:
            self._replace_git(repository, commit, {})
            # after a kill there is no copy, so half-done work is not trusted
            os.replace(index, self.path / ".git/index")
            self._run_script(_SWITCH, commit)
        except (GitProblem, OSError):
            is_kept = False
            index.unlink(missing_ok=True)
            fs.remove_tree(self.path)
            self.make_git(repository, commit, {})
        fs.crash_point("worktree.switched")
        copy = index.with_name(f"{index.name}.new")
        # its time tells git which files to read again
        shutil.copy2(self.path / ".git/index", copy, follow_symlinks=False)
        os.replace(copy, index)
        return is_kept

    def _replace_git(
        self, repository: Repository, tip: str, identity: Mapping[str, str], *, keep_index: bool = False
    ) -> bool:
        """Replace the repository in the worktree by a new one. With `keep_index` the old index is kept; return False if there is
        none."""
        staging, top = self.path.with_name(".making"), self.path.parent
        index = self.path / ".git/index"
        if keep_index and not (has_git(self.path) and _is_regular(index)):
            return False
        fs.remove_tree(staging)
        kind = "sha256" if len(tip) == 64 else "sha1"
        run_git(["-C", top, "init", "--quiet", "--template=", f"--object-format={kind}", staging], {}, repository.hold)
        folder = staging / ".git"
        for name, text in self._repository_files(repository, folder, tip, identity).items():
            fs.make_folder((folder / name).parent, durable=False)
            (folder / name).write_bytes(os.fsencode(text))
        fs.make_folder(self.path)
        if keep_index:
            os.rename(self.path / ".git", staging / "old")
            os.rename(staging / "old/index", folder / "index")
            fs.crash_point("worktree.switching")
            if not _is_regular(folder / "index"):
                return False
        else:
            fs.remove_tree(self.path / ".git")
        os.rename(folder, self.path / ".git")
        fs.remove_tree(staging)
        return True

    def _run_script(self, script: str, *words: str) -> None:
        with self._run_inside(script, *words, limit_s=_CHECKOUT_S):
            pass

    def _repository_files(
        self, repository: Repository, folder: Path, tip: str, identity: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the names and texts of the files of a new git folder."""
        config = os.fsdecode((folder / "config").read_bytes())
        with contextlib.suppress(GitProblem):  # none of them is set
            config += f"[core]\n{repository.git('config', '--get-regexp', _COPIED).replace('core.', '').replace(' ', ' = ')}\n"
        config += f"[core]\nexcludesFile = {json.dumps(f'{self.path}/.git/info/caches', ensure_ascii=False)}\n"
        if identity:
            config += f'[user]\nname = "{identity["GIT_AUTHOR_NAME"]}"\nemail = "{identity["GIT_AUTHOR_EMAIL"]}"\n'
        kinds = ("refs/remotes", "refs/tags", "refs/heads")
        refs_text = repository.git("for-each-ref", "--format=%(refname) %(objectname)", *kinds)
        refs = dict(line.split(" ") for line in refs_text.replace("refs/heads/", "refs/remotes/").splitlines())
        head = tip
        if self.branch is not None:
            head = f"ref: refs/heads/{self.branch}"
            refs[f"refs/heads/{self.branch}"] = tip
        files = {
            "config": config, "HEAD": f"{head}\n", "packed-refs": "".join(f"{refs[name]} {name}\n" for name in sorted(refs)),
            "objects/info/alternates": "".join(f"{path}\n" for path in repository.object_folders),
            "info/exclude": repository.excludes(), "info/caches": "\n".join((*_CACHES, "")),
        }  # fmt: skip
        with contextlib.suppress(FileNotFoundError):
            files["shallow"] = os.fsdecode((repository.common / "shallow").read_bytes())
        return files

    def commit(
        self, repository: Repository, message: str, identity: Mapping[str, str], *, is_over: bool = False,
        follow: bool = False,
    ) -> None:  # fmt: skip
        """Commit all changes with the agent's git, and move the task's branch to the result. With `follow`, first bring the files
        to the branch's newest commit if others have moved it ahead. With `is_over`, also commit an unfinished merge.

        Raises BrokenGit, MergeUnderWay, OSError, and GitProblem for a commit that the person's repository must not get.
        """
        assert self.branch is not None
        ref = f"refs/heads/{self.branch}"
        previous_tip = repository.commit_of(ref)
        words = (
            ref,
            previous_tip or self.base,
            self.base,
            message,
            "over" if is_over else "",
            "follow" if follow else "",
        )
        with self._run_inside(_COMMIT, *words, identity=identity) as output:
            commit = os.fsdecode(_line(output.fileno()))
            if commit and commit != previous_tip:
                incoming = self.path.with_name(".incoming")
                repository.take_over(self.branch, commit, previous_tip, self.base, output.fileno(), incoming)

    def forward(self, before: str, after: str) -> None:
        """Bring files, index and the agent's branch from one commit of the person's repository to another. Raises GitProblem."""
        with self._run_inside(_FORWARD, f"refs/heads/{self.branch}", before, after, limit_s=_CHECKOUT_S):
            pass

    def set_ref(self, ref: str, commit: str) -> None:
        """Set a ref in the agent's git to a commit of the person's repository."""
        with self._run_inside('git update-ref --no-deref "$1" "$2"', ref, commit):
            pass

    def untracked_files(self) -> list[str]:
        """Return the files and folders that commits leave out, although the person's ignore files do not name them. These include
        new files in submodules."""
        with self._run_inside(_LIST_UNTRACKED) as output:
            names = output.read(_MAX_PRINTED).decode("utf-8", "replace").splitlines()
            return [name for name in names if name.isprintable()]

    @contextlib.contextmanager
    def _run_inside(
        self, script: str, *words: str, identity: Mapping[str, str] = MappingProxyType({}), limit_s: float | None = None
    ) -> Iterator[IO[bytes]]:
        """Run a shell script of git commands in the worktree with the arguments `words`, and yield its output. If there is a
        sandbox, the script sees only the worktree and, read-only, the person's objects; else it has the person's rights. Raises
        GitProblem, OSError."""
        path = os.pathsep.join(filter(os.path.isabs, os.get_exec_path()))
        git_variables = {"GIT_DIR": ".git", "GIT_WORK_TREE": ".", "GIT_CONFIG_GLOBAL": os.devnull}
        environment = {"PATH": path, "LC_ALL": "C", **git_variables, **settings(), **identity}
        argv = ["sh", "-euc", script, "sh", *words]
        if has_sandbox():
            argv = sandbox_command(argv, self.path, None, dict.fromkeys(self.repository.object_folders, False))
        with TemporaryFile() as errors:
            fs.flush_postponed()
            with ReapedCommand(argv, folder=self.path, environment=environment, stderr=errors) as process:
                has_expired = threading.Event()

                def expire() -> None:
                    has_expired.set()
                    process.terminate()

                timer = threading.Timer(limit_s or _COMMIT_S, expire)
                timer.start()
                try:
                    yield process.output
                    status = process.wait()
                finally:
                    timer.cancel()
            errors.seek(0)
            reason = errors.read(_MAX_PRINTED).decode("utf-8", "replace")
        if status == _BROKEN:
            raise BrokenGit("its .git is not a repository of the task any more", location=self.path)
        if status == _MERGE_UNDER_WAY:
            message = f"a merge or a rebase is under way ({reason.strip()[-40:]})"
            remedy = "end it: git commit, git rebase --continue, or --abort"
            raise MergeUnderWay(message, location=self.path, remedy=remedy)
        if status:
            reason = f"fatal: it did not end in {limit_s or _COMMIT_S:g} s" if has_expired.is_set() else reason
            raise problem_of("in the worktree", reason, status, self.path)


def has_git(path: Path) -> bool:
    """Check whether a worktree has an agent's git folder, and not a link or a file that leads elsewhere."""
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(os.lstat(path / ".git").st_mode)
    return False


def _is_regular(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISREG(os.lstat(path).st_mode)
    return False


def _line(file: int) -> bytes:
    """Read one short line from a descriptor, and no byte after it: a pack follows."""
    line = b""
    while len(line) < _MAX_LINE and not line.endswith(b"\n") and (byte := os.read(file, 1)):
        line += byte
    return line.strip()
