"""Under LangGraph: the contract of its stores, its own tests if they can be fetched, and the state and nodes of an agent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.store.base")

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

from hivemind.embedding import HashingEmbedder
from hivemind.longterm import EntryInvalid, NamespaceInvalid, UpsertMemoryInput, open_store
from hivemind.longterm.langgraph import HivemindStore, MemoryState, format_memories, retrieve_memories, store_memories
from tests.longterm.conftest import emptied
from tests.longterm.faulty import Faulty
from tests.sample import IS_WHOLE, sampled

ROOT = Path(__file__).parent.parent.parent
LEFT_OUT = (  # they look at how their own store writes its SQL, or want a name of a filter refused that is no SQL here
    "test_store.py::test_vector_store_initialization", "test_store.py::test_nonnull_migrations",
    "test_store.py::test_sql_injection_vulnerability", "test_store.py::test_escape_glob_literal",
    "test_store.py::test_namespace_match_pattern", "test_store.py::test_list_namespaces_prefix_uses_indexable_condition",
    "test_async_store.py::test_no_running_loop", "test_async_store.py::test_vector_store_initialization",
)  # fmt: skip


ASYNCHRONOUS = ["test_ttl.py", "test_async_store.py"] if IS_WHOLE else []  # the same statements, from a thread
MANY = {"file": ("memory",), "server": ("file", "memory")}


@pytest.fixture
def store(lasting):
    yield HivemindStore(emptied(lasting), fields=["text", "tags[*]"])
    assert lasting.check() == []


# LangGraph's own tests


@pytest.mark.slow
@sampled
@pytest.mark.shows("promise: P72")
@pytest.mark.parametrize(
    ("kind", "library", "tests", "left_out"),
    [
        ("file", "checkpoint", ["test_store.py"], ()),
        ("file", "checkpoint-sqlite", ["test_store.py", "test_ttl.py", "test_async_store.py"], LEFT_OUT),
        ("server", "checkpoint-sqlite", ["test_store.py", *ASYNCHRONOUS], LEFT_OUT),
    ],
)
def test_the_store_passes_langgraphs_own_tests(
    kind: str, library: str, tests: list[str], left_out: tuple[str, ...], request: Any, tmp_path: Path
) -> None:
    """`make test` fetches them with LangGraph's source distributions; without a package index they are skipped."""
    checkout = Path(os.environ.get("LANGGRAPH_CHECKOUT") or ROOT / ".venv" / "langgraph-tests")
    if not (checkout / "libs" / library).is_dir():
        pytest.skip(f"LangGraph's own tests are not at {checkout}: python tests/longterm/langgraph_tests.py {checkout}")
    where: dict[str, str] = {}
    only: list[str] = []
    if not IS_WHOLE:  # a thousand writes, each in a transaction of its own: once, to a file
        left_out += tuple(f"test_async_store.py::test_large_batches_async[{place}]" for place in MANY[kind])
    if kind == "server":
        only = ["-k", "not memory"]  # there a store `:memory:` is a database as any other is
        where["STANDIN_DATABASE"] = request.getfixturevalue("database")
        with open_store(where["STANDIN_DATABASE"], None) as empty:
            empty.users()
    told = [ROOT, Path(__file__).parent, checkout / "plugins", *filter(None, [os.environ.get("PYTHONPATH")])]
    ended = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "langgraph_standin", "-p", "pytest_mock",
            "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider",
            "-o", "asyncio_mode=auto", *(f"--deselect=tests/{name}" for name in left_out),
            *(f"tests/{name}" for name in tests), *only,
        ],
        cwd=checkout / "libs" / library,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, told)),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": os.fspath(tmp_path),  # their databases' locks would stay in the one of all
            **where,
        },
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-1000:]
    assert " passed" in ended.stdout


# its contract, in our words


