"""The process `exchange` of a hive: transfers tasks, letters and events in both directions (README.md, *The rest*)."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from hivemind.errors import HivemindError
from hivemind.exchange.events import JournalShipper
from hivemind.exchange.foreign_tasks import ForeignTasks
from hivemind.exchange.lessons import transfer_lessons
from hivemind.exchange.letters import Letters
from hivemind.exchange.link import (
    HiveLease,
    HiveLink,
    LinkDown,
    connect_exchange,
    load_link,
    other_hives,
    take_hive_lease,
)
from hivemind.exchange.offers import IdleAgent, Offers
from hivemind.exchange.schema import notify
from hivemind.fs import Doorbell, LockBusy, open_watcher, ring
from hivemind.fs.sockets import wait_for_input
from hivemind.layout import ANY, EXCHANGE
from hivemind.presence.identity import HiveGone, check_hive_exists, holder_pid, lock_name
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile, read_status
from hivemind.presence.watching import ring_all
from hivemind.swarm.overview import agents_now

if TYPE_CHECKING:
    from psycopg import Connection

_ROUND_INTERVAL_S = 10.0  # renew leases and check everything this often, even without a notification
_SHIP_INTERVAL_S = 0.5  # the least time between two shipments of events
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.2, 10.0
_DAY_S = 86_400.0
_log = logging.getLogger(__name__)


def run_exchange(hive: Parts, lifeline: int | None = None) -> int:
    """Run a hive's exchange process until SIGTERM, until `lifeline` closes, or until the link ends. Return the exit status."""
    try:
        lock = lock_name(hive.layout, EXCHANGE)
    except LockBusy as error:
        sys.stderr.write(f"hivemind: {error}\n")
        return 2
    process = _Process(hive, lifeline)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stop())
    try:
        try:
            process.run(lambda: check_hive_exists(lock, hive.layout))
        finally:
            check_hive_exists(lock, hive.layout)  # if the hive is gone, report only that
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
        self._wake_reader, self._wake_writer = os.pipe()
        self._stopping = False
        self.has_unshipped_events = True

    def stop(self) -> None:
        """Make `run` return after the current batch. May be called from a signal handler."""
        self._stopping = True
        os.write(self._wake_writer, b"\0")

    def run(self, check_hive: Any) -> None:
        """Transfer until the process must end or the hive is unlinked. Reconnect after an outage.

        `check_hive` is called before each connection; it raises HiveGone if the hive was moved or removed.
        """
        hive, pause = self.hive, _MIN_PAUSE_S
        hive.mail.ensure(EXCHANGE)
        with (
            Doorbell(hive.layout.doorbells, EXCHANGE) as self._bell,
            open_watcher(hive.config.watch, [], [hive.layout.journal], self._on_journal_change),
        ):
            while not self.is_ending():
                check_hive()
                self.status.beat()
                hive_link = load_link(hive.layout)
                if hive_link is None:
                    return
                started_at = time.monotonic()
                try:
                    with connect_exchange(hive_link.url) as connection:
                        lease = take_hive_lease(connection, hive_link, hive.config.workspace, hive.layout.root)
                        _ExchangeSession(self, connection, hive_link, lease, check_hive).run()
                        lease.release()
                except (HivemindError, OSError) as error:
                    check_hive()  # raises HiveGone if the cause is that the hive is gone
                    if not isinstance(error, LinkDown):
                        _log.warning("%s", error)
                    self._report_outage(error)
                    pause = _MIN_PAUSE_S if time.monotonic() - started_at > _MAX_PAUSE_S else pause
                    self.wait([], pause)
                    pause = min(_MAX_PAUSE_S, pause * 2)

    def _report_outage(self, error: Exception) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        if (previous := self.hive.linked_hives.outage) is not None and previous.endswith(f": {error}"):
            return
        _log.warning("the exchange cannot be reached: %s", error)
        with contextlib.suppress(OSError):
            self.hive.linked_hives.note(away=f"since {since}: {error}")
            ring_all(self.hive)  # agents here may now claim tasks for any hive

    def wait(self, sockets: list[Any], seconds: float) -> None:
        """Wait for the doorbell, a signal, the parent's end, input on one of `sockets`, or the time limit."""
        sources = [self._wake_reader, self._bell, *([] if self.lifeline is None else [self.lifeline]), *sockets]
        wait_for_input(sources, max(0.0, seconds))
        self._bell.wait(0)

    def is_ending(self) -> bool:
        if not self._stopping and self.lifeline is not None:
            self._stopping = bool(wait_for_input([self.lifeline], 0))
        return self._stopping

    def _on_journal_change(self, _: object) -> None:
        if not self.has_unshipped_events:  # ring once until the events are shipped
            self.has_unshipped_events = True
            ring(self.hive.layout.doorbells, EXCHANGE)


