"""The faults of a hive while a scenario is played: plain values, each with its requirements of the machine."""

from __future__ import annotations

import contextlib
import multiprocessing.util
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.fs.small_disk import small_disk

from .subject import REPOSITORY, Command, Subject, folder, parent

__all__ = ["FAULTS", "Fault", "Gap", "clock_library", "crash_points", "gap_of"]

CHANGING = (
    "write", "pwrite64", "writev", "ftruncate", "rename,renameat,renameat2", "link,linkat", "unlink,unlinkat",
    "mkdir,mkdirat", "rmdir", "fsync,fdatasync", "copy_file_range,sendfile",
)  # fmt: skip
"""The system calls that change a disk, in the groups that are swept."""
LOGS = ("journal", "messages", "agent-log", "mail-taken", "mail-sent", "graph-log")
"""The kinds of `hivemind.fs.Log`."""


@contextlib.contextmanager
def _plain(root: Path) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _no_act(_: Subject) -> Iterator[None]:
    yield


@dataclass(frozen=True, slots=True)
class Fault:
    """`place` makes the file system for a root; `act` holds while the scenario is played. `after` is what a promise says
    it holds after: `kill`, `disk`, `pause`, `clock`, `late` or `none`."""

    name: str
    about: str
    after: str
    act: Callable[[Subject], AbstractContextManager[None]] = _no_act
    place: Callable[[Path], AbstractContextManager[None]] = _plain
    programs: tuple[str, ...] = ()
    kernel: Callable[[], str | None] = lambda: None  # why the kernel itself forbids it, in words
    settings: dict[str, Any] = field(default_factory=dict)
    tidy: bool = False  # nobody is killed and every file can be removed: no half-written one may stay
    excuses: tuple[str, ...] = ()  # with these words an error.md may say that the machine was to blame


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a fault can't be tried here; `kernel`: no program could be installed to change it."""

    reason: str
    kernel: bool


def gap_of(fault: Fault) -> Gap | None:
    """Return the reason why the machine cannot make a fault, if there is one."""
    for program in fault.programs:
        if shutil.which(program) is None:
            return Gap(f"{program} is not installed", kernel=False)
    reason = fault.kernel()
    return None if reason is None else Gap(reason, kernel=True)


# killing


@contextlib.contextmanager
def _ticking(subject: Subject, tick: Callable[[], None]) -> Iterator[None]:
    subject.ticks.append(tick)
    try:
        yield
    finally:
        subject.ticks.remove(tick)


@contextlib.contextmanager
def _kill_any(subject: Subject) -> Iterator[None]:
    """One process of hivemind's after the other, whichever it is, at random moments."""
    deaths = subject.random.randrange(1, 6)
    due = time.monotonic() + subject.random.uniform(0.0, 0.6)

    def tick() -> None:
        nonlocal deaths, due
        if (
            deaths
            and time.monotonic() > due
            and (victims := [p for p in subject.processes() if not _is_a_steps_command(p)])
        ):
            _kill(subject, subject.random.choice(victims), signal.SIGKILL)
            deaths -= 1
            due = time.monotonic() + subject.random.expovariate(4)

    with _ticking(subject, tick):
        yield


