"""What a mind must keep to (spec 7; `hivemind.minds.Mind`), for whoever writes one.

`CASES` holds a sentence and a check each; a check takes a mind and raises AssertionError. A mind may raise MindError where it
has no answer; whatever else it raises breaks the turn of its agent.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hivemind.minds import Mind, MindError, Thought, ToolSchema, Usage
from hivemind.testing.case import Case, says

__all__ = ["CASES", "CONTEXT", "TOOLS"]

CASES: list[Case[Mind]] = []

CONTEXT: Sequence[Mapping[str, Any]] = (
    {"id": "task:birds", "type": "task", "content": "Which bird wades?", "metadata": {"task_id": "birds"}},
    {"id": "knowledge:birds.md:1-1", "type": "knowledge", "content": "A heron wades. 🐝 \u2028"},
)
"""A context as a mind may get it: entries with an id, a type and a content."""

TOOLS: Sequence[ToolSchema] = (
    {
        "name": "note_step",
        "description": "Keep a note.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
)

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def _thought(mind: Mind, context: Sequence[Mapping[str, Any]], tools: Sequence[ToolSchema]) -> Thought | None:
    try:
        return mind.think(copy.deepcopy(context), copy.deepcopy(tools))
    except MindError:
        return None


@says(CASES, "think gives a Thought, or raises MindError")
def a_thought_is_a_thought(mind: Mind) -> None:
    found = _thought(mind, CONTEXT, TOOLS)
    if found is not None:
        assert isinstance(found, Thought)
        assert isinstance(found.text, str)
        assert isinstance(found.usage, Usage)
        found.text.encode()


@says(CASES, "Its actions name tools that it was given, and their arguments are JSON")
def actions_name_tools_that_there_are(mind: Mind) -> None:
    found = _thought(mind, CONTEXT, TOOLS)
    for action in () if found is None else found.actions:
        assert action.tool in {tool["name"] for tool in TOOLS}
        assert isinstance(action.arguments, Mapping)
        assert json.loads(json.dumps(dict(action.arguments))) == dict(action.arguments)


@says(CASES, "Without tools it asks for none")
def without_tools_there_are_no_actions(mind: Mind) -> None:
    found = _thought(mind, CONTEXT, ())
    assert found is None or found.actions == ()


@says(CASES, "An empty context is a context")
def it_can_think_about_nothing(mind: Mind) -> None:
    found = _thought(mind, [], TOOLS)
    assert found is None or isinstance(found, Thought)


@says(CASES, "What it is shown stays as it is")
def what_it_is_shown_is_left_alone(mind: Mind) -> None:
    context, tools = copy.deepcopy(list(CONTEXT)), copy.deepcopy(list(TOOLS))
    with suppress(MindError):
        mind.think(context, tools)
    assert context == list(CONTEXT)
    assert tools == list(TOOLS)


@says(CASES, "complete gives a text, or raises MindError")
def a_completion_is_a_text(mind: Mind) -> None:
    for asked in ("Say one word.", "", "été 🐝"):
        try:
            found = mind.complete(asked)
        except MindError:
            continue
        assert isinstance(found, str)


@says(CASES, "complete gives JSON if a schema is given")
def with_a_schema_a_completion_is_json(mind: Mind) -> None:
    try:
        found = mind.complete('Answer with {"text": "heron"}.', _SCHEMA)
    except MindError:
        return
    json.loads(found)
