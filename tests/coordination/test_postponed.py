"""In a turn by rule an event waits for the disk, but what rests on it never comes first."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind.coordination import Journal, Steps
from hivemind.fs import Log, create, fsync_folder, move, postponing, write
from hivemind.fs.atomic import fsync_folder_later
from hivemind.layout import Layout
from hivemind.longterm import MemoryStore
from hivemind.taskrun.git import run_git
from hivemind.tasks import Task, Tasks
from hivemind.tasks.record import Records, RecordTampered


def is_on_disk(journal: Journal) -> bool:
    """Compare the journal with the offset up to which it is noted as flushed."""
    return flushed_size(journal) == os.path.getsize(journal.path)


def flushed_size(journal: Journal) -> int:
    return int(Path(f"{journal.path}.synced").read_text().split()[2])


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path / "journal")
    journal.append("first")
    (tmp_path / "source").write_text("s")
    Log(tmp_path / "log.jsonl", "kind", 1).append({"text": "the first line flushes the folder, too"})
    return journal


DURABLE_ACTS: dict[str, Callable[[Path], object]] = {
    "write": lambda folder: write(folder / "file", "text"),
    "create": lambda folder: create(folder / "file", "text"),
    "move": lambda folder: move(folder / "source", folder / "target"),
    "folder": fsync_folder,
    "log": lambda folder: Log(folder / "log.jsonl", "kind", 1).append({"text": "line"}),
    "memory": lambda folder: MemoryStore(folder / "memory.db").put(("memories", "ann"), "key", "value"),
    "git": lambda _: run_git(["version"], {}, None),
}


@pytest.mark.parametrize("act", DURABLE_ACTS.values(), ids=DURABLE_ACTS.keys())
def test_a_postponed_event_is_on_disk_before_a_durable_act(
    journal: Journal, tmp_path: Path, act: Callable[[Path], object]
) -> None:
    with postponing():
        journal.append("second")
        assert not is_on_disk(journal)
        act(tmp_path)
        assert is_on_disk(journal)


def test_a_postponed_event_is_on_disk_when_the_block_ends_or_is_interrupted(journal: Journal) -> None:
    with postponing():
        journal.append("second")
        with postponing(is_on=False):
            assert is_on_disk(journal)
            journal.append("third")
            assert is_on_disk(journal)
        journal.append("fourth")
        assert not is_on_disk(journal)
    assert is_on_disk(journal)


def test_a_reader_outside_the_turn_flushes_what_it_reads(journal: Journal) -> None:
    reader = Journal(journal.folder)
    with postponing():
        journal.append("second")
        other = threading.Thread(target=reader.read)
        other.start()
        other.join()
        assert is_on_disk(journal)


def test_a_turn_sees_the_events_of_others_after_its_next_durable_act(journal: Journal, tmp_path: Path) -> None:
    other = Journal(journal.folder)
    with postponing():
        assert journal.seq == 1
        other.append("second")
        write(tmp_path / "file", "text")
        assert journal.seq == 2


def test_postponed_folders_are_flushed_once_and_before_the_events_that_name_their_files(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda file, real=real: (flushed.append(os.readlink(f"/proc/self/fd/{file}")), real(file))
        )
    (tmp_path / "task").mkdir()
    with postponing():
        fsync_folder_later(tmp_path / "task")
        journal.append("second")
        fsync_folder_later(tmp_path / "task")
        (tmp_path / "task").rename(tmp_path / "moved")
        assert flushed == []
        move(tmp_path / "source", tmp_path / "target")
    assert flushed == [str(tmp_path / "moved"), journal.path, str(tmp_path)]


def test_a_file_with_a_postponed_name_has_its_content_on_disk(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (sizes.append(os.fstat(file).st_size), real(file)))
    with postponing():
        journal.append("second")
        write(tmp_path / "result.md", "text", sync_name=False)
        assert sizes == [4]
        assert not is_on_disk(journal)


def test_the_end_of_a_task_is_on_disk_before_a_new_task_takes_its_id(tmp_path: Path) -> None:
    layout = Layout.at(tmp_path)
    for folder in layout.folders():
        folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(layout.journal)
    tasks = Tasks(layout, settle_ms=0, grace_s=0, journal=journal, agents=lambda: {"scout": None})
    steps = Steps(journal)

    def claim(name: str) -> Task:
        (layout.inbox / f"{name}.md").write_text("Find the leak.\n")
        task = tasks.claim("scout")
        assert task is not None
        return task

    with postponing():
        shutil.rmtree(tasks.finish(claim("leak"), "Found."))
        steps.end_task("leak", "done", agent_id="scout")
        end = os.path.getsize(journal.path)
        claim("other")
        assert flushed_size(journal) < end
        claim("leak")
        assert flushed_size(journal) >= end


def test_a_record_that_another_process_has_just_written_is_no_forged_one(tmp_path: Path) -> None:
    """Found by a stranger: an agent that claimed what the lander had just sent back called its record changed by others."""
    layout = Layout.at(tmp_path)
    for folder in layout.folders():
        folder.mkdir(parents=True, exist_ok=True)
    lander = Tasks(layout, settle_ms=0, grace_s=0, journal=Journal(layout.journal), agents=lambda: {"scout": None})
    (layout.inbox / "leak.md").write_text("Find the leak.\n")
    task = lander.claim("scout")
    assert task is not None
    agent = Records(Journal(layout.journal))

    def change() -> None:
        for number in range(2):
            lander.active.keep(task, "once", number)

    with postponing():
        before, _ = agent.check(task.path, task.id)
        thread = threading.Thread(target=change)
        thread.start()
        thread.join()
        after, _ = agent.check(task.path, task.id)
        assert after != before
        (task.path / "task.json").write_text("{}")
        with pytest.raises(RecordTampered):
            agent.check(task.path, task.id)
