"""Building a context: score + select + build, warm, 10 blocks changed since the last cycle (spec 2, *Performance*).

Beside it, in the same run and interleaved: a literal working version of the seed's algorithm, with the token counts cached
(its best case: it loads nothing anew), and the floor: ten insertions into a sorted list, 400 fragments joined.
Processor time; each block is a real file of 600 to 1,400 bytes (at most FILES of them, each block under its own name by
hard links would cost the disk too much: blocks share files by ranges beyond that).
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
from bisect import insort
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.table import Row, show
from hivemind.memory import (
    ContentLoader,
    ContextBuilder,
    FileMemoryBlock,
    MemorySelector,
    Priority,
    RelevanceScorer,
    WorkingMemoryManager,
    count_tokens,
)

BUDGET = 100_000
CHANGED = 10
FILES = 20_000
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def _files(folder: str, number: int, chance: random.Random) -> None:
    words = [
        "memory",
        "block",
        "select",
        "score",
        "context",
        "file",
        "agent",
        "task",
        "the",
        "of",
        "a",
        "reads",
        "writes",
    ]
    for at in range(number):
        path = os.path.join(folder, f"{at % 100:02}")
        os.makedirs(path, exist_ok=True)
        text = " ".join(chance.choices(words, k=chance.randrange(100, 230)))
        with open(os.path.join(path, f"note-{at}.md"), "w") as file:
            file.write(f"# Note {at}\n\n{text}\n")


def _block(at: int, chance: random.Random, folder: str) -> FileMemoryBlock:
    at_file, part = at % FILES, at // FILES
    return FileMemoryBlock(
        location=f"{folder}/{at_file % 100:02}/note-{at_file}.md",
        start_line=1 if part else None,
        end_line=2 + part if part else None,
        confidence=chance.random(),
        priority=chance.choices((Priority.HIGH, Priority.MEDIUM, Priority.LOW), (2, 7, 1))[0],
        timestamp=NOW - timedelta(seconds=chance.random() * 30 * 86_400),
    )


class _Seed:
    """Seed 004's algorithm, made to run: everything scored, sorted and tried anew; counts and contents cached."""

    def __init__(self, scorer: RelevanceScorer) -> None:
        self.scorer = scorer
        self.tokens: dict[str, int] = {}
        self.contents: dict[str, str] = {}

    def cycle(self, blocks: list[FileMemoryBlock], now: datetime) -> int:
        used, context = 0, []
        for priority, share in ((Priority.HIGH, 0.8), (Priority.MEDIUM, 0.9), (Priority.LOW, 0.95)):
            found = [block for block in blocks if block.priority is priority]
            found.sort(key=lambda block: (self.scorer.score_memory(block, now), block.timestamp), reverse=True)
            for block in found:
                tokens = self._estimate(block)
                if used + tokens < BUDGET * share:
                    context.append(self._entry(block))
                    used += tokens
        return len(context)

    def _estimate(self, block: FileMemoryBlock) -> int:
        tokens = self.tokens.get(block.id)
        if tokens is None:
            tokens = self.tokens[block.id] = 100 + os.stat(block.location).st_size // 4
        return tokens

    def _entry(self, block: FileMemoryBlock) -> dict[str, Any]:
        content = self.contents.get(block.id)
        if content is None:
            with open(block.location) as file:
                content = self.contents[block.id] = file.read()
        return {
            "id": block.id,
            "content": content,
            "confidence": block.confidence,
            "priority": block.priority.name.lower(),
            "metadata": {"type": block.type.value, "timestamp": block.timestamp.isoformat(), "source": block.location},
        }


def _timed(what: Callable[[], object]) -> float:
    begin = time.process_time()
    what()
    return (time.process_time() - begin) * 1000


def _floor(order: list[float], fragments: list[str], chance: random.Random) -> None:
    for _ in range(CHANGED):
        insort(order, chance.random())
        order.pop()
    "".join(fragments)


