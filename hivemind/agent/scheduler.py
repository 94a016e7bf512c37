"""Scheduler: what has come in, what is in hand, and what one turn is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hivemind.agent.active_tasks import ActiveTasks
from hivemind.agent.opening import letter
from hivemind.agent.unread_mail import UnreadMail
from hivemind.errors import is_disk_full
from hivemind.layout import HUMAN
from hivemind.mail import Message
from hivemind.minds import Turn
from hivemind.presence.parts import Parts
from hivemind.taskrun.focus import Focus, focus_on
from hivemind.taskrun.review import read_verdict
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import disk_full_parking, is_question
from hivemind.tasks import TaskMoved

_TASK_LOOK_S = 1.0  # how often a step that waits for another task looks whether that is done
ShowPictures = Callable[[Message], Sequence[Mapping[str, str]]]


class Scheduler:
    """One agent's letters and its tasks in hand: they take turns, so that neither waits for the other to be through. With
    `hears` off no mail is taken in (replays)."""

    def __init__(self, hive: Parts, name: str, incarnation: int) -> None:
        self._hive, self._name = hive, name
        self.letters = UnreadMail(hive, name)
        self.active_tasks = ActiveTasks(hive, name, incarnation)
        self.focus: Focus | None = None
        self.steps_finished = 0
        self.takes_mail = True
        self._mail_is_next = True

    # sense

    def sense(self) -> None:
        """Take in new mail."""
        self.focus = None  # what breaks here is on nobody's account
        if self.takes_mail:
            self.letters.sense(self.deliver)

    def deliver(self, message: Message) -> str | None:
        """The id of the task that waits for a message: a verdict on its answer, or an answer to a step's question. Empty for
        an answer that no step waits for any more: a second answer is no question."""
        is_answer = is_question(message.in_reply_to, self._hive.config.workspace)
        awaiting_task = "" if is_answer and message.sender == HUMAN else None
        for work in list(self.active_tasks.runs):
            if not work.task.path.exists():  # moved away by a person; `ActiveTasks.next` drops it
                continue
            try:
                if self._deliver_to(work, message):
                    awaiting_task = work.task.id
            except TaskMoved:
                self.active_tasks.drop(work)
        return awaiting_task

    def _deliver_to(self, work: TaskRun, message: Message) -> bool:
        review = work.review
        verdict_mail = message.in_reply_to is not None and message.in_reply_to == review.message_id
        if review.state == "asked" and verdict_mail and message.sender == review.reviewer:
            verdict = read_verdict(message.answer)
            if verdict is not None:
                work.set_review(replace(review, state=verdict[0], problems=verdict[1]), unpark=True)
                self.active_tasks.unpark(work)
        is_about_task = message.task == work.task.id and not verdict_mail
        if work.note_letter(message):  # it is told with what the task waited for
            self.active_tasks.unpark(work)
            return True
        if not work.waits.take_mail(message.sender, message.id, message.in_reply_to, about=is_about_task):
            return False
        if message.sender == HUMAN and message.in_reply_to is not None:
            self._hive.mail.mark_answered(HUMAN, message.in_reply_to)  # written by hand it has flagged nothing
        work.unblock(message.sender)
        self.active_tasks.unpark(work)
        return True

    def deliver_news(self, work: TaskRun, keep: Callable[[Message], object]) -> None:
        """Take in new mail while a program works on a task: what belongs to that is told in its conversation."""
        self.letters.sense(self.deliver)
        for message in self.letters.open_messages():
            task_id = self.letters.task_of(message)
            if task_id is not None and work.concerns(task_id):
                self._needs_turn(self._focus_on_letter(message), message, lambda _: ())
                keep(message)
                self.letters.close_letter(message)

    # scope

    def scope(
        self, *, reads: bool, keep: Callable[[Message], object] = lambda _: None, pictures: ShowPictures = lambda _: ()
    ) -> Focus | None:
        """What this turn is about: by turns the oldest message that needs one, and a task in hand that can go on or else a new
        one; None if there is neither. Mail that asks nothing takes no turn: `keep` is given it. `reads` says that the mind
        reads conversations; `pictures` returns those of a letter that it is shown."""
        self.focus = None
        while (message := self.letters.first(needs_turn=False)) is not None:
            focus = self._focus_on_letter(message)
            # By rule only a person's letter, or a stranger's, is answered, and only if no task waited for it.
            is_asked = not focus.heard and (message.origin == "human" or focus.stranger)
            if focus.asks_review or (self._needs_turn(focus, message, pictures) if reads else is_asked):
                self.letters.mark_for_turn(message)
            else:
                keep(message)
                self.letters.close_letter(message)
        if self._mail_is_next:
            self.focus = self._next_letter() or self._next_task(reads=reads)
        else:
            self.focus = self._next_task(reads=reads) or self._next_letter()
        self._mail_is_next = self.focus is None or self.focus.message is None
        return self.focus

    def _focus_on_letter(self, message: Message) -> Focus:
        stranger = not self._hive.mail.is_known_sender(message.sender)
        files = () if stranger else self._hive.mail.save_attachments(message)
        heard = self.letters.is_awaited(message)
        return Focus("reply_mail", message=message, heard=heard, stranger=stranger, files=files)

    def _next_letter(self) -> Focus | None:
        message = self.letters.first(needs_turn=True)
        return None if message is None else self._focus_on_letter(message)

    def _next_task(self, *, reads: bool) -> Focus | None:
        work = self.active_tasks.next() or self.active_tasks.claim()
        if work is None:
            return None
        self.focus = Focus("finish_step", work=work)  # whose account it is, should its plan not be wait_for_input
        if reads:
            work.begin_without_steps()
        return focus_on(work, reads=reads)

    def _needs_turn(self, focus: Focus, message: Message, pictures: ShowPictures) -> bool:
        """Whether a mind that reads is woken by a message: one from a person, from a stranger who may be answered, or one that
        expects a reply. What belongs to a task in hand is news in its conversation."""
        task_id = self.letters.task_of(message)
        work = next((run for run in self.active_tasks.runs if task_id is not None and run.concerns(task_id)), None)
        if work is not None:
            is_result = focus.heard and work.conversation.pending_calls  # as the result of the call that waits
            if not is_result and message.id not in work.conversation.letters:
                is_from_colleague = message.origin == "agent" and message.task in (work.task.id, work.task.parent)
                author = "person" if message.origin == "human" else message.sender
                text = letter(message, colleague=is_from_colleague)
                work.conversation.add_news(text, pictures(message), letter=message.id, by=author)
                self.active_tasks.unpark(work)
            return False
        is_from_person = message.origin == "human" or (message.trusted and message.sender.startswith(f"{HUMAN}@"))
        return not focus.heard and (is_from_person or focus.stranger or message.expects_reply)

    # after a turn

    def only_looked(self, turn: Turn) -> bool:
        """Whether a turn did nothing but find that what rests still has to, for the reason that was told already."""
        if turn.parking is None or turn.results or turn.thought is not None:
            return False
        if turn.focus.work is not None:
            return self.active_tasks.is_parked_for(turn.focus.work, turn.parking)
        return self.letters.rest is not None and self.letters.rest.reason == turn.parking.reason

    def end_turn(self, turn: Turn) -> None:
        """Draw the consequences: a message is read, a task parked, ended, or in trouble."""
        if turn.focus.message is not None:
            self.letters.end_turn(turn.focus.message, turn)
            self._mail_is_next = turn.parking is not None  # what was only put off was no turn
        elif turn.focus.work is not None:
            self._end_task_turn(turn.focus.work, turn)

    def _end_task_turn(self, work: TaskRun, turn: Turn) -> None:
        finish_results = [result for result in turn.results if result.call.tool == "finish_step" and result.ok]
        self.steps_finished += len(finish_results)
        if work.is_ended or work.handed_to:
            self.active_tasks.drop(work)
            return
        was_interrupted = turn.taken_up or any(result.value.get("interrupted") for result in turn.results)
        if finish_results or (turn.results and turn.problem is None and not was_interrupted):
            work.reset_crashes()
        if turn.parking is not None:
            self.active_tasks.park(work, turn.parking)
        elif turn.problem is not None:
            self.active_tasks.count_problem(work, turn.problem)
        else:
            self.active_tasks.clear_problems(work)

    def handle_error(self, error: Exception) -> bool:
        """A turn broke with an exception that nobody expected. True if that could be put on the account of its focus."""
        focus = self.focus
        if focus is None:
            return False
        reason = f"{type(error).__name__}: {error}"
        if is_disk_full(error):
            self.end_turn(Turn(self._name, focus, parking=disk_full_parking()))
        elif focus.message is not None:
            self.letters.count_problem(focus.message, reason)
        elif focus.work is not None:
            if isinstance(error, TaskMoved):
                self.active_tasks.drop(focus.work)
            else:
                self.active_tasks.count_problem(focus.work, reason)
        return True

    # resting and ending

    def next_look_s(self, limit_s: float, idle_looks: int) -> float:
        """Seconds until a parked task is due or a half-written file may have come to rest, at most `limit_s`.

        `looks` is how often we have looked in vain since something moved: what stays half-written is looked at ever less.
        """
        waits = [limit_s, self.active_tasks.remaining_s]
        if self.letters.rest is not None and self.letters:
            waits.append(self.letters.rest.remaining_s)
        if self.active_tasks.has_task_wait:
            waits.append(_TASK_LOOK_S)
        if self._hive.tasks.claims.recheck_count or self.letters.unsettled:
            waits.append(max(0.02, self._hive.config.settle_ms / 1000) * 2 ** min(idle_looks, 20))
        return max(0.0, min(waits))

    def close(self) -> None:
        """Give the leases back, and the intake's record."""
        try:
            self._hive.leases.release_all(self._name)
        finally:
            self.letters.close()
