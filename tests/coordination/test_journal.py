from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.coordination import Journal, Step, StepLeases, Steps
from hivemind.coordination.commits import Commits
from hivemind.errors import HivemindError, UnknownVersion, UserError
from hivemind.fs import LogDamaged, set_durability
from tests.durability import relaxed

from .children import run, start

HEADER = b'{"kind":"journal","version":2}\n'


def lines(folder: Path) -> list[bytes]:
    found = [path.read_bytes() for path in sorted(folder.glob("*.jsonl"))]
    assert all(one.startswith(HEADER) for one in found)
    return b"".join(one.removeprefix(HEADER) for one in found).splitlines(keepends=True)


def synced(folder: Path) -> int:
    """Up to where the journal is known to be on the disk."""
    return int((folder / "journal.jsonl.synced").read_text().split()[2])


def only_segment(folder: Path) -> Path:
    (path,) = folder.glob("*.jsonl")
    return path


def test_events_are_numbered_from_one_without_a_gap(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.seq == 0
    assert [journal.append("a.b", n=n).seq for n in range(5)] == [1, 2, 3, 4, 5]
    assert journal.seq == 5
    assert [event.payload for event in journal.read(since=3)] == [{"n": 3}, {"n": 4}]


def test_an_event_is_a_line_with_its_payload_beside_seq_and_kind(tmp_path: Path) -> None:
    Journal(tmp_path).append("agent.started", agent_id="ä", pid=7)
    assert only_segment(tmp_path).name == "journal.jsonl"
    assert lines(tmp_path) == ['{"seq":1,"kind":"agent.started","agent_id":"ä","pid":7}\n'.encode()]


def test_what_append_returns_is_what_read_gives(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    event = journal.append("x", pair=(1, 2), nested={1: None})
    assert journal.read() == [event]
    assert event.payload == {"pair": [1, 2], "nested": {"1": None}}


def test_events_that_belong_together_stand_on_one_line_and_have_their_own_numbers(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append("before")
    events = journal.transact(lambda state: [("one", {"n": 1}), ("two", {"n": 2})])
    assert [event.seq for event in events] == [2, 3]
    assert len(lines(tmp_path)) == 2
    assert [event.kind for event in Journal(tmp_path).read(2)] == ["two"]


def test_a_decision_that_raises_leaves_no_event(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(ZeroDivisionError):
        journal.transact(lambda state: [("x", {"n": 1 // state.seq})])
    assert journal.seq == 0
    assert journal.append("x").seq == 1


def test_a_decision_for_nothing_writes_nothing(tmp_path: Path) -> None:
    assert Journal(tmp_path).transact(lambda state: []) == []
    assert only_segment(tmp_path).read_bytes() == b""


@pytest.mark.parametrize(
    "payload", [{"seq": 1}, {"x": object()}, {"x": float("nan")}, {"x": "\ud800"}, {"x": "long" * 300_000}]
)
def test_what_cannot_stand_in_the_log_is_refused(tmp_path: Path, payload: dict[str, object]) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(UserError):
        journal.append("x", **payload)
    with pytest.raises(UserError):
        journal.append("", n=1)
    assert journal.append("x").seq == 1


def test_every_process_sees_what_another_has_appended(tmp_path: Path) -> None:
    mine = Journal(relaxed(tmp_path))
    mine.append("mine")
    assert run("for n in range(3): journal.append('theirs')", tmp_path)[0] == 0
    assert mine.seq == 4
    assert mine.append("mine").seq == 5
    assert [event.kind for event in mine.read()] == ["mine", "theirs", "theirs", "theirs", "mine"]


def test_a_durable_append_has_reached_the_disk_before_it_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append("x")
    assert synced(tmp_path) == only_segment(tmp_path).stat().st_size


def test_what_another_process_left_unsynced_is_synced_before_it_is_shown(tmp_path: Path) -> None:
    Journal(relaxed(tmp_path)).append("x")
    assert not (tmp_path / "journal.jsonl.synced").exists()
    set_durability(tmp_path, durable=True)
    assert Journal(tmp_path).seq == 1
    assert synced(tmp_path) == only_segment(tmp_path).stat().st_size


def test_a_full_file_is_on_disk_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr("os.fdatasync", lambda file: flushed.append(os.fstat(file).st_ino))
    journal = Journal(relaxed(tmp_path), segment_bytes=300)
    while len(list(tmp_path.glob("*.jsonl"))) < 3:
        flushed.clear()
        journal.append("x")
    full = tmp_path / f"journal-{int(sorted(tmp_path.glob('*.jsonl'))[1].stem.split('-')[1]):012}.jsonl"
    assert full.stat().st_ino in flushed


def test_a_writer_killed_between_the_sync_and_the_word_of_it_has_lost_nothing(tmp_path: Path) -> None:
    code = "set_durability(sys.argv[1], durable=True); Journal(sys.argv[1]).append('x')"
    assert run(code, tmp_path, crash="journal.commit.synced")[0] == -signal.SIGKILL
    assert Journal(tmp_path).append("y").seq == 2


# torn ends and damage


@pytest.mark.parametrize("line", [0, 2, 5])
def test_zeros_in_what_was_on_the_disk_are_damage_and_no_torn_end(tmp_path: Path, line: int) -> None:
    journal = Journal(tmp_path)
    for _ in range(6):
        journal.append("x")
    path = only_segment(tmp_path)
    found = path.read_bytes().splitlines(keepends=True)
    found[line] = found[line].replace(b":", b"\0", 1)
    path.write_bytes(damaged := b"".join(found))
    for use in (Journal(tmp_path).read, lambda: Journal(tmp_path).append("y")):
        with pytest.raises(LogDamaged) as caught:
            use()
        assert caught.value.location == f"{path}:{line + 1}"
    assert path.read_bytes() == damaged
    assert not Path(f"{path}.torn").exists()


def test_zeros_in_a_full_file_are_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=200)
    while len(list(tmp_path.glob("*.jsonl"))) < 3:
        journal.append("x")
    first, *_ = sorted(tmp_path.glob("journal-*.jsonl"))
    content = bytearray(first.read_bytes())
    content[-5] = 0
    first.write_bytes(content)
    with pytest.raises(LogDamaged) as caught:
        Journal(tmp_path, segment_bytes=200).read()
    assert caught.value.location == f"{first}:{content.count(10)}"


def test_what_a_power_cut_took_of_lines_that_were_never_on_the_disk_is_torn_and_so_is_all_after_it(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    journal.append("x")
    whole = only_segment(tmp_path).read_bytes()
    with only_segment(tmp_path).open("ab") as file:  # two writers, none of whom has heard of the disk yet
        file.write(bytes(24) + b'\n{"seq":3,"kind":"z"}\n')
    assert Journal(tmp_path).read() == journal.read()
    assert journal.append("y").seq == 2
    assert only_segment(tmp_path).read_bytes() == whole + b'{"seq":2,"kind":"y"}\n'


@pytest.mark.parametrize("garbage", [b"\0" * 40, b"\0" * 40 + b"\n", b"{\n", b"\xff\xfe\n\n", b'{"seq":4,"ki'])
def test_garbage_after_the_last_line_is_cut_off_kept_and_reported(tmp_path: Path, garbage: bytes) -> None:
    journal = Journal(tmp_path)
    for _ in range(3):
        journal.append("x")
    whole = only_segment(tmp_path).read_bytes()
    only_segment(tmp_path).write_bytes(whole + garbage)
    later = Journal(tmp_path)
    assert later.seq == 3
    assert only_segment(tmp_path).read_bytes() == whole + garbage, "who does not hold the lock repairs nothing"
    assert later.append("y").seq == 4
    assert [event.kind for event in Journal(tmp_path).read()] == ["x", "x", "x", "y"]
    (note,) = map(json.loads, Path(f"{only_segment(tmp_path)}.torn").read_text().splitlines())
    assert note["after"] == 3
    assert note["torn"].encode("utf-8", "surrogateescape") == garbage


def test_a_last_line_torn_anywhere_is_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "whole")
    journal.append("x", text="ä")
    journal.append("y", text="ö", n=[1, {}])
    first, second = lines(tmp_path / "whole")
    for cut in range(len(second)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "journal.jsonl").write_bytes(HEADER + first + second[:cut])
        torn = Journal(relaxed(folder))
        whole = cut == len(second) - 1  # it lacks only its newline
        assert torn.append("z").seq == 2 + whole
        assert [event.kind for event in torn.read()] == ["x", *(["y"] * whole), "z"]
        torn.close()


def test_what_replaces_a_torn_end_is_synced_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append("x")
    path = only_segment(tmp_path)
    with path.open("ab") as file:
        file.write(b"." * 500)
    at = path.stat()
    (tmp_path / "journal.jsonl.synced").write_text(f"{at.st_dev:020d} {at.st_ino:020d} {at.st_size:020d}\n")
    Journal(tmp_path).append("y")
    assert synced(tmp_path) == path.stat().st_size


def test_lines_torn_together_are_all_or_none(tmp_path: Path) -> None:
    Journal(tmp_path).transact(lambda state: [("one", {}), ("two", {})])
    path = only_segment(tmp_path)
    path.write_bytes(path.read_bytes()[:-4])
    assert Journal(tmp_path).append("three").seq == 1


def test_a_damaged_middle_is_refused_with_file_and_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for _ in range(4):
        journal.append("x")
    path = only_segment(tmp_path)
    content = path.read_bytes().splitlines(keepends=True)
    for broken in (b"rubbish\n", b"\n", b'{"seq":7,"kind":"x"}\n', b"[]\n", b"5\n", b"\xff\n"):
        path.write_bytes(b"".join([*content[:3], broken, content[4]]))
        for use in (lambda: Journal(tmp_path).seq, lambda: Journal(tmp_path).append("y"), Journal(tmp_path).read):
            with pytest.raises(LogDamaged) as caught:
                use()
            assert caught.value.location == f"{path}:4"
    path.write_bytes(b"".join(content))
    assert Journal(tmp_path).append("y").seq == 5


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda lines: lines.insert(4, b"this is no event"), []),
        (lambda lines: lines.__setitem__(4, lines[4].replace(b":", b"\0", 1)), [4]),
        (lambda lines: lines.__delitem__(slice(3, 5)), [3, 4]),
        (lambda lines: lines.__setitem__(4, b'{"seq":1,"kind":"y"}'), [4]),
        (lambda lines: lines.__setitem__(4, b'{"seq":9,"kind":"y"}'), [4]),
        (lambda lines: lines.__setitem__(4, b'{"seq":999999999,"kind":"y"}'), [4]),
        (lambda lines: lines.__setitem__(0, b"{"), []),
        (lambda lines: lines.insert(4, lines[4]), []),
    ],
)
def test_a_damaged_journal_is_repaired_and_every_other_event_keeps_its_number(
    tmp_path: Path, damage: Callable[[list[bytes]], None], lost: list[int]
) -> None:
    journal = Journal(tmp_path)
    for number in range(8):
        journal.append("x", number=number)
    path = only_segment(tmp_path)
    lines = path.read_bytes().splitlines()
    damage(lines)
    path.write_bytes(damaged := b"\n".join(lines) + b"\n")
    with pytest.raises(LogDamaged):
        Journal(tmp_path).read()
    kept = list[bytes]()
    assert Journal(tmp_path).repair(lambda one: kept.append(Path(one).read_bytes())) == len(lost)
    assert kept == [damaged]
    found = Journal(tmp_path).read()
    assert [event.seq for event in found if event.kind == "journal.lost"] == lost
    assert all(event.payload == {"number": event.seq - 1} for event in found if event.kind == "x")
    assert [event.seq for event in found] == [*range(1, 9)]
    assert Journal(tmp_path).append("y").seq == 9
    assert Journal(tmp_path).repair(kept.append) == 0
    assert len(kept) == 1


def test_the_full_files_of_a_journal_are_repaired_and_what_a_lost_one_told_is_said_to_be_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=200)
    while len(full := sorted(tmp_path.glob("journal-*.jsonl"))) < 4:
        journal.append("x")
    last = journal.seq
    full[0].write_bytes(full[0].read_bytes()[:-5] + b"\0\0\0\0\n")
    full[2].unlink()
    kept = list[str]()
    assert Journal(tmp_path, segment_bytes=200).repair(kept.append) > 1
    assert kept == [str(full[1]), str(full[3])] or kept == [str(full[0]), str(full[1]), str(full[3])]
    assert [event.seq for event in Journal(tmp_path, segment_bytes=200).read()] == [*range(1, last + 1)]


def test_a_missing_line_is_refused_also_at_the_end_of_a_segment(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=100)
    for _ in range(20):
        journal.append("x")
    first = sorted(tmp_path.glob("*.jsonl"))[0]
    kept = first.read_bytes()
    first.write_bytes(kept[: kept[:-1].rindex(b"\n") + 1])
    (tmp_path / "snapshot-6.json").unlink()
    with pytest.raises(LogDamaged):
        Journal(tmp_path).append("y")
    with pytest.raises(LogDamaged):
        list(journal.events())
    first.unlink()
    with pytest.raises(LogDamaged):
        Journal(tmp_path).append("y")


def test_a_segment_that_is_gone_from_the_middle_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=100)
    for _ in range(20):
        journal.append("x")
    sorted(tmp_path.glob("*.jsonl"))[1].unlink()
    (tmp_path / "snapshot-6.json").unlink()
    with pytest.raises(LogDamaged):
        Journal(tmp_path).append("y")


def test_a_journal_of_another_version_is_refused_and_kept(tmp_path: Path) -> None:
    Journal(tmp_path).append("x")
    later = only_segment(tmp_path).read_bytes().replace(b'"version":2', b'"version":99')
    only_segment(tmp_path).write_bytes(later)
    with pytest.raises(UnknownVersion):
        Journal(tmp_path).append("y")
    assert only_segment(tmp_path).read_bytes() == later


def test_an_editor_that_saves_the_file_anew_does_not_split_the_log(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append("x")
    path = only_segment(tmp_path)
    (tmp_path / "copy").write_bytes(path.read_bytes())
    os.replace(tmp_path / "copy", path)
    assert journal.append("y").seq == 2
    assert [event.kind for event in Journal(tmp_path).read()] == ["x", "y"]


def test_a_log_restored_from_an_older_copy_is_read_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append("x")
    older = only_segment(tmp_path).read_bytes()
    journal.append("y")
    only_segment(tmp_path).write_bytes(older)
    assert journal.seq == 1
    assert journal.append("z").seq == 2


# segments and snapshots


def test_reading_from_any_event_on_gives_all_that_follow(tmp_path: Path) -> None:
    journal = Journal(relaxed(tmp_path), segment_bytes=20_000)
    for n in range(120):
        journal.transact(lambda state, n=n: [("x", {"text": "." * (n * 37 % 900)})] * (1 + n % 3))
    assert len(list(tmp_path.glob("*.jsonl"))) > 3
    everything = journal.read()
    assert [event.seq for event in everything] == list(range(1, journal.seq + 1))
    for since in range(journal.seq + 2):
        assert journal.read(since) == everything[since:]


@pytest.mark.shows("promise: P47")
def test_a_snapshot_and_the_log_fold_to_the_same_bytes(tmp_path: Path) -> None:
    journal = Journal(relaxed(tmp_path))
    steps, leases = Steps(journal), StepLeases(journal)
    for n in range(30):
        step = steps.add(f"t{n % 3}", f"step {n}", tests=["x"], meta={"n": [n]})
        leases.claim(step.id, f"a{n % 4}")
        steps.capture(step.id, {"kind": "CMD", "text": "pytest"}, agent_id=f"a{n % 4}", checkpoint="perf")
    assert journal.snapshot()
    journal.append("agent.exited", agent_id="a1")
    expected = journal.fingerprint()
    assert Journal(tmp_path).fingerprint() == expected
    (tmp_path / "snapshot-6.json").unlink()
    assert Journal(tmp_path).fingerprint() == expected


def _work_off(journal: Journal, tasks: int) -> None:
    steps, leases = Steps(journal), StepLeases(journal)
    for n in range(tasks):
        task = f"t{n}"
        journal.append("task.claimed", task_id=task, agent_id="ada", title="x")
        step = steps.plan(task, [{"title": "a"}, {"title": "b"}], agent_id="ada", leased_to="ada")[0]
        steps.done(step.id, "ada", 1, evidence={"kind": "CMD", "text": "true"}, confirm=("criteria", "tests"))
        Commits(journal, task).publish("c", card=1, agent_id="ada")
        steps.end_task(task, agent_id="ada")
    leases.claim("t7.s2", "bob", force=True)


def test_tasks_that_are_over_are_found_as_they_were_wherever_the_state_has_them(tmp_path: Path) -> None:
    journal = Journal(relaxed(tmp_path), segment_bytes=50_000)
    _work_off(journal, 600)
    journal.append("task.claimed", task_id="t9", agent_id="bob")  # a retry
    again = Steps(journal).add("t9", "c")
    assert (again.id, StepLeases(journal).claim("t9.s1", "bob").generation) == ("t9.s3", 2)
    Steps(journal).end_task("t9", agent_id="bob")
    expected = journal.fingerprint()
    assert Journal(relaxed(tmp_path)).fingerprint() == expected
    assert journal.snapshot()
    assert Journal(relaxed(tmp_path)).fingerprint() == expected
    assert [step.id for step in Steps(journal).list("t9")] == ["t9.s1", "t9.s2", "t9.s3"]
    assert len(Steps(journal).list()) == 1201
    assert Commits(journal, "t599").has("c")
    assert not Commits(journal, "t600").has("c")
    (tmp_path / "snapshot-6.json").unlink()
    assert Journal(relaxed(tmp_path)).fingerprint() == expected


def test_a_process_does_not_carry_what_is_over(tmp_path: Path) -> None:
    def carried() -> int:
        return sum(type(one) is Step for one in gc.get_objects())

    before = carried()
    reader, journal = Journal(relaxed(tmp_path)), Journal(relaxed(tmp_path), segment_bytes=50_000)
    _work_off(journal, 1500)
    assert reader.seq == journal.seq
    assert carried() - before < 1500  # of two journals with 3000 each


@pytest.mark.shows("file: snapshot-6.json")
@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"version":1,"place":[1,1,0,5],"line":"x"}', b"\xff", b"[]", b"null"]
)
def test_a_snapshot_that_is_damaged_is_not_read(tmp_path: Path, content: bytes) -> None:
    journal = Journal(tmp_path)
    journal.append("agent.started", agent_id="a")
    expected = journal.fingerprint()
    (tmp_path / "snapshot-6.json").write_bytes(content)
    assert Journal(tmp_path).fingerprint() == expected


def test_a_snapshot_of_a_log_that_was_cut_since_is_not_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append("agent.started", agent_id="a")
    older = only_segment(tmp_path).read_bytes()
    journal.append("agent.started", agent_id="b")
    journal.snapshot()
    only_segment(tmp_path).write_bytes(older)
    assert Journal(tmp_path).view(lambda state: sorted(state.agents)) == ["a"]


def test_segments_follow_each_other_and_a_snapshot_is_written_on_the_way(tmp_path: Path) -> None:
    journal = Journal(relaxed(tmp_path), segment_bytes=500)
    for n in range(50):
        journal.append("x", n=n)
    there = sorted(tmp_path.glob("*.jsonl"))
    assert len(there) == 3
    assert [path.name for path in there][-1] == "journal.jsonl"
    assert all(path.stat().st_size >= 500 for path in there[:-1])
    assert (tmp_path / "snapshot-6.json").exists()
    assert Journal(tmp_path, segment_bytes=7).append("x").seq == 51
    assert [event.seq for event in journal.read()] == list(range(1, 52))


def test_who_reads_follows_the_segments_that_others_have_filled_meanwhile(tmp_path: Path) -> None:
    reader, writer = Journal(relaxed(tmp_path)), Journal(relaxed(tmp_path), segment_bytes=300)
    for count in (1, 7, 40, 3):
        for _ in range(count):
            writer.append("x")
        assert reader.seq == writer.seq
    assert len(list(tmp_path.glob("*.jsonl"))) > 3
    assert [event.seq for event in reader.read()] == list(range(1, 52))


def test_a_journal_that_is_gone_is_not_begun_anew_by_who_had_read_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append("x")
    (tmp_path / "journal").rename(tmp_path / "elsewhere")
    (tmp_path / "journal").mkdir()
    with pytest.raises(FileNotFoundError):
        journal.append("y")
    assert not list((tmp_path / "journal").iterdir())


# foreign events


KINDS = st.sampled_from(
    ["lease.claimed", "lease.renewed", "lease.released", "step.added", "step.done", "step.defined", "step.noted",
     "evidence.captured", "agent.started", "agent.exited", "lane.published", "paths.reserved",
     "paths.released", "task.done", "branch.created", "task", "odd kind", "x"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["step_id", "agent_id", "task_id", "ttl_seq", "title", "position", "steps", "evidence", "checkpoint", "meta", "patterns",
     "shared", "reservations", "incarnation", "commit_id", "branch", "base_seq", "proof", "tests", "warnings"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "T.s1", "", "CMD", "off", "ü", "../x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.just("text") | st.just("kind"), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KINDS, st.dictionaries(NAMES, VALUES, max_size=6)), max_size=12))
def test_whatever_is_appended_stays_in_the_log_and_makes_nothing_unreadable(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, dict[str, object]]]
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(relaxed(folder))
    for kind, payload in events:
        journal.append(kind, **payload)
    assert [(event.kind, event.payload) for event in journal.read()] == events
    expected = journal.fingerprint()
    assert Journal(relaxed(folder)).fingerprint() == expected
    journal.snapshot()
    assert Journal(relaxed(folder)).fingerprint() == expected
    assert Journal(relaxed(folder)).append("x").seq == len(events) + 1


# crashes


POINTS = [
    "journal.append.locked", "journal.append.locked:3", "journal.append.written", "journal.append.written:5",
    "journal.rotate.synced", "journal.rotate.renamed:1", "journal.rotate.renamed:2", "journal.snapshot.written",
    "journal.snapshot.done", "fs.write.written:2", "fs.write.renamed:1",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_anywhere_loses_nothing_that_was_told(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL", "{'segment_bytes': 300}")
    folder = tmp_path / "journal"
    Journal(relaxed(folder), segment_bytes=300).append("first")
    status, told = run("for n in range(40): say(journal.append('x', n=n).seq)", folder, crash=point)
    assert status == -signal.SIGKILL, "the crash point was not reached"
    journal = Journal(relaxed(folder))
    seqs = [event.seq for event in journal.read()]
    assert seqs == list(range(1, len(seqs) + 1))
    assert seqs[-1] - len(told.split()) in (1, 2), "what was told is there, and at most the one that was being told"
    assert journal.append("after").seq == len(seqs) + 1
    assert run("say(journal.append('other').seq)", folder) == (0, f"{len(seqs) + 2}\n")


def test_a_repair_that_is_killed_is_done_again(tmp_path: Path) -> None:
    Journal(tmp_path).append("x")
    with only_segment(tmp_path).open("ab") as file:
        file.write(b'{"seq":2,')
    assert run("journal.append('y')", tmp_path, crash="journal.torn.kept")[0] == -signal.SIGKILL
    assert Journal(tmp_path).append("y").seq == 2
    assert [event.kind for event in Journal(tmp_path).read()] == ["x", "y"]


def test_a_killed_holder_of_the_lock_holds_nobody_up(tmp_path: Path) -> None:
    child = start("journal.transact(lambda state: (say('in'), time.sleep(60)) and [])", tmp_path)
    assert child.stdout is not None
    assert child.stdout.readline() == "in\n"
    child.kill()
    child.communicate()
    assert Journal(tmp_path).append("x").seq == 1


def test_a_full_disk_is_an_error_and_leaves_the_log_whole(tmp_path: Path) -> None:
    code = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal.append('before', text='.' * 500)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
try:
    journal.append('too much', text='.' * 500)
except Exception as error:
    say(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
say(journal.append('small').seq)
"""
    assert run(code, tmp_path) == (0, "UserError\n2\n")
    assert [event.kind for event in Journal(tmp_path).read()] == ["before", "small"]
    assert not list(tmp_path.glob("*.torn"))


def test_a_forked_process_takes_turns_with_its_parent(tmp_path: Path) -> None:
    code = """
journal.append('x')
children = []
for _ in range(3):
    if (child := os.fork()) == 0:
        for n in range(200): journal.append('x')
        os._exit(0)
    children.append(child)
for n in range(200): journal.append('x')
for child in children: os.waitpid(child, 0)
say(journal.seq)
"""
    assert run(code, tmp_path) == (0, "801\n")
    assert [event.seq for event in Journal(tmp_path).read()] == list(range(1, 802))


def test_threads_take_turns(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    journal = Journal(tmp_path, segment_bytes=2000)
    with ThreadPoolExecutor(6) as pool:
        seqs = list(pool.map(lambda n: journal.append("x", n=n).seq, range(300)))
    assert sorted(seqs) == list(range(1, 301))
    assert [event.seq for event in Journal(tmp_path).read()] == sorted(seqs)


def test_a_held_journal_can_be_looked_at_and_refuses_an_append(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with journal.locked(lambda state: None):
        assert journal.seq == 0
        with pytest.raises(HivemindError):
            journal.append("x")
    assert journal.append("x").seq == 1


def test_a_decision_can_look_at_the_journal_and_cannot_append_to_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(HivemindError):
        journal.transact(lambda state: [("x", {"n": journal.append("inner").seq})])
    assert journal.transact(lambda state: [("x", {"n": journal.seq})])[0].payload == {"n": 0}
    assert journal.seq == 1


def test_a_journal_that_is_let_go_of_leaves_no_file_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Journal(tmp_path).append("x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_closed_journal_opens_again_when_it_is_used(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append("x")
    journal.close()
    assert journal.append("y").seq == 2


def test_a_file_system_with_posix_locks_only_will_do(tmp_path: Path) -> None:
    code = """
import errno, fcntl
def none(*_):
    raise OSError(errno.ENOSYS, "no flock here")
fcntl.flock = none
for n in range(150): journal.append("x")
"""
    children = [start(code, tmp_path) for _ in range(4)]
    assert [child.communicate(timeout=60)[1] for child in children] == [""] * 4
    assert [event.seq for event in Journal(tmp_path).read()] == list(range(1, 601))
