"""The move of a target that a person has checked out: races with git, kills, filters, and everything that makes it wait."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hivemind import fs
from hivemind.errors import HivemindError
from hivemind.fs import crash
from hivemind.landing.checkout import TargetBusy, TargetMoved, checkout_of, checkout_signature, move_target
from hivemind.taskrun.git import lock_worktrees
from tests.fs.small_disk import fill, small_disk
from tests.landing.repo import Repo
from tests.waiting import until

POINTS = [
    f"landing.checkout.{point}"
    for point in ("saved", "locked", "copied", "asked", "moved", "written", "renamed", "released")
]  # fmt: skip


class Landing:
    """A landing that changes, adds, deletes and links files. The record is kept in a file, so a second process can go on."""

    def __init__(self, repo: Repo, record: Path) -> None:
        self.repo, self.record = repo, record
        repo.commit(old="old\n", deep__old="old\n")
        (repo.path / "link").symlink_to("boat")
        (repo.path / "run").write_text("#!/bin/sh\n")
        self.old = repo.commit()
        repo.git("checkout", "-q", "--detach")
        (repo.path / "link").unlink()
        (repo.path / "link").symlink_to("sail")
        (repo.path / "run").chmod(0o755)
        self.new = repo.commit(boat="a red boat\n" * 99, oar="an oar\n", new__deep="new\n", old=None, deep__old=None)
        repo.git("checkout", "-q", "main")

    def save(self, record: dict[str, Any] | None) -> None:
        if record is None:
            self.record.unlink(missing_ok=True)
        else:
            fs.write(self.record, json.dumps(record).encode())

    def move(self, repo: Repo | None = None) -> tuple[str, ...]:
        with lock_worktrees(self.record.with_name("lock")) as hold:
            saved = json.loads(self.record.read_text()) if self.record.exists() else None
            repository = replace((repo or self.repo).repository, hold=hold)
            return move_target(repository, "main", self.old, self.new, saved, self.save)

    def assert_landed(self, status: str = "") -> None:
        """The checkout is at the new commit with the person's changes, and nothing of the landing is left in the git folder."""
        assert self.repo.git("rev-parse", "main") == self.new
        assert self.repo.git("status", "--porcelain") == status
        self.assert_clean_git()

    def assert_clean_git(self) -> None:
        left = [
            path.name
            for path in (self.repo.path / ".git").iterdir()
            if "hivemind-" in path.name or path.suffix == ".lock"
        ]
        assert left == []
        assert not self.record.exists()
        assert subprocess.run(["git", "-C", self.repo.path, "fsck", "--strict"], capture_output=True).returncode == 0


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "app")


@pytest.fixture
def landing(repo: Repo, tmp_path: Path) -> Landing:
    return Landing(repo, tmp_path / "record")


def forked(work: Callable[[], object], point: str = "") -> int:
    """Start `work` in a process, which dies at a crash point. Return its id."""
    child = os.fork()
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    if child:
        return child
    status = 1
    try:
        crash._remaining_passes = crash._armed_points(point)
        work()
        status = 0
    except HivemindError:
        status = 3
    finally:
        os._exit(status)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_files_index_and_branch_move_together(landing: Landing) -> None:
    assert landing.move() == ()
    landing.assert_landed()
    assert landing.repo.commit(mast="a mast\n")
    assert landing.repo.git("diff", "--name-only", landing.new, "main") == "mast"
    assert "landed" in landing.repo.git("reflog", "-2", "main")


def test_a_move_that_was_made_is_made_once(landing: Landing) -> None:
    landing.move()
    assert landing.move() == ()
    landing.assert_landed()


def test_changes_of_the_person_in_other_files_stay(landing: Landing) -> None:
    (landing.repo.path / "sail").write_text("my sail\n")
    (landing.repo.path / "mine").write_text("mine\n")
    (landing.repo.path / "staged").write_text("staged\n")
    landing.repo.git("add", "staged")
    assert landing.move() == ()
    landing.assert_landed(" M sail\nA  staged\n?? mine")


def untouched(landing: Landing) -> dict[str, object]:
    files = {
        str(path): path.read_bytes()
        for path in landing.repo.path.rglob("*")
        if path.is_file() and ".git/" not in str(path)
    }
    return {**files, "status": landing.repo.git("status", "--porcelain"), "main": landing.repo.git("rev-parse", "main")}


def write(name: str, text: str = "mine\n") -> Callable[[Repo], object]:
    def change(repo: Repo) -> None:
        (repo.path / name).parent.mkdir(parents=True, exist_ok=True)
        (repo.path / name).write_text(text)

    return change


