"""Select blocks and build a context, as at the start of an epoch (docs/design/blocks.md).

In the same run, interleaved, the original algorithm is measured, with counts and contents cached
(its best case). Processor time. Each block refers to a real file of about 1 KiB; beyond FILES blocks, to lines of one.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
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
    Selection,
    count_tokens,
)

BUDGET = 100_000
FILES = 20_000
_SELECT_MS = {1_000: 5.0, 100_000: 150.0}
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


class _Original:
    """Score, sort and try every block at each selection: the original algorithm, with counts and contents cached."""

    def __init__(self, scorer: RelevanceScorer) -> None:
        self.scorer = scorer
        self.tokens: dict[str, int] = {}
        self.contents: dict[str, str] = {}

    def cycle(self, blocks: list[FileMemoryBlock], now: datetime) -> list[dict[str, Any]]:
        used_tokens, context = 0, []
        for priority, share in ((Priority.HIGH, 0.8), (Priority.MEDIUM, 0.9), (Priority.LOW, 0.95)):
            candidates = [block for block in blocks if block.priority is priority]
            candidates.sort(key=lambda block: (self.scorer.score_memory(block, now), block.timestamp), reverse=True)
            for block in candidates:
                tokens = self._estimate(block)
                if used_tokens + tokens < BUDGET * share:
                    context.append(self._entry(block))
                    used_tokens += tokens
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


def _timed(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return (time.process_time() - begin) * 1000


def _size(folder: str, number: int, rounds: int) -> list[Row]:
    chance = random.Random(number)
    blocks = [_block(folder, at, chance) for at in range(number)]
    selector, builder = MemorySelector(count_tokens, RelevanceScorer()), ContextBuilder(ContentLoader(folder))
    original = _Original(RelevanceScorer())
    took: dict[str, list[float]] = {"select": [], "build": [], "original": []}
    for at in range(rounds):
        now = NOW + timedelta(seconds=at)
        selection: list[Selection] = []
        took["select"].append(_timed(lambda: selection.append(selector.select(blocks, BUDGET, now=now))))  # noqa: B023
        took["build"].append(_timed(lambda: builder.build_context(selection[0], BUDGET)))  # noqa: B023
        took["original"].append(_timed(lambda: original.cycle(blocks, now)))  # noqa: B023
    mid = {name: median(times[1:]) for name, times in took.items()}
    baseline, name = ("the original algorithm, counts cached", mid["original"]), f"{number:,} blocks:"
    return [
        Row(f"{name} score + select", mid["select"], "ms", *baseline, target=_SELECT_MS.get(number)),
        Row(
            f"{name} build", mid["build"], "ms", "score + select", mid["select"], note=f"{len(selection[0].blocks)} in"
        ),
        Row(f"{name} first build", took["build"][0], "ms", "build", mid["build"], note="files read and counted"),
    ]


def run(quick: bool = False) -> list[Row]:
    """The rows; quick has fewer rounds."""
    folder = tempfile.mkdtemp(prefix="context-")
    try:
        _files(folder, FILES)
        count_tokens.warm()
        sizes = (1_000,) if quick else (1_000, 10_000, 100_000)
        return [row for number in sizes for row in _size(folder, number, 2 if quick else 30)]
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    show("Building a context", run(quick="--quick" in sys.argv))
