"""What the steps of a task wait for: a time, a mail, a person, another task. Kept in the task's record under `waits`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from hivemind.boundary import boundary, checked
from hivemind.layout import HUMAN
from hivemind.taskrun.parking import Parking

__all__ = ["StepWaits", "Wait", "blocked", "is_question", "question_id"]


@dataclass(frozen=True, slots=True)
class Wait:
    """One step's wait. `kind` is `until`, `mail`, `human` or `task`; `what` the time (ISO 8601), agent, question or task id.

    `message_id` is the mail that was sent to ask (human); `answer` the Message-ID that ended the wait. `lasts` is how many
    seconds a wait lasts that is counted from its beginning: no longer, whatever becomes of the clock.
    """

    step: str
    kind: Literal["until", "mail", "human", "task"]
    what: str
    message_id: str | None = None
    answer: str | None = None
    lasts: float | None = None

    @property
    def due(self) -> datetime:
        """The time that it waits for."""
        with boundary("time", self.step):
            due = datetime.fromisoformat(self.what)
            return due if due.tzinfo else due.replace(tzinfo=UTC)


def blocked(path: str, reason: str | None, asked: Wait | None) -> Parking:
    """The rest of a task whose step is blocked, with how to answer if a person was asked about it."""
    told = f"step {path} is blocked: {reason}"
    if asked is None or asked.message_id is None or asked.answer is not None:
        return Parking(told)
    return Parking(f"{told} {_how_to_answer(asked.message_id)}", asks=asked.message_id)


def _how_to_answer(message_id: str | None) -> str:
    return f"(answer with: hivemind mail reply human {message_id} TEXT)"


def _for_task(task: str) -> str:
    return f"waits for the task {task} to be done"


def _for_failed(task: str) -> str:
    return f"waits for the task {task}, which has failed (try it again: hivemind task retry {task})"


def question_id(step: str, added_seq: int, workspace: str) -> str:
    """The Message-ID of a step's question to a person. The seq of the step's making tells it from a step of the same id in an
    earlier attempt."""
    return f"ask.{step}.{added_seq}@{workspace}"


def is_question(message_id: str | None, workspace: str) -> bool:
    """Whether a message of that id is a step's question: who replies to it answers, and asks nothing."""
    return message_id is not None and message_id.startswith("ask.") and message_id.endswith(f"@{workspace}")


class StepWaits:
    """The waits of one task, by step."""

    def __init__(
        self,
        kept: Mapping[str, Any] | None,
        keep: Callable[[dict[str, Any]], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kept` is what `keep` was given the last time. Raises Unreadable for what was not."""
        self._monotonic = monotonic
        self._ends: dict[str, float] = {}
        self._keep_all = keep
        with boundary("task's waits"):
            told = kept or {"steps": []}
            self._waits = {item["step"]: checked(Wait, item, "task's wait") for item in told["steps"]}
            self._early = {str(sender): str(message) for sender, message in told.get("early", {}).items()}

    def get(self, step: str) -> Wait | None:
        return self._waits.get(step)

    def begin(self, step: str, until: Mapping[str, Any], now: datetime) -> Wait:
        """The wait of a step, begun at the first call: a number of seconds counts from then, also across a restart."""
        if step not in self._waits:
            kind, what = next(iter(until.items()))
            lasts = None
            if kind == "seconds":
                with boundary("duration", step):
                    lasts = float(what)
                    kind, what = "until", (now + timedelta(seconds=lasts)).isoformat()
            answer = self._early.pop(str(what), None) if kind == "mail" else None
            told = {"step": step, "kind": kind, "what": str(what), "answer": answer, "lasts": lasts}
            self._keep(checked(Wait, told, "wait", step))
        return self._waits[step]

    def asked(self, step: str, message_id: str) -> None:
        self._keep(replace(self._waits[step], message_id=message_id))

    def heard(self, sender: str, message_id: str, in_reply_to: str | None, *, about: bool) -> bool:
        """Take note of a mail; True if a step waited for it: for an answer to its question, or for mail from that agent.

        A mail `about` this task that comes before its step waits is remembered for it.
        """
        if any(wait.answer == message_id for wait in self._waits.values()):
            return True  # given out again after a crash
        for wait in self._waits.values():
            answers = wait.message_id is not None and wait.message_id == in_reply_to and sender == HUMAN
            if wait.answer is None and (answers or (wait.kind == "mail" and wait.what == sender)):
                self._keep(replace(wait, answer=message_id))
                return True
        if about:
            self._early[sender] = message_id
            self._save()
        return False

    def check(self, step: str, now: datetime, outcome: Callable[[str], str | None]) -> Wait:
        """The wait if it is over; raises Parking if it is not. `outcome` says of a task `done`, `failed`, or neither."""
        wait = self._waits[step]
        if wait.kind == "until":
            due = self._due(wait, now)
            if now < due:
                raise Parking(f"waits until {wait.due.isoformat(timespec='seconds')}", due)
        elif wait.kind == "task":
            ended = outcome(wait.what)
            if ended != "done":
                raise Parking((_for_failed if ended == "failed" else _for_task)(wait.what))
        elif wait.answer is None:
            if wait.kind == "human":
                raise Parking(f"asks a person: {wait.what} {_how_to_answer(wait.message_id)}", asks=wait.message_id)
            raise Parking(f"waits for mail from {wait.what}")
        return wait

    def _due(self, wait: Wait, now: datetime) -> datetime:
        """When a wait is over, by the clock as it is now: for one that is counted from its beginning by our own time, too."""
        if wait.lasts is None:
            return wait.due
        left = min((wait.due - now).total_seconds(), wait.lasts)
        end = self._ends.setdefault(wait.step, self._monotonic() + left)
        return min(wait.due, now + timedelta(seconds=end - self._monotonic()))

    def awaited_task(self, reason: str) -> tuple[str, str | None] | None:
        """The task that is waited for, if a task was parked for this reason because a step waits for one; and how it had ended
        then: "failed", or not at all."""
        for wait in self._waits.values():
            if wait.kind == "task" and reason in (_for_task(wait.what), _for_failed(wait.what)):
                return wait.what, None if reason == _for_task(wait.what) else "failed"
        return None

    def _keep(self, wait: Wait) -> None:
        self._waits[wait.step] = wait
        self._save()

    def _save(self) -> None:
        self._keep_all({"steps": [asdict(one) for one in self._waits.values()], "early": self._early})
