"""A git repository as a root: each agent has its own worktree, each task its own branch, and nobody touches the person's
checkout."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.cli.main import main
from hivemind.doctor import apply_fixes, examine
from hivemind.doctor.context import DoctorContext
from hivemind.errors import UserError
from hivemind.minds import Thought, ToolCall
from hivemind.sandbox import check_sandbox
from tests.agent.conftest import Crew, Mind, until_idle, using_tools
from tests.agent.test_replays import again
from tests.messages import calls_of
from tests.program import Python, run


def needs_a_sandbox() -> None:
    try:
        check_sandbox()
    except UserError as error:
        pytest.skip(str(error))


STEP = "---\nsteps: [{title: Do it}]\n---\n"


class Repo:
    """A person's checkout."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "-q", "-b", "main")
        with open(path / ".git/config", "a") as config:
            config.write("[user]\n\temail = person@example.org\n\tname = Person\n")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", self.path, *words], capture_output=True, text=True, check=True)
        return done.stdout.rstrip("\n")

    def commit(self, **files: str) -> str:
        for name, text in files.items():
            path = self.path / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("-c", "maintenance.auto=false", "commit", "-q", "-m", "by the person")
        return self.git("rev-parse", "HEAD")

    def show(self, branch: str, name: str) -> str:
        return self.git("show", f"{branch}:{name}")

    def branches(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "app")
    made.commit(boat="a boat\n", src__sail="a sail\n")
    return made


@pytest.fixture
def crew(crew: Crew, repo: Repo) -> Crew:
    crew.configure("roots: [{path: ../app, worktree: true, land: off}]\n")
    crew.agent_file("shell: true\n")
    return crew


def does(agent: Agent, *calls: tuple[str, dict[str, Any]]) -> None:
    """One turn in which the agent's mind, which reads, wants this."""
    mind = Mind(lambda turn: Thought("", tuple(ToolCall(tool, told) for tool, told in calls)))
    agent.mind = mind
    assert agent.cycle()


def said(crew: Crew, task: str = "t") -> dict[str, Any]:
    """What became of the last call."""
    return calls_of(Hive.open(crew.root).tasks.get(task).path)[-1]


def at_work(crew: Crew, text: str = "Mend it.\n") -> Agent:
    crew.drop(text)
    return crew.start(lambda turn: Thought())


FINISH = (("finish_step", {}), ("finish_task", {"result": "Done."}))


def write(path: str, text: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "text": text}


def test_a_task_that_was_worked_on_in_a_worktree_can_be_run_again(crew, repo):
    (crew.root / "none.jsonl").touch()
    crew.agent_file("shell: true\nmind: {scripted: none.jsonl}\n")  # what the log names
    ada = at_work(crew)
    does(ada, ("read_file", {"path": "boat"}), write("boat", "a red boat\n"), write("src/mast", "a mast\n"))
    edit = {"path": "src/mast", "old": "a mast", "new": "two masts"}
    does(ada, ("edit_file", edit), ("search_files", {"pattern": "masts", "path": "src"}))
    does(ada, ("run_command", {"command": "cat boat; git log --oneline | wc -l"}), ("list_files", {"path": "src"}))
    does(ada, *FINISH)
    repo.commit(boat="another boat\n")
    assert again(crew) == []


def test_a_task_is_worked_on_in_its_own_worktree_and_its_branch_is_kept(crew, repo):
    head = repo.git("rev-parse", "HEAD")
    ada = at_work(crew)
    does(
        ada,
        write("src/sail", "a red sail\n"),
        write("mast", "a mast\n"),
        ("run_command", {"command": "cat src/sail; pwd"}),
    )
    tree = crew.root / "worktrees/ada/app"
    assert said(crew)["text"].splitlines()[1:] == ["a red sail", str(tree)]
    assert repo.show("hive/t", "mast") == "a mast", "committed at the end of the turn"
    assert "ada" in repo.git("log", "-1", "--format=%an", "hive/t")
    does(ada, *FINISH)
    result = (crew.root / "tasks/done/t/result.md").read_text()
    assert "Branch `hive/t`" in result
    assert "2 files changed" in result
    assert f"begun at {head[:12]} of main" in result
    assert "hivemind task diff t" in result
    assert (tree / "mast").exists(), "it is kept for the agent's next task"
    assert repo.show("hive/t", "src/sail") == "a red sail"
    assert repo.git("rev-parse", "HEAD") == head
    assert repo.git("status", "--porcelain") == "", "the person's checkout is as it was"
    assert repo.git("worktree", "list").count("\n") == 0


