"""Scope: what comes next in a task, by rule (spec 3, *Capsule*: next action)."""

from __future__ import annotations

from hivemind.taskrun.focus import Focus
from hivemind.taskrun.task_run import TaskRun

__all__ = ["focus_on"]


def focus_on(work: TaskRun) -> Focus:
    """The work at what comes next: no steps: plan; the first open step: finish it; none open: finish the task.

    A task whose steps are all there but blocked has `blocked` set: nothing can be done about it here.
    """
    steps = work.steps()
    if not steps:
        return Focus("plan_steps", work=work)
    step = next((step for step in steps if step.step.status == "open"), None)
    if step is not None:
        return Focus("finish_step", work=work, step=step)
    blocked = next((step for step in steps if step.step.status == "blocked"), None)
    return Focus("finish_task", work=work, blocked=blocked)
