"""What a task waits for, and how it rests meanwhile: its steps for a time, a mail, a person, another task (kept in its record
under `waits`); itself for others to be over (`wait_for`)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from hivemind.boundary import boundary, checked
from hivemind.errors import HivemindError
from hivemind.frozen import frozen
from hivemind.layout import HUMAN
from hivemind.mail import Message
from hivemind.outcome import Outcome
from hivemind.presence.parts import Parts
from hivemind.tasks import Task

DISK_FULL = "disk full"
LONGEST_PAUSE_S = 600.0
_ROOM_AGAIN_S = 1.0


class Parking(HivemindError):  # no error: the way out of a tool when there is nothing to do but wait
    """Raised by a tool: park the task for this reason, at most until that time (None: until something comes).

    With `again_s` instead of a time nothing says when it is over: look again after so many seconds, and after twice as many
    each time that the reason is still the same, at most every 600. `asks` is the Message-ID of the question that a person
    is asked, if it waits for the answer.
    """

    def __init__(
        self, reason: str, until: datetime | None = None, *, again_s: float | None = None, asks: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.until = until
        self.again_s = again_s
        self.asks = asks


class ProgramAtWork(Parking):
    """Raised by what would end a task whose program is running: that ends its turn first, so that all it reports is counted."""

    def __init__(self) -> None:
        super().__init__("its program ends its turn")


def until_there_is_room() -> Parking:
    """What a full disk is, whatever it met: a pause that grows, and no try of anything."""
    return Parking(DISK_FULL, again_s=_ROOM_AGAIN_S)


@frozen
class ParkedRest:
    """What is parked, from now on. `until` is for people and other processes; `due` is the same in monotonic seconds of
    this process, so that a clock that is set back makes nobody wait longer. `looks` counts parkings for this reason."""

    reason: str
    until: datetime | None
    due: float | None
    looks: int = 1

    @classmethod
    def of(cls, parking: Parking, before: ParkedRest | None = None) -> ParkedRest:
        """The rest that a parking begins, after that `before` it for the same task or mailbox."""
        looks = before.looks + 1 if before is not None and before.reason == parking.reason else 1
        now, until = datetime.now(UTC), parking.until
        if until is None and parking.again_s is not None:
            until = now + timedelta(seconds=min(LONGEST_PAUSE_S, parking.again_s * 2 ** min(looks - 1, 20)))
        due = None if until is None else time.monotonic() + (until - now).total_seconds()
        return cls(parking.reason, until, due, looks)

    @property
    def left_s(self) -> float:
        """Seconds until it is over, by the clock on the wall or by ours, whichever is first; infinite without a time."""
        if self.until is None or self.due is None:
            return float("inf")
        return min((self.until - datetime.now(UTC)).total_seconds(), self.due - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0


@frozen
class TaskWait:
    """What a task waits for; kept in its record under `wait_for`. `until` is when it waits no longer (ISO 8601), `said`
    how much had been added to its text when it began, `letter` the Message-ID of a letter that ends the wait early."""

    tasks: tuple[str, ...]
    mode: Literal["any", "all"]
    until: str | None
    said: int
    letter: str | None = None

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None) -> TaskWait | None:
        """The wait whose fields were kept. Raises Unreadable for anything else."""
        return None if kept is None else checked(cls, kept, "task's wait")

    @property
    def reason(self) -> str:
        """Why the task is parked meanwhile."""
        return f"waits for {'one' if self.mode == 'any' else 'all'} of its tasks: {', '.join(self.tasks)}"

    def ends(self, is_over: Callable[[str], bool]) -> bool:
        """Whether enough of the tasks are over."""
        return (all if self.mode == "all" else any)(map(is_over, self.tasks))

    def hears(self, message: Message, task_id: str) -> TaskWait | None:
        """The wait, ended by a letter: a person's, or a question about a task that it waits for. None: it goes on."""
        by_person = message.sender == HUMAN and message.task in (task_id, *self.tasks)
        asks = message.expects_reply and message.task in self.tasks
        return replace(self, letter=message.id) if (by_person or asks) and self.letter is None else None


