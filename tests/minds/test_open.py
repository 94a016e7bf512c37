from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind.errors import UserError
from hivemind.minds import MindError, MindUnavailable, ToolCall, open_mind
from hivemind.minds.command import CommandMind
from tests.minds.asking import turn


def test_an_unknown_mind_is_refused_with_the_names_of_those_that_there_are():
    with pytest.raises(UserError, match="unknown mind 'oracle'; known minds: extractive"):
        open_mind("oracle")
    with pytest.raises(UserError, match=r"known minds: .*, mcp \(a program from outside\)$"):
        open_mind("oracle")
    with pytest.raises(
        UserError, match="the mind mcp is a program outside the hive that joins on its own; hivemind mcp --agent"
    ):
        open_mind("mcp")


@pytest.mark.parametrize(
    "named",
    [None, 5, True, 1.5, [], ["extractive"], {}, {"a": 1, "b": 2}, "", ":", {"command": 5}, {"command": None}, {"command": []},
     {"command": {"program": "x"}}, {"command": [["x"]]}, {"command": [""]}, {"command": ["a\0b"]}, {"scripted": 5}, {5: "x"},
     {"extractive": {}}, "extractive:x", object()],
)  # fmt: skip
def test_what_can_be_no_mind_is_refused_in_words(named):
    with pytest.raises(UserError, match=r"unknown mind .*; known minds: extractive"):
        open_mind(named)


@pytest.mark.parametrize("told", [5, None, [], {"model": 5}, {"model": None, "url": 5}, True])
def test_what_can_be_no_model_is_refused_in_words(told):
    for kind in ("anthropic", "openai", "ollama", "openai-compatible"):
        with pytest.raises(UserError):
            open_mind({kind: told})


def test_a_scripted_mind_gives_its_thoughts_in_order_and_then_says_that_it_has_none(tmp_path):
    script = [{"calls": [{"tool": "finish_task", "arguments": {"result": "x"}}]}, {"complete": "a summary"}]
    (tmp_path / "script.jsonl").write_text("\n".join(map(json.dumps, script)))
    mind = open_mind({"scripted": "script.jsonl"}, root=tmp_path)
    assert mind.think(turn(), []).actions == (ToolCall("finish_task", {"result": "x"}),)
    assert mind.complete("…") == "a summary"
    with pytest.raises(MindError, match="no thought left"):
        mind.think(turn(), [])


def test_a_broken_script_names_its_line(tmp_path):
    (tmp_path / "s").write_text('{"text": "a"}\nnonsense\n')
    with pytest.raises(UserError, match=r"s:2: is a line of a script that cannot be read"):
        open_mind("scripted: s", root=tmp_path)


def test_a_command_mind_reads_the_messages_and_prints_its_calls(tmp_path):
    answer = "{'text': q['messages'][0]['text'], 'calls': [{'tool': 'note', 'arguments': {'text': 'x'}}]}"
    program = f"import json,sys; q=json.load(sys.stdin); print(json.dumps({answer}))"
    mind = open_mind({"command": [sys.executable, "-c", program]}, root=tmp_path)
    thought = mind.think(turn(), [])
    assert (thought.text, thought.actions) == ("Be brief.", (ToolCall("note", {"text": "x"}),))


def test_a_command_that_fails_or_prints_no_json_is_told_apart():
    with pytest.raises(MindError, match="ended with status 3: oh no"):
        open_mind(
            {"command": [sys.executable, "-c", "import sys; sys.exit(print('oh no', file=sys.stderr) or 3)"]}
        ).think(turn(), [])
    with pytest.raises(MindError, match="did not print JSON"):
        open_mind({"command": [sys.executable, "-c", "print('hello')"]}).think(turn(), [])
    with pytest.raises(UserError, match="the program /no/such/program was not found"):
        open_mind({"command": ["/no/such/program"]})


