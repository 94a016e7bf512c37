"""The index of vectors: `python -m benchmarks.embedding [--quick]`.

`Vectors` over a database, compared with a bare matrix product, and sqlite-vec and usearch where installed; all are
asked in turns, query by query. Two kinds of vectors: "clustered" lie round 200 centres, far from each other; "loose" have
a few dozen directions that matter, as embeddings of texts do, and no clusters: there the signs tell rows apart worst.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.longterm import seconds, sqlite_vec
from benchmarks.processes import share_mb
from benchmarks.table import Row, show
from hivemind.embedding import VECTORS, VectorTable, put_vectors
from hivemind.embedding.local import is_installed

DIMENSION, TOP, QUERIES = 384, 10, 24
CLUSTERS, DIRECTIONS = 200, 60
RECALL_TARGET, SEARCH_TARGET_MS = 0.99, 7.0
GROUP, MODEL = 1, "bench"


class Points:
    """`count` vectors of one kind, and queries of the same."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind = kind
        self.numpy = numpy = importlib.import_module("numpy")
        chance = numpy.random.default_rng(7)
        if kind == "clustered":
            centres = chance.normal(size=(CLUSTERS, DIMENSION))
            rows = centres[chance.integers(0, CLUSTERS, count + QUERIES)]
            rows = rows + 0.9 * chance.normal(size=(count + QUERIES, DIMENSION))
        else:
            strengths = 1 / numpy.sqrt(numpy.arange(1, DIRECTIONS + 1))
            rows = (chance.normal(size=(count + QUERIES, DIRECTIONS)) * strengths) @ chance.normal(
                size=(DIRECTIONS, DIMENSION)
            ) + 0.3 * chance.normal(size=(count + QUERIES, DIMENSION))
        rows = (rows / numpy.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
        self.vectors, self.queries = numpy.ascontiguousarray(rows[:count]), rows[count:]

    def exact(self, query: Any) -> list[int]:
        """The numbers of the vectors nearest to a query, by one matrix product."""
        top: list[int] = self.numpy.argpartition(-(self.vectors @ query), TOP)[:TOP].tolist()
        return top


def filled(path: Path, points: Points) -> sqlite3.Connection:
    """A database with all the vectors in it."""
    sql = sqlite3.connect(path, isolation_level=None)
    sql.execute("PRAGMA journal_mode = WAL")
    for statement in VECTORS:
        sql.execute(statement)
    sql.execute("BEGIN")
    put_vectors(sql, MODEL, ((at, GROUP, row.tobytes()) for at, row in enumerate(points.vectors)))
    sql.execute("COMMIT")
    return sql


def usearch(points: Points) -> Callable[[Any], object] | None:
    """A search in usearch's graph; None if it is not installed."""
    try:
        graph = importlib.import_module("usearch.index").Index(ndim=DIMENSION, metric="cos", dtype="f32")
    except ModuleNotFoundError:
        return None
    graph.add(points.numpy.arange(len(points.vectors)), points.vectors)
    return lambda query: graph.search(query, TOP)


def searching(folder: Path, kind: str, count: int) -> list[Row]:
    """Measure the time of a search, and its recall of an exact search."""
    points = Points(kind, count)
    sql, index = filled(folder / "index.db", points), VectorTable()
    load = seconds(lambda: index.nearest(sql, MODEL, points.queries[0].tobytes(), TOP))
    searches: dict[str, Callable[[Any], Any]] = {
        "ours": lambda query: index.nearest(sql, MODEL, query.tobytes(), TOP, [GROUP]),
        "matrix product": points.exact,
    }
    vec = sqlite_vec(folder, points.vectors)
    if vec is not None:
        searches["sqlite-vec"] = lambda query: vec("", query)
    graph = usearch(points)
    if graph is not None:
        searches["usearch"] = graph
    times: dict[str, list[float]] = {name: [] for name in searches}
    recalled = 0
    for search in searches.values():
        search(points.queries[0])  # opens, maps and loads at the first use
    for query in points.queries:
        for name, search in searches.items():
            times[name].append(1_000 * seconds(lambda search=search, query=query: search(query)))  # type: ignore[misc]
        recalled += len({key for key, _ in searches["ours"](query)} & set(points.exact(query)))
    sql.close()
    target = SEARCH_TARGET_MS if count == 100_000 else None
    label = f"{count:,} {kind} vectors"
    rows = [
        Row(f"search in {label}, top {TOP}", median(times["ours"]), "ms", name, median(durations), target=target)
        for name, durations in times.items()
        if name != "ours"
    ]
    recall = recalled / (TOP * len(points.queries))
    rows.append(Row(f"first search in {label}: reading them in", 1_000 * load, "ms"))
    return [*rows, Row(f"recall@{TOP} of exact in {label}", recall, "", better="more", target=RECALL_TARGET)]


def memory(folder: Path, count: int, agents: int) -> list[Row]:
    """Measure the proportional memory share of one of many searching processes."""
    points = Points("clustered", count)
    filled(folder / "index.db", points).close()
    query, points.vectors = points.queries[0].tobytes(), points.vectors[:0]
    ready_reader, ready_writer = os.pipe()
    end_reader, end_writer = os.pipe()  # closed when all have searched
    children = []
    for _ in range(agents):
        child = os.fork()
        if child == 0:
            os.close(end_writer)
            _search_and_wait(folder / "index.db", query, ready_writer, end_reader)
        children.append(child)
    for _ in children:
        os.read(ready_reader, 1)
    shares = [share_mb(child) for child in children]
    os.close(end_writer)
    for child in children:
        os.waitpid(child, 0)
    return [
        Row(
            f"memory of a process that searches {count:,} vectors, one of {agents}", median(shares), "MB",
            "its vectors in its own memory", count * DIMENSION * 4 / 1e6,
            note="proportional share of all, Python and numpy too",
        )
    ]  # fmt: skip


def _search_and_wait(path: Path, query: bytes, ready_writer: int, end_reader: int) -> None:
    """Search in a forked process, report it, and wait until its memory was measured."""
    try:
        hits = VectorTable().nearest(sqlite3.connect(path), MODEL, query, TOP)
        os.write(ready_writer, b"1" if len(hits) == TOP else b"0")
        os.read(end_reader, 1)
    finally:
        os._exit(0)


_MODEL = """
import random, resource, sys, time
from hivemind.embedding.local import MiniLM
words, model = "water house number paper river stone garden window".split(), MiniLM()
texts = [" ".join(random.Random(at).choices(words, k=43)) for at in range(int(sys.argv[1]))]  # 45 tokens, with both ends
model.embed(texts[:4])
for embed in (model.embed, model.embed_finely):
    began = time.process_time()
    embed(texts)
    print(len(texts) * 45 / (time.process_time() - began))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
"""


def model(texts: int) -> list[Row]:
    """Measure embedding this many texts, in a separate process."""
    if not is_installed():
        return []
    command = [sys.executable, "-c", _MODEL, str(texts)]
    plain, finely, peak = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    rate = Row(
        "MiniLM, with parts of texts", finely, "tokens a processor-second", "without", plain, "more", target=2_800
    )
    return [rate, Row("MiniLM, its process at most", peak, "MB", target=300)]


def run(quick: bool = False) -> list[Row]:
    """All of it; quick: with 1,000 vectors."""
    rows = model(10 if quick else 1_000)
    for kind in ("clustered", "loose"):
        for count in (1_000,) if quick else (1_000, 10_000, 100_000):
            with tempfile.TemporaryDirectory() as folder:
                rows += searching(Path(folder), kind, count)
    with tempfile.TemporaryDirectory() as folder:
        rows += memory(Path(folder), 1_000 if quick else 100_000, 2 if quick else 50)
    return rows


if __name__ == "__main__":
    show("The index of vectors", run("--quick" in sys.argv))
