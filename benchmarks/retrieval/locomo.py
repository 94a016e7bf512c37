"""LoCoMo's conversations as turns and questions, and how much of the evidence a ranking finds.

The file (`locomo10.json`, or some of its conversations) is not part of this repository: its licence, CC BY-NC 4.0, allows
no commercial use. Evidence are dialog turns; questions of category 5 (with a false premise) are left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

MEASURES = ("recall@5", "recall@10", "recall@20", "nDCG@10", "recall in 2,000 tokens")
_BUDGET = 2_000
Item = tuple[str, str, str, str]  # id, text, speaker, ISO time of the session


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    items: list[Item]
    questions: list[Question]


def load(path: str) -> list[Conversation]:
    """The conversations of a file, in its order."""
    with open(path, encoding="utf-8") as file:
        return [_conversation(sample) for sample in json.load(file)]


def _conversation(sample: dict[str, Any]) -> Conversation:
    conversation = sample["conversation"]
    numbers = sorted(int(match[1]) for key in conversation if (match := re.fullmatch(r"session_(\d+)", key)))
    items = [item for number in numbers for item in _session(conversation, f"session_{number}")]
    item_ids = {item[0] for item in items}
    return Conversation(sample["sample_id"], items, list(_questions(sample["qa"], item_ids)))


def _session(conversation: dict[str, Any], key: str) -> Iterator[Item]:
    moment = datetime.strptime(" ".join(conversation[f"{key}_date_time"].split()), "%I:%M %p on %d %B, %Y")
    for turn in conversation[key]:
        caption = turn.get("blip_caption")
        text = turn["text"].strip() + (f" [photo: {caption.strip()}]" if caption else "")
        yield turn["dia_id"], text, turn["speaker"], moment.strftime("%Y-%m-%dT%H:%M")


def _questions(samples: Sequence[dict[str, Any]], item_ids: set[str]) -> Iterator[Question]:
    seen = set()
    for sample in samples:
        ids = {f"D{int(a)}:{int(b)}" for a, b in re.findall(r"D:?(\d+):(\d+)", " ".join(sample.get("evidence") or []))}
        text, category = sample["question"].strip(), int(sample["category"])
        if category != 5 and ids & item_ids and (text.lower(), category) not in seen:
            seen.add((text.lower(), category))
            yield Question(text, category, frozenset(ids & item_ids))


def measured(ranking: Sequence[str], evidence: frozenset[str], items: dict[str, Item]) -> tuple[float, ...]:
    """The five measures of one ranking, 0 to 1."""
    hits = [key in evidence for key in ranking]
    recalls = [sum(hits[:depth]) / len(evidence) for depth in (5, 10, 20)]
    gain = sum(1 / math.log2(place + 2) for place, hit in enumerate(hits[:10]) if hit)
    best = sum(1 / math.log2(place + 2) for place in range(min(len(evidence), 10)))
    return (*recalls, gain / best, len(evidence & _fitting_keys(ranking, items)) / len(evidence))


def _fitting_keys(ranking: Sequence[str], items: dict[str, Item]) -> set[str]:
    """Return the turns that fit into the budget, best first, with a line for each session; skip turns that do not fit."""
    used_tokens, selected_keys, sessions = 0, set(), set()
    for key in ranking:
        _, text, speaker, moment = items[key]
        cost = _tokens(f"{speaker}: {text}\n") + (0 if moment in sessions else _tokens(f"[{moment}]\n"))
        if used_tokens + cost <= _BUDGET:
            used_tokens += cost
            selected_keys.add(key)
            sessions.add(moment)
    return selected_keys


def _tokens(text: str) -> int:
    return math.ceil(len(text) / 4)