def test_an_item_comes_back_as_it_was_put_and_keeps_its_creation(store: HivemindStore) -> None:
    assert isinstance(store, BaseStore)
    store.put(("users", "ann"), "prefs", {"theme": "dark", "n": 1.5, "deep": {"a": [None, True]}})
    first = store.get(("users", "ann"), "prefs")
    store.put(("users", "ann"), "prefs", {"theme": "light"})
    second = store.get(("users", "ann"), "prefs")
    assert first.value == {"theme": "dark", "n": 1.5, "deep": {"a": [None, True]}}
    assert (second.value, second.namespace, second.key) == ({"theme": "light"}, ("users", "ann"), "prefs")
    assert second.created_at == first.created_at < second.updated_at
    with pytest.raises(EntryInvalid, match="a value must be a dictionary, not str"):
        store.put(("users", "ann"), "prefs", "dark")
    store.delete(("users", "ann"), "prefs")
    assert store.get(("users", "ann"), "prefs") is None


def test_a_batch_answers_in_order_reads_first_and_the_last_put_counts(store: HivemindStore) -> None:
    store.put(("a",), "k", {"text": "old"})
    answers = store.batch(
        [
            PutOp(("a",), "k", {"text": "new"}), GetOp(("a",), "k"), PutOp(("a",), "k", {"text": "newest"}),
            ListNamespacesOp(limit=5), SearchOp(("a",), limit=5),
        ]
    )  # fmt: skip
    assert (answers[0], answers[1].value, answers[2], answers[3]) == (None, {"text": "old"}, None, [("a",)])
    assert [item.value for item in answers[4]] == [{"text": "old"}]
    assert store.get(("a",), "k").value == {"text": "newest"}
    with pytest.raises(ValueError, match="Unknown operation"):
        store.batch(["get"])


def test_search_finds_by_the_nearest_of_an_items_texts(store: HivemindStore) -> None:
    store.put(("docs",), "one", {"text": "apples and pears", "tags": ["green tea", "cups"]})
    store.put(("docs",), "two", {"text": "cars and lorries"})
    store.put(("docs",), "hidden", {"text": "green tea"}, index=False)
    [first, second, third] = store.search(("docs",), query="green tea")
    assert (first.key, third.key, third.score) == ("one", "hidden", None)
    assert first.score > second.score
    assert [item.key for item in store.search(("docs",), query="lorries", limit=1)] == ["two"]
    assert [item.key for item in store.search(("docs",), query="green tea", limit=1, offset=1)] == ["two"]
    store.put(("docs",), "one", {"text": "nothing of that"})
    assert store.search(("docs",), query="green tea", limit=1)[0].score < first.score


def test_fields_can_be_chosen_for_one_item(store: HivemindStore) -> None:
    store.put(("docs",), "k", {"title": "green tea", "text": "x"}, index=["title"])
    assert store.search(("docs",), query="green tea")[0].score == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"n": 1}, "a"), ({"n": {"$gt": 1}}, "b"), ({"n": {"$gte": 1, "$ne": 2}}, "a"), ({"deep": {"x": 1}}, "a"),
        ({"deep.x": 1}, "a"), ({"list": [1, 2]}, "b"), ({"n": {"$lt": float("inf")}}, "ab"), ({"no": 1}, ""),
        ({"n') OR ('1": 1}, ""), ({"word": {"$gt": "l"}}, "b"), ({"word": {"$gt": 1}}, ""),
    ],
)  # fmt: skip
def test_filters_narrow_lists_and_searches_alike(store: HivemindStore, wanted: dict, found: str) -> None:
    store.put(("f",), "a", {"text": "tea", "n": 1, "deep": {"x": 1, "y": 2}, "word": "k"})
    store.put(("f",), "b", {"text": "tea", "n": 2, "list": [1, 2], "word": "m"})
    for query in (None, "tea"):
        assert "".join(sorted(item.key for item in store.search(("f",), query=query, filter=wanted))) == found


