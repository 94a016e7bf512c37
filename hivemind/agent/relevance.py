"""Learned relevance: fifteen weights predict which of the texts in an opening (the first messages of an epoch) a task will use.

At the task's end each of these texts is a sample: the agent used it if it quoted the text or wrote one of its names. Each sample
moves the weights of a logistic regression a little. They are in `.hive/relevance.json` (README.md, *Relevance*).
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from hivemind.agent.opening import source_of
from hivemind.boundary import as_dataclass, boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import Lock, load_record, write
from hivemind.layout import Layout
from hivemind.lessons.admission import shares_words
from hivemind.memory import MemoryBlock
from hivemind.memory.blocks import context_entry
from hivemind.presence.parts import Parts
from hivemind.search.words import words_of
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.task_run import TaskRun

Feature = Literal[
    "any text", "document", "note", "memory", "earlier result", "letter", "lesson", "path in the task", "words of the task",
    "sure", "new", "used before", "unused before", "folder used before", "folder unused before",
]  # fmt: skip
MAX_WEIGHT, MAX_TEXTS, MAX_TASKS, _RATE = 3.0, 500, 100, 0.25
_KINDS: Mapping[str, Feature] = {"memory": "memory", "lesson": "lesson", "message": "letter"}
"""The kinds of texts by the store that their locations name, or letters their ids; other texts are of documents."""
_HISTORY: tuple[tuple[Feature, Feature], ...] = (
    ("used before", "unused before"),
    ("folder used before", "folder unused before"),
)
_MONTH_S, _UNUSED = 30 * 86_400, 4
_MATERIAL = re.compile(r"<material from=(\".*?\")>\n(.*?)\n</material>", re.DOTALL)
_log = logging.getLogger(__name__)


@frozen
class ShownText:
    """A text of an opening: the names by which an agent refers to it, its source in the opening, and its features (0 to 1)."""

    names: tuple[str, ...]
    source: str
    features: dict[Feature, float]


@frozen
class Weights:
    """What the hive has learned. `weights` has a number for each feature of a text, `tasks` the ids of the last tasks that were
    counted.

    `texts` has two numbers for each text or folder: how many tasks used it, and how many tasks in a row did not use it since
    then.
    """

    weights: dict[Feature, Annotated[float, Field(ge=-MAX_WEIGHT, le=MAX_WEIGHT)]] = field(default_factory=dict)
    texts: dict[str, tuple[int, int]] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()

    @classmethod
    def load(cls, layout: Layout) -> Weights:
        """Return the weights in their file; empty ones if it is missing. Raises UserError if it is invalid."""
        record = load_record(layout.relevance, "relevance", 1) or {}
        return as_dataclass(cls, record, "relevance record", layout.relevance, remedy="mend or delete it")

    def chance(self, features: Mapping[Feature, float]) -> float:
        """Return the probability (0 to 1) that a text with these features is used; 0.5 without weights."""
        return 1 / (1 + math.exp(-sum(self.weights.get(name, 0.0) * value for name, value in features.items())))

    def learn(self, task: str, samples: Iterable[tuple[ShownText, bool]]) -> Weights:
        """Return the weights after a task. Each sample is a text and whether the task used it. A task that was already counted
        changes nothing."""
        if task in self.tasks:
            return self
        learned = Weights(dict(self.weights), dict(self.texts), (*self.tasks, task)[-MAX_TASKS:])
        for text, is_used in samples:
            step = _RATE * (is_used - learned.chance(text.features))
            for feature, value in text.features.items():
                weight = learned.weights.get(feature, 0.0) + step * value
                learned.weights[feature] = round(max(-MAX_WEIGHT, min(MAX_WEIGHT, weight)), 4)
            for name in _with_folder(text.names[0]):
                used, unused = learned.texts.pop(name, (0, 0))
                learned.texts[name] = (used + 1, 0) if is_used else (used, unused + 1)
        for forgotten in [*learned.texts][:-MAX_TEXTS]:
            del learned.texts[forgotten]
        return learned


class Relevance:
    """The learned relevance of texts to one focus of an agent."""

    def __init__(self, hive: Parts, focus: Focus) -> None:
        self._text, self._setting = focus.text, hive.config.relevance
        self.is_on = self._setting == "on"
        self._words = {*words_of(focus.text)}
        self.problem = ""
        try:
            self._weights = Weights.load(hive.layout)
        except UserError as error:
            self._weights, self.problem = Weights(), f"; no weight counts: {error}"
            _log.warning("%s", error)

    def factor(self, block: MemoryBlock) -> float:
        """Return the factor by which a block's score is multiplied, 0.5 to 1.5. It is 1 without weights, or if relevance is
        off."""
        return 0.5 + self._weights.chance(self.shown_text(block).features) if self.is_on else 1.0

    def explain(self, block: MemoryBlock) -> str:
        """Return the chance that a block's text is used, and what contributes to it most, in words; "" without weights."""
        features = self.shown_text(block).features
        parts = {name: value * self._weights.weights.get(name, 0.0) for name, value in features.items()}
        largest = sorted(filter(parts.get, parts), key=lambda name: -abs(parts[name]))
        reasons = ", ".join(f"{name} {parts[name]:+.2f}" for name in largest[:5])
        return reasons and f"{self._weights.chance(features):.0%} likely to be used: {reasons}"

    @property
    def state(self) -> str:
        """The setting and the learned weights, in a sentence."""
        effect = {"off": "not learned", "learn": "learned, and not applied", "on": "learned and applied"}
        return f"Relevance is {effect[self._setting]} (relevance: {self._setting}){self.problem}."

    def shown_text(self, block: MemoryBlock) -> ShownText:
        metadata, topic = block.metadata, getattr(block, "topic", "") or getattr(block, "subject", "")
        store, _, reference = getattr(block, "location", block.id).partition(":")
        path, _, note = str(metadata.get("path") or "").partition(" note ")
        kind, names = _KINDS.get(store, "document"), [reference]
        if kind == "document":
            kind = "note" if note else "earlier result" if path.startswith("tasks/") else "document"
            names = [note or path]
        elif kind == "memory" and re.search(r"[\d_-]", topic):  # a key that is no common word
            names = [reference, topic]
        words, date = set(words_of(f"{topic} {' '.join(names)}")), metadata.get("remembered")
        with boundary("memory's date", block.id):
            age_s = (datetime.now(UTC) - datetime.fromisoformat(date)).total_seconds() if date else 0.0
        features: dict[Feature, float] = {
            "any text": 1.0,
            kind: 1.0,
            "path in the task": float(any("/" in name and name in self._text for name in names)),
            "words of the task": len(words & self._words) / max(1, len(words)),
            "sure": min(1.0, max(metadata.get("answers", {}).values(), default=0.0)),
            "new": 1 / (1 + max(0.0, age_s) / _MONTH_S) if date else 0.0,
        }
        for name, (is_used, is_unused) in zip(_with_folder(names[0]), _HISTORY, strict=True):
            used, unused = self._weights.texts.get(name, (0, 0))
            features |= {is_used: float(used > 0), is_unused: min(1.0, unused / _UNUSED)}
        features = {name: round(value, 3) for name, value in features.items() if value}
        return ShownText(tuple(names), source_of(context_entry(block, "")), features)

    def record(self, blocks: Iterable[MemoryBlock]) -> list[dict[str, Any]]:
        """Return the texts of an opening as records, to learn from them later; none if relevance is off."""
        return [] if self._setting == "off" else [asdict(self.shown_text(block)) for block in blocks]


