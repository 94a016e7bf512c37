from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import Lock
from hivemind.reasoning import GraphError, ReasoningGraph, TaskGraph
from tests.durability import relaxed
from tests.program import Python

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def child(*arguments: object, crash: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "HIVEMIND_CRASH_AT": crash}
    return Python([Path(__file__).with_name("children.py"), *map(str, arguments)], env=environment)


def killed(*arguments: object, crash: str) -> None:
    assert child(*arguments, crash=crash).wait(60) == -signal.SIGKILL


def opened(folder: Path, **fields: object) -> TaskGraph:
    return TaskGraph(relaxed(folder), clock=lambda: NOW, **fields)  # type: ignore[arg-type]


@pytest.fixture
def task(tmp_path: Path) -> TaskGraph:
    """Line 1 the task, line 2 a draft of bob's."""
    task = opened(tmp_path)
    with task.change("ann") as graph:
        graph.add_node("task", "T")
    with task.change("bob") as graph:
        node = graph.add_node("hypothesis", "H", lane="agent/bob", tags=["x"], step="s1")
        graph.add_edge(1, node.node_id, "refine")
    return task


def test_a_change_is_one_line_and_everyone_sees_it(task: TaskGraph) -> None:
    other = opened(task.folder)
    assert other.graph == task.graph
    with other.change("ann") as graph:
        summary = graph.fold_nodes([2], "sum", "why")
        graph.flush_node(summary.node_id)
        graph.unfold(summary.node_id)
        graph.update_node(2, status="closed", meta={"run": "x"})
        graph.add_link(2, 3, "supports")
        graph.supersede(3, 2)
    assert task.seq == other.seq == 3
    assert task.graph == other.graph == opened(task.folder).graph
    assert task.graph.node(2).created_at == NOW.isoformat()
    assert task.graph.node(3).created_seq == 3


def test_a_change_that_raises_writes_nothing(task: TaskGraph) -> None:
    before, text = task.graph.to_dict(), (task.folder / "graph.jsonl").read_bytes()
    with pytest.raises(GraphError), task.change() as graph:  # noqa: PT012 - the first one must be undone
        graph.add_node("evidence", "loose")
        graph.add_edge(1, 2)
    with task.change():
        pass
    assert task.graph.to_dict() == before
    assert (task.folder / "graph.jsonl").read_bytes() == text


def test_every_past_state_can_be_shown(task: TaskGraph) -> None:
    states = [task.at(seq).to_dict() for seq in range(3)]
    with task.change() as graph:
        graph.fold_nodes([2], "s")
    task.add_note("said")
    assert [task.at(seq).to_dict() for seq in range(3)] == states
    assert states[0]["nodes"] == {}
    assert task.at(4) == task.graph
    with pytest.raises(GraphError, match="no seq 5"):
        task.at(5)


def test_notes_and_trace_are_kept_in_order(task: TaskGraph) -> None:
    note = task.add_note("I looked", agent_id="ann", lane="agent/Ann", step="s1")
    for number in range(3):
        task.add_trace("run", f"pytest {number}", agent_id="bob")
    assert (note.seq, note.agent, note.lane, note.step, note.text) == (3, "ann", "agent/ann", "s1", "I looked")
    other = opened(task.folder)
    assert other.notes() == (note,)
    assert [trace.text for trace in other.traces()] == ["pytest 0", "pytest 1", "pytest 2"]
    assert other.traces() == task.traces()
    assert other.graph == task.graph


def test_several_processes_write_at_once_and_no_change_is_lost(task: TaskGraph) -> None:
    agents = ["a", "b", "c"]
    writers = [child("add", task.folder, agent, 40) for agent in agents]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert len(task.graph) == 2 + 120
    for agent in agents:
        assert [node.text for node in task.graph.by_lane(f"agent/{agent}")] == [f"{agent} {n}" for n in range(40)]
    lines = [json.loads(line) for line in (task.folder / "graph.jsonl").read_bytes().splitlines()]
    assert [line["seq"] for line in lines[1:]] == list(range(1, 123))
    assert opened(task.folder).graph == task.graph


