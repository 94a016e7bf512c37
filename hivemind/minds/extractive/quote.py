"""Quoting: what answers a question, of files and of memories, exactly as it stands there; or that nothing does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.documents import Citation
from hivemind.frozen import frozen
from hivemind.search import Confidence, best_of

__all__ = ["MAX_QUOTES", "Quote", "quotes_for"]

MAX_QUOTES = 3


@frozen
class Quote:
    """What answers: `text` as it stands at its `citation`. Or what is remembered, or was noted for a task or on a document, as
    `path`, since the day (or of the task, or by whom) `remembered`; then without a citation."""

    text: str
    path: str
    confidence: Confidence
    citation: Citation | None = None
    remembered: str = ""

    @property
    def is_weak(self) -> bool:
        return self.confidence.level == "weak"


def quotes_for(question: str, found: Sequence[Mapping[str, Any]]) -> list[Quote]:
    """At most three quotes, those of files and of memories ranked together; only weak ones where nothing else is there.

    `found` are entries of type knowledge, each store's best first, whose `answers` say how far each can be trusted to
    answer which question, and `why`; of files with their `citation`, of memories with `remembered`, of nodes of graphs and
    of documents with `path`. What could not be read, and memories that are not there in full, are not quoted.
    """
    files, memories = list[Quote](), list[Quote]()
    for entry in found:
        fields = entry["metadata"]
        value = fields.get("answers", {}).get(question)
        if value is None or fields.get("form", "full") != "full" or not entry["content"]:
            continue
        confidence = Confidence(value, str(fields.get("why", "")))
        if "citation" in fields:
            citation = Citation(**fields["citation"])
            files.append(Quote(citation.text, citation.path, confidence, citation))
        else:
            path = str(fields.get("path") or fields["source"])
            since = str(fields["remembered"])[:10] if "remembered" in fields else f"of task {fields['task']}"
            memories.append(Quote(str(entry["content"]), path, confidence, remembered=since))
    best = best_of(
        [files, memories],
        len(found),
        confidence=lambda quote: quote.confidence,
        text=lambda quote: quote.text,
        origin=lambda quote: quote.path,
    )
    return ([quote for quote in best if not quote.is_weak] or best)[:MAX_QUOTES]
