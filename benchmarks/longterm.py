"""Long-term memory: `python -m benchmarks.longterm [--quick] [PART…]`.

Embedding is apart: every text has a vector made beforehand, from 200 clusters, as real ones cluster. The baselines
are LangGraph's stores and sqlite-vec where they are installed, and a bare matrix product, in the same run: the searches
of all take turns, query by query. This Python's sqlite3 may not load extensions; then pysqlite3 does, where it is installed.
"""

from __future__ import annotations

import importlib
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest

from benchmarks.processes import family, processor_s
from benchmarks.table import Row, show
from hivemind.longterm import MemoryStore, open_store
from tests.postgres import Server

NAMESPACE = ("memories", "bench")
DIMENSION, CLUSTERS, TOP, QUERIES, BATCH = 384, 200, 10, 24, 500
_SLOW_S, _OF_SLOW = 2.0, 3  # a rival that takes longer for its first search is asked only so many of the queries
MODES = ("vector", "hybrid", "text")
SEARCH_TARGET_MS, UPSERT_TARGET, RECALL_TARGET, FIRST_TARGET_MS = 5.0, 5_000, 0.99, 300
HYBRID_TARGETS_MS = {10_000: 12.0, 100_000: 25.0}


class Texts:
    """`count` texts with a vector each, and queries near them; as an embedder it looks the vectors up."""

    name, dimension = "beforehand", DIMENSION

    def __init__(self, count: int) -> None:
        numpy = importlib.import_module("numpy")
        chance, words = numpy.random.default_rng(7), random.Random(7)
        centres = chance.normal(size=(CLUSTERS, DIMENSION))
        self.numpy = numpy
        self.vectors = self._near(chance, centres, count)
        vocabulary = [f"w{number}" for number in range(5_000)]
        weights = [1 / (number + 1) for number in range(5_000)]
        self.texts = [f"{' '.join(words.choices(vocabulary, weights, k=14))} n{number}" for number in range(count)]
        points = self._near(chance, centres, QUERIES)
        self.queries = [(f"n{number} w{number + 40} w{number + 700}", points[number]) for number in range(QUERIES)]
        self._known = dict(zip(self.texts, self.vectors, strict=True)) | dict(self.queries)

    def _near(self, chance: Any, centres: Any, count: int) -> Any:
        spread = chance.normal(size=(count, DIMENSION)) * 0.9
        rows = centres[chance.integers(0, CLUSTERS, count)] + spread
        return (rows / self.numpy.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")

    def embed(self, texts: list[str]) -> Any:
        return self.numpy.stack([self._known[text] for text in texts])

    def exact(self, vector: Any) -> list[int]:
        """The numbers of the texts nearest to a vector, by one matrix product."""
        scores = self.vectors @ vector
        top: list[int] = self.numpy.argpartition(-scores, TOP)[:TOP].tolist()
        return top


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds on the clock, and of the processor: what a busy machine adds to the first, it does not to the second."""

    wall: float
    processor: float

    @classmethod
    def middle(cls, laps: Sequence[Took]) -> Took:
        return cls(median(lap.wall for lap in laps), median(lap.processor for lap in laps))


ProcessTimes = Callable[[], dict[int, float]]
"""The processes that work for this one, with the seconds of the processor that each has used until now."""


def no_processes() -> dict[int, float]:
    return {}


def timed(work: Callable[[], Any], cpu: ProcessTimes = no_processes) -> tuple[Took, Any]:
    before = cpu()
    wall, processor = time.perf_counter(), time.process_time()
    done = work()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    processor += sum(after - before.get(pid, 0) for pid, after in cpu().items())
    return Took(wall, processor), done


def took(work: Callable[[], object], cpu: ProcessTimes = no_processes) -> Took:
    return timed(work, cpu)[0]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# the stores: each is filled, then asked one query at a time


def hivemind_store(place: str | Path, texts: Texts, cpu: ProcessTimes = no_processes) -> tuple[MemoryStore, Took]:
    """The store with all texts in it, and how long it took."""
    store = open_store(place, texts)
    pairs = [(f"k{at}", {"content": text, "metadata": {"n": at}}) for at, text in enumerate(texts.texts)]
    store.put_many(("memories", "warm"), [("k", texts.texts[0])])
    store.embeddings.embed_drafts = _ready(store, texts)  # type: ignore[method-assign]
    return store, took(
        lambda: [store.put_many(NAMESPACE, pairs[at : at + BATCH]) for at in range(0, len(pairs), BATCH)], cpu
    )


def _ready(store: MemoryStore, texts: Texts) -> Callable[..., Any]:
    """Return packed vectors made beforehand, to measure the store alone."""
    from hivemind.longterm.rows import EntryVectors

    packed_vectors = dict(zip(texts.texts, (row.tobytes() for row in texts.vectors), strict=True))
    return lambda _, drafts: [EntryVectors(texts.name, packed_vectors[draft.content]) for draft in drafts]


def langgraph_store(kind: str, place: str, corpus: Texts, cpu: ProcessTimes = no_processes) -> tuple[Any, Took] | None:
    """LangGraph's own store, filled in batches of the same size; None if it is not installed."""
    try:
        base = importlib.import_module("langgraph.store.base")
        index = {"dims": DIMENSION, "embed": corpus.embed, "fields": ["text"], "text_fields": ["text"]}
        if kind == "InMemoryStore":
            store = importlib.import_module("langgraph.store.memory").InMemoryStore(index=index)
        elif kind == "PostgresStore":
            store = _postgres_store(place, index | {"embed": lambda texts: corpus.embed(texts).tolist()})
        else:
            store = _sqlite_store(place, index)
    except (ModuleNotFoundError, AttributeError, sqlite3.Error):
        return None
    ops = [base.PutOp(NAMESPACE, f"k{at}", {"text": text, "n": at}) for at, text in enumerate(corpus.texts)]
    return store, took(lambda: [store.batch(ops[at : at + BATCH]) for at in range(0, len(ops), BATCH)], cpu)


def _loading() -> ModuleType:
    """An sqlite3 that loads extensions. Raises ModuleNotFoundError or AttributeError if there is none."""
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    return importlib.import_module("pysqlite3")


def _postgres_store(url: str, index: dict[str, Any]) -> Any:
    """Create a store as its documentation does: its tables, and its index of vectors (HNSW)."""
    module = importlib.import_module("langgraph.store.postgres")
    psycopg = importlib.import_module("psycopg")
    rows = importlib.import_module("psycopg.rows").dict_row
    store = module.PostgresStore(psycopg.connect(url, autocommit=True, row_factory=rows), index=index)
    store.setup()
    return store


def _sqlite_store(path: str, index: dict[str, Any]) -> Any:
    plain_sqlite3, sys.modules["sqlite3"] = sqlite3, _loading()
    try:
        module = importlib.import_module("langgraph.store.sqlite")
        connection = sys.modules["sqlite3"].connect(path, check_same_thread=False, isolation_level=None)
        store = module.SqliteStore(connection, index=index)
        store.setup()
    finally:
        sys.modules["sqlite3"] = plain_sqlite3
    return store


def sqlite_vec(folder: Path, vectors: Any) -> Callable[[str, Any], object] | None:
    """A search in a table of sqlite-vec, which compares every row; None if it is not installed."""
    try:
        extension, sqlite_module = importlib.import_module("sqlite_vec"), _loading()
        sql = sqlite_module.connect(folder / "vec.db", isolation_level=None)
        sql.enable_load_extension(True)
        extension.load(sql)
    except (ModuleNotFoundError, AttributeError, sqlite3.Error):
        return None
    sql.execute(f"CREATE VIRTUAL TABLE v USING vec0(vector float[{DIMENSION}] distance_metric=cosine)")
    sql.execute("BEGIN")
    sql.executemany(
        "INSERT INTO v(rowid, vector) VALUES (?, ?)", [(at, row.tobytes()) for at, row in enumerate(vectors)]
    )
    sql.execute("COMMIT")
    nearest_query = "SELECT rowid, distance FROM v WHERE vector MATCH ? AND k = ? ORDER BY distance"
    return lambda _, vector: sql.execute(nearest_query, (vector.tobytes(), TOP)).fetchall()


# measurements


def searching(folder: Path, count: int) -> list[Row]:
    """Putting `count` entries and searching them."""
    texts = Texts(count)
    filled = hivemind_store(folder / "memory.db", texts)
    rivals: dict[str, Callable[[str, Any], object]] = {"matrix product": lambda _, vector: texts.exact(vector)}
    fills: dict[str, Took] = {}
    for kind in ("InMemoryStore", "SqliteStore"):
        filled_rival = langgraph_store(kind, str(folder / "langgraph.db"), texts)
        if filled_rival is not None:
            fills[kind] = filled_rival[1]
            rivals[kind] = _asking(filled_rival[0])
    vec = sqlite_vec(folder, texts.vectors)
    if vec is not None:
        rivals["sqlite-vec"] = vec
    rows = _rows(texts, filled, fills, rivals, "", no_processes)
    with open_store(folder / "memory.db", texts) as reopened_store:
        first = seconds(lambda: reopened_store.search(NAMESPACE, texts.queries[0][0], mode="hybrid"))
    return [*rows, Row(f"first search of a store just opened, {count:,}", 1_000 * first, "ms", target=FIRST_TARGET_MS)]


def on_server(count: int) -> list[Row]:
    """The same on a PostgreSQL server, against LangGraph's store on that server; processor time counts both sides.
    Beyond 10,000 entries both vector indexes are created at the end, and upserts are not reported."""
    texts, at_the_end = Texts(count), count > _INDEXED_AT_ONCE
    with Server() as server:
        cpu = _of(server)
        hivemind_url, langgraph_url = server.new_database(), server.new_database()
        with open_store(hivemind_url, texts) as store:
            store.put(("memories", "warm"), "k", texts.texts[0])
        with _index_at_the_end(server, hivemind_url) if at_the_end else nullcontext():
            filled = hivemind_store(hivemind_url, texts, cpu)
        filled_rival = langgraph_store("PostgresStore", langgraph_url, Texts(1), cpu)
        with _index_at_the_end(server, langgraph_url) if at_the_end and filled_rival else nullcontext():
            filled_rival = filled_rival and langgraph_store("PostgresStore", langgraph_url, texts, cpu)
        fills = {} if filled_rival is None else {"PostgresStore": filled_rival[1]}
        rivals = {} if filled_rival is None else {"PostgresStore": _asking(filled_rival[0])}
        rows = _rows(texts, filled, fills, rivals, "PostgreSQL: ", cpu)
        return rows[1:] if at_the_end else rows


_INDEXED_AT_ONCE = 10_000


@contextmanager
def _index_at_the_end(server: Server, url: str) -> Iterator[None]:
    """Without the index of vectors meanwhile: made at once it takes a tenth of the time."""
    name = url.rpartition("/")[2]
    indexes = server.execute(
        "SELECT schemaname, indexname, indexdef FROM pg_indexes WHERE indexdef LIKE '%USING hnsw%'", name
    )
    for schema, index, _ in indexes:
        server.execute(f"DROP INDEX {schema}.{index}", name)
    yield
    for _, _, statement in indexes:
        server.execute(f"SET maintenance_work_mem = '1GB'; {statement}; ANALYZE", name)


def _of(server: Server) -> ProcessTimes:
    def read_times() -> dict[int, float]:
        times = {}
        for pid in family(server.pid):
            with suppress(OSError):  # one of its workers that has just ended
                times[pid] = processor_s([pid])
        return times

    return read_times


def _rows(
    texts: Texts,
    filled: tuple[MemoryStore, Took],
    fills: dict[str, Took],
    rivals: dict[str, Callable[[str, Any], object]],
    place: str,
    cpu: ProcessTimes,
) -> list[Row]:
    (store, upserts), count = filled, len(texts.texts)
    hivemind_searches = {mode: _hivemind_search(store, mode) for mode in MODES}
    times, hits_by_name = _in_turns(texts, hivemind_searches | rivals, cpu)

    def recall(name: str) -> float:
        answers = zip(texts.queries, hits_by_name[name], strict=False)
        shares = [
            len({int(hit.key[1:]) for hit in hits} & set(texts.exact(vector))) / TOP for (_, vector), hits in answers
        ]
        return sum(shares) / len(shares)

    rows = [
        Row(
            f"{place}upserts a second, durable, batches of {BATCH}, up to {count:,}", count / upserts.wall, "/s",
            name, count / fill.wall, better="more", target=None if place else UPSERT_TARGET,
            note=f"a second of the processor: {count / upserts.processor:,.0f} beside {count / fill.processor:,.0f}",
        )
        for name, fill in (fills or {"itself": upserts}).items()
    ]  # fmt: skip
    target = SEARCH_TARGET_MS if count == 100_000 and not place else None
    row_name = f"{place}search by meaning in {count:,}, top {TOP}"
    rows += [_compared(row_name, times["vector"], name, times[name], target) for name in rivals]
    for mode, aim in (("hybrid", None if place else HYBRID_TARGETS_MS.get(count)), ("text", None)):
        row_name = f"{place}search, {mode}, in {count:,}"
        rows.append(_compared(row_name, times[mode], "by meaning alone", times["vector"], aim))
    least = None if place else RECALL_TARGET
    their = {"PostgresStore": recall("PostgresStore")} if "PostgresStore" in rivals else {"": None}
    row_name = f"{place}recall@{TOP} of exact in {count:,}"
    rows += [Row(row_name, recall("vector"), "", *rival, better="more", target=least) for rival in their.items()]
    store.close()
    return rows


def _compared(row_name: str, measurement: Took, name: str, baseline: Took, target: float | None = None) -> Row:
    note = f"of the processor: {1_000 * measurement.processor:.3g} beside {1_000 * baseline.processor:.3g}"
    return Row(row_name, 1_000 * measurement.wall, "ms", name, 1_000 * baseline.wall, target=target, note=note)


def _asking(store: Any) -> Callable[[str, Any], object]:
    return lambda query, _: store.search(NAMESPACE, query=query, limit=TOP)


def _hivemind_search(store: MemoryStore, mode: Any) -> Callable[[str, Any], Sequence[Any]]:
    threshold = -1.0 if mode == "vector" else None
    return lambda query, _: store.search(NAMESPACE, query, threshold, TOP, mode=mode)


def _in_turns(
    texts: Texts, searches: dict[str, Callable[[str, Any], Any]], cpu: ProcessTimes
) -> tuple[dict[str, Took], dict[str, list[Any]]]:
    """The median of each, all asked in turns; and what each found."""
    slow = set()
    for name, search in searches.items():  # opens, loads and imports at the first use
        if seconds(lambda search=search: search(*texts.queries[0])) > _SLOW_S and name not in MODES:  # type: ignore[misc]
            slow.add(name)
    times: dict[str, list[Took]] = {name: [] for name in searches}
    hits_by_name: dict[str, list[Any]] = {name: [] for name in searches}
    for number, query in enumerate(texts.queries):
        for name, search in searches.items():
            if name in slow and number >= _OF_SLOW:
                continue
            measurement, hits = timed(partial(search, *query), cpu)
            times[name].append(measurement)
            hits_by_name[name].append(hits)
    return {name: Took.middle(measurements) for name, measurements in times.items()}, hits_by_name


def single_puts(folder: Path, count: int) -> list[Row]:
    """One put at a time, each on the disk before the next; the baseline is the row alone in plain SQLite."""
    texts = Texts(count)
    store = open_store(folder / "single.db", texts)
    sql = sqlite3.connect(folder / "plain.db", isolation_level=None)
    sql.execute("PRAGMA journal_mode = WAL")
    sql.execute("PRAGMA synchronous = FULL")
    sql.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, content TEXT, vector BLOB)")
    rows = list(zip(texts.texts, (row.tobytes() for row in texts.vectors), strict=True))
    plain = seconds(
        lambda: [sql.execute("INSERT INTO entries VALUES (?, ?, ?)", (text, text, row)) for text, row in rows]
    )
    puts = seconds(lambda: [store.put(NAMESPACE, f"k{at}", text) for at, text in enumerate(texts.texts)])
    took_s = seconds(
        lambda: [store.upsert_memory(NAMESPACE, text, key=f"k{at}") for at, text in enumerate(texts.texts)]
    )
    store.close()
    return [
        Row("put, one at a time, durable", count / puts, "/s", "the row alone in SQLite", count / plain, better="more"),
        Row("upsert_memory, near-duplicates looked for", count / took_s, "/s", "put", count / puts, better="more"),
    ]