def _is_a_steps_command(pid: int) -> bool:
    """Check that it is or becomes the program of a task's step: killed, it fails, and so may its task."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it just ended
        return False
    return b"HIVEMIND_TASK=" in environment or b"PATH=" not in environment  # a reaper and what it forks have none


@contextlib.contextmanager
def _kill_all(subject: Subject) -> Iterator[None]:
    """Everything at once, as `kill -9 -1` does, and once more after it was started again."""
    due = time.monotonic() + subject.random.uniform(0.05, 1.5)
    done = False

    def tick() -> None:
        nonlocal done
        if not done and time.monotonic() > due:
            done = True
            for pid in subject.processes():
                _kill(subject, pid, signal.SIGKILL)

    with _ticking(subject, tick):
        yield


@contextlib.contextmanager
def _kill_reapers(subject: Subject) -> Iterator[None]:
    """The reapers of steps' commands, or the host of them, at random moments; an agent that waits for one reads that its
    command was interrupted."""
    deaths = subject.random.randrange(1, 5)  # five deaths over a task fail it, as its README says
    due = time.monotonic() + subject.random.uniform(0.0, 0.3)

    def tick() -> None:
        nonlocal deaths, due
        if deaths and time.monotonic() > due and (reapers := _reapers(subject.processes())):
            _kill(subject, subject.random.choice(reapers), signal.SIGKILL)
            deaths -= 1
            due = time.monotonic() + subject.random.expovariate(8)

    with _ticking(subject, tick):
        yield


def _reapers(processes: Sequence[int]) -> list[int]:
    """The hosts of reapers that these processes have started, and their reapers."""
    reapers, above = list[int](), set(processes)
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    for pid in pids:  # a child's number is nearly always higher than its parent's
        with contextlib.suppress(OSError):
            if b"/reaper.py\0" in Path(f"/proc/{pid}/cmdline").read_bytes() and parent(pid) in above:
                reapers.append(pid)
                above.add(pid)
    return reapers


def _kill(subject: Subject, pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
        subject.notes.append(f"{time.monotonic_ns()} signal {number} to {pid}")
    except ProcessLookupError:
        pass


@cache
def crash_points() -> tuple[str, ...]:
    """All that the program has, from its source; a name made of a database's room, or of a log's kind, is given for each."""
    points: set[str] = set()
    for path in sorted((REPOSITORY / "hivemind").rglob("*.py")):
        for prefix, name in re.findall(r'crash_point\((f?)"([^"]+)"\)', path.read_text("utf-8")):
            if prefix:
                parts = LOGS if "{self.kind}" in name else ("documents", "longterm")
                points.update(re.sub(r"\{[^}]*\}", part, name) for part in parts)
            elif name != "mail.deliver.written":  # an example in words
                points.add(name)
    return tuple(sorted(points))


@contextlib.contextmanager
def _crash(subject: Subject) -> Iterator[None]:
    """The first process that comes past one of some crash points for the n-th time is killed there."""
    points = [point for point in crash_points() if point.startswith(subject.points)]
    some = subject.random.sample(points, min(len(points), 8))  # not every scenario comes past each
    point = ",".join(f"{name}:{subject.random.choice((1, 1, 1, 2, 3, 5))}" for name in some)
    once = subject.scratch / "died"
    with _with_environment(subject, HIVEMIND_CRASH_AT=point, HIVEMIND_CRASH_ONCE=str(once)):
        subject.notes.append(f"crash points {point}")
        yield
    subject.notes.append("died there" if once.exists() else "nobody came past it")


@contextlib.contextmanager
def _with_environment(subject: Subject, **variables: str) -> Iterator[None]:
    with _changing(subject, lambda command: replace(command, environment={**command.environment, **variables})):
        yield


@contextlib.contextmanager
def _changing(subject: Subject, change: Callable[[Command], Command]) -> Iterator[None]:
    before = subject.change
    subject.change = change
    try:
        yield
    finally:
        subject.change = before


def _strace(subject: Subject, calls: str, injection: str) -> tuple[str, ...]:
    trace = subject.scratch / "traces"
    trace.mkdir(exist_ok=True)
    return ("strace", "-f", "-qq", "--seccomp-bpf", "-o", str(trace / f"{len(subject.commands):04d}"), "-e",
            f"trace={calls}", "-e", f"inject={calls}:{injection}")  # fmt: skip


@contextlib.contextmanager
def _kill_at_call(subject: Subject) -> Iterator[None]:
    """Each process dies at its n-th call of one kind that changes the disk; n and the kind are the plan's."""
    subject.alone = True  # a supervisor would start the same again, and again

    def change(command: Command) -> Command:
        calls = subject.random.choice(CHANGING)
        is_short = command.words[:2] != ("agent", "run")
        at = subject.random.randrange(1, 5 if is_short else 40)
        return replace(command, before=_strace(subject, calls, f"signal=KILL:when={at}"), cold=True)

    with _changing(subject, change):
        yield


def _sweeping(injection: str) -> Callable[[Subject], AbstractContextManager[None]]:
    """Inject this at the first call of a command that changes the disk, ask again and inject it at the second, and so on,
    until all calls had their turn: each time under the same key."""

    @contextlib.contextmanager
    def act(subject: Subject) -> Iterator[None]:
        subject.alone = True
        run = subject.run

        def sweep(*words: str, **more: Any) -> Any:
            for calls in subject.random.sample(CHANGING, len(CHANGING)):
                for at in range(1, 60):
                    before = _strace(subject, calls, f"{injection}:when={at}")
                    with _changing(subject, lambda command, b=before: replace(command, before=b, cold=True)):  # type: ignore[misc]
                        running = run(*words, **more)
                    if "INJECTED" not in _traced(before) and running.poll() != -signal.SIGKILL:
                        break
                if not subject.thorough:
                    break
            return running

        subject.run = sweep  # type: ignore[method-assign]
        try:
            yield
        finally:
            del subject.run

    return act