def test_several_threads_share_one_object(task: TaskGraph) -> None:
    def add() -> None:
        for _ in range(30):
            with task.change() as graph:
                graph.add_edge(1, graph.add_node("note", "x").node_id)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(task.graph) == 122
    assert opened(task.folder).graph == task.graph


def test_a_change_within_a_change_belongs_to_it(task: TaskGraph) -> None:
    with task.change() as outer, task.change() as inner:
        assert outer is inner is task.graph
        inner.add_edge(1, inner.add_node("note", "x").node_id)
    assert task.seq == 3


@pytest.mark.shows("file: graph.jsonl.torn")
@pytest.mark.parametrize("tail", [b'{"seq":3,"at', b"\0" * 40, b'{"seq":3}garbage\n', b"[1]\n", b"\n"])
def test_a_torn_tail_is_set_aside_by_the_next_writer_and_ignored_by_readers(task: TaskGraph, tail: bytes) -> None:
    path = task.folder / "graph.jsonl"
    sound = path.read_bytes()
    path.write_bytes(sound + tail)
    reader = opened(task.folder)
    assert reader.graph == task.graph
    assert path.read_bytes() == sound + tail
    task.add_note("next")
    assert path.read_bytes().startswith(sound + b'{"seq":3,')
    (kept,) = map(json.loads, (task.folder / "graph.jsonl.torn").read_text().splitlines())
    assert kept["torn"].encode("utf-8", "surrogateescape") == tail
    assert reader.notes() == task.notes() == opened(task.folder).notes()


def test_a_last_line_that_only_lacks_its_break_counts(task: TaskGraph) -> None:
    task.add_note("last")
    path = task.folder / "graph.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    other = opened(task.folder)
    assert other.notes() == ()
    other.add_note("more")
    assert [note.text for note in other.notes()] == ["last", "more"]
    assert [note.text for note in opened(task.folder).notes()] == ["last", "more"]
    assert not (task.folder / "graph.jsonl.torn").exists()


def test_a_log_of_which_even_the_first_line_is_torn_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "graph.jsonl").write_bytes(b'{"kind":"gra')
    task = opened(tmp_path)
    assert len(task.graph) == 0
    task.add_note("first")
    assert opened(tmp_path).notes()[0].seq == 1


def test_a_damaged_middle_is_refused_with_its_line_and_kept(task: TaskGraph) -> None:
    task.add_note("third")
    path = task.folder / "graph.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    cases = {
        2: b"damaged\n",
        3: lines[2].replace(b'"seq":2', b'"seq":9'),
        4: lines[3].replace(b'"note"', b'"nonsense"'),
    }
    for number, line in cases.items():
        text = b"".join([*lines[: number - 1], line, *lines[number:], lines[3].replace(b'"seq":3', b'"seq":4')])
        path.write_bytes(text)
        damaged = opened(task.folder)
        for _ in range(2):
            with pytest.raises(UserError, match=rf"graph\.jsonl:{number}"):
                _ = damaged.graph
        with pytest.raises(UserError):
            damaged.add_note("x")
        assert path.read_bytes() == text
    path.write_bytes(b"".join(lines))
    assert damaged.notes()[0].text == "third"


def test_another_version_is_refused_and_kept(task: TaskGraph) -> None:
    path = task.folder / "graph.jsonl"
    text = path.read_bytes().replace(b'"version":1', b'"version":2')
    path.write_bytes(text)
    with pytest.raises(UnknownVersion):
        _ = opened(task.folder).graph
    path.write_bytes(text.replace(b"graph-log", b"other-log"))
    with pytest.raises(UserError, match="is not a log of kind 'graph-log'"):
        _ = opened(task.folder).graph


def test_a_log_that_was_replaced_or_cut_by_hand_is_read_anew(task: TaskGraph) -> None:
    path = task.folder / "graph.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(task.graph) == 2
    path.write_bytes(b"".join(lines[:2]))
    assert len(task.graph) == 1
    task.add_note("goes on")
    assert task.seq == 2


