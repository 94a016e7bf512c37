"""An agent: its cycle, and the loop around it (spec 8)."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any

from hivemind.agent.act import act
from hivemind.agent.budget import Budget, Usages, open_agents_mind
from hivemind.agent.build import build
from hivemind.agent.news import ReadFiles
from hivemind.agent.opening import quoted, system_message
from hivemind.agent.recall import answer, recall
from hivemind.agent.scheduler import Scheduler
from hivemind.agent.scope import scope
from hivemind.agent.select import LEAST_ROOM, select
from hivemind.agent.sense import sense
from hivemind.agent.think import think
from hivemind.agent.tidy import tidy
from hivemind.agent.upkeep import Upkeep
from hivemind.agent.working_memory import SelectedMemory, WorkingMemory
from hivemind.boundary import Unreadable, boundary
from hivemind.config import BudgetConfig, DayTokenBudget, TaskTokenBudget
from hivemind.errors import HivemindError
from hivemind.fs import make_folder
from hivemind.fs.doorbell import Doorbell, ring
from hivemind.fs.sockets import wait_for_input
from hivemind.layout import EXCHANGE
from hivemind.mail import Message
from hivemind.minds import Mind, MindError, MindUnavailable, Patience, ToolSchema, Turn
from hivemind.minds.agents import AgentMind
from hivemind.minds.extractive import ExtractiveMind
from hivemind.minds.pictures import PICTURE_TOKENS, save_picture
from hivemind.presence.agent_log import AgentLog
from hivemind.presence.heartbeat import Heartbeat
from hivemind.presence.identity import HiveGone, record_heartbeat
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile
from hivemind.presence.watching import SUPERVISOR
from hivemind.taskrun.conversation import Conversation, open_thread
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.waits import Parking
from hivemind.tasks import TaskMoved
from hivemind.tools import TOOLS, Session, allowed_tools

TURN_S = 900
_PROVIDER_DOWN_S = 2.0
_TOLD_TO_END = "the agent was told to end"
_PICTURES = 4  # of one letter
_log = logging.getLogger(__name__)


class Agent:
    """One agent of a hive, in its own process. `run` loops until `stop`; `cycle` is one turn."""

    def __init__(
        self,
        hive: Parts,
        name: str,
        incarnation: int,
        *,
        lifeline: int | None = None,
        resting: Callable[[], object] = lambda: None,
        check: Callable[[], object] = lambda: None,
        mind: Mind | None = None,
    ) -> None:
        """`resting` is called whenever it has nothing to do, before it waits; `check` raises HiveGone. With a `mind` of
        another's it thinks with that one, on no budget (replays)."""
        self.hive, self.name = hive, name
        self.config = hive.agents[name]
        folder = hive.layout.agent_state(name)
        make_folder(folder, durable=hive.config.durable)
        self.status = StatusFile(folder, name)
        self.status.update(incarnation=incarnation, mind=str(self.config.mind), budget=self.config.budget.day.tokens)
        self.tools = allowed_tools(self.config)
        limits, shared = self.config.budget, hive.config.budget.day
        if mind is not None:
            limits, shared = BudgetConfig(task=TaskTokenBudget(tokens=None)), DayTokenBudget(tokens=None)
        budget = Budget(limits, hive.layout, name, shared, durable=hive.config.durable)
        patience = Patience(sleep=self._sleep, on_wait=self._check_asked)
        mind = mind or open_agents_mind(self.config, hive.config, hive.layout, patience)
        self.usages = Usages(mind, budget, hive.count_tokens)
        self.log = AgentLog(folder)
        self.selected: SelectedMemory | None = None
        self.failed_starts = 0
        """How often in a row its program has ended with an error before it did anything."""
        self.begins: str | None = None
        if (folder / "working-memory.json").exists():
            self.memory.save()  # opened now: what cannot be read is said at the start
        self.scheduler = Scheduler(hive, name, incarnation)
        self.pulse = Heartbeat(self._beat, min(1.0, hive.config.hang_after / 4))
        self.lifeline = lifeline
        self._bell = Doorbell(hive.layout.doorbells, name)
        self._wake, self._wake_end = os.pipe()
        for end in (self._wake, self._wake_end):
            weakref.finalize(self, os.close, end)
        self._resting, self._check = resting, check
        self._stopping, self._finishing = False, False
        self._told_idle = False
        self._looks = 0
        self._taken: tuple[str, int] | None = None
        self.asked: set[str] = set()  # calls that its mind asked for in this process and that have no result
        self.read_files = ReadFiles()
        self._threads: dict[str, Conversation] = {}  # about letters that are not over

    # the cycle

    def cycle(self) -> bool:
        """One turn: sense, scope, recall, select, build, think, act, tidy. False if there was nothing to do."""
        turn = Turn(self.name)
        long = (
            not self._looks or self.hive.tasks.claims.recheck_count
        )  # a first look, or one at drops that wait, may take long
        with self.pulse.busy(TURN_S) if long else contextlib.nullcontext():
            sense(self, turn)
            scope(self, turn)
        if turn.focus.kind == "nothing":
            return False
        with self._while_it_is_ours(turn):
            with self._taking(turn):
                recall(self, turn)
                select(self, turn)
                build(self, turn)
                think(self, turn)
                act(self, turn)
            tidy(self, turn)
        return True

    @contextlib.contextmanager
    def _while_it_is_ours(self, turn: Turn) -> Iterator[None]:
        """A task that was moved by a person, or has failed because of what became of its record, is let go."""
        try:
            yield
        except TaskMoved as moved:
            _log.info("%s: %s: %s", self.name, turn.focus.id, moved)
            self.scheduler.broke(moved)

    @contextlib.contextmanager
    def _taking(self, turn: Turn) -> Iterator[None]:
        """Vouch for the turn while it lasts, and note on it why it ended early."""
        for one in ("system", "fixed_tokens"):
            vars(self).pop(one, None)
        self._shows(turn.focus)
        self._leased = self.scheduler.leased(turn.focus)
        with self.pulse.busy(TURN_S):  # a question, a tool, a first reading of the knowledge may take long
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
                self._leased, self.begins = None, None

    def gives_up(self, turn: Turn) -> bool:
        """Whether it was told to end while its mind could not be asked: the process that goes on takes the turn again."""
        return turn.parking is not None and turn.thought is None and self.leaving()

    # what the steps of the cycle ask

    @property
    def mind(self) -> Mind:
        """What thinks for it; to be replaced only before its first turn."""
        return self.usages.base

    @mind.setter
    def mind(self, mind: Mind) -> None:
        self.usages.base = mind

    @property
    def reads(self) -> bool:
        """Whether its mind reads conversations, and does not work by rule."""
        return not getattr(self.mind, "by_rule", False)

    @property
    def program(self) -> AgentMind | None:
        """The coding agent that it runs, if its mind is one."""
        return self.mind if isinstance(self.mind, AgentMind) else None

    @property
    def max_turns(self) -> int:
        """Turns that a task may take before a person is asked."""
        own = None if self.program is None else self.program.config.max_turns
        return own or self.config.max_turns

    @property
    def wakes(self) -> list[int]:
        """Descriptors that can be read once it was told to end, or its parent is gone."""
        return [self._wake] + ([] if self.lifeline is None else [self.lifeline])

    @cached_property
    def rule(self) -> Mind:
        """The mind that works by rule: its own, or the one that checks quotes for any agent."""
        return ExtractiveMind() if self.reads else self.mind

    @property
    def takes_pictures(self) -> bool:
        return bool(getattr(self.mind, "takes_pictures", False))

    def pictures_of(self, message: Message) -> list[dict[str, str]]:
        """The pictures that a letter has with it, for a mind that takes them: kept, since a letter may be deleted."""
        layout = self.hive.layout
        folder = layout.agent_state(self.name) / "pictures"
        attached = message.attachments[:_PICTURES] if self.takes_pictures else ()
        kept = (save_picture(layout.root, folder, one.content) for one in attached)
        return [one for one in kept if one is not None]

    def works_by_rule(self, turn: Turn) -> bool:
        """Whether the turn is taken by rule: by such a mind, or because it is about quotes that are to be checked."""
        return not self.reads or turn.focus.asks_review

    @cached_property
    def schemas(self) -> list[ToolSchema]:
        return [tool.schema() for tool in self.tools.values()]

    @cached_property
    def memory(self) -> WorkingMemory:
        """Its working memory, opened when there is something to do: a swarm has many agents that never have."""
        return WorkingMemory(self.hive, self.name)

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(
            self.hive,
            lambda: self.rule if self.program is not None else self.usages.mind_for(None, None),
            partial(self.pulse.busy, TURN_S),
        )

    @cached_property
    def system(self) -> str:
        """The system message: the same for every task, until a rule of the hive is changed; read once a turn."""
        return system_message(self.name, self.config, self.tools, self.memory.rom())

    @cached_property
    def fixed_tokens(self) -> int:
        """The tokens of what every request has: the system message and the tools."""
        return self.usages.count(self.system) + self.usages.count(json.dumps(self.schemas))

    def tokens_of(self, talk: Conversation) -> int:
        """The tokens of a request with a conversation as it stands."""
        told = sum(self.usages.count(one.text) for one in talk.messages[1:])
        asked = sum(self.usages.count(json.dumps(call.as_record())) for one in talk.messages for call in one.calls)
        pictures = sum(len(one.parts) for one in talk.messages) * PICTURE_TOKENS
        return self.fixed_tokens + told + asked + pictures

    def most_tokens(self, turn: Turn) -> int:
        """The tokens that a request may have: by the agent's file, the task, and what its model has taken."""
        work = turn.focus.work
        taken = self._taken[1] if self._taken is not None and self._taken[0] == turn.focus.id else None
        bounds = [self.config.max_tokens, taken, None if work is None else work.task.max_tokens]
        return min(bound for bound in bounds if bound is not None)

    def shorten(self, turn: Turn, talk: Conversation) -> None:
        """A request was too long for the model: from now on half of it is the most here, and the conversation begins anew."""
        half = (self.tokens_of(talk) - self.fixed_tokens) // 2
        self._taken = turn.focus.id, self.fixed_tokens + max(LEAST_ROOM, half)
        self.begins = "too long"

    def rested_s(self, turn: Turn) -> float:
        """Seconds since the last message of the conversation."""
        talk = self.conversation(turn)
        with contextlib.suppress(Unreadable), boundary("time"):
            return time.time() - datetime.fromisoformat(talk.messages[-1].at).timestamp()
        return 0.0

    def conversation(self, turn: Turn) -> Conversation:
        """The conversation that the turn goes on: the task's, or, of a mind that reads, that of a thread of mail."""
        work, message = turn.focus.work, turn.focus.message
        if work is not None:
            found: Conversation = work.conversation
            return found
        assert message is not None
        if message.thread_id not in self._threads:
            self._threads[message.thread_id] = self._thread(message.thread_id)
        return self._threads[message.thread_id]

    def _thread(self, about: str) -> Conversation:
        """The conversation of a thread of mail, by the Message-ID with which it began."""
        log = open_thread(self.hive.layout, self.name, about, durable=self.hive.config.durable)
        make_folder(os.path.dirname(log.path), durable=self.hive.config.durable)
        return Conversation(
            log.records(),
            lambda records, durable: log.append(*records, sync_now=durable, separate_lines=True),
            self.name,
        )

    def let_go(self, message: Message) -> None:
        """Keep no conversation about a letter that is over: the next one of its thread reads the file."""
        if message not in self.scheduler.letters:
            self._threads.pop(message.thread_id, None)

    def session(self, turn: Turn) -> Session:
        """What tools work with in this turn."""
        return Session(
            hive=self.hive,
            agent=self.name,
            config=self.config,
            focus=turn.focus,
            pulse=self.pulse,
            stopping=self.stopping,
            tools=self.tools,
            shows_pictures=self.takes_pictures,
            recall=lambda question, tokens: answer(self.memory, turn.focus, self.stands(turn), question, tokens),
        )

    def stands(self, turn: Turn) -> Callable[[str], bool]:
        """Returns whether a text stands in the conversation that its mind reads, told to it or written by it."""
        texts: list[str] = []
        for one in () if self.works_by_rule(turn) else self.conversation(turn).messages:
            texts += [one.text, *(str(given) for call in one.calls for given in call.arguments.values())]
        return lambda content: any(form in text for form in {content.strip(), quoted(content)} for text in texts)

    def take_lease(self, focus: Focus) -> None:
        """Take or keep the lease of the step in focus. Raises Parking if another agent or a person holds it."""
        lease = self.scheduler.lease(focus)
        self._leased = None if lease is None else (lease.step_id, lease.generation)
        if focus.work is not None:
            focus.work.lease = lease

    def ask_person(self, turn: Turn, why: str) -> None:
        """Have a person judge a task that does not come to an end: its step is blocked with the question."""
        step = turn.focus.step
        self.conversation(turn).add_news(f"{why} The operator is asked whether it shall go on.")
        if step is None:
            turn.parking = Parking(f"{why} hivemind task say {turn.focus.id} TEXT lets it go on.")
            return
        reason = {"step": step.id, "reason": f"{why} Shall it go on?"}
        try:
            TOOLS["block_step"].call(self.session(turn), reason)
        except HivemindError as error:
            turn.parking = error if isinstance(error, Parking) else Parking(f"{why} ({error})")

    def memory_tidy(self, ended: str | None) -> None:
        if "memory" in vars(self):
            self.memory.tidy(ended=ended)

    # the loop around it

    def run(self) -> None:
        """Take turns until told to end; rest where there is nothing to do. `ActiveTasks.resume` comes first.

        Raises HivemindError or OSError for what is in the way of the agent itself, and belongs to no task or message.
        """
        while not self.leaving():
            self._check()
            self.status.beat()
            try:
                moved = self.cycle()
            except HiveGone:
                raise
            except (
                Exception
            ) as error:  # the boundary of the process: what fails again and again is put aside, not retried
                if self.scheduler.focus is None or not self.scheduler.broke(error):
                    raise
                _log.exception("%s: a turn broke", self.name)
                moved = True
            if not moved:
                self._rest()

    def stop(self) -> None:
        """End after the current action. May be called from a signal's callback."""
        self._stopping = True
        os.write(self._wake_end, b"\0")
        self.status.update(state="stopping")  # whoever loses patience and kills it does not do so because of its task

    def finish(self) -> None:
        """End after the current turn, whatever that takes. May be called from a signal's callback."""
        self._finishing = True
        os.write(self._wake_end, b"\0")

    def stopping(self) -> bool:
        """True once it was told to end after the current action, or its parent is gone."""
        if not self._stopping and self.lifeline is not None:
            self._stopping = bool(wait_for_input([self.lifeline], 0))
        return self._stopping

    def leaving(self) -> bool:
        """True once it was told to end, now or after the turn, or its parent is gone."""
        return self.stopping() or self._finishing

    def _sleep(self, seconds: float) -> None:
        """A pause before a provider is asked again. Raises MindUnavailable if the agent is told to end meanwhile."""
        self._check_asked()
        if wait_for_input(self.wakes, seconds):
            raise MindUnavailable(_TOLD_TO_END)

    def _check_asked(self) -> None:
        """Called while its mind thinks. Raises TaskMoved if the task that it thinks about was taken away, MindUnavailable if it
        was told to end before the turn is over."""
        focus = self.scheduler.focus
        if focus and focus.work and focus.work.was_moved:
            raise TaskMoved("its mind was stopped: its task was taken away", location=focus.id)
        if self.stopping():
            raise MindUnavailable(_TOLD_TO_END, lost=True)

    def close(self) -> None:
        """Give back what others may wait for; what is in hand stays on disk and goes on from there."""
        with contextlib.ExitStack() as closing:  # whatever of it fails, the rest is done
            closing.callback(ring, self.hive.layout.doorbells, SUPERVISOR)
            closing.callback(self.status.update, state="exited", task=None, step=None)
            closing.callback(self._bell.close)
            closing.callback(self._save)
            closing.callback(self.usages.close)
            closing.callback(self.scheduler.close)
            closing.callback(self.hive.tasks.close)
            closing.callback(self.pulse.close)
            closing.callback(self.status.update, state="stopping")

    # showing

    _leased: tuple[str, int] | None = None

    def _beat(self) -> None:
        """Called by the pulse during long work: a sign of life, and the lease is renewed before it ages."""
        try:
            self._check()
        except HiveGone:  # the work ends, and the turn meets it too
            self._stopping = True
            raise
        self.status.beat()
        if self._leased is not None:
            try:
                self.scheduler.keep_lease(*self._leased)
                record_heartbeat(self.hive.journal, self.hive.layout, self.name)
            except HivemindError as error:  # taken over meanwhile: the write that follows is refused, and says so
                _log.warning("%s: %s", self.name, error)
                self._leased = None

    def _shows(self, focus: Focus) -> None:
        self._told_idle, self._looks = False, 0
        step = focus.step.step.path if focus.step is not None else None
        self.status.update(
            state="working",
            task=focus.work.task.id if focus.work else None,
            step=step,
            unread=len(self.scheduler.letters),
        )

    def tell_status(self, turn: Turn) -> None:
        now = self.status.current
        self.status.update(
            tokens=self.usages.total.tokens,
            money=self.usages.total.money,
            unpriced=self.usages.total.unpriced,
            cached=self.usages.total.cached,
            last_action=turn.results[-1].call.tool if turn.results else now.last_action,
            steps_finished=self.scheduler.steps_finished,
        )

    def _save(self) -> None:
        if "memory" in vars(self):
            self.memory.save()

    def _keeps_up(self) -> bool:
        """One piece of the upkeep that somebody has to do; False if there is none, or if it fails."""
        try:
            return self.upkeep.step()
        except (HivemindError, OSError) as error:  # nobody waits for it; the next change of the documents tries again
            _log.warning("%s: upkeep of the documents: %s", self.name, error)
            return False

    def _rest(self) -> None:
        """Say that there is nothing to do, and wait for a ring, a signal, the parent's end, or a time."""
        rest = self.scheduler.letters.rest
        self.status.update(
            state="idle", task=None, step=None, unread=len(self.scheduler.letters),
            mail_rests=rest.reason if rest else None,
            mail_rests_until=rest.until.isoformat() if rest and rest.until else None,
        )  # fmt: skip
        if not self._told_idle:
            ring(self.hive.layout.doorbells, SUPERVISOR)
            ring(self.hive.layout.doorbells, EXCHANGE)
            self._told_idle = True
        self._save()
        self._resting()
        limit = min(self.hive.config.heartbeat_s, self.hive.config.hang_after / 3)
        until = time.monotonic() + self.scheduler.next_moment(limit, self._looks)
        descriptors: list[Any] = [self._bell, *self.wakes]
        while not wait_for_input(descriptors, 0) and self._keeps_up():
            self.status.beat()
        ready = wait_for_input(descriptors, max(0.0, until - time.monotonic()))
        self._looks = 0 if self._bell in ready else self._looks + 1
        self._bell.wait(0)
