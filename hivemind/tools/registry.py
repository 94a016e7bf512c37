"""All tools by name, for minds, for members (MCP), and for a person at the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivemind.config import AgentConfig
from hivemind.presence.heartbeat import Heartbeat
from hivemind.presence.parts import Parts
from hivemind.taskrun.focus import Focus
from hivemind.tools.cards import CARD_TOOLS
from hivemind.tools.command import COMMAND_TOOLS
from hivemind.tools.delegation import DELEGATION_TOOLS
from hivemind.tools.documents import DOCUMENT_TOOLS
from hivemind.tools.file_search import SEARCH_TOOLS
from hivemind.tools.files import FILE_TOOLS
from hivemind.tools.mail import MAIL_TOOLS, MAILBOX_TOOLS
from hivemind.tools.memory import MEMORY_TOOLS
from hivemind.tools.path_access import PATH_TOOLS
from hivemind.tools.review import CRITERIA_TOOLS
from hivemind.tools.skills import SKILL_TOOLS
from hivemind.tools.steps import STEP_TOOLS
from hivemind.tools.task import TASK_TOOLS
from hivemind.tools.tasks import QUEUE_TOOLS, VIEW_TOOLS
from hivemind.tools.tool import Tool, ToolProblem
from hivemind.tools.tool_context import ToolContext

_HEARTBEAT_S = 1.0

_FAMILIES = (
    FILE_TOOLS, SEARCH_TOOLS, PATH_TOOLS, COMMAND_TOOLS, MAIL_TOOLS, STEP_TOOLS, CARD_TOOLS, DOCUMENT_TOOLS, MEMORY_TOOLS,
    SKILL_TOOLS, TASK_TOOLS, DELEGATION_TOOLS, CRITERIA_TOOLS,
)  # fmt: skip

TOOLS: dict[str, Tool] = {tool.name: tool for family in _FAMILIES for tool in family}
"""The tools of minds."""

MEMBER_TOOLS: dict[str, Tool] = {tool.name: tool for tool in (*QUEUE_TOOLS, *MAILBOX_TOOLS, *VIEW_TOOLS)}
"""Further tools for members (MCP). For a mind, the runtime does the work of these tools."""


_TASK = ("plan_steps", "finish_step", "finish_task", "fail_task", "ask_human")
_MAIL = ("send_mail", "reply_mail")
_READ = ("read_file", "list_files", "search_files")

TOOLSETS: dict[str, tuple[str, ...] | None] = {
    "coder": (*_READ, "write_file", "edit_file", "apply_patch", "run_command", "recall", "read_skill", *_TASK, *_MAIL),
    "researcher": (
        *_READ, "write_file", "doc_find", "doc_expand", "doc_note", "search_memory", "remember", "recall", "add_evidence",
        "add_card", "read_skill", *_TASK, *_MAIL,
    ),
    "reviewer": (*_READ, "run_command", "recall", "read_skill", "check_citations", "verdict", *_TASK, *_MAIL),
    "lead": (
        "delegate", "wait_for", "send_to_task", "cancel_task", "hand_over", "edit_file", *_READ, "recall",
        "read_skill", "verdict", *_TASK, *_MAIL,
    ),
    "hive": (
        "recall", "read_skill", "doc_find", "search_memory", "remember", *_TASK, *_MAIL, "delegate", "wait_for", "send_to_task",
        "cancel_task", "hand_over", "reserve", "release", "verdict",
    ),
    "all": None,
}  # fmt: skip
"""The toolsets that an agent's file may name under `toolset:`; None stands for all tools."""

_CORE = (
    "resume", "list_tasks", "claim_task", "plan_steps", "claim_step", "finish_step", "add_card", "finish_task", "fail_task",
    "check_mailbox", "read_mail", "send_mail", "reply_mail", "doc_find", "search_memory", "remember", "reserve", "release",
    "hand_over",
)  # fmt: skip
_DAILY = (
    *_CORE, "signals", "add_task", "note_step", "verify_step", "block_step", "add_evidence", "link_cards", "publish",
    "ask_human", "wait", "read_file", "list_files", "search_files", "doc_expand", "doc_note",
    "read_skill", "delegate", "wait_for", "send_to_task", "cancel_task", "verdict",
)  # fmt: skip

PROFILES: dict[str, tuple[str, ...] | None] = {"core": _CORE, "daily": _DAILY, "full": None}
"""The profiles of an MCP client; None stands for all tools. `core` has few, since each schema costs tokens in every turn."""


def allowed_tools(config: AgentConfig, profile: str | None = None) -> dict[str, Tool]:
    """Return the tools of an agent by name: those that its file lists under `tools`, then those of its `toolset`. If the file has
    neither, a coding agent, which has its own tools for files and commands, gets the toolset `hive`; any other agent gets all
    tools.

    With a `profile` the agent is a member (MCP) and gets only those that the profile lists, too. Raises ToolProblem for the name
    of an unknown tool or toolset, and for a member's tool without a profile.
    """
    available = TOOLS if profile is None else {**TOOLS, **MEMBER_TOOLS}
    names: dict[str, None] = {}
    for name in config.tools or ():
        if name not in available:
            problem = f"{name!r} is only for members (MCP)" if name in MEMBER_TOOLS else f"there is no tool {name!r}"
            raise ToolProblem(problem, remedy=f"tools: {', '.join(sorted(available))}")
        names[name] = None
    toolsets = config.toolset or (("hive",) if config.tools is None and config.runs_program else ())
    for toolset in toolsets:
        if toolset not in TOOLSETS:
            raise ToolProblem(f"there is no toolset {toolset!r}", remedy=f"toolsets: {', '.join(TOOLSETS)}")
        names |= dict.fromkeys(TOOLSETS[toolset] or available)
    tools = {name: available[name] for name in names} if names or config.tools is not None else available
    profile_names = None if profile is None else PROFILES[profile]
    return tools if profile_names is None else {name: tools[name] for name in profile_names if name in tools}


def find_tool(name: str) -> Tool:
    """Return the tool of that name. If there is none, raises ToolProblem that lists all tools."""
    tool = TOOLS.get(name) or MEMBER_TOOLS.get(name)
    if tool is None:
        raise ToolProblem(f"there is no tool {name!r}", remedy=f"tools: {', '.join(sorted({*TOOLS, *MEMBER_TOOLS}))}")
    return tool


def use_by_hand(hive: Parts, agent: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Use a tool once for an agent or `human`, without a task or message in focus, and return its result.

    A person may use any tool; `tools:` in the agent's file restricts only its mind. Raises UserError, and the tool's errors.
    """
    pulse = Heartbeat(lambda: None, _HEARTBEAT_S)
    context = ToolContext(
        hive=hive, agent=agent, config=hive.agents.get(agent, AgentConfig()), focus=Focus(""), pulse=pulse,
        stopping=lambda: False, tools={**TOOLS, **MEMBER_TOOLS},
    )  # fmt: skip
    try:
        return find_tool(name).call(context, arguments)
    finally:
        pulse.close()