def staged(repo: Repo) -> None:
    write("boat")(repo)
    repo.git("add", "boat")


def ignored(repo: Repo) -> None:
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/exclude").write_text("oar\nnew\n")
    write("oar")(repo)


def ignored_file_for_folder(repo: Repo) -> None:
    ignored(repo)
    (repo.path / "oar").unlink()
    write("new")(repo)


def ignored_folder_for_file(repo: Repo) -> None:
    ignored(repo)
    (repo.path / "oar").unlink()
    write("oar/deep/mine")(repo)


def merging(repo: Repo) -> None:
    tip = repo.git("commit-tree", "main^{tree}", "-p", repo.base, "-m", "other")
    repo.git("merge", "--no-commit", "--no-ff", tip)


def rebasing(repo: Repo) -> None:
    repo.git("-c", "sequence.editor=sed -i s/pick/edit/", "rebase", "-q", "-i", "HEAD~1")


def bisecting(repo: Repo) -> None:
    repo.git("bisect", "start", "main", repo.base)


BUSY = {
    "a changed file": (write("boat"), "boat is changed in your checkout"),
    "a staged file": (staged, "boat is changed in your checkout"),
    "a changed file that goes": (write("old"), "old is changed in your checkout"),
    "an untracked file": (write("oar"), "untracked oar"),
    "an ignored file": (ignored, "untracked oar"),
    "an untracked file in a folder": (
        write("new/deep"),
        "new/deep is new, and your checkout has an untracked new/deep",
    ),
    "an ignored file in the place of a folder": (ignored_file_for_folder, "untracked new"),
    "an ignored folder in the place of a file": (ignored_folder_for_file, "untracked oar"),
    "a lock": (write(".git/index.lock", ""), "another git is at work"),
    "a lock of the ref": (write(".git/refs/heads/main.lock", ""), "main cannot move"),
    "a merge": (merging, "a merge of main is under way"),
    "a rebase": (rebasing, "a rebase of main is under way"),
    "a bisect": (bisecting, "a bisect of main is under way"),
}


@pytest.mark.parametrize(("change", "reason"), BUSY.values(), ids=BUSY.keys())
def test_a_checkout_that_cannot_move_waits_and_nothing_changes(
    landing: Landing, change: Callable[[Repo], object], reason: str
) -> None:
    calm = checkout_signature(landing.repo.repository)
    change(landing.repo)
    before, locks = untouched(landing), list(landing.repo.path.glob(".git/**/*.lock"))
    with pytest.raises(TargetBusy, match=reason) as busy:
        landing.move()
    assert untouched(landing) == before
    assert list(landing.repo.path.glob(".git/**/*.lock")) == locks
    assert not landing.record.exists()
    assert checkout_signature(landing.repo.repository, busy.value.path) != calm


def test_the_signature_changes_when_the_blocking_file_does(landing: Landing) -> None:
    write("oar")(landing.repo)
    with pytest.raises(TargetBusy) as busy:
        landing.move()
    signature = checkout_signature(landing.repo.repository, busy.value.path)
    assert signature == checkout_signature(landing.repo.repository, busy.value.path)
    (landing.repo.path / "oar").unlink()
    assert signature != checkout_signature(landing.repo.repository, busy.value.path)
    landing.move()
    landing.assert_landed()


def test_a_target_that_moved_begins_again(landing: Landing) -> None:
    person = landing.repo.commit(mast="a mast\n")
    with pytest.raises(TargetMoved):
        landing.move()
    assert landing.repo.git("rev-parse", "main") == person
    landing.assert_clean_git()


def test_a_change_that_only_its_content_shows_is_seen(landing: Landing) -> None:
    """Git compares contents if a file is as old as the index; a copy of the index needs the same time."""
    for name in ("core.trustctime=false", "core.checkStat=minimal"):
        landing.repo.git("config", *name.split("="))
    boat = landing.repo.path / "boat"
    times = (boat.stat().st_mtime_ns - 10**11,) * 2
    os.utime(boat, ns=times)
    landing.repo.git("update-index", "--refresh")
    boat.write_text("a bark\n")
    for path in (boat, landing.repo.path / ".git/index"):
        os.utime(path, ns=times)
    with pytest.raises(TargetBusy, match="boat is changed"):
        landing.move()


