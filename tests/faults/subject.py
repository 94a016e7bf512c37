"""The hive under test, seen as its users see it: files and the command line, never the inside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.program import REPOSITORY, Warm

from .ledger import Ledger, Request

__all__ = ["REPOSITORY", "Command", "Running", "Subject", "alive", "folder", "parent", "processes_of"]

LIMIT_S = 120.0  # a command is killed as hanging after that; no figure depends on it
STILL_S = 6.0  # agents without a supervisor are done once the journal rests that long


@contextmanager
def folder(kind: str) -> Iterator[Path]:
    """A folder with a short path, for sockets, in memory where there is some; what killed processes have left of the kind is
    removed."""
    above = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
    for remains in above.glob(f"hive-{kind}-*-*"):
        if not Path("/proc", remains.name.split("-")[-2]).exists():
            mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
            for mount in [at for at in mounts if at.startswith(f"{remains}/")]:  # a small disk, another machine's view
                subprocess.run(["umount", "-l", mount], check=False)
            subprocess.run(["rm", "-rf", remains], check=False)
    path = Path(tempfile.mkdtemp(prefix=f"hive-{kind}-{os.getpid()}-", dir=above))
    try:
        yield path
    finally:
        subprocess.run(["rm", "-rf", path], check=False)  # however deep


@dataclass(frozen=True, slots=True)
class Command:
    """The start of a process: a fault may put another program before it, or variables around it."""

    words: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()  # strace …, faketime …
    cold: bool = False  # started as a fresh interpreter, for `before` and for settings read at import
    module: str = "hivemind"


@dataclass(slots=True)
class Running:
    """A process that was started, and where its output goes."""

    words: tuple[str, ...]
    module: str
    pid: int
    out: Path
    err: Path
    _poll: Callable[[], int | None]

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it lives."""
        return self._poll()

    def output(self) -> str:
        return self.out.read_text("utf-8", "replace") if self.out.exists() else ""

    def errors(self) -> str:
        return self.err.read_text("utf-8", "replace") if self.err.exists() else ""