def waits_for_the_lock(process: subprocess.Popen[bytes]) -> bool:
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in row and str(process.pid) in row for row in rows)


def test_who_waited_for_a_log_that_was_replaced_meanwhile_writes_to_the_new_one(task: TaskGraph) -> None:
    path = task.folder / "graph.jsonl"
    with Lock(path):
        waiting = child("repair", task.folder)
        while not waits_for_the_lock(waiting):
            assert waiting.poll() is None
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
        with Lock(path):
            pass  # the new file is another lock: nobody has it
    assert waiting.wait(60) == 0
    assert [note.text for note in opened(task.folder).notes()] == ["after the storm"]


def test_who_waited_for_a_task_that_was_moved_meanwhile_writes_nothing(task: TaskGraph, tmp_path: Path) -> None:
    moved = tmp_path.parent / f"{tmp_path.name}-moved"
    with Lock(task.folder / "graph.jsonl"):
        waiting = child("repair", task.folder)
        while not waits_for_the_lock(waiting):
            assert waiting.poll() is None
        task.folder.rename(moved)
    assert waiting.wait(60) == 1
    assert not opened(moved).notes()
    assert not task.folder.exists()


def test_nothing_is_left_in_the_folder_beside_the_log(task: TaskGraph) -> None:
    assert [path.name for path in task.folder.iterdir()] == ["graph.jsonl"]


def test_a_task_that_was_moved_away_says_so(task: TaskGraph, tmp_path: Path) -> None:
    task.folder.rename(tmp_path.parent / f"{tmp_path.name}-moved")
    with pytest.raises(UserError, match="folder is gone"):
        task.add_note("x")
    with pytest.raises(UserError, match="folder is gone"):
        _ = task.graph


def test_a_change_that_outlives_its_folder_does_not_land_in_the_next_of_that_name(task: TaskGraph) -> None:
    folder, moved = task.folder, task.folder.with_name("moved")
    before = (folder / "graph.jsonl").read_bytes()
    with pytest.raises(UserError, match="folder is gone"), task.change() as graph:  # noqa: PT012 - it happens inside
        graph.add_edge(1, graph.add_node("note", "late").node_id)
        folder.rename(moved)
        folder.mkdir()
        opened(folder).add_note("the next attempt")
        after = (folder / "graph.jsonl").read_bytes()
    assert (moved / "graph.jsonl").read_bytes() == before
    assert (folder / "graph.jsonl").read_bytes() == after
    assert [note.text for note in opened(folder).notes()] == ["the next attempt"]


def test_threads_that_share_a_graph_note_and_change_side_by_side(task: TaskGraph) -> None:
    problems: list[Exception] = []

    def repeat(work: Callable[[int], object]) -> None:
        try:
            for number in range(300):
                work(number)
        except Exception as error:  # told to the test, which is in another thread
            problems.append(error)

    def add(number: int) -> None:
        with task.change() as graph:
            graph.add_edge(1, graph.add_node("note", f"{number}").node_id)

    works = [add, lambda number: task.add_trace("tool", f"{number}"), lambda number: task.add_note(f"{number}")]
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(task.traces()) == len(task.notes()) == 300
    assert opened(task.folder).graph == task.graph


