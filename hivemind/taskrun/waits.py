"""Waits and parking. A step can wait for a time, a mail, a person or another task (`waits` in the task's record). A task can
wait for the end of other tasks (`wait_for`)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from hivemind.boundary import as_dataclass, boundary
from hivemind.errors import HivemindError
from hivemind.frozen import frozen
from hivemind.layout import HUMAN
from hivemind.mail import Message
from hivemind.outcome import Outcome
from hivemind.pattern import pattern
from hivemind.presence.parts import Parts
from hivemind.tasks import Task

DISK_FULL = "disk full"
LONGEST_PAUSE_S = 600.0
AWAITS_CHOICE = "is green, and waits for the choice among the candidates of "
"""The beginning of the reason for parking a candidate. Its contest alone lets it go on."""
ACCEPTANCE = "Say how to go on; `done` accepts the work, `no` ends the task."
_ROOM_RETRY_S = 1.0
_REPLY_COMMAND = pattern(r"hivemind mail reply human (\S+) TEXT")


class Parking(HivemindError):  # not an error: a tool raises it to park the task
    """Raised by a tool to park the task for `reason`, until the time `until` or earlier news. With `until=None` only news ends
    the wait.

    With `again_s` the agent instead looks again after so many seconds. While the reason stays, it doubles this pause, up to 600
    s. `asks` is the Message-ID of the question if the task waits for a person's answer.
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
    """Raised by a tool that would end the task of a running coding agent: the program ends its turn first, so all its
    usage is counted."""

    def __init__(self) -> None:
        super().__init__("the task's coding agent ends its turn first")


def disk_full_parking() -> Parking:
    """Return the parking for a full disk. Its pause grows. The failed write does not count as a problem of the task."""
    return Parking(DISK_FULL, again_s=_ROOM_RETRY_S)


@frozen
class ParkedRest:
    """The pause in which an agent leaves a parked task or mailbox alone, before it looks at it again.

    `until` is its end by the clock, for people and other processes. `due` is its end in this process's monotonic seconds:
    setting the clock back does not prolong it. Both are None for a pause without an end. `looks` counts the pauses in a row for
    the same reason.
    """

    reason: str
    until: datetime | None
    due: float | None
    looks: int = 1

    @classmethod
    def of(cls, parking: Parking, previous: ParkedRest | None = None) -> ParkedRest:
        """Begin the pause for a parking. `previous` is the last pause of the task or mailbox, None if it was not parked
        before."""
        looks = previous.looks + 1 if previous is not None and previous.reason == parking.reason else 1
        now, until = datetime.now(UTC), parking.until
        if until is None and parking.again_s is not None:
            until = now + timedelta(seconds=min(LONGEST_PAUSE_S, parking.again_s * 2 ** min(looks - 1, 20)))
        due = None if until is None else time.monotonic() + (until - now).total_seconds()
        return cls(parking.reason, until, due, looks)

    @property
    def remaining_s(self) -> float:
        """Seconds until the pause ends by wall clock or monotonic clock, whichever is first; infinite without an end."""
        if self.until is None or self.due is None:
            return float("inf")
        return min((self.until - datetime.now(UTC)).total_seconds(), self.due - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.remaining_s <= 0


@frozen
class TaskWait:
    """A task's wait for other tasks, kept in the task's record under `wait_for`. `until` is the wait's end (ISO 8601), `said` the
    number of texts that had been added to the task when the wait began, `letter` the Message-ID of a letter that ended it."""

    tasks: tuple[str, ...]
    mode: Literal["any", "all"]
    until: str | None
    said: int
    letter: str | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any] | None) -> TaskWait | None:
        """Return the wait that the fields describe, or None without fields. Raises Unreadable for invalid fields."""
        return None if fields is None else as_dataclass(cls, fields, "task's wait")

    @property
    def reason(self) -> str:
        """The reason for parking the task."""
        return f"waits for {'one' if self.mode == 'any' else 'all'} of its tasks: {', '.join(self.tasks)}"

    def ends(self, is_over: Callable[[str], bool]) -> bool:
        """Check whether all, or any, of the tasks are over, as `mode` says."""
        return (all if self.mode == "all" else any)(map(is_over, self.tasks))

    def ended_by(self, message: Message, task_id: str) -> TaskWait | None:
        """Return the ended wait if a letter ends it: from a person, or a question from an awaited task. Return None for
        another letter."""
        by_person = message.sender == HUMAN and message.task in (task_id, *self.tasks)
        asks = message.expects_reply and message.task in self.tasks
        return replace(self, letter=message.id) if (by_person or asks) and self.letter is None else None


def is_over(hive: Parts, parent: Task, task_id: str) -> bool:
    """Check whether a task is done or failed. A subtask of `parent` that a person has deleted counts as over too."""
    return hive.tasks.listing.outcome(task_id) is not None or (
        task_id in parent.subtasks and not hive.tasks.listing.is_open(task_id)
    )


