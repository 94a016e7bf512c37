"""All tools, by name."""

from __future__ import annotations

from collections.abc import Iterable

from hivemind.runtime.tools.cards import CARD_TOOLS
from hivemind.runtime.tools.command import COMMAND_TOOLS
from hivemind.runtime.tools.documents import DOCUMENT_TOOLS
from hivemind.runtime.tools.files import FILE_TOOLS
from hivemind.runtime.tools.mail import MAIL_TOOLS
from hivemind.runtime.tools.memory import MEMORY_TOOLS
from hivemind.runtime.tools.steps import STEP_TOOLS
from hivemind.runtime.tools.task import TASK_TOOLS
from hivemind.runtime.tools.tool import Tool, ToolProblem

__all__ = ["TOOLS", "allowed_tools"]

_FAMILIES = (
    FILE_TOOLS, COMMAND_TOOLS, MAIL_TOOLS, STEP_TOOLS, CARD_TOOLS, DOCUMENT_TOOLS, MEMORY_TOOLS, TASK_TOOLS,
)  # fmt: skip

TOOLS: dict[str, Tool] = {tool.name: tool for family in _FAMILIES for tool in family}


def allowed_tools(names: Iterable[str] | None) -> dict[str, Tool]:
    """The tools that an agent's file names, or all. Raises ToolProblem for a name that is no tool's."""
    if names is None:
        return TOOLS
    found = {}
    for name in names:
        if name not in TOOLS:
            raise ToolProblem(f"{name!r} is no tool", mend=f"tools: {', '.join(sorted(TOOLS))}")
        found[name] = TOOLS[name]
    return found