def test_a_command_has_a_time_limit_and_no_other_key(tmp_path):
    with pytest.raises(MindError, match=r"did not answer within 0\.1 s"):
        open_mind({"command": ["sleep", "1000"], "timeout_s": 0.1}).think(turn(), [])
    with pytest.raises(UserError, match="unknown key 'timeout'; the keys beside command: timeout_s"):
        open_mind({"command": ["cat"], "timeout": 5})
    for seconds in (0, True, "5"):
        with pytest.raises(UserError, match=r"timeout_s is .*; write a number of seconds"):
            open_mind({"command": ["cat"], "timeout_s": seconds})


def test_a_call_that_is_none_is_an_error_of_the_mind():
    program = 'print(\'{"calls": [{"arguments": {}}]}\')'
    with pytest.raises(MindError, match="without a tool"):
        open_mind({"command": [sys.executable, "-c", program]}).think(turn(), [])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1e999"])
def test_a_call_with_a_number_that_json_does_not_have_is_an_error_of_the_mind(number):
    answer = f'{{"calls": [{{"tool": "note", "arguments": {{"times": [{number}]}}}}]}}'
    with pytest.raises(MindError, match="is not valid JSON"):
        open_mind({"command": [sys.executable, "-c", f"print({answer!r})"]}).think(turn(), [])


def test_a_script_plays_errors_too_and_refuses_what_it_does_not_know(tmp_path):
    lines = ['{"then": "idle"}', '{"error": "it rains"}', '{"error": "no network", "unavailable": true}']
    (tmp_path / "s").write_text("\n".join(lines))
    mind = open_mind("scripted: s", root=tmp_path)
    with pytest.raises(MindError, match="it rains") as caught:
        mind.think(turn(), [])
    assert not isinstance(caught.value, MindUnavailable)
    with pytest.raises(MindUnavailable, match="no network"):
        mind.think(turn(), [])
    assert mind.think(turn(), []).actions == ()
    (tmp_path / "s").write_text('{"text": "a", "action": []}')
    with pytest.raises(UserError, match="s:1: is not a line of a script: its keys are action, text"):
        open_mind("scripted: s", root=tmp_path)


@pytest.mark.parametrize("script", ["/dev/zero", "fifo", "."])
def test_a_script_that_is_no_regular_file_is_refused_and_not_read(tmp_path, script):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match=r"regular file|Is a directory"):
        open_mind(f"scripted: {script}", root=tmp_path)


def test_a_model_without_its_key_is_refused_in_words(monkeypatch):
    pytest.importorskip("pydantic_ai")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(UserError, match="anthropic:m needs a key, and ANTHROPIC_API_KEY is not set"):
        open_mind("anthropic:m")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"openai-compatible": {"model": "m"}}, "needs a url"),
        ({"openai-compatible": {"model": "m", "url": "ftp://x"}}, "openai-compatible.url"),
        (
            {"openai-compatible": {"model": "m", "url": "http://x", "key": "sk-1"}},
            "unknown key 'key'; keys: .*temperature",
        ),
        ({"openai": {"model": "m", "temprature": 0.5}}, "openai: unknown key 'temprature'"),
        ({"openai": {}}, "openai.model: is missing"),
        ("openai:", "openai.model"),
        ("openai", "needs a model"),
    ],
)
def test_a_model_that_is_named_wrongly_is_refused_by_its_key_and_secrets_are_not_repeated(named, told):
    with pytest.raises(UserError, match=told) as caught:
        open_mind(named)
    assert "sk-1" not in str(caught.value)


def test_importing_the_minds_imports_no_client_library():
    program = (
        "import sys, hivemind, hivemind.agent.agent; from hivemind.minds import open_mind\n"
        "open_mind({'openai-compatible': {'url': 'http://127.0.0.1:1', 'model': 'm'}})\n"
        "print([name for name in ('pydantic_ai', 'openai', 'anthropic', 'google.genai', 'jsonschema') if name in sys.modules])"
    )
    pytest.importorskip("pydantic_ai")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_text_after_command_is_divided_as_a_shell_divides_it(tmp_path: Path) -> None:
    mind = open_mind("command:sh -c 'exit 3'", root=tmp_path)
    assert isinstance(mind, CommandMind)
    assert mind.program == ["sh", "-c", "exit 3"]
    with pytest.raises(UserError, match="unknown mind"):
        open_mind("command:sh 'x", root=tmp_path)
