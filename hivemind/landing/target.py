"""Targets: the branches of people in which finished work lands, and what holds a target's landing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from hivemind.boundary import Unreadable, json_fields
from hivemind.config import HiveConfig, RootConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import Log, load_dataclass, load_record, make_folder, ring, save_record
from hivemind.layout import LANDING, Layout
from hivemind.masking import mask
from hivemind.presence.parts import Parts
from hivemind.taskrun.git import RESTART, GitProblem, Repository, RootGone
from hivemind.taskrun.landing_entry import LandingBranch
from hivemind.taskrun.target_branch import checked_out_branch, read_target, remote_ref, root_folder, unlisted_root

_MAX_OTHERS = 10
_State = TypeVar("_State")
_HOLD, _MOVE, _PUSH, _VERSION = "landing hold", "landing move", "landing push", 1


@frozen
class Hold:
    """The reason why a target is held: a person has held it, or the target's own commit `tip` fails its check."""

    by: Literal["person", "check"]
    reason: str
    tip: str | None = None


@frozen
class Target:
    """A branch of a root. `folder` has the files of its checks, its hold, and its unfinished move."""

    root: Path
    branch: str
    settings: RootConfig
    repository: Repository
    folder: Path

    @classmethod
    def of(cls, hive: Parts, root: Path, branch: str) -> Target:
        """Return the target of a root in hive.yaml. Raises UserError if the root is not there, or is not a repository."""
        return cls.listed(hive.layout, hive.config.repository_roots(hive.layout), root, branch)

    @classmethod
    def listed(cls, layout: Layout, roots: Mapping[Path, RootConfig], root: Path, branch: str) -> Target:
        """Return the target of one of the `roots` of hive.yaml. Raises UserError as `of`."""
        if root not in roots:
            raise unlisted_root(root)
        return cls(root, branch, roots[root], Repository.at(root), root_folder(layout, root))

    def check(self) -> None:
        """Raise UserError if the root's folder is gone, or if work is to land here and the branch is not there."""
        if not self.root.is_dir():
            raise RootGone(self.root)
        _ = self.settings.land == "off" or self.tip

    @classmethod
    def at(cls, layout: Layout, root: Path, settings: RootConfig) -> Target:
        """Return the target of a root; unlike `target_branch`, record nothing. Raises UserError."""
        folder, repository = root_folder(layout, root), Repository.at(root)
        branch = settings.branch or read_target(folder) or checked_out_branch(repository)
        return cls(root, branch or "HEAD", settings, repository, folder)

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def tip(self) -> str:
        """The commit of the branch. Raises UserError if there is none."""
        commit = self.repository.commit_of(self.ref)
        if commit is None:
            Repository.at(self.root)  # or it is gone
            raise UserError(
                f"has no branch {self.branch}", location=self.root,
                remedy=f"make it (git branch {self.branch} COMMIT), or if you renamed it say branch: NEW in hive.yaml, then: "
                f"{RESTART}",
            )  # fmt: skip
        return commit

    @property
    def remote_tip(self) -> str | None:
        """The commit of the branch at the remote of `push:` when it was last fetched or pushed; None if there is none."""
        push = self.settings.push
        return None if push is None else self.repository.commit_of(remote_ref(push.remote, self.branch))

    @property
    def takes_requests(self) -> bool:
        """True if the hive pushes tasks' branches and people merge them at the remote (`push:` with `as: branch`)."""
        return self.settings.push is not None and self.settings.push.kind == "branch"

    def has_diverged(self, tip: str) -> bool:
        """Check whether the branch at `tip` and the remote's each have commits that the other lacks."""
        remote_tip = self.remote_tip
        return remote_tip is not None and not (self.is_ancestor(remote_tip, tip) or self.is_ancestor(tip, remote_tip))

    def start_of(self, tip: str) -> str:
        """Return the commit to build a landing on, while the branch is at `tip`. This is the remote's commit if that is ahead, or
        if people merge at the remote; otherwise it is `tip`. Raises UserError if the two have diverged."""
        remote_tip = self.remote_tip
        if remote_tip is None or self.takes_requests:
            return remote_tip or tip
        if self.has_diverged(tip):
            message = f"{self.branch} has diverged from its branch at the remote"
            raise UserError(
                message, location=self.root, remedy="git pull there, then git push; landing goes on by itself"
            )
        return tip if self.is_ancestor(remote_tip, tip) else remote_tip

    def contains(self, commit: str) -> bool:
        """Check that the branch contains a commit or, if people merge at the remote, that the remote's branch does."""
        tips = [self.repository.commit_of(self.ref), self.remote_tip if self.takes_requests else None]
        return any(tip is not None and self.is_ancestor(commit, tip) for tip in tips)

    def is_ancestor(self, commit: str, descendant: str) -> bool:
        return not self.repository.git("rev-list", "--max-count=1", commit, f"^{descendant}")

    def follow_branch(self, branch: LandingBranch) -> str:
        """Return the commit to land for a task's branch: its present one if a person has added commits, else the recorded tip.
        If the branch was deleted, create it again."""
        commit = self.repository.commit_of(f"refs/heads/{branch.branch}")
        if commit is None:
            self.repository.move(branch.branch, branch.tip, None, "made again")
            return branch.tip
        return commit if commit != branch.tip and self.is_ancestor(branch.tip, commit) else branch.tip

    def is_unchanged_by(self, task_id: str, branch: LandingBranch) -> bool:
        """Check that a task's branch had no changes left to land: what it landed as is the target's old commit, or the commit of
        another task."""
        return branch.commit == branch.old or self.landed().get(str(branch.commit), task_id) != task_id

    def changed_paths(self, branch: LandingBranch) -> list[str]:
        """Return the paths that a task's branch has changed since it began at the target, or last merged it."""
        words = ("diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", f"{self.tip}...{branch.tip}")
        return [path for path in self.repository.git(*words).split("\0") if path]

    @property
    def signs_commits(self) -> bool:
        """True if the person's git signs commits in this repository."""
        with suppress(GitProblem):
            return self.repository.git("config", "--type=bool", "commit.gpgsign") == "true"
        return False

    def note_landed(self, task_id: str, commit: str) -> None:
        """Record which task a landed commit belongs to, for people and for the texts about conflicts."""
        make_folder(self.folder)
        self._landed_log.append({"task": task_id, "commit": commit})

    def landed(self) -> dict[str, str]:
        """Return the task of each landed commit, oldest first."""
        return {str(record["commit"]): str(record["task"]) for record in self._landed_log.records()}

    @property
    def _landed_log(self) -> Log:
        return Log(self.folder / "landed.jsonl", "landed", 1, durable=False, lazy=True)

    def landed_tasks(self, base: str, tip: str, paths: Sequence[str]) -> list[str]:
        """Return the tasks that have landed changes of these paths between two commits, newest first."""
        words = ("rev-list", "--first-parent", f"--max-count={_MAX_OTHERS}", tip, f"^{base}", "--", *paths)
        tasks = self.landed()
        return [tasks[commit] for commit in self.repository.git(*words).split() if commit in tasks]

    @property
    def hold(self) -> Hold | None:
        """The reason why this target is held, or None. A hold because of a red check ends when the branch moves."""
        with suppress(Unreadable):
            hold = load_dataclass(Hold, self.folder / "hold.json", _HOLD, _VERSION)
            return None if hold is not None and hold.by == "check" and hold.tip != self.start_of(self.tip) else hold
        return None

    def set_hold(self, hold: Hold | None) -> None:
        """Hold the landing, or let it go on (None)."""
        self._save("hold.json", _HOLD, None if hold is None else json_fields(hold))

    @property
    def push_due(self) -> str | None:
        """The reason why a push is due: the remote's last answer, or "" if no push was tried. None if no push is due."""
        with suppress(Unreadable):
            record = load_record(self.folder / "push.json", _PUSH, _VERSION)
            return None if record is None else str(record["reason"])
        return ""

    def set_push_due(self, reason: str | None) -> None:
        """Note that a push is due, or that it is done (None)."""
        if self.push_due != reason:
            self._save("push.json", _PUSH, None if reason is None else {"reason": reason})

    @property
    def move(self) -> dict[str, Any] | None:
        """The state of a move that a killed lander had begun, for `move_target`; None if no move is under way."""
        record = load_record(self.folder / "move.json", _MOVE, _VERSION)
        return None if record is None else dict(record["move"])

    def save_move(self, state: dict[str, Any] | None) -> None:
        """Save the state of a move before its next step; None removes it."""
        self._save("move.json", _MOVE, None if state is None else {"move": state})

    def _save(self, name: str, kind: str, fields: dict[str, Any] | None) -> None:
        """Write a file of the target; without fields it is removed."""
        if fields is None:
            (self.folder / name).unlink(missing_ok=True)
        else:
            make_folder(self.folder)
            save_record(self.folder / name, kind, _VERSION, fields)