def _size(number: int, folder: str, rounds: int, slow: bool) -> list[Row]:
    chance = random.Random(number)
    before = _memory()
    blocks = [_block(at, chance, folder) for at in range(number)]
    manager = WorkingMemoryManager(BUDGET)
    scorer = RelevanceScorer()
    selector, builder = MemorySelector(count_tokens, scorer), ContextBuilder(ContentLoader(folder))
    now = NOW
    added = _timed(lambda: [manager.add_memory(block) for block in blocks])
    first = _timed(lambda: selector.select_memories(manager.symbolic_memory, BUDGET))

    def cycle(changes: Callable[[FileMemoryBlock], object]) -> Callable[[], object]:
        def run() -> None:
            for block in chance.sample(blocks, CHANGED):
                changes(block)
            selected = selector.select(manager.symbolic_memory, BUDGET, now=now)
            builder.build_context(selected.blocks, BUDGET)

        return run

    def confidence(block: FileMemoryBlock) -> None:
        manager.update_confidence(block.id, chance.random())

    def fresh(block: FileMemoryBlock) -> None:
        block.timestamp = now

    for _ in range(20):
        cycle(confidence)()
    order = sorted(block.confidence for block in blocks)
    selected = selector.select(manager.symbolic_memory, BUDGET, now=now)
    context = builder.build_context(selected.blocks, BUDGET)
    fragments = [json.dumps(entry) for entry in context]
    gc.collect()
    gc.freeze()  # as an agent does once its memory is loaded
    seed = _Seed(scorer)
    if slow:
        seed.cycle(blocks, now)
    warm, fresh_, select, build, floor, naive = [], [], [], [], [], []
    for _ in range(rounds):
        now += timedelta(seconds=1)
        warm.append(_timed(cycle(confidence)))
        floor.append(_timed(lambda: _floor(order, fragments, chance)))
        if slow and len(naive) < 5:
            naive.append(_timed(lambda: seed.cycle(blocks, now)))
    for _ in range(rounds):
        now += timedelta(seconds=1)
        for block in chance.sample(blocks, CHANGED):
            confidence(block)
        select.append(_timed(lambda: selector.select(manager.symbolic_memory, BUDGET, now=now)))
        chosen = selector.select(manager.symbolic_memory, BUDGET, now=now).blocks
        build.append(_timed(lambda: builder.build_context(chosen, BUDGET)))
    for _ in range(rounds // 4):
        now += timedelta(seconds=1)
        fresh_.append(_timed(cycle(fresh)))
    stats = statistics.median(_timed(lambda: [os.stat(block.location) for block in chosen]) for _ in range(9))
    gc.unfreeze()
    mid = statistics.median
    names = f"{number:,} blocks"
    seed_ms = mid(naive) if naive else None
    return [
        Row(
            f"{names}: whole warm cycle",
            mid(warm),
            "ms",
            "seed 004, counts cached",
            seed_ms,
            note=f"{len(context)} entries",
        ),
        Row(f"{names}: whole warm cycle", mid(warm), "ms", "floor", mid(floor)),
        Row(f"{names}: of it score + select", mid(select), "ms", "floor", mid(floor)),
        Row(f"{names}: of it build", mid(build), "ms", "stat of each entry's file", stats),
        Row(f"{names}: 10 made the newest (read, counted)", mid(fresh_), "ms", "floor", mid(floor)),
        Row(f"{names}: first selection", first, "ms", "adding the blocks", added),
        Row(f"{names}: memory beside the paths", before and (_memory() - before) / number, "bytes a block"),
    ]


def _memory() -> float:
    """Resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def _bytes_a_block(number: int, folder: str) -> Row:
    chance = random.Random(1)
    paths = [f"{folder}/{at % 100:02}/note-{at}.md" for at in range(number)]
    moments = [NOW - timedelta(seconds=chance.random() * 86_400) for _ in paths]
    numbers = [chance.random() for _ in paths]
    given = sum(map(sys.getsizeof, moments)) + sum(map(sys.getsizeof, numbers))
    gc.collect()
    tracemalloc.start()
    manager = WorkingMemoryManager(BUDGET)
    for path, moment, confidence in zip(paths, moments, numbers, strict=True):
        manager.add_memory(FileMemoryBlock(location=path, confidence=confidence, timestamp=moment))
    MemorySelector(count_tokens, RelevanceScorer()).select_memories(manager.symbolic_memory, BUDGET)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return Row(
        f"{number:,} blocks: memory beside the path", (used + given) / number, "bytes a block",
        "target", 400, note="block, timestamp, confidence, index, ranking",
    )  # fmt: skip


def run(quick: bool = False) -> list[Row]:
    """The rows; quick leaves out 1,000,000 blocks."""
    folder = tempfile.mkdtemp(prefix="context-")
    try:
        _files(folder, FILES, random.Random(0))
        count_tokens.warm()
        rows: list[Row] = []
        sizes = (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
        for number in sizes:
            rows += _size(number, folder, 40 if quick else 120, slow=number <= 100_000)
        rows.append(_bytes_a_block(100_000 if quick else 1_000_000, folder))
        return rows
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    show("Building a context", run(quick="--quick" in sys.argv))
