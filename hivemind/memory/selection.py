"""Which blocks go into a context (spec 2, *Score, select*; seed 004, *Memory Selection Algorithm*).

CRITICAL always; then, best first, HIGH while used + tokens < 80 % of the budget, MEDIUM < 90 %, LOW < 95 %. A block that
does not fit is passed over, and smaller ones after it may still go in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import inf

from hivemind.errors import UserError
from hivemind.memory.blocks import MemoryBlock, Priority
from hivemind.memory.order import Taking
from hivemind.memory.ranking import Ranking, WatchedRule
from hivemind.memory.rules import ByConfidence, ByScore
from hivemind.memory.scoring import RelevanceScorer, born, decayed
from hivemind.memory.symbolic import SymbolicMemory
from hivemind.memory.weighing import Weigher

__all__ = ["SHARES", "Choice", "CriticalOverBudget", "MemorySelector", "Selection"]

SHARES = {Priority.CRITICAL: 1.0, Priority.HIGH: 0.8, Priority.MEDIUM: 0.9, Priority.LOW: 0.95}
SMALLER = 8  # so many of those passed over, best first, are offered to be put in smaller


class CriticalOverBudget(UserError):
    """CRITICAL blocks alone are more than the budget; `sizes` lists them, (id, tokens), largest first."""

    def __init__(self, sizes: Iterable[tuple[str, int]], budget: int, reserved: int = 0) -> None:
        self.sizes = sorted(sizes, key=lambda size: (-size[1], size[0]))
        self.budget = budget
        self.reserved = reserved
        total = sum(tokens for _, tokens in self.sizes)
        shown = ", ".join(f"{name} {tokens}" for name, tokens in self.sizes[:10])
        more = f" and {len(self.sizes) - 10} more" if len(self.sizes) > 10 else ""
        taken = f" beside {reserved} reserved" if reserved else ""
        super().__init__(
            f"CRITICAL blocks need {total} tokens{taken}, the budget is {budget}: {shown}{more}",
            mend="raise max_tokens, or make one of them shorter or less than CRITICAL",
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """What became of one block: its score (0 to 1), its tokens (estimated), whether it is in whole, and why."""

    block: MemoryBlock
    score: float
    tokens: int
    taken: bool
    reason: str

    @property
    def id(self) -> str:
        return self.block.id


_History = tuple[list[tuple[float, float, str]], list[int]]
"""The places of what was taken, and the tokens used before each of them and after the last."""


class Selection:
    """What was selected. `blocks` are in whole, in rank order; `smaller` did not fit and may go in smaller, best first.

    `used` counts tokens, `reserved` ones among them. Iterating gives a Choice for each block that there was to choose
    from, and `why(id)` one; these are worked out when asked for, from the blocks as they are then.
    """

    def __init__(
        self,
        source: Iterable[MemoryBlock],
        takings: dict[Priority, Taking],
        rule: WatchedRule,
        weigher: Weigher,
        budget: int,
        reserved: int,
        now: float,
    ) -> None:
        self._source = source
        self._takings = takings
        self._rule = rule
        self._weigher = weigher
        self.budget = budget
        self.reserved = reserved
        self.now = now
        self.used = takings[Priority.LOW].used
        self.blocks: list[MemoryBlock] = [row[4] for taking in takings.values() for row in taking.rows]
        self.smaller: list[MemoryBlock] = [row[4] for taking in takings.values() for row in taking.passed][:SMALLER]

    def __iter__(self) -> Iterator[Choice]:
        taken = set()
        history: dict[Priority, _History] = {}
        for priority, taking in self._takings.items():
            used = accumulate((row[3] for row in taking.rows), initial=taking.used_before)
            history[priority] = [row[:3] for row in taking.rows], list(used)
            for row in taking.rows:
                taken.add(row[2])
                yield self._in(row[4], -row[0], row[3])
        for block in self._source:
            if block.id not in taken:
                yield self._out(block, history[block.priority])

    def why(self, memory_id: str) -> Choice | None:
        """What became of a block, or None if there is none of that id."""
        return next((choice for choice in self if choice.block.id == memory_id), None)

    def _in(self, block: MemoryBlock, score: float, tokens: int) -> Choice:
        if block.priority is Priority.CRITICAL:
            return Choice(block, score, tokens, True, "CRITICAL: always in")
        share = f"{SHARES[block.priority]:.0%} of {self.budget} tokens"
        return Choice(block, score, tokens, True, f"{block.priority.name}: fits within {share}")

    def _out(self, block: MemoryBlock, history: _History) -> Choice:
        weight, born_at, tokens = self._rule.weigh(block), born(block), self._weigher.tokens(block)
        score = decayed(weight, born_at, self.now) if self._rule.decays else weight
        places, used = history
        used_before = used[bisect_left(places, (-score, -born_at, block.id))]
        share = f"{SHARES[block.priority]:.0%} of {self.budget}"
        reason = f"{block.priority.name}: {used_before} tokens used before it and its {tokens} are not below {share}"
        return Choice(block, score, tokens, False, reason)


class MemorySelector:
    """Selects blocks under a budget of tokens.

    `token_counter` counts a text. Without a scorer the order within a priority is the seed's: confidence, then newest.
    `locate` gives the path of a location (a ContentLoader's `path_of`), for the sizes of files.
    """

    def __init__(
        self,
        token_counter: Callable[[str], int],
        scorer: RelevanceScorer | None = None,
        *,
        locate: Callable[[str], str] | None = None,
    ) -> None:
        self.token_counter = token_counter
        self.scorer = scorer
        self._rule: WatchedRule = ByConfidence() if scorer is None else ByScore(scorer)
        self._weigher = Weigher(token_counter, locate)

    def select_memories(self, symbolic_memory: Iterable[MemoryBlock], max_tokens: int) -> list[MemoryBlock]:
        """The blocks that go in whole, in rank order. Raises CriticalOverBudget."""
        return self.select(symbolic_memory, max_tokens).blocks

    def select(
        self,
        symbolic_memory: Iterable[MemoryBlock],
        max_tokens: int,
        *,
        now: datetime | None = None,
        reserved: int = 0,
    ) -> Selection:
        """The selection at `now` (default: the clock). `reserved` tokens of the budget are used already.

        A manager's `symbolic_memory` keeps its ranking from one call to the next; any other blocks are ranked anew, by
        the same rules. Raises CriticalOverBudget.
        """
        moment = (datetime.now(UTC) if now is None else now).timestamp()
        source = symbolic_memory
        if isinstance(source, SymbolicMemory):
            ranking = source.ranking(self._rule, self._weigher, moment)
        else:
            source = list({block.id: block for block in source}.values())
            ranking = Ranking(source, self._rule, self._weigher, moment)
        takings: dict[Priority, Taking] = {}
        used = reserved
        for priority in Priority:
            critical = priority is Priority.CRITICAL
            taking = Taking(used, inf if critical else max_tokens * SHARES[priority], 0 if critical else SMALLER)
            ranking.fill(priority, taking, moment)
            used = taking.used
            if critical and used > max_tokens:
                raise CriticalOverBudget(((row[2], row[3]) for row in taking.rows), max_tokens, reserved)
            takings[priority] = taking
        return Selection(source, takings, self._rule, self._weigher, max_tokens, reserved, moment)
