"""The events of a coding agent at work, the same for every program and protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from hivemind.frozen import frozen
from hivemind.minds.mind import Usage


class Event:
    """A step of a program's work."""


@frozen
class SessionOpened(Event):
    """The program has opened a new session, or continues an old one."""

    session: str


@frozen
class AgentText(Event):
    """A text that the program has written for people, or its reasoning (`is_thought`): a whole message, or the next chunk of one.

    Chunks with different `message` ids belong to different messages.
    """

    text: str
    is_chunk: bool = False
    is_thought: bool = False
    message: str | None = None


@frozen
class AgentPlan(Event):
    """The steps that the program intends to take, each with its status. Each plan replaces the one before it."""

    steps: tuple[tuple[str, str], ...]


@frozen
class ProgramCall(Event):
    """A call of one of the program's own tools, with all that is known. A later event with the same id replaces it.

    `kind` is the protocol's kind of call (read, edit, execute, fetch …), "" if unknown. `paths` are the files that it touches.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    kind: str = ""
    paths: tuple[str, ...] = ()
    is_hive_tool: bool = False


@frozen
class ProgramCallResult(Event):
    """The result of the call `id`."""

    id: str
    text: str
    is_failed: bool = False


@frozen
class UsageReport(Event):
    """Usage of the whole run, or of a `part` of it; a part's later report replaces its earlier one.

    With `is_cumulative` the figures count from the beginning of the session, across processes.
    """

    usage: Usage
    part: str | None = None
    is_cumulative: bool = False


@frozen
class PermissionRequest(Event):
    """A request to allow a call. Answer it with `ProgramSession.answer`."""

    call: ProgramCall
    source: Any = None


@frozen
class OtherUpdate(Event):
    """A message of a kind that the reader does not know."""

    kind: str
    text: str


@frozen
class Problem(Event):
    """An error that the program reports. Its run may continue."""

    reason: str


@frozen
class TurnEnd(Event):
    """The program has ended its turn, for a `reason`: end_turn, cancelled, refusal …"""

    reason: str = "end_turn"


@frozen
class Failure(Event):
    """The program cannot continue. `reason` completes a sentence that begins with the program's name.

    The kinds: `session`, it cannot continue the session; `settings`, it refuses its mode or model; `login`, a key or login is
    missing or was refused; `exit`, it has ended; `overrun`, it prints too much and has to be ended.
    """

    reason: str
    kind: Literal["error", "session", "settings", "login", "exit", "overrun"] = "error"
