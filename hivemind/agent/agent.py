"""An agent: its cycle, and the loop around it."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any

from hivemind.agent.act import act
from hivemind.agent.build import build
from hivemind.agent.lease import FocusLease
from hivemind.agent.lesson_question import learn_from
from hivemind.agent.metering import MeteredMind, open_agents_mind
from hivemind.agent.news import News
from hivemind.agent.pictures import Pictures
from hivemind.agent.program import ProgramRunner, SessionLost
from hivemind.agent.recall import answer, recall
from hivemind.agent.scheduler import Scheduler
from hivemind.agent.scope import scope
from hivemind.agent.select import select
from hivemind.agent.sense import sense
from hivemind.agent.spending import Budget
from hivemind.agent.status_writer import StatusReporter
from hivemind.agent.stop_request import StopRequest
from hivemind.agent.think import think
from hivemind.agent.tidy import tidy
from hivemind.agent.upkeep import Upkeep
from hivemind.agent.window import ContextWindow
from hivemind.agent.working_memory import WorkingMemory
from hivemind.config import BudgetConfig, DayTokenBudget, TaskTokenBudget
from hivemind.errors import HivemindError, UserError
from hivemind.fs import flush_postponed, make_folder, postponing
from hivemind.fs.doorbell import Doorbell, ring
from hivemind.fs.sockets import wait_for_input
from hivemind.layout import EXCHANGE
from hivemind.lessons.record import make_lessons_folder
from hivemind.minds import ContextTooLong, Mind, MindError, MindUnavailable, Patience, Thought, Turn
from hivemind.presence.agent_log import AgentLog
from hivemind.presence.heartbeat import Heartbeat
from hivemind.presence.identity import HiveGone
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile
from hivemind.presence.watching import SUPERVISOR
from hivemind.taskrun.conversation import Conversation, open_thread
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking
from hivemind.tasks import TaskMoved
from hivemind.tools import ToolContext, allowed_tools

TURN_S = 900
_PROVIDER_DOWN_S = 2.0
_SMALLER = 3  # times that a conversation begins again because it is too long
_TOLD_TO_END = "the agent was stopped"
_log = logging.getLogger(__name__)


class Agent:
    """One agent of a hive, in its own process. `run` loops until `stop`; `cycle` is one turn."""

    def __init__(
        self,
        hive: Parts,
        name: str,
        incarnation: int,
        *,
        stop_request: StopRequest | None = None,
        on_idle: Callable[[], object] = lambda: None,
        check: Callable[[], object] = lambda: None,
        mind: Mind | None = None,
    ) -> None:
        """Open the agent. `incarnation` is the number of its process. `on_idle` is called before each wait. `check` raises
        HiveGone if the hive is gone.

        `mind` replaces the agent's own mind, and no budget limits it; replays use this.
        """
        self.hive, self.name = hive, name
        self.config = hive.agents[name]
        folder = hive.layout.agent_state(name)
        make_folder(folder)
        make_lessons_folder(hive.layout)
        self.status = StatusFile(folder, name)
        self.status.update(incarnation=incarnation, mind=str(self.config.mind), budget=self.config.budget.day.tokens)
        self.tools = allowed_tools(self.config)
        self.stop_request = stop_request or StopRequest()
        self.metered_mind = self._metered(mind)
        self.log = AgentLog(folder)
        if (folder / "working-memory.json").exists():
            self.memory.save()  # opened now: an unreadable file is reported at the start
        self.scheduler = Scheduler(hive, name, incarnation)
        self.reporter = StatusReporter(self.status, self.scheduler, self.metered_mind)
        self.lease = FocusLease(hive, name)
        self.pulse = Heartbeat(self._beat, min(1.0, hive.config.hang_after / 4))
        self._threads: dict[str, Conversation] = {}  # of the letters that are open
        self.pictures = Pictures(hive.layout, name, self.metered_mind)
        self._bell = Doorbell(hive.layout.doorbells, name)
        self._on_idle, self._check = on_idle, check
        self._has_reported_idle = False
        self._idle_looks = 0
        self._model_limit: tuple[str, int | None] = ("", None)
        """The task or letter with a request that was too long for the model, and the tokens that its requests may have."""
        self._open_calls: set[str] = set()

    def _metered(self, mind: Mind | None) -> MeteredMind:
        hive, limits, hive_limit = self.hive, self.config.budget, self.hive.config.budget.day
        if mind is None:
            patience = Patience(sleep=self._sleep, on_wait=self._check_thinking)
            mind = open_agents_mind(self.config, hive.config, hive.layout, patience)
        else:
            limits, hive_limit = BudgetConfig(task=TaskTokenBudget(tokens=None)), DayTokenBudget(tokens=None)
        budget = Budget(limits, hive.layout, self.name, hive_limit)
        return MeteredMind(mind, budget, hive.count_tokens)

    # the cycle

    def cycle(self) -> bool:
        """Take one turn: sense, scope, recall, select, build, think, act, tidy. Return False if the agent is idle.

        A mind that works by rule gets the entries from `recall`. For a mind that reads conversations, `select` chooses the
        content of an opening when one is due. `build` begins the conversation with this opening, or appends the news to it. After
        the turn that ends a task, lessons are learned from the task.
        """
        # the first look, and a look at drops that wait
        may_take_long = not self._idle_looks or self.hive.tasks.claims.recheck_count
        with self.pulse.busy(TURN_S) if may_take_long else contextlib.nullcontext(), postponing():
            sense(self.scheduler)
            focus = scope(self.scheduler, self.metered_mind, lambda mail: self.memory.keep_message(mail), self.pictures)
        if focus is None:
            return False
        turn = Turn(self.name, focus)
        by_rule = self.metered_mind.works_by_rule(focus)
        # Other minds take long, and have tools that act outside.
        with self._dropping_lost_task(turn), postponing(is_on=by_rule):
            window = None if by_rule else self.window(focus)
            context = self.tool_context(focus, window)
            with self._staying_alive(turn):
                if window is None:
                    turn.recalled_entries, turn.search_gap, turn.previous_results = recall(focus, self.memory)
                    turn.thought = think(turn, context, window, self.metered_mind, self.lease, self._runner)
                else:
                    turn.thought = self._converse(turn, context, window)
                act(turn, context, window, self.lease, self.news.read_files, self._open_calls)
            learn_from(turn, context, window, self.metered_mind, self._runner)
            if not self._is_stopped_early(turn):
                talk = None if window is None else window.talk
                tidy(turn, context, talk, self.metered_mind, self.scheduler, self.memory, self.log)
                self._close_turn(turn)
        return True

    def _converse(self, turn: Turn, context: ToolContext, window: ContextWindow) -> Thought | None:
        """Select, build, think. Return the thought, or None if a coding agent has already made its calls.

        Start the conversation again if it is too long for the model, or if the coding agent does not know its session.
        """
        cause, is_program = None, self.metered_mind.program is not None
        tries = _SMALLER
        while True:
            epoch = select(context.focus, window, self.memory, cause=cause, keeps_sessions=is_program)
            turn.messages = build(context, window, epoch, self.news, self.metered_mind)
            turn.epoch = None if epoch is None else epoch.cause
            try:
                return think(turn, context, window, self.metered_mind, self.lease, self._runner)
            except ContextTooLong as error:
                if tries == 0:
                    raise
                _log.warning("%s: %s; starting again with half", self.name, error)
                window.shorten()
                tries -= 1
                cause, self._model_limit = "too long", (context.focus.id, window.max_tokens)
            except SessionLost as error:
                _log.warning("%s: %s; starting again", self.name, error)
                cause = "session lost"

    @contextlib.contextmanager
    def _dropping_lost_task(self, turn: Turn) -> Iterator[None]:
        """Forget the turn's task if the block raises TaskMoved: the agent's claim on the task is over."""
        try:
            yield
        except TaskMoved as moved:
            _log.info("%s: %s: %s", self.name, turn.focus.id, moved)
            self.scheduler.handle_error(moved)

    @contextlib.contextmanager
    def _staying_alive(self, turn: Turn) -> Iterator[None]:
        """Keep heartbeat and lease alive during the turn. If the turn ends early, record the reason in the turn."""
        self._has_reported_idle, self._idle_looks = False, 0
        self.reporter.working(turn.focus)
        self.lease.keep(turn.focus)
        with self.pulse.busy(TURN_S):  # the mind, a tool or the first import of the knowledge may take long
            try:
                yield
                self._check()
            except Parking as parking:
                turn.parking = parking
            except MindUnavailable as error:
                until = None if error.after_s is None else datetime.now(UTC) + timedelta(seconds=error.after_s)
                turn.parking = Parking(f"its mind is not available: {error}", until, again_s=_PROVIDER_DOWN_S)
            except MindError as error:
                turn.problem = f"its mind: {error}"
            finally:
                self.lease.let_age()

    def _is_stopped_early(self, turn: Turn) -> bool:
        """Return True if the agent was stopped before its mind could answer. The agent's next process repeats the turn."""
        return turn.parking is not None and turn.thought is None and self.stop_request.is_set()

    def _close_turn(self, turn: Turn) -> None:
        letter = turn.focus.message
        if letter is not None and letter not in self.scheduler.letters:
            self._threads.pop(letter.thread_id, None)  # the thread's next letter reads the file again
        self.reporter.progress(turn)

    # what the steps of the cycle receive

    @property
    def mind(self) -> Mind:
        """The agent's mind. Replace it only before the first turn."""
        return self.metered_mind.mind

    @mind.setter
    def mind(self, mind: Mind) -> None:
        self.metered_mind.mind = mind

    def window(self, focus: Focus) -> ContextWindow:
        """Return the context window for a turn on the task or letter in focus."""
        task = None if focus.work is None else focus.work.task
        of, limit = self._model_limit
        return ContextWindow(
            self.hive, self.name, self.tools, self.memory, self.metered_mind.count, self._talk_about(focus), task,
            model_limit=limit if of == focus.id else None,
        )  # fmt: skip

    def _talk_about(self, focus: Focus) -> Conversation:
        """Return the conversation about the focus: the task's own, or the one about the letter's thread."""
        if focus.work is not None:
            return focus.work.conversation
        assert focus.message is not None
        thread = focus.message.thread_id
        if thread not in self._threads:
            log = open_thread(self.hive.layout, self.name, thread)
            make_folder(os.path.dirname(log.path))
            self._threads[thread] = Conversation(
                log.records(),
                lambda records, sync_now: log.append(*records, sync_now=sync_now, separate_lines=True),
                self.name,
            )
        return self._threads[thread]

    def tool_context(self, focus: Focus, window: ContextWindow | None = None) -> ToolContext:
        """Return the context for the tools of a turn. Its `recall` leaves out texts that the conversation (of the `window`)
        contains."""

        def recall_more(question: str, tokens: int) -> dict[str, Any]:
            is_known = (lambda _: False) if window is None else window.known_text_test()
            return answer(self.memory, focus, is_known, question, tokens)

        return ToolContext(
            hive=self.hive, agent=self.name, config=self.config, focus=focus, pulse=self.pulse, tools=self.tools,
            stopping=self.stop_request.ends_commands, shows_pictures=self.metered_mind.takes_pictures, recall=recall_more,
        )  # fmt: skip

    @cached_property
    def memory(self) -> WorkingMemory:
        """The working memory, opened on first use."""
        return WorkingMemory(self.hive, self.name)

    @cached_property
    def news(self) -> News:
        return News(self.memory, self.pictures)

    @cached_property
    def _runner(self) -> ProgramRunner:
        hear = partial(self.scheduler.deliver_news, keep=self.memory.keep_message)
        return ProgramRunner(self.metered_mind, self.lease, self.stop_request, self.reporter, self.news, hear)

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(self.hive, self.metered_mind.summary_mind, partial(self.pulse.busy, TURN_S))

    # the loop around it

    def run(self) -> None:
        """Take turns until the agent is stopped, and wait while it is idle. Call `ActiveTasks.resume` first.

        Raises HivemindError or OSError for a problem of the agent itself, not of one task or letter.
        """
        with postponing():
            while not self.stop_request.is_set():
                self._check()
                self.status.beat()
                try:
                    has_moved = self.cycle()
                except HiveGone:
                    raise
                except Exception as error:  # the boundary of the process: the task or the letter gets the blame
                    if self.scheduler.focus is None or not self.scheduler.handle_error(error):
                        raise
                    is_fault = not isinstance(error, HivemindError)
                    _log.error("%s: a turn broke: %s", self.name, error, exc_info=is_fault)
                    has_moved = True
                if not has_moved:
                    flush_postponed()
                    self._wait_for_work()

    def learn_late(self, task_id: str) -> None:
        """Learn from the task `task_id` if the agent's last process died after it had ended the task, but before it had
        learned."""
        with contextlib.suppress(UserError):
            if (work := TaskRun.of_ended(self.hive, task_id, self.name)) is not None:
                focus = Focus("rest", work=work)
                window = None if self.metered_mind.works_by_rule(focus) else self.window(focus)
                context = self.tool_context(focus, window)
                learn_from(Turn(self.name, focus), context, window, self.metered_mind, self._runner)

    def stop(self) -> None:
        """Stop after the current action. May be called from a signal handler."""
        self.stop_request.stop()
        self.status.update(state="stopping")  # a kill from now on is not counted against the task

    def _sleep(self, seconds: float) -> None:
        """Wait before the provider is asked again. Raises MindUnavailable if the agent is stopped meanwhile."""
        self._check_thinking()
        if wait_for_input(self.stop_request.descriptors, seconds):
            raise MindUnavailable(_TOLD_TO_END)

    def _check_thinking(self) -> None:
        """Check whether to continue while the mind thinks.

        Raises TaskMoved if the task was taken away, MindUnavailable if the agent is to stop before the turn is over.
        """
        focus = self.scheduler.focus
        if focus and focus.work and focus.work.was_moved:
            raise TaskMoved("the mind was stopped, because its task was taken away", location=focus.id)
        if self.stop_request.is_stopped():
            raise MindUnavailable(_TOLD_TO_END, lost=True)

    def close(self) -> None:
        """Release the leases and locks, save the memory, and report the exit. Open tasks stay on disk for the agent's next
        process."""
        with contextlib.ExitStack() as closing:  # if one part fails, the others are done
            closing.callback(ring, self.hive.layout.doorbells, SUPERVISOR)
            closing.callback(self.status.update, state="exited", task=None, step=None)
            closing.callback(self._bell.close)
            closing.callback(self._save)
            closing.callback(self.metered_mind.close)
            closing.callback(self.scheduler.close)
            closing.callback(self.hive.tasks.close)
            closing.callback(self.pulse.close)
            closing.callback(self.status.update, state="stopping")

    def _beat(self) -> None:
        """Touch the heartbeat file and renew the lease. During long work, the pulse (a thread) calls this method."""
        try:
            self._check()
        except HiveGone:  # ends the work; the turn then raises it too
            self.stop_request.stop(command_s=0.0)
            raise
        self.status.beat()
        self.lease.renew()

    def _save(self) -> None:
        if "memory" in vars(self):
            self.memory.save()

    def _do_upkeep(self) -> bool:
        """Do one piece of upkeep. Return False if no piece was due, or if the piece failed."""
        try:
            return self.upkeep.step()
        except (HivemindError, OSError) as error:  # not urgent: the next change of the documents tries again
            _log.warning("%s: upkeep of the documents: %s", self.name, error)
            return False

    def _wait_for_work(self) -> None:
        """Report that the agent is idle. Do upkeep, then wait for a ring of the doorbell, a stop, the parent's end, or the next
        due time."""
        self.reporter.idle()
        if not self._has_reported_idle:
            ring(self.hive.layout.doorbells, SUPERVISOR)
            ring(self.hive.layout.doorbells, EXCHANGE)
            self._has_reported_idle = True
        self._save()
        self._on_idle()
        limit = min(self.hive.config.heartbeat_s, self.hive.config.hang_after / 3)
        until = time.monotonic() + self.scheduler.next_look_s(limit, self._idle_looks)
        descriptors: list[Any] = [self._bell, *self.stop_request.descriptors]
        while time.monotonic() < until and not wait_for_input(descriptors, 0) and self._do_upkeep():
            self.status.beat()
        ready = wait_for_input(descriptors, max(0.0, until - time.monotonic()))
        self._idle_looks = 0 if self._bell in ready else self._idle_looks + 1
        self._bell.wait(0)
