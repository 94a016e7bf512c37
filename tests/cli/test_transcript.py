"""hivemind task transcript: a conversation on a terminal, as it goes on, and as a page."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive
from hivemind.minds import Thought, ToolCall, Usage
from tests.agent.conftest import Crew, until_idle
from tests.cli.conftest import Command
from tests.program import Program

ESCAPE = "\x1b]0;owned\x07"
LINES = "".join(f"line {number} <b>& more</b>\n" for number in range(200))


def answering(*thoughts: Thought) -> Callable[[Any], Thought]:
    left = iter(thoughts)
    return lambda _: next(left)


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    made = Crew(tmp_path / "hive")
    monkeypatch.setenv("HIVEMIND_HIVE", str(made.root))
    yield made
    made.close()


@pytest.fixture
def thoughts() -> list[Thought]:
    """Two calls with a long text and a failure among their results; then the end."""
    write = {"path": "a.txt", "text": LINES}
    return [
        Thought(
            f"I write. {ESCAPE}",
            (ToolCall("write_file", write), ToolCall("read_file", {"path": "a.txt"})),
            Usage(1_000, 50, 0.25, 0, 800),
        ),
        Thought("", (ToolCall("read_file", {"path": "nothing.txt"}),), Usage(2_000, 20)),
        Thought("<script>alert(1)</script>", (ToolCall("finish_task", {"result": "It is done."}),), Usage(2_100, 10)),
    ]


@pytest.fixture
def done(crew: Crew, thoughts: list[Thought]) -> Crew:
    crew.drop("---\ntitle: Write <it>\n---\nWrite it.\n")
    until_idle(crew.start(answering(*thoughts)))
    assert (crew.root / "tasks" / "done" / "t").is_dir()
    return crew


def test_each_turn_is_told_with_its_calls_their_results_and_what_it_used(run: Command, done: Crew) -> None:
    ended = run("task", "transcript", "t")
    assert ended.status == 0
    assert "3 turns of ada, 5,100 tokens in (16% cached), 80 out, cost 0.2500" in ended.out
    turns = [block.splitlines() for block in ended.out.split("\n\n") if " Turn " in block.partition("\n")[0]]
    assert [turn[0].partition(" Turn ")[2] for turn in turns] == [
        "1, ada, step t.s1, 1,000 tokens in (80% cached), 50 out, cost 0.2500",
        "2, ada, step t.s1, 2,000 tokens in, 20 out",
        "3, ada, step t.s1, 2,100 tokens in, 10 out",
    ]
    assert turns[1][1:3] == [
        "  > read_file: path: nothing.txt",
        "  result: failed: nothing.txt: cannot be read (No such file or directory)",
    ]
    assert turns[2][1:3] == ["  <script>alert(1)</script>", "  > finish_task: result: It is done."]
    assert "Epoch 1 (start), ada" in ended.out
    assert "Task `t`, from the operator." in ended.out


def test_nothing_in_a_conversation_steers_the_terminal(run: Command, done: Crew) -> None:
    for more in ((), ("--turn", "1"), ("--json",), ("--follow",)):
        out = run("task", "transcript", "t", *more).out
        assert "I write. " in out
        assert "\x1b" not in out
        assert "\x07" not in out


def test_a_long_text_is_cut_and_the_line_in_its_place_is_the_command_that_shows_it(run: Command, done: Crew) -> None:
    out = run("task", "transcript", "t").out
    assert "line 100 " not in out
    (command, *_) = [
        line.rpartition(": ")[2].rstrip("]")
        for line in out.splitlines()
        if "characters left out" in line and "--turn 1" in line
    ][-1:]
    whole = run(*command.split()[1:]).out
    assert whole.count("line 100 <b>") == 2  # what was written, and what was read
    assert "characters left out" not in whole


def test_a_program_gets_the_calls_with_their_results_and_the_totals(run: Command, done: Crew) -> None:
    told = run("task", "transcript", "t", "--json").json
    assert (told["task"], told["state"], told["totals"]["tokens"], told["totals"]["cached"]) == (
        "t",
        "done",
        5_180,
        800,
    )
    turns = [one for one in told["entries"] if one["kind"] == "turn"]
    assert [[(call["tool"], call["ok"]) for call in turn["calls"]] for turn in turns] == [
        [("write_file", True), ("read_file", True)], [("read_file", False)], [("finish_task", True)],
    ]  # fmt: skip
    assert turns[0]["calls"][1]["text"].count("\n") == 200
    assert told["entries"][0]["cause"] == "start"


def test_a_turn_that_was_not_taken_and_a_task_without_a_word_are_refused(run: Command, done: Crew) -> None:
    assert "it has 3 turns" in run("task", "transcript", "t", "--turn", "9").err
    done.drop("Later.", "later.md")
    assert "it has no turns yet" in run("task", "transcript", "later").err
    assert run("task", "transcript", "t", "--turn", "1", "--follow").status == 2


def test_epochs_news_and_requests_without_an_answer_are_told_with_their_cause(run: Command, crew: Crew) -> None:
    hive = Hive.open(crew.root)
    crew.drop("Look.")
    task = hive.tasks.claim("ada")
    assert task is not None
    at = "2026-11-22T10:00:0{}+00:00"
    user = {"id": "m1", "role": "user", "text": "Look.", "at": at.format(0), "agent": "ada"}
    row = {"id": "knowledge:a.md:1-2", "score": 0.5, "tokens": 12, "in": True, "why": "it says so"}
    epoch = {"epoch": 1, "cause": "start", "at": at.format(0), "agent": "ada", "mind": "anthropic:m", "opening": [user]}
    asked = {"reserved": {"tokens": 1_500, "money": 0.0}, "model": "m"}
    for record in (
        {**epoch, "selected": [row, {**row, "id": "knowledge:b.md:1-2", "in": False}]},
        {"request": "r1", "cause": "turn", "at": at.format(1), **asked},  # its process was killed
        {"request": "r2", "cause": "turn", "at": at.format(2), **asked},
        {"answered": "r2", "usage": {}, "error": "503 overloaded"},
        {"request": "r3", "cause": "correction", "at": at.format(3), **asked},
        {"id": "m2", "role": "assistant", "text": "Yes.", "at": at.format(7), "agent": "ada", "request": "r3", "cut": True,
         "seconds": 4.0, "usage": {"tokens_in": 10, "tokens_out": 5, "unpriced": 15}},
        {"id": "m3", "role": "user", "text": "The operator adds", "news": {"said": 1}, "at": at.format(8)},
        {"request": "r4", "cause": "fold", "at": at.format(8), **asked},
        {"answered": "r4", "usage": {"tokens_in": 100, "tokens_out": 20}, "text": "an outline"},
        {**epoch, "epoch": 2, "cause": "full", "at": at.format(9)},
    ):  # fmt: skip
        hive.tasks.active.log(task, record)
    out = run("task", "transcript", "t").out
    heads = [line.partition(" ")[2] for block in out.split("\n\n")[1:] for line in block.splitlines()[:1]]
    assert heads == [
        "Epoch 1 (start), ada, mind: anthropic:m",
        "Request, m, no answer, counted as 1,500 tokens",
        "Request, m, 503 overloaded",
        "Turn 1 (correction), ada, 10 tokens in, 5 out, 15 tokens at an unknown price",
        "News",
        "Request (fold), m, 100 tokens in, 20 out",
        "Epoch 2 (full), ada, mind: anthropic:m",
    ]
    assert "  selected: knowledge:a.md:1-2: score 0.5, 12 tokens, it says so" in out
    assert "knowledge:b.md" not in out
    assert "  Yes.\n  [cut off]\n  took: 4.0 s" in out
    assert "an outline" in out


ODD: tuple[dict[str, Any], ...] = (
    {"role": "assistant", "calls": ["odd", None, {}, {"tool": 1, "arguments": [2]}], "usage": 4, "at": "x"},
    {
        "role": "assistant",
        "text": "a",
        "calls": [{"id": "c", "tool": "t", "arguments": {}}],
        "usage": {"tokens_in": -1},
    },
    {"role": 3, "text": None, "at": 1e300},
    {"epoch": 1, "opening": ["odd", {"role": "user"}]},
    {"epoch": 1, "cause": "start", "opening": [], "selected": ["odd"]},
    {"request": "r", "reserved": {"tokens": "many"}},
    {"answered": ["r"], "usage": {"tokens_in": "x"}},
    {"role": "tool", "call_id": [], "text": "x", "ok": True},
    {},
)


def test_a_conversation_that_something_else_has_written_to_is_told_all_the_same(run: Command, crew: Crew) -> None:
    hive = Hive.open(crew.root)
    crew.drop("Look.")
    task = hive.tasks.claim("ada")
    assert task is not None
    for record in (*ODD, {"role": "user", "text": "This can be read."}):
        hive.tasks.active.log(task, record)
    for more in ((), ("--json",)):
        assert run("task", "transcript", "t", *more).status == 0
    out = run("task", "transcript", "t").out
    assert "This can be read." in out
    assert out.count("News\n  [") == 7


@pytest.mark.shows("option: task transcript --attempt")
def test_what_a_mind_did_about_a_thread_of_mail_is_told(crew: Crew, run: Command) -> None:
    crew.write("Message-ID: <a@x>\nSubject: Boats\n\nHow many boats?\n")
    reply = ToolCall("reply_mail", {"id": "a@x", "body": "Two."})
    until_idle(crew.start(answering(Thought("I answer.", (reply,), Usage(1_000, 50)))))
    text = run("mail", "transcript", "ada", "a@x").out
    assert all(told in text for told in ("How many boats?", "I answer.", "reply_mail", "1,000 tokens in"))
    assert [one["kind"] for one in run("mail", "transcript", "ada", "a@x", "--json").json["entries"]] == [
        "epoch",
        "turn",
    ]
    crew.write("Message-ID: <b@x>\nSubject: Sails\n\nAny sails?\n", name="b")
    assert "took no turn" in run("mail", "transcript", "ada", "b@x").err


def test_an_earlier_attempt_is_told_after_a_retry(run: Command, done: Crew) -> None:
    def headings(*more: str) -> list[str]:
        return [line for line in run("task", "transcript", "t", *more).out.splitlines()[1:] if not line.startswith(" ")]

    before = headings()
    run("task", "retry", "t")
    assert Hive.open(done.root).tasks.claim("ada") is not None
    assert "--attempt N" in run("task", "transcript", "t").err
    assert headings("--attempt", "1") == before


def test_a_follower_shows_a_task_from_the_inbox_to_its_end_and_ends_with_it(
    run: Command, crew: Crew, thoughts: list[Thought]
) -> None:
    crew.drop("---\ntitle: Write <it>\n---\nWrite it.\n")
    command = ["task", "transcript", "t", "--follow"]
    with Program(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as follower:
        assert follower.stdout is not None
        agent = crew.start(answering(*thoughts))
        agent.cycle()
        shown = [follower.stdout.readline()]
        while "  took: " not in shown[-1]:  # the first turn is there whole before the second is taken
            shown.append(follower.stdout.readline())
        until_idle(agent)
        shown += follower.stdout.readlines()
        assert follower.wait(60) == 0
    assert "".join(shown) == "".join(run("task", "transcript", "t").out.partition("\n")[2])
    lines = [json.loads(line) for line in run("task", "transcript", "t", "--follow", "--json").out.splitlines()]
    assert [one["kind"] for one in lines] == ["epoch", "turn", "turn", "turn"]
