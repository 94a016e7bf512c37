from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import watchdog.observers.inotify  # with no descriptor left neither could be imported
import watchdog.observers.polling  # noqa: F401

from hivemind.errors import UserError
from hivemind.fs import Watcher, open_watcher
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.fs.watch import FileEvent, Inotify, TreeWatcher

from .children import run_child

_MODES = ["inotify", "poll"]


class Seen:
    """Records the paths that a watcher reports; `wait_for` blocks until a path is reported."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._more = threading.Condition()

    def __call__(self, path: Path) -> None:
        with self._more:
            self._paths.append(path)
            self._more.notify_all()

    def forget(self) -> None:
        with self._more:
            self._paths.clear()

    def has(self, path: Path) -> bool:
        with self._more:
            return path in self._paths

    def wait_for(self, path: Path, timeout: float = 20) -> None:
        with self._more:
            assert self._more.wait_for(lambda: path in self._paths, timeout), (path, self._paths)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.mark.parametrize("mode", _MODES)
def test_each_folder_is_looked_at_once_at_the_beginning(tmp_path: Path, seen: Seen, mode: str) -> None:
    (tmp_path / "before").write_text("x")
    with open_watcher(mode, [tmp_path], [], seen) as watcher:
        assert watcher.kind == mode
        seen.wait_for(tmp_path)


def _by_hand(folder: Path) -> None:
    (folder / "new").write_text("x")


def _by_rename(folder: Path) -> None:
    (folder.parent / "tmp").write_text("x")
    os.rename(folder.parent / "tmp", folder / "new")


def _by_link(folder: Path) -> None:
    (folder.parent / "tmp").write_text("x")
    os.link(folder.parent / "tmp", folder / "new")


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("arrive", [_by_hand, _by_rename, _by_link])
def test_a_file_that_arrives_is_told(tmp_path: Path, seen: Seen, mode: str, arrive: Callable[[Path], None]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with open_watcher(mode, [folder], [], seen):
        seen.wait_for(folder)
        seen.forget()
        arrive(folder)
        seen.wait_for(folder)


@pytest.mark.parametrize("mode", _MODES)
def test_folders_that_come_later_are_watched(tmp_path: Path, seen: Seen, mode: str) -> None:
    with open_watcher(mode, [tmp_path / "a"], [], seen) as watcher:
        watcher.add(tmp_path / "b")
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            seen.wait_for(tmp_path / name)
            seen.forget()
            (tmp_path / name / "file").write_text("x")
            seen.wait_for(tmp_path / name)


@pytest.mark.parametrize("mode", _MODES)
def test_a_folder_deleted_and_made_anew_is_watched_again(tmp_path: Path, seen: Seen, mode: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    with open_watcher(mode, [folder], [], seen):
        seen.wait_for(folder)
        shutil.rmtree(folder)
        seen.forget()
        folder.mkdir()
        (folder / "file").write_text("x")
        seen.wait_for(folder)
        # the look at the new folder may have come before the file: the folder is watched all the same
        seen.forget()
        (folder / "other").write_text("x")
        seen.wait_for(folder)


@pytest.mark.parametrize("mode", _MODES)
def test_a_passing_folder_is_let_go_of_once_it_is_gone(tmp_path: Path, seen: Seen, mode: str) -> None:
    passing, staying = tmp_path / "1", tmp_path / "2"  # inotify looks at them in this order
    passing.mkdir()
    staying.mkdir()
    with open_watcher(mode, [staying], [], seen) as watcher:
        watcher.add(passing, is_temporary=True)
        seen.wait_for(passing)
        os.rename(passing, tmp_path / "done")
        for name in ("a", "b"):  # what the second one shows was looked at after the move was noticed
            seen.forget()
            (staying / name).write_text("x")
            seen.wait_for(staying)
        shutil.rmtree(staying)
        seen.forget()
        for folder in (passing, staying):
            folder.mkdir()
            (folder / "c").write_text("x")
        seen.wait_for(staying)
        assert not seen.has(passing)
        watcher.add(passing, is_temporary=True)
        seen.wait_for(passing)


def test_a_folder_moved_away_with_its_parent_is_found_out_by_the_check(tmp_path: Path, seen: Seen) -> None:
    folder = tmp_path / "box" / "new"
    folder.mkdir(parents=True)
    watcher = open_watcher("inotify", [folder], [], seen)
    seen.wait_for(folder)
    os.rename(tmp_path / "box", tmp_path / "old")
    folder.mkdir(parents=True)
    seen.forget()
    watcher._check()  # what the thread does every ten seconds
    watcher.add(folder)  # wakes the thread
    seen.wait_for(folder)
    watcher.close()


def test_an_overflow_tells_of_every_folder(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    watcher = open_watcher("inotify", folders, [], seen)
    for folder in folders:
        seen.wait_for(folder)
    seen.forget()
    real = Inotify.read
    monkeypatch.setattr(Inotify, "read", lambda self: iter([FileEvent(-1, 0x4000), *real(self)]))
    (folders[0] / "file").write_text("x")
    for folder in folders:
        seen.wait_for(folder)
    monkeypatch.undo()
    watcher.close()


def test_a_real_overflow_loses_no_folder(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 20_000:
        pytest.skip("the queue is too long here to be filled in a test")
    held, other = tmp_path / "held", tmp_path / "other"
    held.mkdir()
    other.mkdir()
    blocked, go, told = threading.Event(), threading.Event(), threading.Event()

    def on_change(folder: Path) -> None:
        if folder == held and not go.is_set():
            blocked.set()
            go.wait(30)
        if folder == other and go.is_set():
            told.set()

    watcher = open_watcher("inotify", [held, other], [], on_change)
    assert blocked.wait(60)
    (held / "a").write_text("x")
    os.link(held / "a", held / "b")
    for _ in range(limit // 2 + 1):  # two events each; the kernel joins equal neighbours, these alternate
        os.rename(held / "b", held / "c")
        os.rename(held / "c", held / "b")
    (other / "file").write_text("x")  # its event falls out of the full queue
    go.set()
    assert told.wait(60)
    watcher.close()


def _watch_tree(tree: Path, seen: Seen) -> Watcher:
    return open_watcher("inotify", [], [tree], seen)


def _poll_tree(tree: Path, seen: Seen) -> TreeWatcher:
    return TreeWatcher([tree], seen, every_s=0.01)


@pytest.mark.parametrize("watch", [_watch_tree, _poll_tree])
def test_changes_in_trees_are_told_with_the_file(
    tmp_path: Path, seen: Seen, watch: Callable[[Path, Seen], Watcher | TreeWatcher]
) -> None:
    tree = tmp_path / "tree"
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "deep" / "old.md").write_text("x")
    watcher = watch(tree, seen)
    (tree / "deep" / "er" / "new.md").write_text("x")
    seen.wait_for(tree / "deep" / "er" / "new.md")
    (tree / "deep" / "old.md").unlink()
    seen.wait_for(tree / "deep" / "old.md")
    watcher.close()


def test_reading_a_tree_is_no_change(tmp_path: Path, seen: Seen) -> None:
    (tmp_path / "a.md").write_text("x")
    with open_watcher("inotify", [], [tmp_path], seen):
        (tmp_path / "a.md").read_text()
        (tmp_path / "b.md").write_text("x")
        seen.wait_for(tmp_path / "b.md")
        assert tmp_path / "a.md" not in seen._paths


def test_without_an_inotify_instance_it_polls_and_says_why(tmp_path: Path, seen: Seen) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))  # the same answer as with no instance left: EMFILE
    spare = []
    try:
        while True:
            try:
                spare.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        watcher = open_watcher("auto", [tmp_path], [tmp_path / "tree"], seen)
    finally:
        for file in spare:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert watcher.kind == "poll"
    assert watcher.reason is not None
    assert watcher.reason.startswith("no inotify instance is left: ")
    seen.wait_for(tmp_path)
    seen.forget()
    (tmp_path / "file").write_text("x")
    seen.wait_for(tmp_path)
    watcher.close()


def test_a_tree_that_cannot_be_looked_at_for_a_while_is_watched_again(tmp_path: Path, seen: Seen) -> None:
    """While a link on the path points at itself, stat fails with ELOOP and not with ENOENT."""
    (tmp_path / "disk" / "tree").mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk")
    tree = tmp_path / "link" / "tree"
    watcher = TreeWatcher([tree], seen)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("link")
    watcher.check()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("disk")
    watcher.check()
    seen.forget()
    (tree / "new.md").write_text("x")
    seen.wait_for(tree / "new.md")
    watcher.close()


_FEW_WATCHES = """
import sys, threading
from pathlib import Path
from hivemind.fs import open_watcher
Path("/proc/sys/user/max_inotify_watches").write_text("4")
tree = Path(sys.argv[1])
new = tree / "7" / "new.md"
told = {tree: threading.Event(), new: threading.Event()}
for number in range(8): Path(tree, str(number)).mkdir()
watcher = open_watcher("inotify", [], [tree], lambda path: path in told and told[path].set())
told[tree].wait(20)  # it polls from now on
new.write_text("x")
print(told[new].wait(20), watcher.reason)
watcher.close()
"""


def test_a_tree_with_more_folders_than_may_be_watched_is_polled_and_that_is_said(tmp_path: Path) -> None:
    """A new user namespace has a separate watch limit."""
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", _FEW_WATCHES, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "unshare" in ran.stderr:
        pytest.skip("no user namespace is to be had here")
    assert ran.stdout.startswith("True trees are polled: no inotify watch is left"), ran.stderr
    assert "max_user_watches" in ran.stderr


def test_an_unknown_way_of_watching_is_refused(tmp_path: Path, seen: Seen) -> None:
    with pytest.raises(UserError, match="auto, inotify, poll"):
        open_watcher("kqueue", [tmp_path], [], seen)


def test_closing_ends_the_threads_and_gives_the_descriptors_back(tmp_path: Path, seen: Seen) -> None:
    def state() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    before = state()
    for mode in _MODES:
        watcher = open_watcher(mode, [tmp_path], [tmp_path], seen)
        watcher.close()
        watcher.close()
    assert state() == before


def test_two_hundred_folders_take_one_instance_and_idle_for_nothing(tmp_path: Path) -> None:
    printed = run_child(
        """
