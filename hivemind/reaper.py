"""The reaper host and its reapers: they run programs and end everything that a program leaves behind.

`hivemind.reaped_command` starts this module with `-I -S`. It does not import hivemind, and its environment is empty, so no
program can read a secret in `/proc/$PPID/environ`. The host passes each program to an idle reaper, or forks a new reaper.
Host and reapers are subreapers (PR_SET_CHILD_SUBREAPER): they become parents of orphaned processes below them. If host
or reaper is killed, the other kills all processes below the reaper, in any session or group. Only a program that kills
both at one moment leaves processes running; a sandbox prevents that too.

The host gets a program as a packet with five descriptors: a line (a stream socket), the folder, three streams. The
order (the program's words, environment and limits) comes through the line. A byte on the line asks the program's group
to end, and a second later everything is killed. When the caller's end of the line closes, everything is killed at once.
After the last process of the program has ended, the reaper sends the exit status in four bytes, or, if the status is
lost, the line closes. The host ends when no process can send it orders any more.
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

TYPE_CHECKING = False  # importing `typing` would take as long as all other imports
if TYPE_CHECKING:
    import ctypes
    from typing import NoReturn

GRACE_S = 1.0
STATUS_BYTES = 4
_JOIN_SESSION_KEYRING = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}  # the number of this system call
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
_NOT_FOUND, _NOT_STARTED, _NO_LIMITS = 127, 126, 125  # as in a shell
_RETRY_S = 0.05
_DESCRIPTORS = 5
_PATH = os.fsencode(os.defpath)
_SIGN = b"\0"
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ)  # by the fork server, and by Python
_BOX = b"bwrap"
_MAX_IDLE = 4  # idle reapers that are kept, since a fork is expensive
_Order = tuple[list[bytes], dict[bytes, bytes], int | None, int | None]
"""The program's words, environment, and limits: seconds of processor time and bytes of address space."""


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    _library().prctl(option, value, 0, 0, 0)


@cache
def _library() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None)


class _Reaper:
    """The host's record of a reaper.

    `orders` is the socket to the reaper. `line` is the socket to the caller of the reaper's program, `deadline` the time at
    which that program is killed.
    """

    def __init__(self, orders: socket.socket) -> None:
        self.orders = orders
        self.line: int | None = None
        self.deadline: float | None = None

    def pass_on(self, descriptors: list[int]) -> bool:
        """Pass a program to the reaper if the reaper is idle. Return False if it is busy or was killed."""
        if self.line is not None:
            return False
        try:
            socket.send_fds(self.orders, [_SIGN], descriptors)
        except ConnectionError:
            return False
        self.line = descriptors[0]
        return True

    def close_line(self) -> None:
        """Close the socket to the program's caller after the program's end."""
        if self.line is not None:
            os.close(self.line)
        self.line = self.deadline = None


class _Host:
    def __init__(self, orders: socket.socket) -> None:
        self._orders: socket.socket | None = orders
        self._wake, self._wake_writer = _child_pipe()
        self._reapers: dict[int, _Reaper] = {}
        self._orphaned_lines: list[int] = []  # lines of killed reapers, until all their processes are gone

    def serve(self) -> None:
        """Pass programs on to reapers and watch the reapers, until no process can send orders any more."""
        while (
            self._orders is not None
            or self._orphaned_lines
            or any(reaper.line is not None for reaper in self._reapers.values())
        ):
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            if self._orders is not None:
                poll.register(self._orders, select.POLLIN)
            for reaper in self._reapers.values():
                poll.register(reaper.orders, select.POLLIN)
                if reaper.line is not None and reaper.deadline is None:
                    poll.register(reaper.line, select.POLLRDHUP)
            ready = {descriptor for descriptor, _ in poll.poll(self._wait_ms())}
            for reaper in self._reapers.values():
                if reaper.orders.fileno() in ready and _has_finished(reaper.orders):
                    reaper.close_line()
                elif reaper.line in ready:
                    reaper.deadline = time.monotonic() + GRACE_S
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._forget_ended()
            if self._orders is not None and self._orders.fileno() in ready:
                self._take_order(self._orders)
            self._clean_up()

    def _wait_ms(self) -> float | None:
        deadlines = [reaper.deadline for reaper in self._reapers.values() if reaper.deadline is not None]
        waits = [1000 * max(0.0, deadline - time.monotonic()) + 1 for deadline in deadlines]
        return min([*waits, *([1000 * _RETRY_S] if self._orphaned_lines else [])], default=None)

    def _take_order(self, orders: socket.socket) -> None:
        packet, descriptors, _, _ = socket.recv_fds(orders, 1, _DESCRIPTORS)
        if not packet:
            orders.close()
            self._orders = None
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        line, *files = descriptors
        try:
            if not any(reaper.pass_on(descriptors) for reaper in self._reapers.values()):
                self._fork(descriptors).pass_on(descriptors)
        except OSError as error:  # too many processes
            _print_error(files[-1], b"its reaper", error)
            self._orphaned_lines.append(line)
        for descriptor in files:
            os.close(descriptor)

    def _fork(self, descriptors: list[int]) -> _Reaper:
        host_end, reaper_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            other_ends = [
                end
                for reaper_state in self._reapers.values()
                for end in (reaper_state.orders.detach(), reaper_state.line)
                if end is not None
            ]
            order_ends = [] if self._orders is None else [self._orders.detach()]
            for end in (
                self._wake,
                self._wake_writer,
                host_end.detach(),
                *order_ends,
                *other_ends,
                *self._orphaned_lines,
                *descriptors,
            ):
                os.close(end)
            _serve_as_reaper(reaper_end)
        reaper_end.close()
        reaper = self._reapers[pid] = _Reaper(host_end)
        return reaper

    def _forget_ended(self) -> None:
        for pid, _ in _reap():
            reaper = self._reapers.pop(pid, None)
            if reaper is not None:
                reaper.orders.close()
                if reaper.line is not None:
                    self._orphaned_lines.append(reaper.line)

    def _clean_up(self) -> None:
        """Kill reapers past their deadline, end surplus idle reapers, and kill the orphans of killed reapers: children
        that are not reapers."""
        for pid, reaper in self._reapers.items():
            if reaper.deadline is not None and reaper.deadline <= time.monotonic():
                _kill(pid, signal.SIGKILL)
        for pid in [pid for pid, reaper in self._reapers.items() if reaper.line is None][_MAX_IDLE:]:
            self._reapers.pop(pid).orders.close()
        if not self._orphaned_lines:
            return
        orphans = [pid for pid in _children(os.getpid()) if pid not in self._reapers]
        for pid in orphans:
            _kill(pid, signal.SIGKILL)
        if not orphans:
            for line in self._orphaned_lines:
                os.close(line)
            self._orphaned_lines.clear()


