"""Minds, which read a turn and decide on the next calls."""

from __future__ import annotations

from hivemind.minds.meter import Meter, MeteredExchange, MeteredRequest, Prices
from hivemind.minds.mind import (
    ChatMessage,
    ContextTooLong,
    Mind,
    MindError,
    MindUnavailable,
    Thought,
    ToolCall,
    ToolResult,
    ToolSchema,
    Turn,
    Usage,
)
from hivemind.minds.open import open_mind, warm_mind
from hivemind.minds.patience import Patience

__all__ = [
    "ChatMessage",
    "ContextTooLong",
    "Meter",
    "MeteredExchange",
    "MeteredRequest",
    "Mind",
    "MindError",
    "MindUnavailable",
    "Patience",
    "Prices",
    "Thought",
    "ToolCall",
    "ToolResult",
    "ToolSchema",
    "Turn",
    "Usage",
    "open_mind",
    "warm_mind",
]
