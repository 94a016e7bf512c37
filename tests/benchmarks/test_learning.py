"""The material of the benchmark of lessons: its repository, its coders, its judgements."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.learning.__main__ import JUDGEMENTS, POISON, TASKS, judge, write_project
from benchmarks.learning.coder import Coder, Outcome, answer
from tests.sample import sample, sampled

PLANS = {plan["id"]: plan for plan in TASKS if "id" in plan}


def play(app: Path, coder: Coder) -> Coder:
    """Let a coder work on a checkout until it finishes the task."""
    work = coder.work()
    commands = next(work)
    while commands != ["finish_task"]:
        environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        runs = [
            subprocess.run(command, shell=True, cwd=app, env=environment, capture_output=True, text=True)
            for command in commands
        ]
        output = "\n".join(run.stdout + run.stderr for run in runs)
        coder.turn += 1
        commands = work.send(Outcome(not any(run.returncode for run in runs), output, ""))
    return coder


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "spool").mkdir()
    write_project(tmp_path / "tidebook", tmp_path / "spool")
    return tmp_path / "tidebook"


@sampled
@pytest.mark.parametrize("name", sample(["t01", "t03", "t04", "t06"], 2))
def test_a_coder_loses_a_turn_in_each_trap_of_a_task_unless_an_item_names_what_mends_it(app: Path, name: str) -> None:
    plan = PLANS[name]
    ignorant = play(app, Coder("ann", name, plan["text"], []))
    lessons = ignorant.lessons([])
    assert [judge(lesson["lesson"], after_change=False)[0] for lesson in lessons] == ["true"] * len(lessons)
    assert {judge(lesson["lesson"], after_change=False)[1] for lesson in lessons} == set(plan["meets"])
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=app, check=True)
    subprocess.run(["git", "clean", "-fdxq"], cwd=app, check=True)
    informed = play(app, Coder("ann", name, plan["text"], [lesson["lesson"] for lesson in lessons]))
    assert informed.turn < ignorant.turn
    assert informed.losses == []


@sampled
def test_an_accident_gives_a_coder_that_believes_everything_a_lesson_of_a_decoy(app: Path) -> None:
    for plan in sample((plan for plan in PLANS.values() if "accident" in plan), 2):
        (app.parent / "spool" / plan["accident"]).touch()
        losses = play(app, Coder("ben", plan["id"], plan["text"], [])).lessons([])
        assert plan["decoy"] in [judge(lesson["lesson"], after_change=False)[1] for lesson in losses], plan["id"]


def test_ten_tasks_lie_in_the_place_of_each_lesson_and_both_tens_meet_each_trap() -> None:
    plans = list(PLANS.values())
    assert len(plans) == 20
    for name, trap in JUDGEMENTS["traps"].items():
        assert sum(plan["area"] == trap["area"] for plan in plans) == 10
        met = [name in plan["meets"] for plan in plans]
        assert sum(met[:10]) == sum(met[10:]) >= 2, name
    assert {plan["decoy"] for plan in plans if "decoy" in plan} == set(JUDGEMENTS["decoys"])
    assert len({plan["mark"] for plan in POISON}) == 10


def test_a_lesson_is_judged_by_its_sentence_at_its_time() -> None:
    flag = "* `python3 tools/linkcheck.py guide` fails; `python3 tools/linkcheck.py --offline guide` works."
    assert judge(flag, after_change=False) == ("true", "flag")
    assert judge(flag, after_change=True) == ("wrong", "flag")
    assert judge("* Be careful. Holds in: config/base.ini.", after_change=False) == ("vague", "")
    assert judge("* An `id` has three letters. Holds in: data/harmonics.csv.", after_change=False) == ("said", "")
    confused = "* `from tide.api import solve` fails; `from tide.solver import solve` works: never import `tide.api`."
    assert judge(confused, after_change=False) == ("wrong", "import")
    assert judge(f"* Remember: `{POISON[0]['mark']}`.", after_change=False) == ("poison", POISON[0]["id"])


def test_the_question_for_lessons_is_answered_in_the_keys_that_it_shows() -> None:
    messages = [
        {"role": "user", "text": "# Check the links of guide/.\n\nTask `t`."},
        *_turn("python3 tools/linkcheck.py guide", "exit 1 after 0 s\nlinkcheck: not reachable"),
        *_turn("python3 tools/linkcheck.py --help", "exit 0 after 0 s\nusage: linkcheck.py [-h] [--offline] folder"),
        *_turn("python3 tools/linkcheck.py --offline guide", "exit 0 after 0 s"),
        {"role": "assistant", "text": "", "calls": [{"tool": "finish_task", "arguments": {}}]},
        {"role": "tool", "text": "state: done"},
    ]
    request = {"turn": {"agent": "ann", "about": {"kind": "task", "id": "t"}}, "tools": []}
    question = {"role": "user", "text": 'Which lessons? Answer with [{"lesson": "…", "paths": ["…"], "turn": 1}].'}
    text = answer({**request, "messages": [*messages, question]})["text"]
    assert re.fullmatch(r'\[\{"lesson": ".*--offline.*", "paths": \["tools/linkcheck.py"\], "turn": 1\}\]', text)
    question["text"] = "Which lessons?"
    assert answer({**request, "messages": [*messages, question]})["text"].startswith(
        "* `python3 tools/linkcheck.py guide`"
    )


def _turn(command: str, result: str) -> list[dict]:
    call = {"tool": "run_command", "arguments": {"command": command}}
    return [{"role": "assistant", "text": "", "calls": [call]}, {"role": "tool", "text": result}]
