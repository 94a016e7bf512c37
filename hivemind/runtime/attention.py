"""Attention: what has come in, what is in hand, and what one turn is about."""

from __future__ import annotations

from collections.abc import Collection

from hivemind.coordination import State, StepLease, StepLeaseHeld
from hivemind.mail import Message
from hivemind.runtime.act import Acted
from hivemind.runtime.focus import Focus
from hivemind.runtime.letters import Letters
from hivemind.runtime.parking import Parking, Rest
from hivemind.runtime.parts import Parts
from hivemind.runtime.review import read_verdict
from hivemind.runtime.scope import focus_on
from hivemind.runtime.waits import blocked
from hivemind.runtime.work import Work
from hivemind.tasks import TaskMoved

__all__ = ["Attention"]

MAX_TROUBLE = 3
_TASK_LOOK_S = 1.0  # how often a step that waits for another task looks whether that is done
_LEASE_PAUSE_S = 5.0


class Attention:
    """One agent's inbox of messages and its tasks in hand. The mailbox goes first: others may be waiting for an answer."""

    def __init__(self, hive: Parts, name: str, incarnation: int) -> None:
        self._hive, self._name, self._incarnation = hive, name, incarnation
        self._role = hive.agents[name].role
        self.letters = Letters(hive, name)
        self._works: dict[str, Work] = {}
        self._parked: dict[str, Rest] = {}
        self._trouble: dict[str, int] = {}
        self.focus: Focus | None = None
        self.steps_finished = 0

    def works(self) -> Collection[Work]:
        return self._works.values()

    def resume(self) -> None:
        """Take up again what this agent had in hand when its last process ended."""
        for task in self._hive.tasks.mine(self._name, self._incarnation):
            self._works[task.id] = Work(self._hive, task, self._name)
        self._tell_what_was_not_told()

    def _tell_what_was_not_told(self) -> None:
        """Write the events of tasks that a process claimed or closed and then died before it could tell the journal."""

        def look(state: State) -> set[str]:
            return {entry.task for entry in state.tasks.values() if entry.agent_id == self._name and not entry.over}

        told = self._hive.journal.view(look)
        for work in self._works.values():
            if work.task.id not in told:
                self._tell_claim(work)
            work.begin()
        for task in sorted(told - self._works.keys()):
            for outcome, folder in (("done", self._hive.layout.done), ("failed", self._hive.layout.failed)):
                if (folder / task).is_dir():
                    self._hive.steps.end_task(task, outcome, agent_id=self._name)

    def _tell_claim(self, work: Work) -> None:
        self._hive.journal.append("task.claimed", task_id=work.task.id, agent_id=self._name, title=work.task.title)

    # sense

    def sense(self) -> None:
        """Take in new mail."""
        self.focus = None  # what breaks here is on nobody's account
        self.letters.sense(self.hear)

    def hear(self, message: Message) -> bool:
        """A message may be what a task waits for: a verdict on its answer, or an answer to a step's question (True)."""
        awaited = False
        for work in list(self._works.values()):
            if not work.task.path.exists():  # moved away by a person; `_ready` drops it
                continue
            review = work.review
            if (
                review.state == "asked"
                and message.in_reply_to == review.message_id
                and message.sender == review.reviewer
            ):
                verdict = read_verdict(message.body)
                if verdict is not None:
                    work.set_review(review.with_(state=verdict[0], problems=verdict[1]))
                    self._unpark(work)
            verdict_mail = message.in_reply_to is not None and message.in_reply_to == review.message_id
            about = message.task == work.task.id and not verdict_mail
            if work.waits.heard(message.sender, message.id, message.in_reply_to, about=about):
                awaited = True
                work.unblock(message.sender)
                self._unpark(work)
        return awaited

    # scope

    def scope(self) -> Focus | None:
        """What this turn is about: the oldest message, else a task in hand that can go on, else a new task, else None."""
        self.focus = None
        message = self.letters.first()
        if message is not None:
            self.focus = Focus("reply_mail", message=message, heard=self.letters.is_awaited(message))
        else:
            work = self._next_work() or self.claim()
            if work is not None:
                self.focus = focus_on(work)
        return self.focus

    def _next_work(self) -> Work | None:
        ready = [work for work in list(self._works.values()) if self._ready(work)]
        return min(ready, key=lambda work: (work.task.priority, work.task.id), default=None)

    def _ready(self, work: Work) -> bool:
        if not work.task.path.exists():  # a person has moved it away: it is not ours any more
            self.drop(work)
            return False
        parked = self._parked.get(work.task.id)
        if parked is None:
            return True
        if parked.is_over or work.waits.task_is_done(self._hive.tasks.is_done):
            self._unpark(work)
            return True
        return False

    def claim(self, task_id: str | None = None) -> Work | None:
        """Claim the next task for this agent, or a certain one: the task in hand, or None if there is nothing for it.

        Raises UserError if that one is not waiting, or not for this agent.
        """
        if len(self._works) >= self._hive.config.max_active:
            return None
        if task_id is None:
            task = self._hive.tasks.claim(self._name, self._role, self._incarnation)
        else:
            task = self._hive.tasks.claim_one(self._name, task_id, self._role, self._incarnation)
        if task is None:
            return None
        work = self._works[task.id] = Work(self._hive, task, self._name)
        self._tell_claim(work)
        work.begin()
        return work

    # the lease

    def lease(self, focus: Focus) -> StepLease | None:
        """The lease of the step in focus, taken or kept. Raises Parking if another agent or a person holds it."""
        if focus.blocked is not None:
            asked = None if focus.work is None else focus.work.waits.get(focus.blocked.id)
            raise blocked(focus.blocked.step.path, focus.blocked.step.blocked_reason, asked)
        if focus.step is None:
            return None
        try:
            return self._hive.leases.claim(focus.step.id, self._name)
        except StepLeaseHeld as held:
            holder = held.lease.holder_agent_id
            raise Parking(f"step {focus.step.step.path} is leased by {holder}", again_s=_LEASE_PAUSE_S) from None

    def keep_lease(self, step_id: str, generation: int) -> None:
        """Renew a lease at half its time. Raises CoordinationError if it is lost."""
        lease = self._hive.leases.get(step_id)
        if lease is None or lease.expires_seq - self._hive.journal.seq <= (lease.expires_seq - lease.acquired_seq) // 2:
            self._hive.leases.renew(step_id, self._name, generation)

    # after a turn

    def after(self, focus: Focus, acted: Acted, did_anything: bool) -> None:
        """Draw the consequences: a message is read, a task parked, ended, or in trouble."""
        if focus.message is not None:
            self.letters.after(focus.message, acted, did_anything)
        elif focus.work is not None:
            self._after_work(focus.work, acted, did_anything)

    def _after_work(self, work: Work, acted: Acted, did_anything: bool) -> None:
        finished = [record for record in acted.records if record["tool"] == "finish_step" and "error" not in record]
        self.steps_finished += len(finished)
        if work.ended:
            self.drop(work)
        elif acted.parking is not None:
            self._park(work, acted.parking)
        elif acted.problem is not None or not did_anything:
            self._in_trouble(work, acted.problem or "its mind sees nothing to do")
        else:
            self._trouble.pop(work.task.id, None)

    def _in_trouble(self, work: Work, problem: str) -> None:
        """The same task again and again with a problem: it fails, and says which."""
        key = work.task.id
        self._trouble[key] = self._trouble.get(key, 0) + 1
        if self._trouble[key] >= MAX_TROUBLE:
            work.fail(problem)
            self.drop(work)

    def broke(self, error: Exception) -> bool:
        """A turn broke with an exception that nobody expected. True if that could be put on the account of its focus."""
        focus = self.focus
        if focus is None:
            return False
        reason = f"{type(error).__name__}: {error}"
        if focus.message is not None:
            self.letters.failed(focus.message, reason)
        elif focus.work is not None:
            if isinstance(error, TaskMoved):
                self.drop(focus.work)
            else:
                self._in_trouble(focus.work, reason)
        return True

    # parking

    def _park(self, work: Work, parking: Parking) -> None:
        rest = self._parked[work.task.id] = Rest.of(parking)
        self._hive.tasks.park(work.task, rest.reason, rest.until)
        self._hive.journal.append(
            "task.parked", task_id=work.task.id, agent_id=self._name, reason=rest.reason,
            until=None if rest.until is None else rest.until.isoformat(),
            **({} if parking.asks is None else {"asks": parking.asks}),
        )  # fmt: skip
        self._release(work)

    def _unpark(self, work: Work) -> None:
        if self._parked.pop(work.task.id, None) is not None:
            self._hive.tasks.unpark(work.task)

    def _release(self, work: Work) -> None:
        mine = [lease for lease in self._hive.leases.list(self._name) if lease.step_id in {s.id for s in work.steps()}]
        for lease in mine:
            self._hive.leases.release(lease.step_id, self._name)

    def drop(self, work: Work) -> None:
        """Let go of a task that has ended here, was moved away or was handed over."""
        self._release(work)
        self._works.pop(work.task.id, None)
        self._parked.pop(work.task.id, None)
        self._trouble.pop(work.task.id, None)

    # resting and ending

    def next_moment(self, limit_s: float, looks: int) -> float:
        """Seconds until a parked task is due or a half-written file may have come to rest, at most `limit_s`.

        `looks` is how often we have looked in vain since something moved: what stays half-written is looked at ever less.
        """
        waits = [rest.left_s for rest in self._parked.values()]
        if self.letters.rest is not None and self.letters:
            waits.append(self.letters.rest.left_s)
        if any(work.waits.for_task() for work in self._works.values()):
            waits.append(_TASK_LOOK_S)
        if self._hive.tasks.restless or self.letters.unsettled:
            waits.append(max(0.02, self._hive.config.settle_ms / 1000) * 2 ** min(looks, 20))
        return max(0.0, min([limit_s, *waits]))

    def close(self) -> None:
        self.letters.close()
        self._hive.leases.release_all(self._name)
