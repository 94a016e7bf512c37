"""The process `exchange` of a hive: carries across what is new on either side, and waits (README.md, *The process*)."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from hivemind.errors import HivemindError
from hivemind.exchange.events import Shipping
from hivemind.exchange.foreign_tasks import ForeignTasks
from hivemind.exchange.letters import Letters
from hivemind.exchange.link import HiveLink, HivePlace, LinkDown, load_link, other_hives, reached_out, take_place
from hivemind.exchange.offers import Offers
from hivemind.exchange.schema import tell
from hivemind.fs import Doorbell, HeldLock, open_watcher, ring
from hivemind.fs.sockets import readable
from hivemind.layout import ANY, EXCHANGE
from hivemind.presence.identity import HiveGone, check_here, holder_of, take_name
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile, read_status
from hivemind.presence.watching import ring_all
from hivemind.swarm.overview import agents_now

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["run_exchange"]

_ROUND_S = 10.0  # how often leases are renewed and all is looked at, though nothing was reported
_EVENTS_S = 0.5  # events are shipped no more often than this
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_A_DAY_S = 86_400.0
_log = logging.getLogger(__name__)


def run_exchange(hive: Parts, lifeline: int | None = None) -> int:
    """Be the exchange process of a hive until SIGTERM, the end of `lifeline` or of the link; returns the exit status."""
    try:
        lock = take_name(hive.layout, EXCHANGE)
    except HeldLock as held:
        sys.stderr.write(f"hivemind: {held}\n")
        return 2
    process = _Process(hive, lifeline)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stop())
    try:
        try:
            process.run(lambda: check_here(lock, hive.layout))
        finally:
            check_here(lock, hive.layout)  # what fails, or is over, where the hive was is no news
    except HiveGone as gone:
        sys.stderr.write(f"hivemind: {gone}\n")
        return 2
    finally:
        lock.release()
    return 0


class _Process:
    def __init__(self, hive: Parts, lifeline: int | None) -> None:
        self.hive, self.lifeline = hive, lifeline
        folder = hive.layout.agent_state(EXCHANGE)
        folder.mkdir(parents=True, exist_ok=True)
        self.status = StatusFile(folder, EXCHANGE)
        self._wake, self._wake_end = os.pipe()
        self._stopping = False
        self.written = True  # the journal, since events were last shipped

    def stop(self) -> None:
        """End after what is under way. May be called from a signal's callback."""
        self._stopping = True
        os.write(self._wake_end, b"\0")

    def run(self, check: Any) -> None:
        """Carry, for as long as the hive is linked; connect again whenever the exchange cannot be reached. Raises HiveGone."""
        hive, pause = self.hive, _FIRST_PAUSE_S
        hive.mail.ensure(EXCHANGE)
        with (
            Doorbell(hive.layout.doorbells, EXCHANGE) as self._bell,
            open_watcher(hive.config.watch, [], [hive.layout.journal], self._journal_written),
        ):
            while not self.ending():
                check()
                self.status.beat()
                mine = load_link(hive.layout)
                if mine is None:
                    return
                began = time.monotonic()
                try:
                    with reached_out(mine.url) as connection:
                        place = take_place(connection, mine, hive.config.workspace, hive.layout.root)
                        _Carrying(self, connection, mine, place, check).run()
                        place.leave()
                except (HivemindError, OSError) as error:
                    check()  # else it is the hive that is away
                    if not isinstance(error, LinkDown):
                        _log.warning("%s", error)
                    self._away(error)
                    pause = _FIRST_PAUSE_S if time.monotonic() - began > _LONGEST_PAUSE_S else pause
                    self.wait([], pause)
                    pause = min(_LONGEST_PAUSE_S, pause * 2)

    def _away(self, error: Exception) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        if (known := self.hive.linked.away) is not None and known.endswith(f": {error}"):
            return
        _log.warning("the exchange cannot be reached: %s", error)
        with contextlib.suppress(OSError):
            self.hive.linked.note(away=f"since {since}: {error}")
            ring_all(self.hive)  # tasks for any hive are for agents here now

    def wait(self, also: list[Any], seconds: float) -> None:
        """Wait for a ring, a signal, the parent's end, one of `also`, or a time."""
        ends = [self._wake, self._bell, *([] if self.lifeline is None else [self.lifeline]), *also]
        readable(ends, max(0.0, seconds))
        self._bell.wait(0)

    def ending(self) -> bool:
        if not self._stopping and self.lifeline is not None:
            self._stopping = bool(readable([self.lifeline], 0))
        return self._stopping

    def _journal_written(self, _: object) -> None:
        if not self.written:  # one ring for all that is written until it is shipped
            self.written = True
            ring(self.hive.layout.doorbells, EXCHANGE)


