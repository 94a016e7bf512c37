"""A hive's mail as tests and the child processes of tests open it; imports no pytest: children start fast."""

from __future__ import annotations

from pathlib import Path

from hivemind.layout import Layout
from hivemind.mail import Intake, Mail

AGENTS = ("alice", "bob", "carol")


def open_mail(root: Path, durable: bool = False) -> Mail:
    return Mail(Layout.at(root), "hive", agents=lambda: AGENTS, durable=durable)


def open_intake(mail: Mail, root: Path, agent: str = "bob") -> Intake:
    return Intake(mail, agent, Layout.at(root).agent_state(agent))
