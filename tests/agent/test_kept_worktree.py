"""An agent's worktree from task to task: made when it is needed, kept, brought to the next task's commit, set up once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.doctor import apply_fixes, examine
from hivemind.doctor.context import DoctorContext
from hivemind.landing.merging import conflict_commit, merge
from hivemind.minds import Thought
from hivemind.taskrun.git import Repository, git_identity
from hivemind.taskrun.target_branch import root_folder, target_branch
from hivemind.taskrun.worktree import put_down_ended
from tests.agent.conftest import Crew, Mind, until_idle
from tests.agent.test_worktree import (
    FINISH,
    Repo,
    Turns,
    at_work,
    crew,
    does,
    goes_on,
    killed,
    pair,
    repo,
    said,
    why_it_fails,
    write,
)  # fmt: skip
from tests.messages import calls_of

__all__ = ["crew", "pair", "repo"]


WHO = git_identity("Lander", "lander@hive")


def runs(command: str) -> tuple[str, dict[str, str]]:
    return "run_command", {"command": command}


def tree(crew: Crew, agent: str = "ada", name: str = "app") -> Path:
    return crew.root / "worktrees" / agent / name


def identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def findings(crew: Crew) -> list[str | None]:
    return [finding.location for finding in _examined(crew)]


def _examined(crew: Crew) -> list:
    return [one for one in examine(DoctorContext(Hive.open(crew.root).layout)) if one.check == "worktrees"]


# when it is made


def test_a_task_that_touches_no_repository_makes_no_folder_and_no_branch_and_changes_nothing_by_git(crew, repo):
    (crew.root / "knowledge/oars.md").write_text("oars\n")
    crew.drop("---\nsteps: [{title: Look}]\n---\nWhat are oars?\n")
    before = sorted((path, path.stat().st_mtime_ns) for path in (repo.path / ".git").rglob("*"))
    ada = crew.start(lambda turn: Thought())
    does(
        ada,
        ("read_file", {"path": "knowledge/oars.md"}),
        write("tasks/active/t/files/note", "mine\n"),
        ("current_task", {}),
    )
    does(ada, ("read_file", {"path": "note"}), *FINISH)
    assert (crew.root / "tasks/done/t/files/note").exists()
    assert not (crew.root / "worktrees").exists()
    assert sorted((path, path.stat().st_mtime_ns) for path in (repo.path / ".git").rglob("*")) == before


@pytest.mark.parametrize("call", [("read_file", {"path": "boat"}), ("list_files", {}), ("search_files", {"pattern": "boat"}),
                                  write("new", "x"), runs("true")])  # fmt: skip
def test_what_reads_or_writes_the_root_or_runs_a_command_makes_the_worktree(crew, call):
    does(at_work(crew), call)
    assert "error" not in said(crew)
    assert (tree(crew) / "boat").exists()


def test_of_several_roots_only_the_one_that_is_touched_gets_a_worktree(crew, repo):
    Repo(crew.root.parent / "other").commit(oar="an oar\n")
    crew.configure("roots: [{path: ../app, worktree: true, land: off}, {path: ../other, worktree: true, land: off}]\n")
    does(at_work(crew), ("read_file", {"path": "worktrees/ada/other/oar"}))
    assert said(crew)["text"] == "an oar\n"
    assert not tree(crew).exists()


def test_a_path_that_begins_with_the_name_of_another_root_is_in_that_root(crew, repo):
    other = Repo(crew.root.parent / "other")
    other.commit(oar="an oar\n")
    crew.configure("roots: [{path: ../app, worktree: true, land: off}, {path: ../other, worktree: true, land: off}]\n")
    ada = at_work(crew)
    does(
        ada,
        ("read_file", {"path": "other/oar"}),
        write("other/mast", "a mast\n"),
        write("boat", "a red boat\n"),
        *FINISH,
    )
    assert other.git("diff", "--name-only", "main..hive/t") == "mast"
    assert repo.git("diff", "--name-only", "main..hive/t") == "boat"


# kept


def test_the_next_task_writes_only_what_differs_and_what_is_ignored_stays(crew, repo):
    repo.commit(**{".gitignore": "*.log\n", "keel": "a keel\n"})
    ada = at_work(crew)
    plant = "mkdir node_modules; touch node_modules/x build.log; touch .git/hooks/post-checkout; git config alias.x y"
    does(ada, runs(f"mkdir -p .git/hooks; {plant}"), write("mast", "a mast\n"), *FINISH)
    before = identity(tree(crew) / "keel")
    repo.commit(boat="a new boat\n")
    crew.drop("Next.\n", "u.md")
    does(ada, runs("cat boat; ls; git status --porcelain; git log --format=%s -1; git config alias.x; ls .git/hooks"))
    output = said(crew, "u")["text"].splitlines()[1:]
    assert output[:-1] == ["a new boat", "boat", "build.log", "keel", "node_modules", "src", "by the person"]
    assert "No such file" in output[-1]
    assert identity(tree(crew) / "keel") == before, "what has not changed is not touched"
    does(ada, write("tar", "tar\n"), *FINISH)
    assert repo.git("diff", "--name-only", "main", "hive/u") == "tar"
    assert repo.show("hive/t", "mast") == "a mast"


@pytest.mark.shows("key: hive.yaml: roots.worktrees")
@pytest.mark.parametrize("place", ["task", "root"])
def test_a_fresh_worktree_has_nothing_of_earlier_tasks(crew, repo, place):
    if place == "root":
        crew.configure("roots: [{path: ../app, worktree: true, land: off, worktrees: fresh}]\n")
    ada = at_work(crew)
    does(ada, runs("mkdir node_modules; touch node_modules/x"), *FINISH)
    crew.drop("---\nfresh: true\n---\nNext.\n" if place == "task" else "Next.\n", "u.md")
    does(ada, runs("ls"))
    assert said(crew, "u")["text"].splitlines()[1:] == ["boat", "src"]
    does(ada, runs("mkdir node_modules; touch node_modules/x"))
    does(ada, ("read_file", {"path": "node_modules/x"}))
    assert "error" not in said(crew, "u"), "within the task it stays"


@pytest.mark.parametrize(
    "spoil",
    [
        "ln -sf $HOME/index .git/index", "rm .git/index; mkfifo .git/index", "echo rubbish > .git/index", "rm .git/index",
        "git update-index --skip-worktree boat; rm boat", "git update-index --assume-unchanged boat; echo x > boat",
        "rm -rf .git; echo gitdir: /nowhere > .git", "chmod 0 src", "git init -q lib; git -C lib commit -qm x --allow-empty",
        "git update-index --split-index", "git sparse-checkout set --no-cone /boat",
    ],
)  # fmt: skip
def test_whatever_becomes_of_the_index_the_next_task_begins_with_its_commit(crew, repo, spoil):
    ada = at_work(crew)
    does(ada, write("mast", "a mast\n"))
    does(ada, runs(spoil), *FINISH)
    if not (crew.root / "tasks/done/t").exists():
        Hive.open(crew.root).tasks.cancel("t")
        ada.mind = Mind(lambda turn: Thought())
        until_idle(ada)
    repo.commit(keel="a keel\n")
    crew.drop("Next.\n", "u.md")
    does(ada, runs("cat boat; git ls-files | cat; find . -name .git -prune -o -type f -print; git status --porcelain"))
    files = ["boat", "keel", "src/sail"]
    output = said(crew, "u")["text"].splitlines()[1:]
    assert output[:4] == ["a boat", *files]
    assert sorted(output[4:]) == [f"./{name}" for name in files]


def test_two_tasks_of_one_agent_have_a_worktree_each_and_a_third_gets_one_that_is_free(crew, repo):
    ada = at_work(crew)
    does(ada, write("boat", "t's\n"), ("ask_human", {"question": "Which colour?"}))
    crew.drop("Next.\n", "u.md")
    does(ada, write("boat", "u's\n"))
    assert (tree(crew) / "boat").read_text() == "t's\n"
    assert (tree(crew, name="app-2") / "boat").read_text() == "u's\n"
    does(ada, *FINISH)
    crew.drop("Next.\n", "v.md")
    does(ada, ("read_file", {"path": "boat"}))
    assert said(crew, "v")["text"] == "a boat\n"
    assert sorted(path.name for path in (crew.root / "worktrees/ada").iterdir() if path.is_dir()) == ["app", "app-2"]


# where a task begins


def test_a_task_begins_at_the_tip_of_the_branch_that_was_checked_out_first_whatever_is_checked_out_now(crew, repo):
    ada = at_work(crew)
    does(ada, write("mast", "a mast\n"), *FINISH)
    repo.git("checkout", "-q", "-b", "other")
    repo.commit(boat="another boat\n")
    crew.drop("Next.\n", "u.md")
    does(ada, ("read_file", {"path": "boat"}))
    assert said(crew, "u")["text"] == "a boat\n"
    hive = Hive.open(crew.root)
    record = json.loads((root_folder(hive.layout, repo.path) / "target.json").read_text())
    assert (record["branch"], target_branch(hive, repo.path)) == ("main", "main")


@pytest.mark.shows("key: hive.yaml: roots.branch")
def test_a_branch_in_hive_yaml_is_where_tasks_begin(crew, repo):
    repo.git("checkout", "-q", "-b", "next")
    repo.commit(boat="the next boat\n")
    repo.git("checkout", "-q", "main")
    crew.configure("roots: [{path: ../app, worktree: true, land: off, branch: next}]\n")
    ada = at_work(crew)
    does(ada, ("read_file", {"path": "boat"}))
    assert said(crew)["text"] == "the next boat\n"


def test_a_branch_in_hive_yaml_that_does_not_exist_is_said(crew):
    crew.configure("roots: [{path: ../app, worktree: true, land: off, branch: nxet}]\n")
    assert "has no branch nxet, where work lands" in why_it_fails(crew)


def test_on_a_detached_head_a_task_begins_at_it_and_nothing_is_recorded(crew, repo):
    repo.git("checkout", "-q", "--detach")
    does(at_work(crew), write("mast", "a mast\n"))
    hive = Hive.open(crew.root)
    assert target_branch(hive, repo.path) is None
    assert not (root_folder(hive.layout, repo.path) / "target.json").exists()


def test_the_subtasks_of_a_lead_that_has_touched_nothing_begin_at_its_branch(pair, repo):
    ada = at_work(pair, "---\nassignee: ada\n---\nBuild it.\n")
    does(ada, ("delegate", {"tasks": [{"text": "Mast.", "to": "bob"}]}))
    [one] = said(pair)["result"]["ids"]
    assert not (pair.root / "worktrees/ada/app").exists()
    bob = pair.start(lambda turn: Thought(), "bob")
    does(bob, write("mast", "a mast\n"))
    [row] = Hive.open(pair.root).tasks.get(one).kept["worktrees"]
    assert row["into"] == "hive/t"
    does(ada, write("keel", "a keel\n"))
    assert repo.show("hive/t", "keel") == "a keel"


# set up


def set_up(crew: Crew, *lines: str, more: str = "") -> None:
    crew.configure(
        f"roots: [{{path: ../app, worktree: true, land: off, setup: {json.dumps(lines)}, setup_when: [lock, a/b]{more}}}]\n"
    )


@pytest.mark.shows("key: hive.yaml: roots.setup", "key: hive.yaml: roots.setup_when")
def test_a_worktree_is_set_up_once_and_again_when_a_named_file_has_changed(crew, repo):
    repo.commit(lock="1\n", **{".gitignore": "deps\n"})
    set_up(crew, "cat lock >> deps", "pwd >> $HOME/visits")
    ada = at_work(crew)
    for name in ("t", "u", "v"):
        does(ada, ("read_file", {"path": "deps"}))
        does(ada, *FINISH)
        crew.drop("Next.\n", f"{chr(ord(name) + 1)}.md")
    assert (tree(crew) / "deps").read_text() == "1\n"
    repo.commit(lock="2\n")
    does(ada, ("read_file", {"path": "deps"}))
    assert said(crew, "w")["text"] == "1\n2\n"
    home = root_folder(Hive.open(crew.root).layout, repo.path) / "home"
    assert (home / "visits").read_text() == f"{tree(crew)}\n" * 2
    assert repo.git("diff", "--name-only", "main", "hive/w") == ""


def test_a_set_up_that_fails_fails_the_turn_with_the_end_of_its_output_and_is_tried_again(crew, repo):
    set_up(crew, "echo half", "echo no such package >&2; exit 3")
    told = why_it_fails(crew)
    assert "no such package" in told
    assert "check_network: open" in told
    assert "setup-ada-app-" in told
    crew.close()
    set_up(crew, "echo done > deps")
    Hive.open(crew.root).tasks.retry("t")
    does(crew.start(lambda turn: Thought()), ("read_file", {"path": "deps"}))
    assert said(crew)["text"] == "done\n"


# from hand to hand


def test_what_a_killed_agent_has_not_committed_is_there_for_the_one_that_gets_its_task(pair, repo):
    pair.drop("Mend it.\n")
    killed(pair, [[write("boat", "a red boat\n")], [write("mast", "half a mast\n")]], "worktree.committing")
    (tree(pair) / "tar").write_text("in no commit\n")
    (pair.root / "agents/ada.yaml").unlink()
    hive = Hive.open(pair.root)
    hive.tasks.recovery.reclaim("ada")
    bob = pair.start(lambda turn: Thought(), "bob")
    does(bob, runs("cat boat tar; pwd"))
    assert said(pair)["text"].splitlines()[1:] == ["a red boat", "in no commit", str(tree(pair, "bob"))]
    assert findings(pair) == ["worktrees/ada"]
    apply_fixes(DoctorContext(hive.layout), _examined(pair))
    assert not (pair.root / "worktrees/ada").exists()
    does(bob, write("keel", "a keel\n"), *FINISH)
    assert {"boat", "keel", "tar"} <= set(repo.git("ls-tree", "--name-only", "hive/t").splitlines())


def test_an_agent_that_has_lost_its_task_commits_nothing_to_its_branch_any_more(crew, repo):
    crew.agent_file("shell: true\n", "bob")
    ada = at_work(crew)
    does(ada, write("boat", "ada's boat\n"))
    [work] = ada.scheduler.active_tasks.runs
    Hive.open(crew.root).tasks.recovery.reclaim("ada")
    does(crew.start(lambda turn: Thought(), "bob"), write("boat", "bob's boat\n"))
    (tree(crew) / "late").write_text("too late\n")
    work.worktrees.commit("late")
    work.worktrees.put_down()
    assert repo.show("hive/t", "boat") == "bob's boat"
    assert repo.git("rev-list", "--count", "main..hive/t") == "2"


def test_an_agent_that_gets_its_task_back_has_what_others_have_put_on_its_branch(crew, repo):
    """As the lander does with a conflict: a merge commit of the task's branch and main, with marks."""
    crew.agent_file("shell: true\n", "bob")
    ada = at_work(crew, "---\nassignee: ada\n---\nx\n")
    does(ada, write("boat", "a red boat\n"), ("hand_over", {"to": "bob", "reason": "for now"}))
    crew.drop("---\nassignee: ada\n---\nNext.\n", "u.md")
    does(ada, write("boat", "u's boat\n"), *FINISH)
    repo.commit(boat="a blue boat\n")
    repository = Repository.at(repo.path)
    before, target = (repo.git("rev-parse", branch) for branch in ("hive/t", "main"))
    merged = merge(repository, target, before, before, "merge", "x", WHO)
    marked = conflict_commit(repository, before, target, merged)
    repository.move("hive/t", marked, before, "returned")
    bob = crew.start(lambda turn: Thought(), "bob")
    does(bob, ("hand_over", {"to": "ada", "reason": "it conflicts"}))
    does(ada, ("read_file", {"path": "boat"}))
    assert all(word in said(crew)["text"] for word in ("<<<<<<<", "a red boat", "a blue boat"))
    does(ada, write("boat", "a violet boat\n"), *FINISH)
    assert repo.git("log", "--format=%P", "-1", "hive/t") == marked
    assert repo.show("hive/t", "boat") == "a violet boat"


