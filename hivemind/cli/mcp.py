"""Let a coding agent, or any MCP client, join the hive as one of its agents."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Literal

from hivemind.cli.command import Arg, command
from hivemind.cli.open_hive import find_layout, open_read_only
from hivemind.cli.output import print_line, warn
from hivemind.errors import UserError
from hivemind.names import check_name

if TYPE_CHECKING:
    from hivemind.layout import Layout

Profile = Literal["core", "daily", "full"]
Form = Literal["claude", "codex", "cursor", "gemini", "json", "vscode"]


@command("mcp", find_layout, fixed_format=True)
def mcp(
    layout: Layout,
    *,
    agent: str,
    profile: Profile = "core",
    http: bool = False,
    port: Annotated[int, Arg(maximum=65535)] = 8765,
    config: Form | None = None,
) -> None:
    """Let an MCP client join the hive as one of its agents.

    Serves the client that starts this command, on standard input and output. With --http, serves clients on this machine
    that send the token in .hive/agents/NAME/mcp.token. The agent is up as long as the server runs.

    arguments:
      --agent AGENT  the agent that the client joins as
      --profile  which tools the client sees: core (default), daily, full
      --http  serve on 127.0.0.1 instead
      --port N  the port for --http (default: 8765; 0: any free port)
      --config FORM  print the configuration for a coding agent instead of serving: claude, codex, cursor, gemini,
          json, vscode

    examples:
      hivemind agent add claude --mind mcp
      hivemind mcp --agent claude --config claude > .mcp.json
      hivemind mcp --agent claude
      hivemind mcp --agent claude --http --port 8765 --profile full
    """
    name, root = check_name(agent, "agent name"), os.fspath(layout.root)
    if config is not None:
        _print_config(root, name, config, profile, port if http else None)
        return
    from hivemind.mcp_server import serve_http, serve_stdio

    if http:
        serve_http(layout, name, profile, port, _print_address)
    else:
        serve_stdio(layout, name, profile)


def _print_config(root: str, name: str, form: Form, profile: Profile, port: int | None) -> None:
    from hivemind.mcp_server.forms import configuration

    hive = open_read_only(root)
    hive.agent_files.get(name, " --mind mcp")
    if port == 0:
        raise UserError("--port 0 is a different port at each start", remedy="choose a port, here and for the server")
    words = ["mcp", "--agent", name, *(() if profile == "core" else ("--profile", profile))]
    address = None if port is None else f"http://127.0.0.1:{port}/mcp"
    client_config = configuration(form, [*_program_command(), *words], {"HIVEMIND_HIVE": root}, address)
    print_line(client_config.text)
    warn(f"this configuration goes into {client_config.place}")
    if client_config.secret is not None:
        warn(
            f"give the client {client_config.secret}; "
            f"the token is in {hive.layout.agent_state(name) / 'mcp.token'} once the server has run"
        )


def _program_command() -> list[str]:
    """Return the command that starts this program, with its absolute path: clients may not have the shell's PATH."""
    program_path = os.path.abspath(sys.argv[0])
    is_runnable = (
        os.path.basename(program_path) == "hivemind"
        and os.access(program_path, os.X_OK)
        and not os.path.isdir(program_path)
    )
    return [program_path] if is_runnable else [sys.executable, "-m", "hivemind"]


def _print_address(address: str, token: str) -> None:
    print_line(f"{address}  (Authorization: Bearer, with the token in {token})")
    sys.stdout.flush()