def has_come(hive: Parts, task: Task, reason: str) -> bool:
    """Check whether a task that was parked for `reason` can continue, because awaited tasks are over or a letter has come.
    This reads only files, so the agent and observers get the same answer."""
    wait = TaskWait.of(task.kept.get("wait_for"))
    if wait is not None and wait.reason == reason:
        return wait.letter is not None or wait.ends(lambda awaited_id: is_over(hive, task, awaited_id))
    awaited = StepWaits(task.kept.get("waits"), lambda _: None).awaited_task(reason)
    listing = hive.tasks.listing
    return awaited is not None and (listing.outcome(awaited[0]) != awaited[1] or not listing.is_known(awaited[0]))


def awaits_tasks(task: Task, reason: str) -> bool:
    """Check whether a task that was parked for `reason` waits for other tasks. If an awaited task has failed, the wait is for a
    person, who must retry it."""
    if reason.startswith(AWAITS_CHOICE):
        return True
    wait = TaskWait.of(task.kept.get("wait_for"))
    awaited = StepWaits(task.kept.get("waits"), lambda _: None).awaited_task(reason)
    return (wait is not None and wait.reason == reason) or (awaited is not None and awaited[1] is None)


@frozen
class StepWait:
    """One step's wait. `kind` is `until`, `mail`, `human` or `task`; `what` is the time (ISO 8601), agent, question or task id.

    `message_id` is the question's Message-ID (human), `answer` the Message-ID that ended the wait. `lasts` is the length in
    seconds of a wait that counts from its beginning; it holds even if the clock is changed. `said` is the number of texts that
    had been added to the task when a blocked step asked: the next added text is an answer, too.
    """

    step: str
    kind: Literal["until", "mail", "human", "task"]
    what: str
    message_id: str | None = None
    answer: str | None = None
    lasts: float | None = None
    said: int | None = None

    @property
    def may_end_task(self) -> bool:
        """True if a person's answer to the question may end the task; the question then says so."""
        return self.what.endswith(ACCEPTANCE)

    @property
    def due(self) -> datetime:
        """The end of a wait of kind `until`, as a time with a zone (UTC by default)."""
        with boundary("time", self.step):
            due = datetime.fromisoformat(self.what)
            return due if due.tzinfo else due.replace(tzinfo=UTC)


def blocked_parking(path: str, reason: str | None, wait: StepWait | None) -> Parking:
    """Return the parking of a task in which the step `path` is blocked for `reason`. If a `wait` for a person's answer is open,
    the parking says by which command to answer."""
    message = f"step {path} is blocked: {reason}"
    if wait is None or wait.message_id is None or wait.answer is not None:
        return Parking(message)
    return Parking(f"{message} {_how_to_answer(wait.message_id)}", asks=wait.message_id)


def _how_to_answer(message_id: str | None) -> str:
    return f"(answer with: hivemind mail reply human {message_id} TEXT)"


def _task_reason(task: str) -> str:
    return f"waits for the task {task} to be done"


def _failed_task_reason(task: str) -> str:
    return f"waits for the task {task}, which has failed (try it again: hivemind task retry {task})"


def question_id(step: str, attempt: int, workspace: str, question: str) -> str:
    """Return the Message-ID of a step's question to a person.

    The id is the same if the question is sent again after a crash, and differs for another question or attempt.
    """
    digest = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"ask.{step}.{attempt}.{digest}@{workspace}"


def is_question(message_id: str | None, workspace: str) -> bool:
    """Check whether a Message-ID belongs to a step's question. A reply to it is an answer, not a request."""
    return message_id is not None and message_id.startswith("ask.") and message_id.endswith(f"@{workspace}")


def is_asked_by(task_id: str, message_id: str | None) -> bool:
    """Check whether a question's Message-ID begins with a task's id. If several ids fit, the longest is that of the task that
    asked."""
    return message_id is not None and message_id.startswith(f"ask.{task_id}.")


def find_question(hive: Parts, reason: str) -> Message | None:
    """Return the letter with the question that a parked task's `reason` names; None if the letter is gone."""
    match = _REPLY_COMMAND.search(reason)
    if match is None or not is_question(match[1], hive.config.workspace):
        return None
    try:
        return hive.mail.read(HUMAN, match[1], mark=False)
    except HivemindError:
        return None


