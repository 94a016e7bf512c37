"""A step of a task in hand."""

from __future__ import annotations

import shlex
from typing import Any

from hivemind.coordination import Step
from hivemind.frozen import frozen
from hivemind.tasks import TaskStep


@frozen
class PlannedStep:
    """A step of the journal together with what it is to do."""

    step: Step
    todo: TaskStep

    @property
    def id(self) -> str:
        return self.step.id

    @property
    def command(self) -> str | None:
        """The command of a `run:` step, as its receipts name it."""
        if self.todo.kind != "run" or self.todo.argument is None:
            return None
        return self.todo.argument if isinstance(self.todo.argument, str) else shlex.join(self.todo.argument)

    @property
    def is_implicit(self) -> bool:
        """Whether nobody planned it: it is the task itself."""
        return bool(self.step.meta.get("implicit"))

    def shown(self) -> dict[str, Any]:
        """The step as a mind sees it in the task's block."""
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
