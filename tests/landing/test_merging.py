"""Merges without a checkout: commits, conflicts, marks, reverts, messages."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hivemind.landing.merging import (
    Merge,
    conflict_commit,
    landing_message,
    merge,
    rehearse_merge,
    remove_leftovers,
    revert_message,
    transplant,
    unresolved,
)
from hivemind.taskrun.git import GitProblem, git_identity
from tests.landing.repo import Repo

CODER = git_identity("coder", "coder@hive")
MESSAGE = "Read dates\n\nHive-Task: t1\nHive-Agent: coder\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "app")


def merged(repo: Repo, onto: str, tip: str, how: str = "merge", base: str | None = None) -> Merge:
    return merge(repo.repository, onto, tip, base or repo.base, how, MESSAGE, CODER)  # type: ignore[arg-type]


def marked(repo: Repo, onto: str, tip: str) -> tuple[Merge, str]:
    conflict = merged(repo, onto, tip)
    return conflict, conflict_commit(repo.repository, tip, onto, conflict)


def state(repo: Repo) -> tuple[str, str, bytes]:
    return repo.git("for-each-ref"), repo.git("status", "--porcelain"), (repo.path / ".git/index").read_bytes()


def test_a_merge_is_one_commit_of_both_parents_and_moves_nothing(repo: Repo) -> None:
    tip, onto = repo.branch(oar="an oar\n"), repo.commit(mast="a mast\n")
    before = state(repo)
    commit = merged(repo, onto, tip).commit
    assert commit is not None
    assert repo.parents(commit) == [onto, tip]
    assert repo.git("ls-tree", "--name-only", commit).split() == ["boat", "mast", "oar", "sail"]
    assert (
        repo.git("show", "-s", "--format=%an <%ae> %cn <%ce>", commit)
        == "coder <coder@hive> hivemind <hivemind@localhost>"
    )
    assert state(repo) == before


def test_a_squash_is_one_commit(repo: Repo) -> None:
    tip, onto = repo.branch(start=repo.branch(oar="an oar\n"), rope="a rope\n"), repo.commit(mast="a mast\n")
    commit = merged(repo, onto, tip, "squash").commit
    assert commit is not None
    assert repo.parents(commit) == [onto]
    assert repo.git("ls-tree", "--name-only", commit).split() == ["boat", "mast", "oar", "rope", "sail"]


def test_a_rebase_keeps_each_commit_with_its_author_and_drops_empty_ones(repo: Repo) -> None:
    first = repo.branch(oar="an oar\n", message="An oar")
    second = repo.branch(start=first, mast="a mast\n", message="A mast, as the target")
    tip = repo.branch(start=second, rope="a rope\n", message="A rope\n\nSigned-off-by: A <a@b>")
    onto = repo.commit(mast="a mast\n")
    commit = merged(repo, onto, tip, "rebase").commit
    assert commit is not None
    assert repo.git("log", "--format=%s|%an|%cn", f"{onto}..{commit}").splitlines() == [
        "A rope|Person|hivemind",
        "An oar|Person|hivemind",
    ]
    assert (
        repo.git("log", "-1", "--format=%(trailers:only)", commit).splitlines()
        == ["Hive-Task: t1", "Hive-Agent: coder", ""][:2]
    )
    assert "Signed-off-by" in repo.git("log", "-1", "--format=%B", commit)


@pytest.mark.parametrize("how", ["squash", "rebase"])
def test_a_branch_whose_changes_are_there_already_adds_no_commit(repo: Repo, how: str) -> None:
    tip, onto = repo.branch(oar="an oar\n"), repo.commit(oar="an oar\n")
    assert merged(repo, onto, tip, how).commit == onto


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_a_tip_in_the_target_is_the_target(repo: Repo, how: str) -> None:
    tip = repo.commit(oar="an oar\n")
    onto = repo.commit(mast="a mast\n")
    assert merged(repo, onto, tip, how).commit == onto


@pytest.mark.parametrize("how", ["squash", "rebase"])
def test_a_branch_with_a_merge_in_it_lands_by_merge(repo: Repo, how: str) -> None:
    onto = repo.commit(mast="a mast\n")
    inner = merged(repo, repo.branch(oar="an oar\n"), onto).commit
    assert inner is not None
    tip, target = repo.branch(start=inner, rope="a rope\n"), repo.commit(boat="a big boat\n")
    commit = merged(repo, target, tip, how).commit
    assert commit is not None
    assert repo.parents(commit) == [target, tip]


def test_a_branch_whose_commits_conflict_one_by_one_but_not_together_is_merged(repo: Repo) -> None:
    first = repo.branch(boat="a red boat\n", message="Red")
    tip, onto = repo.branch(start=first, boat="a boat\n", oar="an oar\n"), repo.commit(boat="a blue boat\n")
    commit = merged(repo, onto, tip, "rebase").commit
    assert commit is not None
    assert repo.parents(commit) == [onto, tip]
    assert repo.show(commit, "boat") == "a blue boat\n"


def test_a_branch_without_a_common_commit_is_refused(repo: Repo) -> None:
    tree = repo.git("rev-parse", "HEAD^{tree}")
    orphan = repo.git("commit-tree", tree, "-m", "an orphan")
    with pytest.raises(GitProblem, match="unrelated"):
        merged(repo, repo.commit(mast="a mast\n"), orphan, "rebase")


def test_a_conflict_names_each_path_and_its_kind(repo: Repo) -> None:
    repo.base = repo.commit(boat="a boat\n", oar="an oar\n", flag=b"\0flag", rope="".join(f"{n}\n" for n in range(30)))
    tip = repo.branch(
        boat="a red boat\n", oar=None, flag=b"\0red", rope=None, line="".join(f"{n}\n" for n in range(30)), new="1\n"
    )
    onto = repo.commit(
        boat="a blue boat\n",
        oar="a long oar\n",
        flag=b"\0blue",
        rope=None,
        cord="".join(f"{n}\n" for n in range(30)),
        new="2\n",
    )
    conflict = merged(repo, onto, tip)
    assert conflict.commit is None
    found = {row.path: (row.kind, row.is_marked) for row in conflict.conflicts}
    assert found == {
        "boat": ("changed in both", True),
        "new": ("changed in both", True),
        "flag": ("binary, changed in both", False),
        "oar": ("deleted in one, changed in the other", False),
        "cord": ("renamed in both", False),
        "line": ("renamed in both", False),
    }


def test_a_conflict_commit_has_both_parents_and_the_marks(repo: Repo) -> None:
    tip, onto = repo.branch(boat="a red boat\n"), repo.commit(boat="a blue boat\n")
    _, commit = marked(repo, onto, tip)
    assert repo.parents(commit) == [tip, onto]
    assert repo.show(commit, "boat") == f"<<<<<<< {onto}\na blue boat\n=======\na red boat\n>>>>>>> {tip}\n"
    assert unresolved(repo.repository, commit, commit, ["boat"]) == ("boat",)


def resolution(repo: Repo, text: str | None, name: str = "boat", resolved: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What is unresolved after a conflict about `boat` when the agent has written `text` to `name`."""
    doc = "Heading\n=======\n<<<<<<< HEAD\n"
    repo.base = repo.commit(boat=f"{doc}a boat\n")
    tip, onto = repo.branch(boat=f"{doc}a red boat\n"), repo.commit(boat=f"{doc}a blue boat\n")
    _, commit = marked(repo, onto, tip)
    text = text and text.replace("ONTO", onto).replace("TIP", tip)
    files: dict[str, Any] = {"boat": text} if name == "boat" else {"boat": None, name: text}
    return unresolved(repo.repository, repo.branch(start=commit, **files), commit, ["boat"], resolved)


