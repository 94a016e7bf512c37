"""The append-only log has whole lines in order after kills, full disks, torn lines, replaced and moved files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import Log, LogDamaged

from .children import run_child, start_child
from .small_disk import fill, small_disk

CHILD = """
import os, sys
from hivemind.fs import Log
path, count, numbered = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "numbered"
log = Log(path, "things", 1, numbered=numbered, durable=False)
for number in range(count):
    log.append({"by": os.getpid(), "n": number, "text": "x" * (number * 37 % 500)})
    print(number, flush=True)
"""


def numbered(path: Path, **given: Any) -> Log:
    return Log(path, "things", 1, numbered=True, **{"durable": False, **given})


def loose(path: Path, **given: Any) -> Log:
    return Log(path, "things", 1, **{"durable": False, **given})


def texts(log: Log) -> list[Any]:
    return [record["n"] for record in log.records()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def test_a_log_is_a_header_and_a_line_for_each_record(path: Path) -> None:
    log = numbered(path)
    assert log.read() == []
    assert log.append({"text": "Grüße\n"}) == 1
    assert log.append({"n": 2}, {"n": 3}) == 3
    assert path.read_text() == (
        '{"kind":"things","version":1}\n'
        '{"seq":1,"text":"Grüße\\n"}\n'
        '[{"seq":2,"n":2},{"seq":3,"n":3}]\n'
    )  # fmt: skip
    assert [record["seq"] for record in numbered(path).read()] == [1, 2, 3]
    assert os.listdir(path.parent) == [path.name]


def test_a_reader_is_given_what_is_new_and_not_what_it_wrote_itself(path: Path) -> None:
    first_log, second_log = numbered(path), numbered(path)
    first_log.append({"n": 1})
    assert first_log.read() == []
    assert second_log.read() == [{"seq": 1, "n": 1}]
    second_log.append({"n": 2})
    assert first_log.read() == [{"seq": 2, "n": 2}]
    assert first_log.append({"n": 3}) == 3
    assert (second_log.read(), second_log.seq) == ([{"seq": 3, "n": 3}], 3)
    assert first_log.epoch == second_log.epoch == 0


def test_who_appends_without_having_read_all_is_given_all_of_it_later(path: Path) -> None:
    first_log, second_log = numbered(path), numbered(path)
    first_log.append({"n": 1})
    assert second_log.append({"n": 2}) == 2
    assert [record["n"] for record in second_log.read()] == [1, 2]


def test_under_the_lock_nobody_else_appends(path: Path) -> None:
    log = numbered(path)
    with log.locked():
        child = start_child(CHILD, path, 1, "numbered")
        assert log.read() == []
        assert log.append({"n": "mine"}) == 1
        assert log.append({"n": "mine too"}) == 2
    assert child.communicate(timeout=60)[0] == "0\n"
    assert texts(log) == ["mine", "mine too", 0]


@pytest.mark.parametrize("kind", ["numbered", "loose"])
def test_processes_that_append_at_once_lose_nothing_and_a_reader_never_sees_half_a_line(path: Path, kind: str) -> None:
    log = {"numbered": numbered, "loose": loose}[kind](path)
    children = [start_child(CHILD, path, 150, kind) for _ in range(3)]
    records = []
    while any(child.poll() is None for child in children):
        records += log.read()
    records += log.read()
    assert [child.communicate()[0].count("\n") for child in children] == [150] * 3
    for child in children:
        assert [record["n"] for record in records if record["by"] == child.pid] == list(range(150))
    assert all(len(record["text"]) == record["n"] * 37 % 500 for record in records)
    assert records == list(log.records())


@pytest.mark.parametrize("seed", range(4))
def test_whoever_is_killed_at_any_moment_loses_at_most_the_line_that_nobody_was_told_of(path: Path, seed: int) -> None:
    random, last_seq = Random(seed), 0
    for _ in range(4):
        child = start_child(CHILD, path, 1000, "numbered")
        assert child.stdout is not None
        for _ in range(random.randrange(40)):
            child.stdout.readline()
            last_seq += 1
        child.kill()
        last_seq += child.stdout.read().count("\n")
        child.communicate()
        log = numbered(path)
        seqs = [record["seq"] for record in log.read()]
        assert seqs == list(range(1, len(seqs) + 1))
        assert last_seq <= len(seqs) <= last_seq + 1
        last_seq = len(seqs)
        last_seq = log.append({"n": "after"})


POINTS = ["things.append.written", "things.append.synced", "things.append.written:3"]


@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_at_a_crash_point_leaves_a_whole_log(path: Path, point: str) -> None:
    output = run_child(CHILD, path, 5, "numbered", crash_at=point).split()
    log = numbered(path)
    assert len(log.read()) == len(output) + 1
    assert log.append({"n": "next"}) == len(output) + 2


# torn ends


TAILS = [
    b'{"seq":3,"te',
    b"\0" * 40,
    b"\0" * 40 + b"\n",
    b"{\n",
    b"\xff\xfe\n\n",
    b"\n",
    b"[1]\n",
    b"[]\n",
    b'{"a":1}x\n',
]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("kind", [numbered, loose])
def test_a_torn_end_is_passed_over_by_readers_and_set_aside_by_the_next_writer(
    path: Path, kind: Any, tail: bytes
) -> None:
    log = kind(path)
    log.append({"n": 1})
    log.append({"n": 2})
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert [record["n"] for record in kind(path).read()] == [1, 2]
    assert path.read_bytes() == whole + tail, "who does not hold the lock takes nothing away"
    log.append({"n": 3})
    assert texts(log) == texts(kind(path)) == [1, 2, 3]
    assert path.read_bytes().startswith(whole + b"{")
    (note,) = map(json.loads, Path(f"{path}.torn").read_text().splitlines())
    assert note["offset"] == len(whole)
    assert note["torn"].encode("utf-8", "surrogateescape") == tail


def test_a_last_record_that_lacks_only_its_newline_is_given_one(path: Path) -> None:
    log = numbered(path)
    log.append({"n": 1})
    log.append({"n": 2})
    path.write_bytes(path.read_bytes()[:-1])
    other = numbered(path)
    assert [record["n"] for record in other.read()] == [1]
    with other.locked():
        assert [record["n"] for record in other.read()] == [2]
        assert other.append({"n": 3}) == 3
    assert texts(log) == [1, 2, 3]
    assert not Path(f"{path}.torn").exists()


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize(("first", "kept"), [(2, 2), (0, 0)])
def test_lines_that_a_power_cut_took_before_later_ones_end_the_log(
    path: Path, numbered: bool, first: int, kept: int
) -> None:
    """After a power cut unsynced lines may be zeros, with whole lines after them (found by tests/faults)."""
    log = Log(path, "things", 1, numbered=numbered, lazy=True)
    for number in range(4):
        log.append({"number": number})
    lines = path.read_bytes().splitlines(keepends=True)
    at = 0 if first == 0 else len(b"".join(lines[: first + 1]))
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(12))
    again = Log(path, "things", 1, numbered=numbered, lazy=True)
    assert [record["number"] for record in again.read()] == [*range(kept)]
    assert again.torn_bytes().startswith(bytes(12))
    again.append({"number": 9})
    assert [record["number"] for record in Log(path, "things", 1, numbered=numbered).records()] == [*range(kept), 9]
    assert b"\0" not in path.read_bytes()
    (note,) = map(json.loads, Path(f"{path}.torn").read_text().splitlines())
    assert note["torn"].encode().endswith(lines[-1])


def test_a_first_line_torn_anywhere_begins_the_log_anew(path: Path) -> None:
    numbered(path).append({"n": 1})
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert numbered(path).append({"n": "x"}) == 1 + (cut >= len(whole) - 1)
        assert path.read_bytes().startswith(whole[: whole.index(b"\n") + 1])


def test_who_is_killed_when_it_has_kept_a_torn_end_leaves_it_to_the_next(path: Path) -> None:
    numbered(path).append({"n": 1})
    with path.open("ab") as file:
        file.write(b"torn")
    run_child(CHILD, path, 1, "numbered", crash_at="things.torn.kept")
    assert numbered(path).append({"n": 2}) == 2
    assert b"torn" in Path(f"{path}.torn").read_bytes()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 3)),
            st.tuples(st.just("tear"), st.sampled_from(TAILS)),
            st.tuples(st.just("cut"), st.integers(1, 60)),
            st.tuples(st.just("rewrite"), st.integers(0, 1), st.integers(0, 3)),
            st.tuples(st.just("read"), st.integers(0, 1)),
        ),
        max_size=25,
    ),
    st.booleans(),
)
def test_whatever_is_done_to_its_end_a_log_has_what_was_appended_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, does: list[tuple[Any, ...]], in_numbers: bool
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    open_log = numbered if in_numbers else loose
    logs = [open_log(path), open_log(path)]
    lines: list[list[int]] = []  # what each line holds
    read_numbers: list[list[int]] = [[], []]
    count, torn = 0, False
    for action, *arguments in does:
        if action == "append":
            records = list(range(count, count := count + arguments[1]))
            logs[arguments[0]].append(*({"n": n} for n in records))
            lines.append(records)
            torn = False
        elif action == "tear" and not torn and path.exists():
            with path.open("ab") as file:
                file.write(arguments[0])
            torn = True
        elif action == "cut" and lines and not torn:
            for log in logs:
                log.read()  # or as many bytes as one knows may be left of a line that it has not seen
            last = path.read_bytes().splitlines(keepends=True)[-1]
            cut = min(arguments[0], len(last))
            os.truncate(path, path.stat().st_size - cut)
            if cut > 1:
                lines.pop()
            torn = True
            for log in logs:
                log.read()  # or the same number of bytes may come to stand there unseen
        elif action == "rewrite":
            lines, count = [[n] for n in range(count, count + arguments[1])], count + arguments[1]
            logs[arguments[0]].rewrite({"n": n} for [n] in lines)
            torn = False
        elif action == "read":
            log = logs[arguments[0]]
            epoch, new = log.epoch, [record["n"] for record in log.read()]
            read_numbers[arguments[0]] = new if log.epoch != epoch else read_numbers[arguments[0]] + new
        whole = [n for line in lines for n in line]
        if not lines or path.read_bytes().endswith(b"\n"):
            assert texts(open_log(path)) == whole
    logs[0].append({"n": -1})
    assert texts(logs[1])[:-1] == [n for line in lines for n in line]


# damage, versions, other files


@pytest.mark.parametrize(
    "line", [b"rubbish\n", b"\n", b'{"seq":9,"n":2}\n', b'{"n":2}\n', b'{"seq":true}\n', b"[]\n", b"5\n", b"\xff\n"]
)
def test_in_a_numbered_log_a_damaged_line_is_refused_by_its_number_and_kept(path: Path, line: bytes) -> None:
    log = numbered(path)
    for n in (1, 2, 3):
        log.append({"n": n})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line, lines[3]]))
    damaged = path.read_bytes()
    for use in (numbered(path).read, lambda: list(log.records())):
        with pytest.raises(LogDamaged) as caught:
            use()
        assert caught.value.location == f"{path}:3"
    assert path.read_bytes() == damaged
    path.write_bytes(b"".join(lines))
    assert texts(log) == [1, 2, 3]


def test_in_a_numbered_log_a_line_that_is_gone_is_noticed(path: Path) -> None:
    log = numbered(path)
    for n in (1, 2, 3):
        log.append({"n": n})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[3]]))
    with pytest.raises(LogDamaged, match="seq 3 instead of 2"):
        numbered(path).read()


@pytest.mark.parametrize("line", [b"rubbish\n", b"\n", b"[1]\n", b"\xff\n", b"\0\0\0", b"[" * 5000 + b"\n"])
def test_in_any_other_log_a_damaged_line_is_left_out(path: Path, line: bytes) -> None:
    log = loose(path)
    for n in (1, 2, 3, 4):
        log.append({"n": n})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line, *lines[3:]]))
    assert texts(log) in ([1, 3, 4], [1, 4])
    log.append({"n": 5})
    assert texts(loose(path))[-2:] == [4, 5]


@pytest.mark.parametrize("how", ["read", "append", "records", "rewrite"])
@pytest.mark.parametrize(
    "header", [b'{"kind":"things","version":99}', b'{"kind":"things"}', b'{"kind":"others","version":1}', b'{"n":1}']
)
@pytest.mark.parametrize("end", [b"\n", b'\n{"seq":1}\n', b"", b"\n{torn"])
def test_another_version_or_kind_is_refused_and_kept(path: Path, how: str, header: bytes, end: bytes) -> None:
    path.write_bytes(header + end)
    log = numbered(path)
    use = {
        "read": log.read,
        "append": lambda: log.append({"n": 1}),
        "records": lambda: list(log.records()),
        "rewrite": lambda: log.rewrite([{"n": 1}]),
    }[how]
    if end == b"" and how in ("read", "records"):  # half a line: nothing is known of it yet
        assert not use()
    else:
        with pytest.raises(UnknownVersion if b"things" in header else LogDamaged):
            use()
    assert path.read_bytes() == header + end
    assert os.listdir(path.parent) == [path.name]


def test_a_log_that_is_a_link_or_no_file_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError):
        numbered(path).append({"n": 1})
    assert not (tmp_path / "elsewhere").exists()
    path.unlink()
    os.mkfifo(path)
    for use in (numbered(path).read, lambda: numbered(path).append({})):
        with pytest.raises(UserError, match="not a regular file"):
            use()


def test_a_log_that_was_replaced_or_cut_is_read_anew(path: Path) -> None:
    log = numbered(path)
    for n in (1, 2, 3):
        log.append({"n": n})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    assert ([record["n"] for record in log.read()], log.epoch) == ([1, 2], 1)
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    assert ([record["n"] for record in log.read()], log.epoch) == ([1, 2], 2)
    assert log.append({"n": 9}) == 3
    path.unlink()
    assert (log.read(), log.seq, log.epoch) == ([], 0, 3)


# who waits while the file goes elsewhere


def waits_for_the_lock(child: subprocess.Popen[str]) -> bool:
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in row and str(child.pid) in row for row in rows)


@contextmanager
def waiting(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a child that waits for the log, locked by this process."""
    log = numbered(path)
    with log.locked():
        log.append({"n": 1})
        child = start_child(CHILD, path, 1, "numbered")
        while not waits_for_the_lock(child):
            assert child.poll() is None
        yield child


