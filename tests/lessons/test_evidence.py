"""Pairs of commands: traps that one command fell into and another did not, and what only looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hivemind.lessons.evidence import TaskFolders, read_trail
from tests.lessons.trails import NO_REPOSITORY, bash, edit, lines_of, read, run, trail

RETURNED = "Not landed: `make check` fails on your work merged into main (make check failed).\n\nThe end …"


def pairs(*calls: dict[str, Any] | str, returns: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(pair.failed.command, pair.passed.command) for pair in trail(*calls, returns=returns).pairs()]


@pytest.mark.parametrize(
    ("failed", "passed"),
    [
        ("pytest tests", "PYTHONPATH=src pytest tests"),
        ("pytest tests", "env APP_ENV=test pytest tests"),
        ("sh -c 'pytest tests'", "sh -c 'APP_ENV=test pytest tests'"),
        ("cd app && make test", "cd app && make test DB=1"),
        ("mytool check src", "mytool check src --profile ci"),
        ("pytest", "python -m pytest"),
        ("python -m unittest", "make test"),
        ("npm test", "pnpm test"),
        ("APP_ENV=test make", "APP_ENV=ci make"),
        ("make test", "make check"),
        ("sh tools/report/render.sh", "cd tools/report && sh render.sh"),
        ("python -c 'import a; a.f()'", "LANG=C python -c 'import a; a.f()'"),
    ],
)
def test_a_command_that_passes_in_the_place_of_one_that_failed_is_a_pair(failed: str, passed: str) -> None:
    assert pairs(run(failed, 1), run("ls"), run(passed)) == [(failed, passed)]
    assert pairs(bash(failed, ok=False), bash(passed)) == [(failed, passed)]


@pytest.mark.parametrize(
    "calls",
    [
        [run("pytest", 1), run("pytest")],
        [run("pytest", 1), run("pytest"), run("X=1 pytest")],
        [run("pytest", 1), edit("a.py"), run("X=1 pytest")],
        [run("pytest", 1), run("git pull"), run("X=1 pytest")],
        [run("pytest", 1), run("pip install x"), run("python -m pytest")],
        [run("pytest tests", 1), run("pytest tests/test_a.py")],
        [run("pytest", 1), run("pytest -x -q")],
        [run("pytest", 1), run("pytest -k one")],
        [run("pytest", 1), run("pytest | tail -1")],
        [run("pytest", 1), run("X=1 pytest; true")],
        [run("pytest", 1), run("echo done")],
        [run("sh check.sh", 1), run("cat check.sh")],
        [run("python3 lint.py src", 1), run("grep -rn src lint.py")],
        [run("./check.sh src", 1), run("check.sh ./src")],
        [run("make", 1, "another build is running"), run("LOG=1 make")],
        [run("make", 1), run("sleep 1 && make")],
        [run("curl x", 1, "Connection timed out"), run("curl x --http1.1")],
        [run("make test", 1, "exit 124 (stopped: its time was up)"), run("make test FAST=1")],
        [run("git push", 1, "! [rejected] main -> main (fetch first)"), run("git push --set-upstream")],
        [run("X=1 pytest"), run("pytest", 1)],
        [run("", 1), run("pytest")],
        [run("A=1 make", 1), run("make")],
    ],
    ids=lambda calls: " then ".join(str(call["arguments"]) for call in calls),
)
def test_what_may_have_passed_for_another_reason_is_no_pair(calls: list[dict[str, Any]]) -> None:
    assert pairs(*calls) == []


def test_a_command_that_is_too_long_for_the_record_is_no_evidence_and_does_no_harm() -> None:
    long_command = {**run("x" * 600, 1), "result": {"exit_status": 1}}
    long_trail = trail(long_command, run("make"))
    assert [*long_trail.pairs()] == []
    assert long_trail.proof("", "make", "", "Run make.") is None


def test_a_check_of_landing_that_the_agent_had_not_run_is_a_pair() -> None:
    returned = f"landing adds to the task:\n\n{RETURNED}"
    assert pairs(returned, edit("a"), run("make check"), returns=(RETURNED,)) == [("make check", "make check")]
    assert pairs(run("make check"), returned, edit("a"), run("make check"), returns=(RETURNED,)) == []
    assert pairs(returned, edit("a"), run("make check")) == [], "a letter that only says so"


def test_a_return_is_of_the_repository_that_it_names_and_a_command_of_the_folder_that_it_enters() -> None:
    roots = {Path(f"/{name}"): Path(f"/hive/worktrees/ada/{name}") for name in ("app", "lib")}
    returned = RETURNED.replace("your work", "your work in `/lib`")
    workdir = bash("make check")
    workdir["arguments"]["workdir"] = "/hive/worktrees/ada/lib"
    calls = (returned, edit("a"), run("make check"), bash("cd '../lib/src' && make check"), workdir)
    task_trail = read_trail(lines_of(*calls), (returned,), TaskFolders(Path("/hive"), roots))
    app, lib = (task_trail.at(root) for root in roots)
    assert [*app.pairs()] == []
    assert [pair.passed.id for pair in lib.pairs()] == ["m6"]
    assert [action.command for action in lib.actions] == [
        "make check",
        "",
        "cd '../lib/src' && make check",
        "make check",
    ]


def test_a_mind_cites_what_the_trail_has() -> None:
    task_trail = trail(
        run("make test", 1), edit("src/schema.tmpl"), run("make test"), run("make lint", 2), run("make lint -o")
    )
    assert task_trail.proof("make test", "make test", "src/schema.tmpl", "Edit src/schema.tmpl, not the copy.")
    assert task_trail.proof("make lint", "make lint -o", "", "Pass -o to make lint.")
    assert task_trail.proof("make test", "make test", "", "Tests are flaky.") is None
    assert task_trail.proof("make test", "make test", "src/other", "Edit src/other, not the copy.") is None
    assert task_trail.proof("make lint", "make lint -o", "", "Lint well.") is None
    setup = trail(run("make test", 1), run("make schema"), run("make test"))
    assert setup.proof("make test", "make schema", "", "Run `make schema` before the tests.")
    assert setup.proof("make test", "make schema && make test", "", "Run `make schema` before the tests.")
    waited = trail(run("make test", 1), run("sleep 1"), run("make test"))
    assert waited.proof("make test", "sleep 1 && make test", "", "Run `sleep 1` before the tests.") is None
    by_shell = trail(run("make test", 1), run("sed -i s/1/2/ conf/base.ini"), run("make test"))
    assert by_shell.proof("make test", "make test", "", "Edit conf/base.ini, not conf/test.ini.")
    assert by_shell.proof("make test", "make test", "", "Edit conf/test.ini.") is None
    assert task_trail.proof("make lint", "ls", "", "Run `ls`.") is None
    assert task_trail.proof("make all", "make lint", "", "Use make lint.") is None


def test_what_others_wrote_is_material_and_code_and_failures_are_not() -> None:
    texts = trail(
        read("src/a.py", "code"), read("Makefile", "all:"), run("sed -n 1,5p src/a.py", output="code"), run("make", 1, "hint"),
        read("NOTES.md", "notes"), run("cat README", output="readme"),
        {"tool": "read_mail", "arguments": {}, "text": "letter"}, "news", opening="task",
    ).materials  # fmt: skip
    assert [text.split("\n")[-1] for text in texts] == ["task", "notes", "readme", "letter", "news"]
    opening = 'Task\n<material from="a.md">\nread\n</material>\nmore'
    assert read_trail(lines_of(opening=opening), (), NO_REPOSITORY, is_from_operator=True).materials == (opening[5:-5],)
