"""The mind that is a coding agent: a program that thinks and works by itself, run for a task as a whole (`agent.program`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hivemind.minds.agents.profile import AgentProgram, Profile
from hivemind.minds.mind import ToolSchema
from hivemind.minds.prices import Prices
from hivemind.minds.turn import MindError, Thought, Turn

__all__ = ["AgentMind"]


class AgentMind:
    """What is known of the program of an agent. It is not asked for single thoughts: the agent runs it."""

    def __init__(self, config: AgentProgram, *, root: Path | None = None, prices: Prices | None = None) -> None:
        """Raises UserError if there is no such profile, or no such program, or no key for it."""
        self.config, self.prices = config, prices
        self.profile = Profile.load(config.agent, root)
        self.path = self.profile.find(root)
        self.profile.check_access(config)

    @property
    def name(self) -> str:
        """As it is named in logs: `codex`, `codex:gpt-5`."""
        return self.config.agent if self.config.model is None else f"{self.config.agent}:{self.config.model}"

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:  # noqa: ARG002 - as the protocol says
        _refuse()

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:  # noqa: ARG002 - as the protocol says
        _refuse()


def _refuse() -> NoReturn:
    raise MindError("a coding agent works on whole tasks, and answers no single prompts")
