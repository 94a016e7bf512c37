from __future__ import annotations

import os
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.errors import UserError
from hivemind.fs import open_inside, resolve_inside
from hivemind.fs.paths import OutsideError

_PARTS = st.sampled_from(["..", ".", "a", "b", "", "a b", "..a"]) | st.text(string.ascii_letters + ".", max_size=4)


@given(st.lists(_PARTS, max_size=8), st.booleans())
def test_whatever_the_path_says_it_stays_inside_or_is_refused(parts: list[str], absolute: bool) -> None:
    root = Path("/tmp/hivemind-root/of/a/hive")  # nothing is opened: the folder need not exist
    try:
        resolved = resolve_inside(("/" if absolute else "") + "/".join(parts), root)
    except OutsideError:
        return
    assert os.path.commonpath([resolved, root]) == os.fspath(root)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "link/x", "link"])
def test_paths_that_lead_out_are_refused(tmp_path: Path, path: str) -> None:
    root = (tmp_path / "hive").resolve()
    root.mkdir()
    (root / "link").symlink_to("/etc")
    with pytest.raises(OutsideError, match="leads out"):
        resolve_inside(path, root)


def test_a_sibling_that_begins_with_the_same_name_is_outside(tmp_path: Path) -> None:
    root = (tmp_path / "hive").resolve()
    root.mkdir()
    with pytest.raises(OutsideError):
        resolve_inside(f"{root}-other/x", root)


def test_a_link_to_a_listed_root_is_followed(tmp_path: Path) -> None:
    root, other = (tmp_path / "hive").resolve(), (tmp_path / "other").resolve()
    root.mkdir()
    other.mkdir()
    (other / "f").write_text("there")
    (root / "link").symlink_to(other)
    assert resolve_inside("link/f", root, [other]) == other / "f"
    file = open_inside("link/f", root, [other])
    assert os.read(file, 10) == b"there"
    os.close(file)


def test_a_nul_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="NUL"):
        resolve_inside("a\0b", tmp_path)


def test_a_fifo_and_a_folder_are_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(UserError, match="not a regular file"):
            open_inside(name, tmp_path.resolve())