import os, sys, threading, time
from pathlib import Path
from hivemind.fs import Watcher, open_watcher
folders = [Path(sys.argv[1]) / str(n) for n in range(200)]
for folder in folders: folder.mkdir()
left, looked = set(folders), threading.Event()
def on_change(folder):
    left.discard(folder)
    if not left: looked.set()
watcher = open_watcher("inotify", folders, [], on_change)
looked.wait()
print(sum("inotify" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
          if os.path.lexists(f"/proc/self/fd/{fd}")))
watcher.close()
""",
        tmp_path,
    )
    assert printed == "1\n"


def test_polling_sees_a_second_change_within_one_tick_of_the_clock(tmp_path: Path, seen: Seen) -> None:
    watcher = open_watcher("poll", [tmp_path], [], seen)
    seen.wait_for(tmp_path)
    state = tmp_path.stat()
    (tmp_path / "hidden").write_text("x")
    os.utime(tmp_path, ns=(state.st_atime_ns, state.st_mtime_ns))  # as if the clock had not moved on
    seen.forget()
    seen.wait_for(tmp_path)
    watcher.close()


def test_polling_does_not_mind_a_clock_that_was_set_back(tmp_path: Path, seen: Seen) -> None:
    old = time.time() - 10 * 86_400
    os.utime(tmp_path, (old, old))
    watcher = open_watcher("poll", [tmp_path], [], seen)
    seen.wait_for(tmp_path)
    seen.forget()
    os.utime(tmp_path, (old - 5, old - 5))
    seen.wait_for(tmp_path)
    watcher.close()


_TABLE = """\
25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
26 25 0:40 / /mnt/with\\040space rw - nfs4 server:/x rw
27 25 0:41 / /mnt/fuse rw master:2 - fuse.sshfs host:/ rw
28 26 8:2 / /mnt/with\\040space/local rw - xfs /dev/sdb1 rw
29 25 0:42 / /mnt/disk rw - fuseblk /dev/sdc1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/x", None),
        ("/mnt/with space/hive", "nfs4"),
        ("/mnt/with space", "nfs4"),
        ("/mnt/with space/local/hive", None),
        ("/mnt/with spaces", None),
        ("/mnt/fuse/hive", "fuse.sshfs"),
        ("/mnt/disk", None),
    ],
)
def test_network_file_systems_are_known_by_their_mount(tmp_path: Path, path: str, kind: str | None) -> None:
    (tmp_path / "mountinfo").write_text(_TABLE)
    assert needs_polling(path, mounts(os.fspath(tmp_path / "mountinfo"))) == kind


def test_a_system_without_that_table_is_taken_for_local(tmp_path: Path) -> None:
    assert needs_polling(tmp_path, mounts(os.fspath(tmp_path / "none"))) is None
