"""Finding nodes in the graphs of all tasks: a derived index, brought up to date by whoever searches."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind.embedding import EmbedderUnavailable, HashingEmbedder
from hivemind.errors import UnknownVersion
from hivemind.layout import Layout
from hivemind.reasoning import GraphError, GraphIndex, GraphMatch, TaskGraph
from tests.reasoning.children import written
from tests.reasoning.test_task_graph import child, killed
from tests.rights import as_anyone
from tests.tasks.conftest import in_process

BOATS, LOCKS = "boats", "locks"


class Alike(HashingEmbedder):
    """Texts about boats mean the same, whatever their words; counts what it is asked, and refuses one text."""

    def __init__(self, name: str = "alike") -> None:
        super().__init__(8)
        self.name, self.asked, self.refused, self.is_down = name, 0, "", False

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        self.asked += len(texts)
        if self.is_down or (self.refused and any(self.refused in text for text in texts)):
            raise EmbedderUnavailable("it is ill")
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> Sequence[float]:
        boats = any(word in text.casefold() for word in ("keel", "boat", "sail"))
        return [1.0, 0.1, *[0.0] * 6] if boats else [0.0, 0.1, 1.0, *[0.0] * 5]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.at(tmp_path)
    layout.state.mkdir()
    written(layout.done / BOATS, "The keel is made of lead", "Leeward is where the wind goes")
    written(layout.active / LOCKS, "A lease is renewed under the lock", "The kernel frees a lock")
    return layout


@pytest.fixture
def index(layout: Layout) -> GraphIndex:
    return GraphIndex(layout)


def told(found: GraphMatch) -> list[tuple[str, int]]:
    return [(hit.task, hit.node_id) for hit in found.hits]


def test_a_node_is_found_by_its_words_and_says_where_it_stands_and_why(index: GraphIndex) -> None:
    (hit,) = index.find("which metal is a keel?").hits
    assert (hit.task, hit.place, hit.node_id, hit.kind, hit.lane, hit.state) == (
        BOATS,
        "done",
        2,
        "evidence",
        "shared",
        "active",
    )
    assert (hit.text, hit.why, hit.similarity) == ("The keel is made of lead", "has keel; without metal", 0.0)
    assert hit.path == "tasks/done/boats/graph.jsonl"
    assert hit.score > 0


def test_meaning_finds_what_shares_no_word_and_says_how_near_it_is(layout: Layout) -> None:
    found = GraphIndex(layout, Alike()).find("sailing")
    assert told(found) == [(BOATS, 2)]
    assert found.hits[0].similarity == 1.0
    assert found.hits[0].why == "is near in meaning (1.00)"


def test_words_and_meaning_together_come_first(layout: Layout) -> None:
    written(layout.done / "more", "A sail", "lead in the pipes")
    hits = GraphIndex(layout, Alike()).find("the lead of a boat").hits
    assert [(hit.task, hit.node_id) for hit in hits] == [(BOATS, 2), ("more", 2), ("more", 3)]
    assert hits[0].why == "has lead; without boat; is near in meaning (1.00)"
    assert (hits[2].why, hits[2].similarity) == (
        "has lead; without boat; is near in meaning (0.01)",
        pytest.approx(0.01, abs=0.001),
    )


def test_what_is_folded_flushed_or_superseded_is_found_and_said_to_be(layout: Layout, index: GraphIndex) -> None:
    with TaskGraph(layout.done / BOATS).change() as graph:
        for text in ("hull one", "hull two", "hull three"):
            graph.add_edge(1, graph.add_node("note", text, lane="agent/ann", tags=["oak"]).node_id)
        graph.fold_nodes([4], "hulls in short")
        graph.flush_node(5)
        graph.supersede(6, 2)
        graph.supersede(2, 6)
    states = {hit.node_id: (hit.state, hit.lane) for hit in index.find("hull hulls oak").hits}
    lane = "agent/ann"
    assert states == {4: ("folded", lane), 5: ("flushed", lane), 6: ("superseded", lane), 7: ("active", lane)}


def test_a_search_of_one_task_sees_no_other(layout: Layout, index: GraphIndex) -> None:
    assert told(index.find("lock lease keel", task=LOCKS)) == [(LOCKS, 2), (LOCKS, 3)]
    with pytest.raises(GraphError, match="task 'oars' has no graph"):
        index.find("lock", task="oars")
    for hostile in ("", ".", "..", "../../.hive", "done/boats", "a\0b", "\udcff"):
        with pytest.raises(GraphError, match="has no graph"):
            index.find("lock", task=hostile)


def test_better_hits_in_other_tasks_do_not_push_out_those_of_the_task(layout: Layout) -> None:
    written(layout.done / "many", *["lock"] * 250, *["sail"] * 250)
    written(layout.done / "more", "a lock, among other things that are said here", "a sail")
    index = GraphIndex(layout, Alike())
    index.refresh()
    assert told(GraphIndex(layout).find("lock", task="more")) == [("more", 2)]
    while index.embed_pending(1_000):
        pass
    assert told(index.find("keel", task="more")) == [("more", 3)]


def test_a_limit_below_one_is_refused(index: GraphIndex) -> None:
    with pytest.raises(GraphError, match="≥ 1"):
        index.find("x", limit=0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.text(max_size=60)
    | st.text("\"'*()^:-+{}[]\\/%_NEAR AND OR NOT\0\udc80\n", max_size=60).map(lambda text: text + " lock keel")
)
def test_no_query_is_an_error_or_reaches_another_task(tmp_path_factory: pytest.TempPathFactory, query: str) -> None:
    index = _shared(tmp_path_factory)
    assert all(hit.task == LOCKS for hit in index.find(query, task=LOCKS).hits)
    index.find(query)


def _shared(factory: pytest.TempPathFactory, kept: dict[str, GraphIndex] = {}) -> GraphIndex:  # noqa: B006 - one for all examples
    if "index" not in kept:
        layout = Layout.at(factory.mktemp("hive"))
        layout.state.mkdir()
        written(layout.done / BOATS, "The keel is made of lead")
        written(layout.active / LOCKS, "The kernel frees a lock")
        kept["index"] = GraphIndex(layout, Alike())
    return kept["index"]


# -- up to date ------------------------------------------------------------------------------------------------------


def test_only_graphs_that_changed_are_read(layout: Layout, index: GraphIndex) -> None:
    assert [index.refresh(), index.refresh(), GraphIndex(layout).refresh()] == [2, 0, 0]
    with TaskGraph(layout.active / LOCKS).change() as graph:
        graph.add_edge(1, graph.add_node("note", "a keel has no lock").node_id)
    assert index.refresh() == 1
    assert (LOCKS, 4) in told(index.find("keel"))


def test_a_task_that_moves_on_is_found_where_it_lies_and_not_read_again(layout: Layout, index: GraphIndex) -> None:
    index.find("lease")
    layout.failed.mkdir()
    (layout.active / LOCKS).rename(layout.failed / LOCKS)
    assert index.refresh() == 0
    (hit,) = index.find("lease").hits
    assert (hit.place, hit.path) == ("failed", "tasks/failed/locks/graph.jsonl")
    assert (layout.root / hit.path).is_file()


def test_a_task_that_is_gone_is_not_found(layout: Layout, index: GraphIndex) -> None:
    assert index.find("lease").hits
    shutil.rmtree(layout.active / LOCKS)
    assert not index.find("lease lock").hits
    assert index.check() == []


def test_what_changed_is_found_by_its_new_words_alone_and_the_rest_keeps_its_vectors(layout: Layout) -> None:
    embedder = Alike()
    index = GraphIndex(layout, embedder)
    index.find("lease")
    asked = embedder.asked
    with TaskGraph(layout.active / LOCKS).change() as graph:
        graph.update_node(2, thought="A bolt is drawn", title="Door")
        graph.update_node(3, status="superseded")
    assert told(index.find("door bolt"))[0] == (LOCKS, 2)
    assert embedder.asked == asked + 2, "the node that says something else, and the query"
    assert "has" not in index.find("lease renewed").hits[0].why
    assert index.check() == []


def test_a_log_that_was_cut_or_put_back_is_read_as_it_is(layout: Layout, index: GraphIndex) -> None:
    log = layout.active / LOCKS / "graph.jsonl"
    before = log.read_bytes()
    with TaskGraph(log.parent).change() as graph:
        graph.add_edge(1, graph.add_node("note", "a spring").node_id)
    assert index.find("spring").hits
    with open(log, "r+b") as file:
        file.truncate(len(before))
    assert not index.find("spring").hits


def test_a_graph_damaged_by_hand_is_named_and_passed_over_until_it_is_mended(layout: Layout, index: GraphIndex) -> None:
    log = layout.active / LOCKS / "graph.jsonl"
    whole = log.read_bytes()
    index.find("lease")
    log.write_bytes(whole.replace(b'"ops"', b'"oops"', 1))
    for _ in range(2):
        found = index.find("lease keel")
        assert told(found) == [(BOATS, 2)]
        (remark,) = found.remarks
        assert remark.startswith(f"skipped: {log}:2: is a line of a graph's log that cannot be read")
    assert index.refresh() == 0, "not again while it stays as it is"
    assert index.find("keel", task=BOATS).remarks == ()
    log.write_bytes(whole)
    assert told(index.find("lease")) == [(LOCKS, 2)]


def test_a_graph_that_is_no_file_is_left_alone(layout: Layout, index: GraphIndex) -> None:
    for name, make in (
        ("pipe", os.mkfifo),
        ("link", lambda path: os.symlink(layout.done / BOATS / "graph.jsonl", path)),
    ):
        (layout.done / name).mkdir()
        make(layout.done / name / "graph.jsonl")
    (layout.done / "note.txt").write_text("no task")
    assert told(index.find("keel")) == [(BOATS, 2)]


def test_half_a_character_is_kept_out_of_the_index_and_found_around(layout: Layout, index: GraphIndex) -> None:
    written(layout.done / "odd", "rudder \ud83d blade")
    assert index.find("rudder").hits[0].text == "rudder ? blade"


# -- derived ---------------------------------------------------------------------------------------------------------


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def _torn(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def _without_a_table(path: Path) -> None:
    with sqlite3.connect(path) as sql:
        sql.execute("DROP TABLE items")
    sql.close()


@pytest.mark.parametrize("damage", [_garbage, _torn, _without_a_table])
def test_a_damaged_index_is_set_aside_in_words_and_made_anew(layout: Layout, damage: Callable[[Path], None]) -> None:
    first = GraphIndex(layout, Alike())
    before = first.find("keel lock")
    first.close()
    damage(layout.graphs_db)
    found = GraphIndex(layout, Alike()).find("keel lock")
    assert found.hits == before.hits
    (aside,) = layout.state.glob("graphs.db.damaged-*")
    (remark,) = found.remarks
    assert remark.startswith(("graphs.db is damaged", "graphs.db is not a database"))
    assert f"set aside as {aside.name}, and is rebuilt" in remark
    assert GraphIndex(layout).check() == []


def test_one_that_is_missing_is_made_anew_also_under_who_has_it_open(layout: Layout, index: GraphIndex) -> None:
    before = index.find("keel lock").hits
    for name in layout.state.glob("graphs.db*"):
        shutil.rmtree(name) if name.is_dir() else name.unlink()
    assert index.find("keel lock").hits == before
    assert GraphIndex(layout).find("keel lock").hits == before


def _of_version(layout: Layout, index: GraphIndex, version: int) -> bytes:
    index.find("keel lock")
    index.close()
    with sqlite3.connect(layout.graphs_db) as sql:
        sql.execute(f"PRAGMA user_version = {version}")
    sql.close()
    return layout.graphs_db.read_bytes()


def test_a_newer_version_is_refused_and_kept(layout: Layout, index: GraphIndex) -> None:
    content = _of_version(layout, index, 99)
    with pytest.raises(UnknownVersion, match="version 99"):
        index.find("keel")
    assert layout.graphs_db.read_bytes() == content


def test_an_older_version_is_set_aside_and_rebuilt(layout: Layout, index: GraphIndex) -> None:
    content = _of_version(layout, index, 1)
    found = index.find("keel lock")
    (aside,) = layout.state.glob("graphs.db.damaged-*")
    assert aside.read_bytes() == content
    assert found.hits
    assert found.remarks == (f"graphs.db is of version 1: set aside as {aside.name}, and is rebuilt",)


def test_another_embedder_embeds_all_anew(layout: Layout) -> None:
    one, other = Alike("one"), Alike("other")
    GraphIndex(layout, one).find("sailing")
    assert told(GraphIndex(layout, other).find("sailing")) == [(BOATS, 2)]
    assert (one.asked, other.asked) == (7, 7), "six nodes and the query"
    assert told(GraphIndex(layout).find("sailing")) == [], "without an embedder, by words only"


def test_where_nothing_can_be_written_the_graphs_are_read_for_this_once(layout: Layout) -> None:
    index = GraphIndex(layout, Alike(), persistent=False)
    assert told(index.find("sailing")) == told(index.find("sailing")) == [(BOATS, 2)]
    assert list(layout.state.iterdir()) == []


def test_an_embedder_that_fails_is_said_and_words_find(layout: Layout) -> None:
    embedder = Alike()
    embedder.is_down = True
    index = GraphIndex(layout, embedder)
    found = index.find("keel")
    assert told(found) == [(BOATS, 2)]
    assert found.remarks == ("searched by words only: it is ill",)
    embedder.is_down = False
    assert index.find("sailing").hits


def test_a_text_that_the_embedder_refuses_does_not_stop_the_others(layout: Layout) -> None:
    embedder = Alike()
    embedder.refused = "kernel"
    found = GraphIndex(layout, embedder).find("sailing kernel's")
    assert found.remarks == ("searched by words only: it is ill",), "it refuses the query as well"
    found = GraphIndex(layout, embedder).find("sailing, lock")
    assert told(found)[0] == (BOATS, 2)
    assert found.remarks == ("1 node is not embedded yet: searched by its words only",)
    assert [hit.why for hit in found.hits if hit.node_id == 3] == ["has lock; without sailing; not embedded yet"]


def test_an_agent_at_rest_embeds_what_a_search_leaves(layout: Layout) -> None:
    written(layout.done / "planks", *(f"plank {number}" for number in range(62)))
    index = GraphIndex(layout, Alike())
    assert index.find("sailing").remarks == ("5 nodes are not embedded yet: searched by their words only",)
    assert [index.embed_pending(3) for _ in range(3)] == [3, 2, 0]
    assert index.find("sailing").remarks == ()


# -- several processes, and what a crash leaves ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        "graph.index.schema.written",
        "graph.index.write.before_commit",
        "graph.index.write.committed",
        "graph.index.taken",
        "search.embed.batch",
    ],
)
def test_killed_in_the_middle_of_an_update_the_next_search_finds_all(layout: Layout, point: str) -> None:
    killed("find", layout.root, "keel lock", crash=point)
    index = GraphIndex(layout, HashingEmbedder())
    assert told(index.find("keel lock lease")) == [(LOCKS, 2), (LOCKS, 3), (BOATS, 2)]
    assert index.check() == []


def test_processes_write_and_search_at_once_and_each_finds_its_own(layout: Layout) -> None:
    children = [child("search", layout.root, name, 12) for name in ("ann", "bob", "cid")]
    try:
        assert [one.wait(60) for one in children] == [0, 0, 0]
    finally:
        for one in children:
            one.kill()
    index = GraphIndex(layout)
    assert len(index.find("finding", limit=100).hits) == 36
    assert index.check() == []


def test_a_reading_that_is_older_than_what_another_process_took_in_changes_nothing(
    layout: Layout, index: GraphIndex
) -> None:
    """Two processes read one graph; who read it first writes last."""
    other = GraphIndex(layout)
    log = layout.active / "a"  # read before the graph of locks
    written(log, "early bird")
    index.refresh()
    for folder in (log, layout.active / LOCKS):
        with TaskGraph(folder).change() as graph:
            graph.add_edge(1, graph.add_node("note", "crow").node_id)

    def meanwhile(at: int, _of: int) -> None:
        if at == 2:
            with TaskGraph(log).change() as graph:
                graph.add_edge(1, graph.add_node("note", "late owl").node_id)
            other.refresh()

    assert index.refresh(progress=meanwhile) == 2
    index.close()
    with sqlite3.connect(layout.graphs_db) as sql:
        assert sql.execute("SELECT count(*) FROM words WHERE words MATCH 'owl'").fetchone() == (1,)
    sql.close()


def test_hits_are_plain_json(index: GraphIndex) -> None:
    (hit,) = index.find("keel").hits
    assert json.loads(json.dumps(hit.as_dict()))["path"] == hit.path


def test_a_task_whose_folder_is_closed_to_the_hive_hides_no_other_graph(layout: Layout) -> None:
    written(layout.inbox / "closed", "The keel is made of oak")
    (layout.inbox / "closed").chmod(0)

    def work() -> None:
        as_anyone()
        assert told(GraphIndex(layout).find("keel")) == [(BOATS, 2)]

    in_process(work)
