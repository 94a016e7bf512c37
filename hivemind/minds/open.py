"""Minds by name, as agents/<agent>.yaml names them (spec 7)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.minds.mind import Mind

__all__ = ["open_mind"]

KINDS = ("extractive", "scripted: FILE", "command: [program, args…]")


def open_mind(name: str | Mapping[str, Any] = "extractive", *, root: Path | None = None) -> Mind:
    """The mind that `name` names; nothing of another kind is imported.

    `name` is the value of `mind:` in agents/<agent>.yaml; relative files are taken from `root`, the hive's folder.
    Raises UserError for a name that is not known.
    """
    kind, argument = _split(name)
    if kind == "extractive" and argument is None:
        from hivemind.minds.extractive import ExtractiveMind

        return ExtractiveMind()
    if kind == "scripted" and isinstance(argument, str):
        from hivemind.minds.scripted import ScriptedMind

        return ScriptedMind.load((root or Path()) / argument)
    if kind == "command" and argument:
        from hivemind.minds.command import CommandMind

        program = [argument] if isinstance(argument, str) else [str(part) for part in argument]
        return CommandMind(program, folder=root)
    raise UserError(f"unknown mind {name!r}", mend=f"known minds: {', '.join(KINDS)}")


def _split(name: str | Mapping[str, Any]) -> tuple[str, Any]:
    if isinstance(name, str):
        kind, colon, argument = name.partition(":")
        return kind.strip(), argument.strip() if colon else None
    if len(name) == 1:
        return next((str(kind), argument) for kind, argument in name.items())
    return "", None
