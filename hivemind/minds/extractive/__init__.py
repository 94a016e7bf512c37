"""The default mind: deterministic, without key, network or model. It quotes and cites, and writes no other text."""

from __future__ import annotations

from hivemind.minds.extractive.mind import ExtractiveMind
from hivemind.minds.extractive.plan import Question, plan_steps, questions_in
from hivemind.minds.extractive.quote import Quote, quotes_for

__all__ = ["ExtractiveMind", "Question", "Quote", "plan_steps", "questions_in", "quotes_for"]
