"""What a model answered: its text and calls, and the thought that they amount to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hivemind.minds.language.json_text import NoJson, fault_in, find_json
from hivemind.minds.mind import Action, MindError, Thought, ToolSchema, Usage
from hivemind.minds.scripted import thought_from

__all__ = ["Answer", "Call", "thought_in"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as it came: `arguments` is text or an object, `key` what the provider knows it by."""

    tool: str
    arguments: str | Mapping[str, Any] | None
    key: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `cut` if it ended at the bound of its length; `cost` is what the provider's library makes of it."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    cut: bool = False
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The answer for the log."""
        calls = [{"tool": call.tool, "arguments": call.arguments} for call in self.calls]
        return {"text": self.text, **({"calls": calls} if calls else {}), **({"cut": True} if self.cut else {})}

    def with_usage(self, usage: Usage) -> Answer:
        return replace(self, usage=usage)


def thought_in(answer: Answer, tools: Sequence[ToolSchema], max_output: int) -> tuple[Thought, str | None]:
    """The thought that an answer amounts to, and what is wrong with it, in words for the model (None: nothing).

    A thought with a fault may have actions nevertheless: those that could be read.
    """
    if not answer.calls:
        return _written(answer, tools, max_output)
    actions: list[Action] = []
    faults: list[str] = []
    for call in answer.calls:
        try:
            actions.append(Action(call.tool, _arguments(call)))
        except NoJson as error:
            faults.append(f"{call.tool}: {error}")
    if answer.cut:
        faults.append(f"the answer was cut off after {max_output} tokens; be shorter")
    faults += _faults(actions, tools)
    return Thought(answer.text, tuple(actions) if not answer.cut else ()), "; ".join(faults) or None


def _written(answer: Answer, tools: Sequence[ToolSchema], max_output: int) -> tuple[Thought, str | None]:
    """Calls that were written down as JSON instead of being made."""
    if answer.cut:
        return Thought(answer.text), f"the answer was cut off after {max_output} tokens; be shorter"
    try:
        thought = thought_from(_as_thought(find_json(answer.text)))
    except MindError as error:
        return Thought(
            answer.text
        ), f"{error}: call a tool; if nothing is left to do, the tool that ends the task or message"
    return thought, "; ".join(_faults(thought.actions, tools)) or None


def _as_thought(value: Any) -> Mapping[str, Any]:
    """The JSON of a thought from what stands for one: a thought, a list of actions, one action. Raises NoJson."""
    if isinstance(value, dict) and "tool" in value:
        value = [value]
    told = {"actions": value} if isinstance(value, list) else value
    if not isinstance(told, dict) or not told.get("actions"):
        raise NoJson("no tool was called")
    return {"text": told.get("text") or "", "actions": told["actions"]}


def _arguments(call: Call) -> Mapping[str, Any]:
    """The arguments as an object. Raises NoJson."""
    if isinstance(call.arguments, Mapping):
        return call.arguments
    if not call.arguments:
        return {}
    value = find_json(call.arguments)
    if isinstance(value, str):  # JSON in a string in JSON, as some models write it
        value = find_json(value)
    if not isinstance(value, dict):
        raise NoJson(f"the arguments are no JSON object but {json.dumps(value)[:80]}")
    return value


def _faults(actions: Sequence[Action], tools: Sequence[ToolSchema]) -> list[str]:
    known = {tool["name"]: tool for tool in tools}
    found = []
    for action in actions:
        if action.tool not in known:
            found.append(f"there is no tool {action.tool!r}; tools: {', '.join(sorted(known))}")
        elif fault := fault_in(dict(action.arguments), known[action.tool]["parameters"]):
            found.append(f"{action.tool}: {fault}")
    return found
