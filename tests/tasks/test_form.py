from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hivemind.tasks import TaskProblem, TaskStep
from hivemind.tasks.form import read_text
from hivemind.tasks.inbox import compose
from hivemind.tasks.step import as_written, parse_duration


def read(text: str, name: str = "task.md"):
    return read_text(text.encode(), name)


def steps(text: str) -> list[TaskStep]:
    indented = "\n".join(f"  {line}" for line in text.splitlines())
    return [step.step() for step in read(f"---\nsteps:\n{indented}\n---\nx").form.steps]


@pytest.mark.parametrize(
    "name", ["look", "a-2", "e3", "n", "nan", "inf", "yes", "no", "on", "off", "true", "false", "null", "look-"]
)
def test_an_id_alone_is_written_and_read_as_yaml_does(name: str):
    text = compose({"id": name}, "Look").decode()
    assert text == f"---\n{yaml.safe_dump({'id': name})}---\nLook"
    task, same = read(text), read(text.replace("id: ", "id:  ", 1))
    assert (task.form, task.text, task.location("id")) == (same.form, same.text, same.location("id"))
    assert task.front_matter is not None
    assert task.front_matter == same.front_matter


@pytest.mark.parametrize("priority", [0, 7, 99, 100, -1, "low", "critical", "urgent"])
def test_the_options_of_task_add_are_written_and_read_as_yaml_does(priority: int | str):
    fields = {"priority": priority, "role": "finder", "assignee": "scout", "id": "look"}
    as_yaml = f"---\n{yaml.safe_dump(fields, sort_keys=False)}---\nLook"
    assert compose(fields, "Look").decode() == as_yaml
    if priority in (100, -1, "urgent"):
        with pytest.raises(TaskProblem, match="priority"):
            read(as_yaml)
        return
    task, same = read(as_yaml), read(as_yaml.replace("role: ", "role:  "))
    assert ([*task.form], task.text, task.front_matter) == ([*same.form], same.text, same.front_matter)
    with pytest.raises(TaskProblem, match="occurs twice"):
        read(as_yaml.replace("id: look", "role: finder"))


def test_a_text_without_front_matter_has_its_first_line_as_title():
    written = read("\n\n# Find the leak\n\nIt drips.\n")
    assert (written.title, written.form.priority) == ("Find the leak", 3)
    assert written.text == "\n\n# Find the leak\n\nIt drips.\n"


@pytest.mark.shows(
    "key: a task: project",
    "key: a task: deadline",
    "key: a task: proof",
    "key: a task: view",
    "key: a task: max_tokens",
    "key: a task: fresh",
)
def test_every_key_of_the_front_matter_is_read():
    form = read(
        "---\nid: Leak-1\ntitle: Leak\nproject: house\npriority: high\nassignee: Scout\nrole: finder\n"
        "dependencies: [a, b]\ndeadline: 2026-12-24\nproof: require\nview: audit\nmax_tokens: 5000\nfresh: true\n---\ntext"
    ).form
    assert (form.id, form.title, form.project, form.priority) == ("leak-1", "Leak", "house", 1 + 1)
    assert (form.assignee, form.role, form.dependencies) == ("scout", "finder", ("a", "b"))
    assert form.deadline == datetime(2026, 12, 24, 23, 59, 59, tzinfo=UTC)
    assert (form.proof, form.view, form.max_tokens, form.fresh) == ("require", "audit", 5000, True)


def test_a_yaml_file_is_front_matter_as_a_whole_with_the_text_in_a_key():
    written = read("title: Leak\nproof: off\ntext: |\n  It drips.\n", "leak.yml")
    assert (written.title, written.text, written.form.proof) == ("Leak", "It drips.\n", "off")


def test_steps_of_every_kind_are_read():
    found = steps(
        "- Where is it?\n- tidy up\n- run: ls -l\n- run: [ls, 1]\n- ask: Who?\n- write: artifacts/a.md\n"
        "- write: {path: a.md, text: hi}\n- mail: {to: scout, subject: s, body: b}\n- wait: 1m30s\n"
        "- wait: 2026-11-21 10:00\n- wait: {mail: scout}\n- wait: {task: other}\n- wait: {human: May I?}"
    )
    assert [(step.kind, step.argument) for step in found] == [
        ("ask", "Where is it?"),
        (None, None),
        ("run", "ls -l"),
        ("run", ["ls", "1"]),
        ("ask", "Who?"),
        ("write", {"path": "artifacts/a.md", "text": None}),
        ("write", {"path": "a.md", "text": "hi"}),
        ("mail", {"to": ["scout"], "subject": "s", "body": "b"}),
        ("wait", {"seconds": 90.0}),
        ("wait", {"until": "2026-11-21T10:00:00+00:00"}),
        ("wait", {"mail": "scout"}),
        ("wait", {"task": "other"}),
        ("wait", {"human": "May I?"}),
    ]
    assert all(step.title for step in found)