def test_the_opening_says_worktree_and_branch(crew, capsys):
    ada = at_work(crew)
    does(ada, ("list_files", {}))
    [work] = ada.scheduler.active_tasks.runs
    opening = work.conversation.messages[1].text
    assert "Your folder is `worktrees/ada/app`, a git worktree of" in opening
    assert "on the branch `hive/t`" in opening
    assert said(crew)["text"] == "boat\nsrc/sail"
    shutil.rmtree(crew.root / "worktrees")
    assert main(["context", "ada", "--hive", str(crew.root)]) == 0
    assert "on the branch `hive/t`" in capsys.readouterr().out
    assert not (crew.root / "worktrees").exists(), "to look at it makes nothing"


def test_every_tool_for_files_works_there(crew, repo):
    crew.drop(STEP + "x\n")
    use = using_tools(crew.start())
    assert use("read_file", path="boat")["result"]["text"] == "a boat\n"
    use("edit_file", path="boat", old="a boat", new="a red boat")
    patch = "--- a/src/sail\n+++ b/src/sail\n@@ -1 +1 @@\n-a sail\n+two sails\n"
    assert use("apply_patch", patch=patch)["result"]["files"] == [{"path": "src/sail", "change": "changed"}]
    found = use("search_files", pattern="red|two")["result"]["hits"]
    assert [(one["path"], one["line"]) for one in found] == [("boat", 1), ("src/sail", 1)]
    assert use("list_files", path="src")["result"]["files"] == ["src/sail"]
    assert use("run_command", command="cat sail", cwd="src")["result"]["output"] == "two sails\n"
    assert use("read_file", path="worktrees/ada/app/boat")["result"]["text"] == "a red boat\n"
    assert repo.git("status", "--porcelain") == ""


def test_the_tasks_own_folder_and_the_hives_are_named_by_their_names(crew):
    (crew.root / "knowledge/oars.md").write_text("oars\n")
    crew.drop(STEP + "x\n")
    use = using_tools(crew.start())
    assert use("read_file", path="knowledge/oars.md")["result"]["text"] == "oars\n"
    use("write_file", path="knowledge/new.md", text="new\n")
    assert (crew.root / "knowledge/new.md").read_text() == "new\n"
    use("write_file", path="tasks/active/t/files/note", text="mine\n")
    assert (crew.root / "tasks/active/t/files/note").read_text() == "mine\n"
    assert use("read_file", path="note")["result"]["text"] == "mine\n", "where the repository has no such file"
    for path in ("worktrees/u/app/x", str(crew.root.parent / "app/boat")):
        assert "outside the folders that you may write" in use("write_file", path=path, text="x")["error"]
    assert ".git" in use("write_file", path=".git", text="gitdir: /tmp/x")["error"]


def test_two_tasks_work_side_by_side(crew, repo):
    crew.agent_file("shell: true\n", "bob")
    crew.drop("---\nassignee: bob\n---\ny\n", "u.md")
    crew.drop("---\nassignee: ada\n---\nx\n")
    ada, bob = crew.start(lambda turn: Thought()), crew.start(lambda turn: Thought(), "bob")
    does(ada, write("boat", "ada's\n"))
    does(bob, write("boat", "bob's\n"))
    does(ada, *FINISH)
    does(bob, *FINISH)
    assert [repo.show(branch, "boat") for branch in ("hive/t", "hive/u", "main")] == ["ada's", "bob's", "a boat"]


def test_of_several_repositories_the_first_is_the_default_and_each_has_its_worktree(crew, repo):
    (crew.root.parent / "other").mkdir()
    other = Repo(crew.root.parent / "other/app")
    other.commit(oar="an oar\n")
    crew.configure(
        "roots: [{path: ../app, worktree: true, land: off}, {path: ../other/app, worktree: true, land: off}]\n"
    )
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"), write("worktrees/ada/app-2/oar", "a red oar\n"), *FINISH)
    assert (repo.show("hive/t", "boat"), other.show("hive/t", "oar")) == ("a red boat", "a red oar")
    assert (crew.root / "tasks/done/t/result.md").read_text().count("Branch `hive/t`") == 2


