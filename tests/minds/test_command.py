"""A program as a mind: what it is told, what it may print, and that nothing of it outlives who asked."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind.minds import ChatMessage, MindError, MindUnavailable, Usage
from hivemind.minds.command import CommandMind
from tests.minds.asking import OPENING, TOOL, turn
from tests.waiting import until

THINKS_LONG = "sleep 1000 & echo $! > pid.new; mv pid.new pid; wait"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_program_gets_the_question_whole_and_its_answer_is_a_thought(tmp_path: Path):
    answers = (
        "import sys, json; print(json.dumps({'text': json.dumps(json.load(sys.stdin)), 'calls': [{'tool': 'note'}]}))"
    )
    mind = CommandMind([sys.executable, "-c", answers])
    thought = mind.think(turn(ChatMessage("user", "é" * 300_000)), [TOOL])
    assert [(one.tool, dict(one.arguments)) for one in thought.actions] == [("note", {})]
    asked = json.loads(thought.text)
    assert [(one["role"], one["text"]) for one in asked["messages"]] == [
        *((one.role, one.text) for one in OPENING), ("user", "é" * 300_000),
    ]  # fmt: skip
    assert asked["version"] == 2
    assert asked["tools"] == [TOOL]
    assert asked["turn"]["about"] == {"kind": "task", "id": "birds", "next": "note_step"}
    assert asked["turn"]["attachments"] == []
    assert asked["turn"]["step"] == {"id": "birds.s1", "title": "Which bird wades?"}


def test_what_is_no_answer_says_so():
    with pytest.raises(MindError, match="did not print JSON"):
        CommandMind(["echo", "hello"]).think(turn(), [])
    with pytest.raises(MindError, match="did not print JSON"):
        CommandMind([sys.executable, "-c", "print('[' * 100_000)"]).think(turn(), [])
    with pytest.raises(MindError, match=r"JSON but 'thinking x{31}' .*: standard output is for one object"):
        CommandMind(["echo", "thinking " + "x" * 200]).think(turn(), [])
    with pytest.raises(MindError, match="half a character"):
        CommandMind(["printf", r'{"text": "\\ud800"}']).think(turn(), [])
    with pytest.raises(MindError, match="64 deep"):
        CommandMind(["echo", '{"text": ' + "[" * 100 + "]" * 100 + "}"]).think(turn(), [])
    for usage, reason in (
        ('{"in": 10}', "unknown key 'in'; its keys are tokens_in,"),
        ('{"money": "1"}', "money is '1'"),
    ):
        with pytest.raises(MindError, match=reason):
            CommandMind(["echo", f'{{"text": "", "usage": {usage}}}']).think(turn(), [])
    usage = CommandMind(["echo", '{"usage": {"tokens_in": 9, "cached": 5, "money": 1}}']).think(turn(), []).usage
    assert usage == Usage(9, money=1, cached=5)
    with pytest.raises(MindUnavailable, match=r"cannot be started: .*no-such-program"):
        CommandMind(["no-such-program"]).think(turn(), [])


@pytest.mark.parametrize("program", ["yes", "head -c 50000000 /dev/zero"])
def test_a_program_that_prints_more_than_a_turn_can_hold_is_ended_and_says_so(program: str):
    with pytest.raises(MindError, match=r"^\w+ printed more than 8 MiB$"):
        CommandMind(program.split(), timeout_s=60).think(turn(), [])


def test_a_program_that_fails_is_an_error_with_the_end_of_its_standard_error_unless_it_asks_for_patience(caplog):
    caplog.set_level("INFO")
    with pytest.raises(
        MindError, match=r"ended with status 1: ZeroDivisionError(.|\n)*\n      File .*, line 1"
    ) as failure:
        CommandMind([sys.executable, "-c", "print(1 / 0)"]).think(turn(), [])
    with pytest.raises(MindError, match=r"did not answer within 0.2 s$") as hang:
        CommandMind(["sleep", "1000"], timeout_s=0.2).think(turn(), [])
    assert not isinstance(failure.value, MindUnavailable)
    assert not isinstance(hang.value, MindUnavailable)
    with pytest.raises(MindUnavailable, match=r"ended with status 75: why$"):
        CommandMind(["sh", "-c", "echo why >&2; exit 75"]).think(turn(), [])
    CommandMind(["sh", "-c", "echo a note >&2; echo '{}'"]).think(turn(), [])
    assert caplog.messages[-1] == "sh: standard error:\na note"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            {"usage": {"input": "many"}},
            "'usage' has the unknown key 'input'; its keys are tokens_in, tokens_out, money",
        ),
        ({"usage": {"tokens_in": "many"}}, "tokens_in is 'many'"),
        ({"thoughts": "…"}, "the answer has the unknown key 'thoughts'"),
        ({"calls": [{"tool": "note", "args": {}}]}, "a call of note without 'arguments' has the unknown key 'args'"),
    ],
)
def test_a_key_that_is_not_of_the_format_is_named(answer: dict[str, object], problem: str):
    with pytest.raises(MindError, match=re.escape(problem)):
        CommandMind(["echo", json.dumps(answer)]).think(turn(), [])


def test_a_program_and_its_children_end_when_it_is_not_waited_for_any_longer(tmp_path: Path):
    class Enough(Exception):
        pass

    def waiting() -> None:
        if (tmp_path / "pid").exists():
            raise Enough

    with pytest.raises(Enough):
        CommandMind(["sh", "-c", THINKS_LONG], folder=tmp_path, on_wait=waiting).think(turn(), [])
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not is_alive(pid))


def test_a_program_and_its_children_end_when_who_asked_is_killed(tmp_path: Path):
    asks = (
        "from pathlib import Path; from hivemind.testing.mind import example_turn; "
        "from hivemind.minds.command import CommandMind; "
        f"CommandMind(['sh', '-c', {THINKS_LONG!r}], folder=Path({str(tmp_path)!r})).think(example_turn(), [])"
    )
    process = subprocess.Popen([sys.executable, "-c", asks])
    until((tmp_path / "pid").exists)
    process.kill()
    process.wait()
    pid = int((tmp_path / "pid").read_text())
    try:
        until(lambda: not is_alive(pid))
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_completion_is_what_was_printed():
    asked = CommandMind(["cat"]).complete("hello", {"type": "object"})
    assert json.loads(asked) == {"version": 2, "prompt": "hello", "schema": {"type": "object"}}


def test_a_program_may_read_late_and_more_than_a_pipe_holds() -> None:
    mind = CommandMind(["sh", "-c", "sleep 0.5; wc -c >&2; echo '{}'"], timeout_s=60)
    assert mind.think(turn(ChatMessage("user", "x" * 300_000)), []).actions == ()


def test_a_program_may_answer_without_reading() -> None:
    assert CommandMind(["echo", "{}"], timeout_s=60).think(turn(ChatMessage("user", "x" * 300_000)), []).actions == ()
