"""Minds: what looks at a context and says what to do."""

from __future__ import annotations

from hivemind.minds.meter import Asked, Exchange, Meter
from hivemind.minds.mind import (
    Action,
    Context,
    ContextTooLong,
    Mind,
    MindError,
    MindUnavailable,
    Thought,
    ToolSchema,
    Usage,
)
from hivemind.minds.open import is_language_model, open_mind, warm_mind
from hivemind.minds.patience import Patience
from hivemind.minds.prices import Prices

__all__ = [
    "Action",
    "Asked",
    "Context",
    "ContextTooLong",
    "Exchange",
    "Meter",
    "Mind",
    "MindError",
    "MindUnavailable",
    "Patience",
    "Prices",
    "Thought",
    "ToolSchema",
    "Usage",
    "is_language_model",
    "open_mind",
    "warm_mind",
]
