"""A person who works where a hive lands: commits, amends, rebases, makes the target red, keeps a changed file."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

__all__ = ["Person", "git"]

_IDENTITY = {"user.name": "Person", "user.email": "person@example.org", "commit.gpgsign": "false", "gc.auto": "0"}
_LOCKED = re.compile(
    r"\.lock|stash failed|Unable to write index|unable to write new index|MERGE_HEAD exists|during a merge|cannot lock ref"
)
"""Git's messages if another git has the index or has moved the branch. They may leave half a merge."""
_CONFIG = [word for key, value in _IDENTITY.items() for word in ("-c", f"{key}={value}")]


def git(path: Path, *words: str, check: bool = True) -> str:
    """Run the person's git; returns its output, also after a failure if `check` is False."""
    done = subprocess.run(["git", "-C", path, *_CONFIG, *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise AssertionError(f"git {' '.join(words)}: {done.stderr[-600:]}")
    return done.stdout.rstrip("\n")


class Person:
    """Works until `stop`. `red` makes the target red, `green` mends it; both are shell commands. `said` collects each breach that
    the person sees: git refused for another reason than a lock, or a branch is gone before its work has landed."""

    def __init__(self, app: Path, random: Random, red: str, green: str, pause_s: float = 0.1) -> None:
        self.app, self.side = app, app.parent / "side"
        self._random, self._red, self._green, self._pause_s = random, red, green, pause_s
        self.said: list[str] = []
        self.number = self.reds = 0
        self.gave_way = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._tips: dict[str, str] = {}
        self._is_red = False

    def prepare(self) -> None:
        """Add files that must not change: a changed file, an untracked one, a stash, a linked worktree."""
        notes = self.app / "notes"
        notes.write_text("stashed\n")
        git(self.app, "stash", "-q")
        notes.write_text("mine\n")
        (self.app / "scratch").write_text("a scratch\n")
        git(self.app, "worktree", "add", "-q", "-b", "topic", str(self.side))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop working. The target is green again, and the branch is checked out."""
        self._stopping.set()
        self._thread.join()
        if self._is_red:
            self._break(False)

    def _work(self) -> None:
        acts: list[Callable[[], None]] = [
            self._commit,
            self._commit,
            self._amend,
            self._rebase,
            self._switch,
            self._turn,
        ]
        while not self._stopping.wait(self._random.uniform(0, 2 * self._pause_s)):
            try:
                self._look()
                self._random.choice(acts)()
            except AssertionError as error:
                if not _LOCKED.search(str(error)):
                    self.said.append(str(error))

    def _look(self) -> None:
        """Check that branches that are gone have landed."""
        lines = git(self.app, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/hive").splitlines()
        tips = dict(line.split(" ") for line in lines)
        for ref, tip in self._tips.items():
            if ref not in tips and not git(self.app, "for-each-ref", "--contains", tip):
                self.said.append(f"{ref} is gone, and its commit {tip} is in no branch")
        self._tips = tips

    def _commit(self) -> None:
        self.number += 1
        name = f"person-{self.number}"
        (self.app / name).write_text(f"{name}\n")
        try:
            git(self.app, "add", name)
            git(self.app, "commit", "-q", "-m", f"Add {name}", "--", name)
        except AssertionError:
            git(self.app, "rm", "-q", "-f", "--cached", "--ignore-unmatch", name, check=False)
            (self.app / name).unlink(missing_ok=True)
            self._hold(lambda: not git(self.app, "ls-files", name))
            self.number -= 1
            raise

    def _hold(self, is_so: Callable[[], bool]) -> None:
        """Try once more to take a file out of the index, which a landing has locked."""
        for _ in range(100):
            if is_so():
                return
            git(self.app, "rm", "-q", "-f", "--cached", "--ignore-unmatch", f"person-{self.number}", check=False)
            self._stopping.wait(0.05)

    def _amend(self) -> None:
        if (
            git(self.app, "log", "-1", "--format=%an") == "Person"
            and git(self.app, "log", "-1", "--format=%P").count(" ") == 0
        ):
            git(self.app, "commit", "-q", "--amend", "--only", "-m", f"Amended {self.number}")

    def _rebase(self) -> None:
        """Rebase a commit in the linked worktree, and merge it."""
        self.number += 1
        name = f"person-{self.number}"
        (self.side / name).write_text(f"{name}\n")
        git(self.side, "add", name)
        git(self.side, "commit", "-q", "-m", f"Add {name} aside")
        git(self.side, "rebase", "-q", "main")
        for _ in range(100):
            try:
                git(self.app, "merge", "-q", "--no-ff", "--no-edit", "topic")
                return
            except AssertionError as error:
                if not _LOCKED.search(str(error)):
                    raise
                if (self.app / ".git/MERGE_HEAD").exists():
                    git(self.app, "merge", "--abort", check=False)
                    if (
                        self.app / ".git/MERGE_HEAD"
                    ).exists():  # a landing came between: git cannot take its merge back
                        git(self.app, "reset", "-q")
                        (self.app / name).unlink(missing_ok=True)
                        changed_paths = git(self.app, "diff", "--name-only").split()
                        git(self.app, "checkout", "-q", "--", *(path for path in changed_paths if path != "notes"))
                elif "cannot lock ref" in str(
                    error
                ):  # merge reads HEAD and index before it locks: a landing came between
                    git(self.app, "reset", "-q")
                    (self.app / name).unlink(missing_ok=True)
                self._stopping.wait(0.05)

    def _switch(self) -> None:
        """Work on another branch for a moment. `main` is checked out nowhere then."""
        git(self.app, "checkout", "-q", "-B", "elsewhere")
        self._stopping.wait(self._random.uniform(0, 2 * self._pause_s))
        self._back()

    def _back(self) -> None:
        for _ in range(200):
            git(self.app, "checkout", "-q", "main", check=False)
            if git(self.app, "symbolic-ref", "--short", "HEAD") == "main":
                return
            if git(
                self.app, "diff", "--name-only", "HEAD", "main", "--", "notes"
            ):  # landed while main was not checked out
                git(self.app, "checkout", "-q", "--", "notes", check=False)
                git(self.app, "checkout", "-q", "main", check=False)
                (self.app / "notes").write_text("mine\n")
                self.gave_way = True
            self._stopping.wait(0.05)
        git(self.app, "checkout", "-q", "main")

    def _turn(self) -> None:
        if self._is_red or self._random.random() < 0.3:
            self._break(not self._is_red)

    def _break(self, is_red: bool) -> None:
        for _ in range(200):
            subprocess.run(["sh", "-c", self._red if is_red else self._green], cwd=self.app, check=True)
            git(self.app, "add", "-A", "red", check=False)
            git(self.app, "commit", "-q", "-m", "Red" if is_red else "Green", "--", "red", check=False)
            if bool(git(self.app, "ls-tree", "main", "red")) == is_red:
                break
            self._stopping.wait(0.05)
        self._is_red, self.reds = is_red, self.reds + is_red
