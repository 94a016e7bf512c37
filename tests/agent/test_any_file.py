"""Whatever becomes of one file that a swarm left under .hive (a power cut, a bad disk, a person): nobody is stopped by it.

The files are those that a run leaves, found by looking; what is done to each is the same for all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.cli.main import main
from hivemind.errors import UserError
from hivemind.presence.identity import lock_name
from hivemind.swarm.process import AgentProcess
from tests.agent.conftest import Crew
from tests.program import run
from tests.sample import IS_WHOLE, sampled

TASK = """---
steps:
  - {ask: "What moves a rowing boat?"}
  - {run: "echo seen"}
  - {mail: {to: human, subject: Boats, body: Seen.}}
  - {wait: {human: "Go on?"}}
---
Boats.
"""
TRUTHS = re.compile(r"\.hive/(\w+\.db|journal/journal\.jsonl)")
"""What lies nowhere else: a person is told, and decides."""
IN_TURN = 3 if IS_WHOLE else 1
"""How many of the damages, the next ones in turn, are done to a file that is no truth; to a truth, all of them are."""
LIMIT_S = 60


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a swarm left that has done everything once, and was killed in the end."""
    root = tmp_path_factory.mktemp("scene") / "hive"
    crew = Crew(root)
    crew.agent_file("role: analyst\nbudget: {day: {tokens: 1000000}}\n")
    for box in (root / "mailboxes").iterdir():
        if box.name not in ("ada", "human") and box.is_dir():
            shutil.rmtree(box)
    crew.configure("budget: {day: {tokens: 1000000}}\n")
    (root / "knowledge" / "boats.md").write_text("# Boats\n\nA rowing boat is moved with oars.\n")
    crew.drop(TASK, "boats.md")
    crew.drop("What moves a rowing boat?", "short.md")
    words = ["--hive", str(root)]
    run([*words, "up", "--until-idle"], capture_output=True, timeout=120, check=False)
    run([*words, "memory", "remember", "Boats float."], capture_output=True, timeout=60, check=True)
    hive = Hive.open(root)
    hive.tasks.add("Later", assignee="nobody")
    hive.tasks.list("inbox")
    hive.journal.snapshot()
    hive.journal.append("agent.started", agent_id="ada", incarnation=9)
    hive.journal.close()
    return root


def files(root: Path) -> list[str]:
    mine = f"{os.getpid()}-"  # marks of this very process, which comes and goes
    found = [path for path in (root / ".hive").rglob("*") if path.is_file() and not path.name.startswith(mine)]
    return sorted(str(path.relative_to(root)) for path in found)


def flipped(raw: bytes) -> bytes:
    at = len(raw) // 2
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :] if raw else b"\x10"


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeros at its end": lambda path: path.write_bytes(path.read_bytes()[: -(path.stat().st_size // 3)] + bytes(4096)),
    "all zeros": lambda path: path.write_bytes(bytes(max(512, path.stat().st_size))),
    "a bit flipped": lambda path: path.write_bytes(flipped(path.read_bytes())),
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: replaced(path, lambda one: (one.mkdir(), (one / "x").touch())),
    "a FIFO": lambda path: replaced(path, os.mkfifo),
}


class Hung(BaseException):
    """Something waits for ever. No error that anyone answers."""


@contextmanager
def limited() -> Iterator[None]:
    """What waits for ever ends with an error that says where."""

    def ring(*_: object) -> None:
        raise Hung(f"nothing happened for {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class OneLife(AgentProcess):
    """Ends when there is nothing to do, or when it is stuck."""

    stuck: str | None = None

    def _wait_out(self, error: Exception) -> None:
        self.stuck = str(error)
        self.stop()


def live(root: Path) -> str | None:
    """A process's life of ada until she rests; gives what is in her way."""
    hive = Hive.open(root)
    lock = lock_name(hive.layout, "ada")
    life = OneLife(hive, "ada", lock)
    rest = Agent._wait_for_work
    Agent._wait_for_work = lambda agent: life.stop()  # type: ignore[method-assign]
    try:
        life.run()
    finally:
        Agent._wait_for_work = rest  # type: ignore[method-assign]
        lock.release()
        hive.documents.close()  # SQLite keeps what it found of a file for as long as the process has it open
    return life.stuck


def told(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status = main(["--hive", str(root), *words])
    said = "".join(capsys.readouterr())
    assert "fault of hivemind" not in said, said
    assert status == 0 or said.strip(), words
    return said


@sampled
@pytest.mark.parametrize("damage", DAMAGES)
def test_nobody_is_stopped_by_one_damaged_file(scene: Path, tmp_path: Path, damage: str, capsys):
    wrong = {}
    turn = list(DAMAGES).index(damage)
    for number, name in enumerate(files(scene)):
        if not TRUTHS.fullmatch(name) and (number - turn) % len(DAMAGES) >= IN_TURN:
            continue
        root = tmp_path / "hive"
        shutil.copytree(scene, root, symlinks=True)
        DAMAGES[damage](root / name)
        try:
            with limited():
                survives(root, name, capsys)
        except (Exception, Hung) as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            wrong[name] = f"{type(error).__name__}: {str(error)[:500]} ({where.filename}:{where.lineno})"
        capsys.readouterr()
        shutil.rmtree(root)
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


def survives(root: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["status"], ["doctor"], ["task", "list"], ["log"]):
        told(root, capsys, *words)
    problem = done(root, "new")
    assert problem is None or re.sub(r"-(shm|wal)$", "", Path(name).name) in problem, (
        f"neither done nor said why: {problem}"
    )
    said = told(root, capsys, "doctor", "--fix")
    if problem is not None and not TRUTHS.fullmatch(name):
        assert (again := done(root, "again")) is None, f"{problem}; after doctor --fix: {again}\n{said}"


def done(root: Path, task: str) -> str | None:
    """None if a life of ada does a new task; else what it says is in the way."""
    (root / "tasks/inbox" / f"{task}.md").write_text("What moves a rowing boat?\n")
    try:
        problem = live(root)
    except UserError as error:
        problem = str(error)
    if (root / "tasks/done" / task).is_dir():
        return None
    failed = root / "tasks/failed" / task / "error.md"
    record = root / "tasks/active" / task / "task.json"
    return problem or next((path.read_text() for path in (failed, record) if path.exists()), "nothing")
