"""What a program starts ends with it, however it hides, and whoever is killed. Real processes, real kill -9."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hivemind.reaped_command import ReapedCommand
from tests.waiting import until

# Away from whoever could know it: a session and a group of its own, its parent gone, told to heed nothing.
DAEMON = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if os.fork():
        os._exit(0)
    os.setsid()
with open("pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename("pid.new", "pid")
time.sleep(1000)
"""
HIDES = ["sh", "-c", f'{sys.executable} -I -S -c "$1"; exec sleep 1000', "sh", DAEMON]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """The pid of the daemon, once there is one; it is killed at the end if it lives on."""

    def pid() -> int:
        until((tmp_path / "pid").exists)
        return int((tmp_path / "pid").read_text())

    yield pid
    if (tmp_path / "pid").exists() and is_alive(pid()):
        os.kill(pid(), signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def guards_of(program: Callable[[], int]) -> tuple[int, int, int]:
    """The host of the guards, the guard, and what it guards, all of them above a daemon or the program itself."""
    guard = parent(program())
    [started] = [one for one in children(guard) if one != program()]
    return parent(guard), guard, started


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_nothing_of_a_program_is_left_when_it_has_ended(tmp_path: Path, daemon: Callable[[], int]) -> None:
    ends = f'{sys.executable} -I -S -c "$1"; until [ -e pid ]; do sleep 0.01; done; exit 7'
    with ReapedCommand(["sh", "-c", ends, "sh", DAEMON], folder=tmp_path) as process:
        assert process.wait(30) == 7
        assert not is_alive(daemon())  # gone before the end is told


def test_nothing_is_left_when_it_is_not_waited_for(tmp_path: Path, daemon: Callable[[], int]) -> None:
    with ReapedCommand(HIDES, folder=tmp_path):
        pid = daemon()
    assert not is_alive(pid)


@pytest.mark.parametrize("victim", [0, 1])
def test_nothing_is_left_when_the_host_or_a_guard_is_killed(
    tmp_path: Path, daemon: Callable[[], int], victim: int
) -> None:
    with ReapedCommand(HIDES, folder=tmp_path) as process:
        pid = daemon()
        until(lambda: len(children(parent(pid))) == 2)  # what has forked the daemon may not be reaped yet
        found = guards_of(daemon)
        os.kill(found[victim], signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
        assert process.was_lost  # it did not fail, and may be run again
    assert not is_alive(pid)
    assert not is_alive(found[2])
    until(lambda: not is_alive(found[1]))
    with ReapedCommand(["true"], folder=tmp_path) as process:
        assert process.wait(30) == 0


def test_a_guard_that_is_killed_takes_no_other_program_with_it(tmp_path: Path, daemon: Callable[[], int]) -> None:
    with ReapedCommand(["sleep", "1000"], folder=tmp_path) as other, ReapedCommand(HIDES, folder=tmp_path) as process:
        pid = daemon()
        os.kill(parent(pid), signal.SIGKILL)
        process.wait(30)
        assert not is_alive(pid)
        assert other.wait(0) is None


def test_nothing_is_left_when_a_guard_is_stopped(tmp_path: Path, daemon: Callable[[], int]) -> None:
    with ReapedCommand(HIDES, folder=tmp_path):
        pid = daemon()
        os.kill(parent(pid), signal.SIGSTOP)
    assert not is_alive(pid)


def test_nothing_is_left_when_its_maker_is_killed(tmp_path: Path, daemon: Callable[[], int]) -> None:
    makes = (
        "import sys; from pathlib import Path; from hivemind.reaped_command import ReapedCommand\n"
        "with ReapedCommand(sys.argv[2:], folder=Path(sys.argv[1])) as process: process.wait()"
    )
    maker = subprocess.Popen([sys.executable, "-c", makes, tmp_path, *HIDES])
    pid = daemon()
    [host] = children(maker.pid)
    maker.kill()
    maker.wait()
    until(lambda: not is_alive(pid) and not is_alive(host))


def test_a_program_that_kills_its_guards_one_after_the_other_ends_as_well(tmp_path: Path) -> None:
    # its own first, so that the program is killed with it; what it has left behind goes for the host
    kills = "import os, signal; os.kill(os.getppid(), signal.SIGKILL); open('lived', 'w')"
    with ReapedCommand([sys.executable, "-c", kills], folder=tmp_path) as process:
        assert process.wait(30) == -signal.SIGKILL


def test_programs_of_one_guard_know_nothing_of_each_other_and_many_at_once_leave_few_guards(tmp_path: Path) -> None:
    tells = "import os, resource as r; print(os.getcwd(), r.getrlimit(r.RLIMIT_CPU), dict(os.environb), flush=True)"
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, limit, name in ((first, 7, "ONE"), (second, 9, "TWO")):
        folder.mkdir()
        command = [sys.executable, "-I", "-S", "-c", tells]
        with ReapedCommand(command, folder=folder, environment={name: "x"}, cpu_s=limit) as process:
            printed = process.output.read().decode()
            assert process.wait(30) == 0
        assert printed.startswith(f"{folder} ({limit}, {limit}) ")
        assert ("ONE" in printed, "TWO" in printed) == (name == "ONE", name == "TWO")
    with contextlib.ExitStack() as all_of_them:
        many = [all_of_them.enter_context(ReapedCommand(["cat"], folder=tmp_path)) for _ in range(12)]
        assert [process.wait(30) for process in many] == [0] * 12
        with ReapedCommand(["sh", "-c", "cut -d' ' -f4 /proc/$PPID/stat"], folder=tmp_path) as process:
            host = int(process.output.read())
    until(lambda: len(children(host)) <= 4)


@pytest.mark.parametrize(("does", "status"), [("exit 3", 3), ("kill -SEGV $$", -11), ("kill -9 $$", -9), (":", 0)])
def test_the_guard_ends_as_its_program_did(tmp_path: Path, does: str, status: int) -> None:
    with ReapedCommand(["sh", "-c", does], folder=tmp_path) as process:
        assert process.wait(30) == status
    assert not list(tmp_path.glob("core*"))


def test_a_program_can_be_terminated_though_those_who_start_programs_ignore_signals(tmp_path: Path) -> None:
    """As the fork server of a swarm does: `timeout 5 CMD` and `kill $!` in an agent's commands had no effect."""
    starts = (
        "import sys; from hivemind.reaped_command import *\n"
        "print(ReapedCommand(['sh', '-c', 'kill -$0 $$', sys.argv[1]], folder=None).wait())"
    )
    for name in ("INT", "TERM", "PIPE", "XFSZ"):
        ignoring = f"trap '' INT TERM; exec {sys.executable} -c \"$0\" {name}"
        ended = subprocess.run(["sh", "-c", ignoring, starts], capture_output=True, text=True, check=True)
        assert ended.stdout.strip() == str(-getattr(signal, f"SIG{name}"))


def test_a_script_that_does_not_say_what_runs_it_is_the_shells(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $0 $1\n")
    script.chmod(0o755)
    with ReapedCommand([str(script), "a"], folder=tmp_path) as process:
        assert process.output.read() == f"{script} a\n".encode()


@pytest.mark.parametrize(
    ("program", "status", "told"), [("none-such", 127, "not found"), ("/", 126, "Permission denied")]
)
def test_a_program_that_cannot_be_started_says_so(tmp_path: Path, program: str, status: int, told: str) -> None:
    with ReapedCommand([program], folder=tmp_path) as process:
        assert process.output.read().decode() == f"{program}: {told}\n"
        assert process.wait(30) == status


def test_words_and_values_are_passed_as_they_are(tmp_path: Path) -> None:
    odd = os.fsdecode(b"a\xff\n'\"$x")
    shows = "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]) + b'|' + os.environb[b'ODD'])"
    with ReapedCommand([sys.executable, "-c", shows, odd], folder=tmp_path, environment={"ODD": odd}) as process:
        assert process.output.read() == os.fsencode(odd) + b"|" + os.fsencode(odd)


def test_it_gets_no_descriptor_of_ours_and_none_of_its_guards(tmp_path: Path) -> None:
    mine = os.open(tmp_path, os.O_RDONLY)
    try:
        listing = shutil.which("ls") or "ls"
        with ReapedCommand([listing, "/proc/self/fd"], folder=tmp_path) as process:
            assert process.output.read().split() == [b"0", b"1", b"2", b"3"]  # the last is what it lists
    finally:
        os.close(mine)


def test_the_limits_hold_for_the_program(tmp_path: Path) -> None:
    tells = "import resource as r; print(r.getrlimit(r.RLIMIT_CPU), r.getrlimit(r.RLIMIT_AS)); bytes(400_000_000)"
    with ReapedCommand(
        [sys.executable, "-u", "-c", tells], folder=tmp_path, cpu_s=7, memory_bytes=200_000_000
    ) as process:
        printed = process.output.read()
    assert printed.startswith(b"(7, 7) (200000000, 200000000)\n")
    assert b"MemoryError" in printed
