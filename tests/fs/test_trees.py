"""Folders that others have filled: as deep as one likes, closed, full of links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind.fs import copy_tree, remove_tree, walk
from hivemind.fs.trees import is_too_deep


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder 3,000 levels deep with a file at the bottom, longer than any path may be."""
    top = tmp_path / "deep"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("file", os.O_CREAT, dir_fd=folder))
    os.close(folder)
    yield top
    remove_tree(top)


def test_a_deep_folder_is_removed(deep):
    remove_tree(deep)
    assert not deep.exists()


def test_a_deep_folder_is_walked_and_copied_as_far_as_a_path_reaches(deep, tmp_path):
    (deep / "d/near").touch()
    paths = [path for path, _, _ in walk(deep)]
    assert 1000 < len(paths) < 2000
    copy_tree(deep, tmp_path / "copy")
    assert (tmp_path / "copy/d/near").exists()
    assert len([*walk(tmp_path / "copy")]) == len(paths)
    assert not is_too_deep(paths[-1], deep)
    remove_tree(tmp_path / "copy")


def test_what_is_removed_is_not_followed_and_closed_folders_are_opened(tmp_path):
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    (outside / "kept").touch()
    (top / "shut/in").mkdir(parents=True)
    (top / "shut/in/file").touch()
    (top / "link").symlink_to(outside)
    os.mkfifo(top / "pipe")
    (top / "shut/in").chmod(0o500)
    (top / "shut").chmod(0)
    remove_tree(top)
    assert not top.exists()
    (tmp_path / "link").symlink_to(outside)
    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "nothing")
    assert (outside / "kept").exists()
    remove_tree(outside / "kept")
    assert not (outside / "kept").exists()


def test_a_copy_has_files_links_and_modes_and_no_pipes(tmp_path):
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    (source / "a/file").write_text("text")
    (source / "a/link").symlink_to("file")
    os.mkfifo(source / "a/pipe")
    (source / "a").chmod(0o500)
    copy_tree(source, tmp_path / "copy")
    assert sorted(os.listdir(tmp_path / "copy/a")) == ["file", "link"]
    assert os.readlink(tmp_path / "copy/a/link") == "file"
    assert (tmp_path / "copy/a").stat().st_mode & 0o777 == 0o500
