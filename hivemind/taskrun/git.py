"""Git in a person's repository: what is read there, and the one way in for a commit of an agent's.

Nothing here opens a repository that an agent can write to: what an agent has committed arrives as bytes of a pack.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO

from hivemind import fs
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs.locks import lock
from hivemind.fs.trees import MAX_NAME, MAX_PATH

__all__ = ["GitProblem", "Repository", "as_environment", "held", "in_the_name_of", "problem_of", "run_git", "settings"]

_SETTINGS = {
    "core.hooksPath": os.devnull, "core.fsmonitor": "false", "core.quotePath": "false", "core.bigFileThreshold": "64m",
    "core.packedRefsTimeout": "10000",     "gc.auto": "0", "maintenance.auto": "false", "submodule.recurse": "false",
}  # fmt: skip
_LIMIT_S = 600
_TRIES, _PAUSE_S = 10, 0.1
_LOCKED = re.compile(r"Unable to create '(.+/refs/(?:heads/hive|hivemind)/.+\.lock)': File exists")
_SAID = re.compile(r"^(?:fatal|error): (.+)", re.MULTILINE)
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_MEND = "make it one (git init), or list it without worktree: true"
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MAX_PACK_BYTES, _MAX_OBJECTS, _MAX_BYTES, _MAX_LISTING = 1 << 29, 1 << 20, 1 << 32, 1 << 26
"""Of what is taken over at once: bytes of the pack, objects in it, bytes of them all unpacked, bytes of the list of changes."""
_MAX_CPU_S, _MAX_ALLOCATED = 20, "512m"  # for that list; by git, at once
_GITLINK = "160000"


class GitProblem(UserError):
    """Git refused, and said why."""


@frozen
class Repository:
    """The repository of a root: a person's checkout, and git's folder of it. With `hold`, a descriptor that each git keeps open
    while it runs. With `incoming`, a folder where new objects are kept apart."""

    root: Path
    common: Path
    hold: int | None = None
    incoming: Path | None = None

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

    def git(
        self, *words: str | Path, who: Mapping[str, str] = MappingProxyType({}), stdin: IO[bytes] | int | str = ""
    ) -> str:
        """Return what git prints, without the newline at its end; commits are made in the name of `who`. Raises UserError,
        OSError for a full disk."""
        return run_git(["-C", self.common, *words], {**self._environment, **who}, self.hold, stdin)

    @property
    def _environment(self) -> dict[str, str]:
        repository = {"GIT_DIR": os.fspath(self.common)}
        if self.incoming is None:
            return repository
        apart = {"GIT_OBJECT_DIRECTORY": self.incoming, "GIT_ALTERNATE_OBJECT_DIRECTORIES": self.common / "objects"}
        bounds = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_ALLOC_LIMIT": _MAX_ALLOCATED}
        return {**repository, **bounds, **{name: os.fspath(path) for name, path in apart.items()}}

    def commit_of(self, name: str) -> str | None:
        """Return the commit of a branch or another name; None if there is none."""
        with contextlib.suppress(GitProblem):
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        return None

    def head(self) -> str:
        """Return the commit that is checked out. Raises UserError if there is none yet."""
        commit = self.commit_of("HEAD")
        if commit is None:
            what = "has no commit yet that a worktree could begin from"
            raise UserError(what, location=self.root, remedy="git commit")
        return commit

    @property
    def object_folders(self) -> list[Path]:
        """The folder of its objects, and those that it borrows from (`objects/info/alternates`)."""
        folders = [self.common / "objects"]
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                lines = os.fsdecode((folder / "info/alternates").read_bytes()).splitlines()
                more = [Path(os.path.normpath(folder / line)) for line in lines if line and line[0] not in '#"']
                folders += [path for path in more if path not in folders]
        return folders

    def excludes(self) -> str:
        """What the person has git ignore beside the repository's own `.gitignore`: for this repository, and everywhere."""
        name = os.path.expanduser(os.path.join(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "git/ignore"))
        with contextlib.suppress(GitProblem):
            name = self.git("config", "--type=path", "core.excludesFile")
        paths = (self.common / "info/exclude", self.root / name)
        return "\n".join(os.fsdecode(path.read_bytes()) for path in paths if path.is_file())

    def move(self, branch: str, new: str, old: str | None, why: str) -> None:
        """Move a task's branch from the commit `old` (None: make it), and hold what it moves to against the person's `git gc`.
        Raises UserError if it is somewhere else by now."""
        at = old or "0" * len(new)
        self._update(why, f"update refs/heads/{branch} {new} {at}", f"update {_hold(branch, 'tip')} {new}")

    def begin(self, branch: str, base: str, task: str) -> None:
        """Make a task's branch, and hold what it begins at. Raises UserError."""
        self.move(branch, base, None, f"begun for {task}")
        self._update(f"begun for {task}", f"update {_hold(branch, 'base')} {base}")

    def let_go(self, branch: str, base: str) -> None:
        """Hold nothing for a task any more; its branch goes as well if it is at `base` still."""
        names = [_hold(branch, name) for name in ("base", "tip")]
        if self.commit_of(f"refs/heads/{branch}") == base:
            names.append(f"refs/heads/{branch} {base}")
        self._update("over", *(f"delete {name}" for name in names))

    def _update(self, why: str, *orders: str) -> None:
        """Change refs together, and none that one of them leads to."""
        self.git("update-ref", "--no-deref", "-m", f"hivemind: {why}", "--stdin", stdin="\n".join((*orders, "")))

    def take_over(self, branch: str, commit: str, old: str | None, base: str, pack: int, incoming: Path) -> None:
        """Move a task's branch to a commit of its agent's, which arrives as a pack by a pipe. Its objects are kept in `incoming`
        until all has been checked. Raises UserError for what is no such commit, or breaks a rule."""
        if not _HASH.fullmatch(commit) or len(commit) != len(base):
            raise GitProblem("the agent's git names no commit", location=repr(commit[:80]))
        fs.remove_tree(incoming)
        incoming.mkdir()
        try:
            self._check(commit, pack, incoming)
            for path in sorted(incoming.glob("pack/*.pack")):
                with open(path, "rb") as file:
                    self.git("unpack-objects", "-q", stdin=file)
        finally:
            fs.remove_tree(incoming)
        fs.reached("worktree.committing")
        self.move(branch, commit, old, "what its agent has committed")

    def _check(self, commit: str, pack: int, incoming: Path) -> None:
        """Read the pack into its own folder; `index-pack --strict` checks each object, its names and its links. Raises
        UserError."""
        apart, head = replace(self, incoming=incoming), b""
        while len(head) < 12 and (more := os.read(pack, 12 - len(head))):
            head += more
        count = int.from_bytes(head[8:12])
        if head[:8] != b"PACK\0\0\0\2" or count > _MAX_OBJECTS:
            raise GitProblem(f"the agent's git sent no pack, or more than {_MAX_OBJECTS:,} objects", location=commit)
        words = ("--stdin", "--fix-thin", "--strict", f"--max-input-size={_MAX_PACK_BYTES}", f"--pack_header=2,{count}")
        apart.git("index-pack", *words, stdin=pack)
        alone = {"GIT_DIR": os.fspath(self.common), "GIT_OBJECT_DIRECTORY": os.fspath(incoming)}
        sizes = ("cat-file", "--batch-all-objects", "--batch-check=%(objectsize)")
        if sum(map(int, run_git(["-C", self.common, *sizes], alone, self.hold).split())) > _MAX_BYTES:
            raise GitProblem(f"the new objects have more than {_MAX_BYTES >> 30} GiB", location=commit)
        if apart.commit_of(commit) != commit:
            raise GitProblem("is no commit", location=commit)
        changes = apart.changes(apart.git("rev-list", commit, "--not", "--all"))
        for modes, path in zip(changes[::2], changes[1::2], strict=False):
            *before, after = modes.lstrip(":").split(" ")[: modes.count(":") + 1]
            if after == _GITLINK and _GITLINK not in before:
                what = f"{path} is a repository of its own, which git would take for a submodule"
                raise GitProblem(what, location=commit, remedy="take it out of your commits")
            raw = path.encode("utf-8", "surrogateescape")
            if len(raw) > MAX_PATH or max(map(len, raw.split(b"/"))) > MAX_NAME:
                what = f"a path is too long: {MAX_NAME} bytes a name, {MAX_PATH} a path"
                raise GitProblem(what, location=path[:80], remedy="take it out of your commits")

    def changes(self, commits: str) -> list[str]:
        """List what each of the commits changes, of a merge what none of its parents has: modes and path in turns. A small pack
        can hold trees within trees that no list of their files would end for: its time and length are bounded."""
        git = "git diff-tree --stdin -r -c --root -z --no-commit-id --no-renames --ignore-submodules=none"
        argv = ["sh", "-c", f"ulimit -t {_MAX_CPU_S}; ulimit -f {_MAX_LISTING >> 9}; exec {git}"]
        with TemporaryFile() as stdin, TemporaryFile() as stdout:
            stdin.write(f"{commits}\n".encode())
            stdin.seek(0)
            done = subprocess.run(
                argv, env=git_environment(self._environment), stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL,
                cwd=self.common, timeout=_LIMIT_S, check=False, pass_fds=() if self.hold is None else (self.hold,),
            )  # fmt: skip
            if done.returncode:
                raise GitProblem("changes more files than can be checked", location=commits[:40])
            stdout.seek(0)
            return stdout.read().decode("utf-8", "surrogateescape").split("\0")

    def merged(
        self, source: str, into: str, who: Mapping[str, str], *, mark: bool = False
    ) -> tuple[str, str, list[str]]:
        """Return the commit of the branch `into`, what it would be with `source` merged (that itself, if it has it already), and
        the files in conflict, between marks if they are to be marked. Moves neither branch. Raises UserError."""
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


