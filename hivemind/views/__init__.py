"""Views: what is in front of an agent, the capsule, and the signals. Read-only (spec 3, seed 002)."""

from __future__ import annotations

from hivemind.views.answer import Answer, Capsule, SignalFound, render
from hivemind.views.scope import Readable
from hivemind.views.signal import Action, Signal, Slice, analyse
from hivemind.views.views import VIEWS, View, capsule, resume, signals, snapshot, watch

__all__ = [
    "VIEWS",
    "Action",
    "Answer",
    "Capsule",
    "Readable",
    "Signal",
    "SignalFound",
    "Slice",
    "View",
    "analyse",
    "capsule",
    "render",
    "resume",
    "signals",
    "snapshot",
    "watch",
]
