"""What a client can read without a tool: ROM, its inbox, its capsule, the views."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hivemind.agent.sense import rom_blocks
from hivemind.errors import UserError
from hivemind.mcp_server.member import Member
from hivemind.views import capsule, resume, snapshot

__all__ = ["TEMPLATES", "Resource", "list_resources", "read_resource"]

_JSON, _TEXT = "application/json", "text/markdown"
_BYTES = 20_000
_NEWEST = 50
_VIEWS = ("focus_only", "smart", "explore", "audit", "full", "snapshot")
TEMPLATES = {
    "hive://view/{view}": "your task in a view: " + ", ".join(_VIEWS),
    "hive://mail/{id}": "one message of your mailbox, left unread",
    "hive://task/{id}": "a task: its text, and its result or error",
}


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource in the list: its address, its name, what it is."""

    uri: str
    name: str
    description: str
    mime_type: str


def list_resources(member: Member) -> list[Resource]:
    """The resources that every member has, its own ROM among them."""
    own = [
        Resource("hive://inbox", "inbox", f"the newest messages of {member.name}, oldest first", _JSON),
        Resource("hive://capsule", "capsule", "where you are, why, what comes next", _JSON),
        *(Resource(f"hive://view/{view}", f"view {view}", "your task in this view", _JSON) for view in _VIEWS),
    ]
    return [Resource(f"hive://{path}", path, "read-only memory: the rules here", _TEXT) for path in _rom(member)] + own


def read_resource(member: Member, uri: str) -> tuple[str, str]:
    """(text, media type). Raises UserError if there is no such resource."""
    kind, _, rest = uri.removeprefix("hive://").partition("/")
    rest = unquote(rest)
    if kind == "rom" and (path := f"rom/{rest}") in _rom(member):
        return (member.hive.layout.root / path).read_text("utf-8", "replace"), _TEXT
    read = _READERS.get(kind)
    if read is None or not uri.startswith("hive://"):
        raise UserError(f"there is no resource {uri!r}", mend="resources/list names them")
    return json.dumps(read(member, rest), ensure_ascii=False, default=str), _JSON


def _rom(member: Member) -> list[str]:
    return [str(block.location) for block in rom_blocks(member.hive, member.name, member.config.rom)]


def _inbox(member: Member, _: str) -> Any:
    return [one.as_record() for one in member.hive.mail.list(member.name, limit=_NEWEST)]


def _message(member: Member, id_: str) -> Any:
    one = member.hive.mail.read(member.name, id_, mark=False)
    return {"id": one.id, "from": one.sender, "subject": one.subject, "date": one.date, "body": one.body}


def _capsule(member: Member, _: str) -> Any:
    return capsule(member.hive, agent_id=member.name, task=member.task)


def _view(member: Member, view: str) -> Any:
    if view == "snapshot":
        return snapshot(member.hive, agent_id=member.name, task=member.task, context_budget=_BYTES)
    return resume(member.hive, agent_id=member.name, task=member.task, view=view, context_budget=_BYTES)


def _task(member: Member, task_id: str) -> Any:
    task = member.hive.tasks.get(task_id)
    told: dict[str, Any] = {"task": task.id, "title": task.title, "state": str(task.state), "text": task.full_text}
    for name in ("result", "error"):
        path = task.path / f"{name}.md"
        if path.is_file():
            told[name] = path.read_text("utf-8", "replace")
    return told


_READERS: dict[str, Callable[[Member, str], Any]] = {
    "inbox": _inbox,
    "mail": _message,
    "capsule": _capsule,
    "view": _view,
    "task": _task,
}