def _hold(branch: str, name: str) -> str:
    """The ref that keeps a commit which a task needs, whatever becomes of its branch."""
    return f"refs/hivemind/{branch.removeprefix('hive/')}/{name}"


def as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as variables that git reads."""
    pairs = {f"GIT_CONFIG_{kind}_{at}": word for at, pair in enumerate(settings.items())
             for kind, word in zip(("KEY", "VALUE"), pair, strict=True)}  # fmt: skip
    return {"GIT_CONFIG_COUNT": str(len(settings)), **pairs}


def settings() -> dict[str, str]:
    """The settings of every git that we run, as variables."""
    return {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", **as_environment(_SETTINGS)}


def git_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a git in a person's repository: ours, without what says where a repository lies."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**inherited, "LC_ALL": "C", **settings(), **environment}


def run_git(
    words: list[str | Path], environment: Mapping[str, str], hold: int | None, stdin: IO[bytes] | int | str = ""
) -> str:
    """Run git and return what it prints. A lock that stays was left by a git that was killed: where it is of a task's refs it is
    taken away."""
    argv = ["git", *(os.fspath(word) for word in words)]
    source: dict[str, object] = {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin}
    for left in reversed(range(_TRIES)):
        try:
            done = subprocess.run(
                argv, env=git_environment(environment), capture_output=True, timeout=_LIMIT_S, check=False,
                pass_fds=() if hold is None else (hold,), encoding="utf-8", errors="surrogateescape", **source,
            )  # type: ignore[call-overload]  # fmt: skip
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
        return str(done.stdout).rstrip("\n")
    raise problem_of(str(words[2]), done.stderr, done.returncode, words[1])


def problem_of(command: str, errors: str, status: int, where: str | Path) -> GitProblem:
    """Return what git said was wrong. Raises OSError if the disk was full."""
    if _FULL.search(errors):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(where))
    reasons = "; ".join(_SAID.findall(errors)[:3]) or f"status {status}"
    return GitProblem(f"git {command}: {reasons[:500]}", location=where)


def in_the_name_of(name: str, address: str) -> dict[str, str]:
    return {
        f"GIT_{one}_{key}": value
        for one in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", name), ("EMAIL", address))
    }


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