def test_a_prefix_is_compared_part_by_part(store: HivemindStore) -> None:
    for namespace in (("a",), ("a", "b"), ("ab",), ("a%",), ("a*", "b"), ("A",)):
        store.put(namespace, "k", {"text": "tea"})
    assert {item.namespace for item in store.search(("a",))} == {("a",), ("a", "b")}
    assert {item.namespace for item in store.search(("a*",), query="tea")} == {("a*", "b")}
    assert len(store.search(())) == 6
    assert store.list_namespaces(prefix=("a",)) == [("a",), ("a", "b")]
    assert store.list_namespaces(suffix=("b",)) == [("a", "b"), ("a*", "b")]
    assert store.list_namespaces(prefix=("*", "b"), max_depth=1) == [("a",), ("a*",)]
    assert store.list_namespaces(limit=2, offset=1) == [("a",), ("a", "b")]
    with pytest.raises(ValueError, match="match type"):
        store.batch([ListNamespacesOp(match_conditions=(MatchCondition("middle", ("a",)),), limit=5)])


def test_items_live_for_their_time_and_reading_renews_it(tmp_path: Path) -> None:
    now = [datetime.now(UTC)]
    with open_store(tmp_path / "m.db", HashingEmbedder(), clock=lambda: now[0]) as memory:
        store = HivemindStore(memory, ttl={"refresh_on_read": True})
        store.put(("t",), "k", {"text": "tea"}, ttl=10)
        now[0] += timedelta(minutes=11)
        assert store.get(("t",), "k") is None
        assert store.search(("t",), query="tea") == []
        assert store.sweep_ttl() == 2
        now[0] = datetime.now(UTC) - timedelta(minutes=5)
        store.put(("t",), "k", {"text": "tea"}, ttl=10)
        before = memory.get(("langgraph", "t"), "k").expires_at
        store.get(("t",), "k")
        after = memory.get(("langgraph", "t"), "k")
        assert (after.expires_at >= before, after.version) == (True, 1)


def test_a_value_that_is_no_json_is_refused_and_nothing_of_the_batch_is_stored(store: HivemindStore) -> None:
    with pytest.raises(EntryInvalid):
        store.batch([PutOp(("a",), "fine", {"n": 1}), PutOp(("a",), "bad", {"when": datetime.now(UTC)})])
    assert store.search(("a",)) == []


def test_a_batch_with_a_namespace_that_langgraph_forbids_does_nothing(store: HivemindStore) -> None:
    for namespace in (("foo.bar",), ("foo", ""), ("foo", 1), ("foo", " "), ("a\0b",)):
        for op in (
            GetOp(namespace, "k"), PutOp(namespace, "k", {}), PutOp(namespace, "k", None), SearchOp(namespace),
            ListNamespacesOp((MatchCondition("prefix", namespace),)),
        ):  # fmt: skip
            with pytest.raises(InvalidNamespaceError):
                store.batch([PutOp(("valid",), "k", {}), op])
    assert store.list_namespaces() == []


def test_where_the_embedder_fails_items_are_stored_and_found_by_words(tmp_path: Path) -> None:
    embedder = Faulty()
    with open_store(tmp_path / "m.db", embedder) as memory:
        store = HivemindStore(memory, fields=["text"])
        embedder.fault = "down"
        store.put(("a",), "k", {"text": "green tea"})
        store.put(("a",), "other", {"text": "cars"})
        assert store.search(("a",), query="tea", limit=1)[0].key == "k"


def test_the_asynchronous_calls_do_the_same(store: HivemindStore) -> None:
    async def use() -> list[str]:
        await store.aput(("a",), "k", {"text": "tea"})
        await asyncio.gather(*(store.aput(("a",), f"k{number}", {"text": "more"}) for number in range(5)))
        assert (await store.aget(("a",), "k")).value == {"text": "tea"}
        return [item.key for item in await store.asearch(("a",), query="tea", limit=1)]

    assert asyncio.run(use()) == ["k"]


def test_a_synchronous_call_within_a_running_loop_warns_and_still_does_it(store: HivemindStore) -> None:
    async def use() -> None:
        with pytest.warns(RuntimeWarning, match="await the asynchronous form"):
            store.put(("a",), "k", {"text": "tea"})

    asyncio.run(use())
    assert store.get(("a",), "k") is not None


