"""What processes leave behind: locks, farewells, torn logs, damaged records, leftovers, databases."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.coordination import Journal
from hivemind.doctor import DoctorContext, DoctorFinding, examine
from hivemind.fs import Lock, set_durability
from hivemind.fs.backup import back_up
from hivemind.presence.identity import journal_start, lock_name
from hivemind.presence.watching import supervisor_lock
from hivemind.reasoning import TaskGraph
from hivemind.sandbox import check_sandbox
from tests.fs.small_disk import fill, small_disk
from tests.rights import as_anyone
from tests.tasks.conftest import in_process


def databases(hive: Hive) -> list[DoctorFinding]:
    """What the doctor says of the databases."""
    return [one for one in examine(DoctorContext(hive.layout)) if one.check == "databases"]


def test_a_lock_that_a_child_holds_for_a_dead_process_is_told(hive: Hive, visit) -> None:
    program = (
        "import os, sys, time\n"
        "from hivemind.fs import Lock\n"
        "lock = Lock(sys.argv[1]); lock.acquire(agent='researcher')\n"
        "if os.fork(): os._exit(0)\n"
        "print(os.getpid(), flush=True); time.sleep(600)\n"
    )
    path = hive.layout.locks / "agent-researcher.lock"
    parent = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.wait()
    try:
        (found,) = [finding for finding in visit() if finding.check == "locks"]
        assert f"process {parent.pid}, which has died" in found.message
        assert "fuser" in found.remedy
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


def test_the_file_of_a_lock_that_nobody_holds_is_no_finding(hive: Hive, visit) -> None:
    with Lock(hive.layout.locks / "agent-researcher.lock"):
        pass
    assert visit() == []


def test_an_agent_that_was_killed_is_said_farewell_and_its_leases_are_free(
    hive: Hive, visit, litter, treatment
) -> None:
    journal_start(hive.journal, "researcher", 1)
    hive.leases.claim("task/1", "researcher")
    (found,) = litter()
    assert found.message.startswith("researcher (leases of steps: 1): killed")
    with supervisor_lock(hive.layout.locks):  # others are at work, and may want those steps
        assert [one.message for one in visit()] == [found.message]
    treatment()
    assert visit() == litter() == []
    assert hive.leases.get("task/1") is None
    assert hive.journal.read()[-1].kind == "agent.exited"


def test_an_agent_that_lives_is_not_said_farewell(hive: Hive, visit) -> None:
    journal_start(hive.journal, "researcher", os.getpid())
    name = lock_name(hive.layout, "researcher")
    assert visit() == []
    name.release()


def test_a_torn_journal_is_mended_and_the_torn_piece_kept(hive: Hive, visit, treatment) -> None:
    hive.journal.append("agent.note", text="whole")
    hive.journal.close()
    (segment,) = hive.layout.journal.glob("*.jsonl")
    with open(segment, "ab") as file:
        file.write(b'{"seq":2,"kind":"agent.no')
    (found,) = visit()
    assert "torn (25 bytes)" in found.message
    treatment()
    assert visit() == []
    assert [event.payload["text"] for event in hive.journal.read()] == ["whole"]
    assert "agent.no" in Path(f"{segment}.torn").read_text()


def test_a_damaged_line_in_the_journal_is_named_and_the_events_around_it_kept(hive: Hive, visit, treatment) -> None:
    for number in range(3):
        hive.journal.append("agent.note", number=number)
    hive.journal.close()
    (segment,) = hive.layout.journal.glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(lines[0] + lines[1] + b"rubbish\n" + lines[3])
    assert [finding.location for finding in visit() if finding.check == "journal"] == [f"{segment}:3"]
    (treated,) = [one for one in treatment() if one.finding.check == "journal"]
    assert "1 events are lost" in str(treated.done)
    assert [event.kind for event in hive.journal.read()] == ["agent.note", "journal.lost", "agent.note"]
    (kept,) = hive.layout.aside.glob("*/.hive/journal/journal.jsonl")
    assert kept.read_bytes() == lines[0] + lines[1] + b"rubbish\n" + lines[3]
    assert visit() == []


def test_a_damaged_journal_is_not_repaired_while_an_agent_runs(hive: Hive, visit, treatment) -> None:
    for _ in range(3):
        hive.journal.append("agent.note")
    (segment,) = hive.layout.journal.glob("*.jsonl")
    segment.write_bytes(damaged := segment.read_bytes().replace(b'{"seq":2', b"rubbish", 1))
    held = lock_name(hive.layout, "researcher")
    left = [one.unresolved_reason for one in treatment() if one.finding.check == "journal"]
    held.release()
    assert left == ["researcher runs: hivemind down first"]
    assert segment.read_bytes() == damaged


@pytest.mark.parametrize("gone", [os.unlink, lambda path: os.truncate(path, 0)])
def test_a_journal_that_is_gone_is_told(hive: Hive, visit, gone: Callable[[Path], None]) -> None:
    with hive.journal.locked(lambda _: None):
        pass
    assert visit() == []
    set_durability(hive.layout.root, durable=True)
    journal = Journal(hive.layout.journal)
    journal.append("agent.note")
    journal.close()
    gone(hive.layout.journal / "journal.jsonl")
    (found,) = visit()
    assert (found.check, found.location) == ("journal", ".hive/journal/journal.jsonl")
    assert "is missing or empty" in found.message


def test_the_torn_end_of_a_tasks_log_is_cut_off_and_kept(hive: Hive, visit, treatment) -> None:
    hive.tasks.add("x", id="one")
    task = hive.tasks.claim("researcher")
    assert task is not None
    hive.tasks.active.log(task, {"kind": "note"})
    log = hive.tasks.finish(task, "done") / "messages.jsonl"
    with open(log, "ab") as file:
        file.write(b'{"kind":"ha')
    treatment()
    assert log.read_bytes().endswith(b'\n{"kind":"note"}\n')
    (kept,) = map(json.loads, log.with_name("messages.jsonl.torn").read_text().splitlines())
    assert kept["torn"] == '{"kind":"ha'
    assert visit() == []


def test_a_tasks_log_that_is_something_else_is_set_aside(hive: Hive, visit, treatment) -> None:
    hive.tasks.add("x", id="one")
    task = hive.tasks.claim("researcher")
    assert task is not None
    log = hive.tasks.finish(task, "done") / "messages.jsonl"
    log.write_text('{"kind":"other","version":1}\n')
    (found,) = visit()
    assert "is not a log of kind 'messages'" in found.message
    treatment()
    assert visit() == []
    assert list(hive.tasks.listing.read_log("one")) == []
    log.write_text('{"kind":"messages","version":99}\n')
    (found,) = visit()
    assert "version 99" in found.message
    treatment()
    assert log.exists()


def test_a_last_line_that_only_lacks_its_newline_is_whole(hive: Hive, visit) -> None:
    hive.tasks.add("x", id="one")
    task = hive.tasks.claim("researcher")
    assert task is not None
    hive.tasks.active.log(task, {"kind": "note"})
    log = hive.tasks.finish(task, "done") / "messages.jsonl"
    log.write_bytes(log.read_bytes()[:-1])
    assert visit() == []


def test_a_damaged_record_is_set_aside_and_one_of_another_version_kept(hive: Hive, visit, treatment) -> None:
    folder = hive.layout.agent_state("researcher")
    folder.mkdir()
    (folder / "status.json").write_text('{"kind":"sta')
    (folder / "other.json").write_text(json.dumps({"kind": "other", "version": 99}))
    assert sorted(finding.location.rpartition("/")[2] for finding in visit()) == ["other.json", "status.json"]
    treatment()
    (left,) = visit()
    assert "version 99" in left.message
    assert (folder / "other.json").exists()
    assert not (folder / "status.json").exists()


def test_a_record_that_may_not_be_read_is_told_and_stays_where_it_is(hive: Hive) -> None:
    hive.tasks.add("What is a lease?", id="t")
    assert hive.tasks.claim("researcher") is not None
    records = [hive.layout.active / "t/task.json", hive.layout.agent_state("researcher") / "status.json"]
    records[1].parent.mkdir()
    records[1].write_text('{"kind":"status","version":1}\n')
    for path in records:
        path.chmod(0)

    def look() -> None:
        as_anyone()
        told = {one.location: one for one in examine(DoctorContext(hive.layout)) if one.check == "records"}
        assert told.keys() == {hive.layout.relative(path) for path in records}
        assert {(one.message, one.fix) for one in told.values()} == {("cannot be read (Permission denied)", None)}

    in_process(look)


def test_what_needs_a_quiet_hive_is_left_while_the_swarm_is_up(hive: Hive, treatment) -> None:
    folder = hive.layout.agent_state("researcher")
    folder.mkdir()
    (folder / "status.json").write_text('{"kind":"sta')
    with supervisor_lock(hive.layout.locks):
        (left,) = treatment()
    assert left.unresolved_reason == "the swarm is up: hivemind down first"
    assert (folder / "status.json").exists()


def test_what_killed_writers_left_is_set_aside_and_what_is_being_written_left(
    hive: Hive, visit, litter, treatment
) -> None:
    hour_ago, gone = time.time() - 3700, subprocess.Popen(["true"])
    gone.wait()
    old, young = f".tmp-{os.getpid()}-2", f".tmp-{os.getpid()}-3"
    dead = f".tmp-{gone.pid}-1"
    for name, when in ((old, hour_ago), (young, time.time()), (dead, time.time()), (".tmp-mine", hour_ago)):
        path = hive.layout.state / name
        path.write_text("half")
        os.utime(path, (when, when))
    assert sorted(one.location for one in litter()) == sorted([f".hive/{old}", f".hive/{dead}"])
    assert visit() == []
    treatment()
    assert litter() == []
    assert sorted(path.name for path in hive.layout.state.glob(".tmp-*")) == sorted([young, ".tmp-mine"])


def test_a_damaged_document_database_is_kept_and_what_can_be_read_is_saved(hive: Hive, visit, treatment) -> None:
    root = hive.documents.create_root(text="By hand")
    for number in range(300):
        hive.documents.append_child(root.id, "memory", "by", "me", f"Line {number} of it.")
    hive.documents.close()
    path = hive.layout.documents_db
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 4096] = os.urandom(4096)
    path.write_bytes(raw)
    (found,) = visit()
    assert (found.location, found.quiet) == (".hive/documents.db", False)
    assert "damaged" in found.message
    [treated] = treatment()
    assert "newer rows were recovered from the damaged file" in str(treated.done)
    assert visit() == []
    assert len(hive.documents.serialize(root.id)) > 100
    [kept] = hive.layout.aside.glob("*/documents.db")
    assert kept.read_bytes() == bytes(raw)
    [note] = [one for one in examine(DoctorContext(hive.layout)) if one.note and one.check == "databases"]
    assert "was damaged" in note.message


@pytest.mark.parametrize(("content", "told"), [(b"", 0), (b"x", 1)])
def test_a_document_database_of_no_byte_or_one(hive: Hive, visit, treatment, content: bytes, told: int) -> None:
    hive.layout.documents_db.write_bytes(content)
    assert len([one for one in visit() if one.check == "databases"]) == told
    treatment()
    assert visit() == []
    assert hive.documents.roots() == []


def test_what_does_not_fit_within_the_document_database_is_restored(hive: Hive, visit, treatment) -> None:
    root = hive.documents.create_root(text="By hand")
    hive.documents.rebuild()  # it is told of changes later
    assert back_up(hive.layout.documents_db, hive.layout.backups)
    hive.documents.close()
    with closing(sqlite3.connect(hive.layout.documents_db)) as database:
        database.execute("UPDATE nodes SET hash = 'x'")
        database.execute("INSERT INTO words(words) VALUES ('delete-all')")
        database.commit()
    assert len(visit()) == 2
    treatment()
    assert visit() == []
    assert root.id == hive.documents.query("hand")[0].node.id


def test_a_damaged_memory_database_is_kept_and_its_last_backup_takes_its_place(hive: Hive, visit, treatment) -> None:
    path = hive.layout.memory_db
    hive.memory.put_many(("memories", "ann"), {f"k{number}": f"text {number} " * 40 for number in range(60)})
    hive.memory.close()
    assert back_up(path, hive.layout.backups)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) * 3 // 4])
    (found,) = visit()
    assert (found.location, "is damaged" in found.message, ".hive/aside/" in found.remedy) == (
        ".hive/memory.db",
        True,
        True,
    )
    treatment()
    assert visit() == []
    (note,) = [one for one in databases(hive) if one.note]
    assert "replaces it" in note.message
    assert len(hive.memory.list(("memories", "ann"))) == 60
    assert [kept.read_bytes() for kept in hive.layout.aside.glob("*/memory.db")] == [raw[: len(raw) * 3 // 4]]


@pytest.mark.parametrize("loss", ["gone", "empty"])
def test_a_lost_database_is_told_and_begun_anew(hive: Hive, visit, treatment, loss: str) -> None:
    hive.memory.put(("memories", "ann"), "k", "Bees make honey.")
    hive.documents.create_root(text="Bees")
    for store, path in ((hive.memory, hive.layout.memory_db), (hive.documents, hive.layout.documents_db)):
        store.close()
        path.unlink() if loss == "gone" else path.write_bytes(b"")
    documents, memory = visit()
    assert (f"is {loss}, though" in documents.message, "notes, summaries" in documents.message) == (True, True)
    assert (f"is {loss}, though" in memory.message, "the memories are lost" in memory.message) == (True, True)
    treatment()
    assert visit() == []
    assert hive.memory.list(("memories", "ann")) == []
    assert [note.note for note in databases(hive)] == [True, True]


def test_a_full_disk_makes_no_database_damaged(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    with small_disk(place, "size=12m"):
        (place / "hive.yaml").write_text("version: 1\n")
        hive = Hive.open(place)
        hive.memory.put(("memories", "ann"), "k", "Bees make honey.")
        hive.documents.create_root(text="Bees")
        hive.memory.close()
        hive.documents.close()
        fill(place)
        found = databases(hive)
        assert [one for one in found if not one.note or "disk is full" not in one.message] == []
        assert {one.location for one in found} >= {".hive/memory.db", ".hive/documents.db"}


@pytest.mark.parametrize("damage", ["no database", "DELETE FROM graphs", "DROP TABLE items"])
def test_a_damaged_index_of_graphs_is_set_aside_and_made_anew_by_the_next_search(
    hive: Hive, visit, treatment, damage: str
) -> None:
    task = hive.layout.done / "t"
    task.mkdir(parents=True)
    (task / "task.md").write_text("Which boat?\n")
    with TaskGraph(task).change() as graph:
        graph.add_node("task", "Which boat?")
    assert hive.graph_index.find("boat").hits
    hive.graph_index.close()
    path = hive.layout.graphs_db
    if damage == "no database":
        path.write_text(damage)
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute(damage)
            database.commit()
    (found,) = visit()
    assert found.location == ".hive/graphs.db"
    [treated] = treatment()
    assert "set aside as graphs.db.damaged-" in str(treated.done)
    assert visit() == []
    assert hive.graph_index.find("boat").hits
    assert visit() == []


def test_things_set_aside_twice_keep_both(hive: Hive, treatment) -> None:
    folder = hive.layout.agent_state("researcher")
    folder.mkdir()
    for text in ("{first", "{second"):
        (folder / "status.json").write_text(text)
        treatment()
    kept = sorted((hive.layout.state / "aside").glob("*/.hive/agents/researcher/*"))
    assert [(path.name, path.read_text()) for path in kept] == [("status.json", "{first"), ("status.json.1", "{second")]


def test_a_bad_agent_file_and_bad_settings_are_both_told_with_their_lines(hive: Hive, visit) -> None:
    (hive.layout.agents / "researcher.yaml").write_text("role: x\nmidn: extractive\n")
    (hive.layout.agents / "reviewer.yaml").write_text("mind: dreaming\n")
    wheres = [finding.location for finding in visit() if finding.check == "settings"]
    assert wheres[0].endswith("researcher.yaml:2")
    assert wheres[1].endswith("reviewer.yaml")
    hive.layout.config.write_text("version: 1\nwach: poll\n")
    assert [finding.location for finding in visit() if finding.check == "settings"] == [f"{hive.layout.config}:2"]


def test_an_agent_without_its_programs_login_is_named(hive: Hive, visit, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    hive.layout.agent_config("reviewer").write_text("mind: {agent: claude, login: true, program: /bin/sh}\n")
    [finding] = [finding for finding in visit() if finding.check == "settings"]
    assert finding.message == "nobody is logged in to /bin/sh; the agent reviewer is not started until it is fixed"


def test_a_task_whose_mind_made_no_card_lacks_no_graph(hive: Hive, visit) -> None:
    hive.tasks.add("x", id="one")
    task = hive.tasks.claim("researcher")
    assert task is not None
    graph = TaskGraph(hive.tasks.finish(task, "done"))
    graph.save_snapshot()
    assert [one.location for one in examine(DoctorContext(hive.layout)) if one.check == "graphs"] == []
    with graph.change() as change:
        change.add_node("task", "x")
    graph.save_snapshot()
    (graph.folder / "graph.jsonl").unlink()
    assert [one.location for one in examine(DoctorContext(hive.layout)) if one.check == "graphs"] == [
        "tasks/done/one/graph.jsonl"
    ]


def test_a_sandbox_that_there_cannot_be_is_told(hive: Hive, visit, monkeypatch, tmp_path_factory) -> None:
    check_sandbox.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    try:
        assert visit() == []
        (hive.layout.agents / "researcher.yaml").write_text("sandbox: bwrap\n")
        [finding] = visit()
    finally:
        check_sandbox.cache_clear()
    assert finding.message == "sandbox: bwrap is not installed here: every command of researcher is refused"
    assert finding.remedy == "install bubblewrap, or set sandbox: none in the agent's file"


def test_a_socket_that_lies_among_the_locks_does_not_stop_the_look(hive: Hive) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    here = os.getcwd()
    try:
        os.chdir(hive.layout.locks)
        listener.bind("odd.lock")
    finally:
        os.chdir(here)
    examine(DoctorContext(hive.layout))
    listener.close()


def test_a_user_without_inotify_instances_is_told(hive: Hive) -> None:
    """In a user namespace of its own, where a limit of 0 takes nothing from anybody else."""
    program = (
        "import sys; from pathlib import Path\n"
        "Path('/proc/sys/user/max_inotify_instances').write_text('0')\n"
        "from hivemind.layout import Layout\n"
        "from hivemind.doctor import DoctorContext, examine\n"
        "print([finding.message for finding in examine(DoctorContext(Layout.at(sys.argv[1]))) if finding.check == 'inotify'])"
    )
    inside = ["unshare", "--user", "--map-root-user"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*inside, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no user namespaces here")
    command = [*inside, sys.executable, "-c", program, str(hive.layout.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "no inotify instance is free" in done.stdout, done.stderr
