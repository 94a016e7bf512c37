"""Namespaces do not leak, whatever stands in them, in keys, in contents and in queries (Hypothesis)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from hivemind.fs.postgres import Postgres
from hivemind.longterm import format_namespace, parse_namespace
from hivemind.longterm.namespace import decode_namespace, encode_namespace
from tests.longterm.conftest import emptied

HOSTILE = [
    "a", "b", "%", "_", "*", "?", "[a-z]", "a%", "a_", "a*", "'", '"', "''", "\\", "/", ".", ",", '","', "\n",
    "'; DROP TABLE entries; --", '"a" OR "b"', "a OR b", "a AND NOT b", "NEAR(a b)", "content:a", "{content}:a", "^a",
    "a*", "-a", "+a", "(a", "a)", "a:b", "* ", "$.a", "ä", "A", "à", "ﬁ", "\u202e", "😀", "null", "[]", "{}", "0", " a ",
]  # fmt: skip
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8),
)
parts = texts.filter(lambda text: text.strip())
namespaces = st.lists(parts, min_size=2, max_size=4).map(tuple)
few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def fewer(store, usual=few):
    """Of the examples a fifth on a server: its answers take longer, and what is walled off is in the statements of both."""
    on_server = isinstance(store.database, Postgres)
    return settings(usual, max_examples=usual.max_examples // 5) if on_server else usual


@given(st.lists(namespaces, min_size=1, max_size=6, unique=True))
@few
def test_two_namespaces_never_have_one_name(found):
    assert len({encode_namespace(namespace) for namespace in found}) == len(found)
    assert len({format_namespace(namespace) for namespace in found}) == len(found)
    assert [decode_namespace(encode_namespace(namespace)) for namespace in found] == found
    assert [parse_namespace(format_namespace(namespace)) for namespace in found] == found


def test_no_call_reaches_another_namespace(lasting):
    walled = given(st.just(lasting), namespaces, namespaces, texts, texts, parts, parts)
    fewer(lasting)(walled(reaches_no_other))()


def reaches_no_other(store, mine, theirs, key, query, secret, own):
    if mine == theirs:
        return
    emptied(store)
    store.put(mine, key, {"content": own, "metadata": {query: own}})
    alone = [(mode, answers(store, mine, query, own, mode)) for mode in ("hybrid", "vector", "text")]
    store.put(theirs, key, {"content": secret, "metadata": {query: secret}})
    store.put(theirs, query, secret + own)
    for mode, before in alone:
        assert answers(store, mine, query, own, mode) == before  # not even a score has changed
    assert store.list(mine) == [key]
    assert store.get(mine, key).content == own
    assert len(store.history(mine, key)) == 1
    below = {hit.namespace for hit in store.search(mine, own, prefix=True)}
    assert all(namespace[: len(mine)] == mine for namespace in below)
    assert store.delete(mine, key)
    assert store.get(theirs, key) is not None
    assert store.check() == []


def answers(store, namespace, query, own, mode):
    found = []
    for asked in (query, own):
        for filters in ({}, {"metadata": {query: own}}):
            hits = store.search(namespace, asked, -1.0, mode=mode, **filters)
            assert all(hit.namespace == namespace for hit in hits)
            found.append([(hit.key, hit.score, hit.similarity, hit.why) for hit in hits])
    return found


def test_any_text_may_be_asked_for(lasting):
    fewer(lasting)(given(st.just(lasting), st.text(max_size=200))(may_be_asked_for))()


def may_be_asked_for(store, query):
    store.put(("a", "b"), "k", "a text")
    for mode in ("hybrid", "vector", "text"):
        try:
            query.encode()
        except UnicodeEncodeError:
            continue
        store.search(("a", "b"), query, mode=mode)


class StoreIsADictionary(RuleBasedStateMachine):
    """What the store says is what a dictionary of dictionaries would, whatever is done to it."""

    def __init__(self, store) -> None:
        super().__init__()
        self.store = emptied(store)
        self.model: dict[tuple, dict[str, list[str]]] = {}

    spaces = st.sampled_from([("a", "b"), ("a", "b", "c"), ("a", "%"), ("A", "b")])
    keys = st.sampled_from(["k", "K", "%", "k' --"])
    contents = st.sampled_from(["tea", "green tea", "cars", "zebra crossing"])

    @rule(space=spaces, key=keys, content=contents)
    def put(self, space, key, content):
        versions = self.model.setdefault(space, {}).setdefault(key, [])
        versions.append(content)
        assert self.store.put(space, key, content).version == len(versions)

    @rule(space=spaces, key=keys, content=contents)
    def upsert(self, space, key, content):
        versions = self.model.setdefault(space, {}).setdefault(key, [])
        result = self.store.upsert_memory(space, content, key=key)
        assert (result.success, result.action) == (True, "updated" if versions else "created")
        others = [name for name, said in self.model[space].items() if name != key and said and said[-1] == content]
        assert (result.similar_key in others) if others else result.similar_key is None
        versions.append(content)

    @rule(space=spaces, key=keys)
    def delete(self, space, key):
        assert self.store.delete(space, key) is bool(self.model.get(space, {}).pop(key, None))

    @precondition(lambda self: self.model)
    @rule(space=spaces, content=contents)
    def search(self, space, content):
        same = {key for key, said in self.model.get(space, {}).items() if said[-1] == content}
        hits = self.store.search(space, content, mode="vector", limit=50)
        assert {hit.key for hit in hits if hit.similarity > 0.999} == same

    @invariant()
    def everything_is_as_the_model_says(self):
        for space, entries in self.model.items():
            assert self.store.list(space) == sorted(entries)
            for key, said in entries.items():
                assert [version.content for version in self.store.history(space, key)] == said

    def teardown(self):
        assert self.store.check() == []


@pytest.mark.shows("promise: P72")
def test_a_store_is_a_dictionary(lasting):
    steps = settings(few, max_examples=25, stateful_step_count=20)
    run_state_machine_as_test(lambda: StoreIsADictionary(lasting), settings=fewer(lasting, steps))
