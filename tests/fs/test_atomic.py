from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest

from hivemind.fs import atomic, create, move, write
from hivemind.fs.atomic import TEMPORARY_PREFIX

from .children import run_child

_WRITE = "import sys; from hivemind.fs import write; write(sys.argv[1], b'new ' * 1000)"
_CREATE = "import sys; from hivemind.fs import create; create(sys.argv[1], b'new ' * 1000)"


def _litter(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(TEMPORARY_PREFIX)]


@pytest.mark.parametrize("durable", [True, False])
def test_a_written_file_has_the_content_and_leaves_no_litter(tmp_path: Path, durable: bool) -> None:
    write(tmp_path / "a", "ä\n", durable=durable)
    write(tmp_path / "a", b"\x00second", durable=durable)
    assert (tmp_path / "a").read_bytes() == b"\x00second"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("point", "content"), [("fs.write.written", "old"), ("fs.write.synced", "old"), ("fs.write.renamed", "new " * 1000)]
)
def test_a_writer_killed_anywhere_leaves_the_old_content_or_the_new(tmp_path: Path, point: str, content: str) -> None:
    (tmp_path / "a").write_text("old")
    run_child(_WRITE, tmp_path / "a", crash_at=point)
    assert (tmp_path / "a").read_text() == content
    assert len(_litter(tmp_path)) == (0 if point.endswith("renamed") else 1)


def test_a_creator_killed_after_the_link_has_created_the_file_whole(tmp_path: Path) -> None:
    run_child(_CREATE, tmp_path / "a", crash_at="fs.create.linked")
    assert (tmp_path / "a").read_text() == "new " * 1000


def test_litter_of_a_killed_process_with_the_same_pid_is_in_nobodys_way(tmp_path: Path) -> None:
    upcoming = next(atomic._counter) + 1  # in a container pids come again, and each process counts from nothing
    for number in range(upcoming, upcoming + 3):
        name = f"{TEMPORARY_PREFIX}{os.getpid()}-{threading.get_native_id()}-{number}"
        (tmp_path / name).write_text("litter")
    create(tmp_path / "a", "content")
    assert (tmp_path / "a").read_text() == "content"
    assert len(_litter(tmp_path)) == 3


def test_only_one_of_many_creates_a_file(tmp_path: Path) -> None:
    won: list[int] = []
    ready = threading.Barrier(8)

    def work(number: int) -> None:
        ready.wait()
        try:
            create(tmp_path / "a", str(number), durable=False)
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "a").read_text() == str(won[0])
    assert len(won) == 1
    assert os.listdir(tmp_path) == ["a"]


def test_a_write_that_does_not_fit_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # Python ignores SIGXFSZ: the write fails with EFBIG
    try:
        with pytest.raises(OSError, match="File too large"):
            write(tmp_path / "a", b"x" * 5000)
        with pytest.raises(OSError, match="File too large"):
            create(tmp_path / "b", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_write_over_a_folder_fails_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        write(tmp_path / "a", "x")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("folder", [True, False])
def test_a_move_never_replaces_what_has_the_name(tmp_path: Path, folder: bool) -> None:
    for name in ("a", "b"):
        if folder:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        move(tmp_path / "a", tmp_path / "b")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    move(tmp_path / "a", tmp_path / "c")
    assert sorted(os.listdir(tmp_path)) == ["b", "c"]


def test_a_move_of_what_is_gone_says_that_someone_was_first(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        move(tmp_path / "a", tmp_path / "b")
