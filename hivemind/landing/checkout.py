"""The move of a target branch. If the branch is checked out somewhere, the files and the index of that checkout move with it.

Branch, index and files change under the checkout's own `index.lock`, so no git of the person builds a commit on a stale index. If
a move is killed, the next move finishes it. Only a fast-forward that git allows changes the checkout.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hivemind import fs
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.taskrun.git import GitProblem, Repository

_ACTIVITIES = {
    "rebase-merge": "a rebase", "rebase-apply": "a rebase", "MERGE_HEAD": "a merge", "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert", "BISECT_START": "a bisect",
}  # fmt: skip
_DETACHED_BRANCH = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
"""Files with the branch to which git returns from a detached HEAD."""
_SIGNED = ("HEAD", "index", "index.lock", *_ACTIVITIES)
_REFUSED_PATH = re.compile(r"(?:Entry|file|Updating) '(.+?)' (?:not uptodate|would)")
_TRIES, _PAUSE_S, _PAUSE_PER_BYTE_S = 5, 0.05, 2e-8
_STALE_S = 1.0  # git has HEAD's lock for milliseconds
_NO_ENTRY = "000000"
_GITLINK, _LINK = "160000", "120000"


class TargetMoved(UserError):
    """The target has left the commit from which the landing began. The landing begins again."""


class TargetBusy(UserError):
    """The target cannot move now. `path` is the file or folder that has to change first."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path


@frozen
class Checkout:
    """A person's checkout: its folder, and its git folder (for a linked worktree a folder in `.git/worktrees`)."""

    path: Path
    git: Path


def checkouts(repository: Repository) -> Iterator[Checkout]:
    """Yield the main checkout and the linked worktrees of a repository. Skip a worktree whose folder was deleted without `git
    worktree remove`, unless it is locked."""
    link = _text(repository.root / ".git").removeprefix("gitdir: ")  # "" for a folder
    if os.path.realpath(repository.root / (link or ".git")) == os.path.realpath(repository.common):
        yield Checkout(repository.root, repository.common)
    elif repository.common.name == ".git":
        yield Checkout(repository.common.parent, repository.common)
    for folder in sorted(repository.common.glob("worktrees/*")):
        if link := _text(folder / "gitdir"):
            path = Path(os.path.normpath(folder / link)).parent
            if path.exists() or (folder / "locked").exists():
                yield Checkout(path, folder)


def checkout_of(repository: Repository, branch: str) -> Checkout | None:
    """Return the checkout where a branch is checked out, or None. Raises TargetBusy during a merge or rebase in it, if it is
    missing, or if there are two."""
    match = None
    for checkout in checkouts(repository):
        is_current = _text(checkout.git / "HEAD") == f"ref: refs/heads/{branch}"
        names = {_text(checkout.git / name).removeprefix("refs/heads/") for name in _DETACHED_BRANCH}
        if not is_current and branch not in names:
            continue
        for name, activity in _ACTIVITIES.items():
            if (checkout.git / name).exists():
                raise TargetBusy(f"{activity} of {branch} is under way in {checkout.path}", checkout.git / name)
        if not checkout.path.exists():
            raise TargetBusy(f"{branch} is checked out in {checkout.path}, which is not mounted", checkout.path)
        if match is not None:
            message = f"{branch} is checked out twice, in {match.path} and in {checkout.path}"
            raise TargetBusy(message, checkout.git / "HEAD")
        match = checkout if is_current else match
    return match


def checkout_signature(repository: Repository, path: Path | None = None) -> tuple[object, ...]:
    """Return a value that changes when a checkout of the repository changes. `path` is a file (from a TargetBusy): its changes
    count as well."""
    paths = [checkout.git / name for checkout in checkouts(repository) for name in _SIGNED]
    return tuple(_stat_of(file) for file in (*paths, *([] if path is None else [path])))