# what was committed, and what was not


def test_what_an_agent_commits_itself_stands_and_only_the_rest_is_committed_for_it(crew, repo):
    ada = at_work(crew)
    does(
        ada,
        ("run_command", {"command": "echo oars > oars && git add -A && git commit -qm 'Add oars' && echo tar > tar"}),
    )
    assert repo.git("log", "--format=%s", "main..hive/t").splitlines() == ["Mend it.", "Add oars"]
    does(ada, ("run_command", {"command": "git status --porcelain"}))
    assert said(crew)["text"].endswith("(it printed nothing)")
    does(ada, ("read_file", {"path": "tar"}))
    assert repo.git("rev-list", "--count", "main..hive/t") == "2", "nothing has changed, nothing is committed"


def test_a_merge_under_way_is_the_agents_to_end(crew, repo):
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"))
    repo.commit(boat="a blue boat\n")
    before = repo.git("rev-parse", "hive/t")
    does(ada, ("run_command", {"command": "git merge main"}))
    assert repo.git("rev-parse", "hive/t") == before, "no marks of a conflict are committed"
    does(ada, *FINISH)
    assert "a merge or a rebase is under way" in said(crew)["error"]
    does(ada, write("boat", "a violet boat\n"), ("run_command", {"command": "git commit -qam Merge"}), *FINISH)
    assert repo.show("hive/t", "boat") == "a violet boat"
    assert len(repo.git("log", "-1", "--format=%P", "hive/t").split()) == 2


def test_a_task_that_changes_nothing_leaves_no_branch(crew, repo):
    ada = at_work(crew)
    does(ada, ("read_file", {"path": "boat"}), *FINISH)
    assert "hive/t" not in (crew.root / "tasks/done/t/result.md").read_text()
    assert repo.branches() == ["main"]
    assert repo.git("for-each-ref", "refs/hivemind") == ""


def test_a_failed_task_keeps_its_branch_and_a_retry_begins_another(crew, repo):
    ada = at_work(crew)
    does(ada, write("boat", "a wreck\n"), ("fail_task", {"reason": "it sank"}))
    assert "Branch `hive/t`" in (crew.root / "tasks/failed/t/error.md").read_text()
    repo.commit(boat="a new boat\n")
    Hive.open(crew.root).tasks.retry("t")
    does(ada, ("read_file", {"path": "boat"}), write("mast", "a mast\n"))
    assert [one for one in repo.branches() if one != "main"] == ["hive/t", "hive/t.2"]
    assert repo.show("hive/t", "boat") == "a wreck"
    assert repo.show("hive/t.2", "boat") == "a new boat", "from what the person has now"


def test_a_cancelled_task_keeps_what_was_done_on_its_branch(crew, repo):
    ada = at_work(crew)
    does(ada, write("boat", "half a boat\n"))
    (crew.root / "worktrees/ada/app/tar").write_text("in no commit yet\n")
    Hive.open(crew.root).tasks.cancel("t")
    until_idle(ada)
    assert (repo.show("hive/t", "boat"), repo.show("hive/t", "tar")) == ("half a boat", "in no commit yet")


def test_a_task_that_is_handed_over_keeps_its_worktree(crew, repo):
    crew.agent_file("shell: true\n", "bob")
    ada = at_work(crew, "---\nassignee: ada\n---\nx\n")
    does(ada, write("boat", "begun by ada\n"), ("hand_over", {"to": "bob", "reason": "he knows boats"}))
    assert (crew.root / "worktrees/ada/app/boat").exists()
    bob = crew.start(lambda turn: Thought(), "bob")
    does(bob, ("read_file", {"path": "boat"}))
    assert said(crew)["text"] == "begun by ada\n"
    does(bob, write("mast", "by bob\n"), *FINISH)
    assert repo.git("log", "--format=%an", "main..hive/t").splitlines() == ["bob", "ada"]


