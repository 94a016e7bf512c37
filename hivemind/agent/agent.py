"""An agent: its cycle, and the loop around it (spec 1, *The agent's cycle*)."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from hivemind.agent.act import Acted, act
from hivemind.agent.budget import Budget, hives_account
from hivemind.agent.desk import Desk
from hivemind.agent.scheduler import Scheduler
from hivemind.agent.upkeep import Upkeep
from hivemind.agent.usage import Usages, open_agents_mind
from hivemind.config import BudgetConfig
from hivemind.errors import HivemindError
from hivemind.fs import make_folder
from hivemind.fs.doorbell import Doorbell, ring
from hivemind.fs.ready import readable
from hivemind.minds import ContextTooLong, Mind, MindError, MindUnavailable, Patience, Thought, ToolSchema
from hivemind.presence.agent_log import AgentLog
from hivemind.presence.heartbeat import Heartbeat
from hivemind.presence.identity import HiveGone, announce_life
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile
from hivemind.presence.watching import SUPERVISOR
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.parking import Parking
from hivemind.tasks import TaskMoved
from hivemind.tools import Session, allowed_tools

__all__ = ["Agent"]

TURN_S = 900
_PROVIDER_DOWN_S = 2.0
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
        self.tools = allowed_tools(self.config.tools)
        if mind is None:
            durable = hive.config.durable
            shared = hives_account(hive.layout, hive.config.shared_budget, durable=durable)
            budget = Budget(self.config.budget, folder, shared, durable=durable)
        else:
            budget = Budget(BudgetConfig(), folder)
        mind = mind or open_agents_mind(self.config, hive.config, hive.layout, Patience(sleep=self._sleep))
        self.usages = Usages(mind, budget, hive.count_tokens, AgentLog(folder))
        if (folder / "memory").exists():
            self.desk.save()  # opened now: what cannot be read is said at the start
        self.attention = Scheduler(hive, name, incarnation)
        self.pulse = Heartbeat(self._beat, min(1.0, hive.config.hang_after / 4))
        self.lifeline = lifeline
        self._bell = Doorbell(hive.layout.doorbells, name)
        self._wake, self._wake_end = os.pipe()
        for end in (self._wake, self._wake_end):
            weakref.finalize(self, os.close, end)
        self._resting, self._check = resting, check
        self._stopping = False
        self._told_idle = False
        self._looks = 0

    @property
    def mind(self) -> Mind:
        """What thinks for it; to be replaced only before its first turn."""
        return self.usages.base

    @mind.setter
    def mind(self, mind: Mind) -> None:
        self.usages.base = mind

    @cached_property
    def schemas(self) -> list[ToolSchema]:
        return [tool.schema() for tool in self.tools.values()]

    @cached_property
    def desk(self) -> Desk:
        """Its working memory, opened when there is something to do: a swarm has many agents that never have."""
        return Desk(self.hive, self.name, self.schemas, self.usages)

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(self.hive, lambda: self.usages.mind_of(None))

    # the cycle

    def cycle(self) -> bool:
        """One turn: sense, scope, recall, score, select, build, think, act, tidy. False if there was nothing to do."""
        self.attention.sense()
        focus = self.attention.scope()
        if focus is None:
            return False
        self._shows(focus)
        with self.pulse.busy(TURN_S):  # a question, a tool, a first reading of the knowledge may take long
            try:
                self._turn(focus)
            except TaskMoved as moved:  # by a person, or it has failed because of what became of its record
                _log.info("%s: %s", self.name, moved)
                self.attention.broke(moved)
        return True

    def _turn(self, focus: Focus) -> None:
        try:
            thought = self.think(focus)
            acted = self.act(focus, thought)
            self._check()
        except Parking as parking:
            thought, acted = Thought(), Acted((), parking=parking)
        except MindUnavailable as error:
            if self.leaving():  # asked no longer because of that: whoever goes on takes the turn anew
                return
            until = None if error.after_s is None else datetime.now(UTC) + timedelta(seconds=error.after_s)
            down = Parking(f"its mind is not available: {error}", until, again_s=_PROVIDER_DOWN_S)
            thought, acted = Thought(), Acted((), parking=down)
        except MindError as error:
            thought, acted = self.desk.useless(str(error)), Acted((), problem=f"its mind: {error}")
        self._leased = None
        if not self.attention.only_looked(focus, acted):
            self.desk.tidy(focus, acted, thought)
        self.attention.after(focus, acted, bool(thought.actions))
        self._told(acted)

    def think(self, focus: Focus) -> Thought:
        """Ask the mind; once more with a shorter context, if that was too long for it.

        Raises Parking if the budget is used up, MindUnavailable if what the mind needs is down, MindError if its answer is
        none.
        """
        try:
            return self._think(focus)
        except ContextTooLong as error:
            _log.warning("%s: %s; asked once more with a shorter one", self.name, error)
            self.desk.shorten()
            return self._think(focus)

    def _think(self, focus: Focus) -> Thought:
        self._leased = self.attention.leased(focus)
        context = self.desk.lay_out(focus, self.attention.works())
        return self.usages.think(focus.work, context, self.schemas, self.desk.tokens)

    def act(self, focus: Focus, thought: Thought) -> Acted:
        """Do what the mind wants, under the step's lease. Raises Parking if another holds the step."""
        lease = self.attention.lease(focus)
        self._leased = None if lease is None else (lease.step_id, lease.generation)
        if focus.work is not None:
            focus.work.lease = lease
        session = Session(
            hive=self.hive,
            agent=self.name,
            config=self.config,
            focus=focus,
            pulse=self.pulse,
            lifeline=self.lifeline,
            stopping=lambda: self._stopping,
        )
        acted = act(session, self.tools, thought.actions)
        self._leased = None
        return acted

    # the loop around it

    def run(self) -> None:
        """Take turns until told to end; rest where there is nothing to do. `attention.resume` comes first.

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
                if self.attention.focus is None or not self.attention.broke(error):
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

    def leaving(self) -> bool:
        """True once it was told to end, or its parent is gone."""
        if not self._stopping and self.lifeline is not None:
            self._stopping = bool(readable([self.lifeline], 0))
        return self._stopping

    def _sleep(self, seconds: float) -> None:
        """A pause before a provider is asked again. Raises MindUnavailable if the agent is told to end meanwhile."""
        waited_for = [self._wake] + ([] if self.lifeline is None else [self.lifeline])
        if self._stopping or readable(waited_for, seconds):
            raise MindUnavailable("the agent was told to end")

    def close(self) -> None:
        """Give back what others may wait for; what is in hand stays on disk and goes on from there."""
        with contextlib.ExitStack() as closing:  # whatever of it fails, the rest is done
            closing.callback(ring, self.hive.layout.doorbells, SUPERVISOR)
            closing.callback(self.status.update, state="exited", task=None, step=None)
            closing.callback(self._bell.close)
            closing.callback(self._save)
            closing.callback(self.usages.close)
            closing.callback(self.attention.close)
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
                self.attention.keep_lease(*self._leased)
                announce_life(self.hive.journal, self.hive.layout, self.name)
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
            unread=len(self.attention.letters),
        )

    def _told(self, acted: Acted) -> None:
        now = self.status.current
        self.status.update(
            tokens=self.usages.total.tokens,
            money=self.usages.total.money,
            unpriced=self.usages.total.unpriced,
            last_action=acted.last or now.last_action,
            steps_finished=self.attention.steps_finished,
        )

    def _save(self) -> None:
        if "desk" in vars(self):
            self.desk.save()

    def _keeps_up(self) -> bool:
        """One piece of the upkeep that somebody has to do; False if there is none, or if it fails."""
        try:
            with self.pulse.busy(TURN_S):
                return self.upkeep.step()
        except (HivemindError, OSError) as error:  # nobody waits for it; the next change of the documents tries again
            _log.warning("%s: upkeep of the documents: %s", self.name, error)
            return False

    def _rest(self) -> None:
        """Say that there is nothing to do, and wait for a ring, a signal, the parent's end, or a time."""
        rest = self.attention.letters.rest
        self.status.update(
            state="idle", task=None, step=None, unread=len(self.attention.letters),
            mail_rests=rest.reason if rest else None,
            mail_rests_until=rest.until.isoformat() if rest and rest.until else None,
        )  # fmt: skip
        if not self._told_idle:
            ring(self.hive.layout.doorbells, SUPERVISOR)
            self._told_idle = True
        self._save()
        self._resting()
        limit = min(self.hive.config.heartbeat_s, self.hive.config.hang_after / 3)
        until = time.monotonic() + self.attention.next_moment(limit, self._looks)
        descriptors: list[Any] = [self._bell, self._wake] + ([] if self.lifeline is None else [self.lifeline])
        while not readable(descriptors, 0) and self._keeps_up():
            self.status.beat()
        ready = readable(descriptors, max(0.0, until - time.monotonic()))
        self._looks = 0 if self._bell in ready else self._looks + 1
        self._bell.wait(0)
