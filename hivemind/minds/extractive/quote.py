"""Quoting: what answers a question, of files and of memories, exactly as it stands there; or that nothing does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.frozen import frozen
from hivemind.search import Confidence, best_of

__all__ = ["MAX_QUOTES", "Quote", "quotes_for"]

MAX_QUOTES = 3


@frozen
class Quote:
    """What a file says: `text` stands at `path`, 1-based lines `start` to `end`, in the version with `digest`. Or what is
    remembered, or was noted for a task, as `path`, since the day (or of the task) `remembered`; then there are no lines."""

    text: str
    path: str
    confidence: Confidence
    start: int = 0
    end: int = 0
    digest: str = ""
    remembered: str = ""

    @property
    def citation(self) -> str:
        lines = str(self.start) if self.start == self.end else f"{self.start}-{self.end}"
        return f"{self.path}:{lines}"

    def overlaps(self, other: Quote) -> bool:
        return self.path == other.path and self.start <= other.end and other.start <= self.end

    @property
    def is_weak(self) -> bool:
        return self.confidence.level == "weak"


def quotes_for(question: str, found: Sequence[Mapping[str, Any]]) -> list[Quote]:
    """At most three quotes, those of files and of memories ranked together; only weak ones where nothing else is there.

    `found` are entries of type knowledge, each store's best first, whose `answers` say how far each can be trusted to
    answer which question, and `why`; of files with `source` (or `path`), `start_line`, `digest`, of memories with
    `remembered`, of nodes of graphs with `path`.
    What is not there in full is not quoted: its lines are not those of the file.
    """
    files, memories = list[Quote](), list[Quote]()
    for entry in found:
        told = entry["metadata"]
        value = told.get("answers", {}).get(question)
        if value is None or told.get("error") or told.get("form", "full") != "full":
            continue
        confidence = Confidence(value, str(told.get("why", "")))
        if "remembered" in told or told.get("type") == "context":
            where = str(told.get("source") or told["path"])
            since = str(told["remembered"])[:10] if "remembered" in told else f"of task {told['task']}"
            memories.append(Quote(str(entry["content"]), where, confidence, remembered=since))
        elif (quote := _of_file(entry, confidence)) is not None and not any(quote.overlaps(one) for one in files):
            files.append(quote)
    best = best_of(
        [files, memories],
        len(found),
        confidence=lambda one: one.confidence,
        text=lambda one: one.text,
        origin=lambda one: one.path,
    )
    return ([one for one in best if not one.is_weak] or best)[:MAX_QUOTES]


def _of_file(entry: Mapping[str, Any], confidence: Confidence) -> Quote | None:
    """The sentences that answer, within the lines that were read."""
    told, content = entry["metadata"], str(entry["content"])
    first = max(content.find(str(told.get("begins", ""))), 0)
    ends = str(told.get("ends", ""))
    last = content.rfind(ends) + len(ends) if ends and ends in content else len(content)
    text = content[first:last] if first < last else content
    quoted = text.strip()
    if not quoted:
        return None
    first += len(text) - len(text.lstrip())
    start = told["start_line"] + content.count("\n", 0, first)
    end = start + quoted.count("\n")
    return Quote(quoted, str(told.get("path") or told["source"]), confidence, start, end, str(told["digest"]))
