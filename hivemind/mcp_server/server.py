"""The MCP server of one member, which offers the hive's tools and resources."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError

from hivemind import __version__
from hivemind.agent.working_memory import rom_blocks
from hivemind.errors import HivemindError, UserError
from hivemind.mcp_server.greeting import instructions
from hivemind.mcp_server.member import Member
from hivemind.taskrun.project import Skill, skills_of
from hivemind.tools import Tool
from hivemind.tools.tasks import restrict_calls
from hivemind.tools.tool import for_mind
from hivemind.views import capsule, resume, snapshot

_JSON, _TEXT = "application/json", "text/markdown"
_VIEW_BYTES = 20_000
_INBOX_LIMIT = 50
_VIEWS = ("focus_only", "smart", "explore", "audit", "full", "snapshot")


def _resources(member: Member) -> list[types.Resource]:
    """Return the resources that the member can read, including its ROM."""
    resources = [
        *((f"hive://{path}", path, "read-only memory: the rules of this hive", _TEXT) for path in _rom(member)),
        ("hive://inbox", "inbox", f"the newest letters of {member.name}, oldest first", _JSON),
        ("hive://capsule", "capsule", "your task and step, the reason, and the next call", _JSON),
        *((f"hive://view/{view}", f"view {view}", "your task in this view", _JSON) for view in _VIEWS),
    ]
    return [
        types.Resource(uri=uri, name=name, description=description, mime_type=media_type)
        for uri, name, description, media_type in resources
    ]


def _read(member: Member, uri: str) -> tuple[str, str]:
    """Return a resource as (text, media type). Raises UserError if the resource does not exist."""
    kind, _, resource_path = uri.removeprefix("hive://").partition("/")
    resource_path = unquote(resource_path)
    if kind == "rom" and (path := f"rom/{resource_path}") in _rom(member):
        return (member.hive.layout.root / path).read_text("utf-8", "replace"), _TEXT
    read = _READERS.get(kind)
    if read is None or not uri.startswith("hive://"):
        raise UserError(f"the resource {uri!r} does not exist", remedy="resources/list lists the resources")
    return json.dumps(read(member, resource_path), ensure_ascii=False, default=str), _JSON


def _rom(member: Member) -> list[str]:
    return [str(block.location) for block in rom_blocks(member.hive, member.name, member.config.rom)]


def _inbox(member: Member, _: str) -> Any:
    return [message.as_record() for message in member.hive.mail.list(member.name, limit=_INBOX_LIMIT)]


def _capsule(member: Member, _: str) -> Any:
    fields = {"capsule": capsule(member.hive, agent_id=member.name, task=member.task)}
    return restrict_calls(member.hive, fields, member.tools)["capsule"]


def _view(member: Member, view: str) -> Any:
    if view == "snapshot":
        view_fields = snapshot(member.hive, agent_id=member.name, task=member.task, context_budget=_VIEW_BYTES)
    else:
        view_fields = resume(member.hive, agent_id=member.name, task=member.task, view=view, context_budget=_VIEW_BYTES)
    return restrict_calls(member.hive, {**view_fields}, member.tools)


def _skills(member: Member) -> dict[str, Skill]:
    projects = [project for work in member.task_runs() for project in work.projects]
    return {name: skill for name, skill in skills_of(member.hive.layout, projects).items() if skill.problem is None}


_READERS: dict[str, Callable[[Member, str], Any]] = {"inbox": _inbox, "capsule": _capsule, "view": _view}


_log = logging.getLogger(__name__)
_T = TypeVar("_T")
Run = Callable[[Callable[[], _T]], Awaitable[_T]]
"""Runs a function on the member's thread and awaits its result."""
_Context = ServerRequestContext[Any]


def build_server(member: Member, run: Run[Any]) -> Server[Any]:
    """Return the server of one member. `run` runs a function in the member's thread. If a tool refuses a call, the answer has
    `is_error` and {code, message, suggestions}."""

    async def on_list_tools(_: _Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(**tool.mcp_entry()) for tool in member.tools.values()])

    async def on_call_tool(_: _Context, request: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            traceparent: Any = (request.meta or {}).get("traceparent")
            return _answer(await run(lambda: member.call(request.name, request.arguments or {}, traceparent)))
        except HivemindError as error:
            return _answer(refusal(error, member.tools), is_error=True)
        except Exception as error:  # a fault in a tool must not end the server; it is logged and reported to the client
            _log.exception("%s: the tool %s broke", member.name, request.name)
            fault_fields = {
                "code": "FAULT",
                "message": f"the tool broke: {type(error).__name__}: {error}",
                "suggestions": [],
            }
            return _answer(fault_fields, is_error=True)

    async def on_list_resources(_: _Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=await run(lambda: _resources(member)))

    async def on_read_resource(_: _Context, request: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(request.uri)
        try:
            text, media_type = await run(lambda: _read(member, uri))
        except UserError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error), data={"uri": uri}) from None
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=text, mime_type=media_type)])

    async def on_list_prompts(_: _Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        skills = await run(lambda: _skills(member))
        prompts = [types.Prompt(name=name, description=skill.description) for name, skill in skills.items()]
        return types.ListPromptsResult(prompts=prompts)

    async def on_get_prompt(_: _Context, request: types.GetPromptRequestParams) -> types.GetPromptResult:
        skill = (await run(lambda: _skills(member))).get(request.name)
        if skill is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no skill {request.name!r}")
        text = types.TextContent(type="text", text=skill.text)
        message = types.PromptMessage(role="user", content=text)
        return types.GetPromptResult(description=skill.description, messages=[message])

    # Used for every call over HTTP; without it the SDK would list all tools each time.
    def input_schema(name: str) -> dict[str, Any] | None:
        tool = member.tools.get(name)
        return None if tool is None else tool.schema()["parameters"]

    return Server(
        "hivemind",
        version=__version__,
        instructions=instructions(member.name, member.hive.layout.root),
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
        on_list_resources=on_list_resources,
        on_read_resource=on_read_resource,
        on_list_prompts=on_list_prompts,
        on_get_prompt=on_get_prompt,
        get_tool_input_schema=input_schema,
    )


def refusal(error: HivemindError, tools: Mapping[str, Tool]) -> dict[str, Any]:
    """Return a tool's refusal for the client: a code, a message, and suggested calls of the client's `tools`.

    An error without suggested calls suggests the tools that its remedy names, unless they need arguments.
    """
    mind_error = for_mind(error, tools)
    tool_names = re.findall(r"\w+", getattr(mind_error, "remedy", None) or "")
    calls = getattr(error, "suggestions", ()) or [{"tool": name, "arguments": {}} for name in tool_names]
    suggestions = [
        {"tool": call["tool"], "arguments": call["arguments"]}
        for call in calls
        if call["tool"] in tools
        and call["arguments"].keys() >= {*tools[call["tool"]].schema()["parameters"].get("required", ())}
    ]
    answer = {"code": getattr(error, "code", "REFUSED"), "message": str(mind_error), "suggestions": suggestions}
    lease = getattr(error, "lease", None)
    holder = getattr(error, "holder", None) if lease is None else lease.holder_agent_id
    return answer if not isinstance(holder, str) else {**answer, "holder": holder}


def _answer(fields: Mapping[str, Any], *, is_error: bool = False) -> types.CallToolResult:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=str)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=json.loads(text), is_error=is_error
    )
