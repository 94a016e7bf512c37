"""A new agent: its file in agents/ and its mailbox (`hivemind agent add`)."""

from __future__ import annotations

import json
import os

from hivemind import fs
from hivemind.config import AgentConfig
from hivemind.errors import UserError
from hivemind.frontmatter import parse, validate
from hivemind.layout import HUMAN
from hivemind.minds import open_mind
from hivemind.names import check_name
from hivemind.presence.parts import Parts

__all__ = ["add_agent"]


def add_agent(hive: Parts, name: str, *, role: str | None = None, mind: str | None = None) -> str:
    """Write agents/<name>.yaml, make the mailbox, and give the name as it stands in the hive.

    Raises UserError for a bad name, role or mind and for a name that an agent has already; then nothing is written.
    """
    name = check_name(name, "agent name")
    path = hive.layout.agent_config(name)
    if name == HUMAN:
        raise UserError(f"{HUMAN!r} is the operator's own name", mend="choose another")
    if name in hive.agents or path.exists() or path.with_suffix(".yml").exists():
        raise UserError(f"there is an agent {name!r} already", where=path, mend="edit its file, or choose another name")
    lines = ["# All keys and their defaults: README.md in this folder.\n"]
    if role is not None:
        lines.append(f"role: {json.dumps(check_name(role, 'role'))}\n")
    lines.append(f"mind: {json.dumps('extractive' if mind is None else mind, ensure_ascii=False)}\n")
    text = "".join(lines)
    config = validate(AgentConfig, parse(text, path))
    if not config.outside:
        open_mind(config.mind, root=hive.layout.root)
    try:
        fs.create(path, text, durable=hive.config.durable)
    except FileExistsError:
        raise UserError(
            f"there is an agent {name!r} already", where=os.fspath(path), mend="choose another name"
        ) from None
    hive.mail.ensure(name)
    return name