@pytest.mark.parametrize("gone", ["deleted", "elsewhere"])
def test_a_branch_that_is_checked_out_nowhere(landing: Landing, gone: str) -> None:
    landing.repo.git("checkout", "-q", "--detach")
    if gone == "deleted":
        landing.repo.git("branch", "-D", "main")
        with pytest.raises(TargetMoved):
            landing.move()
        return
    assert checkout_of(landing.repo.repository, "main") is None
    assert landing.move() == ()
    assert landing.repo.git("rev-parse", "main") == landing.new
    assert landing.repo.git("status", "--porcelain") == ""


def test_a_checkout_of_the_branch_that_has_begun_is_waited_for(landing: Landing, tmp_path: Path) -> None:
    """It has read the old commit: a branch that moved now would look as if the person had undone the landing."""
    repo, began, go = landing.repo, tmp_path / "began", tmp_path / "go"
    repo.git("checkout", "-q", "-b", "elsewhere")
    repo.git("config", "filter.slow.smudge", f"touch {began}; until test -e {go}; do sleep 0.01; done; cat")
    (repo.path / ".git/info/attributes").write_text("boat filter=slow\n")
    repo.commit(boat="another boat\n")
    switch = subprocess.Popen(["git", "-C", repo.path, "checkout", "-q", "main"])
    until(began.exists)
    try:
        with pytest.raises(TargetBusy, match="another git is at work"):
            landing.move()
    finally:
        go.touch()
        assert switch.wait() == 0
    landing.move()
    landing.assert_landed()


@pytest.mark.parametrize("point", ["landing.checkout.all_locked", "landing.checkout.moved_alone"])
def test_a_kill_while_every_checkout_is_locked_leaves_no_lock(landing: Landing, point: str) -> None:
    landing.repo.git("checkout", "-q", "-b", "elsewhere")
    assert ended(forked(landing.move, point)) == -signal.SIGKILL
    landing.move()
    assert landing.repo.git("rev-parse", "main") == landing.new
    landing.assert_clean_git()


@pytest.mark.parametrize("root_is_linked", [False, True])
def test_a_linked_worktree_that_has_the_branch(landing: Landing, tmp_path: Path, root_is_linked: bool) -> None:
    landing.repo.git("checkout", "-q", "-b", "other")
    linked = Repo.__new__(Repo)
    linked.path = tmp_path / "linked é"
    landing.repo.git("worktree", "add", "-q", str(linked.path), "main")
    assert landing.move(linked if root_is_linked else None) == ()
    assert (linked.git("status", "--porcelain"), linked.git("rev-parse", "HEAD")) == ("", landing.new)
    assert landing.repo.git("status", "--porcelain") == ""
    for path in linked.path.iterdir():
        if path.name != ".git":
            subprocess.run(["rm", "-r", path], check=True)
    (linked.path / ".git").unlink()
    linked.path.rmdir()
    assert checkout_of(landing.repo.repository, "main") is None
    landing.repo.git("worktree", "lock", str(linked.path))
    with pytest.raises(TargetBusy, match="not mounted"):
        checkout_of(landing.repo.repository, "main")


def test_the_main_checkout_moves_although_the_root_is_a_linked_worktree(landing: Landing, tmp_path: Path) -> None:
    linked = Repo.__new__(Repo)
    linked.path = tmp_path / "linked"
    landing.repo.git("worktree", "add", "-q", "-b", "side", str(linked.path))
    assert landing.move(linked) == ()
    landing.assert_landed()


def test_hooks_do_not_run_and_the_filters_of_the_person_do(repo: Repo, tmp_path: Path) -> None:
    repo.git("config", "filter.upper.smudge", "tr a-z A-Z")
    repo.git("config", "filter.upper.clean", "tr A-Z a-z")
    repo.commit(**{".gitattributes": "boat filter=upper\nsail text eol=crlf\n"})
    landing = Landing(repo, tmp_path / "record")
    for hook in ("reference-transaction", "post-index-change", "post-checkout", "post-merge"):
        path = repo.path / ".git/hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        path.chmod(0o755)
    landing.move()
    assert not (tmp_path / "ran").exists()
    assert (repo.path / "boat").read_text() == "A RED BOAT\n" * 99
    repo.git("config", "core.hooksPath", os.devnull)
    landing.assert_landed()


@pytest.mark.parametrize("setting", ["core.splitIndex", "core.untrackedCache", "index.sparse", "core.ignoreCase"])
def test_indexes_of_other_kinds(landing: Landing, setting: str) -> None:
    landing.repo.git("config", setting, "true")
    landing.repo.git("update-index", "--refresh")
    landing.repo.git("status", "--porcelain")
    landing.repo.git("add", "-A")
    landing.move()
    landing.assert_landed()


