"""Operations of another process on a store: `worker.py DATABASE OPERATION ARGUMENT`."""

from __future__ import annotations

import sys
from pathlib import Path

from hivemind.embedding import HashingEmbedder
from hivemind.fs.backup import restore
from hivemind.longterm import MemoryStore, VersionConflict, open_store

SHARED = ("shared", "w")


def upserts(store: MemoryStore, name: str) -> None:
    """Update one shared entry and put a new one, 15 times; print each pair once it is stored."""
    for number in range(15):
        version = store.put(SHARED, "one", f"said by {name} in turn {number}").version
        store.upsert_memory(SHARED, f"own text {number} of {name}", key=f"{name}-{number}")
        print(name, number, version, flush=True)


def same(store: MemoryStore, _: str) -> None:
    """Upsert the same texts as every other worker, without keys."""
    for number in range(20):
        store.upsert_memory(SHARED, f"fact number {number} {'abc'[number % 3] * number}")


def count(store: MemoryStore, _: str) -> None:
    """Count up in an entry by compare-and-set."""
    done = 0
    while done < 20:
        entry = store.get(SHARED, "count")
        value, version = (0, 0) if entry is None else (entry.metadata["n"], entry.version)
        try:
            store.put(SHARED, "count", {"content": "n", "metadata": {"n": value + 1}}, expected_version=version)
        except VersionConflict:
            continue
        done += 1


def put(store: MemoryStore, text: str) -> None:
    store.put(SHARED, "k", text)


def put_many(store: MemoryStore, text: str) -> None:
    store.put_many(SHARED, {f"many-{number}": f"{text} {number}" for number in range(500)})


def delete(store: MemoryStore, key: str) -> None:
    store.delete(SHARED, key)


def reindex(store: MemoryStore, name: str) -> None:
    store.embeddings.embedder.name = name
    store.reindex()


def searching(store: MemoryStore, _: str) -> None:
    """Search until another worker's entry is found."""
    while not any(hit.key == "found-me" for hit in store.search(SHARED, "zebra crossing", mode="vector")):
        pass


def mend(store: MemoryStore, _: str) -> None:
    folder = Path(store.database.path).parent
    restore(store, folder / "backups", folder / "aside", print)


if __name__ == "__main__":
    database, operation, argument = sys.argv[1:]
    globals()[operation](open_store(database, HashingEmbedder()), argument)
