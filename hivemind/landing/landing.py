"""A landing under way: what it does in each target, and the check that runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from hivemind.landing.checks import RunningCheck, Verdict
from hivemind.landing.queue import QueuedTask
from hivemind.landing.target import Target
from hivemind.taskrun.landing_entry import LandingBranch


@dataclass(slots=True)
class Leg:
    """The part of a landing in one target. The target is at `old` and will be moved to `new`. `picks` has each task's branch and
    its merged commit, in the order in which they land. The first of them is merged onto `start`."""

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
        """Return a leg that begins at the target's commit. This is read only once, so no later commit is lost in the move. Raises
        UserError."""
        tip = target.tip
        start = target.start_of(tip)
        return cls(target, tip, start, start)

    @property
    def pushed_name(self) -> str:
        """The name to try next for a task's branch at the remote: the branch's own, then with a number if that is taken."""
        name = self.picks[0][1].branch
        return name if self.push_tries < 2 else f"{name}.{self.push_tries}"


@dataclass(slots=True)
class Landing:
    """A landing under way: several tasks with one leg, or one task with a leg for each root.

    After a task's check was red, the target's own commit is checked, to see which of the two is to blame; until then `blames` is
    the verdict on the task. `moving` has the tasks once all checks are green.
    """

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
