"""Minds: what looks at a context and says what to do."""

from __future__ import annotations

from hivemind.minds.mind import Action, Context, Mind, MindError, MindUnavailable, Thought, ToolSchema, Usage
from hivemind.minds.open import open_mind

__all__ = ["Action", "Context", "Mind", "MindError", "MindUnavailable", "Thought", "ToolSchema", "Usage", "open_mind"]
