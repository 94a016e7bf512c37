"""Building a context: score + select + build, warm, 10 blocks changed since the last cycle (spec 2, *Performance*).

Beside it, in the same run and interleaved: a literal working version of the seed's algorithm with counts and contents cached
(its best case); and the floor: ten insertions into a sorted list, as many kept fragments joined as the context has entries.
Processor time. Each block refers to a real file of about 1 KiB; beyond FILES blocks, to lines of one.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import sys
import tempfile
import time
import tracemalloc
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from statistics import median
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
_WHOLE_MS = {100_000: 1.0, 1_000_000: 2.0}  # targets of a whole warm cycle
_FIRST_MS = {100_000: 400.0}
NOW = datetime(2026, 6, 1, tzinfo=UTC)
WORDS = ("memory", "block", "select", "score", "context", "file", "agent", "task", "the", "of", "a", "reads", "writes")


def _path(folder: str, at: int) -> str:
    return f"{folder}/{at % 100:02}/note-{at}.md"


def _files(folder: str, number: int) -> None:
    chance = random.Random(0)
    for at in range(number):
        os.makedirs(os.path.dirname(_path(folder, at)), exist_ok=True)
        with open(_path(folder, at), "w") as file:
            file.write(f"# Note {at}\n\n{' '.join(chance.choices(WORDS, k=chance.randrange(100, 230)))}\n")


def _block(folder: str, at: int, chance: random.Random) -> FileMemoryBlock:
    part = at // FILES
    return FileMemoryBlock(
        location=_path(folder, at % FILES),
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

    def cycle(self, blocks: list[FileMemoryBlock], now: datetime) -> list[dict[str, Any]]:
        used, context = 0, []
        for priority, share in ((Priority.HIGH, 0.8), (Priority.MEDIUM, 0.9), (Priority.LOW, 0.95)):
            found = [block for block in blocks if block.priority is priority]
            found.sort(key=lambda block: (self.scorer.score_memory(block, now), block.timestamp), reverse=True)
            for block in found:
                tokens = self._estimate(block)
                if used + tokens < BUDGET * share:
                    context.append(self._entry(block))
                    used += tokens
        return context

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


class _Agent:
    """A manager full of blocks, and cycles over it."""

    def __init__(self, folder: str, number: int) -> None:
        self.chance = random.Random(number)
        self.now = NOW
        self.manager = WorkingMemoryManager(BUDGET)
        self.scorer = RelevanceScorer()
        self.selector = MemorySelector(count_tokens, self.scorer)
        self.builder = ContextBuilder(ContentLoader(folder))
        self.blocks = [_block(folder, at, self.chance) for at in range(number)]

    def fill(self) -> None:
        for block in self.blocks:
            self.manager.add_memory(block)

    def change(self) -> None:
        for block in self.chance.sample(self.blocks, CHANGED):
            self.manager.update_confidence(block.id, self.chance.random())

    def renew(self) -> None:
        for block in self.chance.sample(self.blocks, CHANGED):
            block.timestamp = self.now

    def select(self) -> list[Any]:
        return self.selector.select(self.manager.symbolic_memory, BUDGET, now=self.now).blocks

    def cycle(self, change: Callable[[], None], changed: list[str] | None = None) -> list[dict[str, Any]]:
        change()
        return self.builder.build_context(self.select(), BUDGET, changed=changed)

    def look(self, context: list[dict[str, Any]]) -> None:
        for entry in context:
            os.stat(entry["metadata"]["source"])


def _timed(what: Callable[[], object]) -> float:
    begin = time.process_time()
    what()
    return (time.process_time() - begin) * 1000


def _floor(order: list[float], fragments: list[str], chance: random.Random) -> None:
    for _ in range(CHANGED):
        insort(order, chance.random())
        order.pop()
    "".join(fragments)


@contextmanager
def _frozen() -> Iterator[None]:
    """The collector leaves alone what is there, as in an agent whose memory has been loaded."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _size(folder: str, number: int, rounds: int) -> list[Row]:
    agent = _Agent(folder, number)
    added, first = _timed(agent.fill), _timed(agent.select)
    for _ in range(30):  # counts become exact, sizes known
        agent.now += timedelta(seconds=1)
        context = agent.cycle(agent.change)
    order, fragments = sorted(block.confidence for block in agent.blocks), [json.dumps(entry) for entry in context]
    seed = _Seed(agent.scorer)
    took: dict[str, list[float]] = {}
    measured: dict[str, Callable[[], object]] = {
        "warm": lambda: agent.cycle(agent.change),
        "told": lambda: agent.cycle(agent.change, []),
        "new": lambda: agent.cycle(agent.renew),
        "select": lambda: (agent.change(), agent.select()),
        "look": lambda: agent.look(context),
        "floor": lambda: _floor(order, fragments, agent.chance),
    }
    if number <= 100_000:
        seed.cycle(agent.blocks, agent.now)
        measured["seed"] = lambda: seed.cycle(agent.blocks, agent.now)
    with _frozen():
        for at in range(rounds):
            for name, what in measured.items():
                if name != "seed" or at % (rounds // 5) == 0:
                    agent.now += timedelta(seconds=0.2)
                    took.setdefault(name, []).append(_timed(what))
    mid = {name: median(times) for name, times in took.items()}
    floor, name = ("floor", mid["floor"]), f"{number:,} blocks:"
    target = _WHOLE_MS.get(number)
    beside = ("seed 004, counts cached", mid["seed"]) if "seed" in mid else floor
    return [
        Row(f"{name} warm cycle", mid["warm"], "ms", *beside, note=f"{len(context)} entries", target=target),
        Row(f"{name} warm cycle, told which files changed", mid["told"], "ms", *beside, target=target),
        Row(f"{name} of it score + select", mid["select"], "ms", *floor),
        Row(f"{name} of it looking at the files", mid["look"], "ms", "warm cycle", mid["warm"], note="one stat each"),
        Row(f"{name} warm cycle, 10 become the newest", mid["new"], "ms", *beside, note="10 files read and counted"),
        Row(f"{name} first selection", first, "ms", "adding the blocks", added, target=_FIRST_MS.get(number)),
    ]


def _bytes_a_block(number: int) -> Row:
    chance = random.Random(1)
    paths = [_path("/hive/knowledge", at) for at in range(number)]
    gc.collect()
    tracemalloc.start()
    manager = WorkingMemoryManager(BUDGET)
    for path in paths:
        born = NOW - timedelta(seconds=chance.random() * 86_400)
        manager.add_memory(FileMemoryBlock(location=path, confidence=chance.random(), timestamp=born))
    MemorySelector(count_tokens, RelevanceScorer()).select_memories(manager.symbolic_memory, BUDGET)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return Row(f"{number:,} blocks: memory a block, beside its path", used / number, "bytes", "target", 400, target=400)


def run(quick: bool = False) -> list[Row]:
    """The rows; quick leaves out 1,000,000 blocks."""
    folder = tempfile.mkdtemp(prefix="context-")
    try:
        _files(folder, FILES)
        count_tokens.warm()
        rows: list[Row] = []
        for number in (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
            rows += _size(folder, number, 40 if quick else 100)
        rows.append(_bytes_a_block(100_000 if quick else 1_000_000))
        return rows
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    show("Building a context", run(quick="--quick" in sys.argv))
