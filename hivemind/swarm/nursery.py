"""The warm parent that agents are forked from: imports done, vocabulary loaded, one thread, nothing open.

A fork of it is ready in a few milliseconds and shares the pages that it does not change (`gc.freeze()` keeps the
collector from touching them). Every page that an agent writes to is copied, and a reference counts as writing: what
agents do alike at their start costs least where `warm` has done it for all of them. It forks, signals and reaps on the
supervisor's word, over a socket; when the supervisor is gone, the socket closes and the nursery ends its children. It
signals nobody else.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hivemind.fs.sockets import readable
from hivemind.guarded import start_host

END_WITHIN_S = 4.0
_AT_ONCE = 100  # names of 64 bytes: a packet has room for them
_WARM_FOR_S = 1.0  # agents that are started together share one look at what is new
RunAgent = Callable[[str, int], int]
"""Runs one agent in this process: (name, file descriptor that closes when the parent is gone) -> exit status."""


class Nursery:
    """The supervisor's end: starts the nursery's process, sends it orders, receives its reports."""

    def __init__(self, warm: Callable[[], None], run_agent: RunAgent) -> None:
        """Fork the nursery. Call this before this process starts threads or opens what a fork must not share.

        `warm` is called in it first of all, and again before agents are forked later: then it should be quick. It may
        leave no thread, lock or database behind.
        """
        mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _close_all_but(other.fileno())
            nursery_main(other, warm, run_agent)
        other.close()
        self.socket = mine

    def start(self, names: Sequence[str]) -> None:
        """Have agents forked, one right after the other: a report names each with its pid."""
        for at in range(0, len(names), _AT_ONCE):
            self._order({"start": names[at : at + _AT_ONCE]})

    def warm(self) -> None:
        """Have the nursery warm up again, before it forks anybody else."""
        self._order({"warm": True})

    def signal(self, name: str, number: int) -> None:
        """Have the nursery signal its child of that name, if it lives."""
        self._order({"signal": number, "name": name})

    def reports(self) -> list[dict[str, Any]] | None:
        """What has been reported and not been read yet; None once the nursery is gone."""
        found: list[dict[str, Any]] = []
        while readable([self.socket], 0):
            try:
                packet = self.socket.recv(65_536)
            except ConnectionError:
                packet = b""
            if not packet:
                return found or None
            found.append(json.loads(packet))
        return found

    def close(self) -> None:
        """Let the nursery end its children and itself, and wait for that."""
        self.socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _order(self, order: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # a nursery that is gone is noticed through `reports`
            self.socket.send(json.dumps(order).encode())


def _close_all_but(kept: int) -> None:
    """Close what the supervisor has open (locks, sockets, watches): a fork must not hold the supervisor's lock for it.

    The objects that own these descriptors stay referenced from the frames below, which never end, so none is closed twice.
    """
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def nursery_main(orders: socket.socket, warm: Callable[[], None], run_agent: RunAgent) -> NoReturn:
    """The nursery's process: never returns."""
    status = 1
    try:
        _Parent(orders, warm, run_agent).serve()
        status = 0
    except SystemExit as ended:  # a forked agent leaves through here, with its own status
        status = int(ended.code or 0)
    except Exception:  # the boundary of a process: say it in the log and end with status 1
        traceback.print_exc()
    finally:
        with contextlib.suppress(BrokenPipeError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


class _Parent:
    def __init__(self, orders: socket.socket, warm: Callable[[], None], run_agent: RunAgent) -> None:
        self._socket = orders
        self._warm = warm
        self._run_agent = run_agent
        self._orders: deque[dict[str, Any]] = deque()
        self._children: dict[int, str] = {}
        self._warmed = 0.0
        # Every child holds the reading end: it closes for all of them at the moment this process is gone.
        self._lifeline, self._lifeline_end = os.pipe()

    def serve(self) -> None:
        # A terminal's Ctrl-C goes to the whole foreground group; ending in order is the supervisor's business.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        wake, wake_end = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        self._wake = (wake, wake_end)
        start_host()
        self._warm_up()
        self._report({"ready": os.getpid()})
        while True:
            watched: list[Any] = [self._socket, wake]
            ready = readable(watched, 0 if self._orders else None)
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
                self._reap()
            if self._socket in ready and not self._hear():
                break
            if self._orders:
                self._obey(self._orders.popleft())
        self._end()

    def _warm_up(self) -> None:
        self._warm()
        gc.freeze()
        self._warmed = time.monotonic()

    def _hear(self) -> bool:
        """Take in all orders that wait: neither end may be stuck with what the other does not read. False at the end."""
        while True:
            try:
                packet = self._socket.recv(65_536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            if not packet:
                return False
            self._orders.append(json.loads(packet))

    def _obey(self, order: dict[str, Any]) -> None:
        if "start" in order:
            if time.monotonic() - self._warmed > _WARM_FOR_S:
                self._warm_up()
            started = self._fork(order["start"])
            self._children.update(started)
            for pid, name in started:
                self._report({"started": name, "pid": pid})
        elif "warm" in order:
            self._warm_up()
        else:
            for pid in [pid for pid, name in self._children.items() if name == order["name"]]:
                os.kill(pid, int(order["signal"]))

    def _fork(self, names: list[str]) -> list[tuple[int, str]]:
        """A process for each name: (pid, name). Nothing is done in between: what this process writes to after a fork,
        it gets a copy of, and the child keeps the page that all of them had shared."""
        started = []
        for name in names:
            try:
                pid = os.fork()
            except (
                OSError
            ) as error:  # no more processes or memory for now: the others live, and this one is tried again
                self._report({"unborn": name, "why": error.strerror})
                continue
            if pid == 0:
                raise SystemExit(self._child(name))
            started.append((pid, name))
        return started

    def _child(self, name: str) -> int:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._socket.close()
        for descriptor in (*self._wake, self._lifeline_end):
            os.close(descriptor)
        return self._run_agent(name, self._lifeline)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._children.pop(pid, None)
            if name is not None:
                self._report({"exited": name, "pid": pid, "status": os.waitstatus_to_exitcode(status)})

    def _end(self) -> None:
        deadline = time.monotonic() + END_WITHIN_S
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        while self._children and time.monotonic() < deadline:
            readable([self._wake[0]], max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake[0], 4096)
            self._reap()
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _report(self, report: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # the supervisor is gone: noticed in the loop
            self._socket.send(json.dumps(report).encode())