def test_a_sparse_checkout_stays_sparse(landing: Landing) -> None:
    landing.repo.git("sparse-checkout", "set", "--no-cone", "/*", "!/oar", "!/new", "!/boat")
    landing.move()
    landing.assert_landed()
    assert not any((landing.repo.path / name).exists() for name in ("oar", "boat", "new"))


def test_a_submodule_is_left_to_the_person(repo: Repo, tmp_path: Path) -> None:
    inner = Repo(tmp_path / "inner")
    second = inner.commit(mast="1")
    inner.git("checkout", "-q", inner.base)
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
    old = repo.commit()
    repo.git("update-index", "--cacheinfo", f"160000,{second},sub")
    repo.git("commit", "-q", "-m", "sub")
    new = repo.git("rev-parse", "HEAD")
    repo.git("reset", "-q", "--hard", old)
    assert move_target(repo.repository, "main", old, new, None, lambda _: None) == ()
    assert repo.git("ls-files", "-s", "sub").split()[1] == second
    assert repo.git("status", "--porcelain") == " M sub"


def test_a_checkout_that_cannot_be_written_waits(landing: Landing) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (landing.repo.path / "deep").chmod(0o555)
    with pytest.raises(TargetBusy, match="not writable"):
        landing.move()
    (landing.repo.path / "deep").chmod(0o755)
    landing.assert_clean_git()