DOC = "Heading\n=======\n<<<<<<< HEAD\n"


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (f"{DOC}a red and blue boat\n", ()),
        (None, ()),
        (f"{DOC}<<<<<<< ONTO\na boat\n", ("boat",)),
        (f"{DOC}a boat\n>>>>>>> TIP\n", ("boat",)),
        (f"{DOC}a boat\r\n>>>>>>> TIP\r\n", ("boat",)),
        (f"{DOC}a blue boat\n=======\na red boat\n", ("boat",)),
        ("Heading\n=======\n>>>>>>> a file about marks\n", ()),
        ("talks of <<<<<<< ONTO inside a line\n", ()),
    ],
)  # fmt: skip
def test_marks_of_this_merge_are_found_and_no_others(repo: Repo, text: str | None, paths: tuple[str, ...]) -> None:
    assert resolution(repo, text) == paths


def test_a_divider_can_be_said_to_be_meant_but_a_label_cannot(repo: Repo) -> None:
    assert resolution(repo, f"{DOC}a boat\n\nMore\n=======\n", resolved=("boat",)) == ()
    assert resolution(repo, f"{DOC}<<<<<<< ONTO\n", resolved=("boat",)) == ("boat",)


def test_marks_that_moved_with_a_renamed_file_are_found(repo: Repo) -> None:
    assert resolution(repo, "<<<<<<< ONTO\n", name="ship") == ("ship",)


