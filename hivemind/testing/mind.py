"""A conformance suite for minds (`hivemind.minds.Mind`).

    class TestMyMind(MindConformance):
        @pytest.fixture
        def mind(self):
            return MyMind()

A mind that has no answer may raise MindError. Any other exception breaks the agent's turn.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from hivemind.frozen import frozen
from hivemind.minds import ChatMessage, Mind, MindError, Thought, ToolSchema, Turn, Usage

_TASK = "# Which bird wades?\n\nTask `birds`, from the operator.\n\nWhich bird wades? 🐝 \u2028"


@frozen
class ExampleFocus:
    """The focus (subject) of an example turn: a task with one step."""

    kind: str = "task"
    id: str = "birds"
    tool: str = "note_step"
    title: str = "Which bird wades?"
    text: str = "Which bird wades? 🐝 \u2028"
    todo: Mapping[str, Any] = field(default_factory=lambda: {"id": "birds.s1", "title": "Which bird wades?"})
    attachments: tuple[str, ...] = ()
    message: None = None
    asks_review: bool = False
    heard: bool = False
    stranger: bool = False


def example_turn(*, empty: bool = False) -> Turn:
    """Return an example turn. Its messages begin a conversation, or are [] if `empty`."""
    if empty:
        return Turn("heron", ExampleFocus(tool="rest", todo={}))
    messages = [ChatMessage("system", "You act by calling tools.", id="m1"), ChatMessage("user", _TASK, id="m2")]
    return Turn("heron", ExampleFocus(), messages=messages)


_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS: Sequence[ToolSchema] = ({"name": "note_step", "description": "Keep a note.", "parameters": _SCHEMA},)


def _thought(mind: Mind, turn: Turn, tools: Sequence[ToolSchema]) -> Thought | None:
    try:
        return mind.think(turn, copy.deepcopy(tools))
    except MindError:
        return None


class MindConformance:
    """Tests of what every mind must do. A subclass provides the fixture `mind`."""

    def test_a_thought_is_a_thought(self, mind: Mind) -> None:
        """`think` returns a Thought, or raises MindError."""
        thought = _thought(mind, example_turn(), TOOLS)
        if thought is not None:
            assert isinstance(thought, Thought)
            assert isinstance(thought.text, str)
            assert isinstance(thought.usage, Usage)
            thought.text.encode()

    def test_actions_name_tools_that_there_are(self, mind: Mind) -> None:
        """The mind's actions use only the tools of its `tools` argument, and the actions' arguments are JSON."""
        thought = _thought(mind, example_turn(), TOOLS)
        for action in () if thought is None else thought.actions:
            assert action.tool in {tool["name"] for tool in TOOLS}
            assert isinstance(action.arguments, Mapping)
            assert json.loads(json.dumps(dict(action.arguments))) == dict(action.arguments)

    def test_without_tools_there_are_no_actions(self, mind: Mind) -> None:
        """The mind returns no actions if it gets no tools."""
        thought = _thought(mind, example_turn(), ())
        assert thought is None or thought.actions == ()

    def test_it_can_think_about_nothing(self, mind: Mind) -> None:
        """The mind accepts a turn without messages."""
        thought = _thought(mind, example_turn(empty=True), TOOLS)
        assert thought is None or isinstance(thought, Thought)

    def test_what_it_is_shown_is_left_alone(self, mind: Mind) -> None:
        """The mind does not change the turn and the tools that it gets."""
        turn, tools = example_turn(), copy.deepcopy(list(TOOLS))
        with suppress(MindError):
            mind.think(turn, tools)
        assert (turn.messages, turn.focus) == (example_turn().messages, example_turn().focus)
        assert tools == list(TOOLS)

    def test_a_completion_is_a_text(self, mind: Mind) -> None:
        """`complete` returns a text, or raises MindError."""
        for prompt in ("Say one word.", "", "été 🐝"):
            try:
                completion = mind.complete(prompt)
            except MindError:
                continue
            assert isinstance(completion, str)

    def test_with_a_schema_a_completion_is_json(self, mind: Mind) -> None:
        """`complete` returns JSON if it gets a schema, or raises MindError."""
        try:
            completion = mind.complete('Answer with {"text": "heron"}.', _SCHEMA)
        except MindError:
            return
        json.loads(completion)
