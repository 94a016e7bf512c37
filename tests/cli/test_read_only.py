"""Looking writes nothing: a read-only disk, a backup of another project, a copy that lacks folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.errors import UserError
from tests.cli.conftest import Command, Ended, make_hive
from tests.program import run

TASK = "when-is-it-closed"
LOOKS = (
    "status",
    "log",
    f"task transcript {TASK}",
    "lease list",
    f"view resume {TASK}",
    f"view snapshot {TASK}",
    f"view signals {TASK}",
    "context researcher",
    "context researcher --why",
    "task list",
    f"task show {TASK}",
    "mail list",
    "mail list researcher --json",
    f"graph show {TASK}",
    f"graph branch list {TASK}",
    "agent list",
    "memory list",
    "memory search hours",
    "memory status",
)
LOOKS_AT_DOCUMENTS = (  # which are kept in .hive
    "doc tree",
    "doc tree knowledge/shop.md",
    "doc show knowledge/shop.md:1",
    "doc find closed",
    "doc expand knowledge/shop.md",
    "doc export knowledge/shop.md",
)
LOOKS_AT_ENTRIES = ("memory show hours",)
WRITES = (
    "task add more",
    f"task retry {TASK}",
    "task cancel waiting",
    "lease claim a.s1 --agent human",
    "agent add writer",
    "doc note knowledge/shop.md:1 indeed",
    "doc summarize knowledge/shop.md",
    "doc import /etc/hostname",
    "up",
    "up --detach",
)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hive that has answered a question, where another task waits; nothing of it runs."""
    root = make_hive(tmp_path_factory.mktemp("used") / "hive", durability="full")
    (root / "knowledge").mkdir()
    (root / "knowledge" / "shop.md").write_text("The shop is closed on Sundays.\n")
    for words in (["task", "add", "When is it closed?"], ["up", "--until-idle"]):
        run(["--hive", str(root), *words], check=True, capture_output=True)
    hive = Hive.open(root)
    hive.tasks.add("Wait", id="waiting")
    for agent in ("researcher", "reviewer"):
        hive.mail.send("human", agent, "Hello", "There")
    hive.memory.put(("shared", hive.config.workspace), "hours", "the opening hours are from nine to five")
    hive.memory.close()
    return root


def _sandbox(root: Path) -> list[str]:
    """The words before a command that run it with `root` on a read-only disk."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("bwrap makes the read-only disk")
    kernel = ["--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    words = [bwrap, "--bind", "/", "/", *kernel, "--ro-bind", str(root), str(root)]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("bwrap may not make namespaces here")
    return words


_EACH = """
import json, os, sys, tempfile
import hivemind.doctor, hivemind.hive, hivemind.swarm.swarm
from hivemind.cli import main
ends = []
for command in sys.argv[2:]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if (pid := os.fork()) == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            status = main(["--hive", sys.argv[1], *command.split()])
            sys.stdout.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        ends.append((status, *(file.seek(0) or file.read().decode() for file in (out, err))))
