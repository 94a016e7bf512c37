"""hivemind mcp: a coding agent, or any MCP client, joins the hive as one of its agents."""

from __future__ import annotations

import argparse
import os
import sys

from hivemind.cli.hive_of import hive_of, layout_of, look_at
from hivemind.cli.output import say, warn
from hivemind.cli.parser import Commands, Parser, add_command, number
from hivemind.errors import UserError
from hivemind.names import check_name

__all__ = ["add_to"]

_PROFILES = ("core", "daily", "full")
_FORMS = ("claude", "codex", "cursor", "gemini", "json", "vscode")
_PORT = 8765
_LAST_PORT = 65_535


def add_to(commands: Commands, common: Parser) -> None:
    parser = add_command(
        commands,
        common,
        "mcp",
        _run,
        "let an MCP client join the hive as one of its agents",
        about="Speaks the protocol on standard input and output, for a client that starts this command; with --http, on\n"
        "loopback, for clients that show the token in .hive/agents/NAME/mcp.token. The agent lives as long as the server.",
        examples="  hivemind agent add claude --mind mcp\n  hivemind mcp --agent claude --config claude > .mcp.json\n"
        "  hivemind mcp --agent claude\n  hivemind mcp --agent claude --http --port 8765 --profile full",
    )
    parser.add_argument("--agent", required=True, metavar="NAME", help="which agent of the hive the client is")
    parser.add_argument(
        "--profile", choices=_PROFILES, default="core", help="how many tools it is shown: core (default), daily, full"
    )
    parser.add_argument("--http", action="store_true", help="serve on 127.0.0.1 instead")
    parser.add_argument(
        "--port",
        type=number("of a port", most=_LAST_PORT),
        default=_PORT,
        metavar="N",
        help=f"with --http (default: {_PORT}; 0: any)",
    )
    parser.add_argument(
        "--config",
        choices=_FORMS,
        metavar="FORM",
        help=f"print what a coding agent's configuration has to say for this, and serve nothing: {', '.join(_FORMS)}",
    )


def _run(arguments: argparse.Namespace) -> int:
    from hivemind.mcp_server import serve_http, serve_stdio

    layout_of(arguments)  # said before anything is begun
    name = check_name(arguments.agent, "agent name")
    if arguments.config is not None:
        return _print_config(arguments, name)
    if arguments.http:
        serve_http(lambda: hive_of(arguments), name, arguments.profile, arguments.port, _tell)
    else:
        serve_stdio(lambda: hive_of(arguments), name, arguments.profile)
    return 0


def _print_config(arguments: argparse.Namespace, name: str) -> int:
    from hivemind.mcp_server.forms import configuration

    hive = look_at(arguments)
    hive.agent_files.get(name, " --mind mcp")
    words = ["mcp", "--agent", name, *(() if arguments.profile == "core" else ("--profile", arguments.profile))]
    address = f"http://127.0.0.1:{arguments.port}/mcp" if arguments.http else None
    if address is not None and not arguments.port:
        raise UserError("--port 0 is another port each time", mend="choose one, for the server and here")
    found = configuration(
        arguments.config, [*_this_program(), *words], {"HIVEMIND_HIVE": os.fspath(hive.layout.root)}, address
    )
    say(found.text)
    warn(f"this goes into {found.place}")
    if found.secret is not None:
        warn(f"give it {found.secret}; it is in {hive.layout.agent_state(name) / 'mcp.token'} once the server has run")
    return 0


def _this_program() -> list[str]:
    """How this very program is started from anywhere: who starts it knows nothing of a shell's PATH."""
    started = os.path.abspath(sys.argv[0])
    runs = os.path.basename(started) == "hivemind" and os.access(started, os.X_OK) and not os.path.isdir(started)
    return [started] if runs else [sys.executable, "-m", "hivemind"]


def _tell(address: str, token: str) -> None:
    say(f"{address}  (Authorization: Bearer, with the token in {token})")
    sys.stdout.flush()
