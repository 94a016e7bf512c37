"""Act: use the tools that a thought asks for, in order, under the step's lease, until one fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hivemind.errors import HivemindError
from hivemind.memory import MemoryBlock, create_memory_from_action
from hivemind.minds import Action
from hivemind.runtime.parking import Parking
from hivemind.runtime.tools import Session, Tool, ToolProblem

__all__ = ["Acted", "act"]

_log = logging.getLogger(__name__)
_SHOWN_CHARS = 4000


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
            tool = tools.get(action.tool)
            if tool is None:
                raise ToolProblem(f"there is no tool {action.tool!r}", mend=f"tools: {', '.join(sorted(tools))}")
            result = tool.call(session, action.arguments)
        except Parking as parking:
            records.append({**told, "parked": parking.reason})
            return Acted(tuple(records), tuple(blocks), parking=parking, last=last)
        except HivemindError as error:
            result = {**getattr(error, "result", {}), "error": str(error)}
            records.append({**told, "error": str(error), "result": result})
            blocks += _blocks(session, action, result)
            return Acted(tuple(records), tuple(blocks), problem=str(error), last=last)
        except (
            Exception
        ) as error:  # the boundary of a tool: a fault in one must not end the agent; it is logged and told
            _log.exception("%s: the tool %s broke on %s", session.agent, action.tool, session.focus.id)
            result = {"error": f"the tool broke: {type(error).__name__}: {error}"}
            records.append({**told, **result})
            blocks += _blocks(session, action, result)
            return Acted(tuple(records), tuple(blocks), problem=result["error"], last=last)
        records.append({**told, "result": result})
        blocks += _blocks(session, action, result)
        if session.focus.work is not None and session.focus.work.ended:
            break
    return Acted(tuple(records), tuple(blocks), last=last)


def _blocks(session: Session, action: Action, result: dict[str, Any]) -> list[MemoryBlock]:
    """The results as blocks again; each says which target it belongs to."""
    made = create_memory_from_action(action.tool, _cut(result))
    found = list(made) if isinstance(made, list) else [made]
    for block in found:
        block.metadata.update(target=session.focus.id, detail=json.dumps(dict(action.arguments), default=str)[:500])
        block.timestamp = datetime.now(UTC)
    return found


def _cut(result: dict[str, Any]) -> dict[str, Any]:
    """Long texts of a result, shortened: the whole of it is in the task's log."""
    return {
        key: value[-_SHOWN_CHARS:] if isinstance(value, str) and len(value) > _SHOWN_CHARS else value
        for key, value in result.items()
    }
