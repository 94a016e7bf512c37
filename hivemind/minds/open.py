"""Open minds by the names in agents/<agent>.yaml."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.minds.mind import KEYS, Mind
from hivemind.minds.patience import Patience
from hivemind.sandbox import BoxSettings

_PROGRAM_KINDS = ("agent", "acp")
_PROVIDERS = ("anthropic", "openai", "google", "ollama", "openai-compatible")
KINDS = (
    "extractive", "scripted: FILE", "command: [program, args…]",
    *(f"{provider}:MODEL" for provider in _PROVIDERS[:-1]), "openai-compatible: {url, model, key_env}",
    "agent: codex | claude | gemini | opencode | … | PROFILE", "acp: NAME | [program, args…]", "mcp (a program from outside)",
)  # fmt: skip


def open_mind(
    name: str | Mapping[str, Any] = "extractive",
    *,
    root: Path | None = None,
    patience: Patience | None = None,
    box: BoxSettings | None = None,
) -> Mind:
    """Open a mind. Imports only the modules of the mind's kind.

    `name` is the value of `mind:` in agents/<agent>.yaml. Relative paths start at `root`, the hive's folder. `patience`
    controls retries of requests to a provider, `box` is for a coding agent's program. Raises UserError for an unknown
    name, and for a model if its key or client library is missing.
    """
    kind, argument = _split_name(name)
    if kind in _PROVIDERS:
        from hivemind.minds.language import LanguageMind, model_config

        return LanguageMind(model_config(kind, argument), patience=patience, root=root)
    if kind == "extractive" and argument is None:
        from hivemind.minds.extractive import ExtractiveMind

        return ExtractiveMind()
    if kind == "scripted" and isinstance(argument, str):
        from hivemind.minds.scripted import ScriptedMind

        return ScriptedMind.load((root or Path()) / argument)
    if kind in _PROGRAM_KINDS and argument is not None:
        from hivemind.minds.agents.mind import AgentMind
        from hivemind.minds.agents.profile import program_config

        return AgentMind(program_config(argument), root=root, box=box)
    if kind == "command" and (program := _program_arguments(argument)):
        from hivemind.minds.command import CommandMind

        check_start(name, root)
        settings = name if isinstance(name, Mapping) else {}
        if (unknown := next((key for key in settings if key not in ("command", "timeout_s")), None)) is not None:
            raise UserError(f"unknown key {unknown!r}", remedy="the keys beside command: timeout_s")
        timeout_s = settings.get("timeout_s", 600)
        if type(timeout_s) not in (int, float) or not timeout_s > 0:
            raise UserError(f"timeout_s is {timeout_s!r}", remedy="write a number of seconds")
        return CommandMind(program, folder=root, timeout_s=timeout_s, on_wait=(patience or Patience()).on_wait)
    if kind == "mcp" and argument is None:
        raise UserError(
            "the mind mcp is a program outside the hive that joins on its own", remedy="hivemind mcp --agent NAME"
        )
    raise UserError(f"unknown mind {name!r}", remedy=f"known minds: {', '.join(KINDS)}")


def check_start(name: str | Mapping[str, Any], root: Path | None) -> None:
    """Raise UserError if a mind cannot start here because its program, key or login is missing. Imports less than `open_mind`."""
    kind, argument = _split_name(name)
    if kind in _PROGRAM_KINDS and argument is not None:
        from hivemind.minds.agents.profile import check_program

        check_program(argument, root or Path())
    elif kind == "command" and (program := _program_arguments(argument)):
        from hivemind.minds.agents.profile import find_program

        find_program(program[0], root)
    elif kind in _PROVIDERS:
        key_env = argument.get("key_env") if isinstance(argument, Mapping) else None
        keys = KEYS.get(kind, ()) if key_env is None else (str(key_env),)
        if keys and not any(map(os.environ.get, keys)):
            open_mind(name, root=root)


def warm_mind(name: str | Mapping[str, Any]) -> None:
    """Import a language model's client now, once for all processes that are forked from this one later. Raises UserError."""
    kind, argument = _split_name(name)
    if kind in _PROVIDERS:
        from hivemind.minds.language import import_client, model_config

        import_client(model_config(kind, argument))


def own_instructions(name: str | Mapping[str, Any], root: Path) -> tuple[str, ...]:
    """Return the instruction files and skill folders that a coding agent reads itself; () for any other mind."""
    kind, argument = _split_name(name)
    if kind not in _PROGRAM_KINDS or argument is None:
        return ()
    from hivemind.minds.agents.profile import Profile, program_config

    return Profile.of(program_config(argument), root).reads


def _program_arguments(argument: object) -> list[str]:
    """Return a program and its arguments, from a list or from a text as a shell divides it; [] for anything else."""
    try:
        with boundary("command", str(argument)):
            words = shlex.split(argument) if isinstance(argument, str) else argument
    except Unreadable:  # an open quotation mark
        return []
    if not isinstance(words, list | tuple) or not all(isinstance(word, str | int | float) for word in words):
        return []
    program = [str(word) for word in words]
    return program if program and program[0] and not any("\0" in word for word in program) else []


def _split_name(name: object) -> tuple[str, Any]:
    """Return the kind and the argument in the value of `mind:`. The kind is "" if the value is malformed. For a coding agent, the
    argument is the whole mapping, which may have other keys."""
    if isinstance(name, str):
        kind, colon, argument = (part.strip() for part in name.partition(":"))
        if colon and kind in _PROGRAM_KINDS:
            return kind, {kind: argument}
        return kind, argument if colon else None
    for kind in _PROGRAM_KINDS:
        if isinstance(name, Mapping) and kind in name:
            return kind, dict(name)
    if isinstance(name, Mapping) and "command" in name:
        return "command", name["command"]
    if isinstance(name, Mapping) and len(name) == 1:
        return next((str(kind), argument) for kind, argument in name.items())
    return "", None
