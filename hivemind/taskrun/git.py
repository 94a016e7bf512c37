"""Git in a person's repository: reading, and the only way in for commits of agents.

This module never opens a repository that an agent can write to. An agent's commits arrive as the bytes of a pack.
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
from hivemind.pattern import pattern

_SETTINGS = {
    "core.hooksPath": os.devnull, "core.fsmonitor": "false", "core.quotePath": "false", "core.bigFileThreshold": "64m",
    "core.packedRefsTimeout": "10000",     "gc.auto": "0", "maintenance.auto": "false", "submodule.recurse": "false",
}  # fmt: skip
_LIMIT_S = 600
_TRIES, _PAUSE_S = 10, 0.1
_LOCK_ERROR = pattern(r"Unable to create '(.+/refs/(?:heads/hive|hivemind)/.+\.lock)': File exists")
_REASON = pattern(r"^(?:fatal|error): (.+)", re.MULTILINE)
_NO_SPACE = pattern(r"No space left on device|Disk quota exceeded")
_REMEDIES = {
    "not a git repository": "make it one (git init), or list it without worktree: true",
    "dubious ownership": "git config --global --add safe.directory PATH, if you trust its owner",
}
RESTART = "hivemind down, hivemind up"
_HASH = pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MAX_PACK_BYTES, _MAX_OBJECTS, _MAX_BYTES, _MAX_LISTING = 1 << 29, 1 << 20, 1 << 32, 1 << 26
"""Limits of one take-over: bytes of the pack, its objects, their unpacked bytes, bytes of the list of changes."""
_MAX_CPU_S, _MAX_ALLOCATED = 20, "512m"  # for that list; by git, at once
_GITLINK = "160000"
_FIND_TRAILER = f"""ulimit -t {_MAX_CPU_S}
git rev-list --format=%b "$1" --not --all | grep -Eaiq '^hive-[a-z0-9-]*[[:blank:]]*:'"""


class GitProblem(UserError):
    """Git refused; the message has its reason."""


class RootGone(UserError):
    """The folder of a root is not there: its disk is not mounted, or a person has moved it."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            "is gone", location=root, remedy=f"if you moved it, say path: NEW in hive.yaml, then: {RESTART}"
        )


