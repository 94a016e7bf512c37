"""The host of guards, and a guard: it runs programs, and leaves nothing of them behind. A script, started by `hivemind.guarded`.

It runs with `-I -S`, imports nothing of hivemind and has an empty environment, so that no program finds a secret in
`/proc/$PPID/environ`. The host gives each program that it is told of to a guard that has none, and forks one where all are
busy. Both are reapers of all that loses its parent below them (PR_SET_CHILD_SUBREAPER): whichever of them is killed, the
other ends what is below the guard, whatever sessions and groups that has made for itself. What kills both in one moment
gets away, but for the program itself; only a sandbox holds that.

The host is told of a program by a packet with five descriptors: the program's line, its folder, its three streams. What is
to be run comes by the line, a stream socket. A byte on it asks the program's group to end, and ends all of it a second later.
When the maker's end of it closes, all of it ends at once. The guard answers with the program's exit status, four bytes, once
nothing of it is left; where it can't, the line closes once nothing of it is left. The host ends when nobody can ask it any
more.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import resource
import select
import signal
import socket
import stat
import sys
import time
from functools import cache
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import ctypes

GRACE_S = 1.0
STATUS_BYTES = 4
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
_NOT_FOUND, _NOT_STARTED, _NO_LIMITS = 127, 126, 125  # as a shell says it
_RETRY_S = 0.05
_DESCRIPTORS = 5
_PATH = os.fsencode(os.defpath)
_IDLE = b"\0"
_MOST_IDLE = 4  # so many guards are kept for the next programs: a fork costs more than the rest
_Order = tuple[list[bytes], dict[bytes, bytes], int | None, int | None]
"""The program's words, its environment, its limits: seconds of processor time and bytes of address space."""


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    _library().prctl(option, value, 0, 0, 0)


@cache
def _library() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None)


class _Guard:
    """What the host knows of a guard: the end of its orders, and of what it runs, the line and when it is to be over."""

    def __init__(self, orders: socket.socket) -> None:
        self.orders = orders
        self.line: int | None = None
        self.deadline: float | None = None

    def takes(self, descriptors: list[int]) -> bool:
        """Pass a program on to it, if it has none; False too where it was killed, which is heard of later."""
        if self.line is not None:
            return False
        try:
            socket.send_fds(self.orders, [_IDLE], descriptors)
        except ConnectionError:
            return False
        self.line = descriptors[0]
        return True

    def free_line(self) -> None:
        """Its program is over."""
        if self.line is not None:
            os.close(self.line)
        self.line = self.deadline = None


