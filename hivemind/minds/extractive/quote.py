"""Choose quotes from files and memories that answer a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.documents import Citation
from hivemind.frozen import frozen
from hivemind.search import Confidence, merge_hits

MAX_QUOTES = 3


@frozen
class Quote:
    """A quote that answers a question.

    A quote from a file has a `citation`. A quote from a memory, a task's note or a document's note has none: `path` is
    its key, and `remembered` its day, task or author.
    """

    text: str
    path: str
    confidence: Confidence
    citation: Citation | None = None
    remembered: str = ""

    @property
    def is_weak(self) -> bool:
        return self.confidence.level == "weak"


def quotes_for(question: str, entries: Sequence[Mapping[str, Any]]) -> list[Quote]:
    """Return the three best quotes from files and memories. If the best is sure, weak ones are left out; if it is likely, weak
    ones of memories are.

    `entries` have the type knowledge, and are ordered per store, best first. `answers` in an entry's metadata maps questions to
    confidences, and `why` has the reason. Files have a `citation`, memories `remembered`, and nodes of graphs and documents a
    `path`. Unreadable entries and shortened memories are not quoted.
    """
    files, memories = list[Quote](), list[Quote]()
    for entry in entries:
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
            origin = str(fields["remembered"])[:10] if "remembered" in fields else f"of task {fields['task']}"
            memories.append(Quote(str(entry["content"]), path, confidence, remembered=origin))
    best = merge_hits(
        [files, memories],
        len(entries),
        confidence=lambda quote: quote.confidence,
        text=lambda quote: quote.text,
        origin=lambda quote: quote.path,
    )
    level = best[0].confidence.level if best else "weak"
    quotes = [quote for quote in best if level == "weak" or not quote.is_weak]
    if level == "likely":
        quotes += [quote for quote in best if quote.is_weak and quote.citation]
    return quotes[:MAX_QUOTES]
