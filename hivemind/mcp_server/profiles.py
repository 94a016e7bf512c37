"""Which tools a client is shown: few by default, since each schema is paid for in the client's every turn."""

from __future__ import annotations

from collections.abc import Iterable

from hivemind.tools import Tool, allowed_tools

__all__ = ["PROFILES", "tools_of"]

_CORE = (
    "resume", "list_tasks", "claim_task", "plan_steps", "claim_step", "finish_step", "add_card", "finish_task", "fail_task",
    "check_mailbox", "read_mail", "send_mail", "reply_mail", "doc_find", "search_memory", "remember", "reserve", "release",
    "hand_over",
)  # fmt: skip
_DAILY = (
    *_CORE, "signals", "add_task", "note_step", "verify_step", "block_step", "add_evidence", "link_cards", "publish",
    "ask_human", "wait", "read_file", "list_files", "search_files", "doc_expand", "doc_note",
    "delegate", "wait_for", "send_to_task", "cancel_task", "verdict",
)  # fmt: skip

PROFILES: dict[str, tuple[str, ...] | None] = {"core": _CORE, "daily": _DAILY, "full": None}
"""The names of the tools in each profile; None: every tool there is (seed 002, *core/daily/full toolsets*)."""


def tools_of(profile: str, allowed: Iterable[str] | None) -> dict[str, Tool]:
    """The tools of a profile that the agent's file allows, by name, in the profile's order."""
    known = allowed_tools(allowed, member=True)
    names = PROFILES[profile]
    return known if names is None else {name: known[name] for name in names if name in known}
