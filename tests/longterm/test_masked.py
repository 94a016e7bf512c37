"""No way into the memory takes a secret along."""

from __future__ import annotations

import pytest

from hivemind.longterm import LongtermError, open_store
from hivemind.masking import MASK

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nabc+/=\n-----END RSA PRIVATE KEY-----"
ME = ("memories", "u1")

STORED = {
    "put": lambda store: store.put(
        ME, "k", {"content": f"{TOKEN} {KEY}", "metadata": {TOKEN: [KEY]}, "category": TOKEN}
    ),
    "put_many": lambda store: store.put_many(ME, [("k", f"{TOKEN} {KEY}")]),
    "upsert": lambda store: store.upsert_memory(ME, f"{TOKEN} {KEY}", {"a": {"b": TOKEN}}, "k", category=TOKEN),
}
REFUSED = {
    "key": lambda store: store.put(ME, TOKEN, "x"),
    "namespace": lambda store: store.put(("memories", TOKEN), "k", "x"),
    "parent": lambda store: store.put(ME, "k", {"content": "x", "parent_id": TOKEN}),
    "link": lambda store: store.put(ME, "k", {"content": "x", "links": {"to": TOKEN}}),
    "relation": lambda store: store.put(ME, "k", {"content": "x", "links": {TOKEN: "k"}}),
    "user": lambda store: store.create_user(TOKEN),
}


def assert_no_secret_in(store, folder):
    with store.database.read() as sql:
        rows = repr([sql.execute(f"SELECT * FROM {table}").fetchall() for table in store.tables])
    files = [
        path.read_bytes() for path in folder.rglob("*") if path.is_file()
    ]  # those of the database, where it has any
    for secret in (TOKEN, "MIIEpAIBAAKCAQEA7"):
        assert secret not in rows
        assert not any(secret.encode() in content for content in files)


@pytest.mark.parametrize("way", STORED)
def test_a_secret_is_masked_before_it_is_stored(way, place, tmp_path):
    with open_store(place, embedder=None) as store:
        STORED[way](store)
        assert MASK in store.get(ME, "k").content
        assert_no_secret_in(store, tmp_path)


@pytest.mark.parametrize("way", REFUSED)
def test_a_name_that_holds_a_secret_is_refused_without_saying_it(way, place, tmp_path):
    with open_store(place, embedder=None) as store:
        with pytest.raises(LongtermError, match="secret") as refused:
            REFUSED[way](store)
        assert TOKEN not in str(refused.value)
        assert_no_secret_in(store, tmp_path)
