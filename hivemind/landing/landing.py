"""A landing under way: what it does in each target, and the check that runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from hivemind.landing.checks import RunningCheck, Verdict
from hivemind.landing.queue import QueuedTask
from hivemind.landing.target import Target
from hivemind.taskrun.landing_entry import LandingBranch


@dataclass(slots=True)
class Leg:
    """What a landing does in one target: `picks` has each task's branch and its commit, in the order in which they land. The
    target is at `old`, the first pick is merged onto `start`, and `new` is the commit that the target will have.
    """

    target: Target
    old: str
    start: str
    new: str
    picks: list[tuple[QueuedTask, LandingBranch, str]] = field(default_factory=list)
    is_green: bool = False
    push_tries: int = 0
    is_pushed: bool = False

    @classmethod
    def at_tip(cls, target: Target) -> Leg:
        """Begin at the commit where the target is. It is read once: a commit between two reads would be left out of the landing
        and yet be taken for the one that the landing replaces. Raises UserError."""
        tip = target.tip
        start = target.start_of(tip)
        return cls(target, tip, start, start)

    @property
    def pushed_name(self) -> str:
        """The next name at the remote for the branch of a task: its own, if that is not another one's there."""
        name = self.picks[0][1].branch
        return name if self.push_tries < 2 else f"{name}.{self.push_tries}"


@dataclass(slots=True)
class Landing:
    """A landing under way. Several tasks have one leg, a task with several roots has one for each. `blames` is the verdict on
    the task while the check of the target's own commit runs. `moving` are the tasks once all checks are green."""

    legs: list[Leg]
    check: RunningCheck | None = None
    blames: Verdict | None = None
    moving: list[QueuedTask] = field(default_factory=list)

    @property
    def tasks(self) -> list[QueuedTask]:
        return [queued for queued, _, _ in self.legs[0].picks]

    @property
    def leg(self) -> Leg | None:
        """The next leg to check; None once all are green."""
        return next((leg for leg in self.legs if not leg.is_green), None)