def test_caches_are_in_no_commit_where_no_ignore_file_names_them_and_the_result_lists_them(crew, repo):
    (repo.path / ".git/info/exclude").write_text("*.log\n")
    ada = at_work(crew)
    make = "mkdir -p src/__pycache__ node_modules/x; touch src/__pycache__/a.pyc node_modules/x/y.js own.log"
    does(ada, ("run_command", {"command": f"{make}; git add -A; git status --short"}))
    assert "(it printed nothing)" in said(crew)["text"], "its own commits have none of them either"
    does(ada, write("boat", "a red boat\n"), *FINISH)
    assert repo.git("diff", "--name-only", "main..hive/t") == "boat"
    result = (crew.root / "tasks/done/t/result.md").read_text()
    assert (
        "Not in it, as caches, submodules or repositories of their own: `node_modules/`, `src/__pycache__/`." in result
    )


def test_an_ignore_file_that_says_otherwise_holds(crew, repo):
    repo.commit(**{".gitignore": "!target/\n"})
    ada = at_work(crew)
    does(ada, write("target/app", "built\n"), *FINISH)
    assert repo.show("hive/t", "target/app") == "built"


def test_a_repository_within_the_worktree_is_left_out_and_said_and_the_rest_is_taken_over(crew, repo):
    ada = at_work(crew)
    make = "git init -q lib && cd lib && echo x > f && git add f && git commit -qm x; cd ..; echo red > boat"
    does(ada, ("run_command", {"command": make}), *FINISH)
    assert repo.git("diff", "--name-only", "main..hive/t") == "boat"
    assert "repositories of their own: `lib/`" in (crew.root / "tasks/done/t/result.md").read_text()


def test_an_agent_that_works_on_a_branch_of_its_own_choice_has_its_commits_taken_over(crew, repo):
    ada = at_work(crew)
    work = "git checkout -q -b fix && echo red > boat && git commit -qam Fix && git log --oneline main..fix"
    does(ada, ("run_command", {"command": work}))
    assert "Fix" in said(crew)["text"]
    does(ada, ("run_command", {"command": "git checkout -q main && echo tar > tar"}), *FINISH)
    assert repo.git("log", "--format=%s", "main..hive/t").splitlines() == ["Mend it.", "Fix"]
    assert "refs/heads/fix" not in repo.git("for-each-ref")


# dividing work, and its review


@pytest.fixture
def pair(crew: Crew) -> Crew:
    crew.agent_file("role: lead\nshell: true\n")
    crew.agent_file("role: builder\nshell: true\n", "bob")
    return crew


def divided(pair: Crew, *texts: str) -> tuple[Agent, Agent, list[str]]:
    """A lead that has changed something and then divided its task for another, who is there."""
    ada = at_work(pair, "---\nassignee: ada\n---\nBuild it.\n")
    tasks = [{"text": text, "to": "bob"} for text in texts]
    does(ada, write("keel", "a keel\n"), ("delegate", {"tasks": tasks}))
    return ada, pair.start(lambda turn: Thought(), "bob"), said(pair)["result"]["ids"]


LOOK = ("list_files", {})


def test_a_subtask_begins_from_its_parents_branch_and_lands_in_it_between_two_turns(pair, repo):
    ada, bob, [one] = divided(pair, "Mast.")
    does(bob, ("read_file", {"path": "keel"}), write("mast", "a mast\n"))
    assert calls_of(pair.root / "tasks/active" / one)[0]["text"] == "a keel\n"
    does(ada, LOOK)
    assert "mast" not in said(pair)["text"]
    does(bob, *FINISH)
    does(ada, write("tar", "tar\n"), ("read_file", {"path": "mast"}))
    assert said(pair)["text"] == "a mast\n", "its files are the lead's now"
    assert {"keel", "mast", "tar"} <= set(repo.git("ls-tree", "--name-only", "hive/t").splitlines())
    assert repo.branches() == ["hive/t", "main"]
    assert repo.git("status", "--porcelain") == ""


def test_a_subtask_that_conflicts_goes_back_to_its_agent_with_marks_and_the_lead_merges_nothing(pair, repo):
    ada, bob, [red, blue] = divided(pair, "Red.", "Blue.")
    for colour in ("red", "blue"):
        does(bob, write("boat", f"a {colour} boat\n"), *FINISH)
    does(ada, LOOK)
    tasks = Hive.open(pair.root).tasks
    assert [tasks.get(task).state.value for task in (red, blue)] == ["done", "inbox"]
    does(bob, ("read_file", {"path": "boat"}))
    assert all(word in said(pair, blue)["text"] for word in ("<<<<<<<", "a red boat", "a blue boat"))
    does(bob, write("boat", "a violet boat\n"), *FINISH)
    does(ada, ("read_file", {"path": "boat"}), *FINISH)
    assert repo.show("hive/t", "boat") == "a violet boat"
    assert Hive.open(pair.root).tasks.get(blue).state.value == "done"


