"""Every kind of mind keeps to what the port says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from hivemind.minds import Mind
from hivemind.minds.command import CommandMind
from hivemind.minds.extractive import ExtractiveMind
from hivemind.minds.scripted import ScriptedMind
from hivemind.testing.mind import MindConformance

ANSWER = {"text": "a heron", "calls": []}
PROGRAM = (
    "import json, sys\n"
    "asked = json.load(sys.stdin)\n"
    f"print(json.dumps({ANSWER!r} if 'messages' in asked else {{'text': json.dumps({{'text': 'heron'}})}}))"
)
MINDS: dict[str, Callable[[], Mind]] = {
    "extractive": ExtractiveMind,
    "scripted": lambda: ScriptedMind([ANSWER, {"complete": '{"text": "heron"}'}], when_exhausted="idle"),
    "command": lambda: CommandMind([sys.executable, "-S", "-c", PROGRAM]),
    "nothing to say": lambda: ScriptedMind([]),
}


class TestMinds(MindConformance):
    @pytest.fixture(params=MINDS)
    def mind(self, request: pytest.FixtureRequest) -> Mind:
        return MINDS[request.param]()


class Chatty(ScriptedMind):
    """A mind that keeps to nothing."""

    def think(self, turn, tools):  # type: ignore[no-untyped-def]
        turn.messages = []
        return {"calls": [{"tool": "launch", "arguments": {}}], "tools": len(tools)}

    def complete(self, text, schema=None):  # type: ignore[no-untyped-def]
        return json.loads(text) if schema is None else "no JSON"


@pytest.mark.parametrize("name", [name for name in vars(MindConformance) if name.startswith("test_")])
def test_the_suite_finds_a_mind_that_does_not(name: str) -> None:
    mind: Mind = Chatty([])
    with pytest.raises((AssertionError, AttributeError, TypeError, ValueError)):
        getattr(MindConformance(), name)(mind)
