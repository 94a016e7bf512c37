"""What work teaches: from the trap of one task to the opening of the next, by rule and from the answer of a model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.lessons.choice import book_of
from hivemind.lessons.evidence import TaskFolders
from tests import program
from tests.agent.test_worktree import Repo
from tests.lessons.conftest import Project, run
from tests.messages import lines_of

TRAPPED = (run("sh check.sh"), run("APP_ENV=test sh check.sh"))
SENTENCE = "Run `APP_ENV=test sh check.sh` instead of `sh check.sh`, which fails."


def test_a_trap_of_one_task_is_a_lesson_in_the_opening_of_the_next(project: Project) -> None:
    project.work(*TRAPPED)
    assert project.live == [SENTENCE]
    file = (project.crew.root / "knowledge/lessons/app.md").read_text()
    assert "MUST be one list item" in (project.crew.root / "knowledge/lessons/README.md").read_text()
    assert file.startswith(f"# Lessons: app\n\n- {SENTENCE} (for `check.sh`; from task `t`, m")
    opening = project.opening("Mend check.sh.\n")
    assert "\n## Lessons\n" in opening
    assert f"* app-1: {SENTENCE}" in opening
    [event] = project.crew.events("lesson.learned")
    assert (event.payload["lesson"], event.payload["task_id"]) == ("app-1", "t")


def test_a_model_is_asked_once_after_trouble_and_the_request_is_noted_as_its_own_kind(project: Project) -> None:
    lesson = {"lesson": "Set `APP_ENV=test` for check.sh: without it nothing is checked.", "places": ["check.sh"],
              "failed": "sh check.sh", "passed": "APP_ENV=test sh check.sh"}  # fmt: skip
    project.answer = json.dumps([lesson])
    project.work(*TRAPPED)
    assert len(project.questions) == 1
    earlier, last = (sent["messages"] for sent in project.server.requests[-2:])
    assert last[: len(earlier)] == earlier, "the provider has them in its cache"
    assert project.server.requests[-1]["tools"] == project.server.requests[-2]["tools"]
    lines = lines_of(project.crew.root / "tasks/done/t")
    assert [line["cause"] for line in lines if "cause" in line and "request" in line].count("lesson") == 1
    assert any(line.get("answered") and line.get("usage") for line in lines[-2:])
    assert project.live == [lesson["lesson"]], "the rule has learned the same, in poorer words"
    assert len(project.lessons) == 1


def test_a_task_without_trouble_is_not_asked_about_and_costs_nothing(project: Project) -> None:
    project.work(run("ls"))
    assert project.questions == []
    assert project.lessons == []


@pytest.mark.parametrize(("setting", "questions", "count"), [("ask", 1, 1), ("rules", 0, 1), ("off", 0, 0)])
def test_a_setting_says_whether_models_are_asked_and_whether_anything_is_learned(
    project: Project, setting: str, questions: int, count: int
) -> None:
    project.configure(f"lessons: {setting}\n")
    project.work(*TRAPPED)
    assert (len(project.questions), len(project.lessons)) == (questions, count)
    assert ("## Lessons" in project.opening("Mend check.sh.\n")) == (setting != "off")


def test_a_model_that_does_not_answer_ends_the_task_all_the_same(project: Project) -> None:
    project.answer = "I have learned a lot."
    project.work(*TRAPPED)
    assert (project.crew.root / "tasks/done/t/result.md").exists()
    assert project.live == [SENTENCE]


def test_a_broken_file_of_weights_does_not_keep_lessons_from_being_learned(project: Project) -> None:
    project.configure("relevance: on\n")
    (project.crew.root / "knowledge/lessons/app.md").write_text("- Use make.\n")
    (project.crew.root / ".hive/relevance.json").write_text("{")
    project.work(*TRAPPED, text="Mend check.sh.\n")
    assert SENTENCE in project.live


def test_a_lesson_is_shown_where_it_holds_and_nowhere_else(project: Project) -> None:
    project.crew.root.joinpath("knowledge/lessons/app.md").write_text(
        "- Sew with waxed thread. (for `src/`)\n- Use make.\n- Draw in ink. (for `docs/`)\n"
    )
    project.crew.root.joinpath("knowledge/lessons/general.md").write_text("- Write British English.\n")
    shown = project.opening("Mend src/sail.\n")
    assert "app-1: Sew with waxed thread." in shown
    assert "app-2: Use make." in shown
    assert "general-1: Write British English." in shown
    assert "Draw in ink" not in shown


def test_a_lesson_that_has_landed_in_agents_md_is_shown_there_only(project: Project) -> None:
    project.work(*TRAPPED)
    assert project.opening("Mend check.sh.\n").count(SENTENCE) == 1
    project.repo.commit(**{"AGENTS.md": f"- {SENTENCE}\n"})
    with book_of(Hive.open(project.crew.root), project.repo.path).edit() as [record]:
        record.is_proposed = True
    assert project.opening("Mend check.sh.\n").count(SENTENCE) == 1
    lessons_file = project.crew.root / "knowledge/lessons/app.md"
    lessons_file.write_text(lessons_file.read_text().replace("which fails", "which never works"))
    assert "app-1, changed since AGENTS.md: Run" in project.opening("Mend check.sh.\n")


def test_the_agent_says_which_lessons_helped_and_each_task_counts_once(project: Project) -> None:
    project.work(*TRAPPED)
    used = ("finish_task", {"lessons_used": ["app-1", "app-9", "other-1"]})
    project.work(run("APP_ENV=test sh check.sh"), used, text="Mend check.sh.\n", name="t2")
    [record] = project.lessons
    assert (record.shown, record.helped, record.unused, record.tasks) == (1, 1, 0, ["t2"])
    results = [line["text"] for line in lines_of(project.crew.root / "tasks/done/t2") if line.get("role") == "tool"]
    assert "app-9" in results[-1]
    assert "other-1" in results[-1]


def test_a_lesson_that_two_tasks_find_wrong_is_retired_with_the_reason(project: Project) -> None:
    project.work(*TRAPPED)
    for name in ("t2", "t3"):
        assert project.live == [SENTENCE]
        finish = ("finish_task", {"lessons_wrong": ["app-1"]})
        fail = ("fail_task", {"reason": "It is torn.", "lessons_wrong": ["app-1"]})
        project.work(finish if name == "t2" else fail, text="Mend check.sh.\n", name=name)
    assert project.live == []
    assert project.lessons[0].reason == "found wrong in t2 and t3"
    assert SENTENCE not in (project.crew.root / "knowledge/lessons/app.md").read_text()
    assert [event.payload["lesson"] for event in project.crew.events("lesson.retired")] == ["app-1"]


def test_a_lesson_goes_when_the_command_that_failed_passes(project: Project) -> None:
    project.work(*TRAPPED)
    project.repo.commit(**{"check.sh": "exit 0\n"})
    project.work(run("ls none"), run("sh check.sh"), text="Mend src/sail.\n", name="t2")
    assert project.live == []
    assert project.lessons[0].reason == "`sh check.sh` passes now, in t2"


def test_a_lesson_is_replaced_when_its_command_fails_and_another_one_passes(project: Project) -> None:
    project.work(*TRAPPED)
    project.repo.commit(**{"check.sh": 'test "$APP_ENV" = ci\n'})
    project.work(run("APP_ENV=test sh check.sh"), run("APP_ENV=ci sh check.sh"), text="Mend check.sh.\n", name="t2")
    assert project.live == ["Run `APP_ENV=ci sh check.sh` instead of `APP_ENV=test sh check.sh`, which fails."]


def test_a_pair_whose_commands_name_no_path_holds_for_its_program_in_the_whole_repository(project: Project) -> None:
    project.repo.commit(Makefile='all:\n\ttest "$(ENV)"\n')
    project.work(run("make all"), run("make all ENV=ci"))
    assert [record.places for record in project.lessons] == [("make",)]
    assert "make all ENV=ci" in project.opening("Mend check.sh.\n")


def test_a_word_that_is_also_a_folders_name_is_no_place_in_a_text_that_names_others(project: Project) -> None:
    (project.crew.root / "knowledge/lessons/app.md").write_text("- Sew with waxed thread. (for `src/sail`)\n")
    assert "waxed" in project.opening("Mend what is in src.\n")
    assert "waxed" in project.opening("Mend check.sh and src/.\n")
    assert "waxed" not in project.opening("Mend check.sh: it has no src.\n")


def test_a_folder_that_a_command_names_without_a_slash_is_a_place(project: Project) -> None:
    project.repo.commit(**{"src__check.sh": 'test "$2" = --local\n'})
    project.work(run("sh src/check.sh docs"), run("sh src/check.sh docs --local"))
    assert [record.places for record in project.lessons] == [("src/check.sh", "docs/")]
    assert "--local" in project.opening("Add a line below docs/.\n")


def test_an_item_that_a_person_deletes_is_not_learned_again(project: Project) -> None:
    project.work(*TRAPPED)
    (project.crew.root / "knowledge/lessons/app.md").write_text("")
    project.work(*TRAPPED, name="t2")
    assert project.live == []


def in_two_repositories(project: Project) -> Repo:
    """Add a second repository, whose tests need a flag; task t works in both, and in its own folder."""
    lib = Repo(project.repo.path.parent / "lib")
    lib.commit(**{"test.sh": 'test "$1" = --local\n', "src__sail": "a sail\n"})
    roots = [{"path": f"../{name}", "worktree": True, "land": "off"} for name in ("app", "lib")]
    project.crew.configure(f"embedder: none\nroots: {json.dumps(roots)}\n")
    here, script = "tasks/active/t/files", "sh -c 'test \"$DB\"'"
    project.work(
        run("sh check.sh"), run("sh test.sh", "worktrees/ada/lib"), run(script, here),
        run("APP_ENV=test sh check.sh"), run("cd ../lib && sh test.sh --local"), run(f"DB=1 {script}", here),
    )  # fmt: skip
    return lib


def test_each_repository_of_a_task_learns_from_the_commands_that_ran_in_it(project: Project) -> None:
    lib = in_two_repositories(project)
    assert project.live == [SENTENCE]
    assert project.live_at(lib.path) == ["Run `sh test.sh --local` instead of `sh test.sh`, which fails."]
    assert [text[:11] for text in project.live_at(None)] == ["Run `DB=1 s"]


def test_a_path_that_begins_with_the_name_of_another_repository_is_in_it(tmp_path: Path) -> None:
    app, lib = tmp_path / "app", tmp_path / "lib"
    folders = TaskFolders(tmp_path / "hive", {root: tmp_path / "hive/worktrees/ada" / root.name for root in (app, lib)})
    assert folders.locate("lib/src/x.py") == (lib, "src/x.py")
    assert folders.locate("app/src/x.py") == (app, "app/src/x.py")
    (folders.worktrees[app] / "lib").mkdir(parents=True)
    assert folders.locate("lib/src/x.py") == (app, "lib/src/x.py")


def test_the_opening_has_the_lessons_of_the_repository_whose_path_the_task_names(project: Project) -> None:
    in_two_repositories(project)
    assert "lib-1" in project.opening("Mend test.sh.\n")
    assert "lib-1" not in project.opening("Mend check.sh.\n")


@pytest.mark.parametrize("passed", ["cd ../lib && sh test.sh --local", "sh none.sh"])
def test_a_lesson_of_a_mind_lies_where_its_proof_is_or_else_its_place(project: Project, passed: str) -> None:
    text = "With `cd ../lib && sh test.sh --local` nothing is fetched."
    lesson = {"lesson": text, "places": ["worktrees/ada/lib/test.sh"], "failed": "cd ../lib && sh test.sh"}
    project.answer = json.dumps([{**lesson, "passed": passed}])
    lib = in_two_repositories(project)
    [record, *_] = project.lessons_at(lib.path)
    assert (record.text, record.places[0]) == ("With `sh test.sh --local` nothing is fetched.", "test.sh")
    assert record.state == ("live" if "--local" in passed else "waiting")
    assert project.live == [SENTENCE]


@pytest.mark.slow
@pytest.mark.parametrize(("point", "land"), [("tasks.close.moved", "off"), ("landing.queued", "ask")])
def test_an_agent_that_dies_between_the_end_of_a_task_and_the_question_asks_at_its_next_start(
    project: Project, point: str, land: str
) -> None:
    project.configure(land=land)
    edit = ("write_file", {"path": "src/sail", "content": "mended\n"})
    died = project.crew.root.parent / "died"
    project.play(run("sh check.sh"), run("APP_ENV=test sh check.sh"), edit)
    lesson = {"lesson": "Set `APP_ENV=test` for check.sh: without it nothing is checked.", "places": ["check.sh"],
              "failed": "sh check.sh", "passed": "APP_ENV=test sh check.sh"}  # fmt: skip
    project.answer = json.dumps([lesson])
    environment = {**os.environ, "HIVEMIND_CRASH_AT": point, "HIVEMIND_CRASH_ONCE": str(died)}
    program.run(["--hive", project.crew.root, "up", "--until-idle"], env=environment)
    assert died.exists()
    assert len(project.questions) == 1
    assert project.live == [lesson["lesson"]]