class StepWaits:
    """The waits of one task, by step."""

    def __init__(
        self,
        fields: Mapping[str, Any] | None,
        save: Callable[[dict[str, Any]], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Restore the waits from `fields`, the last value that `save` received. Raises Unreadable if it is invalid."""
        self._monotonic = monotonic
        self._ends: dict[str, float] = {}
        self._save_fields = save
        with boundary("task's waits"):
            record = fields or {"steps": []}
            self._waits = {item["step"]: as_dataclass(StepWait, item, "task's wait") for item in record["steps"]}
            self._early = {str(sender): str(message) for sender, message in record.get("early", {}).items()}

    def get(self, step: str) -> StepWait | None:
        return self._waits.get(step)

    def begin(self, step: str, until: Mapping[str, Any], now: datetime) -> StepWait:
        """Begin a step's wait, or return the wait if an equal one has begun. `until` has one item: the kind (`until`, `seconds`,
        `mail`, `task`), and what to wait for.

        A wait in seconds counts from the first call, also across a restart.
        """
        kind, subject = next(iter(until.items()))
        lasts, previous = None, self._waits.get(step)
        if kind == "seconds":
            with boundary("duration", step):
                lasts = float(subject)
        if previous is not None and (
            lasts == previous.lasts if lasts is not None else (kind, str(subject)) == (previous.kind, previous.what)
        ):
            return previous
        if lasts is not None:
            with boundary("duration", step):
                kind, subject = "until", (now + timedelta(seconds=lasts)).isoformat()
        answer = self._early.pop(str(subject), None) if kind == "mail" else None
        fields = {"step": step, "kind": kind, "what": str(subject), "answer": answer, "lasts": lasts}
        self._keep(as_dataclass(StepWait, fields, "wait", step))
        return self._waits[step]

    def ask(self, step: str, question: str, said: int) -> StepWait:
        """Begin a blocked step's wait for a person's answer, or return the wait if it has begun with this question. `said` is the
        number of texts added to the task so far."""
        wait = self._waits.get(step)
        if wait is None or wait.answer is not None or wait.what != question:
            self._keep(StepWait(step, "human", question, said=said))
        return self._waits[step]

    def take_said(self, count: int) -> list[StepWait]:
        """End and return the waits of blocked steps that a new text answers: they began when the task had fewer than `count`
        added texts."""
        waits = [wait for wait in self._waits.values() if wait.answer is None and wait.said is not None]
        ended_waits = [replace(wait, answer=f"said.{count}") for wait in waits if (wait.said or 0) < count]
        for wait in ended_waits:
            self._keep(wait)
        return ended_waits

    def may_end_task(self, message_id: str | None) -> bool:
        """Check whether the answer with this Message-ID may end the task."""
        return any(wait.message_id == message_id and wait.may_end_task for wait in self._waits.values())

    def record_question(self, step: str, message_id: str) -> None:
        self._keep(replace(self._waits[step], message_id=message_id))

    def take_mail(self, sender: str, message_id: str, in_reply_to: str | None, *, about: bool) -> bool:
        """Record a letter. Return True if a step waited for it, as the answer to a question or as mail from `sender`.

        Otherwise return False. If the letter is `about` this task, it is remembered for a step that begins to wait for mail from
        `sender` later.
        """
        if any(wait.answer == message_id for wait in self._waits.values()):
            return True  # delivered again after a crash
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
        """Return a step's wait if it is over; raise Parking if not. `outcome` returns `done` or `failed` for a task, or None
        before its end."""
        wait = self._waits[step]
        if wait.kind == "until":
            due = self._due(wait, now)
            if now < due:
                raise Parking(f"waits until {wait.due.isoformat(timespec='seconds')}", due)
        elif wait.kind == "task":
            end_state = outcome(wait.what)
            if end_state != "done":
                raise Parking((_failed_task_reason if end_state == "failed" else _task_reason)(wait.what))
        elif wait.answer is None:
            if wait.kind == "human":
                raise Parking(f"asks a person: {wait.what} {_how_to_answer(wait.message_id)}", asks=wait.message_id)
            raise Parking(f"waits for mail from {wait.what}")
        return wait

    def _due(self, wait: StepWait, now: datetime) -> datetime:
        """Return the end of a wait. For a wait of some length, correct it by monotonic time if the wall clock was changed."""
        if wait.lasts is None:
            return wait.due
        remaining_s = min((wait.due - now).total_seconds(), wait.lasts)
        end = self._ends.setdefault(wait.step, self._monotonic() + remaining_s)
        return min(wait.due, now + timedelta(seconds=end - self._monotonic()))

    def awaited_task(self, reason: str) -> tuple[str, Outcome | None] | None:
        """Return the task that a step awaits for this `reason`, and its outcome then ("failed", or None before its end). Return
        None if no step awaits a task for this reason."""
        for wait in self._waits.values():
            if wait.kind == "task" and reason in (_task_reason(wait.what), _failed_task_reason(wait.what)):
                return wait.what, None if reason == _task_reason(wait.what) else "failed"
        return None

    def _keep(self, wait: StepWait) -> None:
        self._waits[wait.step] = wait
        self._save()

    def _save(self) -> None:
        self._save_fields({"steps": [asdict(wait) for wait in self._waits.values()], "early": self._early})