def test_what_was_not_committed_follows_a_branch_that_others_have_moved(crew, repo):
    does(at_work(crew), write("boat", "a red boat\n"))
    crew.close()
    (tree(crew) / "tar").write_text("in no commit\n")
    repo.commit(keel="a keel\n")
    before, target = (repo.git("rev-parse", branch) for branch in ("hive/t", "main"))
    merged = str(merge(Repository.at(repo.path), before, target, before, "merge", "x", WHO).commit)
    Repository.at(repo.path).move("hive/t", merged, before, "moved")
    does(crew.start(lambda turn: Thought()), runs("cat keel tar; git status --porcelain"), *FINISH)
    assert calls_of(crew.root / "tasks/done/t")[1]["text"].splitlines()[1:] == ["a keel", "in no commit"]
    assert {"boat", "keel", "tar"} <= set(repo.git("ls-tree", "--name-only", "hive/t").splitlines())
    assert repo.git("merge-base", "--is-ancestor", merged, "hive/t") == ""


@pytest.mark.parametrize("point", ["worktree.recorded", "worktree.left", "worktree.switching", "worktree.added"])
def test_killed_while_it_goes_from_task_to_task_an_agent_loses_nothing(crew, repo, point):
    ada = at_work(crew)
    does(ada, write("boat", "t's boat\n"), runs("mkdir node_modules; touch node_modules/x"))
    Hive.open(crew.root).tasks.cancel("t")
    (tree(crew) / "tar").write_text("left over\n")
    crew.close()
    repo.commit(keel="a keel\n")
    crew.drop("Next.\n", "u.md")
    turns: Turns = [[write("mast", "a mast\n")], [*FINISH]]
    killed(crew, turns, point)
    goes_on(crew, turns)
    assert (repo.show("hive/t", "boat"), repo.show("hive/t", "tar")) == ("t's boat", "left over")
    assert repo.git("diff", "--name-only", "main", "hive/u") == "mast"
    assert findings(crew) == []
    assert not list((crew.root / "worktrees/ada").glob(".[mi]*"))


def test_the_doctor_puts_away_the_worktrees_of_an_agent_that_is_gone(crew, repo):
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"), *FINISH)
    assert findings(crew) == []
    crew.close()
    (crew.root / "agents/ada.yaml").unlink()
    crew.agent_file("role: analyst\n", "bob")
    assert findings(crew) == ["worktrees/ada"]
    apply_fixes(DoctorContext(Hive.open(crew.root).layout), _examined(crew))
    assert not (crew.root / "worktrees/ada").exists()
    assert repo.show("hive/t", "boat") == "a red boat"


def test_a_note_that_cannot_be_read_costs_its_worktree_and_not_the_next_task(crew, repo):
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"), *FINISH)
    (crew.root / "worktrees/ada/app.json").write_text("rubbish")
    put_down_ended(Hive.open(crew.root).layout, "ada", lambda _: False)
    crew.drop("Next.\n", "u.md")
    does(ada, runs("pwd"))
    assert said(crew, "u")["text"].splitlines()[1:] == [str(tree(crew, name="app-2"))]
    assert findings(crew) == ["worktrees/ada/app"]
