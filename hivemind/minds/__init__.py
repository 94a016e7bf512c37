"""Minds: what looks at a turn and says what to do."""

from __future__ import annotations

from hivemind.minds.meter import Asked, Exchange, Meter
from hivemind.minds.mind import ContextTooLong, Mind, MindUnavailable, ToolSchema
from hivemind.minds.open import is_language_model, open_mind, warm_mind
from hivemind.minds.patience import Patience
from hivemind.minds.prices import Prices
from hivemind.minds.turn import Action, ChatMessage, MindError, Result, Thought, Turn, Usage

__all__ = [
    "Action",
    "Asked",
    "ChatMessage",
    "ContextTooLong",
    "Exchange",
    "Meter",
    "Mind",
    "MindError",
    "MindUnavailable",
    "Patience",
    "Prices",
    "Result",
    "Thought",
    "ToolSchema",
    "Turn",
    "Usage",
    "is_language_model",
    "open_mind",
    "warm_mind",
]