def learn_use(hive: Parts, work: TaskRun) -> None:
    """Learn which texts of its openings a task has used, at its end. A text is used if the agent wrote one of its names, or six
    of its words in a row. Raises UserError, OSError."""
    records = work.records()
    rows = [(row, record["opening"][-1]["text"]) for record in records for row in record.get("shown", ())]
    texts = [(as_dataclass(ShownText, row, "shown text", work.task.id), opening) for row, opening in rows]
    answers = [record for record in records if record.get("role") == "assistant"]
    calls = [{**call["arguments"], "lessons_wrong": ()} for answer in answers for call in answer.get("calls", ())]
    answer_text = "\n".join(
        [*(str(answer.get("text", "")) for answer in answers), json.dumps(calls, ensure_ascii=False)]
    )
    if samples := {text.names[0]: (text, _is_used(text, opening, answer_text)) for text, opening in texts}:
        save_samples(hive, f"{work.task.id}.{work.attempt}", samples.values())


def save_samples(hive: Parts, task: str, samples: Iterable[tuple[ShownText, bool]]) -> None:
    """Update and save the weights after a task. Each sample is a text and whether it was used. Raises UserError, OSError."""
    with Lock(hive.layout.locks / "relevance.lock"):
        weights = Weights.load(hive.layout)
        if (learned := weights.learn(task, samples)) is not weights:
            text = json.dumps({"kind": "relevance", "version": 1, **asdict(learned)}, ensure_ascii=False, indent=1)
            write(hive.layout.relevance, f"{text}\n".encode("utf-8", "surrogateescape"))


def _with_folder(name: str) -> tuple[str, str]:
    """Return a text's name (a path or a memory's key), and the name of the folder or namespace that contains it."""
    return name, f"{name.rpartition('/')[0]}/"


def _is_used(text: ShownText, opening: str, answer_text: str) -> bool:
    is_named = any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", answer_text) for name in text.names)
    source = json.dumps(text.source, ensure_ascii=False)[:-1]
    contents = (content for other, content in _MATERIAL.findall(opening) if other.startswith(source))
    return is_named or any(shares_words(content, answer_text) for content in contents)