def test_a_step_has_its_details():
    (step,) = steps("- {title: t, run: x, success_criteria: c, tests: [a, b], proof: off, once: true, timeout: 2m}")
    assert step == TaskStep("t", "run", "x", ("c",), ("a", "b"), "off", True, 120.0)


def test_a_step_as_written_reads_as_the_same_step():
    found = steps("- tidy\n- {run: [a, b], once: true, timeout: 5}\n- wait: 2s\n- wait: 2026-11-21\n- ask: Why?")
    text = yaml.safe_dump([as_written(step) for step in found])
    assert steps(text) == found


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("---\npriority: hgih\n---\nx", "t.md:2", "priority: 'hgih' is not a priority"),
        ("---\ntitle: x\npriorty: 1\n---\nx", "t.md:3", "unknown key 'priorty'"),
        ("---\nmaker: scout\n---\nx", "t.md:2", "unknown key 'maker'"),
        ("---\ntitle: [a\n---\nx", "t.md:3", "is not valid YAML"),
        ("---\n- a\n---\nx", "t.md:2", "is not a mapping"),
        ("---\ntitle: a\ntitle: b\n---\nx", "t.md:3", "'title' occurs twice"),
        ("---\ntitle: a\nnever closed", "t.md:1", "never ends"),
        ("---\ndeadline: soon\n---\nx", "t.md:2", "deadline: 'soon' is not a date"),
        ("---\nwhen: !!timestamp soon\n---\nx", "t.md:2", "'soon' is not a date"),
        ("---\ntitle: a\ndeadline: 2026-02-30\n---\nx", "t.md:3", "'2026-02-30' is not a date: day is out of range"),
        ("---\nbudget: lots\n---\nx", "t.md:2", "budget: write a number of tokens, or {tokens: …, money: …}"),
        ("---\nprio: high\n---\nx", "t.md:2", "unknown key 'prio'"),
        ("---\ndependencies: [a, ../b]\n---\nx", "t.md:2", "dependencies.1: '../b' is not a valid id"),
        ("---\nsteps:\n- run: a\n  ask: b\n---\nx", "t.md:3", "run and ask"),
        ("---\nsteps:\n- run: a\n- ask: b\n  tset: c\n---\nx", "t.md:5", "unknown key 'steps.1.tset'"),
        ("---\nsteps:\n- wait: a while\n---\nx", "t.md:3", "steps.0.wait: 'a while' is not a duration"),
        ("---\nsteps:\n- wait: yesterday\n---\nx", "t.md:3", "or a time: 2026-11-21T18:00Z"),
        ("---\nsteps:\n- once: true\n---\nx", "t.md:3", "a step has a title or one of"),
        ("---\nsteps:\n- mail: {subject: s}\n---\nx", "t.md:3", "steps.0.mail.to: is missing"),
        ("   \n\n", "t.md", "is empty"),
        ("a\0b", "t.md", "is not text (a NUL at byte 1)"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_field(text: str, where: str, what: str):
    with pytest.raises(TaskProblem) as problem:
        read(text, "t.md")
    assert problem.value.location == where
    assert what in problem.value.message


def test_bytes_that_are_no_utf8_are_named_with_their_line():
    with pytest.raises(TaskProblem, match=r"t\.md:2: is not UTF-8 text \(byte 4\)"):
        read_text(b"one\n\xff\xfe", "t.md")


@given(st.binary(max_size=200), st.sampled_from(["t.md", "t.yaml"]))
def test_any_bytes_are_a_task_or_a_problem(raw: bytes, name: str):
    with suppress(TaskProblem):
        assert read_text(raw, name).title


@given(st.text(max_size=80), st.sampled_from(["title", "steps", "deadline", "dependencies", "priority", "id"]))
def test_any_value_is_understood_or_a_problem(value: str, key: str):
    with suppress(TaskProblem):
        read(f"---\n{key}: {value}\n---\nx")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("250ms", 0.25), ("2s", 2), ("5m", 300), ("1h30m", 5400), ("1h 30m", 5400), ("2d", 172800), (3, 3), ("4", 4)],
)
def test_durations_are_read(written: object, seconds: float):
    assert parse_duration(written) == seconds


@pytest.mark.parametrize("written", ["", "soon", "-1s", "1y", True, None, [], "400d", float("nan"), "1" * 400])
def test_what_is_no_duration_is_refused(written: object):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(written)


def test_a_key_that_is_written_short_is_named_in_full():
    with pytest.raises(TaskProblem, match="did you mean 'priority'"):
        read("---\nprio: high\n---\nx", "t.md")


def test_a_key_that_belongs_under_another_is_said_to():
    with pytest.raises(TaskProblem, match="unknown key 'run'") as refused:
        read_text(b"---\nrun: true\n---\nx\n", "t.md")
    assert refused.value.remedy == "it belongs under steps:"
