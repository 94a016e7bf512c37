"""What a coding agent's own configuration has to say to join a hive, in the form that each of them reads.

Looked up in November 2026: `.mcp.json` of Claude Code, `config.toml` of Codex, `.vscode/mcp.json` of VS Code,
`.cursor/mcp.json` of Cursor, `settings.json` of Gemini CLI; `json` is the form that most others read. A token stands in none
of them: it is named as an environment variable, in the way that the program expands one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.frozen import frozen

_NAME = "hivemind"
_VARIABLE = "HIVEMIND_MCP_TOKEN"
_ASKED = "hivemind-token"
FORMS: dict[str, str] = {
    "claude": ".mcp.json in the project's folder",
    "codex": "~/.codex/config.toml, or .codex/config.toml in the project's folder",
    "cursor": ".cursor/mcp.json in the project's folder, or ~/.cursor/mcp.json",
    "gemini": ".gemini/settings.json in the project's folder, or ~/.gemini/settings.json",
    "json": "the file in which the program looks for its MCP servers",
    "vscode": ".vscode/mcp.json in the project's folder",
}
"""The forms, and where each belongs."""
_TOKEN = {"claude": f"${{{_VARIABLE}}}", "cursor": f"${{env:{_VARIABLE}}}", "gemini": f"${_VARIABLE}",
          "json": f"${{{_VARIABLE}}}", "vscode": f"${{input:{_ASKED}}}"}  # fmt: skip


@frozen
class Configuration:
    """`text` is to be pasted; `place` says where, and `secret` what the program has to be given beside it, if anything."""

    text: str
    place: str
    secret: str | None = None


def configuration(
    form: str, command: Sequence[str], environment: Mapping[str, str], address: str | None = None
) -> Configuration:
    """The configuration that starts `command`, or, with an `address`, speaks HTTP to a server that runs."""
    if address is None:
        program: dict[str, Any] = {"command": command[0], "args": list(command[1:]), "env": dict(environment)}
        return Configuration(_toml(program) if form == "codex" else _json(form, _started(form, program)), FORMS[form])
    if form == "codex":
        text = _toml({"url": address, "bearer_token_env_var": _VARIABLE})
    else:
        text = _json(form, _spoken_to(form, address))
    secret = "the token, when it asks for it" if form == "vscode" else f"the token, in the environment as {_VARIABLE}"
    return Configuration(text, FORMS[form], secret)


def _started(form: str, program: dict[str, Any]) -> dict[str, Any]:
    return {"type": "stdio", **program} if form in ("claude", "vscode") else program


def _spoken_to(form: str, address: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {_TOKEN[form]}"}
    match form:
        case "gemini":
            return {"httpUrl": address, "headers": headers}
        case "cursor":
            return {"url": address, "headers": headers}
        case _:
            return {"type": "http", "url": address, "headers": headers}


def _json(form: str, server: dict[str, Any]) -> str:
    document: dict[str, Any] = {"servers" if form == "vscode" else "mcpServers": {_NAME: server}}
    if f"${{input:{_ASKED}}}" in json.dumps(server):
        token_prompt = {"type": "promptString", "id": _ASKED, "description": "the hive's mcp.token", "password": True}
        document = {"inputs": [token_prompt], **document}
    return json.dumps(document, ensure_ascii=False, indent=2)


def _toml(server: dict[str, Any]) -> str:
    lines = [f"[mcp_servers.{_NAME}]"]
    for key, value in server.items():
        if isinstance(value, dict):
            toml_value = "{ " + ", ".join(f"{name} = {_quoted(text)}" for name, text in value.items()) + " }"
        else:
            toml_value = f"[{', '.join(map(_quoted, value))}]" if isinstance(value, list) else _quoted(value)
        lines.append(f"{key} = {toml_value}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A basic string of TOML: it escapes what JSON does, and the delete character besides."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
