"""The learned relevance: a small logistic model of which selected blocks were then cited (seed 004, *Learned Relevance*).

Trained offline from records of cycles, deterministic (no chance, fixed number of steps), saved as JSON beside the hive, off
unless a scorer is given one. It knows nothing of the time: recency stays the scorer's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hivemind.errors import UserError
from hivemind.fs import load_record, save_record
from hivemind.memory.blocks import FileMemoryBlock, KnowledgeMemoryBlock, MemoryBlock, MemoryType, Priority

if TYPE_CHECKING:
    from hivemind.memory.scoring import RelevanceScorer

__all__ = ["FEATURES", "RelevanceModel", "citation_record", "features"]

KIND = "relevance-model"
VERSION = 1
FEATURES = (
    "bias",
    "confidence",
    "shared_words",
    "relevance",
    "recent_file",
    "ranged",
    *(f"type_{kind.value}" for kind in MemoryType),
    *(f"priority_{priority.name.lower()}" for priority in Priority),
)
STEPS = 400
RATE = 1.0
PENALTY = 1e-3  # on the squared weights: few records change little


def features(block: MemoryBlock, scorer: RelevanceScorer) -> dict[str, float]:
    """What the model sees of a block: numbers from 0 to 1, those that are 0 left out."""
    seen = {"bias": 1.0, "confidence": block.confidence}
    seen[f"type_{block.type.value}"] = seen[f"priority_{block.priority.name.lower()}"] = 1.0
    if isinstance(block, KnowledgeMemoryBlock):
        seen["shared_words"] = min(1.0, scorer.shared_words(block) / 4)
        seen["relevance"] = min(1.0, max(0.0, block.relevance_score))
    elif isinstance(block, FileMemoryBlock):
        seen["recent_file"] = float(block.location in scorer.recent_files)
        seen["ranged"] = float(block.start_line is not None)
    return {name: value for name, value in seen.items() if value}


def citation_record(selected: Iterable[MemoryBlock], cited: Collection[str], scorer: RelevanceScorer) -> dict[str, Any]:
    """A record of one cycle to learn from, for the task's log: what was selected, and which ids were then cited."""
    return {
        "selected": [{"id": block.id, "features": features(block, scorer)} for block in selected],
        "cited": sorted(cited),
    }


class RelevanceModel:
    """Weights by feature. `factor` is 0 to 2, and 1 for a model that has learned nothing."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self.weights = dict.fromkeys(FEATURES, 0.0) | dict(weights or {})

    def factor(self, block: MemoryBlock, scorer: RelevanceScorer) -> float:
        """How many times as relevant the block is, compared with not knowing: 0 to 2."""
        return 2.0 * self._chance(features(block, scorer))

    def _chance(self, seen: Mapping[str, float]) -> float:
        sum_ = sum(self.weights.get(name, 0.0) * value for name, value in seen.items())
        return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, sum_))))

    @classmethod
    def learn(cls, records: Iterable[Mapping[str, Any]]) -> RelevanceModel:
        """The model of records that `citation_record` made; the same records in the same order give the same model.

        Cited and uncited blocks count the same in sum, however few are cited. Raises UserError if one of the two is
        missing: there is nothing to learn then.
        """
        examples = [
            (dict(chosen["features"]), chosen["id"] in record["cited"])
            for record in records
            for chosen in record["selected"]
        ]
        cited = sum(1 for _, hit in examples if hit)
        if not 0 < cited < len(examples):
            raise UserError(
                f"{cited} of {len(examples)} selected blocks were cited: nothing to learn from",
                mend="collect more cycles first",
            )
        share = {True: 0.5 / cited, False: 0.5 / (len(examples) - cited)}
        model = cls()
        for _ in range(STEPS):
            slope = {name: PENALTY * weight for name, weight in model.weights.items()}
            for seen, hit in examples:
                miss = (model._chance(seen) - hit) * share[hit]
                for name, value in seen.items():
                    slope[name] = slope.get(name, 0.0) + miss * value
            model.weights = {name: model.weights.get(name, 0.0) - RATE * by for name, by in slope.items()}
        return model

    def save(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        """Write the model, whole or not at all."""
        save_record(path, KIND, VERSION, {"weights": self.weights}, durable=durable)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RelevanceModel | None:
        """The saved model, or None if there is none. Raises UnknownVersion, UserError; both leave the file as it is."""
        record = load_record(path, KIND, VERSION)
        if record is None:
            return None
        weights = record.get("weights")
        if not isinstance(weights, dict) or not all(
            isinstance(weight, int | float) and math.isfinite(weight) for weight in weights.values()
        ):
            raise UserError("its weights are no numbers", where=path, mend="learn it anew")
        return cls(weights)