def test_who_waited_for_a_log_that_was_replaced_meanwhile_appends_to_the_new_one(path: Path) -> None:
    with waiting(path) as child:
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
    assert child.communicate(timeout=60)[0] == "0\n"
    assert texts(numbered(path)) == [1, 0]


def test_who_waited_for_a_log_that_was_rewritten_meanwhile_appends_to_the_new_one(path: Path) -> None:
    with waiting(path) as child:
        numbered(path.with_name("copy")).rewrite([{"n": "a"}, {"n": "b"}])
        path.with_name("copy").replace(path)
    assert child.communicate(timeout=60)[0] == "0\n"
    assert texts(numbered(path)) == ["a", "b", 0]


def test_who_holds_a_log_whose_folder_is_moved_writes_nothing_into_the_next_of_that_name(tmp_path: Path) -> None:
    folder, moved = tmp_path / "task", tmp_path / "moved"
    folder.mkdir()
    log = numbered(folder / "log")
    log.append({"n": 1})
    with pytest.raises(FileNotFoundError), log.locked():  # noqa: PT012 - it happens inside
        folder.rename(moved)
        folder.mkdir()
        numbered(folder / "log").append({"n": "next"})
        log.append({"n": "late"})
    assert texts(numbered(moved / "log")) == [1]
    assert texts(numbered(folder / "log")) == ["next"]
    with pytest.raises(FileNotFoundError):
        numbered(tmp_path / "nowhere" / "log").append({})


