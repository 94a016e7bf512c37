"""The guard of a program: it runs it, and leaves nothing of it behind. A script of its own, started by `hivemind.guarded`.

It runs with `-I -S`, imports nothing of hivemind and has an empty environment, so that its program finds no secret in
`/proc/$PPID/environ`. It is two processes, each the reaper of all that loses its parent below it (Linux:
PR_SET_CHILD_SUBREAPER): the inner one starts the program, the outer one watches the inner one. Whichever of them is killed,
the other ends what is below it, whatever sessions and groups that has made for itself. What kills both in one moment gets
away, but for the program itself; only a sandbox holds that.

Signals: SIGTERM asks the program's group to end, and ends all of it a second later. When the maker's end of the socket
closes, without a word, all of it ends at once. The guard's own exit status is the program's.
"""

from __future__ import annotations

import errno
import marshal
import os
import resource
import select
import signal
import sys
import time
from typing import NoReturn

__all__ = ["GRACE_S", "PR_SET_DUMPABLE", "prctl"]

GRACE_S = 1.0
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
_NOT_FOUND, _NOT_STARTED, _NO_LIMITS = 127, 126, 125  # as a shell says it
_RETRY_S = 0.05
_Order = tuple[list[bytes], dict[bytes, bytes], int | None, int | None]
"""The program's words, its environment, its limits: seconds of processor time and bytes of address space."""


def prctl(option: int, value: int) -> bool:
    """Set an attribute of this process. False where there is no such thing: on another system than Linux."""
    import ctypes

    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except AttributeError:
        return False


def main(maker: int) -> NoReturn:
    """Run the program that `maker`, a socket, tells of; never returns."""
    os.set_inheritable(maker, False)
    order = _read_order(maker)
    if order is None:
        os._exit(_NO_LIMITS)  # whoever began this is gone
    alive, alive_end = os.pipe()  # the inner one sees it close when the outer one is gone
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    inner = os.fork()
    lines: tuple[int, ...] = (maker,)
    if inner == 0:
        os.close(alive_end)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        lines += (alive,)
        target, grace_s, gone_s = -_start(order), GRACE_S, 0.0
    else:
        os.close(alive)
        target, grace_s, gone_s = inner, 2 * GRACE_S, GRACE_S
    wake = _hear_signals()
    _let_go_of_streams()
    status = _watch(target, lines, wake, grace_s, gone_s)
    _end_all_below(target)
    _end_like(status)


def _read_order(maker: int) -> _Order | None:
    """What is to be run; None if the maker ended before it had said so."""
    told = b""
    while len(told) < 8 or len(told) < 8 + int.from_bytes(told[:8], "big"):
        part = os.read(maker, 65_536)
        if not part:
            return None
        told += part
    order: _Order = marshal.loads(told[8:])  # noqa: S302 - from our maker, which is the same interpreter
    return order


def _hear_signals() -> int:
    """A descriptor that can be read when a child has ended, or SIGTERM has come."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_end, False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    return wake


def _start(order: _Order) -> int:
    """Start the program in a session of its own: its pid, which is also its group's."""
    words, environment, cpu_s, memory = order
    guard = os.getpid()
    program = os.fork()
    if program:
        return program
    status = _NOT_STARTED
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(_NO_LIMITS)
        status = _NO_LIMITS
        for what, most in ((resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_AS, memory)):
            if most is not None:
                resource.setrlimit(what, (most, most))
        status = _NOT_STARTED
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so
            signal.signal(number, signal.SIG_DFL)
        _become(words, environment)
    except FileNotFoundError:
        _complain(words[0], "not found")
        status = _NOT_FOUND
    except (OSError, ValueError) as error:
        _complain(words[0], getattr(error, "strerror", None) or str(error))
    finally:
        os._exit(status)


def _become(words: list[bytes], environment: dict[bytes, bytes]) -> None:
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606 - no shell unless asked for
    except OSError as error:
        if error.errno != errno.ENOEXEC:  # a script that does not say what it is for is the shell's
            raise
        os.execvpe(b"sh", [b"sh", *words], environment)  # noqa: S606 - what was asked for


def _complain(program: bytes, why: str) -> None:
    os.write(2, program + b": " + why.encode() + b"\n")


def _let_go_of_streams() -> None:
    """The streams are the program's: they must close when it closes them."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _watch(target: int, lines: tuple[int, ...], wake: int, grace_s: float, gone_s: float) -> int | None:
    """The status that our child, or the group that it leads, ended with; None if that was not waited for any longer.

    That is `grace_s` after a SIGTERM, which is passed on, and `gone_s` after one of the `lines` has closed.
    """
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    for line in lines:
        poll.register(line, 0)  # its end is reported all the same
    deadline: float | None = None
    told = gone = False
    while True:
        status = _reap(abs(target))
        if status is not None:
            return status
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return None
        for descriptor, _ in poll.poll(None if left is None else left * 1000 + 1):
            if descriptor in lines:
                poll.unregister(descriptor)
                if not gone:
                    gone, deadline = True, time.monotonic() + gone_s
            elif signal.SIGTERM in os.read(wake, 4096) and not (told or gone):
                told, deadline = True, time.monotonic() + grace_s
                for number in (signal.SIGTERM, signal.SIGCONT):  # who is stopped hears nothing
                    _kill(target, number)


def _reap(child: int) -> int | None:
    """Take note of all that has ended; the status of the child if it is among them."""
    try:
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == child:
                return status
            if ended == 0:
                return None
    except ChildProcessError:
        return signal.SIGKILL  # nobody is left to wait for


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


def _end_like(status: int | None) -> NoReturn:
    """End as the program did, by the same signal if it was one."""
    code = os.waitstatus_to_exitcode(signal.SIGKILL if status is None else status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]))