def move_target(
    repository: Repository, branch: str, old: str, new: str, saved: Mapping[str, Any] | None,
    save: Callable[[dict[str, Any] | None], object],
) -> tuple[str, ...]:  # fmt: skip
    """Move a branch from the commit `old` to `new`, together with the checkout where it is checked out. Return the paths that a
    person changed in the meantime: they are left as they are.

    While a checkout changes, `save` keeps a record; after a kill, pass that record as `saved`. `repository.hold` must prevent a
    second move while git still works for a killed one. Raises TargetMoved, TargetBusy, UserError, OSError.
    """
    if saved is not None:
        _remove_ref_locks(repository, branch, saved["new"])
    if saved is not None and "locked" in saved:
        _release([Path(folder) for folder in saved["locked"]], saved["token"])
        save(None)
    elif saved is not None:
        move = _Move(
            repository,
            Checkout(Path(saved["path"]), Path(saved["git"])),
            branch,
            saved["old"],
            saved["new"],
            saved["token"],
        )
        left_paths = move.resume()
        save(None)
        if left_paths is not None and move.new == new:
            return left_paths
    if repository.commit_of(f"refs/heads/{branch}") == new:
        return ()
    checkout = checkout_of(repository, branch)
    if checkout is None or not (checkout.git / "index").exists():
        _move_alone(repository, branch, old, new, save)
        return ()
    move = _Move(repository, checkout, branch, old, new, secrets.token_hex(16))
    save({"path": str(checkout.path), "git": str(checkout.git), "old": old, "new": new, "token": move.token})
    fs.crash_point("landing.checkout.saved")
    try:
        move.take_lock()
        fs.crash_point("landing.checkout.locked")
        move.prepare()
        fs.crash_point("landing.checkout.asked")
        _move_ref(repository, branch, old, new)
    except (HivemindError, OSError):
        move.release()
        save(None)
        raise
    fs.crash_point("landing.checkout.moved")
    left_paths = move.finish(is_resumed=False)
    save(None)
    return left_paths


def rehearse_move(repository: Repository, branch: str, old: str, new: str) -> None:
    """Check, without taking a lock, whether a branch could move now. Raises TargetMoved, TargetBusy, UserError, OSError."""
    checkout = checkout_of(repository, branch)
    if checkout is not None and (checkout.git / "index").exists():
        move = _Move(repository, checkout, branch, old, new, "rehearsal")
        try:
            move.prepare()
        finally:
            move.release()


