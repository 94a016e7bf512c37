"""The MCP server of one member: the hive's tools and resources in the protocol's words. The SDK is imported here only."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError

from hivemind import __version__
from hivemind.errors import HivemindError, UserError
from hivemind.mcp_server.greeting import instructions
from hivemind.mcp_server.member import Member
from hivemind.mcp_server.news import News
from hivemind.mcp_server.resources import TEMPLATES, list_resources, read_resource

__all__ = ["Run", "build_server"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
Run = Callable[[Callable[[], _T]], Awaitable[_T]]
"""Runs a function on the member's own thread, and waits for what it gives."""
_Context = ServerRequestContext[Any]


def build_server(member: Member, run: Run[Any], news: News) -> Server[Any]:
    """The server. What a tool refuses is an answer with `is_error`: {code, message, suggestions}, as JSON and structured."""

    async def on_list_tools(_: _Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema()["parameters"])
                for tool in member.tools.values()
            ]
        )

    async def on_call_tool(_: _Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return _answer(await run(lambda: member.call(asked.name, asked.arguments or {})))
        except HivemindError as error:
            return _answer(refusal(error), failed=True)
        except (
            Exception
        ) as error:  # the boundary of a tool: a fault in one must not end the server; it is logged and told
            _log.exception("%s: the tool %s broke", member.name, asked.name)
            told = {"code": "FAULT", "message": f"the tool broke: {type(error).__name__}: {error}", "suggestions": []}
            return _answer(told, failed=True)

    async def on_list_resources(_: _Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        found = await run(lambda: list_resources(member))
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=one.uri, name=one.name, description=one.description, mime_type=one.mime_type)
                for one in found
            ]
        )

    async def on_list_templates(
        _: _Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        found = [
            types.ResourceTemplate(uri_template=uri, name=uri, description=what) for uri, what in TEMPLATES.items()
        ]
        return types.ListResourceTemplatesResult(resource_templates=found)

    async def on_read_resource(_: _Context, asked: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(asked.uri)
        try:
            text, kind = await run(lambda: read_resource(member, uri))
        except UserError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error), data={"uri": uri}) from None
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=text, mime_type=kind)])

    def schema_of(
        name: str,
    ) -> dict[str, Any] | None:  # asked in every call over HTTP; else the SDK lists all tools for it
        tool = member.tools.get(name)
        return None if tool is None else tool.schema()["parameters"]

    return Server(
        "hivemind",
        version=__version__,
        instructions=instructions(member.name, member.hive.layout.root),
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
        on_list_resources=on_list_resources,
        on_list_resource_templates=on_list_templates,
        on_read_resource=on_read_resource,
        on_subscribe_resource=news.subscribe,
        on_unsubscribe_resource=news.unsubscribe,
        on_subscriptions_listen=news.listen,
        get_tool_input_schema=schema_of,
    )


def refusal(error: HivemindError) -> dict[str, Any]:
    """What a tool refuses, as the client gets it: a code, one line, and calls that help, as they can be made here."""
    suggestions = [
        {"tool": one["tool"], "arguments": one["arguments"]}
        for one in getattr(error, "suggestions", ())
        if "tool" in one
    ]
    told = {"code": getattr(error, "code", "REFUSED"), "message": str(error), "suggestions": suggestions}
    lease = getattr(error, "lease", None)
    holder = getattr(error, "holder", None) if lease is None else lease.holder_agent_id
    return told if not isinstance(holder, str) else {**told, "holder": holder}


def _answer(told: Mapping[str, Any], *, failed: bool = False) -> types.CallToolResult:
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"), default=str)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=json.loads(text), is_error=failed
    )