# the disk


def test_a_full_disk_leaves_the_log_as_it_was_and_is_said_in_words(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=64k"):
        log = numbered(tmp_path / "disk" / "log")
        log.append({"n": 1})
        whole = Path(log.path).read_bytes()
        ballast = fill(tmp_path / "disk")
        for _ in range(2):
            with pytest.raises(UserError, match="No space left"):
                log.append({"text": "x" * 10_000})
        assert Path(log.path).read_bytes() == whole
        ballast.unlink()
        assert log.append({"n": 2}) == 2
        assert [record["seq"] for record in log.records()] == [1, 2]


def test_a_torn_end_that_cannot_be_kept_stays_where_it_is(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=64k"):
        log = numbered(tmp_path / "disk" / "log")
        log.append({"n": 1})
        with open(log.path, "ab") as file:
            file.write(b"torn")
        whole = Path(log.path).read_bytes()
        ballast = fill(tmp_path / "disk")
        with pytest.raises(UserError, match="No space left"):
            log.append({"n": 2})
        assert Path(log.path).read_bytes() == whole
        ballast.unlink()
        assert log.append({"n": 2}) == 2


def test_a_guard_is_held_until_the_line_stands_and_takes_it_back_if_it_cannot_be_let_go(path: Path) -> None:
    log = numbered(path)
    log.append({"n": 1})
    sizes = []

    @contextmanager
    def guard(problem: Exception | None = None) -> Iterator[None]:
        sizes.append(path.stat().st_size)
        yield
        sizes.append(path.stat().st_size)
        if problem is not None:
            raise problem

    log.append({"n": 2}, guard=guard())
    assert sizes[0] < sizes[1] == path.stat().st_size
    with pytest.raises(UserError, match="the lease is gone"):
        log.append({"n": 3}, guard=guard(UserError("the lease is gone")))
    assert path.stat().st_size == sizes[1] < sizes[3]
    assert log.append({"n": 3}) == 3


def synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of lines at each fdatasync of the log, and -1 for each fsync of its folder."""
    line_counts: list[int] = []
    real, real_folder = os.fdatasync, os.fsync

    def sync(file: int) -> None:
        real(file)
        line_counts.append(os.pread(file, 1 << 20, 0).count(b"\n"))

    def sync_folder(file: int) -> None:
        real_folder(file)
        if os.path.samestat(os.fstat(file), os.stat(path.parent)):
            line_counts.append(-1)

    monkeypatch.setattr("os.fdatasync", sync)
    monkeypatch.setattr("os.fsync", sync_folder)
    return line_counts


def test_a_durable_record_is_on_the_disk_with_the_name_of_its_file_before_it_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line_counts = synced(path, monkeypatch)
    log = numbered(path, durable=True)
    log.append({})
    log.append({})
    log.sync()
    assert line_counts == [2, -1, 3]


def test_a_lazy_log_is_on_the_disk_when_something_is_to_rest_on_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line_counts = synced(path, monkeypatch)
    log = numbered(path, durable=True, lazy=True)
    log.sync()
    log.append({})
    assert line_counts == []
    log.sync()
    log.sync()
    assert line_counts == [2, -1]
    log.append({}, sync_now=True)
    log.append({})
    assert line_counts == [2, -1, 3]
    numbered(path, durable=True, lazy=True).sync()  # what a process that was killed wrote may not be there yet
    assert line_counts == [2, -1, 3, 4, -1]


def test_relaxed_nothing_waits_for_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line_counts = synced(path, monkeypatch)
    log = numbered(path, lazy=True)
    log.append({}, sync_now=True)
    log.sync()
    log.rewrite([{}])
    assert line_counts == []


# rewriting, segments


def test_a_log_is_rewritten_whole_with_the_rights_that_it_had(path: Path) -> None:
    log, other = loose(path), loose(path)
    for n in range(10):
        log.append({"n": n})
    path.chmod(0o600)
    assert len(other.read()) == 10
    log.rewrite({"n": n} for n in (7, 8))
    assert (texts(log), log.read(), path.stat().st_mode & 0o777) == ([7, 8], [], 0o600)
    log.append({"n": 9})
    assert (other.epoch, [record["n"] for record in other.read()], other.epoch) == (0, [7, 8, 9], 1)
    loose(path.with_name("new")).rewrite([])
    assert texts(loose(path.with_name("new"))) == []


@pytest.mark.parametrize("point", ["fs.write.written", "fs.write.renamed", "things.rewritten"])
def test_who_is_killed_while_it_rewrites_leaves_the_old_log_or_the_new_one(path: Path, point: str) -> None:
    log = numbered(path)
    for n in range(3):
        log.append({"n": n})
    code = "import sys; from hivemind.fs import Log\nLog(sys.argv[1], 'things', 1, numbered=True).rewrite([{'n': 7}])"
    run_child(code, path, crash_at=point)
    assert texts(numbered(path)) == ([0, 1, 2] if point == "fs.write.written" else [7])
    numbered(path).append({"n": 9})


def test_a_full_file_is_renamed_and_all_are_read_in_order(path: Path) -> None:
    log = loose(path, segment_bytes=200)
    for n in range(100):
        log.append({"n": n})
    assert texts(loose(path, segment_bytes=200)) == list(range(100))
    names = sorted(os.listdir(path.parent))
    assert names[:2] == ["log-000000000001.jsonl", "log-000000000002.jsonl"]
    assert all((path.parent / name).stat().st_size < 250 for name in names)


def test_threads_of_which_each_has_its_own_log_take_turns(path: Path) -> None:
    def write() -> None:
        log = numbered(path)
        for n in range(50):
            log.append({"n": n})

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(numbered(path).read()) == 200


def test_who_reads_a_log_while_it_is_begun_finds_its_first_record(tmp_path: Path) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(400):
            path = tmp_path / str(number)
            writer = threading.Thread(target=numbered(path).append, args=({"n": 1},))
            writer.start()
            reader = numbered(path)
            while not (records := reader.read()):
                pass
            writer.join()
            assert [record["n"] for record in records] == [1]
    finally:
        sys.setswitchinterval(interval)


def test_a_file_system_with_posix_locks_only_will_do(path: Path) -> None:
    code = (
        "import errno, fcntl\ndef none(*_):\n    raise OSError(errno.ENOSYS, 'no flock here')\nfcntl.flock = none\n"
        + CHILD
    )
    children = [start_child(code, path, 100, "numbered") for _ in range(3)]
    assert [child.communicate(timeout=60)[0].count("\n") for child in children] == [100] * 3
    assert len(numbered(path).read()) == 300


def test_a_process_that_is_killed_while_it_holds_the_lock_holds_nobody_up(path: Path) -> None:
    hold = "with Log(sys.argv[1], 'things', 1).locked(): print('in', flush=True); time.sleep(60)"
    child = start_child(f"import sys, time; from hivemind.fs import Log\n{hold}", path)
    assert child.stdout is not None
    assert child.stdout.readline() == "in\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    loose(path).append({"n": 1})
    assert texts(loose(path)) == [1]
