"""The host of guards, and a guard: it runs a program, and leaves nothing of it behind. A script, started by `hivemind.guarded`.

It runs with `-I -S`, imports nothing of hivemind and has an empty environment, so that no program finds a secret in
`/proc/$PPID/environ`. The host forks a guard for each program that it is told of. Both are reapers of all that loses its
parent below them (Linux: PR_SET_CHILD_SUBREAPER): whichever of them is killed, the other ends what is below the guard,
whatever sessions and groups that has made for itself. What kills both in one moment gets away, but for the program itself;
only a sandbox holds that.

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
import sys
import time
import warnings  # noqa: F401 - os.execvpe imports it: not in every child anew
from functools import cache
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import ctypes

__all__ = ["GRACE_S", "PR_SET_DUMPABLE", "STATUS_BYTES", "prctl"]

GRACE_S = 1.0
STATUS_BYTES = 4
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
_NOT_FOUND, _NOT_STARTED, _NO_LIMITS = 127, 126, 125  # as a shell says it
_RETRY_S = 0.05
_DESCRIPTORS = 5
_CLOSED = getattr(select, "POLLRDHUP", 0)  # elsewhere POLLHUP tells it, which is always told
_Order = tuple[list[bytes], dict[bytes, bytes], int | None, int | None]
"""The program's words, its environment, its limits: seconds of processor time and bytes of address space."""


def prctl(option: int, value: int) -> bool:
    """Set an attribute of this process. False where there is no such thing: on another system than Linux."""
    try:
        return bool(_library().prctl(option, value, 0, 0, 0) == 0)
    except AttributeError:
        return False


@cache
def _library() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None)


class _Host:
    def __init__(self, orders: socket.socket) -> None:
        self._orders: socket.socket | None = orders
        self._alive, self._alive_end = os.pipe()  # the guards see it close when the host is gone
        self._wake, self._wake_end = _hear_children()
        self._guards: dict[int, int] = {}  # their lines
        self._ended: list[int] = []  # lines of guards that have ended, until nothing is left below
        self._deadlines: dict[int, float] = {}  # of guards whose line has closed

    def serve(self) -> None:
        """Fork guards and wait for them, until nobody can ask for one any more."""
        while self._orders is not None or self._guards or self._ended:
            poll = select.poll()
            for descriptor in (self._wake, *([] if self._orders is None else [self._orders.fileno()])):
                poll.register(descriptor, select.POLLIN)
            for guard, line in self._guards.items():
                if guard not in self._deadlines:
                    poll.register(line, _CLOSED)
            ready = {descriptor for descriptor, _ in poll.poll(self._wait_ms())}
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._orders is not None and self._orders.fileno() in ready:
                self._obey(self._orders)
            for guard, line in self._guards.items():
                if line in ready:
                    self._deadlines[guard] = time.monotonic() + GRACE_S
            self._clear_away()

    def _wait_ms(self) -> float | None:
        waits = [1000 * max(0.0, end - time.monotonic()) + 1 for end in self._deadlines.values()]
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
            guard = os.fork()
        except OSError as error:  # no more processes for now
            _complain(given[-1], b"its guard", error)
            self._ended.append(line)
        else:
            if guard == 0:
                orders.close()
                for one in (self._alive_end, self._wake, self._wake_end, *self._guards.values(), *self._ended):
                    os.close(one)
                _guard(line, self._alive, given)
            self._guards[guard] = line
        for one in given:
            os.close(one)

    def _clear_away(self) -> None:
        """Take note of who has ended, and kill what a guard that was killed has left: all of our children but the guards."""
        for guard, deadline in self._deadlines.items():
            if deadline <= time.monotonic():
                _kill(guard, signal.SIGKILL)
        for ended, _ in _reaped():
            self._deadlines.pop(ended, None)
            if ended in self._guards:
                self._ended.append(self._guards.pop(ended))
        orphans = [pid for pid in _children() if pid not in self._guards]
        for pid in orphans:
            _kill(pid, signal.SIGKILL)
        if not orphans:
            for line in self._ended:
                os.close(line)
            self._ended.clear()


def _guard(line: int, alive: int, given: list[int]) -> NoReturn:
    """Run the program that is told of by the line, and end as soon as all of it has ended."""
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake, _ = _hear_children()
        order = _read_order(line)
        if order is not None:
            program = _start(order, given)
            for descriptor in given:  # the streams must close when the program closes them
                os.close(descriptor)
            status = _watch(program, line, alive, wake)
            _end_all_below(-program)
            code = os.waitstatus_to_exitcode(signal.SIGKILL if status is None else status)
            os.write(line, code.to_bytes(STATUS_BYTES, "little", signed=True))
    except ConnectionError:  # nobody wants to know
        pass
    except Exception:  # the boundary of a process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _read_order(line: int) -> _Order | None:
    """What is to be run; None if the maker ended before it had said so."""
    told = b""
    while len(told) < 8 or len(told) < 8 + int.from_bytes(told[:8], "big"):
        part = os.read(line, 65_536)
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
    """Start the program in a session of its own: its pid, which is also its group's."""
    words, environment, cpu_s, memory = order
    guard = os.getpid()
    program = os.fork()
    if program:
        return program
    status = _NOT_STARTED
    try:
        folder, *streams = given
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
        _become(words, environment)
    except FileNotFoundError:
        os.write(2, words[0] + b": not found\n")
        status = _NOT_FOUND
    except (OSError, ValueError) as error:
        _complain(2, words[0], error)
    finally:
        os._exit(status)


def _become(words: list[bytes], environment: dict[bytes, bytes]) -> None:
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606 - no shell unless asked for
    except OSError as error:
        if error.errno != errno.ENOEXEC:  # a script that does not say what it is for is the shell's
            raise
        os.execvpe(b"sh", [b"sh", *words], environment)  # noqa: S606 - what was asked for


def _complain(stream: int, program: bytes, error: Exception) -> None:
    os.write(stream, program + b": " + (getattr(error, "strerror", None) or str(error)).encode() + b"\n")


def _watch(program: int, line: int, alive: int, wake: int) -> int | None:
    """The status that the program ended with; None if that is not waited for: a second after it was asked to end, and at
    once when its maker or the host is gone."""
    poll = select.poll()
    for descriptor in (wake, line):
        poll.register(descriptor, select.POLLIN)
    poll.register(alive, 0)  # its end is reported all the same
    deadline: float | None = None
    while True:
        status = dict(_reaped()).get(program)
        if status is not None:
            return status
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return None
        for descriptor, _ in poll.poll(None if left is None else left * 1000 + 1):
            if descriptor == alive or not os.read(descriptor, 4096):
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


def _end_all_below(target: int) -> None:
    """Kill until nothing is left. Only our own children are killed, whose numbers nobody else can have got meanwhile; theirs
    become ours by that. (Where there is no /proc: the target alone.)"""
    _kill(target, signal.SIGKILL)
    while True:
        killed = [_kill(pid, signal.SIGKILL) for pid in _children()]
        try:
            ended, _ = os.waitpid(-1, 0 if any(killed) else os.WNOHANG)
        except ChildProcessError:
            return
        if not any(killed) and not ended:
            time.sleep(_RETRY_S)  # another user's, by a program that becomes one: it ends by itself


def _children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return [pid for pid in _processes() if _parent_of(pid) == me]


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except FileNotFoundError:
        return []


def _parent_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return None  # it is gone


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
