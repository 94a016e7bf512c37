"""Views: what is in front of an agent, the capsule, and the signals. Read-only (spec 3, seed 002)."""

from __future__ import annotations

from hivemind.views.budget import render
from hivemind.views.scope import Readable
from hivemind.views.selection import VIEWS, View
from hivemind.views.signal import Action, Signal, analyse
from hivemind.views.slice import Slice
from hivemind.views.views import capsule, resume, signals, snapshot, watch

__all__ = [
    "VIEWS",
    "Action",
    "Readable",
    "Signal",
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
