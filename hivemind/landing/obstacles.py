"""The obstacles that keep a finished branch from landing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hivemind.errors import UserError
from hivemind.landing.checks import protected_changes
from hivemind.landing.queue import QueuedTask
from hivemind.landing.target import Target
from hivemind.presence.parts import Parts


def obstacle_now(hive: Parts, queued: QueuedTask) -> str | None:
    """Return why a task cannot land as things are now; None if it can. What only a try shows is not among it."""
    try:
        targets = [Target.of(hive, Path(branch.root), branch.target) for branch in queued.entry.branches]
        for target in targets:
            target.check()
        return first_obstacle(queued, targets)
    except UserError as error:
        return str(error)


def first_obstacle(queued: QueuedTask, targets: Sequence[Target]) -> str | None:
    """Return why a task may not land now in one of its targets; None if it may."""
    return next((reason for target in targets if (reason := _obstacle(queued, target)) is not None), None)


def _obstacle(queued: QueuedTask, target: Target) -> str | None:
    """Return why a task may not land in a target now; None if it may."""
    entry, settings = queued.entry, target.settings
    if entry.asks and not entry.approved:
        return entry.reason
    if (hold := target.hold) is not None:
        return hold.reason
    if entry.lands_elsewhere:
        return None
    branch = next(branch for branch in entry.branches if branch.root == str(target.root))
    if settings.sign == "wait" and target.signs_commits:
        remedy = f"merge {branch.branch} yourself, or set sign: off"
        return f"your git signs commits in {target.root}, and hivemind cannot: {remedy}"
    if entry.approved or branch.landed:
        return None
    if needs_check(queued, target):
        return None
    paths = protected_changes(target.changed_paths(branch), settings.protect) if settings.protect else ()
    if paths:
        return f"changes {', '.join(paths[:3])}, which its check reads: look at it, then: hivemind land {queued.id}"
    note = " (its check is green)" if settings.check else ""
    return f"waits for you: hivemind land {queued.id}{note}" if settings.land == "ask" else None


def needs_check(queued: QueuedTask, target: Target) -> bool:
    """Check whether to run the check before a task lands, because a person is asked after a green check and this state of the
    branches was not checked yet."""
    entry, settings = queued.entry, target.settings
    is_asked = settings.land == "ask" and not (entry.approved or entry.lands_elsewhere)
    return is_asked and bool(settings.check) and entry.checked != entry.tips
