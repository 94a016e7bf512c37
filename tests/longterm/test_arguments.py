"""Whatever a caller gives, right or wrong, the store works or says in words what it expected."""

from __future__ import annotations

import inspect
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hivemind.errors import UserError
from hivemind.longterm import EntryInvalid, LongtermError, MemoryStore, open_store

ME = ("memories", "u1")
NAN, INFINITE = float("nan"), float("inf")
ODD: list[Any] = [
    None, "", "x", "\ud800", "a\0b", b"x", 0, -1, 10**30, 10**400, -(10**400), 1.5, NAN, INFINITE, True, False, [], [1],
    {}, {"a": 1}, {1: 2}, {"a": NAN}, {"a": b"x"}, {"a": {"$in": 3}}, {"a": {"$foo": 1}}, {"a": {"$gt": {}}}, {"$gt": 1},
    ("a",), ("a", ["b"]), (ME,), set(), object(), object, len, range(3), date(2026, 1, 1), datetime(2026, 1, 1),
    datetime.min, datetime.max, datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
]  # fmt: skip
CALLS: dict[str, dict[str, Any]] = {
    "search": {"namespace": ME, "query": "tea"}, "search_in": {"namespaces": [ME], "query": "tea"},
    "put": {"namespace": ME, "key": "t", "value": "tea"}, "put_many": {"namespace": ME, "values": {"t": "tea"}},
    "upsert_memory": {"namespace": ME, "content": "tea"}, "get": {"namespace": ME, "key": "k"},
    "get_many": {"namespace": ME, "keys": ["k"]}, "delete": {"namespace": ME, "key": "t"}, "list": {"namespace": ME},
    "history": {"namespace": ME, "key": "k"}, "expire": {"namespace": ME, "key": "k", "expires_at": None},
    "namespaces": {"prefix": ()},
    "create_user": {"name": "ann"}, "embed_pending": {"limit": 1}, "purge": {"limit": 1}, "fitting": {"text": "tea"},
    "coverage": {"query": "tea", "text": "tea"},
}  # fmt: skip
FIELDS = ("content", "metadata", "embedding", "category", "importance", "expires_at", "parent_id", "links")


@pytest.fixture(scope="module")
def store(lasting):
    return lasting


def says_or_works(call) -> None:
    for odd in ODD:
        with suppress(UserError):
            call(odd)


@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_given_it_works_or_says_what_it_expected(store: MemoryStore, name: str) -> None:
    method, usual = getattr(store, name), CALLS[name]
    store.put(ME, "k", {"content": "tea", "metadata": {"a": 1}})
    assert method(**usual) is not NotImplemented
    for argument in inspect.signature(method).parameters:
        says_or_works(lambda odd, argument=argument: method(**(usual | {argument: odd})))
        for mode in ("vector", "text") if name == "search" else ():
            says_or_works(lambda odd, a=argument, m=mode: method(**(usual | {"mode": m} | {a: odd})))
    assert store.check() == []


@pytest.mark.parametrize("field", FIELDS)
def test_whatever_stands_in_a_field_it_is_stored_or_refused(store: MemoryStore, field: str) -> None:
    says_or_works(lambda odd: store.put(ME, "f", {"content": "tea"} | {field: odd}))
    assert store.check() == []


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("query", None), ("query", b"tea"), ("limit", None), ("limit", -1), ("limit", True), ("limit", "5"),
        ("limit", 2.0), ("threshold", "0.5"), ("threshold", NAN), ("threshold", 1.5), ("threshold", True),
        ("mode", "fuzzy"), ("mode", []), ("prefix", 1), ("prefix", "no"), ("metadata", []), ("metadata", {1: 2}),
        ("metadata", {"a": NAN}), ("category", 7), ("min_importance", "0.5"), ("min_importance", 2), ("since", "today"),
        ("since", date(2026, 1, 1)), ("until", 1_700_000_000),
    ],
)  # fmt: skip
def test_what_a_search_cannot_mean_is_refused(store: MemoryStore, name: str, wrong: Any) -> None:
    for mode in ("hybrid", "vector", "text"):
        with pytest.raises(EntryInvalid):
            store.search(**({"namespace": ME, "query": "tea", "mode": mode} | {name: wrong}))


def test_a_limit_beyond_all_numbers_means_all_and_none_means_none(store: MemoryStore) -> None:
    space = ("memories", "many")
    store.put_many(space, {f"k{number}": f"tea {number}" for number in range(30)})
    assert len(store.search(space, "tea", limit=10**400)) == 30
    assert store.search(space, "tea", limit=0) == []


@pytest.mark.parametrize(
    ("name", "wrong"), [("expected_version", True), ("expected_version", -1), ("embed", "no"), ("key", b"k")]
)
def test_what_a_put_cannot_mean_is_refused_and_nothing_is_stored(store: MemoryStore, name: str, wrong: Any) -> None:
    space = ("memories", "nothing")
    with pytest.raises(EntryInvalid):
        store.put(**({"namespace": space, "key": "k", "value": "tea"} | {name: wrong}))
    assert space not in store.namespaces()


def test_a_time_at_the_end_of_all_times_comes_back(store: MemoryStore) -> None:
    last, first = datetime.max.replace(tzinfo=UTC), datetime.min
    assert store.put(ME, "last", {"content": "x", "expires_at": last}).expires_at == last
    assert store.put(ME, "first", {"content": "x", "expires_at": first}).expires_at == first.replace(tzinfo=UTC)
    assert store.get(ME, "last").expires_at == last
    assert store.get(ME, "first") is None
    with pytest.raises(EntryInvalid, match="out of range in UTC"):
        store.expire(ME, "last", ODD[-1])


@pytest.mark.parametrize("what", [None, 7, b"", "", "a\0b", "postgresql://ann:secret@host/db", "mysql://ann:secret@h"])
def test_what_names_no_store_is_refused_in_words(what: Any) -> None:
    with pytest.raises(LongtermError) as caught:
        open_store(what, None)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"embedder": "minilm"}, {"embedder": 7}, {"dimension": 0}, {"dimension": "384"}, {"similarity_threshold": "high"},
        {"similarity_threshold": NAN},
    ],
)  # fmt: skip
def test_a_store_that_could_not_work_is_not_made(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(EntryInvalid):
        open_store(tmp_path / "m.db", **({"embedder": None} | options))