@frozen
class _Move:
    """One move of a branch that is checked out. `token` identifies it: it is the content of the move's `index.lock`, and part of
    the name of the new index."""

    repository: Repository
    checkout: Checkout
    branch: str
    old: str
    new: str
    token: str

    @property
    def _index(self) -> Path:
        return self.checkout.git / "index"

    @property
    def _next_index(self) -> Path:
        return self.checkout.git / f"hivemind-{self.token}"

    def _git(
        self, *words: str, stdin: bytes = b"", index: Path | None = None, statuses: tuple[int, ...] = (0,)
    ) -> bytes:
        environment = {"GIT_INDEX_FILE": os.fspath(index or self._next_index)}
        return self.repository.output(
            *words, stdin=stdin, environment=environment, statuses=statuses, checkout=self.checkout.path
        )[1]

    def take_lock(self) -> None:
        _take_lock(self.checkout, self.token)

    def release(self) -> None:
        _release([self.checkout.git], self.token)

    def prepare(self) -> None:
        """Copy the index, and ask git whether the checkout can move. Raises TargetMoved, TargetBusy."""
        if self.repository.commit_of(f"refs/heads/{self.branch}") != self.old:
            raise TargetMoved(f"{self.branch} has moved")
        self._copy_index()
        fs.crash_point("landing.checkout.copied")
        if self._git("diff-index", "--cached", "--name-only", self.old):
            time.sleep(_PAUSE_S)  # `git checkout` writes the index first and HEAD next
        if checkout_of(self.repository, self.branch) != self.checkout:
            raise TargetMoved(f"{self.branch} is not checked out in {self.checkout.path} any more")
        for path, (old_mode, _, new_mode, _) in self._changes().items():
            self._check_path(path, is_new=old_mode == _NO_ENTRY and new_mode != _GITLINK)
        try:
            self._git("read-tree", "-m", "-u", "-n", self.old, self.new)
        except GitProblem as problem:
            match = _REFUSED_PATH.search(problem.message)
            if match is None:
                raise TargetBusy(f"git cannot update {self.checkout.path}: {problem.message}", self._index) from None
            raise TargetBusy(f"{match[1]} is changed in your checkout", self.checkout.path / match[1]) from None

    def _check_path(self, path: str, *, is_new: bool) -> None:
        """Raise TargetBusy if a path cannot be written, or if it is new and an untracked file is in its place: git would
        overwrite that file if it is ignored."""
        file = self.checkout.path / path
        if is_new and (obstacle := self._obstacle(file)):
            untracked_path = obstacle.relative_to(self.checkout.path)
            raise TargetBusy(f"{path} is new, and your checkout has an untracked {untracked_path}", obstacle)
        folder = next(parent for parent in file.parents if parent.exists())
        if not os.access(folder, os.W_OK):
            raise TargetBusy(f"{folder} is not writable", folder)

    def _obstacle(self, file: Path) -> Path | None:
        """Return the untracked file, or the folder with untracked files, that is in the place of a new file; None if the place is
        free."""
        blocking_file = next((parent for parent in (file, *file.parents) if os.path.lexists(parent)), file)
        if blocking_file != file and blocking_file.is_dir() and not blocking_file.is_symlink():
            return None
        words = ("ls-files", "-z", "--others", "--", os.path.relpath(blocking_file, self.checkout.path))
        if not os.path.lexists(blocking_file) or not self._git("--literal-pathspecs", *words):
            return None
        return blocking_file

    def resume(self) -> tuple[str, ...] | None:
        """Finish a killed move, and return the paths that a person has changed since. Return None if the branch had not moved
        yet. Raises TargetBusy."""
        tip = self.repository.commit_of(f"refs/heads/{self.branch}")
        has_moved = tip not in (None, self.old) and not self.repository.git(
            "rev-list", "--max-count=1", self.new, f"^{tip}"
        )
        if not self.checkout.git.is_dir():
            return () if has_moved else None
        if not has_moved or not self._next_index.exists():
            self.release()
            return () if has_moved else None
        if _text(self.checkout.git / "index.lock") != self.token:  # the person took the lock away
            if _text(self.checkout.git / "HEAD") != f"ref: refs/heads/{self.branch}":
                self.release()
                return ()
            self.take_lock()
        return self.finish(is_resumed=True)

    def finish(self, *, is_resumed: bool) -> tuple[str, ...]:
        """Bring files and index to the new commit, and release the lock. Return the paths that a person has changed since."""
        start = self.old
        left_paths: tuple[str, ...] = ()
        for remaining_tries in reversed(range(_TRIES)):
            self._with_suffix(".lock").unlink(missing_ok=True)
            if is_resumed:
                start, left_paths = self._make_way()
            try:
                self._git("read-tree", "-m", "-u", start, self.new)
                break
            except GitProblem:
                if not remaining_tries:
                    raise
                is_resumed = True
        fs.crash_point("landing.checkout.written")
        os.replace(self._next_index, self._index)
        fs.crash_point("landing.checkout.renamed")
        # `git commit` reads the index before it takes the lock: a git that has read the old index must still find the lock.
        time.sleep(_PAUSE_S + self._index.stat().st_size * _PAUSE_PER_BYTE_S)
        self.release()
        fs.crash_point("landing.checkout.released")
        return left_paths

    def _make_way(self) -> tuple[str, tuple[str, ...]]:
        """Prepare a second try of an interrupted update: delete half-written files, and find the paths that a person has changed.

        Return the tree to start from and these paths. In that tree the paths already have their new content, so the update leaves
        the person's files alone.
        """
        self._copy_index()
        modified_paths = set(_paths(self._git("diff-files", "-z", "--name-only")))
        entries: dict[str, tuple[str, str]] = {}
        for line in _paths(self._git("ls-files", "-z", "--stage")):
            header, path = line.split("\t", 1)
            mode, blob, _ = header.split(" ")
            entries[path] = mode, blob
        index_lines, tree_lines, left_paths = [], [], []
        for path, (old_mode, old_blob, new_mode, new_blob) in self._changes().items():
            entry = entries.get(path, (_NO_ENTRY, "0" * len(new_blob)))
            is_staged = entry not in ((old_mode, old_blob), (new_mode, new_blob))
            is_modified = path in modified_paths or path not in entries
            if not is_staged and not (is_modified and self._is_changed(path, new_mode)):
                continue
            left_paths.append(path)
            tree_lines.append(f"{new_mode} {new_blob}\t{path}\0")
            index_lines += [] if is_staged else tree_lines[-1:]
        if not left_paths:
            return self.old, ()
        start_index = self._with_suffix(".start")
        self._git("update-index", "-z", "--index-info", stdin=os.fsencode("".join(index_lines)))
        self._git("read-tree", self.old, index=start_index)
        self._git("update-index", "-z", "--index-info", stdin=os.fsencode("".join(tree_lines)), index=start_index)
        return os.fsdecode(self._git("write-tree", index=start_index)).strip(), tuple(left_paths)

    def _is_changed(self, path: str, new_mode: str) -> bool:
        """Check whether a person has changed a path. If its file is the new one, or a half-written beginning of it, git has
        written it: delete it and return False."""
        file = self.checkout.path / path
        if any(parent.is_symlink() or parent.is_file() for parent in file.parents if parent != self.checkout.path):
            return True
        if not os.path.lexists(file) or new_mode == _GITLINK:
            return False
        if (
            new_mode == _NO_ENTRY
            or (file.is_dir() and not file.is_symlink())
            or file.is_symlink() != (new_mode == _LINK)
        ):
            return True
        content = os.fsencode(os.readlink(file)) if file.is_symlink() else file.read_bytes()
        name = f"{self.new}:{path}"
        blobs = (self._git("cat-file", *words, name) for words in (("--filters",), ("blob",)))
        if not any(blob.startswith(content) for blob in blobs):
            return True
        file.unlink()
        return False

    def _with_suffix(self, suffix: str) -> Path:
        return self.checkout.git / f"hivemind-{self.token}{suffix}"

    def _copy_index(self) -> None:
        """Copy the index and refresh the copy. It keeps the index's time, which git compares with the times of files."""
        shutil.copy2(self._index, self._next_index)
        self._git("update-index", "-q", "--refresh", statuses=(0, 1))

    def _changes(self) -> dict[str, tuple[str, str, str, str]]:
        """Return the paths that change, with their old and new modes and blobs."""
        fields = _paths(self._git("diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", self.old, self.new))
        changes = {}
        for header, path in zip(fields[::2], fields[1::2], strict=True):
            old_mode, new_mode, old_blob, new_blob, _ = header.lstrip(":").split(" ")
            changes[path] = (old_mode, old_blob, new_mode, new_blob)
        return changes