def _traced(before: tuple[str, ...]) -> str:
    with open(before[before.index("-o") + 1], encoding="utf-8", errors="replace") as file:
        return file.read()


# disks


def _mounted(options: Callable[[], str]) -> Callable[[Path], AbstractContextManager[None]]:
    return lambda root: small_disk(root, options())


def _may_mount() -> str | None:
    return None if os.geteuid() == 0 and _has_capability(21) else "mounting is not allowed here (CAP_SYS_ADMIN)"


def _has_capability(number: int) -> bool:
    with open("/proc/self/status") as file:
        match = re.search(r"^CapEff:\s*([0-9a-f]+)", file.read(), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> number & 1)


@contextlib.contextmanager
def _full(subject: Subject) -> Iterator[None]:
    """All but a random rest of the disk is taken, after a random number of commands; at the end it is given back."""
    filler = subject.root / ".filler"
    room = subject.random.choice((0, 4096, 16384, 65536, 262144))
    fill = _after_some_commands(subject, lambda: _fill(filler, room))
    with fill:
        yield
    filler.unlink(missing_ok=True)


def _fill(filler: Path, room: int) -> None:
    space = os.statvfs(filler.parent)
    size = space.f_bavail * space.f_frsize - room
    with open(filler, "wb") as file:
        while size > 0:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
                return
            except OSError:  # somebody took some of it meanwhile
                size -= 1 << 15


@contextlib.contextmanager
def _no_inodes(subject: Subject) -> Iterator[None]:
    """All but a few inodes are taken; at the end they are given back."""
    folder, spare = subject.root / ".filler", subject.random.randrange(0, 12)

    def fill() -> None:
        try:
            folder.mkdir(exist_ok=True)
            for number in range(max(0, os.statvfs(folder).f_favail - spare)):
                (folder / str(number)).touch()
        except OSError:  # somebody took some of them meanwhile
            return

    with _after_some_commands(subject, fill):
        yield
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _read_only(subject: Subject) -> Iterator[None]:
    """From a random command on the disk can only be read (processes that had it open for writing have died); at the end it can
    be written again."""

    def turn() -> None:
        subject.kill_all()
        subprocess.run(["mount", "-o", "remount,ro", subject.root], check=True)

    try:
        with _after_some_commands(subject, turn):
            yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", subject.root], check=True)


@contextlib.contextmanager
def _after_some_commands(subject: Subject, do: Callable[[], None]) -> Iterator[None]:
    delay = subject.random.randrange(0, 4)

    def change(command: Command) -> Command:
        nonlocal delay
        if delay == 0:
            do()
        delay -= 1
        return command

    with _changing(subject, change):
        yield


def _failing(calls: tuple[str, ...], error: str) -> Callable[[Subject], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def act(subject: Subject) -> Iterator[None]:
        which = subject.random.choice(calls)
        at = f"{subject.random.randrange(1, 12)}{subject.random.choice(('', '', '+', '+7'))}"
        subject.notes.append(f"{error} at {which}, when={at}")
        with _changing(
            subject,
            lambda command: replace(command, before=_strace(subject, which, f"error={error}:when={at}"), cold=True),
        ):
            yield

    return act


@contextlib.contextmanager
def _slow(subject: Subject) -> Iterator[None]:
    calls = "fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,pwrite64"
    delay = subject.random.choice((5_000, 20_000, 80_000))
    with _changing(
        subject, lambda command: replace(command, before=_strace(subject, calls, f"delay_enter={delay}"), cold=True)
    ):
        yield


# pausing


@contextlib.contextmanager
def _pause_any(subject: Subject) -> Iterator[None]:
    """A process is stopped for longer than it may be silent, its work goes to others, then it continues."""
    pauses, due, paused_pid = subject.random.randrange(1, 4), time.monotonic() + subject.random.uniform(0.05, 1.0), 0

    def tick() -> None:
        nonlocal pauses, due, paused_pid
        if time.monotonic() < due:
            return
        if paused_pid:
            _kill(subject, paused_pid, signal.SIGCONT)
            paused_pid, due = 0, time.monotonic() + subject.random.uniform(0.05, 0.5)
        elif pauses and (pids := subject.processes()):
            paused_pid, pauses = subject.random.choice(pids), pauses - 1
            _kill(subject, paused_pid, signal.SIGSTOP)
            due = time.monotonic() + subject.random.uniform(0.3, 4.0)

    with _ticking(subject, tick):
        yield
    if paused_pid:
        _kill(subject, paused_pid, signal.SIGCONT)


@contextlib.contextmanager
def _pause_at_call(subject: Subject) -> Iterator[None]:
    """A process is stopped in the middle of a write, a rename or a flush, and continues seconds later."""
    starts: dict[int, float] = {}

    def change(command: Command) -> Command:
        at = subject.random.randrange(1, 6 if command.words[0] != "up" else 30)
        calls = subject.random.choice(CHANGING)
        return replace(command, before=_strace(subject, calls, f"signal=STOP:when={at}"), cold=True)

    def tick() -> None:
        for pid in _stopped_pids(subject.processes()):
            if time.monotonic() - starts.setdefault(pid, time.monotonic()) > 3:
                _kill(subject, pid, signal.SIGCONT)

    with _changing(subject, change), _ticking(subject, tick):
        yield
    for pid in _stopped_pids(subject.processes()):
        _kill(subject, pid, signal.SIGCONT)


def _stopped_pids(pids: list[int]) -> Iterator[int]:
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] in "Tt":
                    yield pid
        except OSError:
            continue