print(json.dumps(ends))
"""


def _on_read_only_disk(root: Path, *commands: str) -> list[Ended]:
    """How each command ends there, in a process of its own."""
    words = [*_sandbox(root), sys.executable, "-c", _EACH, str(root), *commands]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    return [Ended(*end) for end in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def ends(used: Path) -> dict[str, Ended]:
    commands = (*LOOKS, *LOOKS_AT_ENTRIES, *LOOKS_AT_DOCUMENTS, *WRITES)
    return dict(zip(commands, _on_read_only_disk(used, *commands), strict=True))


def _files(root: Path) -> dict[str, tuple[int, int]]:
    return {str(one): (one.lstat().st_size, one.lstat().st_mtime_ns) for one in root.rglob("*")}


@pytest.mark.shows("promise: P46")
@pytest.mark.parametrize("command", LOOKS + LOOKS_AT_ENTRIES + LOOKS_AT_DOCUMENTS)
def test_everything_can_be_looked_at_on_a_read_only_disk(ends: dict[str, Ended], command: str) -> None:
    assert (ends[command].status, ends[command].err) == (0, "")


def test_documents_of_files_that_have_changed_are_shown_as_they_were_and_it_is_said(used: Path, tmp_path: Path) -> None:
    root = shutil.copytree(used, tmp_path / "hive", symlinks=True)
    (root / ".hive" / "workspace.json").unlink()  # it names the folder
    Hive.open(root)
    (root / "knowledge" / "shop.md").write_text("The shop is open.\n")
    [ended] = _on_read_only_disk(root, "doc expand knowledge/shop.md")
    assert "closed on Sundays" in ended.out
    assert "files seem to have changed" in ended.err


def test_mail_is_shown_there_and_stays_unread(used: Path) -> None:
    [listed] = _on_read_only_disk(used, "mail list researcher --unread --json")
    [ended] = _on_read_only_disk(used, f"mail read researcher {listed.json[-1]['id']}")
    assert ended.status == 0
    assert "There" in ended.out
    assert "the message stays unread (Read-only file system)" in ended.err


@pytest.mark.parametrize("command", WRITES)
def test_what_must_write_says_in_one_line_why_it_cannot(ends: dict[str, Ended], command: str) -> None:
    ended = ends[command]
    assert ended.status in (1, 2)
    assert len(ended.err.splitlines()) == 1
    assert "Read-only file system" in ended.err
    assert "mount it for writing" in ended.err


def test_the_doctor_says_once_that_the_disk_is_read_only(used: Path) -> None:
    for ended in _on_read_only_disk(used, "doctor --json", "doctor --fix --json"):
        assert ended.status == 1
        wrong = [one for one in ended.json["findings"] if not one["note"]]
        assert [(one["check"], one["what"][:20]) for one in wrong] == [("file system", "is mounted read-only")]


def test_the_events_come_as_they_are_written_elsewhere(used: Path) -> None:
    words = [
        *_sandbox(used),
        sys.executable,
        "-m",
        "hivemind",
        "--hive",
        str(used),
        "log",
        "--follow",
        "--kind",
        "told",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        Hive.open(used).journal.append("told", what="something")
        assert "something" in following.stdout.readline()
        following.kill()


@pytest.mark.parametrize("command", [one for one in LOOKS if not one.startswith("context")])
def test_looking_changes_no_file_of_a_hive_that_lacks_folders(
    used: Path, tmp_path: Path, run: Command, command: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(used, copy, symlinks=True, ignore=shutil.ignore_patterns(".hive", "inbox"))
    before = _files(copy)
    assert run("--hive", str(copy), *command.split()).status == 0
    (sealed, *_) = Hive.look(copy).mail.list("reviewer")
    assert run("--hive", str(copy), "mail", "read", "reviewer", sealed.id, "--keep-unread").status == 0
    assert _files(copy) == before


def test_a_backup_of_another_project_is_shown_with_a_warning_and_not_written(
    used: Path, tmp_path: Path, run: Command
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(used, copy, symlinks=True)
    shown = run("--hive", str(copy), "task", "show", TASK)
    assert (shown.status, "closed on Sundays" in shown.out) == (0, True)
    assert shown.err.startswith("hivemind: shown for reading only: PROJECT_GUARD_MISMATCH: ")
    added = run("--hive", str(copy), "task", "add", "x")
    assert (added.status, added.err.startswith("hivemind: PROJECT_GUARD_MISMATCH: ")) == (2, True)


def test_a_hive_opened_for_looking_refuses_to_be_written(used: Path) -> None:
    hive = Hive.look(used)
    assert hive.journal.seq > 0
    with pytest.raises(UserError, match="was opened read-only"):
        hive.journal.append("x")
    with pytest.raises(UserError, match="was opened read-only"):
        hive.leases.claim("a", "b")
    for write in (
        lambda: hive.tasks.add("x"),
        lambda: hive.tasks.retry(TASK),
        lambda: hive.tasks.claim("researcher"),
        lambda: hive.tasks.inbox.add("x"),
        lambda: hive.tasks.recovery.reclaim("researcher"),
        lambda: hive.tasks.active.say("waiting", "x"),
        lambda: hive.tasks.active.disown(TASK, "wrong"),
        lambda: hive.mail.send("human", "researcher", "a", "b"),
        lambda: hive.mail.ensure("newcomer"),
        lambda: hive.mail.mark_answered("human", "x"),
        lambda: hive.memory.put(("shared", "hive"), "k", {"content": "x"}),
        lambda: hive.memory.create_user("ada"),
        lambda: hive.memory.reindex(),
    ):
        before = _files(used)
        with pytest.raises(UserError, match=r"was opened read-only; open it for writing with Hive\.open"):
            write()
        assert _files(used) == before
    (unread, *_) = hive.mail.list("reviewer")
    assert hive.mail.read("reviewer", unread.id).body
    assert _files(used) == before


def _files(root: Path) -> set[Path]:
    return {path for folder in ("tasks", "mailboxes") for path in (root / folder).rglob("*")}
