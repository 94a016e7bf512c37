"""One turn of working memory, as the agent's cycle calls it: score → select → build (spec 1, *The agent's cycle*)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hivemind.memory.compression import MemoryCompressor
from hivemind.memory.context import ContextBuilder
from hivemind.memory.entry import piece
from hivemind.memory.loading import ContentLoader
from hivemind.memory.manager import WorkingMemoryManager
from hivemind.memory.scoring import RelevanceScorer
from hivemind.memory.selection import MemorySelector, Selection
from hivemind.tokens import count_tokens

__all__ = ["MemoryCycle", "Turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn gave: the context, the selection that it was built from, and how many files and sources were read."""

    context: list[dict[str, Any]]
    selection: Selection
    loads: int


class MemoryCycle:
    """Holds the selector and the builder of one agent, so that each turn costs what changed since the last."""

    def __init__(
        self,
        manager: WorkingMemoryManager,
        loader: ContentLoader,
        *,
        token_counter: Callable[[str], int] = count_tokens,
        scorer: RelevanceScorer | None = None,
        compressor: MemoryCompressor | None = None,
    ) -> None:
        self.manager = manager
        self.loader = loader
        self.token_counter = token_counter
        self.scorer = scorer or RelevanceScorer()
        self.selector = MemorySelector(token_counter, self.scorer, locate=loader.path_of)
        self.builder = ContextBuilder(loader, token_counter=token_counter, compressor=compressor)

    def run(
        self,
        max_tokens: int | None = None,
        *,
        reserved: int = 0,
        first: Sequence[dict[str, Any]] = (),
        now: datetime | None = None,
        changed: Iterable[str] | None = None,
    ) -> Turn:
        """Score, select, build. `json.dumps` of the context counts at most `max_tokens` (default: the manager's) - `reserved`.

        `reserved` tokens go to what is no part of the context (system prompt, tool schemas); `first` are ready entries that
        stand before all others and are never dropped (the capsule). `changed`: see `ContextBuilder.build_context`; their
        blocks are to be touched as well. Raises CriticalOverBudget.
        """
        budget = (self.manager.max_tokens if max_tokens is None else max_tokens) - reserved
        before = self.loader.loads
        taken = sum(self.token_counter(piece(entry)) for entry in first)
        selection = self.selector.select(self.manager.symbolic_memory, budget, now=now, reserved=taken)
        context = self.builder.build_context(selection, budget, first=first, changed=changed)
        self.manager.context_memory = context
        return Turn(context, selection, self.loader.loads - before)
