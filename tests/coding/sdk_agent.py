"""An agent made with the official package of the Agent Client Protocol, which checks every message by its schema.

It asks whether it may write the file that its prompt names, and calls finish_task by the hive's MCP server.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import acp
from acp import schema
from fake_agent import Hive


class SdkAgent:
    def on_connect(self, conn: acp.Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, mcp_servers: Any, **_: Any) -> schema.NewSessionResponse:
        self.folder, self.server = Path(cwd), mcp_servers[0]
        modes = [schema.SessionMode(id=name, name=name) for name in ("ask", "code")]
        state = schema.SessionModeState(current_mode_id="ask", available_modes=modes)
        return schema.NewSessionResponse(session_id="sdk", modes=state)

    async def set_session_mode(self, mode_id: str, **_: Any) -> schema.SetSessionModeResponse:
        self.mode = mode_id
        return schema.SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> schema.PromptResponse:
        async def update(message: Any) -> None:
            await self.client.session_update(session_id, message)

        name = re.findall(r"Write (\S+)\.", prompt[0].text)[0]
        await update(acp.update_plan([acp.plan_entry(f"Write {name}", status="in_progress")]))
        call = acp.start_tool_call("w1", f"Write {name}", kind="edit", locations=[schema.ToolCallLocation(path=name)])
        await update(call)
        options = [schema.PermissionOption(option_id="ok", name="Allow", kind="allow_once")]
        query = schema.ToolCallUpdate(tool_call_id="w1")
        outcome = (
            await self.client.request_permission(session_id=session_id, tool_call=query, options=options)
        ).outcome
        (self.folder / name).write_text(f"{self.mode}, {outcome.outcome}")
        diff = acp.tool_diff_content(name, self.mode)
        await update(acp.update_tool_call("w1", status="completed", content=[diff]))
        await update(acp.update_agent_message_text("I have written it."))
        arguments = {"result": "It is done."}
        await asyncio.to_thread(Hive([self.server.command, *self.server.args]).call, "finish_task", arguments)
        usage = schema.Usage(input_tokens=60, cached_read_tokens=40, output_tokens=10, total_tokens=110)
        return schema.PromptResponse(stop_reason="end_turn", usage=usage)


if __name__ == "__main__":
    asyncio.run(acp.run_agent(SdkAgent()))