def test_marks_of_another_width_are_found(repo: Repo) -> None:
    repo.base = repo.commit(**{".gitattributes": "boat conflict-marker-size=12\n"})
    tip, onto = repo.branch(boat="a red boat\n"), repo.commit(boat="a blue boat\n")
    conflict, commit = marked(repo, onto, tip)
    assert conflict.conflicts[0].is_marked
    assert f"{'<' * 12} {onto}" in repo.show(commit, "boat")
    half = repo.branch(start=commit, boat=f"a boat\n{'=' * 12}\n")
    assert unresolved(repo.repository, half, commit, ["boat"]) == ("boat",)


def test_attributes_of_the_target_decide_how_files_are_merged(repo: Repo) -> None:
    repo.base = repo.commit(news="one\n", table="one\n", **{".gitattributes": "news merge=union\ntable merge=binary\n"})
    tip = repo.branch(news="one\nred\n", table="red\n", boat="red\n", **{".gitattributes": "* merge=union\n"})
    onto = repo.commit(news="one\nblue\n", table="blue\n", boat="blue\n")
    conflict = merged(repo, onto, tip)
    assert [(row.path, row.is_marked) for row in conflict.conflicts] == [("boat", True), ("table", False)]
    assert repo.show(conflict.tree, "news") == "one\nblue\nred\n"


def test_a_path_without_marks_is_resolved_by_a_change_or_a_word(repo: Repo) -> None:
    tip, onto = repo.branch(boat=None), repo.commit(boat="a blue boat\n")
    conflict, commit = marked(repo, onto, tip)
    assert [(row.path, row.is_marked) for row in conflict.conflicts] == [("boat", False)]
    assert unresolved(repo.repository, commit, commit, ["boat"]) == ("boat",)
    assert unresolved(repo.repository, commit, commit, ["boat"], ["boat"]) == ()
    assert unresolved(repo.repository, repo.branch(start=commit, boat=None), commit, ["boat"]) == ()
    assert unresolved(repo.repository, repo.branch(start=commit, boat="both\n"), commit, ["boat"]) == ()


def test_a_resolved_branch_lands_as_a_merge(repo: Repo) -> None:
    tip, onto = repo.branch(boat="a red boat\n"), repo.commit(boat="a blue boat\n")
    _, commit = marked(repo, onto, tip)
    done = repo.branch(start=commit, boat="a red and blue boat\n")
    landed = merged(repo, repo.commit(mast="a mast\n"), done, "rebase").commit
    assert landed is not None
    assert repo.show(landed, "boat") == "a red and blue boat\n"