# clocks

_DAY = 86_400


@cache
def clock_library() -> str | None:
    """clock.c, compiled for as long as this process lives; None without a compiler. libfaketime 0.9.10 won't do: where it
    leaves the monotonic clock alone, as setting a clock does, every `time.sleep` of Python's ends with EINVAL (its
    clock_nanosleep takes an absolute time for a faked one)."""
    if shutil.which("cc") is None:
        return None
    cleanup = contextlib.ExitStack()
    library, source = cleanup.enter_context(folder("clock")) / "clock.so", Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, source, "-ldl"], check=True)
    multiprocessing.util.Finalize(
        None, cleanup.close, exitpriority=1
    )  # unlike atexit, at the end of a pool's process too
    return str(library)


def _clock(
    first: int | None, later: int | None, *, everyone: bool
) -> Callable[[Subject], AbstractContextManager[None]]:
    """The clock is `first` seconds off, and jumps to `later` in the middle; of all processes, or of some."""

    @contextlib.contextmanager
    def act(subject: Subject) -> Iterator[None]:
        setting = subject.scratch / "clock"
        _set_clock(setting, first or 0)
        due, jump = time.monotonic() + subject.random.uniform(0.2, 1.5), later
        library = str(clock_library())
        cold = subject.warm is None or subject.warm.preload != library
        variables = {"LD_PRELOAD": library, "CLOCK_OFFSET": str(setting)}

        def change(command: Command) -> Command:
            if everyone or subject.random.random() < 0.5:
                return replace(command, environment={**command.environment, **variables}, cold=cold)
            return command

        def tick() -> None:
            nonlocal jump
            if jump is not None and time.monotonic() > due:
                _set_clock(setting, jump)
                subject.jumped, jump = time.monotonic(), None

        subject.clocks_differ = not everyone
        if not everyone:
            subject.alone = True
        with _changing(subject, change), _ticking(subject, tick):
            yield

    return act


def _set_clock(setting: Path, seconds: int) -> None:
    new = setting.with_name("clock.new")
    new.write_text(f"{seconds:+d}\n")
    new.rename(setting)


# two machines


@contextlib.contextmanager
def _late(subject: Subject) -> Iterator[None]:
    """Two machines have the folder mounted and see it up to three seconds late; each runs its own agents."""
    roots = tuple(subject.scratch / f"machine-{number}" for number in (1, 2))
    for root in roots:
        root.mkdir()
        subprocess.run(
            ["bindfs", "--multithreaded", "--enable-lock-forwarding", "-o", "attr_timeout=3,entry_timeout=3",
             subject.root, root], check=True,
        )  # fmt: skip
    subject.roots, subject.alone = roots, True

    def change(command: Command) -> Command:
        if command.environment["HIVEMIND_HIVE"] != str(subject.root):
            return command
        return replace(command, environment={**command.environment, "HIVEMIND_HIVE": str(subject.random.choice(roots))})

    try:
        with _changing(subject, change):
            yield
        subject.kill_all()
    finally:
        for root in roots:
            subprocess.run(["umount", "-l", root], check=True)
        subject.roots, subject.alone = (), False