@dataclass
class Subject:
    """A hive in the folder `root`, and a folder next to it for the harness's own files.

    `change` is what the fault at work makes of a command; `ticks` are called again and again while a process is waited
    for, and may kill, stop or jump.
    """

    root: Path
    scratch: Path
    random: Random
    warm: Warm | None = None
    ledger: Ledger = field(default_factory=Ledger)
    change: Callable[[Command], Command] = lambda command: command
    ticks: list[Callable[[], None]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # of hive.yaml, as the fault or the plan wants them
    points: tuple[str, ...] = ("",)  # what the crash points on the scenario's way begin with
    thorough: bool = False  # sweep everything, not a part
    patience_s: float = LIMIT_S  # how long a swarm under the fault is waited for
    alone: bool = False  # agents run without a supervisor, as a fault that must meet one process wants it
    roots: tuple[Path, ...] = ()  # the same folder under other names (two machines); `root` is one of them
    commands: list[Running] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: dict[int, dict[str, Any]] = field(default_factory=dict)  # events that a reader was shown, by their number
    followed: list[list[int]] = field(default_factory=list)  # what each `log --follow` showed, in its order
    clocks_differ: bool = False  # by a day
    jumped: float = float("-inf")  # when the clocks jumped, by the monotonic clock, which no fault touches
    excuses: tuple[str, ...] = ()  # what an error.md may say of the machine, after this fault
    _listings: dict[tuple[str, ...], str] | None = None

    # processes

    def start(
        self, *words: str, root: Path | None = None, stdin: str | None = None, module: str = "hivemind"
    ) -> Running:
        """Start `hivemind WORDS` (or another program of the harness's), as the fault demands."""
        return self._start(self.change(Command(words, self._environment(root or self.root), module=module)), stdin)

    @staticmethod
    def _environment(root: Path) -> dict[str, str]:
        return {"HIVEMIND_HIVE": str(root), "HIVEMIND_EMBEDDER": "none"}

    def client(self, *words: str) -> Running:
        """Start one of the programs of `clients`."""
        return self.start(*words, module="tests.faults.clients")

    def collect(self, clients: Sequence[Running]) -> None:
        """Wait for clients, and enter what they wrote down into the ledger, in the order in which it was begun."""
        for client in clients:
            self.wait(client)
        requests = [request for client in clients for request in _requests(client.output())]
        self.ledger.requests += sorted(requests, key=lambda request: request.begin)

    def _start(self, command: Command, stdin: str | None) -> Running:
        logs = self.scratch / "output"
        logs.mkdir(exist_ok=True)
        number = len(self.commands)
        out, err = logs / f"{number:04d}.out", logs / f"{number:04d}.err"
        for log in (out, err):  # of the hive that this one is a copy of
            log.unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **command.environment}
        source = "/dev/null"
        if stdin is not None:
            source = str(logs / f"{number:04d}.in")
            Path(source).write_text(stdin)
        (logs / f"{number:04d}.words").write_text(json.dumps([*command.before, *command.words]) + "\n")
        if self.warm is not None and not command.before and not command.cold:
            pid = self.warm.start(
                {"module": command.module, "words": command.words, "environment": environment,
                 "folder": str(self.scratch), "in": source, "out": str(out), "err": str(err)}
            )  # fmt: skip
            warm = self.warm
            running = Running(command.words, command.module, pid, out, err, lambda: warm.status(pid))
        else:
            with open(out, "wb") as output, open(err, "wb") as errors, open(source, "rb") as reading:
                process = subprocess.Popen(
                    [*command.before, sys.executable, "-m", command.module, *command.words], stdin=reading, stdout=output,
                    stderr=errors, cwd=self.scratch, start_new_session=True, env=environment,
                )  # fmt: skip
            running = Running(command.words, command.module, process.pid, out, err, process.poll)
        self.commands.append(running)
        return running

    def wait(self, running: Running, limit_s: float = LIMIT_S) -> int | None:
        """The exit status; None if it took too long and was killed."""
        end = time.monotonic() + limit_s
        while (status := running.poll()) is None:
            if time.monotonic() > end:
                self.notes.append(f"took longer than {limit_s:.0f} s and was killed: {' '.join(running.words)}")
                self.kill_all()
                return None
            self.tick()
        return status

    def tick(self) -> None:
        for tick in self.ticks:
            tick()
        time.sleep(0.005)

    def run(self, *words: str, stdin: str | None = None, root: Path | None = None) -> Running:
        """Run `hivemind WORDS` to its end."""
        running = self.start(*words, stdin=stdin, root=root)
        self.wait(running)
        return running

    def ask(
        self, kind: str, key: str, *words: str, stdin: str | None = None, root: Path | None = None, **asked: Any
    ) -> Running:
        """Run `hivemind WORDS` and enter into the ledger what it answered."""
        begin = time.monotonic_ns()
        running = self.run(*words, stdin=stdin, root=root)
        end, status = time.monotonic_ns(), running.poll()
        self.ledger.add(Request(kind, key, asked, begin, end if status is not None else None, status, running.output()))
        return running

    def read(self, *words: str) -> Any:
        """Return a listing as JSON; within `at_rest` it is asked once. Raises AssertionError if the command fails."""
        if self._listings is not None and words in self._listings:
            return json.loads(self._listings[words])
        running = self.run(*words, "--json")
        assert running.poll() == 0, f"{' '.join(words)} ended with {running.poll()}: {running.errors()[-2000:]}"
        if self._listings is not None:
            self._listings[words] = running.output()
        return json.loads(running.output())

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Declare that the hive does not change meanwhile."""
        self._listings = {}
        try:
            yield
        finally:
            self._listings = None

    @contextmanager
    def follow_log(self) -> Iterator[None]:
        """Somebody reads along with `log --follow`, whom the fault leaves alone: the events shown there have been seen."""
        words = ("log", "--follow", "--json")
        reader = self._start(Command(words, self._environment(self.root)), None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGCONT):  # it may have been stopped
                _signal(reader.pid, number)
            self.wait(reader, 30)
            events = [json.loads(line) for line in reader.output().splitlines(keepends=True) if line.endswith("\n")]
            self.seen |= {event["seq"]: event for event in events}
            self.followed.append([event["seq"] for event in events])

    # what a person does with files

    @property
    def marks(self) -> Path:
        """The folder of the marks of tasks' commands: outside of the hive, and of every fault."""
        return self.scratch / "marks"

    def drop(self, kind: str, key: str, target: str, content: bytes, **asked: Any) -> None:
        """A file as a person moves it in: written elsewhere on its file system, made durable, then renamed."""
        path = self.root / target
        temporary = path.parent.parent / f".{path.name}.new"
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            _remove(temporary)
            return
        self.move_in(kind, key, temporary, target, **asked)

    def move_in(self, kind: str, key: str, built: Path, target: str, **asked: Any) -> None:
        """Rename what was built to its place, make that durable, and enter it into the ledger."""
        path, begin = self.root / target, time.monotonic_ns()
        status: int | None = None
        try:
            os.rename(built, path)
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            status = 0
        except OSError:
            _remove(built)
        self.ledger.add(Request(kind, key, asked, begin, time.monotonic_ns(), status))

    # the swarm

    def begin_work(self) -> list[Running]:
        """Start the swarm: it works until it is idle (agents that run alone, until `finish_work`)."""
        if not self.alone:
            return [self.start("up", "--until-idle")]
        roots = self.roots or (self.root,)
        names = self.agent_names()
        return [self.start("agent", "run", name, root=roots[at % len(roots)]) for at, name in enumerate(names)]

    def finish_work(self, swarm: list[Running]) -> None:
        """Let it work until it is idle, or until its remaining processes end."""
        if not self.alone:
            end = time.monotonic() + self.patience_s
            while swarm[0].poll() is None and time.monotonic() < end:
                self.tick()
            if swarm[0].poll() is None:
                signal_tree(swarm[0].pid, signal.SIGTERM)
            self.wait(swarm[0])
            return
        end, quiet = time.monotonic() + self.patience_s, 0
        still, size = time.monotonic(), -1
        while any(running.poll() is None for running in swarm) and quiet < 100:
            quiet = quiet + 1 if self.seems_idle() else 0
            now, new_size = time.monotonic(), self.journal_size()
            if new_size != size:
                still, size = now, new_size
            if now > min(end, still + STILL_S):  # who could go on has died, or the task is parked
                break
            self.tick()
        for running in swarm:
            if running.poll() is None:
                signal_tree(running.pid, signal.SIGTERM)
        for running in swarm:
            self.wait(running, 30)

    def work(self) -> None:
        self.finish_work(self.begin_work())

    def agent_names(self) -> list[str]:
        return sorted(path.stem for path in (self.root / "agents").glob("*.yaml"))

    def seems_idle(self) -> bool:
        """No task waits or is worked on, and no agent has unread mail."""
        tasks = self.root / "tasks"
        inbox = [name for name in os.listdir(tasks / "inbox") if name != "README.md" and not name.startswith(".")]
        active = [name for name in os.listdir(tasks / "active") if name != "README.md" and not name.startswith(".")]
        if inbox or active:
            return False
        boxes = (self.root / "mailboxes" / name / "new" for name in self.agent_names())
        return not any(box.is_dir() and os.listdir(box) for box in boxes)

    def journal_size(self) -> int:
        return sum(path.stat().st_size for path in (self.root / ".hive" / "journal").glob("*.jsonl"))

    def processes(self) -> list[int]:
        """Everything alive that belongs to this hive."""
        return processes_of([self.root, *self.roots, self.scratch], {running.pid for running in self.commands})

    def kill_all(self) -> None:
        """Kill all processes of this hive."""
        end = time.monotonic() + 30
        while (pids := self.processes()) and time.monotonic() < end:
            for pid in pids:
                _signal(pid, signal.SIGKILL)
            time.sleep(0.02)

    def walk(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """Walk through the hive as os.walk does, without the agents' worktrees: an attack can make them endlessly deep."""
        for folder, folders, files in os.walk(self.root):
            if Path(folder) == self.root:
                folders[:] = [name for name in folders if name != "worktrees"]
            yield folder, folders, files

    def copy_to(self, folder: Path) -> None:
        """Keep all that there is: the trace of a violation."""
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(self.scratch, folder / "beside", symlinks=True, ignore=_no_sockets)
        shutil.copytree(self.root, folder / "hive", symlinks=True, ignore=_no_sockets)
        self.ledger.save(folder / "ledger.jsonl")
        (folder / "notes.txt").write_text("\n".join(self.notes) + "\n")


def _requests(output: str) -> Iterator[Request]:
    """Yield the requests of a client's diary: a line when it asked, a line when it was answered."""
    fields: dict[str, Any] | None = None
    for line in output.splitlines():
        try:
            line_fields = json.loads(line)
        except ValueError:  # torn
            continue
        if "begin" in line_fields:
            if fields is not None:
                yield Request(**fields)
            fields = line_fields
        elif fields is not None:
            yield Request(**fields, **line_fields)
            fields = None
    if fields is not None:
        yield Request(**fields)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.unlink(missing_ok=True)
    except OSError:  # a disk that can only be read keeps it
        pass


_DEEPEST = 100  # an attack makes folders that no library copies


def _no_sockets(folder: str, names: list[str]) -> set[str]:
    if len(Path(folder).parts) > _DEEPEST:
        return set(names)
    paths = ((name, Path(folder) / name) for name in names)
    return {name for name, path in paths if path.is_socket() or path.is_fifo()}


def processes_of(folders: Sequence[Path], sessions: set[int]) -> list[int]:
    """The processes that work in one of the folders, have a file of it open, or are of one of the sessions.

    The harness's own are left out, and the programs that make a fault (a tracer ends with what it traces).
    """
    own_pid, prefixes = os.getpid(), tuple(f"{folder}/" for folder in folders)
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if pid != own_pid and _belongs(pid, prefixes, sessions)]


def _belongs(pid: int, prefixes: tuple[str, ...], sessions: set[int]) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            name, _, fields = file.read().rpartition(")")
        state, _, _, session = fields.split()[:4]
        if state in "ZX" or name.endswith(("(strace", "(bindfs")):
            return False
        if int(session) in sessions or f"{os.readlink(f'/proc/{pid}/cwd')}/".startswith(prefixes):
            return True
        return any(
            os.readlink(f"/proc/{pid}/fd/{number}").startswith(prefixes) for number in os.listdir(f"/proc/{pid}/fd")
        )
    except (OSError, ValueError):  # it just ended
        return False


def parent(pid: int) -> int:
    """The number of a process' parent. Raises OSError after its end."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    """Check that a process lives; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def signal_tree(pid: int, number: int) -> None:
    """Signal a process, or, where it is a tracer, what it traces."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            tracer = file.read().strip() == "strace"
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return
    for target in children if tracer else [pid]:
        _signal(target, number)