def test_a_parent_that_ends_waits_for_a_subtask_that_has_not_landed(pair, repo):
    ada, bob, [red, blue] = divided(pair, "Red.", "Blue.")
    for colour in ("red", "blue"):
        does(bob, write("boat", f"a {colour} boat\n"), *FINISH)
    does(ada, *FINISH)
    parked = Hive.open(pair.root).tasks.get("t").parked
    assert parked is not None
    assert parked.reason == f"waits for its subtask {blue} to land"
    does(bob, write("boat", "a violet boat\n"), *FINISH)
    until_idle(ada)
    assert [Hive.open(pair.root).tasks.get(task).state.value for task in ("t", red, blue)] == ["done"] * 3
    assert repo.show("hive/t", "boat") == "a violet boat"


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_a_reviewer_sees_the_diff_and_has_the_work_to_read_only(pair, repo, sandbox):
    if sandbox == "bwrap":
        needs_a_sandbox()
    pair.agent_file(f"role: critic\nmind: command:true\nshell: true\nsandbox: {sandbox}\n", "eve")
    ada = at_work(pair, "---\nassignee: ada\nreview: {by: critic, criteria: [it is red]}\n---\nPaint it.\n")
    does(ada, write("boat", "a red boat\n"), ("run_command", {"command": "printf '\\351t\\351\\n' > latin"}), *FINISH)
    eve = pair.start(lambda turn: Thought(), "eve")
    does(eve, ("run_command", {"command": "cat boat; echo spoilt > boat; touch litter"}), write("boat", "spoilt\n"))
    [review] = [one.id for one in Hive.open(pair.root).tasks.list("active") if one.parent == "t"]
    text = Hive.open(pair.root).tasks.get(review).text
    assert "    -a boat\n    +a red boat" in text
    ran, wrote = calls_of(pair.root / "tasks/active" / review)
    assert "a red boat" in ran["text"]
    assert "is part of the work that you review" in wrote["error"]
    assert (next((pair.root / "worktrees").glob("*/app/litter"), None) is None) is (sandbox == "bwrap")
    does(eve, ("verdict", {"approved": True}))
    does(ada, *FINISH)
    assert repo.show("hive/t", "boat") == "a red boat", "what it did to its copy came nowhere"
    assert repo.branches() == ["hive/t", "main"]
    pair.drop("---\nassignee: eve\n---\nNext.\n", "u.md")
    does(eve, ("run_command", {"command": "cat boat; ls"}))
    assert said(pair, "u")["text"].splitlines()[1:] == ["a boat", "boat", "src"], "of what it did nothing is left"


# what can be in the way


def test_an_agents_hooks_and_settings_never_run(crew, repo):
    ada = at_work(crew)
    bad = "#!/bin/sh\ntouch {}\n".format(crew.root / "ran")
    does(
        ada,
        write("hooks/post-checkout", bad),
        write("hooks/reference-transaction", bad),
        write("hooks/pre-commit", bad),
    )
    does(ada, ("run_command", {"command": "chmod +x hooks/*; cp hooks/* $(git rev-parse --git-common-dir)/hooks/"}))
    fake = "rm .git && git init -q . && git config filter.x.clean 'touch {0}; cat' && git config core.fsmonitor 'touch {0}'"
    does(ada, ("run_command", {"command": fake.format(crew.root / "ran")}), write(".gitattributes", "* filter=x\n"))
    (crew.root / "ran").unlink(missing_ok=True)
    does(ada, write("boat", "a red boat\n"), *FINISH)
    assert repo.show("hive/t", "boat") == "a red boat"
    assert not (crew.root / "ran").exists()


def why_it_fails(crew: Crew) -> str:
    """A task's end, whose turns break at its first call."""
    ada = at_work(crew)
    ada.mind = Mind(lambda turn: Thought("", (ToolCall("read_file", {"path": "boat"}),)))
    while not (crew.root / "tasks/failed/t").is_dir():
        try:
            ada.cycle()
        except UserError as error:
            ada.scheduler.handle_error(error)
    return (crew.root / "tasks/failed/t/error.md").read_text()


