"""Asking the operator by mail, on behalf of a step."""

from __future__ import annotations

from hivemind.layout import HUMAN
from hivemind.taskrun.step_waits import question_id
from hivemind.taskrun.task_run import PlannedStep
from hivemind.tools.session import Session
from hivemind.tools.tool import ToolProblem

__all__ = ["ask_person"]


def ask_person(session: Session, step: PlannedStep, question: str) -> None:
    """Send the question of a step to the operator; its wait remembers the message, so that an answer is known as one."""
    work = session.work
    message_id = question_id(step.id, step.step.added_seq, session.hive.config.workspace)
    body = f"{question}\n\n(Task {work.task.id}, step {step.step.path}. Answer this message, and the task goes on.)\n"
    report = session.hive.mail.send(
        session.agent,
        [HUMAN],
        f"Question: {work.task.title}",
        body,
        message_id=message_id,
        task=work.task.id,
        step=step.id,
    )
    if report.failed:
        raise ToolProblem(f"the question could not be delivered: {report.failed[HUMAN]}")
    work.waits.asked(step.id, report.message_id)
