from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.layout import Layout
from hivemind.tasks import Tasks
from hivemind.tasks.board import Header, lanes_of, write_board
from hivemind.tasks.entry import Entry
from hivemind.tasks.ids import free_name

from .conftest import age, drop, opened

HEADER = Header(inbox_ns=0, listed_ns=0, built=0.0, swept=0.0, cost=0.0, restless=0)
names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)
agents = st.sampled_from([None, "a", "b"])
entries = st.builds(
    Entry,
    name=names,
    ino=st.integers(0, 2**63),
    mtime_ns=st.integers(0, 5),
    size=st.integers(0, 10),
    folder=st.booleans(),
    given=st.none() | st.sampled_from(["x", "y"]),
    priority=st.integers(0, 3),
    assignee=agents,
    role=st.sampled_from([None, "r", "s"]),
    dependencies=st.lists(st.sampled_from(["x", "y"]), max_size=2).map(tuple),
    problem=st.none() | st.just("bad"),
    doom=st.none() | st.just("a cycle"),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(entries, max_size=150, unique_by=lambda entry: entry.name), agents, st.sampled_from([None, "r"]))
def test_a_board_gives_what_an_agent_may_claim_in_order_and_keeps_every_entry(tmp_path_factory, ready, agent, role):
    board = write_board(str(tmp_path_factory.mktemp("b") / "board"), HEADER, ready, [])
    agent = agent or "c"
    expected = sorted(
        (
            entry
            for entry in ready
            if entry.problem or entry.doom or (entry.assignee in (None, agent) and entry.role in (None, role))
        ),
        key=lambda entry: entry.order,
    )
    assert [*iter(lambda: board.next(lanes_of(agent, role)), None)] == expected
    assert sorted(board.entries()) == sorted(ready) if ready else board.entries() == []
    board.close()


def test_two_who_share_a_board_are_given_different_names(layout: Layout):
    for number in range(300):
        (layout.inbox / f"t{number:03}.md").write_text("x")
    one, two = opened(layout), opened(layout)
    given = [tasks._queue.next(("/",)).name for _ in range(150) for tasks in (one, two)]
    assert given == [f"t{number:03}.md" for number in sorted(range(300), key=lambda n: (mtime(layout, n), n))]


def mtime(layout: Layout, number: int) -> int:
    return (layout.inbox / f"t{number:03}.md").stat().st_mtime_ns


def test_while_many_wait_the_inbox_is_not_listed_for_each_claim(layout: Layout, tasks: Tasks, monkeypatch):
    for number in range(600):
        drop(layout, f"t{number}.md", "x")
    monkeypatch.setattr("hivemind.tasks.queue._SHARE", 1_000_000)  # as if the listing took minutes
    looks = []
    look = tasks._queue._inbox.look
    monkeypatch.setattr(tasks._queue._inbox, "look", lambda *args, **more: looks.append(1) or look(*args, **more))
    for _ in range(100):
        assert tasks.take("scout") is not None
    assert len(looks) == 1


def test_files_that_have_not_changed_are_not_read_again(layout: Layout, tasks: Tasks, monkeypatch):
    for number in range(20):
        age(drop(layout, f"t{number}.md", "x"), 10)
    assert tasks.claim("scout") is not None
    read = []
    monkeypatch.setattr(
        "hivemind.tasks.inbox.entry_of", lambda *args: read.append(args[0]) or Entry(args[0], 0, 0, 0, False)
    )
    drop(layout, "new.md", "x")
    tasks.list("inbox")
    assert read == ["new.md"]


@given(st.sets(st.integers(2, 60)), st.booleans())
def test_a_free_name_is_free_and_found_with_few_questions(numbers: set[int], taken: bool):
    asked = []
    names_taken = {f"x-{number}" for number in numbers} | ({"x"} if taken else set())

    def is_taken(name: str) -> bool:
        asked.append(name)
        return name in names_taken

    assert free_name("x", is_taken) not in names_taken
    assert len(asked) <= 16


def test_the_board_is_no_more_than_a_cache_for_those_who_may_not_write_it(layout: Layout, tasks: Tasks):
    drop(layout, "a.md", "x")
    tasks.list()
    assert not Path(layout.task_board).exists()
    assert tasks.claim("scout").id == "a"
    assert os.path.exists(layout.task_board)