def test_a_root_that_is_no_repository_is_said_in_words(crew, repo):
    shutil.rmtree(repo.path / ".git")
    error = why_it_fails(crew)
    assert error.startswith(f"# Mend it.\n\n{repo.path}: cannot have worktrees: git rev-parse: not a git repository")


def test_a_root_without_commits_is_said_in_words(crew, repo):
    shutil.rmtree(repo.path / ".git")
    repo.git("init", "-q")
    assert "has no commit yet that a worktree could begin from" in why_it_fails(crew)


def test_a_root_within_a_repository_is_said_in_words(crew, repo):
    crew.configure("roots: [{path: ../app/src, worktree: true}]\n")
    assert f"is a folder of the repository {repo.path}" in why_it_fails(crew)


@pytest.mark.parametrize("begun", [True, False])
def test_a_task_waits_while_the_folder_of_a_root_is_gone(crew, repo, begun):
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n")) if begun else None
    repo.path.rename(repo.path.with_name("port"))
    does(ada, write("mast", "a mast\n"), *FINISH)
    parked = Hive.open(crew.root).tasks.get("t").parked
    assert parked is not None
    assert (
        parked.reason
        == f"{repo.path}: is gone; if you moved it, say path: NEW in hive.yaml, then: hivemind down, hivemind up"
    )
    repo.path.with_name("port").rename(repo.path)
    crew.end(ada)
    ada = crew.start()
    does(ada, write("mast", "a mast\n"), *FINISH)
    assert Hive.open(crew.root).tasks.get("t").state == "done"
    assert repo.show("hive/t", "mast") == "a mast"


def test_what_a_person_must_mend_is_logged_in_one_line(crew, repo, caplog):
    shutil.rmtree(repo.path / ".git")
    ada = at_work(crew)

    def think(turn: Any) -> Thought:
        ada.stop()
        return Thought("", (ToolCall("read_file", {"path": "boat"}),))

    ada.mind = Mind(think)
    ada.run()
    [record] = [record for record in caplog.records if "a turn broke" in record.getMessage()]
    assert f"{repo.path}: cannot have worktrees" in record.getMessage()
    assert not record.exc_info


def spoilt(crew: Crew, repo: Repo, how: str) -> Agent:
    """A task under way, in the worktree of which something was changed by hand."""
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"))
    tree = crew.root / "worktrees/ada/app"
    folder = tree / ".git"
    match how:
        case "worktree":
            shutil.rmtree(tree)
        case "all worktrees":
            shutil.rmtree(crew.root / "worktrees")
        case "branch":
            (repo.path / ".git/refs/heads/hive/t").unlink()
        case "git's folder":
            shutil.rmtree(folder)
        case "index.lock":
            (folder / "index.lock").touch()
        case "branch.lock":
            (repo.path / ".git/refs/heads/hive/t.lock").touch()
        case "index":
            (folder / "index").unlink()
        case "HEAD":
            (folder / "HEAD").unlink()
    return ada


@pytest.mark.parametrize(
    "how", ["worktree", "all worktrees", "branch", "git's folder", "index.lock", "branch.lock", "index", "HEAD"]
)
def test_what_was_spoilt_by_hand_is_made_anew_and_the_work_goes_on(crew, repo, how):
    ada = spoilt(crew, repo, how)
    does(ada, ("read_file", {"path": "boat"}), write("mast", "a mast\n"))
    assert calls_of(crew.root / "tasks/active/t")[-2]["text"] == "a red boat\n"
    does(ada, *FINISH)
    assert (repo.show("hive/t", "boat"), repo.show("hive/t", "mast")) == ("a red boat", "a mast")
    assert repo.git("status", "--porcelain") == ""


def test_files_that_git_knows_nothing_of_any_more_are_committed_all_the_same(crew, repo):
    ada = spoilt(crew, repo, "git's folder")
    (crew.root / "worktrees/ada/app/tar").write_text("in no commit\n")
    does(ada, write("mast", "a mast\n"))
    assert repo.show("hive/t", "tar") == "in no commit"
    assert repo.git("diff", "--name-only", "main..hive/t").splitlines() == ["boat", "mast", "tar"]