def memory(folder: Path, count: int, agents: int) -> list[Row]:
    """Measure the private memory of an agent that has searched, against holding all vectors itself."""
    texts = Texts(count)
    store, _ = hivemind_store(folder / "memory.db", texts)
    store.search(NAMESPACE, texts.queries[0][0], mode="vector")
    query, path = texts.queries[0], store.database.path
    store.close()
    texts.texts, texts._known = [], dict([query])
    shares = []
    for _number in range(agents):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, b"%d" % _grown(path, texts, query[0]))
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as answer:
            shares.append(int(answer.read()))
        os.wait()
    vectors_mib = count * DIMENSION * 4 / 1_048_576
    return [
        Row(
            f"memory of an agent that searches {count:,} entries", median(shares) / 1_024, "MiB",
            "its vectors in its own memory", vectors_mib, note=f"private, over what it had before, median of {agents}",
        )
    ]  # fmt: skip


def _grown(path: str, texts: Texts, query: str) -> int:
    """Return by how many private KiB this process grows over opening a store and searching it."""
    before = _private()
    store = open_store(path, texts)
    store.search(NAMESPACE, query, mode="vector")
    return _private() - before


def _private() -> int:
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line and "-" not in line.split(":", 1)[0])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty"))


def run(quick: bool = False, parts: Iterable[str] = ()) -> list[Row]:
    """All rows, or those of some parts: a server is asked about 100,000 entries (minutes) only where it is named."""
    selected_parts = set(parts) or {"puts", "searching", "postgresql", "memory"}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, suppress(KeyboardInterrupt):
        folder = Path(name)
        if "puts" in selected_parts:
            rows += single_puts(folder, 50 if quick else 2_000)
        if "searching" in selected_parts:
            for count in (200,) if quick else (1_000, 10_000, 100_000):
                (place := folder / str(count)).mkdir()
                rows += searching(place, count)
        if "postgresql" in selected_parts:
            for count in (200,) if quick else (10_000, 100_000) if parts else (10_000,):
                with suppress(pytest.skip.Exception):  # where no server can run
                    rows += on_server(count)
        if "memory" in selected_parts:
            (place := folder / "memory").mkdir()
            rows += memory(place, 200 if quick else 100_000, 1 if quick else 10)
    return rows


if __name__ == "__main__":
    part_names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    show("Long-term memory", run("--quick" in sys.argv, part_names))
