from __future__ import annotations

from pathlib import Path

import pytest

from hivemind.mail import Mail

from .hive import open_mail


@pytest.fixture
def mail(tmp_path: Path) -> Mail:
    return open_mail(tmp_path)


@pytest.fixture
def bob(tmp_path: Path) -> Path:
    """bob's mailbox, made."""
    open_mail(tmp_path).ensure("bob")
    return tmp_path / "mailboxes" / "bob"
