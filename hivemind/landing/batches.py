"""Batches: tasks that are checked together, and the search for the one to blame when a batch is red."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from hivemind.landing.checks import Verdict
from hivemind.landing.target import Target

_BATCH_S = 1.0  # a check that takes this long is run for several tasks together


class Batches:
    """The batches of each root. After a red check, half of a batch is checked at a time, until the task to blame is the only one
    left."""

    def __init__(self) -> None:
        self._suspects: dict[Path, list[str]] = {}
        """The tasks of a red batch by root, in order: at least one of them is to blame."""
        self._red_verdicts: dict[str, Verdict] = {}
        self._check_s: dict[Path, float] = {}

    def takes_several(self, target: Target) -> bool:
        """Check whether the next landing in a target takes several tasks: it does if the last check was slow, or after a red
        batch."""
        settings, root = target.settings, target.root
        is_slow = self._check_s.get(root, _BATCH_S) >= _BATCH_S
        return bool(settings.check) and not target.takes_requests and (is_slow or self.is_searching(root))

    def is_searching(self, root: Path) -> bool:
        """Check whether a batch was red and the task to blame is not found yet."""
        return bool(self._suspects.get(root))

    def is_next(self, task_id: str, root: Path, ids: Collection[str]) -> bool:
        """Check whether a task may be in the next check: after a red batch only half of its tasks, else any. `ids` are the
        tasks that can land."""
        suspects = self._suspects[root] = [suspect for suspect in self._suspects.get(root, []) if suspect in ids]
        return not suspects or task_id in suspects[: max(1, len(suspects) // 2)]

    def note_green(self, root: Path, verdict: Verdict) -> None:
        if verdict.seconds:
            self._check_s[root] = verdict.seconds

    def note_red(self, root: Path, ids: Sequence[str], verdict: Verdict) -> None:
        self._suspects[root] = [*ids]
        self._red_verdicts[verdict.tree] = verdict

    def red_verdict(self, tree: str) -> Verdict | None:
        """Return the verdict if a red batch had this tree, else None. So the last suspect need not be checked once all others
        have landed: its merged tree is then the batch's."""
        return self._red_verdicts.get(tree)

    def note_landed(self, ids: Collection[str]) -> None:
        """Take landed tasks off the lists of suspects."""
        for root, suspects in self._suspects.items():
            self._suspects[root] = [task_id for task_id in suspects if task_id not in ids]

    def note_blamed(self, root: Path) -> None:
        """End the search for the task to blame: it is found, and goes back to its agent."""
        self._suspects.pop(root, None)
        self._red_verdicts.clear()
