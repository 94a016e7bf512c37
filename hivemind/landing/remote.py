"""Remotes: a target's branch at a person's remote is fetched before a landing and pushed after the check, never with force.

Git talks to the remote as that person, with all settings and credentials but without hooks and prompts, in a separate process
with a time limit. If a remote does not answer, work still lands, and the target remembers that a push is due.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryFile
from typing import IO, Literal

from hivemind.fs import crash_point
from hivemind.landing.merging import merge
from hivemind.landing.target import Target
from hivemind.masking import mask, strip_controls
from hivemind.reaped_command import ReapedCommand
from hivemind.taskrun.git import git_environment
from hivemind.taskrun.landing_entry import LandingBranch
from hivemind.taskrun.target_branch import remote_ref

_LIMIT_S = 300.0
_FRESH_S = 5.0  # a landing that begins so soon after a fetch needs no other one
_LOOK_S = 60.0
_PAUSE_S, _MAX_PAUSE_S = 5.0, 600.0
_MAX_CANDIDATES, _MAX_OUTPUT = 20, 1 << 20
_INHERITED = ("GIT_SSH", "GIT_SSH_COMMAND")
_QUIET = {"GIT_CONFIG_NOSYSTEM": "0", "GIT_ASKPASS": "false", "SSH_ASKPASS_REQUIRE": "never"}
_FETCH = (
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-recurse-submodules",
    "--no-prune",
    "--no-write-fetch-head",
    "--refmap=",
    "--",
)
_PUSH = ("push", "--porcelain", "--no-follow-tags", "--recurse-submodules=no", "--")
_NO_BRANCH = re.compile(r"couldn't find remote ref|Couldn't find remote ref")
_REJECTED = re.compile(r"^!\t[^\t]*\t\[(?:remote )?rejected\] \((.*)\)$", re.MULTILINE)
_MOVED = re.compile(r"^!\t[^\t]*\t\[rejected\]|but expected|incorrect old value", re.MULTILINE)
_REASON = re.compile(r"^(?:fatal|error|remote|ssh): *(\S.*)", re.MULTILINE)

PushOutcome = Literal["pushed", "moved", "refused", "away"]


class RemoteBranch:
    """A target's branch at the remote of `push:`. It runs one git process at a time. After `poll`, call `is_current` or `push`
    again for the outcome."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.problem = ""
        """Why the remote is away; empty if it answered last time."""
        self.refusal = ""
        """Why the remote refused the last push."""
        self.pause_s = _PAUSE_S
        self._process: ReapedCommand | None = None
        self._output: IO[bytes] | None = None
        self._files = ExitStack()
        self._deadline = self._again = 0.0
        self._fetched = float("-inf")
        self._push: tuple[str, str] | None = None
        self._outcome: tuple[tuple[str, str], PushOutcome] | None = None
        self._examined: dict[str, str | None] = {}

    @property
    def name(self) -> str:
        assert self.target.settings.push is not None
        return self.target.settings.push.remote

    @property
    def ref(self) -> str:
        return remote_ref(self.name, self.target.branch)

    @property
    def is_running(self) -> bool:
        """True while git talks to the remote."""
        return self._process is not None

    @property
    def remaining_s(self) -> float:
        """Seconds until `retry` has something to do; may be infinite."""
        return (
            max(0.0, self._again - time.monotonic())
            if self.problem or self.target.push_due is not None
            else float("inf")
        )

    def fileno(self) -> int:
        """Return a descriptor that is readable when git has ended."""
        assert self._process is not None
        return self._process.fileno()

    def stop(self) -> None:
        """End git. What a push has done by then shows at the next fetch."""
        self._files.close()
        self._process = None

    # fetching

    def is_current(self) -> bool:
        """Check whether a landing may begin: the branch was just fetched, or the remote does not answer. Otherwise start a fetch
        and return False."""
        if self.problem or time.monotonic() < self._fetched + _FRESH_S:
            return True
        self._fetch()
        return False

    def look(self) -> None:
        """Start a fetch if the last one was a minute ago. A landing that waits for a change of the branch calls this."""
        if not self.problem and time.monotonic() >= self._fetched + _LOOK_S:
            self._fetch()

    def retry(self) -> None:
        """If the pause is over, repeat what is due: fetch from a remote that did not answer, or push. Raises UserError."""
        if self.is_running or (not self.problem and self.target.push_due is None) or time.monotonic() < self._again:
            return
        if self.problem or time.monotonic() >= self._fetched + _FRESH_S:
            self._fetch()
            return
        tip = self.target.tip
        if self.contains(tip):
            self.target.set_push_due(None)
        elif self.target.has_diverged(tip):
            self._hold_push(f"{self.target.branch} and {self.name} have diverged: git pull, then git push")
        else:
            self.push(tip, self.target.branch)

    def contains(self, commit: str) -> bool:
        """Check that the branch contained a commit when it was last fetched or pushed."""
        tip = self.target.remote_tip
        return tip is not None and self.target.is_ancestor(commit, tip)

    def find_landed(self, branch: LandingBranch) -> LandingBranch:
        """Return a pushed branch as landed if somebody has merged or squashed it at the remote, else unchanged.

        It has landed in the first commit at the remote that contains all the branch's changes.
        """
        target, tip = self.target, self.target.remote_tip
        if tip is None or self._examined.get(branch.tip) == tip:
            return branch
        words = ("rev-list", "--first-parent", "--reverse", f"--max-count={_MAX_CANDIDATES}", tip, f"^{branch.old}")
        for commit in target.repository.git(*words).split():
            merged = merge(target.repository, commit, branch.tip, branch.base, "squash", "")
            if merged.commit == commit:
                before = target.repository.commit_of(f"{commit}^1")
                return replace(branch, landed=True, old=before, new=commit, commit=commit)
        self._examined[branch.tip] = tip
        return branch

    # pushing

    def push(self, commit: str, name: str) -> PushOutcome | None:
        """Push a commit to a branch at the remote. Return the outcome, or None while the push runs."""
        if self._outcome is not None and self._outcome[0] == (commit, name):
            outcome, self._outcome = self._outcome[1], None
            return outcome
        if not self.is_running:
            self._push = commit, name
            self._start(*_PUSH, self.name, f"{commit}:refs/heads/{name}")
        return None

    def _fetch(self) -> None:
        if not self.is_running:
            self._push = None
            self._start(*_FETCH, self.name, f"+refs/heads/{self.target.branch}:{self.ref}")

    def _start(self, *words: str) -> None:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment = git_environment({**_QUIET, **inherited})
        self._deadline = time.monotonic() + _LIMIT_S
        self._output = self._files.enter_context(TemporaryFile())  # noqa: SIM115
        process = ReapedCommand(["git", *words], folder=self.target.root, environment=environment, stdout=self._output)
        self._process = self._files.enter_context(process)

    def poll(self) -> None:
        """Take the outcome of a git process that has ended. Raises UserError, OSError."""
        if self._process is None or self._output is None:
            return
        is_late = time.monotonic() >= self._deadline
        if is_late:
            self._process.terminate()
        status = self._process.wait(0)
        if status is None:
            return
        self._output.seek(0)
        output = self._output.read(_MAX_OUTPUT).decode("utf-8", "replace")
        self.stop()
        reason = f"it did not answer in {_LIMIT_S:g} s" if is_late else _reason(output)
        if self._push is not None:
            self._outcome = self._push, self._take_push(*self._push, status, output, reason)
        elif status == 0 or _NO_BRANCH.search(output):
            if status:
                self.target.repository.git("update-ref", "-d", self.ref)
            self._reached()
        else:
            self._is_away(reason)

    def _take_push(self, commit: str, name: str, status: int, output: str, reason: str) -> PushOutcome:
        if status == 0:
            crash_point("landing.pushed")
            self._reached()
            if name == self.target.branch:
                self.target.repository.git("update-ref", "--no-deref", self.ref, commit)
                self.target.set_push_due(None)
            return "pushed"
        rejection = _REJECTED.search(output)
        if rejection is None:
            self._is_away(reason)
            return "away"
        if _MOVED.search(output):
            self._fetched = float("-inf")
            return "moved"
        self.refusal = f"{self.name} refuses {name}: {rejection[1]}{f' ({reason})' if reason else ''}"
        self._hold_push(self.refusal)
        return "refused"

    def _reached(self) -> None:
        self._fetched, self.problem, self.pause_s = time.monotonic(), "", _PAUSE_S

    def _is_away(self, reason: str) -> None:
        self.problem = f"{self.name} is away: {reason}"
        self._hold_push(self.problem)

    def _hold_push(self, reason: str) -> None:
        """Pause before the next push, each time twice as long. If a push is due, note the reason."""
        self._again = time.monotonic() + self.pause_s
        self.pause_s = min(2 * self.pause_s, _MAX_PAUSE_S)
        if self.target.push_due is not None:
            self.target.set_push_due(reason)


def _reason(output: str) -> str:
    """Return what git and the remote say, in one line."""
    lines = [line.strip() for line in _REASON.findall(output)]
    return mask(strip_controls("; ".join(lines[:3])))[:300] or "git says nothing"
