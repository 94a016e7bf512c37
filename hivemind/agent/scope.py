"""Scope: what the turn is about, and what comes next in a task, by rule (spec 3, *Capsule*: next action)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind.minds import Turn
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.task_run import TaskRun

if TYPE_CHECKING:
    from hivemind.agent.agent import Agent


def scope(agent: Agent, turn: Turn) -> None:
    """Choose the message or the task of the turn; a focus on nothing if there is none."""
    found = agent.scheduler.scope(
        reads=agent.reads, keep=lambda message: agent.memory.keep_message(message), pictures=agent.pictures_of
    )
    turn.focus = found or Focus("rest")


def focus_on(work: TaskRun, *, reads: bool = False) -> Focus:
    """The work at what comes next: no steps: plan (a mind that `reads` needs none); the first open step: finish it; none
    open: finish the task.

    A task whose steps are all there but blocked has `blocked` set: nothing can be done about it here.
    """
    steps = work.steps()
    if not steps or (not reads and all(step.is_implicit for step in steps)):
        return Focus("plan_steps", work=work)
    step = next((step for step in steps if step.step.status == "open"), None)
    if step is not None:
        return Focus("finish_step", work=work, step=step)
    blocked = next((step for step in steps if step.step.status == "blocked"), None)
    return Focus("finish_task", work=work, blocked=blocked)
