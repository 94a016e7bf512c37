"""Running a finished task again from its log, without a model."""

from __future__ import annotations

from hivemind.runtime.replay.compare import Difference
from hivemind.runtime.replay.record import script_lines
from hivemind.runtime.replay.replay import Replay, ReplayedTurn, replay

__all__ = ["Difference", "Replay", "ReplayedTurn", "replay", "script_lines"]
