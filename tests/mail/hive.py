"""A hive's mail as tests and the child processes of tests open it; imports no pytest: children start fast."""

from __future__ import annotations

from pathlib import Path

from hivemind.fs import set_durability
from hivemind.layout import Layout
from hivemind.mail import Intake, Mail

AGENTS = ("alice", "bob", "carol")


def open_mail(root: Path, durable: bool = False) -> Mail:
    layout = Layout.at(root)
    set_durability(layout.root, durable=durable)
    return Mail(layout, "hive", agents=lambda: AGENTS)


def open_intake(mail: Mail, root: Path, agent: str = "bob") -> Intake:
    return Intake(mail, agent, Layout.at(root).agent_state(agent))