def is_over(hive: Parts, parent: Task, task_id: str) -> bool:
    """Whether a task is done or failed; one that was made of a part of `parent` also if a person has deleted it."""
    listing = hive.tasks.listing
    return listing.outcome(task_id) is not None or (task_id in parent.subtasks and not listing.is_open(task_id))


def has_come(hive: Parts, task: Task, reason: str) -> bool:
    """Whether the other tasks have come to their end, or the letter has come, that a task waits for which was parked for
    this reason. Told by what lies on the disk, so that its agent and those who look at it judge alike."""
    wait = TaskWait.of(task.kept.get("wait_for"))
    if wait is not None and wait.reason == reason:
        return wait.letter is not None or wait.ends(lambda one: is_over(hive, task, one))
    awaited = StepWaits(task.kept.get("waits"), lambda _: None).awaited_task(reason)
    listing = hive.tasks.listing
    return awaited is not None and (listing.outcome(awaited[0]) != awaited[1] or not listing.is_known(awaited[0]))


@frozen
class StepWait:
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


def blocked(path: str, reason: str | None, asked: StepWait | None) -> Parking:
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


def question_id(step: str, attempt: int, workspace: str, question: str) -> str:
    """Return the Message-ID of a step's question to a person.

    It is the same when the question is sent again after a crash, and another for another question or another attempt.
    """
    digest = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"ask.{step}.{attempt}.{digest}@{workspace}"


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
            self._waits = {item["step"]: checked(StepWait, item, "task's wait") for item in told["steps"]}
            self._early = {str(sender): str(message) for sender, message in told.get("early", {}).items()}

    def get(self, step: str) -> StepWait | None:
        return self._waits.get(step)

    def begin(self, step: str, until: Mapping[str, Any], now: datetime) -> StepWait:
        """Return the step's wait, and begin it unless the step waits, or has waited, for exactly this.

        Seconds count from the first call, also across a restart.
        """
        kind, subject = next(iter(until.items()))
        lasts, known = None, self._waits.get(step)
        if kind == "seconds":
            with boundary("duration", step):
                lasts = float(subject)
        if known is not None and (
            lasts == known.lasts if lasts is not None else (kind, str(subject)) == (known.kind, known.what)
        ):
            return known
        if lasts is not None:
            with boundary("duration", step):
                kind, subject = "until", (now + timedelta(seconds=lasts)).isoformat()
        answer = self._early.pop(str(subject), None) if kind == "mail" else None
        fields = {"step": step, "kind": kind, "what": str(subject), "answer": answer, "lasts": lasts}
        self._keep(checked(StepWait, fields, "wait", step))
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

    def check(self, step: str, now: datetime, outcome: Callable[[str], Outcome | None]) -> StepWait:
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

    def _due(self, wait: StepWait, now: datetime) -> datetime:
        """When a wait is over, by the clock as it is now: for one that is counted from its beginning by our own time, too."""
        if wait.lasts is None:
            return wait.due
        left = min((wait.due - now).total_seconds(), wait.lasts)
        end = self._ends.setdefault(wait.step, self._monotonic() + left)
        return min(wait.due, now + timedelta(seconds=end - self._monotonic()))

    def awaited_task(self, reason: str) -> tuple[str, Outcome | None] | None:
        """The task that is waited for, if a task was parked for this reason because a step waits for one; and how it had ended
        then: "failed", or not at all."""
        for wait in self._waits.values():
            if wait.kind == "task" and reason in (_for_task(wait.what), _for_failed(wait.what)):
                return wait.what, None if reason == _for_task(wait.what) else "failed"
        return None

    def _keep(self, wait: StepWait) -> None:
        self._waits[wait.step] = wait
        self._save()

    def _save(self) -> None:
        self._keep_all({"steps": [asdict(one) for one in self._waits.values()], "early": self._early})