class _ExchangeSession:
    """The work of the exchange process over one connection to the database."""

    def __init__(
        self, process: _Process, connection: Connection, hive_link: HiveLink, lease: HiveLease, check_hive: Any
    ) -> None:
        self._process, self._connection, self._link, self._check_hive = process, connection, hive_link, check_hive
        self._lease = lease
        self._hive = hive = process.hive
        self._letters = Letters(hive, connection, hive_link.name)
        self._shipper = JournalShipper(hive, connection, hive_link.name)
        self._offers = Offers(hive, connection, hive_link.name)
        self._foreign = ForeignTasks(hive, connection, hive_link.name)
        self._problems: set[str] = set()  # the problems of hives and roots that were logged
        self._should_look = True  # there may be rows for this hive
        self._should_update_locations = False  # another hive has taken a task; the next shipment looks up which
        self._last_round, self._last_shipping, self._last_cleanup = float("-inf"), float("-inf"), float("-inf")

    def run(self) -> None:
        """Transfer until the process must end or the link changes. Raises psycopg.Error, HivemindError, OSError."""
        process = self._process
        while True:
            ending = process.is_ending()
            self._check_hive()
            process.status.beat()
            if load_link(self._hive.layout) != self._link:
                return
            now = time.monotonic()
            if now - self._last_round >= _ROUND_INTERVAL_S or ending:
                self._last_round = now
                self._run_round()
            more = self._letters.send()
            if self._should_look or more:
                self._should_look = False  # cleared first, so notifications from now on count
                more |= self._letters.receive() | self._letters.bounce() | self._offers.collect_results()
            self._foreign.report_outcomes()
            more |= self._offers.offer()
            more |= self._ship(at_once=ending)
            if not ending and (idle := _idle_agents(self._hive)):
                self._offers.withdraw_for_idle(idle)
                self._foreign.claim_tasks(idle)
            if ending and not more:
                return
            self._should_look |= more
            if not more and not self._read_notifications():
                timeout = _ROUND_INTERVAL_S - (time.monotonic() - self._last_round)
                if process.has_unshipped_events:
                    timeout = min(timeout, _SHIP_INTERVAL_S - (time.monotonic() - self._last_shipping))
                process.wait([self._connection.pgconn.socket], timeout)
                self._read_notifications()

    def _read_notifications(self) -> bool:
        """Read what other hives have sent and note the work that it causes. Return True if there was anything.

        A statement may have read notifications from the socket already, so the socket's state does not tell.
        """
        own_pid = self._connection.info.backend_pid
        payloads = {
            notification.payload for notification in self._connection.notifies(timeout=0) if notification.pid != own_pid
        }
        self._should_look |= bool(payloads)
        if "hives" in payloads:
            self._last_round = float("-inf")
        if "taken" in payloads and not self._should_update_locations:
            self._should_update_locations, self._process.has_unshipped_events = True, True
        return bool(payloads)

    def _ship(self, *, at_once: bool) -> bool:
        process, now = self._process, time.monotonic()
        if not process.has_unshipped_events or (now - self._last_shipping < _SHIP_INTERVAL_S and not at_once):
            return False
        process.has_unshipped_events = False  # cleared first, so events written during the shipment count
        self._last_shipping = now
        if self._should_update_locations:
            self._should_update_locations = False
            self._offers.update_locations()
        more = self._shipper.ship()
        process.has_unshipped_events |= more
        return more

    def _run_round(self) -> None:
        """Do the periodic work: report this hive's state, read the other hives, renew leases, delete old rows."""
        self._process.has_unshipped_events = self._should_look = True  # the watcher may have missed a write
        from psycopg.types.json import Jsonb

        hive = self._hive
        agents = {name: config.role for name, config in hive.agents.items()}
        states = {agent.name: agent.state for agent in agents_now(hive)}
        overview = {"agents": states, "tasks": hive.tasks.listing.counts()}
        self._lease.renew()
        row = self._connection.execute(
            "update hives set seen = now(), overview = %s, agents = %s where name = %s returning"
            " (select before.agents <> hives.agents from hives as before where before.name = hives.name)",
            (Jsonb(overview), Jsonb(agents), self._link.name),
        ).fetchone()
        if row is None:
            raise LinkDown(f"{self._link.name} is no longer linked there: hivemind unlink, then link")
        if row[0]:
            notify(self._connection, ANY, payload="hives")
        hives, problems = other_hives(self._connection, self._link.name)
        problems = {f"a linked hive is ignored: {problem}" for problem in problems}
        problems |= transfer_lessons(hive, self._connection, self._link.name)
        for problem in problems - self._problems:
            _log.warning("%s", problem)
        self._problems = problems
        hive.linked_hives.note(hives=hives, away=self._shipper.problem)
        self._foreign.renew()
        self._offers.reconcile()
        if time.monotonic() - self._last_cleanup > _DAY_S:
            self._last_cleanup = time.monotonic()
            self._letters.delete_old()
            self._offers.delete_old()
            self._shipper.delete_old()


def _idle_agents(hive: Parts) -> list[IdleAgent]:
    """Return this hive's idle agents. Members (MCP clients) are left out, because they claim tasks themselves."""
    agents = []
    for name, config in hive.agents.items():
        status = None if config.outside else read_status(hive.layout.agent_state(name), name)
        if status is not None and status.state == "idle" and holder_pid(hive.layout, name) is not None:
            agents.append(IdleAgent(name, config.role, config.claims == "any"))
    return agents
