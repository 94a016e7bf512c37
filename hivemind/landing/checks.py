"""Checks: the root's `check:` runs on the tree of a merge, in a worktree and a HOME of the hive. The verdict is remembered.

The check, its `setup:` and everything that they call are code written by agents. What they leave in ignored files (dependencies,
caches) and in HOME stays for the next check. Worktree and HOME are emptied once a day, and when a person asks for a check again.
So an agent can spoil later checks for a day at most. The verdicts, the index and the log are where no check can write, and a box
does not show them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Literal, cast

from hivemind import fs
from hivemind.config import RootConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.masking import mask, strip_controls
from hivemind.taskrun.agent_git import Worktree
from hivemind.taskrun.box import LinesResult, RunningLines, is_boxed, start_lines
from hivemind.taskrun.git import Repository

_KIND, _VERSION = "verdict", 1
_DAY_S = 86_400
_MAX_VERDICTS = 300
_MIN_FREE_BYTES = 1 << 28
_LOG = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
_TAIL_LINES, _TAIL_CHARS = 100, 8192
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_NO_NETWORK = re.compile(
    r"could not resolve|name resolution|name or service not known|getaddrinfo|ENOTFOUND|EAI_AGAIN|network is unreachable"
    r"|ENETUNREACH|ECONNREFUSED|connection refused|dial tcp",
    re.IGNORECASE,
)


@frozen
class Verdict:
    """The outcome of a check. `failed_to_run` says nothing about the tree: a program is missing, the disk is full, or the check
    was killed. With `is_flaky` the first run was red and the second green. `seconds` is the duration of the last run."""

    outcome: Literal["green", "red", "failed_to_run"]
    tree: str
    reason: str = ""
    output_tail: str = ""
    seconds: float = 0.0
    is_flaky: bool = False


class CheckSpace:
    """The folder for one root's checks. The checks write in its `tree` and `home`, and do not see its other files."""

    def __init__(self, folder: Path, repository: Repository, settings: RootConfig) -> None:
        self.settings = settings
        self.folder, self.tree, self.home = folder, folder / "tree", folder / "home"
        self._repository = repository
        self._index, self._setup_stamp, self._emptied_stamp = (folder / name for name in ("index", "setup", "emptied"))
        self._verdicts = folder / "verdicts"

    @property
    def boxed(self) -> bool:
        """True if checks run in a box; else they run as the person."""
        return is_boxed(self.settings.check_box)

    def prepare(self, commit: str, *, again: bool = False) -> None:
        """Bring the worktree to a commit, and write only what differs. Empty worktree and HOME first if `again` is set, if
        they were not emptied today, or if the disk is almost full. Raises UserError, OSError."""
        if again or not self._was_emptied_today() or self.is_disk_full():
            self.empty()
        fs.make_folder(self.home)
        if not self._worktree(commit).switch(self._repository, commit, self._index):
            self._setup_stamp.unlink(missing_ok=True)

    def _was_emptied_today(self) -> bool:
        try:
            return 0 <= time.time() - self._emptied_stamp.stat().st_mtime < _DAY_S
        except FileNotFoundError:
            return False

    def empty(self) -> None:
        """Remove all that checks and setup have left. Raises OSError."""
        for path in (self._emptied_stamp, self._setup_stamp, self._index, self.tree, self.home):
            fs.remove_tree(path)
        fs.crash_point("landing.emptied")
        fs.make_folder(self.folder)
        fs.write(self._emptied_stamp, b"")

    def _worktree(self, commit: str) -> Worktree:
        return Worktree(self._repository.root, self.tree, None, commit, None, self._repository.common)

    def start(
        self, commit: str, tree: str, log: Path, *, again: bool = False, confirms: bool = True
    ) -> RunningCheck | Verdict:
        """Start the check of a commit with this tree, with its output in `log`. Return a verdict at once if there is no check,
        if the tree is known to be green, or if the check cannot start. With `confirms` a red check runs once more before it
        counts."""
        if again:
            self.forget(tree)
        if not self.settings.check:
            return Verdict("green", tree, "there is no check")
        verdict = self.remembered(tree)
        if verdict is not None and verdict.outcome == "green":
            return verdict
        try:
            file = os.fdopen(fs.open_regular(log, _LOG), "w+b")
        except (UserError, OSError) as error:
            return Verdict("failed_to_run", tree, _reason(error))
        check = RunningCheck(self, commit, tree, file, confirms=confirms)
        return check.begin(again=again) or check

    def start_lines(self, lines: Sequence[str], log: BinaryIO) -> RunningLines:
        """Start the shell lines in the worktree, with their output in `log`. Raises UserError, OSError."""
        return start_lines(
            lines, self.tree, self.home, boxed=self.boxed, network=self.settings.check_network == "open",
            log=log, readable=self._repository.object_folders, timeout_s=self.settings.check_timeout_s,
        )  # fmt: skip

    def needs_setup(self, commit: str) -> bool:
        """Check whether the root's `setup:` must run for this commit: it has not run since the worktree was last emptied, or a
        file of `setup_when:` has changed since then."""
        if not self.settings.setup:
            return False
        try:
            return self._setup_stamp.read_bytes() != self._setup_key(commit)
        except FileNotFoundError:
            return True

    def end_setup(self, commit: str) -> None:
        """Record that `setup:` has run for this commit."""
        fs.write(self._setup_stamp, self._setup_key(commit))

    def _setup_key(self, commit: str) -> bytes:
        files = self.settings.setup_when
        blobs = self._repository.git("ls-tree", "--full-tree", commit, "--", *files) if files else ""
        return self._digest(self.settings.setup, blobs).encode()

    def _digest(self, *parts: object) -> str:
        text = json.dumps([*parts, self.boxed, self.settings.check_network])
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def is_disk_full(self) -> bool:
        """Return True if less than 256 MiB are free."""
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize < _MIN_FREE_BYTES

    def remembered(self, tree: str) -> Verdict | None:
        """Return the saved verdict on a tree for the present settings. Return None if there is none, or if it cannot be read."""
        with suppress(UserError):
            verdict = fs.load_dataclass(Verdict, self._verdict_path(tree), _KIND, _VERSION)
            return verdict if verdict is not None and verdict.tree == tree else None
        return None

    def remember(self, verdict: Verdict) -> None:
        """Save a verdict unless the check failed to run. Delete the oldest verdicts beyond the number that is kept. Raises
        OSError."""
        if verdict.outcome == "failed_to_run":
            return
        fs.make_folder(self._verdicts)
        fs.save_dataclass(self._verdict_path(verdict.tree), _KIND, _VERSION, verdict)
        paths = sorted(self._verdicts.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in paths[:-_MAX_VERDICTS]:
            path.unlink()

    def forget(self, tree: str) -> None:
        """Remove all verdicts on a tree."""
        for path in self._verdicts.glob(f"{tree}-*"):
            path.unlink(missing_ok=True)

    def _verdict_path(self, tree: str) -> Path:
        return self._verdicts / f"{tree}-{self._digest(self.settings.check, self.settings.setup)}"


class RunningCheck:
    """A check under way: `setup:` if needed, then `check:`. If one fails, both may run once more. Call `poll` when `fileno` is
    readable, and at least once a second."""

    def __init__(self, space: CheckSpace, commit: str, tree: str, log: BinaryIO, *, confirms: bool) -> None:
        self._space, self._commit, self._tree, self._log = space, commit, tree, log
        self._files = ExitStack()
        self._files.enter_context(log)
        self._lines: RunningLines | None = None
        self._in_setup = False
        self._is_second, self._confirms = False, confirms
        self._is_full = False
        self._start_time, self._run_start = 0.0, 0
        self._verdict: Verdict | None = None

    def begin(self, *, again: bool = False) -> Verdict | None:
        """Start a run and return None. If that is impossible, return the verdict `failed_to_run`."""
        try:
            self._space.prepare(self._commit, again=again)
            if self._space.is_disk_full():
                return self._end(Verdict("failed_to_run", self._tree, "the disk is almost full"))
            self._start(setup=self._space.needs_setup(self._commit))
        except (UserError, OSError) as error:
            return self._end(Verdict("failed_to_run", self._tree, _reason(error)))
        return None

    def _start(self, *, setup: bool) -> None:
        settings = self._space.settings
        self._in_setup, self._start_time = setup, time.monotonic()
        self._lines = self._files.enter_context(
            self._space.start_lines(settings.setup if setup else settings.check, self._log)
        )

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something to do. After each `poll` it may be another one."""
        assert self._lines is not None
        return self._lines.fileno()

    def poll(self) -> Verdict | None:
        """Do what can be done without waiting. Return the verdict if the check has ended, else None."""
        if self._verdict is not None or self._lines is None:
            return self._verdict
        try:
            if not self._is_full and self._space.is_disk_full():
                self._is_full = True
                self._lines.terminate()
            result = self._lines.poll()
            return None if result is None else self._start_next(result)
        except (UserError, OSError) as error:
            return self._end(Verdict("failed_to_run", self._tree, _reason(error)))

    def _start_next(self, result: LinesResult) -> Verdict | None:
        """Start the next lines (the check, or a second run) and return None, or return the verdict if the check is over. Raises
        UserError, OSError."""
        seconds = time.monotonic() - self._start_time
        lines, self._lines = self._lines, None
        assert lines is not None
        lines.close()
        if self._is_full:
            self._is_full = False
            self._space.empty()
            is_full = self._space.is_disk_full()  # else it was the check that had filled it
            result = LinesResult("failed_to_run" if is_full else "failed", "the disk was almost full")
        elif self._in_setup and result.outcome == "passed":
            self._space.end_setup(self._commit)
            self._start(setup=False)
            return None
        elif self._in_setup and result.outcome == "failed" and _NO_NETWORK.search(self._tail()):
            result = replace(result, outcome="failed_to_run", reason=f"{result.reason}: it found no network")
        if result.outcome == "failed" and self._confirms and not self._is_second:
            self._is_second = True
            self._log.write(f"\n[red: {result.reason}; it is run once more before that counts]\n\n".encode())
            self._run_start = self._log.tell()
            return self.begin()
        outcomes = {"passed": "green", "failed": "red"}
        outcome = cast(Literal["green", "red", "failed_to_run"], outcomes.get(result.outcome, "failed_to_run"))
        reason = f"setup: {result.reason}" if self._in_setup and result.reason else result.reason
        is_flaky = self._is_second and outcome == "green"
        if is_flaky:
            reason = "red at first, green when it was run once more"
        verdict = Verdict(outcome, self._tree, mask(strip_controls(reason)), self._tail(), round(seconds, 3), is_flaky)
        self._space.remember(verdict)
        fs.crash_point("landing.checked")
        return self._end(verdict)

    def _tail(self) -> str:
        """Return the end of the output of the last run as plain text."""
        self._log.flush()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._run_start, size - 4 * _TAIL_CHARS))
        text = _ESCAPE.sub("", self._log.read().decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")
        return "\n".join(mask(strip_controls(text)).splitlines()[-_TAIL_LINES:])[-_TAIL_CHARS:]

    def _end(self, verdict: Verdict) -> Verdict:
        self._verdict = verdict
        self.stop()
        return verdict

    def stop(self) -> None:
        """End the check with everything that it started."""
        self._files.close()


def _reason(error: UserError | OSError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def protected_changes(paths: Iterable[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that match a pattern of `protect:`. As in .gitignore, a name without a slash matches in any folder, `**`
    matches any folders, and a folder matches everything below it."""
    expressions = [_expression(pattern) for pattern in patterns]
    return tuple(path for path in paths if any(expression.match(path) for expression in expressions))


def _expression(pattern: str) -> re.Pattern[str]:
    words = pattern.strip("/").split("/")
    if len(words) == 1 and not pattern.startswith("/"):
        words.insert(0, "**")
    text = ""
    for word in words[:-1]:
        text += "(?:[^/]+/)*" if word == "**" else f"{_word_expression(word)}/"
    return re.compile(f"{text}{'.+' if words[-1] == '**' else _word_expression(words[-1])}(?:/|\\Z)", re.DOTALL)


def _word_expression(word: str) -> str:
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)) for char in word)
