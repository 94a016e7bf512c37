"""Minds: what looks at a turn and says what to do."""

from __future__ import annotations

from hivemind.minds.meter import Asked, Exchange, Meter, Prices
from hivemind.minds.mind import (
    Action,
    ChatMessage,
    ContextTooLong,
    Mind,
    MindError,
    MindUnavailable,
    Result,
    Thought,
    ToolSchema,
    Turn,
    Usage,
)
from hivemind.minds.open import open_mind, warm_mind
from hivemind.minds.patience import Patience

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
    "open_mind",
    "warm_mind",
]