def _has_finished(orders: socket.socket) -> bool:
    """Check whether a reaper reports that its program has ended completely. Return False if the reaper is gone."""
    try:
        return bool(orders.recv(1))
    except ConnectionError:
        return False


def _serve_as_reaper(orders: socket.socket) -> NoReturn:
    """Run programs that the host passes on, one after the other, until the host is gone."""
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake, _ = _child_pipe()
        while True:
            packet, descriptors, _, _ = socket.recv_fds(orders, 1, _DESCRIPTORS)
            if not packet:
                break
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            _run_program(descriptors[0], descriptors[1:], orders, wake)
            orders.send(_SIGN)
    except ConnectionError:
        pass
    except Exception:  # the boundary of a process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _run_program(line: int, files: list[int], orders: socket.socket, wake: int) -> None:
    """Run the program that an order from the socket `line` names. Return when all its processes have ended."""
    order = _read_order(line)
    program = None if order is None else _start(order, files)
    for descriptor in files:  # a stream must close when the program closes it
        os.close(descriptor)
    if program is not None:
        status = _wait_for(program, line, orders.fileno(), wake, is_box=order is not None and order[0][0] == _BOX)
        _end_all_below(-program)
        code = os.waitstatus_to_exitcode(signal.SIGKILL if status is None else status)
        if status is not None or not _is_hung_up(orders):  # a program that ends with its host is lost, not failed
            with contextlib.suppress(ConnectionError):  # no caller is left
                os.write(line, code.to_bytes(STATUS_BYTES, "little", signed=True))
    os.close(line)


def _is_hung_up(orders: socket.socket) -> bool:
    poll = select.poll()
    poll.register(orders, 0)
    return bool(poll.poll(0))


def _read_order(line: int) -> _Order | None:
    """Read a program's order from the socket `line`. Return None if the caller ended before the order was complete."""
    message = b""
    while len(message) < 8 or len(message) < 8 + int.from_bytes(message[:8], "big"):
        try:
            part = os.read(line, 65_536)
        except ConnectionError:
            part = b""
        if not part:
            return None
        message += part
    order: _Order = marshal.loads(message[8:])  # noqa: S302 - from our caller, the same interpreter
    return order


def _child_pipe() -> tuple[int, int]:
    """Return the reading and the writing end of a pipe that becomes readable when a child ends."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    return wake, wake_end


def _start(order: _Order, files: list[int]) -> int:
    """Start the program in a new session. Return its pid, which is also the id of its process group.

    The program is looked up before the fork, because a child copies every page that it touches.
    """
    words, environment, cpu_s, memory_bytes = order
    folder, *streams = files
    path = _find_program(words[0], environment, folder)
    reaper = os.getpid()
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
        if os.getppid() != reaper:
            os._exit(_NO_LIMITS)
        status = _NO_LIMITS
        for limit, maximum in ((resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_AS, memory_bytes)):
            if maximum is not None:
                resource.setrlimit(limit, (maximum, maximum))
        status = _NOT_STARTED
        for ignored in _IGNORED:  # a new program would inherit that
            signal.signal(ignored, signal.SIG_DFL)
        if words[0] == _BOX:
            _leave_keyring()
        _execute(path, words, environment, folder)
    except FileNotFoundError:
        os.write(2, words[0] + b": not found\n")
        status = _NOT_FOUND
    except (OSError, ValueError) as error:
        _print_error(2, words[0], error)
    finally:
        os._exit(status)


def _leave_keyring() -> None:
    """Begin an empty session keyring: a sandbox does not hide the inherited keyring, which may have the person's keys."""
    if (number := _KEYCTL.get(os.uname().machine)) is not None:
        _library().syscall(number, _JOIN_SESSION_KEYRING, None)


