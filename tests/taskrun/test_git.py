"""Git in a person's repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.landing.repo import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "app")


def test_the_commit_of_a_branch_is_read_without_a_process(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = repo.repository
    monkeypatch.setenv("PATH", os.devnull)
    assert repository.commit_of("refs/heads/main") == repo.base


def test_a_packed_branch_and_a_branch_that_names_another_have_their_commits(repo: Repo) -> None:
    repo.git("symbolic-ref", "refs/heads/other", "refs/heads/main")
    assert repo.repository.commit_of("refs/heads/other") == repo.base
    repo.git("gc", "-q")
    assert repo.repository.commit_of("refs/heads/main") == repo.base


@pytest.mark.parametrize("text", [None, b""])
def test_a_branch_whose_commit_is_gone_has_none(repo: Repo, text: bytes | None) -> None:
    path = repo.path / ".git/objects" / repo.base[:2] / repo.base[2:]
    path.unlink()
    if text is not None:
        path.write_bytes(text)
    assert repo.repository.commit_of("refs/heads/main") is None
