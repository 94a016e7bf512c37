"""The fork server: the warm process that agents are forked from, with imports done, the vocabulary loaded and one thread.

A fork of this process is ready in a few milliseconds and shares the pages that it does not change (`gc.freeze()` keeps
the collector from touching them). A page that an agent writes to is copied, and counting a reference is a write. So
`warm` does in advance what all agents do at their start. The fork server forks, signals and reaps agents by orders of
the supervisor over a socket. When the supervisor is gone, the socket closes, and the fork server ends its children. It
signals no other process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hivemind.agent.stop_request import END_WITHIN_S
from hivemind.fs.sockets import wait_for_input
from hivemind.reaped_command import start_host

_BATCH = 100  # names per packet, each up to 64 bytes
_WARM_FOR_S = 1.0  # agents that start within this time share one warm-up
_log = logging.getLogger(__name__)
RunAgent = Callable[[str, int], int]
"""Runs one agent in this process: (name, file descriptor that closes when the parent ends) -> exit status."""


class ForkServer:
    """The supervisor's connection to the fork server: starts it, sends it orders and receives its reports."""

    def __init__(self, warm: Callable[[], None], run_agent: RunAgent) -> None:
        """Fork the fork server. Call this before this process starts threads or opens files that a fork must not share.

        The fork server calls `warm` at once, and again before later forks. `warm` must be quick the second time, and
        must not leave a thread, lock or database open.
        """
        parent_socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _close_all_but(child_socket.fileno())
            fork_server_main(child_socket, warm, run_agent)
        child_socket.close()
        self.socket = parent_socket

    def start(self, names: Sequence[str]) -> None:
        """Order forks of these agents, one right after the other. A report for each agent will contain its pid."""
        for start in range(0, len(names), _BATCH):
            self._order({"start": names[start : start + _BATCH]})

    def warm(self) -> None:
        """Order another call of `warm` before the next fork."""
        self._order({"warm": True})

    def signal(self, name: str, number: int) -> None:
        """Order the fork server to send the signal `number` to the agent `name`, if it runs."""
        self._order({"signal": number, "name": name})

    def reports(self) -> list[dict[str, Any]] | None:
        """Return the unread reports, or None once the fork server has ended."""
        reports: list[dict[str, Any]] = []
        while wait_for_input([self.socket], 0):
            try:
                packet = self.socket.recv(65_536)
            except ConnectionError:
                packet = b""
            if not packet:
                return reports or None
            reports.append(json.loads(packet))
        return reports

    def close(self, within_s: float = 0.0) -> None:
        """End the fork server and its children, and wait until they have ended.

        That takes at most `END_WITHIN_S` seconds, or `within_s` if that is more.
        """
        self._order({"end": within_s})
        self.socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _order(self, order: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # `reports` notices the end of the fork server
            self.socket.send(json.dumps(order).encode())


def _close_all_but(descriptor: int) -> None:
    """Close all descriptors except `descriptor`, because a fork must not keep the supervisor's locks, sockets and watches.

    The objects that own these descriptors stay referenced from frames that never end, so none is closed twice.
    """
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))


def fork_server_main(orders: socket.socket, warm: Callable[[], None], run_agent: RunAgent) -> NoReturn:
    """Run the fork server in this process. This function never returns."""
    status = 1
    try:
        _ForkLoop(orders, warm, run_agent).serve()
        status = 0
    except SystemExit as exit_request:  # a forked agent exits through here, with its own status
        status = int(exit_request.code or 0)
    except Exception:  # the boundary of a process: log it and exit with status 1
        traceback.print_exc()
    finally:
        with contextlib.suppress(BrokenPipeError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


class _ForkLoop:
    def __init__(self, orders: socket.socket, warm: Callable[[], None], run_agent: RunAgent) -> None:
        self._socket = orders
        self._warm = warm
        self._run_agent = run_agent
        self._orders: deque[dict[str, Any]] = deque()
        self._children: dict[int, str] = {}
        self._warmed = self._within_s = 0.0
        # Every child has the reading end, which closes for all of them when this process ends.
        self._lifeline, self._lifeline_end = os.pipe()

    def serve(self) -> None:
        # A terminal's Ctrl-C goes to the whole foreground group, but the supervisor ends the swarm in order.
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
            descriptors: list[Any] = [self._socket, wake]
            ready = wait_for_input(descriptors, 0 if self._orders else None)
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
                self._reap()
            if self._socket in ready and not self._receive():
                break
            if self._orders:
                self._execute(self._orders.popleft())
        self._end()

    def _warm_up(self) -> None:
        try:
            self._warm()
        except Exception:  # agents can start without it, and report what they lack
            _log.exception("the warm-up before agents are forked has failed")
        gc.freeze()
        self._warmed = time.monotonic()

    def _receive(self) -> bool:
        """Read all waiting orders, so neither side blocks on a full socket. Return False once the supervisor is gone."""
        while True:
            try:
                packet = self._socket.recv(65_536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            if not packet:
                return False
            order = json.loads(packet)
            self._within_s = order.get("end", 0.0)
            self._orders.append(order)

    def _execute(self, order: dict[str, Any]) -> None:
        if "start" in order:
            if time.monotonic() - self._warmed > _WARM_FOR_S:
                self._warm_up()
            children = self._fork(order["start"])
            self._children.update(children)
            for pid, name in children:
                self._report({"started": name, "pid": pid})
        elif "warm" in order:
            self._warm_up()
        elif "signal" in order:
            for pid in [pid for pid, name in self._children.items() if name == order["name"]]:
                os.kill(pid, int(order["signal"]))

    def _fork(self, names: list[str]) -> list[tuple[int, str]]:
        """Fork a process for each name. Return pids and names. Do no other work in between: each page that this process
        writes to after a fork is copied, and no longer shared."""
        children = []
        for name in names:
            try:
                pid = os.fork()
            except OSError as error:  # too many processes or too little memory: the supervisor tries again
                self._report({"unborn": name, "why": error.strerror})
                continue
            if pid == 0:
                raise SystemExit(self._child(name))
            children.append((pid, name))
        return children

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
        deadline = time.monotonic() + max(END_WITHIN_S, self._within_s)
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        while self._children and time.monotonic() < deadline:
            wait_for_input([self._wake[0]], max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake[0], 4096)
            self._reap()
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _report(self, report: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # the loop notices that the supervisor is gone
            self._socket.send(json.dumps(report).encode())
