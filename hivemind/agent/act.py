"""Act: use the tools that a thought asks for, in order, under the step's lease, until one fails."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hivemind.errors import HivemindError, is_disk_full
from hivemind.memory import MemoryBlock, create_memory_from_action
from hivemind.minds import Action
from hivemind.taskrun.parking import DISK_FULL, Parking, until_there_is_room
from hivemind.tools import Session, Tool, ToolProblem

__all__ = ["Acted", "act"]

_log = logging.getLogger(__name__)
_SHOWN_CHARS = 500
_SHOWN_ITEMS = 20


@dataclass(frozen=True, slots=True)
class Acted:
    """What became of a thought's actions: a record for the log of each, the blocks they gave, why it stopped early."""

    records: tuple[dict[str, Any], ...]
    blocks: tuple[MemoryBlock, ...] = ()
    parking: Parking | None = None
    problem: str | None = None
    last: str | None = field(default=None)


def act(session: Session, tools: Mapping[str, Tool], actions: Sequence[Action]) -> Acted:
    """Use the tools one after the other. The first problem ends it: the mind sees the reason in the next context."""
    records: list[dict[str, Any]] = []
    blocks: list[MemoryBlock] = []
    last: str | None = None
    for action in actions:
        last = action.tool
        told: dict[str, Any] = {"tool": action.tool, "arguments": dict(action.arguments)}
        try:
            result = _tool(tools, action.tool).call(session, action.arguments)
        except Parking as parking:
            records.append({**told, "parked": parking.reason})
            return Acted(tuple(records), tuple(blocks), parking=parking, last=last)
        except (
            Exception
        ) as error:  # the boundary of a tool: a fault in one must not end the agent; it is logged and told
            if is_disk_full(error):
                records.append({**told, "parked": DISK_FULL})
                return Acted(tuple(records), tuple(blocks), parking=until_there_is_room(), last=last)
            if not isinstance(error, HivemindError):
                _log.exception("%s: the tool %s broke on %s", session.agent, action.tool, session.focus.id)
            said = (
                str(error) if isinstance(error, HivemindError) else f"the tool broke: {type(error).__name__}: {error}"
            )
            result = {**getattr(error, "result", {}), "error": said}
            records.append({**told, "error": said, "result": result})
            blocks += _blocks(session, action, result)
            return Acted(tuple(records), tuple(blocks), problem=said, last=last)
        records.append({**told, "result": result})
        blocks += _blocks(session, action, result)
        if session.focus.work is not None and (session.focus.work.ended or session.focus.work.handed):
            break
    return Acted(tuple(records), tuple(blocks), last=last)


def _tool(tools: Mapping[str, Tool], name: str) -> Tool:
    if name not in tools:
        raise ToolProblem(f"there is no tool {name!r}", mend=f"tools: {', '.join(sorted(tools))}")
    return tools[name]


def _blocks(session: Session, action: Action, result: dict[str, Any]) -> list[MemoryBlock]:
    """The results as blocks again; each says which target it belongs to, and in short what came out."""
    made = create_memory_from_action(action.tool, result)
    found = list(made) if isinstance(made, list) else [made]
    for block in found:
        block.metadata.update(target=session.focus.id, tool=action.tool, outcome=_short(result))
        if session.focus.work is not None:
            block.metadata["task_id"] = session.focus.id
    return found


def _short(result: Mapping[str, Any]) -> dict[str, Any]:
    """What of a result a mind needs to decide: its small values. The whole of it is in the task's log."""
    kept: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, list):
            kept[key] = [item for item in value[:_SHOWN_ITEMS] if len(str(item)) <= _SHOWN_CHARS]
        elif value is None or len(str(value)) <= _SHOWN_CHARS:
            kept[key] = value
    return kept
