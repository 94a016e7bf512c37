"""A coding agent, or any MCP client, joins the hive as one of its agents."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Literal

from hivemind.cli.command import Arg, command
from hivemind.cli.opening import layout_of, look_at
from hivemind.cli.output import say, warn
from hivemind.errors import UserError
from hivemind.names import check_name

if TYPE_CHECKING:
    from hivemind.layout import Layout

Profile = Literal["core", "daily", "full"]
Form = Literal["claude", "codex", "cursor", "gemini", "json", "vscode"]


@command("mcp", layout_of, own_form=True)
def mcp(
    layout: Layout,
    *,
    agent: str,
    profile: Profile = "core",
    http: bool = False,
    port: Annotated[int, Arg(most=65535)] = 8765,
    config: Form | None = None,
) -> None:
    """Let an MCP client join the hive as one of its agents.

    Speaks the protocol on standard input and output, for a client that starts this command; with --http, on
    loopback, for clients that show the token in .hive/agents/NAME/mcp.token. The agent lives as long as the server.

    arguments:
      --agent AGENT  which agent of the hive the client is
      --profile  how many tools it is shown: core (default), daily, full
      --http  serve on 127.0.0.1 instead
      --port N  with --http (default: 8765; 0: any)
      --config FORM  print the configuration that a coding agent needs for this, and serve nothing: claude, codex,
          cursor, gemini, json, vscode

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
        serve_http(layout, name, profile, port, _tell)
    else:
        serve_stdio(layout, name, profile)


def _print_config(root: str, name: str, form: Form, profile: Profile, port: int | None) -> None:
    from hivemind.mcp_server.forms import configuration

    hive = look_at(root)
    hive.agent_files.get(name, " --mind mcp")
    if port == 0:
        raise UserError("--port 0 is another port each time", mend="choose one, for the server and here")
    words = ["mcp", "--agent", name, *(() if profile == "core" else ("--profile", profile))]
    address = None if port is None else f"http://127.0.0.1:{port}/mcp"
    found = configuration(form, [*_this_program(), *words], {"HIVEMIND_HIVE": root}, address)
    say(found.text)
    warn(f"this goes into {found.place}")
    if found.secret is not None:
        warn(f"give it {found.secret}; it is in {hive.layout.agent_state(name) / 'mcp.token'} once the server has run")


def _this_program() -> list[str]:
    """How this very program is started from anywhere: who starts it knows nothing of a shell's PATH."""
    started = os.path.abspath(sys.argv[0])
    runs = os.path.basename(started) == "hivemind" and os.access(started, os.X_OK) and not os.path.isdir(started)
    return [started] if runs else [sys.executable, "-m", "hivemind"]


def _tell(address: str, token: str) -> None:
    say(f"{address}  (Authorization: Bearer, with the token in {token})")
    sys.stdout.flush()
