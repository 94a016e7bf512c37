"""A summary by extract: the sentences that say most of what the whole says, in their order. No prose of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from hivemind.documents.sentences import sentence_ends
from hivemind.words import STOP_WORDS

__all__ = ["extract"]

_WORD = re.compile(r"\w+")


def extract(texts: Sequence[str], max_tokens: int, count: Callable[[str], int]) -> str:
    """At most `max_tokens` tokens of whole sentences out of the texts, in reading order; the same for the same texts.

    A sentence weighs as much as its words are frequent in the whole (each once, by the square root of its length); the
    first sentence of each text has a small advantage. At least one sentence is given, unless there is none.
    """
    sentences = [(text_at, sentence) for text_at, text in enumerate(texts) for sentence in _sentences(text)]
    frequency = Counter(word for _, sentence in sentences for word in _words(sentence))
    seen: set[int] = set()
    ranked = []
    for place, (text_at, sentence) in enumerate(sentences):
        words = _words(sentence)
        weight = sum(frequency[word] for word in words) / (len(words) ** 0.5 or 1.0)
        ranked.append((-weight * (1.0 if text_at in seen else 1.25), place))
        seen.add(text_at)
    chosen: list[int] = []
    left = max_tokens
    for _, place in sorted(ranked):
        cost = count(sentences[place][1]) + 1  # the space between two
        if cost <= left or not chosen:
            chosen.append(place)
            left -= cost
    return " ".join(sentences[place][1] for place in sorted(chosen))


def _sentences(text: str) -> list[str]:
    start, found = 0, []
    for end in sentence_ends(text):
        sentence = " ".join(text[start:end].split())
        if sentence:
            found.append(sentence)
        start = end
    return found


def _words(sentence: str) -> set[str]:
    return {word for word in _WORD.findall(sentence.casefold()) if word not in STOP_WORDS}
