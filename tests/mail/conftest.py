from __future__ import annotations

from pathlib import Path

import pytest

from hivemind.layout import Layout
from hivemind.mail import Intake, Mail

AGENTS = ("alice", "bob", "carol")


def open_mail(root: Path, durable: bool = False) -> Mail:
    return Mail(Layout.at(root), "hive", agents=lambda: AGENTS, durable=durable)


def open_intake(mail: Mail, root: Path, agent: str = "bob") -> Intake:
    return Intake(mail, agent, Layout.at(root).agent_state(agent))


@pytest.fixture
def mail(tmp_path: Path) -> Mail:
    return open_mail(tmp_path)


@pytest.fixture
def bob(tmp_path: Path) -> Path:
    """bob's mailbox, made."""
    open_mail(tmp_path).ensure("bob")
    return tmp_path / "mailboxes" / "bob"