def test_a_full_disk_is_an_error_of_the_system_and_the_move_goes_on_later(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=4m"):
        repo = Repo(tmp_path / "disk/app")
        landing = Landing(repo, tmp_path / "record")
        landing.old = repo.git("rev-parse", "main")
        repo.git("checkout", "-q", "--detach")
        landing.new = repo.commit(big=b"0" * (1 << 20))
        repo.git("checkout", "-q", "main")
        ballast = fill(tmp_path / "disk", 40)
        with pytest.raises((OSError, HivemindError)):
            landing.move()
        ballast.unlink()
        landing.move()
        landing.assert_landed()


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_is_finished_by_the_next_move(landing: Landing, point: str) -> None:
    (landing.repo.path / "sail").write_text("my sail\n")
    assert ended(forked(landing.move, point)) == -signal.SIGKILL
    for name in POINTS[:3]:  # a second kill in the next move
        ended(forked(landing.move, name))
    assert landing.move() == ()
    landing.assert_landed(" M sail")


def half_written(landing: Landing) -> None:
    """Leave the checkout as a git that was killed while it wrote files."""
    assert ended(forked(landing.move, "landing.checkout.moved")) == -signal.SIGKILL
    path = landing.repo.path
    (path / "boat").write_text("a red boat\na re")
    (path / "oar").write_text("")
    (path / "old").unlink()
    (path / "link").unlink()
    (path / ".git" / f"hivemind-{json.loads(landing.record.read_text())['token']}.lock").write_text("DIRC")


@pytest.mark.parametrize("point", ["landing.checkout.asked", "landing.checkout.moved", "landing.checkout.all_locked"])
def test_locks_of_refs_that_a_killed_git_has_left_are_removed(landing: Landing, point: str) -> None:
    if point == "landing.checkout.all_locked":
        landing.repo.git("checkout", "-q", "-b", "elsewhere")
    assert ended(forked(landing.move, point)) == -signal.SIGKILL
    git = landing.repo.path / ".git"
    (git / "HEAD.lock").touch()
    if point != "landing.checkout.moved":
        (git / "refs/heads/main.lock").write_text(landing.new)
    landing.move()
    assert landing.repo.git("rev-parse", "main") == landing.new
    assert [*git.rglob("*.lock")] == []
    landing.repo.git("checkout", "-q", "main")
    landing.assert_landed()


def test_half_written_files_are_completed(landing: Landing) -> None:
    half_written(landing)
    assert landing.move() == ()
    landing.assert_landed()


@pytest.mark.parametrize(
    ("name", "status"), [("boat", " M boat"), ("oar", " M oar"), ("old", "?? old"), ("new/deep", " M new/deep")]
)
def test_a_file_that_the_person_changed_after_the_kill_is_left_and_named(
    landing: Landing, name: str, status: str
) -> None:
    half_written(landing)
    write(name, "mine\n")(landing.repo)
    assert ended(forked(landing.move, "landing.checkout.written")) == -signal.SIGKILL
    assert landing.move() == (name,)
    assert (landing.repo.path / name).read_text() == "mine\n"
    landing.assert_landed(status)


def test_half_a_file_that_a_filter_writes_is_completed(repo: Repo, tmp_path: Path) -> None:
    repo.git("config", "filter.upper.smudge", "tr a-z A-Z")
    repo.git("config", "filter.upper.clean", "tr A-Z a-z")
    repo.commit(**{".gitattributes": "boat filter=upper\n"})
    landing = Landing(repo, tmp_path / "record")
    half_written(landing)
    (repo.path / "boat").write_text("A RED BOAT\nA")
    assert landing.move() == ()
    landing.assert_landed()


def test_a_lock_that_the_person_took_away_does_not_stop_the_next_move(landing: Landing) -> None:
    half_written(landing)
    (landing.repo.path / ".git/index.lock").unlink()
    assert landing.move() == ()
    landing.assert_landed()


def test_a_lock_of_another_git_is_never_taken_for_ours(landing: Landing) -> None:
    half_written(landing)
    lock = landing.repo.path / ".git/index.lock"
    lock.write_text("DIRC")  # the same inode
    with pytest.raises(TargetBusy, match="another git"):
        landing.move()
    assert lock.read_text() == "DIRC"
    lock.unlink()
    landing.move()
    landing.assert_landed()


def test_no_commit_of_the_person_undoes_a_landing(landing: Landing) -> None:
    """While the lock is there, the person's git refuses; the commit after it has the landing."""
    half_written(landing)
    for words in (["add", "-A"], ["commit", "-q", "-a", "-m", "mine"], ["commit", "-q", "--allow-empty", "-m", "mine"]):
        assert subprocess.run(["git", "-C", landing.repo.path, *words], capture_output=True).returncode
    landing.move()
    landing.repo.commit(mast="a mast\n")
    assert landing.repo.git("diff", "--name-only", landing.new, "main") == "mast"


RACES = {
    "add": "echo $n > mine; git add mine; git reset -q mine",
    "commit": "echo $n > mine; git add mine && git commit -q -m mine",
    "commit -a": "echo $n >> sail; git commit -q -a -m mine",
    "rebase": "git commit -q --allow-empty -m mine; git rebase -q --force-rebase HEAD~1 || git rebase --abort",
    "checkout": "git checkout -q side; git checkout -q main",
    "stash": "echo $n >> sail; git stash -q; git stash pop -q",
}


@pytest.mark.parametrize("race", RACES)
def test_the_person_works_while_branches_land(repo: Repo, race: str) -> None:
    """Land four commits while the person's git does thirty things, and the lander is killed at random."""
    repo.git("branch", "side")
    is_over = f"[ -e {repo.path}/.git/over ]"
    loop = f"n=0; until [ $n = 30 ] || {is_over}; do n=$((n+1)); {RACES[race]}; sleep 0.1; done; git rebase --abort"
    person = subprocess.Popen(["sh", "-c", loop], cwd=repo.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    record = repo.path.parent / "record"
    dice, landed = random.Random(race), []
    try:
        for number in range(4):
            while number not in landed:
                landing = Landing.__new__(Landing)
                landing.repo, landing.record = repo, record
                if record.exists():
                    saved = json.loads(record.read_text())
                    landing.old, landing.new = saved["old"], saved["new"]
                else:
                    landing.old = repo.git("rev-parse", "main")
                    if f"landed{number}" in repo.git("ls-tree", "--name-only", landing.old).splitlines():
                        landed.append(number)
                        break
                    landing.new = landed_commit(repo, landing.old, number)
                child = forked(landing.move)
                if dice.random() < 0.5:
                    time.sleep(dice.random() * 0.2)
                    (os.killpg if dice.random() < 0.5 else os.kill)(
                        child, signal.SIGKILL
                    )  # git goes on in the second case
                ended(child)
    finally:
        (repo.path / ".git/over").touch()
        person.wait()
    assert not record.exists()
    assert landed == list(range(4))
    subprocess.run(["git", "-C", repo.path, "rebase", "--abort"], capture_output=True)
    repo.git("checkout", "-q", "main")
    for number in range(4):
        assert repo.show("main", f"landed{number}") == f"{number}\n"
        assert (repo.path / f"landed{number}").exists()
    status = repo.git("status", "--porcelain").splitlines()
    assert [line for line in status if line[3:] not in ("mine", "sail")] == []
    landing.assert_clean_git()


def landed_commit(repo: Repo, old: str, number: int) -> str:
    blob = repo.raw("hash-object", "-w", "--stdin", stdin=f"{number}\n".encode()).decode().strip()
    tree = repo.raw("mktree", stdin=repo.raw("ls-tree", old) + f"100644 blob {blob}\tlanded{number}\n".encode())
    return repo.git("commit-tree", tree.decode().strip(), "-p", old, "-m", f"land {number}")
