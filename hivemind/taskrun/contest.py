"""A contest: several agents do the same task, each as a candidate on a separate branch, and one of the results lands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivemind.boundary import as_dataclass, json_fields
from hivemind.frozen import frozen
from hivemind.presence.parts import Parts
from hivemind.tasks import Task

CONTEST = "contest"


@frozen
class StartCommit:
    """The commit of a root's target from which all candidates begin."""

    root: str
    target: str
    commit: str


@frozen
class Contest:
    """The contest of a task, kept in its record under `contest`. `candidates` maps the id of each candidate to its agent.

    `said` counts the additions to the task that the candidates have got. `is_complete` is True once all subtasks and letters that
    the record names exist. `judge` is the agent (or `human`) who was asked for the `round`-th choice, by the subtask or letter
    `choice`, between candidates with the commits `judged`. `report` has the lines about the contest for the task's result.
    """

    candidates: Mapping[str, str]
    starts: tuple[StartCommit, ...]
    said: int = 0
    is_complete: bool = False
    round: int = 0
    judge: str | None = None
    choice: str | None = None
    judged: Mapping[str, tuple[str, ...]] | None = None
    winner: str | None = None
    report: tuple[str, ...] = ()

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Contest | None:
        """Return the contest that a task's record keeps, or None. Raises Unreadable."""
        fields = kept.get(CONTEST)
        return None if fields is None else as_dataclass(cls, fields, "task's contest")

    def save(self) -> dict[str, Any]:
        """Return the contest as a value for the task's record."""
        return {CONTEST: json_fields(self)}

    @property
    def choices(self) -> dict[str, str]:
        """The candidates to choose from, by letter: `a` for the first."""
        pairs = zip("abcdefgh", self.candidates, strict=False)
        return {letter: task_id for letter, task_id in pairs if task_id in (self.judged or ())}


def contest_of(hive: Parts, task: Task) -> Contest | None:
    """Return the contest to which a task belongs, as a candidate or as the review that makes the choice. Return None if there is
    none. Raises UserError."""
    if task.parent is None or not hive.tasks.listing.is_known(task.parent):
        return None
    contest = Contest.of(hive.tasks.get(task.parent).kept)
    return contest if contest is not None and task.id in (*contest.candidates, contest.choice) else None
