"""What an agent says of itself: written in place, read while it is being written, looked at again and again."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from hivemind.layout import Layout
from hivemind.presence.status import StatusFile, read_status

_fork = multiprocessing.get_context("fork")


def folder_of(root: Path, name: str) -> Path:
    folder = Layout.at(root).agent_state(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_what_was_written_is_read_also_if_it_is_shorter_than_what_was_there(tmp_path: Path):
    status = StatusFile(tmp_path, "ada")
    for words in ("x" * 5000, "brief", "y" * 600, "z" * 480):
        assert status.update(last_action=words)
        assert read_status(tmp_path, "ada") == status.current
        assert json.loads((tmp_path / "status.json").read_text())["last_action"] == words


def test_nothing_is_written_if_nothing_changed(tmp_path: Path):
    status = StatusFile(tmp_path, "ada")
    status.update(state="idle")
    (tmp_path / "status.json").unlink()
    assert not status.update(state="idle")
    assert not (tmp_path / "status.json").exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_lies_in_its_place_is_replaced_and_never_written_through(tmp_path: Path, kind: str):
    place, other = tmp_path / "status.json", tmp_path / "other"
    other.write_text("mine")
    place.symlink_to(other) if kind == "link" else os.mkfifo(place)
    status = StatusFile(tmp_path, "ada")
    status.update(state="idle")
    assert other.read_text() == "mine"
    assert read_status(tmp_path, "ada") == status.current


def test_no_status_is_none_and_a_damaged_one_too(tmp_path: Path):
    assert read_status(tmp_path, "ada") is None
    (tmp_path / "status.json").write_text('{"kind": "sta')
    assert read_status(tmp_path, "ada") is None


def write_for_ever(folder: Path) -> None:
    status = StatusFile(folder, "ada")
    for number in range(1_000_000):
        status.update(tokens=number, last_action="long " * (number % 300))


def test_a_reader_beside_a_writer_sees_whole_statuses(tmp_path: Path):
    StatusFile(tmp_path, "ada").update(state="idle")
    writer = _fork.Process(target=write_for_ever, args=(tmp_path,))
    writer.start()
    seen: set[int] = set()
    try:
        while len(seen) < 300:
            assert writer.is_alive()
            status = read_status(tmp_path, "ada")
            if status is not None and status.state == "starting":
                assert status.last_action == "long " * (status.tokens % 300)
                seen.add(status.tokens)
    finally:
        writer.kill()
        writer.join()
