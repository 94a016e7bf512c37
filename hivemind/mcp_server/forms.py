"""The configuration with which a coding agent joins a hive, in the format of each program.

The formats are those of November 2026: `.mcp.json` of Claude Code, `config.toml` of Codex, `.vscode/mcp.json` of VS Code,
`.cursor/mcp.json` of Cursor, `settings.json` of Gemini CLI; `json` is what most other programs read. No configuration
contains the token: it refers to an environment variable, in the program's own syntax.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.frozen import frozen

_SERVER_NAME = "hivemind"
_VARIABLE = "HIVEMIND_MCP_TOKEN"
_INPUT_ID = "hivemind-token"
FORMS: dict[str, str] = {
    "claude": ".mcp.json in the project's folder",
    "codex": "~/.codex/config.toml, or .codex/config.toml in the project's folder",
    "cursor": ".cursor/mcp.json in the project's folder, or ~/.cursor/mcp.json",
    "gemini": ".gemini/settings.json in the project's folder, or ~/.gemini/settings.json",
    "json": "the program's file of MCP servers",
    "vscode": ".vscode/mcp.json in the project's folder",
}
"""For each form, the file that it belongs in."""
_TOKEN_REFERENCES = {"claude": f"${{{_VARIABLE}}}", "cursor": f"${{env:{_VARIABLE}}}", "gemini": f"${_VARIABLE}",
          "json": f"${{{_VARIABLE}}}", "vscode": f"${{input:{_INPUT_ID}}}"}  # fmt: skip


@frozen
class Configuration:
    """A `text` to paste, the file that the text belongs in (`place`), and how the program gets the token (`secret`)."""

    text: str
    place: str
    secret: str | None = None


def configuration(
    form: str, command: Sequence[str], environment: Mapping[str, str], address: str | None = None
) -> Configuration:
    """Return the configuration in the format `form` (`claude`, `codex` …). It starts `command` or, with an `address`, connects to
    a running server over HTTP."""
    if address is None:
        program: dict[str, Any] = {"command": command[0], "args": list(command[1:]), "env": dict(environment)}
        kind = {"type": "stdio"} if form in ("claude", "vscode") else {}
        return Configuration(_toml(program) if form == "codex" else _json(form, {**kind, **program}), FORMS[form])
    if form == "codex":
        text = _toml({"url": address, "bearer_token_env_var": _VARIABLE})
    else:
        kind = {} if form in ("gemini", "cursor") else {"type": "http"}
        headers = {"Authorization": f"Bearer {_TOKEN_REFERENCES[form]}"}
        text = _json(form, {**kind, "httpUrl" if form == "gemini" else "url": address, "headers": headers})
    secret = "the token, when it asks for it" if form == "vscode" else f"the token, in the environment as {_VARIABLE}"
    return Configuration(text, FORMS[form], secret)


def _json(form: str, server: dict[str, Any]) -> str:
    document: dict[str, Any] = {"servers" if form == "vscode" else "mcpServers": {_SERVER_NAME: server}}
    if f"${{input:{_INPUT_ID}}}" in json.dumps(server):
        token_prompt = {
            "type": "promptString",
            "id": _INPUT_ID,
            "description": "the hive's mcp.token",
            "password": True,
        }
        document = {"inputs": [token_prompt], **document}
    return json.dumps(document, ensure_ascii=False, indent=2)


def _toml(server: dict[str, Any]) -> str:
    lines = [f"[mcp_servers.{_SERVER_NAME}]"]
    for key, value in server.items():
        if isinstance(value, dict):
            toml_value = "{ " + ", ".join(f"{name} = {_toml_string(text)}" for name, text in value.items()) + " }"
        else:
            toml_value = f"[{', '.join(map(_toml_string, value))}]" if isinstance(value, list) else _toml_string(value)
        lines.append(f"{key} = {toml_value}")
    return "\n".join(lines)


def _toml_string(text: str) -> str:
    """Return a text as a TOML basic string. TOML escapes as JSON does, and also requires an escape for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