class _Carrying:
    """One connection's time."""

    def __init__(self, process: _Process, connection: Connection, mine: HiveLink, place: HivePlace, check: Any) -> None:
        self._process, self._connection, self._mine, self._check = process, connection, mine, check
        self._place = place
        self._hive = hive = process.hive
        self._letters = Letters(hive, connection, mine.name)
        self._shipping = Shipping(hive, connection, mine.name)
        self._offers = Offers(hive, connection, mine.name)
        self._foreign = ForeignTasks(hive, connection, mine.name)
        self._problems: set[str] = set()  # of hives that are left out, as the log was told
        self._looks = False  # somebody has taken a task; it is looked where, when events are shipped
        self._rounds_at, self._events_at, self._forgotten_at = float("-inf"), float("-inf"), float("-inf")

    def run(self) -> None:
        """Carry until the process ends or the link does. Raises psycopg.Error, HivemindError, OSError."""
        process = self._process
        while True:
            ending = process.ending()
            self._check()
            process.status.beat()
            if load_link(self._hive.layout) != self._mine:
                return
            now = time.monotonic()
            if now - self._rounds_at >= _ROUND_S or ending:
                self._rounds_at = now
                self._round()
            more = self._letters.send() | self._letters.receive() | self._letters.bounce()
            self._foreign.report()
            more |= self._offers.finish() | self._offers.offer()
            more |= self._ship(at_once=ending)
            if not ending and (idle := _idle(self._hive)):
                self._offers.bring_home(idle)
                self._foreign.take(idle)
            if ending and not more:
                return
            if not more:
                left = _ROUND_S - (time.monotonic() - self._rounds_at)
                if process.written:
                    left = min(left, _EVENTS_S - (time.monotonic() - self._events_at))
                process.wait([self._connection.pgconn.socket], left)
            for news in self._connection.notifies(timeout=0):
                if news.payload == "hives":
                    self._rounds_at = float("-inf")
                if news.payload == "taken" and not self._looks:
                    self._looks, process.written = True, True

    def _ship(self, *, at_once: bool) -> bool:
        process, now = self._process, time.monotonic()
        if not process.written or (now - self._events_at < _EVENTS_S and not at_once):
            return False
        process.written = False  # before it is read
        self._events_at = now
        if self._looks:
            self._looks = False
            self._offers.look()
        more = self._shipping.ship()
        process.written |= more
        return more

    def _round(self) -> None:
        """What goes by the clock: a sign of life, who the others are, what is old."""
        self._process.written = True  # a watcher may miss something
        from psycopg.types.json import Jsonb

        hive = self._hive
        agents = {name: config.role for name, config in hive.agents.items()}
        states = {agent.name: agent.state for agent in agents_now(hive)}
        overview = {"agents": states, "tasks": hive.tasks.listing.counts()}
        self._place.renew()
        changed = self._connection.execute(
            "update hives set seen = now(), overview = %s, agents = %s where name = %s returning"
            " (select before.agents <> hives.agents from hives as before where before.name = hives.name)",
            (Jsonb(overview), Jsonb(agents), self._mine.name),
        ).fetchone()
        if changed is None:
            raise LinkDown(f"{self._mine.name} is not linked there any more: hivemind unlink, then link")
        if changed[0]:
            tell(self._connection, ANY, what="hives")
        hives, problems = other_hives(self._connection, self._mine.name)
        for problem in problems - self._problems:
            _log.warning("a hive is left out: %s", problem)
        self._problems = problems
        hive.linked.note(hives=hives, away=self._shipping.problem)
        self._foreign.renew()
        self._offers.check()
        if time.monotonic() - self._forgotten_at > _A_DAY_S:
            self._forgotten_at = time.monotonic()
            self._letters.forget()
            self._offers.forget()
            self._shipping.forget()


def _idle(hive: Parts) -> list[tuple[str, str | None]]:
    """The agents that have nothing to do, with their roles. Programs outside come for tasks themselves."""
    found = []
    for name, config in hive.agents.items():
        status = None if config.outside else read_status(hive.layout.agent_state(name), name)
        if status is not None and status.state == "idle" and holder_of(hive.layout, name) is not None:
            found.append((name, config.role))
    return found
