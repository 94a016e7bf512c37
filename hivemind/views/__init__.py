"""Read-only views of a hive for an agent: cards and events, the capsule, the signals."""

from __future__ import annotations

from hivemind.views.answer import Capsule, SignalFound, ViewResult, render
from hivemind.views.scope import Readable
from hivemind.views.signal import ProposedCall, Signal, SignalInput, analyse
from hivemind.views.views import VIEWS, View, capsule, resume, signals, snapshot, watch

__all__ = [
    "VIEWS",
    "Capsule",
    "ProposedCall",
    "Readable",
    "Signal",
    "SignalFound",
    "SignalInput",
    "View",
    "ViewResult",
    "analyse",
    "capsule",
    "render",
    "resume",
    "signals",
    "snapshot",
    "watch",
]
