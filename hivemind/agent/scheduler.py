"""The scheduler: takes in letters, claims tasks, and chooses the letter or task of each turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hivemind.agent.active_tasks import ActiveTasks
from hivemind.agent.opening import letter
from hivemind.agent.unread_mail import UnreadMail
from hivemind.errors import HivemindError, is_disk_full
from hivemind.layout import HUMAN
from hivemind.mail import Message
from hivemind.minds import Turn
from hivemind.presence.parts import Parts
from hivemind.taskrun.focus import Focus, focus_on
from hivemind.taskrun.replies import read_verdict
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import disk_full_parking, is_asked_by, is_question
from hivemind.tasks import TaskMoved, TaskState

_TASK_LOOK_S = 1.0  # between two looks of a step that waits for another task
ShowPictures = Callable[[Message], Sequence[Mapping[str, str]]]


class Scheduler:
    """One agent's letters and claimed tasks. Letters and tasks alternate: neither waits until the other is finished.

    If `takes_mail` is False, no mail is taken in (replays).
    """

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
        self.focus = None  # an error here is not the fault of a letter or a task
        if self.takes_mail:
            self.letters.sense(self.deliver)

    def deliver(self, message: Message) -> str | None:
        """Deliver a letter to the tasks that wait for it: a verdict on a result, or an answer to a step's question.

        Return the id of the task that waited, or None. Return "" for a person's answer for which no task waits here: it is passed
        on to the agent that had asked, and starts no turn.
        """
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
        if awaiting_task == "":
            self._pass_on(message)
        return awaiting_task

    def _pass_on(self, answer: Message) -> None:
        """Copy a person's answer from this agent's mailbox to the agent whose task had asked, if that is another agent."""
        tasks = [task for task in self._hive.tasks.list(TaskState.ACTIVE) if is_asked_by(task.id, answer.in_reply_to)]
        asker = max(tasks, key=lambda task: len(task.id)).owner if tasks else None
        if asker in self._hive.agents and asker != self._name:
            self._hive.mail.copy_to(asker, answer)

    def _deliver_to(self, work: TaskRun, message: Message) -> bool:
        review = work.review
        verdict_mail = message.in_reply_to is not None and message.in_reply_to == review.message_id
        if review.state == "asked" and verdict_mail and message.sender == review.reviewer:
            verdict = read_verdict(message.answer)
            if verdict is not None:
                work.set_review(replace(review, state=verdict[0], problems=verdict[1]), unpark=True)
                self.active_tasks.unpark(work)
        is_about_task = message.task == work.task.id and not verdict_mail
        if work.note_letter(message):  # the result of the wait mentions it
            self.active_tasks.unpark(work)
            return True
        if message.sender == HUMAN and (message.automatic or not (message.answer.strip() or message.attachments)):
            return False  # nor does an out-of-office reply answer
        if not work.waits.take_mail(message.sender, message.id, message.in_reply_to, about=is_about_task):
            return False
        if message.sender == HUMAN and message.in_reply_to is not None:
            self._hive.mail.mark_answered(HUMAN, message.in_reply_to)  # an answer written by hand flags no letter
            if work.waits.may_end_task(message.in_reply_to):
                work.end_by(message.answer, message.sender)
        work.unblock(message.sender)
        self.active_tasks.unpark(work)
        return True

    def deliver_news(self, work: TaskRun, keep: Callable[[Message], object]) -> None:
        """Take in new mail while a program works on a task. Pass the letters about this task to `keep` and close them; they
        become news in its conversation."""
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
        """Choose the subject of this turn: the oldest letter that needs a turn, a task that can continue, or a new task.

        Letters and tasks alternate. Return None without a letter or task. Letters that need no turn are passed to
        `keep`. `reads` says that the mind reads conversations. `pictures` returns the pictures of a letter.
        """
        self.focus = None
        while (message := self.letters.first(needs_turn=False)) is not None:
            focus = self._focus_on_letter(message)
            # By rule only a person's or a stranger's letter is answered, and only if no task waited for the letter.
            is_asked = not focus.heard and (message.is_from_person or focus.stranger)
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
        self.focus = Focus("finish_step", work=work)  # it is to blame if its plan cannot be read
        if reads:
            work.begin_without_steps()
        return focus_on(work, reads=reads)

    def _needs_turn(self, focus: Focus, message: Message, pictures: ShowPictures) -> bool:
        """Return True if a letter needs a turn of a mind that reads conversations: it is from a person, from a stranger
        who may be answered, or expects a reply.

        A letter about a claimed task becomes news in the task's conversation instead.
        """
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
        return not focus.heard and (message.is_from_person or focus.stranger or message.expects_reply)

    # after a turn

    def only_looked(self, turn: Turn) -> bool:
        """Return True if the turn changed nothing: its task, or the mail, was parked and is parked again for the same reason."""
        if turn.parking is None or turn.results or turn.thought is not None:
            return False
        if turn.focus.work is not None:
            return self.active_tasks.is_parked_for(turn.focus.work, turn.parking)
        return self.letters.rest is not None and self.letters.rest.reason == turn.parking.reason

    def end_turn(self, turn: Turn) -> None:
        """Apply the consequences of a turn to its letter or task: close, park or drop it, or count a problem."""
        if turn.focus.message is not None:
            self.letters.end_turn(turn.focus.message, turn)
            self._mail_is_next = turn.parking is not None  # a postponed letter had no turn
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
        """Count an unexpected error as a problem of the letter or task in focus. Return False if none is in focus."""
        focus = self.focus
        if focus is None:
            return False
        reason = str(error) if isinstance(error, HivemindError) else f"{type(error).__name__}: {error}"
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
        """Return the seconds until a parked task is due or a half-written file may be complete, at most `limit_s`.

        `idle_looks` is the number of looks in a row that found nothing: with each, the pause before a half-written file doubles.
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
        """Release the agent's leases, and close the record of taken letters."""
        try:
            self._hive.leases.release_all(self._name)
        finally:
            self.letters.close()
