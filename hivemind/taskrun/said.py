"""What a turn said: from its record in log.jsonl to an episode of the conversation, the same each time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.reasoning.context import excerpt

__all__ = ["Record", "actions_of", "indented", "said"]

_CHARS = 2_000  # of one value; the whole of it is in the log
_ITEMS = 20
_DIGEST = re.compile(r"[0-9a-f]{40,}")

Record = Mapping[str, Any]


def said(record: Record) -> list[dict[str, Any]]:
    """The turn as an assistant turn (the thought and its actions) and what answered it; [] if nothing was thought.

    All lines but the first are indented: so that where turns stand one after the other, nothing that was quoted can look
    like the beginning of one.
    """
    actions, thought = actions_of(record), str(record.get("thought") or "")
    if not thought and not actions:
        return []
    calls = [f"{action['tool']}({_pairs(action['arguments'])})" for action in actions]
    answers = [_answer(action) for action in actions] or [str(record.get("problem") or "nothing was done")]
    return [
        {"role": "assistant", "content": indented("\n".join([*filter(None, [thought]), *calls]))},
        {"role": "tool", "content": indented("\n".join(answers))},
    ]


def indented(text: str) -> str:
    """All lines but the first two blanks further in."""
    return text.replace("\r", "\n").replace("\n", "\n  ")


def actions_of(record: Record) -> list[dict[str, Any]]:
    """The actions of a record, each with `tool`, `arguments` and `result`; what a person's edit made of it is left out."""
    found = [
        one for one in _listed(record.get("actions")) if isinstance(one, Mapping) and isinstance(one.get("tool"), str)
    ]
    return [
        {**one, "arguments": _mapping(one.get("arguments")), "result": _mapping(one.get("result"))} for one in found
    ]


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _mapping(value: Any) -> Record:
    return value if isinstance(value, Mapping) else {}


def _answer(action: Record) -> str:
    """What a tool answered, without what the question said already."""
    asked, result = action["arguments"], action["result"]
    told = [f"failed: {action['error']}"] if "error" in action else []
    told += [f"parked: {action['parked']}"] if "parked" in action else []
    news = {
        key: value
        for key, value in result.items()
        if key != "error" and value not in (None, [], (), {}, "") and asked.get(key) != value
    }
    told += [_pairs(news)] if news else []
    return f"{action['tool']}: {'; '.join(told) or 'done'}"


def _pairs(values: Record) -> str:
    return ", ".join(f"{key}={_shown(value)}" for key, value in values.items() if value is not None)


def _shown(value: Any) -> str:
    """A value for a reader: texts as they are, a digest by its beginning, long ones and long lists cut."""
    if isinstance(value, str):
        return f"{value[:12]}…" if _DIGEST.fullmatch(value) else excerpt(value, _CHARS)
    if isinstance(value, Mapping):
        return f"{{{_pairs(value)}}}"
    if isinstance(value, list | tuple):
        more = [f"… {len(value) - _ITEMS} more"] if len(value) > _ITEMS else []
        return f"[{', '.join([*map(_shown, value[:_ITEMS]), *more])}]"
    return json.dumps(value, default=str)