@pytest.mark.parametrize("how", ["merge", "squash"])
def test_a_revert_undoes_a_landing_and_nothing_since(repo: Repo, how: str) -> None:
    tip, onto = repo.branch(oar="an oar\n", boat="a red boat\n"), repo.commit(mast="a mast\n")
    landed = merged(repo, onto, tip, how).commit
    assert landed is not None
    repo.git("reset", "-q", "--hard", landed)
    later = repo.commit(rope="a rope\n")
    message = revert_message("Read dates", landed)
    undone = transplant(repo.repository, later, f"{landed}^1", landed, message)
    assert undone.commit is not None
    assert repo.parents(undone.commit) == [later]
    assert repo.git("ls-tree", "--name-only", undone.commit).split() == ["boat", "mast", "rope", "sail"]
    assert repo.show(undone.commit, "boat") == "a boat\n"
    assert repo.git("log", "-1", "--format=%(trailers:only)", undone.commit).strip() == f"Hive-Reverts: {landed}"
    assert transplant(repo.repository, undone.commit, f"{landed}^1", landed, message).commit == undone.commit


def test_a_revert_of_a_rebase_undoes_all_its_commits(repo: Repo) -> None:
    tip, onto = repo.branch(start=repo.branch(oar="an oar\n"), rope="a rope\n"), repo.commit(mast="a mast\n")
    landed = merged(repo, onto, tip, "rebase").commit
    assert landed is not None
    undone = transplant(repo.repository, landed, onto, landed, "Undo").commit
    assert undone is not None
    assert repo.git("rev-parse", f"{undone}^{{tree}}") == repo.git("rev-parse", f"{onto}^{{tree}}")


def test_a_revert_that_conflicts_makes_no_commit(repo: Repo) -> None:
    landed = repo.commit(boat="a red boat\n")
    later = repo.commit(boat="a dark red boat\n")
    undone = transplant(repo.repository, later, f"{landed}^1", landed, "Undo")
    assert undone.commit is None
    assert [row.path for row in undone.conflicts] == ["boat"]