def add_submodule(repo: Repo, tmp_path: Path) -> Repo:
    """Add the submodule lib to the repository, and return the one it comes from."""
    other = Repo(tmp_path / "lib")
    other.commit(rope="a rope\n")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), "lib")
    repo.commit()
    return other


def test_submodules_are_not_filled_which_the_opening_says(crew, repo, tmp_path):
    add_submodule(repo, tmp_path)
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"))
    [work] = ada.scheduler.active_tasks.runs
    assert "Its submodules are empty, and files in them" in work.conversation.messages[1].text
    does(ada, write("lib/new", "in no commit\n"), *FINISH)
    assert repo.git("diff", "--name-only", "main..hive/t") == "boat", "the submodule stands as it was"
    result = (crew.root / "tasks/done/t/result.md").read_text()
    assert "Not in it, as caches, submodules or repositories of their own: `lib/new`." in result
    crew.drop(STEP + "Another.\n", "u.md")
    does(ada, write("mast", "a mast\n"), *FINISH)
    assert not (crew.root / "worktrees/ada/app/lib/new").exists(), "another task begins without it"


def test_a_task_that_has_written_only_in_a_submodule_says_so(crew, repo, tmp_path):
    other = add_submodule(repo, tmp_path)
    ada = at_work(crew)
    clone = f"git -c protocol.file.allow=always clone -q {other.path} lib"
    does(ada, ("run_command", {"command": clone}), write("lib/new", "in no commit\n"), *FINISH)
    result = (crew.root / "tasks/done/t/result.md").read_text()
    assert "no changes" in result
    assert "repositories of their own: `lib/new`." in result


def test_a_branch_of_that_name_that_is_somebody_elses_is_left_alone(crew, repo):
    repo.git("branch", "hive/t")
    does(at_work(crew), write("boat", "a red boat\n"), *FINISH)
    assert repo.show("hive/t", "boat") == "a boat"
    assert repo.show("hive/t.2", "boat") == "a red boat"


def test_a_root_that_may_be_written_is_edited_in_place_unless_it_has_worktrees(crew, repo):
    crew.configure("roots: [{path: ../app, write: true}]\n")
    crew.drop(STEP + "x\n")
    use = using_tools(crew.start())
    use("write_file", path=str(repo.path / "boat"), text="in place\n")
    assert (repo.path / "boat").read_text() == "in place\n"
    crew.configure("roots: [{path: ../app, write: true, worktree: true}]\n")
    use = using_tools(crew.start())
    assert (
        "outside the folders that you may write" in use("write_file", path=str(repo.path / "boat"), text="x")["error"]
    )


# the sandbox


def test_in_a_sandbox_the_worktree_is_there_and_git_works_but_not_its_hooks_and_settings(crew, repo):
    needs_a_sandbox()
    crew.agent_file("shell: true\nsandbox: bwrap\n")
    ada = at_work(crew)
    git = repo.path / ".git"
    closed = [f"{git}/config", f"{git}/hooks/pre-commit", f"{git}/HEAD", f"{git}/refs/heads/main", f"{repo.path}/boat",
              f"{git}/objects/new", f"{git}/refs/heads/hive/t", f"{git}/index"]  # fmt: skip
    told = "; ".join(f"(echo x > {path}) 2>/dev/null && echo 'wrote {path}'" for path in closed)
    does(
        ada, ("run_command", {"command": f"{told}; echo mast > mast; git add -A && git commit -qm Mast && git log -1"})
    )
    assert "Mast" in said(crew)["text"]
    assert "wrote" not in said(crew)["text"]
    does(ada, *FINISH)
    assert repo.git("log", "--format=%s", "main..hive/t") == "Mast"
    assert repo.git("status", "--porcelain") == ""


# crashes


POINTS = [
    "worktree.recorded", "worktree.added", "worktree.committing", "tasks.close.moved",
]  # fmt: skip

LIFE = """
import json, os, sys
from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.minds import ToolCall, Thought
from hivemind.presence.identity import journal_start

class Mind:
    def think(self, turn, tools):
        calls = sum(one.role == "assistant" for one in turn.messages)
        turns = json.loads(sys.argv[2])
        wanted = turns[min(calls, len(turns) - 1)]
        return Thought("", tuple(ToolCall(tool, told) for tool, told in wanted))

hive = Hive.open(sys.argv[1])
agent = Agent(hive, "ada", journal_start(hive.journal, "ada", os.getpid()))
agent.mind = Mind()
agent.scheduler.active_tasks.resume()
while agent.cycle():
    pass
agent.close()
"""


