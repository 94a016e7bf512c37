"""A step of a claimed task."""

from __future__ import annotations

import shlex
from typing import Any

from hivemind.coordination import Receipt, Step
from hivemind.frozen import frozen
from hivemind.layout import HUMAN
from hivemind.tasks import Task, TaskStep


@frozen
class PlannedStep:
    """A step as recorded in the journal, with the `todo` that describes the work. `is_from_person` means that a person wrote it:
    only such a command runs without permission."""

    step: Step
    todo: TaskStep
    is_from_person: bool = False

    @classmethod
    def of(cls, step: Step, task: Task) -> PlannedStep:
        index = step.meta.get("given")
        if isinstance(index, int) and index < len(task.steps):
            return cls(step, task.steps[index], task.maker == HUMAN)
        kind, argument = step.meta.get("kind"), step.meta.get("argument")
        return cls(step, TaskStep(step.title, kind, argument, step.success_criteria, step.tests))

    @property
    def id(self) -> str:
        return self.step.id

    @property
    def command(self) -> str | None:
        """The command of a `run:` step as one shell line, as its receipts have it. None for another step."""
        if self.todo.kind != "run" or self.todo.argument is None:
            return None
        return self.todo.argument if isinstance(self.todo.argument, str) else shlex.join(self.todo.argument)

    @property
    def last_run(self) -> Receipt | None:
        """The receipt of the last run of the step's own command, or None before the first run."""
        return next((receipt for receipt in reversed(self.step.command_receipts) if receipt.text == self.command), None)

    @property
    def awaits_run(self) -> bool:
        """True while the command that a person wrote for the step has not succeeded."""
        return (
            self.is_from_person
            and self.command is not None
            and (self.last_run is None or self.last_run.is_counterevidence)
        )

    @property
    def is_implicit(self) -> bool:
        """True for the only step of a task without a plan: the task itself."""
        return bool(self.step.meta.get("implicit"))

    def mind_fields(self) -> dict[str, Any]:
        """Return the fields of the step that a mind gets to see."""
        todo = self.todo
        return {
            "id": self.step.id,
            "title": todo.title,
            "kind": todo.kind,
            "argument": todo.argument,
            "status": self.step.status,
            "success_criteria": list(todo.success_criteria),
            "tests": list(todo.tests),
        }
