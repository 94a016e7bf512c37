"""The state that an agent shows in `status.json`."""

from __future__ import annotations

from hivemind.agent.metering import MeteredMind
from hivemind.agent.scheduler import Scheduler
from hivemind.minds import Turn
from hivemind.presence.status import StatusFile
from hivemind.taskrun.focus import Focus


class StatusReporter:
    """Writes an agent's state, its focus and its usage to the status file."""

    def __init__(self, status: StatusFile, scheduler: Scheduler, mind: MeteredMind) -> None:
        self._status, self._scheduler, self._mind = status, scheduler, mind

    def working(self, focus: Focus) -> None:
        """Show the task and the step of a turn."""
        self._status.update(
            state="working",
            task=None if focus.work is None else focus.work.task.id,
            step=None if focus.step is None else focus.step.step.path,
            unread=len(self._scheduler.letters),
        )

    def called(self, tool: str) -> None:
        """Show the tool that was called last."""
        self._status.update(last_action=tool)

    def progress(self, turn: Turn) -> None:
        """Show the usage, the last call and the number of finished steps."""
        total = self._mind.total
        self._status.update(
            tokens=total.tokens,
            money=total.money,
            unpriced=total.unpriced,
            cached=total.cached,
            last_action=turn.results[-1].call.tool if turn.results else self._status.current.last_action,
            steps_finished=self._scheduler.steps_finished,
        )

    def idle(self) -> None:
        """Show that the agent is idle, and the reason if mail is parked."""
        mail_rest = self._scheduler.letters.rest
        self._status.update(
            state="idle", task=None, step=None, unread=len(self._scheduler.letters),
            mail_rests=mail_rest.reason if mail_rest else None,
            mail_rests_until=mail_rest.until.isoformat() if mail_rest and mail_rest.until else None,
        )  # fmt: skip
