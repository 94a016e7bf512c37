"""Unified diffs: what git and diff write is read, hunks are applied exactly where they stand, and a slip is named."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.tools.patch import PatchProblem, patched, read_patch
from tests.agent.conftest import Crew, hands

OLD = "".join(f"line {number}\n" for number in range(1, 31))


def apply(text: str, patch: str) -> str:
    [file] = read_patch(patch)
    return patched(text, file)


def diff(old: str, new: str, context: int = 3) -> str:
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), "a/x", "b/x", n=context)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


@given(
    st.lists(st.sampled_from("ab\n-+@ "), max_size=60),
    st.lists(st.sampled_from("ab\n-+@ "), max_size=60),
    st.integers(1, 3),
)
def test_every_difference_of_two_texts_leads_from_one_to_the_other(
    old: list[str], new: list[str], context: int
) -> None:
    before, after = "x\n" + "".join(old), "x\n" + "".join(new)
    if before != after:
        assert apply(before, diff(before, after, context)) == after


def test_a_hunk_is_found_where_its_lines_moved_to_and_the_nearest_place_is_taken() -> None:
    patch = diff(OLD, OLD.replace("line 9\n", "nine\n"))
    moved = "new\n" * 7 + OLD
    assert apply(moved, patch) == moved.replace("line 9\n", "nine\n")
    twice = OLD + OLD
    assert apply(twice, patch) == OLD.replace("line 9\n", "nine\n") + OLD


def test_counts_that_are_wrong_and_blanks_that_got_lost_do_no_harm() -> None:
    text = "one\n\ntwo\nthree\n"
    assert (
        apply(text, "--- a/x\n+++ b/x\n@@ -1,9 +1,7 @@ def f():\n one\n\n-two\n+2\n three\n\n\n") == "one\n\n2\nthree\n"
    )
    assert apply(text, "--- x\n+++ x\n@@ @@\n two\n+and\n") == "one\n\ntwo\nand\nthree\n"


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ("just words\n", "is not a unified diff; begin each file with --- a/PATH"),
        ("--- a/x\n+++ b/x\n", "x has no hunk"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n line 1\n", "changes nothing"),
        (
            "--- a/x\n+++ b/x\n@@ -2,2 +2,2 @@\n line 2\n-line three\n+3\n",
            "line 3 is 'line 3', but the hunk has 'line three'",
        ),
        (
            "--- a/x\n+++ b/x\n@@ -2 +2 @@\n-nowhere\n+2\n",
            "hunk 1 of x (@@ -2 +2 @@) does not apply: no line is 'nowhere'",
        ),
        ("--- a/x\n+++ b/x\n@@ -30 +30,2 @@\n line 30\n-line 31\n", "the file ends before it"),
        ("--- a/x\n+++ b/x\n@@ -9 +9 @@\n-line 9\n+9\n@@ -2 +2 @@\n-line 2\n+2\n", "hunk 2 of x"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-line 1\n+1\nand so on\n", "line 6 of the patch begins with none of"),
        ("@@ -1 +1 @@\n-a\n+b\n", "has no file: "),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "changes a mode"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "has /dev/null on both sides"),
    ],
)
def test_what_cannot_be_applied_is_said_with_its_place(patch: str, told: str) -> None:
    with pytest.raises(PatchProblem) as refused:
        apply(OLD, patch)
    assert told in str(refused.value)


def test_a_patch_of_git_changes_makes_moves_and_deletes_files_and_keeps_their_modes(crew: Crew) -> None:
    folder = crew.root / "knowledge"
    for name, text in {"changed.md": OLD, "gone.md": "gone\n", "moved.sh": OLD, "moved-too.md": "whole\n"}.items():
        (folder / name).write_text(text)
    (folder / "moved.sh").chmod(0o755)

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("add", ".")
    git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x")
    (folder / "changed.md").write_text(OLD.replace("line 2\n", "two\n").replace("line 29\n", ""))
    (folder / "gone.md").unlink()
    (folder / "moved.sh").rename(folder / "here.sh")
    (folder / "here.sh").write_text(OLD.replace("line 15\n", "fifteen\n"))
    (folder / "moved-too.md").rename(folder / "here-too.md")
    (folder / "new.md").write_text("made\nwithout end")
    after = {path.name: path.read_text() for path in folder.glob("[!.]*.*")}
    git("add", "-A")
    patch = git("diff", "--cached", "-M", "--src-prefix=a/knowledge/", "--dst-prefix=b/knowledge/")
    patch = patch.replace("rename from ", "rename from knowledge/").replace("rename to ", "rename to knowledge/")
    git("reset", "-q", "--hard")

    result = hands(crew)("apply_patch", patch=patch)["result"]
    assert {path.name: path.read_text() for path in folder.glob("[!.]*.*")} == after
    assert (folder / "here.sh").stat().st_mode & 0o100
    assert {(one["change"], one["path"]) for one in result["files"]} == {
        ("changed", "knowledge/changed.md"), ("deleted", "knowledge/gone.md"), ("made", "knowledge/new.md"),
        ("moved knowledge/moved.sh to", "knowledge/here.sh"), ("moved knowledge/moved-too.md to", "knowledge/here-too.md"),
    }  # fmt: skip


def test_a_patch_of_which_one_hunk_does_not_fit_changes_nothing(crew: Crew) -> None:
    for name in ("a.md", "b.md"):
        (crew.root / "knowledge" / name).write_text("one\ntwo\n")
    use = hands(crew)
    good = "--- a/knowledge/a.md\n+++ b/knowledge/a.md\n@@ -1 +1 @@\n-one\n+1\n"
    for bad, told in {
        "--- a/knowledge/b.md\n+++ b/knowledge/b.md\n@@ -1 +1 @@\n-three\n+3\n": "hunk 1 of knowledge/b.md",
        "--- /dev/null\n+++ b/knowledge/b.md\n@@ -0,0 +1 @@\n+new\n": "already exists",
        "--- a/knowledge/b.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n": "has more lines than the patch deletes",
        "--- a/knowledge/c.md\n+++ b/knowledge/c.md\n@@ -1 +1 @@\n-one\n+1\n": "No such file",
        "--- a/rom/hive.md\n+++ b/rom/hive.md\n@@ -1 +1 @@\n-one\n+1\n": "",
        "--- /dev/null\n+++ b/hive.yaml\n@@ -0,0 +1 @@\n+new\n@@ @@\n+b\n": "",
        "--- a/knowledge/b.md\n+++ b/knowledge/b.md\n@@ -1 +1 @@\n-one\n+1\n" + good: "is in the patch twice",
    }.items():
        assert told in use("apply_patch", patch=good + bad)["error"], bad
        assert [(crew.root / "knowledge" / name).read_text() for name in ("a.md", "b.md")] == ["one\ntwo\n"] * 2
    folder = crew.root / "knowledge/full"
    folder.mkdir()
    (folder / "c.md").write_text("one\n")
    folder.chmod(0o500)  # the second write fails: the first is undone
    if not _can_write(folder):
        late = "--- a/knowledge/full/c.md\n+++ b/knowledge/full/c.md\n@@ -1 +1 @@\n-one\n+1\n"
        assert "cannot be written" in use("apply_patch", patch=good + late)["error"]
        assert (crew.root / "knowledge/a.md").read_text() == "one\ntwo\n"
    folder.chmod(0o700)


def _can_write(folder: Path) -> bool:
    try:
        (folder / "probe").touch()
    except PermissionError:
        return False
    return True


def test_what_was_shown_masked_is_not_written_back(crew: Crew) -> None:
    secret = "ghp_a1b2c3d4e5f6g7h8i9j0k1l2m3n4"
    path = crew.root / "knowledge/deploy.sh"
    path.write_text(f"TOKEN={secret}\necho [masked] is written so\n")
    use = hands(crew)
    shown = use("read_file", path="knowledge/deploy.sh")["result"]["text"]
    assert secret not in shown
    patch = "--- a/knowledge/deploy.sh\n+++ b/knowledge/deploy.sh\n@@ -2 +2,2 @@\n echo [masked] is written so\n+T=[masked]\n"
    for tool, arguments in (
        ("write_file", {"path": "knowledge/deploy.sh", "text": shown}),
        ("write_file", {"path": "copy.sh", "text": shown}),
        ("edit_file", {"path": "knowledge/deploy.sh", "old": "echo", "new": "[masked]"}),
        ("apply_patch", {"patch": patch}),
    ):
        assert "hides a secret" in use(tool, **arguments)["error"], tool
    assert "error" not in use("edit_file", path="knowledge/deploy.sh", old="is written so", new="stays")
    assert path.read_text() == f"TOKEN={secret}\necho [masked] stays\n"