def _may_fuse() -> str | None:
    return _may_mount() or (None if os.access("/dev/fuse", os.W_OK) else "the kernel has no /dev/fuse")


def _may_trace() -> str | None:
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "the kernel does not let a process be traced"


_DISK_FULL = ("disk is full", "disk full", "No space left")
_BROKEN_DISK = ("Input/output error", "input/output error", "Read-only file system", "read-only", "disk I/O error")

FAULTS = {
    fault.name: fault
    for fault in (
        Fault("none", "no fault", "none"),
        Fault("kill", "kill -9 of any process at random moments", "kill", _kill_any),
        Fault("kill-all", "kill -9 of all processes at once", "kill", _kill_all),
        Fault("kill-reapers", "kill -9 of the reapers of steps' commands", "kill", _kill_reapers),
        Fault("crash-point", "kill -9 at a crash point of the program", "kill", _crash),
        Fault("kill-at-call", "kill -9 at the n-th system call that changes the disk", "kill", _kill_at_call,
              programs=("strace",), kernel=_may_trace),
        Fault("sweep", "each command killed at every system call that changes the disk, one after the other", "kill",
              _sweeping("signal=KILL"), programs=("strace",), kernel=_may_trace),
        Fault("sweep-eio", "each command meets EIO at every system call that changes the disk, one after the other", "disk",
              _sweeping("error=EIO"), programs=("strace",), kernel=_may_trace),
        Fault("full-disk", "no space is left", "disk", _full, _mounted(lambda: "size=160m"), ("mount",), _may_mount),
        Fault("no-inodes", "no inodes are left", "disk", _no_inodes, _mounted(lambda: "size=160m,nr_inodes=4000"),
              ("mount",), _may_mount),
        Fault("read-only", "the disk can only be read", "disk", _read_only, _mounted(lambda: "size=160m"), ("mount",),
              _may_mount),
        Fault("eio", "reads and writes fail with EIO", "disk",
              _failing(("write,pwrite64", "pread64", "rename,renameat,renameat2,link,linkat", "unlink,unlinkat",
                        "ftruncate", "mkdir,mkdirat"), "EIO"), programs=("strace",), kernel=_may_trace),
        Fault("quota", "writes fail with EDQUOT", "disk",
              _failing(("write,pwrite64", "ftruncate", "mkdir,mkdirat", "link,linkat"), "EDQUOT"), programs=("strace",),
              kernel=_may_trace),
        Fault("failing-fsync", "fsync and fdatasync fail with EIO", "disk", _failing(("fsync,fdatasync",), "EIO"),
              programs=("strace",), kernel=_may_trace),
        Fault("slow-disk", "every flush, rename and write to a database waits", "none", _slow, programs=("strace",),
              kernel=_may_trace),
        Fault("pause", "a process is stopped for longer than it may be silent, then continues", "pause", _pause_any,
              settings={"hang_after": 1.5}),
        Fault("pause-at-call", "a process is stopped in the middle of a change to the disk, then continues", "pause",
              _pause_at_call, programs=("strace",), kernel=_may_trace, settings={"hang_after": 1.5}),
        Fault("clock-ahead", "all clocks are a day ahead of the disk's", "clock", _clock(_DAY, None, everyone=True),
              programs=("cc",)),
        Fault("clock-behind", "all clocks are a day behind the disk's", "clock", _clock(-_DAY, None, everyone=True),
              programs=("cc",)),
        Fault("clock-jump", "all clocks jump a day forwards in the middle", "clock", _clock(0, _DAY, everyone=True),
              programs=("cc",)),
        Fault("clock-back", "all clocks jump an hour backwards in the middle", "clock", _clock(0, -3600, everyone=True),
              programs=("cc",)),
        Fault("clock-apart", "some processes' clocks are a day off", "clock", _clock(_DAY, -_DAY, everyone=False),
              programs=("cc",)),
        Fault("late-folders", "two machines see the folder up to three seconds late", "late", _late,
              programs=("bindfs",), kernel=_may_fuse),
    )
}  # fmt: skip
FAULTS["quota"] = replace(FAULTS["quota"], excuses=(*_DISK_FULL, "quota"))
for _name in ("full-disk", "no-inodes"):
    FAULTS[_name] = replace(FAULTS[_name], excuses=_DISK_FULL, tidy=True)
for _name in ("eio", "sweep-eio", "failing-fsync", "read-only"):
    FAULTS[_name] = replace(FAULTS[_name], excuses=_BROKEN_DISK)