class _Host:
    def __init__(self, orders: socket.socket) -> None:
        self._orders: socket.socket | None = orders
        self._wake, self._wake_end = _hear_children()
        self._guards: dict[int, _Guard] = {}
        self._ended: list[int] = []  # lines of guards that were killed, until nothing is left below

    def serve(self) -> None:
        """Pass programs on to guards and look after these, until nobody can ask for a program any more."""
        while self._orders is not None or self._ended or any(one.line is not None for one in self._guards.values()):
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            if self._orders is not None:
                poll.register(self._orders, select.POLLIN)
            for guard in self._guards.values():
                poll.register(guard.orders, select.POLLIN)
                if guard.line is not None and guard.deadline is None:
                    poll.register(guard.line, select.POLLRDHUP)
            ready = {descriptor for descriptor, _ in poll.poll(self._wait_ms())}
            for guard in self._guards.values():
                if guard.orders.fileno() in ready and _has_told(guard.orders):
                    guard.free_line()
                elif guard.line in ready:
                    guard.deadline = time.monotonic() + GRACE_S
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._bury()
            if self._orders is not None and self._orders.fileno() in ready:
                self._obey(self._orders)
            self._clear_away()

    def _wait_ms(self) -> float | None:
        ends = [one.deadline for one in self._guards.values() if one.deadline is not None]
        waits = [1000 * max(0.0, end - time.monotonic()) + 1 for end in ends]
        return min([*waits, *([1000 * _RETRY_S] if self._ended else [])], default=None)

    def _obey(self, orders: socket.socket) -> None:
        told, descriptors, _, _ = socket.recv_fds(orders, 1, _DESCRIPTORS)
        if not told:
            orders.close()
            self._orders = None
            return
        for one in descriptors:
            os.set_inheritable(one, False)
        line, *given = descriptors
        try:
            if not any(guard.takes(descriptors) for guard in self._guards.values()):
                self._fork(descriptors).takes(descriptors)
        except OSError as error:  # no more processes for now
            _complain(given[-1], b"its guard", error)
            self._ended.append(line)
        for one in given:
            os.close(one)

    def _fork(self, descriptors: list[int]) -> _Guard:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            others = [
                end for one in self._guards.values() for end in (one.orders.detach(), one.line) if end is not None
            ]
            asked = [] if self._orders is None else [self._orders.detach()]
            for end in (self._wake, self._wake_end, ours.detach(), *asked, *others, *self._ended, *descriptors):
                os.close(end)
            _serve_as_guard(theirs)
        theirs.close()
        guard = self._guards[pid] = _Guard(ours)
        return guard

    def _bury(self) -> None:
        """Forget the guards that have ended."""
        for pid, _ in _reaped():
            guard = self._guards.pop(pid, None)
            if guard is not None:
                guard.orders.close()
                if guard.line is not None:
                    self._ended.append(guard.line)

    def _clear_away(self) -> None:
        """End the guards that are over time or too many, and what a killed one has left: our children that are no guards."""
        for pid, guard in self._guards.items():
            if guard.deadline is not None and guard.deadline <= time.monotonic():
                _kill(pid, signal.SIGKILL)
        for pid in [pid for pid, guard in self._guards.items() if guard.line is None][_MOST_IDLE:]:
            self._guards.pop(pid).orders.close()
        if not self._ended:
            return
        orphans = [pid for pid in _children() if pid not in self._guards]
        for pid in orphans:
            _kill(pid, signal.SIGKILL)
        if not orphans:
            for line in self._ended:
                os.close(line)
            self._ended.clear()


def _has_told(orders: socket.socket) -> bool:
    """Whether a guard says that nothing of its program is left; False where it is gone."""
    try:
        return bool(orders.recv(1))
    except ConnectionError:
        return False


def _serve_as_guard(orders: socket.socket) -> NoReturn:
    """Run the programs that the host passes on, one after the other, until it is gone."""
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake, _ = _hear_children()
        while True:
            told, descriptors, _, _ = socket.recv_fds(orders, 1, _DESCRIPTORS)
            if not told:
                break
            for one in descriptors:
                os.set_inheritable(one, False)
            _guard(descriptors[0], descriptors[1:], orders, wake)
            orders.send(_IDLE)
    except ConnectionError:
        pass
    except Exception:  # the boundary of a process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _guard(line: int, given: list[int], orders: socket.socket, wake: int) -> None:
    """Run the program that is told of by the line, and return as soon as all of it has ended."""
    order = _read_order(line)
    program = None if order is None else _start(order, given)
    for descriptor in given:  # the streams must close when the program closes them
        os.close(descriptor)
    if program is not None:
        status = _watch(program, line, orders.fileno(), wake)
        _end_all_below(-program)
        code = os.waitstatus_to_exitcode(signal.SIGKILL if status is None else status)
        if status is not None or not _is_hung_up(orders):  # what ended with its host has not failed: it was lost
            with contextlib.suppress(ConnectionError):  # nobody wants to know
                os.write(line, code.to_bytes(STATUS_BYTES, "little", signed=True))
    os.close(line)


def _is_hung_up(orders: socket.socket) -> bool:
    poll = select.poll()
    poll.register(orders, 0)
    return bool(poll.poll(0))


def _read_order(line: int) -> _Order | None:
    """What is to be run; None if the maker ended before it had said so."""
    told = b""
    while len(told) < 8 or len(told) < 8 + int.from_bytes(told[:8], "big"):
        try:
            part = os.read(line, 65_536)
        except ConnectionError:
            part = b""
        if not part:
            return None
        told += part
    order: _Order = marshal.loads(told[8:])  # noqa: S302 - from our maker, which is the same interpreter
    return order


