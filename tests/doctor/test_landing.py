"""What the doctor says of landing."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from hivemind import Hive
from hivemind.cli import main
from hivemind.landing.target import hold_roots
from tests.landing.conftest import *  # noqa: F403 - its fixtures
from tests.landing.conftest import Harbour


def doctor(harbour: Harbour, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main(["--hive", str(harbour.root), "doctor", *words])
    return status, capsys.readouterr().out


def test_held_roots_and_branches_that_are_gone_are_noted(harbour, capsys):
    harbour.configure(land="ask")
    harbour.work("mast", mast="a mast\n")
    hold_roots(Hive.open(harbour.root), ["app"], "a release")
    harbour.repo.git("branch", "-D", "hive/mast")
    tip = harbour.entry("mast")["branches"][0]["tip"]
    status, out = doctor(harbour, capsys)
    assert status == 0, out
    assert f"note:    {harbour.repo.path}: nothing lands in it: a release\n         hivemind land --resume" in out
    assert f"tasks/active/mast: its branch hive/mast is gone from {harbour.repo.path}" in out
    assert f"hivemind makes it again from {tip[:12]} when it lands" in out
    hold_roots(Hive.open(harbour.root), [], None)
    assert "nothing lands" not in doctor(harbour, capsys)[1]


def test_a_branch_whose_commit_is_gone_too_is_a_problem(harbour, capsys):
    harbour.configure(land="ask")
    harbour.work("mast", mast="a mast\n")
    for ref in ("heads/hive/mast", "hivemind/mast/tip", "hivemind/mast/base"):
        harbour.repo.git("update-ref", "-d", f"refs/{ref}")
    harbour.repo.git("reflog", "expire", "--expire=now", "--all")
    harbour.repo.git("gc", "-q", "--prune=now")
    status, out = doctor(harbour, capsys)
    assert status == 1, out
    assert "is gone too" in out


def test_what_is_left_of_a_root_that_is_gone_is_removed(harbour, capsys):
    harbour.configure(check="true")
    harbour.work("mast", mast="a mast\n")
    harbour.land()
    [folder] = (harbour.root / ".hive/landing").iterdir()
    assert str(folder.name) not in doctor(harbour, capsys, "--fix")[1]
    assert folder.exists()
    shutil.copytree(harbour.repo.path, harbour.repo.path.with_name("other"))
    harbour.configure(path="../other")
    status, out = doctor(harbour, capsys, "--fix")
    assert status == 0, out
    assert not folder.exists()


def test_a_check_without_a_box_is_noted_where_there_is_no_bubblewrap(harbour, monkeypatch, tmp_path):
    harbour.configure(check="true")
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    words = (sys.executable, "-m", "hivemind", "--hive", str(harbour.root))
    shown = subprocess.run([*words, "doctor"], capture_output=True, text=True, check=True).stdout
    assert "bubblewrap does not run here" in shown
    shown = subprocess.run([*words, "status"], capture_output=True, text=True, check=True).stdout
    assert f"the check of {harbour.repo.path} runs without a box: bubblewrap does not run here" in shown
