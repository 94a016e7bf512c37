"""All tools, by name."""

from __future__ import annotations

from collections.abc import Iterable

from hivemind.tools.cards import CARD_TOOLS
from hivemind.tools.command import COMMAND_TOOLS
from hivemind.tools.criteria import CRITERIA_TOOLS
from hivemind.tools.delegation import DELEGATION_TOOLS
from hivemind.tools.documents import DOCUMENT_TOOLS
from hivemind.tools.file_search import SEARCH_TOOLS
from hivemind.tools.files import FILE_TOOLS
from hivemind.tools.mail import MAIL_TOOLS, MAILBOX_TOOLS
from hivemind.tools.memory import MEMORY_TOOLS
from hivemind.tools.paths import PATH_TOOLS
from hivemind.tools.steps import STEP_TOOLS
from hivemind.tools.task import TASK_TOOLS
from hivemind.tools.tasks import QUEUE_TOOLS
from hivemind.tools.tool import Tool, ToolProblem
from hivemind.tools.view_tools import VIEW_TOOLS

__all__ = ["MEMBER_TOOLS", "TOOLS", "allowed_tools"]

_FAMILIES = (
    FILE_TOOLS, SEARCH_TOOLS, PATH_TOOLS, COMMAND_TOOLS, MAIL_TOOLS, STEP_TOOLS, CARD_TOOLS, DOCUMENT_TOOLS, MEMORY_TOOLS,
    TASK_TOOLS, DELEGATION_TOOLS, CRITERIA_TOOLS,
)  # fmt: skip

TOOLS: dict[str, Tool] = {tool.name: tool for family in _FAMILIES for tool in family}
"""What a mind may ask for."""

MEMBER_TOOLS: dict[str, Tool] = {tool.name: tool for tool in (*QUEUE_TOOLS, *MAILBOX_TOOLS, *VIEW_TOOLS)}
"""What a member that comes from outside (MCP) needs beside them; for a mind the runtime does it."""


def allowed_tools(names: Iterable[str] | None, *, member: bool = False) -> dict[str, Tool]:
    """The tools that an agent's file names, or all; for a `member` also what only members need.

    Raises ToolProblem for a name that is no tool's.
    """
    known = {**TOOLS, **MEMBER_TOOLS} if member else TOOLS
    if names is None:
        return known
    found = {}
    for name in names:
        if name not in TOOLS and name not in MEMBER_TOOLS:
            raise ToolProblem(f"{name!r} is no tool", mend=f"tools: {', '.join(sorted(TOOLS))}")
        if name in known:
            found[name] = known[name]
    return found
