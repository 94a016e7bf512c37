"""Select: decide whether the turn begins an epoch, and which blocks are then worth their tokens in the opening."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import datetime

from hivemind.agent.recall import subjects_of
from hivemind.agent.window import ContextWindow
from hivemind.agent.working_memory import SelectedMemory, WorkingMemory
from hivemind.boundary import Unreadable, boundary
from hivemind.frozen import frozen
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.focus import Focus

_CACHE_S = 3600.0  # after a longer pause the provider's cache has expired anyway
_MIN_TURNS = 2  # a conversation of fewer turns is as short as a new opening


@frozen
class NewEpoch:
    """The cause of a new epoch, and the selection for its opening."""

    cause: str
    selected: SelectedMemory


def select(
    focus: Focus, window: ContextWindow, memory: WorkingMemory, *, cause: str | None, keeps_sessions: bool
) -> NewEpoch | None:
    """Return the new epoch with the selection for its opening. Return None if the conversation continues.

    With a `cause`, an epoch begins for that reason; with None, only if one is due. A mind that `keeps_sessions` limits the length
    of the conversation itself.
    """
    cause = cause or _cause(window, keeps_sessions=keeps_sessions)
    return None if cause is None else NewEpoch(cause, select_memory(focus, window, memory))


def select_memory(
    focus: Focus, window: ContextWindow, memory: WorkingMemory, is_known: Callable[[str], bool] = lambda _: False
) -> SelectedMemory:
    """Return the content that an opening would have now, without the texts for which `is_known` is true."""
    return memory.select(focus, subjects_of(focus), window.selection_room, is_known)


def _cause(window: ContextWindow, *, keeps_sessions: bool) -> str | None:
    talk = window.talk
    if talk.epoch is None:
        return "start"
    if talk.pending_calls:  # they are answered first
        return None
    if talk.epoch.get("shape") != window.shape:
        return "changed"
    if keeps_sessions:
        return None
    if window.is_full:
        return "full"
    return "cold" if _idle_s(talk) > _CACHE_S and sum(1 for _ in talk.turn_messages()) > _MIN_TURNS else None


def _idle_s(talk: Conversation) -> float:
    """Return the seconds since the last message."""
    with contextlib.suppress(Unreadable), boundary("time"):
        return time.time() - datetime.fromisoformat(talk.messages[-1].at).timestamp()
    return 0.0