@frozen
class Repository:
    """The repository of a root: a person's checkout, and its git folder `common`. `hold` is a descriptor of the worktree lock;
    each git process inherits it, and so keeps the lock. `incoming` is a separate folder for new objects."""

    root: Path
    common: Path
    hold: int | None = None
    incoming: Path | None = None

    @classmethod
    def at(cls, root: Path, hold: int | None = None) -> Repository:
        """Open the repository at `root`; `hold` is a descriptor that its git processes inherit. Raises RootGone if the folder is
        not there, UserError if it is not a git repository with a working tree."""
        if not root.is_dir():
            raise RootGone(root)
        options = ("--path-format=absolute", "--show-toplevel", "--git-common-dir")
        try:
            top, common = map(Path, run_git(["-C", root, "rev-parse", *options], {}, hold).splitlines())
        except GitProblem as error:
            remedy = next((remedy for words, remedy in _REMEDIES.items() if words in error.message), None)
            raise UserError(f"cannot have worktrees: {error.message}", location=root, remedy=remedy) from None
        if os.path.realpath(top) != os.fspath(root):
            raise UserError(f"is a folder of the repository {top}", location=root, remedy="list that one in hive.yaml")
        return cls(root, common, hold)

    def git(
        self, *words: str | Path, identity: Mapping[str, str] = MappingProxyType({}), stdin: IO[bytes] | int | str = ""
    ) -> str:
        """Run git and return its output without the final newline. `identity` is the author of commits. Raises UserError, OSError
        for a full disk."""
        return run_git(["-C", self.common, *words], {**self._environment, **identity}, self.hold, stdin)

    def output(
        self, *words: str | Path, environment: Mapping[str, str] = MappingProxyType({}), stdin: bytes = b"",
        statuses: tuple[int, ...] = (0,), limit_s: float = _LIMIT_S, checkout: Path | None = None,
    ) -> tuple[int, bytes]:  # fmt: skip
        """Run git and return its exit status and its output as bytes. `statuses` are no error; `limit_s` is the time limit. In a
        person's `checkout` git has all of that person's settings, except hooks. Raises UserError, OSError for a full disk."""
        argv = ["git", "-C", os.fspath(checkout or self.common), *(os.fspath(word) for word in words)]
        own_environment = {"GIT_CONFIG_NOSYSTEM": "0"} if checkout else self._environment
        fs.flush_postponed()
        try:
            process = subprocess.run(
                argv, env=git_environment({**own_environment, **environment}), input=stdin, capture_output=True,
                timeout=limit_s, check=False, pass_fds=() if self.hold is None else (self.hold,),
            )  # fmt: skip
        except FileNotFoundError:
            raise UserError("git is not installed", remedy="install it") from None
        except subprocess.TimeoutExpired:
            raise GitProblem(f"git {words[0]} did not end in {limit_s:g} s", location=self.root) from None
        if process.returncode not in statuses:
            raise problem_of(str(words[0]), process.stderr.decode("utf-8", "replace"), process.returncode, self.root)
        return process.returncode, process.stdout

    @property
    def _environment(self) -> dict[str, str]:
        repository = {"GIT_DIR": os.fspath(self.common)}
        if self.incoming is None:
            return repository
        folders = {"GIT_OBJECT_DIRECTORY": self.incoming, "GIT_ALTERNATE_OBJECT_DIRECTORIES": self.common / "objects"}
        bounds = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_ALLOC_LIMIT": _MAX_ALLOCATED}
        return {**repository, **bounds, **{name: os.fspath(path) for name, path in folders.items()}}

    def commit_of(self, name: str) -> str | None:
        """Return the commit of a branch or another name; None if there is none. Raises UserError if git was killed."""
        if name.startswith(("refs/heads/", "refs/hivemind/")):  # mostly a file, as is its commit: no process is needed
            with contextlib.suppress(OSError):
                commit = os.fsdecode((self.common / name).read_bytes()).strip()
                if _HASH.fullmatch(commit) and os.path.getsize(self.common / "objects" / commit[:2] / commit[2:]):
                    return commit
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        status, output = self.output(*words, statuses=(0, 1, 128))
        return None if status else os.fsdecode(output).strip()

    def head(self) -> str:
        """Return the commit that is checked out. Raises UserError if there is none yet."""
        if commit := self.commit_of("HEAD"):
            return commit
        message = "has no commit yet that a worktree could begin from"
        raise UserError(message, location=self.root, remedy="git commit")

    @property
    def object_folders(self) -> list[Path]:
        """The folder of the repository's objects, and the folders from which it borrows objects (`objects/info/alternates`)."""
        folders = [self.common / "objects"]
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                lines = os.fsdecode((folder / "info/alternates").read_bytes()).splitlines()
                borrowed = [Path(os.path.normpath(folder / line)) for line in lines if line and line[0] not in '#"']
                folders += [path for path in borrowed if path not in folders]
        return folders

    def excludes(self) -> str:
        """Return the person's ignore patterns from outside `.gitignore` files: the patterns for this repository, and the ones for
        all repositories."""
        name = os.path.expanduser(os.path.join(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "git/ignore"))
        with contextlib.suppress(GitProblem):
            name = self.git("config", "--type=path", "core.excludesFile")
        paths = (self.common / "info/exclude", self.root / name)
        return "\n".join(os.fsdecode(path.read_bytes()) for path in paths if path.is_file())

    def start_of(self, tip: str, base: str, into: str | None) -> str:
        """Return the commit after which a branch has its own changes up to `tip`: its `base`, or the last commit of `into` that
        was merged into it."""
        with contextlib.suppress(GitProblem):  # a branch that is gone, or of another history
            merged = self.git("merge-base", f"refs/heads/{into}", tip)
            if not self.git("rev-list", "--max-count=1", base, f"^{merged}"):
                return merged
        return base

    def move(self, branch: str, new: str, old: str | None, message: str) -> None:
        """Move a task's branch from the commit `old` (None: create it), and protect the new commit against the person's `git gc`.
        Raises UserError if the branch is at another commit."""
        old_commit = old or "0" * len(new)
        self._update(
            message, f"update refs/heads/{branch} {new} {old_commit}", f"update {_keep_ref(branch, 'tip')} {new}"
        )

    def begin(self, branch: str, base: str, task: str) -> None:
        """Create a task's branch, and protect its base against `git gc`. Raises UserError."""
        updates = (f"update {_keep_ref(branch, kind)} {base}" for kind in ("tip", "base"))
        self._update(f"begun for {task}", f"create refs/heads/{branch} {base}", *updates)

    def kept_tip(self, branch: str) -> str | None:
        """Return the last commit of a task's branch, even if the branch is gone. Return None if no commit was recorded."""
        return self.commit_of(_keep_ref(branch, "tip"))

    def announce(self, branch: str, commit: str) -> None:
        """Protect the commit that a task's branch will get against the person's `git gc`. Until the branch is moved, only the
        task's worktree refers to that commit."""
        self._update("announced", f"update {_keep_ref(branch, 'next')} {commit}")

    def let_go(self, branch: str, base: str, *, keeps_tip: bool = False) -> None:
        """Delete the refs that protect a task's commits; also delete its branch if that is still at `base`. With `keeps_tip`,
        keep the ref of the task's last commit, because no branch may contain it."""
        names = [_keep_ref(branch, name) for name in ("base", "next", *(() if keeps_tip else ("tip",)))]
        if self.commit_of(f"refs/heads/{branch}") == base:
            names.append(f"refs/heads/{branch} {base}")
        self._update("over", *(f"delete {name}" for name in names))

    def _update(self, message: str, *commands: str) -> None:
        """Change refs in one transaction, without following symbolic refs."""
        self.git("update-ref", "--no-deref", "-m", f"hivemind: {message}", "--stdin", stdin="\n".join((*commands, "")))

    def take_over(self, branch: str, commit: str, old: str | None, base: str, pack: int, incoming: Path) -> None:
        """Move a task's branch to a commit of its agent, which arrives as a pack through a pipe. The objects stay in `incoming`
        until they are checked. Raises UserError for an invalid or forbidden commit."""
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
        fs.crash_point("worktree.committing")
        self.move(branch, commit, old, "what its agent has committed")

    def _check(self, commit: str, pack: int, incoming: Path) -> None:
        """Read the pack into a separate folder, and check it. `index-pack --strict` checks each object, its names and links.
        Raises UserError."""
        quarantine, head = replace(self, incoming=incoming), b""
        while len(head) < 12 and (chunk := os.read(pack, 12 - len(head))):
            head += chunk
        count = int.from_bytes(head[8:12])
        if head[:8] != b"PACK\0\0\0\2" or count > _MAX_OBJECTS:
            raise GitProblem(f"the agent's git sent no pack, or more than {_MAX_OBJECTS:,} objects", location=commit)
        words = ("--stdin", "--fix-thin", "--strict", f"--max-input-size={_MAX_PACK_BYTES}", f"--pack_header=2,{count}")
        quarantine.git("index-pack", *words, stdin=pack)
        variables = {"GIT_DIR": os.fspath(self.common), "GIT_OBJECT_DIRECTORY": os.fspath(incoming)}
        sizes = ("cat-file", "--batch-all-objects", "--batch-check=%(objectsize)")
        if sum(map(int, run_git(["-C", self.common, *sizes], variables, self.hold).split())) > _MAX_BYTES:
            raise GitProblem(f"the new objects have more than {_MAX_BYTES >> 30} GiB", location=commit)
        if quarantine.commit_of(commit) != commit:
            raise GitProblem("is no commit", location=commit)
        changes = quarantine.changes(quarantine.git("rev-list", commit, "--not", "--all"))
        for modes, path in zip(changes[::2], changes[1::2], strict=False):
            *before, after = modes.lstrip(":").split(" ")[: modes.count(":") + 1]
            if after == _GITLINK and _GITLINK not in before:
                message = f"{path} is a separate repository, which git would add as a submodule"
                raise GitProblem(message, location=commit, remedy="take it out of your commits")
            raw = path.encode("utf-8", "surrogateescape")
            if len(raw) > MAX_PATH or max(map(len, raw.split(b"/"))) > MAX_NAME:
                message = f"a path is too long: {MAX_NAME} bytes a name, {MAX_PATH} a path"
                raise GitProblem(message, location=path[:80], remedy="take it out of your commits")
        if quarantine.has_hive_trailer(commit):
            remedy = "take the Hive-* trailers out of your commit messages"
            raise GitProblem("a commit message has a Hive-* trailer", location=commit, remedy=remedy)

    def has_hive_trailer(self, commit: str) -> bool:
        """Check whether the message of a new commit has a line like `Hive-Task: …` below its subject. Only the runtime may write
        this."""
        argv, hold = ["sh", "-c", _FIND_TRAILER, "sh", commit], () if self.hold is None else (self.hold,)
        process = subprocess.run(
            argv, env=git_environment(self._environment), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd=self.common, timeout=_LIMIT_S, check=False, pass_fds=hold,
        )  # fmt: skip
        return process.returncode != 1

    def changes(self, commits: str) -> list[str]:
        """Return the changes of each commit in the range `commits`: the modes and the path of a file in turn. A merge is compared
        with all parents. Time and length of the list are bounded, since nested trees in a small pack can expand to an endless
        list."""
        git = "git diff-tree --stdin -r -c --root -z --no-commit-id --no-renames --ignore-submodules=none"
        argv = ["sh", "-c", f"ulimit -t {_MAX_CPU_S}; ulimit -f {_MAX_LISTING >> 9}; exec {git}"]
        with TemporaryFile() as stdin, TemporaryFile() as stdout:
            stdin.write(f"{commits}\n".encode())
            stdin.seek(0)
            process = subprocess.run(
                argv, env=git_environment(self._environment), stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL,
                cwd=self.common, timeout=_LIMIT_S, check=False, pass_fds=() if self.hold is None else (self.hold,),
            )  # fmt: skip
            if process.returncode:
                raise GitProblem("changes more files than can be checked", location=commits[:40])
            stdout.seek(0)
            return stdout.read().decode("utf-8", "surrogateescape").split("\0")