def _hear_children() -> tuple[int, int]:
    """A pipe that can be read when a child has ended."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    return wake, wake_end


def _start(order: _Order, given: list[int]) -> int:
    """Start the program in a session of its own: its pid, which is also its group's. It is looked for before the fork, as a
    child copies every page that it touches."""
    words, environment, cpu_s, memory = order
    folder, *streams = given
    found = _found(words[0], environment, folder)
    guard = os.getpid()
    program = os.fork()
    if program:
        return program
    status = _NOT_STARTED
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.fchdir(folder)
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(_NO_LIMITS)
        status = _NO_LIMITS
        for what, most in ((resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_AS, memory)):
            if most is not None:
                resource.setrlimit(what, (most, most))
        status = _NOT_STARTED
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and what is ignored stays so
            signal.signal(ignored, signal.SIG_DFL)
        _become(found, words, environment, folder)
    except FileNotFoundError:
        os.write(2, words[0] + b": not found\n")
        status = _NOT_FOUND
    except (OSError, ValueError) as error:
        _complain(2, words[0], error)
    finally:
        os._exit(status)


def _found(program: bytes, environment: dict[bytes, bytes], folder: int) -> bytes:
    """Where a program lies that is called by its name alone: the first of that name which may be run, else the last."""
    if b"/" in program:
        return program
    found = b""  # which no system finds
    for place in environment.get(b"PATH", _PATH).split(b":"):
        path = os.path.join(place or b".", program)
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.stat(path, dir_fd=folder).st_mode):
                found = path
                if os.access(path, os.X_OK, dir_fd=folder):
                    break
    return found


def _become(found: bytes, words: list[bytes], environment: dict[bytes, bytes], folder: int) -> None:
    try:
        os.execve(found, words, environment)  # noqa: S606 - no shell unless asked for
    except OSError as error:
        if error.errno != errno.ENOEXEC:  # a script that does not say what it is for is the shell's
            raise
        os.execve(_found(b"sh", environment, folder), [b"sh", found, *words[1:]], environment)  # noqa: S606 - what was asked for


def _complain(stream: int, program: bytes, error: Exception) -> None:
    os.write(stream, program + b": " + (getattr(error, "strerror", None) or str(error)).encode() + b"\n")


def _watch(program: int, line: int, host: int, wake: int) -> int | None:
    """The status that the program ended with; None if that is not waited for: a second after it was asked to end, and at
    once when its maker or the host is gone."""
    poll = select.poll()
    for descriptor in (wake, line):
        poll.register(descriptor, select.POLLIN)
    poll.register(host, 0)  # its end is reported all the same
    deadline: float | None = None
    while True:
        status = dict(_reaped()).get(program)
        if status is not None:
            return status
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return None
        for descriptor, _ in poll.poll(None if left is None else left * 1000 + 1):
            if descriptor == host or not os.read(descriptor, 4096):
                return None
            if descriptor == line and deadline is None:
                deadline = time.monotonic() + GRACE_S
                for number in (signal.SIGTERM, signal.SIGCONT):  # who is stopped hears nothing
                    _kill(-program, number)


def _reaped() -> list[tuple[int, int]]:
    """The children that have ended, with their status."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found


def _end_all_below(group: int) -> None:
    """Kill until nothing is left. Only our own children are killed, whose numbers nobody else can have got meanwhile; theirs
    become ours by that."""
    _kill(group, signal.SIGKILL)
    wait = os.WNOHANG
    while True:
        try:
            ended, _ = os.waitpid(-1, wait)
        except ChildProcessError:
            return
        killed = [_kill(pid, signal.SIGKILL) for pid in _children()]
        wait = 0 if any(killed) else os.WNOHANG
        if not any(killed) and not ended:
            time.sleep(_RETRY_S)  # another user's, by a program that becomes one: it ends by itself


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
        return [int(pid) for pid in file.read().split()]


def _kill(target: int, number: int) -> bool:
    """Signal a process, or a group by its number below zero; False if it may not be."""
    try:
        os.kill(target, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


if __name__ == "__main__":
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    _Host(socket.socket(fileno=int(sys.argv[1]))).serve()