def test_a_sweeper_deletes_what_has_expired_and_ends_when_it_is_told(tmp_path: Path) -> None:
    now = [datetime.now(UTC)]
    with open_store(tmp_path / "m.db", None, clock=lambda: now[0]) as memory:
        store = HivemindStore(memory, ttl={"sweep_interval_minutes": 1})
        store.put(("t",), "k", {"text": "tea"}, ttl=10)
        now[0] += timedelta(minutes=11)
        thread = store.start_ttl_sweeper(0.01 / 60)
        assert store.start_ttl_sweeper() is thread
        end = time.monotonic() + 60
        while memory.next_expiry() is not None:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert store.stop_ttl_sweeper(60)
        assert not thread.is_alive()


def test_what_a_value_says_of_speaker_session_and_time_is_what_search_goes_by(store: HivemindStore) -> None:
    for number, (who, text) in enumerate(
        [("ann", "Did the harbour freeze?"), ("bob", "Yes, all of it."), ("bob", "Tea?")]
    ):
        value = {"text": text, "speaker": who, "session": "s1", "time": "2026-01-31"}
        store.put(("talk",), f"k{number}", value)
    [first, *_] = store.search(("talk",), query="What did Bob say of the harbour?")
    assert first.key in ("k0", "k1")
    parts = store.store.search(("langgraph.parts", "talk"), "Did the harbour freeze?")
    next_part = store.store.get(parts[0].namespace, parts[0].links["next"])
    assert next_part.content == "Yes, all of it."


# the state and nodes, in a real graph


def test_what_one_thread_says_another_one_remembers(tmp_path: Path) -> None:
    memory = open_store(tmp_path / "m.db", HashingEmbedder())
    seen = []

    def call_model(state: MemoryState) -> dict:
        seen.append(format_memories(state["retrieved_memories"]))
        call = {"name": "upsert_memory", "args": {"content": state["messages"][-1].text, "key": "food"}, "id": "1"}
        return {
            "messages": [AIMessage("I see.", tool_calls=[call])],
            "memory_operations": [UpsertMemoryInput("  "), UpsertMemoryInput("The user was here")],
        }

    graph = StateGraph(MemoryState)
    graph.add_node("retrieve", retrieve_memories(memory))
    graph.add_node("model", call_model)
    graph.add_node("store", store_memories(memory))
    for one, two in ((START, "retrieve"), ("retrieve", "model"), ("model", "store"), ("store", END)):
        graph.add_edge(one, two)
    app = graph.compile(checkpointer=InMemorySaver())

    def say(thread: str, user: str, text: str) -> dict:
        return app.invoke({"user_id": user, "messages": [HumanMessage(text)]}, {"configurable": {"thread_id": thread}})

    first = say("A", "ann", "I am vegetarian and like Italian food")
    assert [(one.success, one.action) for one in first["memory_results"]] == [
        (False, "refused"), (True, "created"), (True, "created"),
    ]  # fmt: skip
    assert first["memory_operations"] == []
    second = say("B", "ann", "Which Italian food do I like?")
    assert next(hit.key for hit in second["retrieved_memories"]) == "food"
    assert "I am vegetarian" in seen[1]
    assert say("C", "bob", "Which Italian food do I like?")["retrieved_memories"] == []


def test_memories_that_do_not_fit_are_passed_over(tmp_path: Path) -> None:
    memory = open_store(tmp_path / "m.db", HashingEmbedder())
    memory.put(("memories", "ann"), "long", {"content": "tea " * 1_500, "importance": 1.0})
    memory.put(("memories", "ann"), "short", "tea with milk")
    node = retrieve_memories(memory)
    hits = node({"user_id": "ann", "messages": [HumanMessage("tea")]})["retrieved_memories"]
    assert [hit.key for hit in hits] == ["short"]
    assert node({"user_id": "ann", "messages": [AIMessage("tea")]}) == {"retrieved_memories": []}
    assert format_memories([]) == ""


def test_a_state_without_a_user_is_refused_in_words(tmp_path: Path) -> None:
    """A caller who forgets it must learn what is missing and where it goes; a KeyError from inside a graph says neither."""
    memory = open_store(tmp_path / "m.db", HashingEmbedder())
    for node in (retrieve_memories(memory), store_memories(memory)):
        with pytest.raises(NamespaceInvalid, match=r"has no user_id.*when you invoke the graph"):
            node({"messages": [HumanMessage("tea")]})