def _keep_ref(branch: str, name: str) -> str:
    """Return the ref that protects a commit of a task's branch: its `base`, its `tip`, or the `next` one. It does not depend on
    the branch."""
    return f"refs/hivemind/{branch.removeprefix('hive/')}/{name}"


def as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    pairs = {f"GIT_CONFIG_{kind}_{index}": word for index, pair in enumerate(settings.items())
             for kind, word in zip(("KEY", "VALUE"), pair, strict=True)}  # fmt: skip
    return {"GIT_CONFIG_COUNT": str(len(settings)), **pairs}


def settings() -> dict[str, str]:
    """Return the settings of every git process of the runtime, as environment variables."""
    return {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", **as_environment(_SETTINGS)}


def git_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of git in a person's repository: this process's, without variables that select a repository."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**inherited, "LC_ALL": "C", **settings(), **environment}


def run_git(
    words: list[str | Path], environment: Mapping[str, str], hold: int | None, stdin: IO[bytes] | int | str = ""
) -> str:
    """Run git and return its output. The process inherits the descriptor `hold`, if given. A lock on refs that does not go away
    was left by a killed git process; remove it."""
    argv = ["git", *(os.fspath(word) for word in words)]
    source: dict[str, object] = {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin}
    fs.flush_postponed()
    for remaining_tries in reversed(range(_TRIES)):
        try:
            process = subprocess.run(
                argv, env=git_environment(environment), capture_output=True, timeout=_LIMIT_S, check=False,
                pass_fds=() if hold is None else (hold,), encoding="utf-8", errors="surrogateescape", **source,
            )  # type: ignore[call-overload]  # fmt: skip
        except FileNotFoundError:
            raise UserError("git is not installed", remedy="install it") from None
        except subprocess.TimeoutExpired:
            raise GitProblem(f"git {words[2]} did not end in {_LIMIT_S} s", location=words[1]) from None
        lock_match = _LOCK_ERROR.search(process.stderr)
        if process.returncode == 0 or lock_match is None:
            break
        time.sleep(_PAUSE_S)
        if remaining_tries == 1 and hold is not None:
            Path(lock_match[1]).unlink(missing_ok=True)
    # 1: conflicts
    if process.returncode == 0 or (process.returncode == 1 and words[2] == "merge-tree" and process.stdout):
        return str(process.stdout).rstrip("\n")
    raise problem_of(str(words[2]), process.stderr, process.returncode, words[1])


def problem_of(command: str, errors: str, status: int, path: str | Path) -> GitProblem:
    """Return a GitProblem with the reasons in the error output of `git COMMAND`, or with its exit status. Raises OSError if the
    disk was full."""
    if _NO_SPACE.search(errors):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
    reasons = "; ".join(_REASON.findall(errors)[:3]) or f"status {status}"
    return GitProblem(f"git {command}: {reasons[:500]}", location=path)


def git_identity(name: str, address: str) -> dict[str, str]:
    return {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", name), ("EMAIL", address))
    }


@contextlib.contextmanager
def lock_worktrees(folder: Path) -> Iterator[int]:
    """Lock a folder of worktrees; create it if missing. Yield the lock's descriptor: a git process that inherits it holds the
    lock, too."""
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