def _find_program(program: bytes, environment: dict[bytes, bytes], folder: int) -> bytes:
    """Return the path of a program on PATH: the first executable file of that name, or the last file of that name if none is
    executable.

    Relative folders on PATH are relative to the open `folder`.
    """
    if b"/" in program:
        return program
    best = b""  # cannot be executed
    for folder_name in environment.get(b"PATH", _PATH).split(b":"):
        path = os.path.join(folder_name or b".", program)
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.stat(path, dir_fd=folder).st_mode):
                best = path
                if os.access(path, os.X_OK, dir_fd=folder):
                    break
    return best


def _execute(path: bytes, words: list[bytes], environment: dict[bytes, bytes], folder: int) -> None:
    try:
        os.execve(path, words, environment)  # noqa: S606 - no shell, unless the caller wants one
    except OSError as error:
        if error.errno != errno.ENOEXEC:  # a script without an interpreter line runs in the shell
            raise
        os.execve(_find_program(b"sh", environment, folder), [b"sh", path, *words[1:]], environment)  # noqa: S606 - the caller's program


def _print_error(stream: int, program: bytes, error: Exception) -> None:
    os.write(stream, program + b": " + (getattr(error, "strerror", None) or str(error)).encode() + b"\n")


def _wait_for(program: int, line: int, host: int, wake: int, *, is_box: bool) -> int | None:
    """Wait for the program and return its exit status. None: it has not ended of itself, and the caller kills it now.

    That is a second after the program was asked to end, or at once when the caller or the host is gone. In a sandbox (`is_box`),
    only the processes below the program are asked to end.
    """
    poll = select.poll()
    for descriptor in (wake, line):
        poll.register(descriptor, select.POLLIN)
    poll.register(host, 0)  # reports only that the other end has closed
    deadline: float | None = None
    while True:
        status = dict(_reap()).get(program)
        if status is not None:
            return status
        remaining_s = None if deadline is None else deadline - time.monotonic()
        if remaining_s is not None and remaining_s <= 0:
            return None
        for descriptor, _ in poll.poll(None if remaining_s is None else remaining_s * 1000 + 1):
            if descriptor == host or not os.read(descriptor, 4096):
                return None
            if descriptor == line and deadline is None:
                deadline = time.monotonic() + GRACE_S
                for number in (signal.SIGTERM, signal.SIGCONT):  # a suspended process does not handle SIGTERM
                    if is_box:  # its own end would kill what is in it at once
                        _signal_below(program, number)
                    else:
                        _kill(-program, number)


def _signal_below(program: int, number: int) -> None:
    """Send the signal `number` to the processes below the program in its group, but not to the program."""
    parents = [program]
    while parents:
        for child in _children(parents.pop()):
            parents.append(child)
            with contextlib.suppress(ProcessLookupError):
                process = os.pidfd_open(child)  # from here on the pid is that of one process
                try:
                    if os.getpgid(child) == program:
                        signal.pidfd_send_signal(process, number)
                finally:
                    os.close(process)


def _reap() -> list[tuple[int, int]]:
    """Reap the children that have ended. Return their pids and statuses."""
    children = []
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            children.append(child)
    return children


def _end_all_below(group: int) -> None:
    """Kill the group and all children, until none is left. Only direct children are killed, because their pids cannot
    have been reused. The children of a killed child become direct children."""
    _kill(group, signal.SIGKILL)
    wait = os.WNOHANG
    while True:
        try:
            ended_pid, _ = os.waitpid(-1, wait)
        except ChildProcessError:
            return
        were_killed = [_kill(child, signal.SIGKILL) for child in _children(os.getpid())]
        wait = 0 if any(were_killed) else os.WNOHANG
        if not any(were_killed) and not ended_pid:
            time.sleep(_RETRY_S)  # a setuid program of another user: wait for its end


def _children(parent: int) -> list[int]:
    """Return the pids of the children that the first thread of the process `parent` has started."""
    with (
        contextlib.suppress(FileNotFoundError, ProcessLookupError),
        open(f"/proc/{parent}/task/{parent}/children", "rb") as file,
    ):
        return [int(pid) for pid in file.read().split()]
    return []


def _kill(target: int, number: int) -> bool:
    """Send the signal `number` to the process `target`, or to a group by its negative number. Return False if that is not
    permitted.
    """
    try:
        os.kill(target, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


def main(orders: int) -> None:
    """Run the host, which gets programs through the socket `orders`."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    _Host(socket.socket(fileno=orders)).serve()
