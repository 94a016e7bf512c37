"""Replay of a finished task from its log, without a model."""

from __future__ import annotations

from hivemind.replay.recording import Difference
from hivemind.replay.replay import Replay, ReplayedTurn, replay

__all__ = ["Difference", "Replay", "ReplayedTurn", "replay"]