def _take_lock(checkout: Checkout, token: str) -> None:
    """Create `index.lock` with its content in one step. Raises TargetBusy if another git holds the lock."""
    seed, lock = checkout.git / f"hivemind-{token}.seed", checkout.git / "index.lock"
    seed.write_text(token)
    try:
        os.link(seed, lock)
    except FileExistsError:
        raise TargetBusy(f"another git is at work in {checkout.path}", lock) from None
    finally:
        seed.unlink()


def _release(folders: Sequence[Path], token: str) -> None:
    """Delete the files of a move from git folders: the next index first, the lock last."""
    for folder in folders:
        for path in folder.glob(f"hivemind-{token}*"):
            path.unlink()
        if _text(folder / "index.lock") == token:
            (folder / "index.lock").unlink()


def _move_alone(
    repository: Repository, branch: str, old: str, new: str, save: Callable[[dict[str, Any] | None], object]
) -> None:
    """Move a branch that is checked out nowhere, and `save` which checkouts are locked. All checkouts are locked meanwhile,
    because a `git checkout` of the branch that began earlier would write the old files and index."""
    token = secrets.token_hex(16)
    others = [checkout for checkout in checkouts(repository) if (checkout.git / "index").exists()]
    folders = [checkout.git for checkout in others]
    save({"locked": [os.fspath(folder) for folder in folders], "old": old, "new": new, "token": token})
    try:
        for checkout in others:
            _take_lock(checkout, token)
        fs.crash_point("landing.checkout.all_locked")
        if others:
            time.sleep(_PAUSE_S)  # `git checkout` writes the index first and HEAD next
        now = checkout_of(repository, branch)
        if now is not None and now in others:
            raise TargetMoved(f"{branch} is checked out in {now.path} now")
        _move_ref(repository, branch, old, new)
        fs.crash_point("landing.checkout.moved_alone")
        if others:
            time.sleep(_PAUSE_S)  # a git that has read the old commit must still find the lock
    finally:
        _release(folders, token)
        save(None)


def _remove_ref_locks(repository: Repository, branch: str, new: str) -> None:
    """Remove the locks that a killed `update-ref` has left: the branch's lock if it contains the new commit, HEAD's lock if it
    stays empty."""
    lock, head_lock = repository.common / f"refs/heads/{branch}.lock", repository.common / "HEAD.lock"
    if _text(lock) == new:
        lock.unlink()
    status = _stat_of(head_lock)
    if status and not status[2]:
        time.sleep(_STALE_S)
        if _stat_of(head_lock) == status:
            head_lock.unlink(missing_ok=True)


def _move_ref(repository: Repository, branch: str, old: str, new: str) -> None:
    ref = f"refs/heads/{branch}"
    try:
        repository.git("update-ref", "--no-deref", "-m", "hivemind: landed", ref, new, old)
    except GitProblem as problem:
        tip = repository.commit_of(ref)
        if tip == new:  # git was killed after it had moved the branch
            return
        if tip != old:
            raise TargetMoved(f"{branch} has moved") from None
        raise TargetBusy(f"{branch} cannot move: {problem.message}", repository.common / f"{ref}.lock") from None


def _paths(output: bytes) -> list[str]:
    return [path for path in os.fsdecode(output).split("\0") if path]


def _text(path: Path) -> str:
    """Return one of git's small files without its last newline; "" if it cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return os.fsdecode(file.read(1 << 16)).rstrip("\n")
    return ""


def _stat_of(path: Path) -> tuple[int, ...]:
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
    return ()