def test_overlaps_are_named_and_leave_no_objects(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tip_a, tip_b, tip_c = (
        repo.branch(boat="a red boat\n"),
        repo.branch(boat="a blue boat\n"),
        repo.branch(oar="an oar\n"),
    )
    before = repo.git("count-objects")
    assert rehearse_merge(repo.repository, tip_a, tip_b)[1] == ("boat",)
    assert rehearse_merge(repo.repository, tip_a, tip_c)[1] == ()
    assert repo.git("count-objects") == before
    assert not list(tmp_path.glob("hivemind-merge-*"))


TITLES = [
    "Read dates", "Hive-Task: other", "a\n\nHive-Task: other\nHive-Agent: boss", "--- a/file", "---", "# comment", "", "\n\n",
    "x" * 5000,
    "ends in\r\n\r\nReviewed-by: me", "Signed-off-by: me <a@b>",
    "\x1b[31mred\u202e", "Überschrift " * 30, "diff --git a b",
    "# ------------------------ >8 ------------------------", "a\x0b\x0cb\u2028Hive-Tip: x", "\udcff bytes",
]  # fmt: skip


@pytest.mark.parametrize("title", TITLES)
def test_git_reads_exactly_the_trailers_of_a_message(repo: Repo, title: str) -> None:
    message = landing_message(title, "t1", "coder", repo.base, "reviewer")
    expected = f"Hive-Task: t1\nHive-Agent: coder\nHive-Tip: {repo.base}\nReviewed-by: reviewer\n".encode()
    assert repo.raw("interpret-trailers", "--parse", stdin=message.encode()) == expected
    subject, blank, *_ = message.split("\n")
    assert subject
    assert len(subject) <= 72
    assert subject.isprintable()
    assert blank == ""
    reverting = revert_message(title, repo.base)
    assert (
        repo.raw("interpret-trailers", "--parse", stdin=reverting.encode()) == f"Hive-Reverts: {repo.base}\n".encode()
    )


def test_a_secret_in_a_title_is_masked(repo: Repo) -> None:
    assert "sk-" not in landing_message(f"Use {'x' * 30} sk-abcdefghij0123456789abcd", "t1", "coder", repo.base)


@pytest.mark.parametrize("attributes", ["* merge=evil\n", "* filter=evil\n", "* diff=evil\n"])
@pytest.mark.parametrize("place", ["branch", "target", "info"])
def test_no_program_of_a_setting_runs_that_a_branch_names(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attributes: str, place: str
) -> None:
    program = f"touch {tmp_path}/ran; cat %A"
    home = tmp_path / "home"
    home.mkdir()
    names = ["merge.evil.driver", "filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "diff.evil.command"]
    (home / ".gitconfig").write_text(
        "".join(f'[{n.split(".")[0]} "evil"]\n{n.split(".")[2]} = "{program}"\n' for n in names)
    )
    if place == "target":
        repo.base = repo.commit(**{".gitattributes": attributes})
    tip = repo.branch(**({".gitattributes": attributes} if place == "branch" else {}), boat="a red boat\n", oar="1\n")
    onto = repo.commit(boat="a blue boat\n")
    monkeypatch.setenv("HOME", str(home))
    for name in (*names, "merge.renormalize"):
        repo.git("config", name, "true" if "renorm" in name else program)
    if place == "info":
        (repo.path / ".git/info").mkdir(exist_ok=True)
        (repo.path / ".git/info/attributes").write_text(attributes)
    conflict, commit = marked(repo, onto, tip)
    assert [row.path for row in conflict.conflicts if row.is_marked] == ["boat"]
    assert rehearse_merge(repo.repository, onto, tip)[1] == ("boat",)
    assert unresolved(repo.repository, commit, commit, ["boat"]) == ("boat",)
    assert transplant(repo.repository, onto, f"{onto}^1", onto, "Undo").commit
    assert not (tmp_path / "ran").exists()
    if attributes.startswith("* merge"):  # the same merge with the person's settings does run it
        repo.git("checkout", "-q", tip)
        subprocess.run(["git", "-C", repo.path, "merge-tree", "--write-tree", onto, tip], capture_output=True)
        assert (tmp_path / "ran").exists()


def test_modes_links_line_ends_and_odd_names_come_through(repo: Repo) -> None:
    repo.git("checkout", "-q", "--detach", repo.base)
    name = os.fsdecode(b'caf\xe9\n\r\t"')
    (repo.path / name).write_bytes(b"one\r\ntwo\r\n")
    (repo.path / "run").write_text("#!/bin/sh\n")
    (repo.path / "run").chmod(0o755)
    (repo.path / "link").symlink_to("/etc/passwd")
    repo.base = repo.commit()
    (repo.path / name).write_bytes(b"one\r\nred\r\n")
    tip = repo.commit()
    repo.git("checkout", "-q", "--detach", repo.base)
    (repo.path / name).write_bytes(b"one\r\nblue\r\n")
    (repo.path / "link").unlink()
    (repo.path / "link").symlink_to("/etc/group")
    onto = repo.commit()
    conflict, commit = marked(repo, onto, tip)
    assert [(row.path, row.is_marked) for row in conflict.conflicts] == [(name, True)]
    assert unresolved(repo.repository, commit, commit, [name]) == (name,)
    assert b"one\r\n<<<<<<< " in repo.raw("cat-file", "blob", b"%s:%s" % (commit.encode(), os.fsencode(name)))
    modes = {line.split("\t")[1]: line.split()[0] for line in repo.git("ls-tree", commit).splitlines()}
    assert (modes["run"], modes["link"]) == ("100755", "120000")


def test_links_and_submodules_changed_in_both_have_no_marks(repo: Repo) -> None:
    def commit(word: str, hex_digit: str) -> str:
        repo.git("checkout", "-q", "--detach", repo.base)
        (repo.path / "link").unlink(missing_ok=True)
        (repo.path / "link").symlink_to(word)
        repo.git("add", "link")
        repo.git("update-index", "--add", "--cacheinfo", f"160000,{hex_digit * 40},sub")
        repo.git("commit", "-q", "-m", word)
        commit = repo.git("rev-parse", "HEAD")
        repo.git("checkout", "-q", "-f", "main")
        return commit

    repo.base = commit("a", "a")
    tip, onto = commit("b", "b"), commit("c", "c")
    conflict, returned = marked(repo, onto, tip)
    assert {row.path: row.is_marked for row in conflict.conflicts} == {"link": False, "sub": False}
    assert "submodule" in next(row.kind for row in conflict.conflicts if row.path == "sub")
    assert unresolved(repo.repository, returned, returned, ["link", "sub"], ["sub"]) == ("link",)


def test_a_renamed_file_is_merged_where_it_went_and_its_marks_are_found(repo: Repo) -> None:
    lines = [f"sail {number}\n" for number in range(20)]
    tip = repo.branch(sail=None, spinnaker="".join(["red\n", *lines[1:]]))
    clean = merged(repo, repo.commit(sail="".join([*lines[:-1], "blue\n"])), tip)
    assert clean.commit is not None
    assert repo.show(clean.commit, "spinnaker") == "".join(["red\n", *lines[1:-1], "blue\n"])
    onto = repo.commit(sail="".join(["green\n", *lines[1:]]))
    conflict, commit = marked(repo, onto, tip)
    assert [(row.path, row.is_marked) for row in conflict.conflicts] == [("spinnaker", True)]
    assert unresolved(repo.repository, commit, commit, ["spinnaker"]) == ("spinnaker",)


def test_a_file_where_the_other_has_a_folder(repo: Repo) -> None:
    tip, onto = repo.branch(dock="a dock\n"), repo.commit(dock__pier="a pier\n")
    conflict, commit = marked(repo, onto, tip)
    assert [row.kind for row in conflict.conflicts] == ["a file in one, a folder in the other"]
    paths = [row.path for row in conflict.conflicts]
    assert unresolved(repo.repository, commit, commit, paths) == tuple(paths)


def test_a_file_in_a_folder_that_the_other_renamed_conflicts(repo: Repo) -> None:
    repo.base = repo.commit(**{f"old__{n}": f"{n}\n" * 9 for n in range(6)})
    files: dict[str, Any] = {f"old__{n}": None for n in range(6)} | {f"new__{n}": f"{n}\n" * 9 for n in range(6)}
    tip = repo.branch(**files)
    onto = repo.commit(old__more="more\n")
    conflict, commit = marked(repo, onto, tip)
    assert [(row.path, row.kind) for row in conflict.conflicts] == [
        ("new/more", "added to a folder that the other renamed")
    ]
    assert unresolved(repo.repository, commit, commit, ["new/more"]) == ("new/more",)
    assert unresolved(repo.repository, commit, commit, ["new/more"], ["new/more"]) == ()


def test_a_thousand_conflicts_are_listed_and_checked(repo: Repo) -> None:
    names = [f"file{number}" for number in range(1000)]
    repo.base = repo.commit(**dict.fromkeys(names, "a\n"))
    tip, onto = repo.branch(**dict.fromkeys(names, "b\n")), repo.commit(**dict.fromkeys(names, "c\n"))
    conflict, commit = marked(repo, onto, tip)
    assert len(conflict.conflicts) == 1000
    assert all(row.is_marked for row in conflict.conflicts)
    paths = [row.path for row in conflict.conflicts]
    done = repo.branch(start=commit, **dict.fromkeys(names[:-1], "b and c\n"))
    assert unresolved(repo.repository, done, commit, paths) == ("file999",)


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_a_sha256_repository(tmp_path: Path, how: str) -> None:
    repo = Repo(tmp_path / "long", "--object-format=sha256")
    tip, onto = repo.branch(oar="an oar\n"), repo.commit(mast="a mast\n")
    commit = merged(repo, onto, tip, how).commit
    assert commit is not None
    assert len(commit) == 64
    assert repo.show(commit, "oar") == "an oar\n"
    assert rehearse_merge(repo.repository, repo.branch(boat="red\n"), repo.branch(boat="blue\n"))[1] == ("boat",)


def test_a_shallow_repository(repo: Repo, tmp_path: Path) -> None:
    repo.commit(mast="a mast\n")
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{repo.path}", tmp_path / "flat"], check=True)
    flat = Repo.__new__(Repo)
    flat.path = tmp_path / "flat"
    flat.git("config", "user.email", "a@b")
    flat.git("config", "user.name", "A")
    flat.base = flat.git("rev-parse", "HEAD")
    tip, onto = flat.branch(oar="an oar\n"), flat.commit(rope="a rope\n")
    for how in ("merge", "squash", "rebase"):
        assert merged(flat, onto, tip, how).commit


def test_a_commit_without_a_message_or_in_another_encoding_is_rebased(repo: Repo) -> None:
    tree = repo.git("rev-parse", f"{repo.branch(oar='1')}^{{tree}}")
    raw = b"tree %s\nparent %s\nauthor  <> 1 +0000\ncommitter x <y> 2 +0000\nencoding latin1\n\ncaf\xe9" % (
        tree.encode(), repo.base.encode(),
    )  # fmt: skip
    first = repo.raw("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw).decode().strip()
    tip = repo.git(
        "commit-tree", repo.git("rev-parse", f"{repo.branch(start=first, rope='1')}^{{tree}}"), "-p", first, "-m", ""
    )
    onto = repo.commit(mast="a mast\n")
    commit = merged(repo, onto, tip, "rebase").commit
    assert commit is not None
    assert repo.git("log", "--format=%s", f"{onto}..{commit}").splitlines() == ["(no message)", "café"]
    repo.git("fsck", "--strict")


def take_over(repo: Repo, tmp_path: Path, *messages: str) -> str | None:
    """Bring commits with these messages into the repository as an agent's. Return the branch's commit."""
    subprocess.run(["git", "clone", "-q", "--shared", repo.path, tmp_path / "agent"], check=True)
    agent = Repo.__new__(Repo)
    agent.path = tmp_path / "agent"
    agent.git("config", "user.email", "a@b")
    agent.git("config", "user.name", "A")
    for message in messages:
        agent.raw("commit", "-q", "--allow-empty", "--cleanup=verbatim", "-F", "-", stdin=message.encode())
    tip = agent.git("rev-parse", "HEAD")
    words = ["git", "-C", str(agent.path), "pack-objects", "-q", "--revs", "--thin", "--stdout", "--delta-base-offset"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{tip}\n^{repo.base}\n".encode())
        process.stdin.close()
        repo.repository.take_over("hive/t", tip, None, repo.base, process.stdout.fileno(), tmp_path / "incoming")
    return repo.repository.commit_of("refs/heads/hive/t")


@pytest.mark.parametrize(
    "message",
    ["Fine\n\nHive-Task: other\n", "Fine\n\nhive-agent : boss\n\nmore\n", "Fine\n\nSigned-off-by: a\nHive-Tip: 1\n",
     "Fine\n\nx\nHIVE-NEW:\n"],
)  # fmt: skip
def test_a_commit_of_an_agent_with_a_trailer_of_the_hive_is_refused(repo: Repo, tmp_path: Path, message: str) -> None:
    with pytest.raises(GitProblem, match="take the Hive-\\* trailers out of your commit messages"):
        take_over(repo, tmp_path, message, "The last commit is fine")
    assert repo.repository.commit_of("refs/heads/hive/t") is None


@pytest.mark.parametrize(
    "message", ["Hive-Task: as a title\n", "Beehive\n\nBeehive-Task: x\n", "A\n\nSee the Hive-Task: line\n", ""]
)
def test_other_messages_of_agents_come_in(repo: Repo, tmp_path: Path, message: str) -> None:
    repo.base = repo.commit(message="Landed\n\nHive-Task: t0")
    assert take_over(repo, tmp_path, message or "x", "more") is not None


def test_git_folders_of_merges_that_were_killed_are_removed_after_a_day(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("hivemind-merge-old", "hivemind-merge-new", "other"):
        (tmp_path / name / "refs").mkdir(parents=True)
    (tmp_path / "hivemind-merge-old/objects").symlink_to(tmp_path / "other")
    for name in ("hivemind-merge-old", "other"):
        os.utime(tmp_path / name, (0, 0))
    remove_leftovers()
    assert sorted(os.listdir(tmp_path)) == ["hivemind-merge-new", "other"]
    assert (tmp_path / "other/refs").is_dir()
