"""Bringing documents in line with files: by one process at a time, said aloud, again after an upgrade of the importers."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from hivemind.documents import DocmemError, Knowledge, NodeNotFoundError, files
from hivemind.documents import knowledge as reading_in
from hivemind.documents.formats import VERSION
from hivemind.fs import Lock
from hivemind.layout import Layout
from tests.program import Python

WORKER = Path(__file__).parent / "worker.py"
LONG = " ".join(f"Sentence number {number} of a long paragraph." for number in range(30))


def write(layout: Layout, count: int) -> None:
    for number in range(count):
        (layout.knowledge / f"{number:03}.md").write_text(f"# File {number}\n\n{LONG}\n")


def test_what_one_process_reads_in_no_other_reads_at_all(layout: Layout) -> None:
    write(layout, 60)
    command = [WORKER, layout.documents_db, "count_reads", layout.root]
    processes = [Python(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    opened = [len(json.loads(process.communicate(timeout=60)[0])) for process in processes]
    assert sum(opened) == 60
    assert sorted(opened)[:2] == [0, 0]


def test_who_has_to_wait_says_so_and_then_finds_it_done(layout: Layout, knowledge: Knowledge) -> None:
    write(layout, 2)
    knowledge.docmem.roots()  # the database is there
    lock = Lock(f"{layout.documents_db}.sync")
    lock.acquire()
    waits = threading.Event()
    told: list[str] = []
    found: list[reading_in.SyncReport] = []

    def tell(text: str) -> None:
        told.append(text)
        waits.set()

    thread = threading.Thread(target=lambda: found.append(knowledge.sync(progress=tell)))
    thread.start()
    assert waits.wait(30)
    assert "waiting" in told[0]
    lock.release()
    thread.join(30)
    assert found[0].imported == ["knowledge/000.md", "knowledge/001.md"]


def test_nobody_waits_where_nothing_has_changed(
    layout: Layout, knowledge: Knowledge, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(layout, 2)
    monkeypatch.setattr(files, "_YOUNG_NS", -1)
    knowledge.sync()
    with Lock(f"{layout.documents_db}.sync"):
        assert knowledge.sync().unchanged == 2


def test_a_long_import_says_how_far_it_is(
    layout: Layout, knowledge: Knowledge, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(layout, 5)
    monkeypatch.setattr(reading_in, "_MIN_REPORTED_BYTES", 1)
    monkeypatch.setattr(reading_in, "_BATCH_NODES", 3)
    told: list[str] = []
    knowledge.sync(progress=told.append)
    assert told[0].startswith("importing files: 1 of 5")
    assert len(told) > 2


def test_a_new_importer_reads_everything_anew_and_ids_stay(
    layout: Layout, knowledge: Knowledge, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(layout, 2)
    knowledge.sync()
    before = knowledge.locate("knowledge/001.md")
    heading = knowledge.locate("knowledge/001.md:1")
    note = knowledge.docmem.add_note(heading.id, "mine", "me")
    monkeypatch.setattr(files, "VERSION", VERSION + 1)
    monkeypatch.setattr("hivemind.documents.formats.outline.MAX_LEAF_TOKENS", 40)
    assert knowledge.sync().changed == ["knowledge/000.md", "knowledge/001.md"]
    after = knowledge.docmem.serialize(before.id)
    assert {before.id, heading.id, note.id} <= {node.id for node in after}
    assert max(node.token_count for node in after) <= 40
    assert knowledge.sync().changed == []


def test_a_file_whose_name_is_no_utf8_is_passed_over_and_the_others_are_read(
    layout: Layout, knowledge: Knowledge
) -> None:
    write(layout, 2)
    odd = layout.knowledge / os.fsdecode(b"caf\xe9.md")
    odd.write_text("# Odd\n")
    for report in (knowledge.sync(), knowledge.sync(extra=[odd])):
        (why,) = report.skipped.values()
        assert "caf\\xe9.md: cannot be cited: its name is not UTF-8" in why
    assert sorted(root.text for root in knowledge.docmem.roots()) == ["File 0", "File 1"]
    assert knowledge.search("sentence number", scope=[layout.knowledge, odd])
    assert knowledge.search("sentence number", scope=[odd]) == []
    with pytest.raises(DocmemError, match="not UTF-8"):
        knowledge.docmem.import_file(odd)
    with pytest.raises(NodeNotFoundError):
        knowledge.locate(os.fspath(odd))