def test_a_full_disk_writes_nothing_and_says_so(task: TaskGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    before, text = task.graph.to_dict(), (task.folder / "graph.jsonl").read_bytes()
    real = os.pwrite
    said = iter([10])

    def short_then_full(file: int, data: bytes, at: int) -> int:
        size = next(said, None)
        if size is None:
            raise OSError(28, "No space left on device")
        return real(file, bytes(data)[:size], at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", short_then_full)
        with pytest.raises(UserError, match="No space left"), task.change() as graph:
            graph.add_edge(1, graph.add_node("note", "x" * 100).node_id)
    assert (task.folder / "graph.jsonl").read_bytes() == text
    assert task.graph.to_dict() == before
    task.add_note("room again")
    assert opened(task.folder).graph == task.graph


@pytest.mark.parametrize("point", ["graph-log.append.written", "graph-log.append.synced"])
def test_killed_while_writing_a_change_is_there_whole_or_not(task: TaskGraph, point: str) -> None:
    killed("patch", task.folder, crash=point)
    assert len(task.graph) in (2, 4)
    task.add_note("goes on")
    assert opened(task.folder).graph == task.graph


def test_the_log_begins_with_its_header_wherever_the_first_write_was_torn(tmp_path: Path) -> None:
    killed("repair", tmp_path, crash="graph-log.append.written")
    log = tmp_path / "graph.jsonl"
    whole = log.read_bytes()
    header = whole.index(b"\n") + 1
    for cut in (0, 5, header - 1, header, header + 9, len(whole) - 1, len(whole)):
        log.write_bytes(whole[:cut])
        opened(tmp_path).add_note("x")
        assert log.read_bytes().startswith(whole[:header])
        assert [note.text for note in opened(tmp_path).notes()][-1] == "x"
        assert len(opened(tmp_path).notes()) == 1 + (cut >= len(whole) - 1)


def test_killed_while_repairing_nothing_is_lost(task: TaskGraph) -> None:
    path = task.folder / "graph.jsonl"
    path.write_bytes(path.read_bytes() + b"torn")
    killed("repair", task.folder, crash="graph-log.torn.kept")
    task.add_note("again")
    assert [note.text for note in opened(task.folder).notes()] == ["again"]
    assert b"torn" in (task.folder / "graph.jsonl.torn").read_bytes()


@pytest.mark.parametrize("point", ["fs.write.written", "fs.write.synced", "fs.write.renamed"])
def test_killed_while_writing_the_snapshot_it_is_the_old_or_the_new(task: TaskGraph, point: str) -> None:
    old = task.save_snapshot().read_text()
    task.publish(2)
    new = task.graph.to_json() + "\n"
    killed("snapshot", task.folder, crash=point)
    assert (task.folder / "graph.json").read_text() in (old, new)
    assert ReasoningGraph.from_dict(json.loads(task.save_snapshot().read_text())) == task.graph


@pytest.mark.parametrize(("point", "counts"), [("graph.commit.prepared", False), ("graph.commit.committed", True)])
def test_killed_between_two_stores_the_journal_decides(task: TaskGraph, point: str, counts: bool) -> None:
    killed("publish", task.folder, crash=point)
    journal = task.folder / "journal"
    told = journal.read_text().splitlines() if journal.exists() else []
    assert len(told) == counts
    assert len(task.graph) == 2, "what is only prepared is not there"
    settled = opened(task.folder, is_committed=lambda name: name in told)
    settled.add_note("opening tidies up")
    assert len(settled.graph) == 2 + counts
    assert opened(task.folder).graph == settled.graph == task.graph
    assert settled.publish(2).node_id == (3 if counts else 4), "an id is never used twice"


def test_a_change_in_two_stores_counts_once_the_other_has_it(task: TaskGraph) -> None:
    names: list[str] = []
    copy = task.publish(2, agent_id="bob", commit=names.append)
    assert names == [f"{task.folder.name}:3"]
    assert copy.created_seq == task.seq == 4
    assert opened(task.folder).graph == task.graph
    task.publish(2, commit=names.append)
    assert len(names) == 1, "nothing has changed, so nothing is told"


def test_a_change_that_the_other_store_refuses_has_not_happened(task: TaskGraph) -> None:
    def refuse(name: str) -> None:
        raise UserError("the lease is another's")

    before = task.graph.to_dict()
    with pytest.raises(UserError, match="another's"):
        task.publish(2, commit=refuse)
    assert task.graph.to_dict()["nodes"] == before["nodes"]
    assert opened(task.folder, is_committed=lambda name: True).graph == task.graph
    assert task.publish(2).node_id == 4


def test_the_guard_refuses_what_touches_a_step(task: TaskGraph) -> None:
    touched: list[str] = []

    def guard(steps: Sequence[str]) -> AbstractContextManager[None]:
        touched.extend(steps)
        raise UserError("the step is leased")

    guarded = opened(task.folder, guard=guard)
    with pytest.raises(UserError), guarded.change() as graph:
        graph.update_node(2, status="closed")
    with pytest.raises(UserError):
        guarded.add_note("x", step="s2")
    guarded.add_note("free")
    assert touched == ["s1", "s2"]
    assert guarded.graph.node(2).status == "open"


def test_the_guard_is_held_until_the_line_stands_in_the_file(task: TaskGraph) -> None:
    log = task.folder / "graph.jsonl"
    seen: list[tuple[tuple[str, ...], int]] = []

    @contextmanager
    def guard(steps: Sequence[str]) -> Iterator[None]:
        seen.append((tuple(steps), log.stat().st_size))
        yield
        seen.append((tuple(steps), log.stat().st_size))

    before = log.stat().st_size
    guarded = opened(task.folder, guard=guard)
    with guarded.change() as graph:
        graph.update_node(2, status="closed")
        graph.add_edge(1, graph.add_node("note", "n", step="s2").node_id)
    assert seen == [(("s1", "s2"), before), (("s1", "s2"), log.stat().st_size)]
    assert log.stat().st_size > before


def test_a_guard_that_cannot_be_let_go_takes_the_line_back(task: TaskGraph) -> None:
    @contextmanager
    def guard(steps: Sequence[str]) -> Iterator[None]:
        yield
        raise UserError("the journal's disk is gone")

    before = (task.folder / "graph.jsonl").read_bytes()
    guarded = opened(task.folder, guard=guard)
    with pytest.raises(UserError, match="disk is gone"), guarded.change() as graph:
        graph.update_node(2, status="closed")
    assert (task.folder / "graph.jsonl").read_bytes() == before
    assert guarded.graph.node(2).status == "open"
    guarded.add_note("free")
    assert opened(task.folder).graph == guarded.graph


def test_the_guard_refuses_a_merge_that_takes_cards_of_a_step(task: TaskGraph) -> None:
    task.create_branch("alt")
    with opened(task.folder, branch="alt").change() as graph:
        graph.update_node(2, status="closed")

    def guard(steps: Sequence[str]) -> AbstractContextManager[None]:
        raise UserError(f"{steps[0]} is leased")

    guarded = opened(task.folder, guard=guard)
    with pytest.raises(UserError, match="s1 is leased"):
        guarded.merge("alt")
    assert guarded.graph.node(2).status == "open"
    assert opened(task.folder).merge("alt").merged_names == ("node 2",)


def test_a_branch_sees_its_own_and_its_base_up_to_where_it_began(task: TaskGraph) -> None:
    task.create_branch("alt", base_seq=1)
    alt = opened(task.folder, branch="alt")
    assert list(alt.graph.nodes) == [1]
    with alt.change() as graph:
        graph.add_edge(1, graph.add_node("evidence", "E").node_id)
    assert list(alt.graph.nodes) == [1, 3], "ids are the task's, not the branch's"
    assert list(task.graph.nodes) == [1, 2]
    assert [branch.name for branch in task.branches()] == ["main", "alt"]
    task.create_branch("deep", base="alt")
    assert opened(task.folder, branch="deep").graph.nodes.keys() == {1, 3}
    for bad in ("alt", "../x", "main"):
        with pytest.raises(UserError):
            task.create_branch(bad)


def test_a_merge_names_conflicts_and_they_never_surface_again(task: TaskGraph) -> None:
    task.create_branch("alt")
    alt = opened(task.folder, branch="alt")
    with alt.change() as graph:
        node = graph.add_node("evidence", "E")
        graph.add_edge(2, node.node_id)
        graph.add_link(node.node_id, 2, "blocks")
        graph.update_node(2, status="accepted")
    with task.change() as graph:
        graph.update_node(2, status="rejected")
    text = (task.folder / "graph.jsonl").read_bytes()
    tried = task.merge("alt", dry_run=True)
    assert tried.merged_names == ("edge 2 → 3", "link 3 blocks 2", "node 3")
    assert [
        (conflict.name, conflict.use_from["meta"]["status"]) for conflict in tried.conflicts if conflict.use_from
    ] == [("node 2", "accepted")]
    assert not task.merge("alt").written
    assert (task.folder / "graph.jsonl").read_bytes() == text
    assert task.merge("alt", resolve={"node 2": "use_into"}).written
    assert task.graph.node(2).status == "rejected"
    assert task.graph.node(3).text == "E"
    assert opened(task.folder).graph == task.graph
    again = task.merge("alt")
    assert again.merged_names == again.conflicts == ()
    with alt.change() as graph:
        graph.update_node(3, title="new")
    assert task.merge("alt").merged_names == ("node 3",)
    task.add_note("a merge ends its change")
    assert task.graph.seq == task.seq
    assert task.graph.next_id == opened(task.folder).graph.next_id
    back = alt.merge("main", resolve="use_from")
    assert back.conflicts == ()
    for each, status in ((task, "closed"), (alt, "open")):
        with each.change() as graph:
            graph.update_node(2, status=status)
    with pytest.raises(GraphError, match="use_from or use_into"):
        alt.merge("main", resolve={"node 2": "mine"})


def test_a_fold_is_merged_and_can_be_unfolded_afterwards(task: TaskGraph) -> None:
    with task.change() as graph:
        for _ in range(2):
            graph.add_edge(2, graph.add_node("evidence", "E", lane="agent/bob").node_id)
    task.create_branch("alt")
    alt = opened(task.folder, branch="alt")
    with alt.change() as graph:
        graph.fold_nodes([3, 4], "both")
    assert task.merge("alt").written
    assert task.graph.node(5).meta["folded"] == [3, 4]
    assert task.graph.get_leaf_node_ids() == [5]
    with task.change() as graph:
        graph.unfold(5)
    assert task.graph.get_leaf_node_ids() == [3, 4]
    assert opened(task.folder).graph == task.graph


def test_a_merge_that_would_close_a_cycle_is_refused(task: TaskGraph) -> None:
    with task.change() as graph:
        for _ in range(2):
            graph.add_edge(1, graph.add_node("subtask", "s").node_id)
    task.create_branch("alt")
    alt = opened(task.folder, branch="alt")
    with alt.change() as graph:
        graph.add_edge(3, 4)
    with task.change() as graph:
        graph.add_edge(4, 3)
    before = task.graph.to_dict()
    with pytest.raises(GraphError, match=r"inconsistent.*cycle"):
        task.merge("alt")
    assert task.graph.to_dict() == before
    assert opened(task.folder).graph == task.graph


class Synced(list[int]):
    """How long the log was at each fdatasync of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._path, self._real = folder / "graph.jsonl", os.fdatasync
        monkeypatch.setattr("os.fdatasync", self._sync)

    def _sync(self, file: int) -> None:
        self._real(file)
        assert os.path.samestat(os.fstat(file), os.stat(self._path))
        self.append(self._path.read_bytes().count(b"\n"))


def change(task: TaskGraph, text: str, **commit: Callable[[str], object]) -> None:
    with task.change("ann", **commit) as graph:
        graph.add_node("note", text)


def test_every_line_is_on_the_disk_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = Synced(tmp_path, monkeypatch)
    task = TaskGraph(tmp_path)
    change(task, "one")
    change(task, "two")
    assert synced == [2, 3]


def test_lazy_lines_are_on_the_disk_before_anything_rests_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = Synced(tmp_path, monkeypatch)
    task = TaskGraph(tmp_path, lazy=True)
    task.sync()
    change(task, "one")
    task.add_trace("say", "two")
    assert synced == []
    task.sync()
    task.sync()
    assert synced == [3]
    change(task, "three", commit=lambda _: synced.append(-1))  # prepared, on the disk, then the event
    assert synced == [3, 4, -1]
    task.save_snapshot()
    assert synced == [3, 4, -1, 5]
    TaskGraph(tmp_path, lazy=True).sync()  # what a process that was killed wrote may not be there yet
    assert synced[-1] == 5
    assert len(synced) == 5


def test_a_lazy_log_in_a_folder_that_is_gone_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    task = TaskGraph(folder, lazy=True)
    change(task, "one")
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="the task's folder is gone"):
        task.sync()