def held_roots(config: HiveConfig, layout: Layout) -> dict[Path, Hold]:
    """Return the roots that hold their landings now, with the reasons."""
    return _read_targets("hold.json", config, layout, lambda target: target.hold)


def unpushed_roots(config: HiveConfig, layout: Layout) -> dict[Path, str]:
    """Return the roots with landings that are not pushed yet, and the reasons."""
    reasons = _read_targets(
        "push.json", config, layout, lambda target: target.push_due if target.settings.push else None
    )
    return {root: reason or "that is due" for root, reason in reasons.items()}


def _read_targets(
    name: str, config: HiveConfig, layout: Layout, read: Callable[[Target], _State | None]
) -> dict[Path, _State]:
    """Call `read` with the target of each root that has a file of this name. Return the results that are not None, by root."""
    states = {}
    for root, settings in config.repository_roots(layout).items():
        if (root_folder(layout, root) / name).exists():
            with suppress(UserError):
                if (state := read(Target.at(layout, root, settings))) is not None:
                    states[root] = state
    return states


def hold_roots(hive: Parts, names: Sequence[str], reason: str | None) -> list[Path]:
    """Hold the landing in roots, or let it continue (`reason` is None), and wake the lander. Return the roots. `names` are
    paths or their last parts; without names, all roots are meant. Raises UserError."""
    settings = hive.config.repository_roots(hive.layout)
    roots = {
        root for name in names for root in settings
        if name == root.name or root == Path(os.path.realpath(hive.layout.root / name)) or root == Path(os.path.realpath(name))
    }  # fmt: skip
    if len(roots) != len({*names}) or not settings:
        remedy = f"there are {', '.join(map(str, settings)) or 'none'}"
        raise UserError("is not a root with worktree: true", location=" ".join(names), remedy=remedy)
    for root in roots or settings:
        target = Target.at(hive.layout, root, settings[root])
        target.set_hold(None if reason is None else Hold("person", mask(reason)))
        if reason is not None:
            hive.journal.append("landing.held", root=str(root), branch=target.branch, reason=mask(reason))
    ring(hive.layout.doorbells, LANDING)
    return sorted(roots or settings)
