"""Graphs of archived tasks answer as before, and cost a search nothing but a look at each month."""

from __future__ import annotations

import os
import shutil
import time
from itertools import count
from pathlib import Path

import pytest

from hivemind.layout import Layout
from hivemind.reasoning import GraphIndex
from tests.reasoning.children import written


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.at(tmp_path)
    for number in range(3):
        written(layout.done / f"t{number}", f"A keel number {number} steadies the boat")
    layout.state.mkdir()
    return layout


def places(index: GraphIndex) -> dict[str, str]:
    return {hit.task: hit.path for hit in index.find("keel steadies boat").hits}


def archived(layout: Layout, task: str, month: str = "2026-05") -> Path:
    place = layout.archive / month / "done"
    place.mkdir(parents=True, exist_ok=True)
    os.rename(layout.done / task, place / task)
    return place / task


def test_an_archived_graph_is_found_where_it_lies_and_not_read_again(layout: Layout, monkeypatch: pytest.MonkeyPatch):
    index = GraphIndex(layout)
    assert set(places(index)) == {"t0", "t1", "t2"}
    archived(layout, "t0")
    found = places(index)
    assert found["t0"] == "tasks/archive/2026-05/done/t0/graph.jsonl"
    assert set(found) == {"t0", "t1", "t2"}
    assert index.refresh() == 0, "it is the same file"


def test_an_index_that_was_lost_reads_the_archive_once(layout: Layout):
    archived(layout, "t0")
    archived(layout, "t1", "2026-06")
    index = GraphIndex(layout)
    assert index.refresh() == 3
    assert index.refresh() == 0
    assert set(places(index)) == {"t0", "t1", "t2"}


def test_what_is_taken_back_or_deleted_is_not_found_in_the_archive(layout: Layout):
    archived(layout, "t0")
    archived(layout, "t1")
    index = GraphIndex(layout)
    assert len(places(index)) == 3
    layout.inbox.mkdir()
    os.rename(layout.archive / "2026-05/done/t0", layout.inbox / "t0")
    assert places(index)["t0"] == "tasks/inbox/t0/graph.jsonl"
    shutil.rmtree(layout.archive / "2026-05")
    assert set(places(index)) == {"t0", "t2"}


def test_a_search_looks_at_no_finished_task_where_none_came_or_went(layout: Layout, monkeypatch: pytest.MonkeyPatch):
    archived(layout, "t0")
    written(layout.done / "other", "Sails are hoisted")
    long_ago = (time.time() - 60,) * 2
    for place in (layout.done, layout.archive / "2026-05/done"):
        os.utime(place, long_ago)
    index = GraphIndex(layout)
    places(index)
    looked: list[str] = []
    lstat = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: looked.append(os.fspath(path)) or lstat(path))
    assert len(places(index)) == 3
    assert len(looked) == 3, "what was found is still there"


def test_what_agents_ask_lists_a_folder_that_changes_all_the_time_for_a_part_of_the_time(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
):
    index, clock = GraphIndex(layout), [1_000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "thread_time", count().__next__)  # each look costs a second

    def asked() -> set[str]:
        return {hit.task for hit in index.find("keel steadies boat", quick=True).hits}

    assert asked() == {"t0", "t1", "t2"}
    written(layout.done / "t3", "A keel number 3 steadies the boat")
    shutil.rmtree(layout.done / "t0")
    clock[0] += 5
    assert asked() == {"t1", "t2"}, "it has just been listed; what is not there any more is not told"
    clock[0] += 5
    assert asked() == {"t1", "t2", "t3"}
    written(layout.done / "t4", "A keel number 4 steadies the boat")
    assert "t4" in places(index), "a person's search looks always"
    written(layout.done / "t5", "A keel number 5 steadies the boat")
    clock[0] -= 500
    assert "t5" in asked(), "a clock that was set back puts nothing off"