Turns = list[list[tuple[str, dict[str, Any]]]]


def killed(crew: Crew, turns: Turns, point: str) -> None:
    """A life of ada's in a process of its own, which is killed at that point."""
    environment = {**os.environ, "HIVEMIND_CRASH_AT": point}
    command = ["-c", LIFE, str(crew.root), json.dumps(turns)]
    assert run(command, start=Python, env=environment).returncode == -signal.SIGKILL


def goes_on(crew: Crew, turns: Turns) -> None:
    """Her next life, until there is nothing to do."""

    def think(turn: Any) -> Thought:
        at = sum(one.role == "assistant" for one in turn.messages)
        return Thought("", tuple(ToolCall(tool, told) for tool, told in turns[min(at, len(turns) - 1)]))

    until_idle(crew.start(think))


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_moment_the_next_life_goes_on_with_the_same_worktree(crew, repo, point):
    crew.drop("Mend it.\n")
    turns = [[write("boat", "a red boat\n")], [write("mast", "a mast\n")], [*FINISH]]
    killed(crew, turns, point)
    goes_on(crew, turns)
    assert (repo.show("hive/t", "boat"), repo.show("hive/t", "mast")) == ("a red boat", "a mast")
    assert [one for one in repo.branches() if one.startswith("hive/")] == ["hive/t"]
    assert not list(repo.path.glob(".git/worktrees/*"))


def test_killed_while_a_subtask_lands_the_next_life_goes_on(pair, repo):
    _, bob, [one] = divided(pair, "Mast.")
    does(bob, write("mast", "a mast\n"), *FINISH)
    pair.close()
    turns = [[], [write("tar", "tar\n")], [LOOK], [*FINISH]]
    killed(pair, turns, "worktree.merging")
    goes_on(pair, turns)
    assert Hive.open(pair.root).tasks.get(one).state.value == "done"
    assert {"keel", "mast", "tar"} <= set(repo.git("ls-tree", "--name-only", "hive/t").splitlines())


def test_a_git_that_outlives_its_agent_is_waited_for(crew, repo):
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"))
    command = ["flock", crew.root / "worktrees/ada", "sh", "-c", f"echo held; sleep 0.5; touch {crew.root}/over"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as held:
        assert held.stdout is not None
        held.stdout.readline()
        does(ada, write("mast", "a mast\n"))
        assert (crew.root / "over").exists()
    assert repo.show("hive/t", "mast") == "a mast"


def test_the_doctor_commits_what_a_killed_agent_left_of_a_task_that_is_over(crew, repo):
    crew.drop("Mend it.\n")
    killed(crew, [[write("boat", "a red boat\n")], [*FINISH]], "tasks.close.moved")
    (crew.root / "worktrees/ada/app/tar").write_text("tar\n")
    patient = DoctorContext(Hive.open(crew.root).layout)
    found = [one for one in examine(patient) if one.check == "worktrees"]
    assert [one.location for one in found] == ["worktrees/ada/app"]
    apply_fixes(patient, found)
    assert [one for one in examine(patient) if one.check == "worktrees"] == []
    assert (repo.show("hive/t", "boat"), repo.show("hive/t", "tar")) == ("a red boat", "tar")


def test_a_full_disk_under_the_repository_is_a_pause(crew, repo):
    shutil.rmtree(repo.path)
    repo.path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", repo.path], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        repo.git("init", "-q", "-b", "main")
        repo.git(
            "-c", "user.name=Person", "-c", "user.email=person@example.org", "commit", "-q", "--allow-empty", "-m", "x"
        )
        ada = at_work(crew)
        does(ada, write("boat", "a boat\n"))
        with contextlib.suppress(OSError), open(repo.path / "ballast", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(OSError, match="No space left") as full:
            does(ada, write("mast", "a mast\n"))
        assert ada.scheduler.handle_error(full.value)
        (repo.path / "ballast").unlink()
        [work] = ada.scheduler.active_tasks.runs
        ada.scheduler.active_tasks.unpark(work)  # as if its time had come
        does(ada, *FINISH)
        assert repo.show("hive/t", "mast") == "a mast"
    finally:
        subprocess.run(["umount", "-l", repo.path], check=True)
