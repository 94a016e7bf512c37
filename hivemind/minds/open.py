"""Minds by name, as agents/<agent>.yaml names them (spec 7)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.minds.mind import Mind
from hivemind.minds.patience import Patience

_PROVIDERS = ("anthropic", "openai", "google", "ollama", "openai-compatible")
KINDS = (
    "extractive", "scripted: FILE", "command: [program, args…]",
    *(f"{provider}:MODEL" for provider in _PROVIDERS[:-1]), "openai-compatible: {url, model, key_env}",
    "agent: codex | claude | gemini | opencode | PROFILE", "mcp (a program from outside)",
)  # fmt: skip


def open_mind(
    name: str | Mapping[str, Any] = "extractive",
    *,
    root: Path | None = None,
    patience: Patience | None = None,
) -> Mind:
    """The mind that `name` names; nothing of another kind is imported.

    `name` is the value of `mind:` in agents/<agent>.yaml; relative files are taken from `root`, the hive's folder.
    `patience` says how often a provider is asked again.
    Raises UserError for a name that is not known, and for a model whose key or client library is missing.
    """
    kind, argument = _split(name)
    if kind in _PROVIDERS:
        from hivemind.minds.language import LanguageMind, model_config

        return LanguageMind(model_config(kind, argument), patience=patience, root=root)
    if kind == "extractive" and argument is None:
        from hivemind.minds.extractive import ExtractiveMind

        return ExtractiveMind()
    if kind == "scripted" and isinstance(argument, str):
        from hivemind.minds.scripted import ScriptedMind

        return ScriptedMind.load((root or Path()) / argument)
    if kind == "agent" and argument is not None:
        from hivemind.minds.agents import AgentMind, program_config

        return AgentMind(program_config(argument), root=root)
    if kind == "command" and (program := _words(argument)):
        from hivemind.minds.command import CommandMind

        return CommandMind(program, folder=root, waiting=(patience or Patience()).waiting)
    if kind == "mcp" and argument is None:
        raise UserError("the mind mcp is a program outside, which joins by itself", mend="hivemind mcp --agent NAME")
    raise UserError(f"unknown mind {name!r}", mend=f"known minds: {', '.join(KINDS)}")


def warm_mind(name: str | Mapping[str, Any]) -> None:
    """Import now what a language model's client needs, so that what is forked from this process finds it done."""
    kind, argument = _split(name)
    if kind in _PROVIDERS:
        from hivemind.minds.language import model_config, warm

        warm(model_config(kind, argument))


def _words(argument: object) -> list[str]:
    """A program and its arguments; none for what can be no program."""
    words = [argument] if isinstance(argument, str) else argument
    if not isinstance(words, list | tuple) or not all(isinstance(word, str | int | float) for word in words):
        return []
    found = [str(word) for word in words]
    return found if found and found[0] and not any("\0" in word for word in found) else []


def _split(name: object) -> tuple[str, Any]:
    """The kind of mind and what is said of it; no kind for what names none (anything may stand in a file)."""
    if isinstance(name, str):
        kind, colon, argument = name.partition(":")
        return kind.strip(), argument.strip() if colon else None
    if isinstance(name, Mapping) and "agent" in name:
        return "agent", dict(name)
    if isinstance(name, Mapping) and len(name) == 1:
        return next((str(kind), argument) for kind, argument in name.items())
    return "", None
