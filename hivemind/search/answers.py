"""Rate the confidence of hits, choose the sentences to quote, and merge hits from several stores, all without a model.

This module works on hits that were loaded already; it never reads a store.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from hivemind.frozen import frozen
from hivemind.search.parts import PartSimilarity, sentence_spans
from hivemind.search.query import Query
from hivemind.search.ranking import Candidate
from hivemind.search.words import words_of

Level = Literal["sure", "likely", "weak"]

# Without late interaction (memories, graphs). A hit is "weak" if cosine + nearest sentence's cosine + _WORD_WEIGHT ×
# (coverage + known share) is below _ANSWER_THRESHOLD, …
_ANSWER_THRESHOLD, _WORD_WEIGHT = 1.07, 0.3
_ANSWER_THRESHOLD_BY_WORDS = 0.36  # … or, without vectors, coverage × (1 + known share) / 2 below this
_MAX_DOUBTFUL = 1.19  # words alone, or a quote without the number that is asked for, never make an answer "sure"
# With late interaction, the value is e to the sum of _BASE and each of `features_of` × its weight: a logistic model, stretched
# so that its thresholds are 1 and SURE_THRESHOLD. `python -m benchmarks.retrieval documentation TREES --fit` prints the numbers.
_BASE, _FEATURE_WEIGHTS = -0.85, (4.84, 1.45, 0.11, 0.05, 0.1)
_MAX_LEAD = 0.09  # in a small hive the passages have little in common, so each has a lead
_CLEAR_LEAD = 0.06  # a smaller lead is named as a reason for doubt
_MAX_COVERED = 5
SURE_THRESHOLD = 1.35  # the confidence of a "sure" hit
_NUMBERED_NAME = re.compile(r"\d+(?:\.\d+)+|\b(?=\w*\d)(?=\w*[^\W\d])\w+")  # 1.6.0, M2
_NUMBER_ASKED = re.compile(
    r"\b(?:how (?:many|much|long|often|big|large|old|far|fast|high)|maximum|minimum|default|number|port|size|percent|minutes"
    r"|seconds|days|version|length|date|wie (?:viele?n?|lange|oft|groß|hoch|alt)|höchstens|mindestens|anzahl|takt|bytes"
    r"|sekunden|minuten|tage|combien|cuánt[oa]s?|quant[oaie]|hoeveel)\b",
    re.IGNORECASE,
)
_NUMBER_QUOTED = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|hundred|thousand|once|twice"
    r"|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|zwölf|hundert|tausend)\b",
    re.IGNORECASE,
)
_MAX_QUOTE_CHARACTERS = 800  # a shorter passage is quoted whole
_HITS_PER_ORIGIN = 2  # hits of one origin before the other origins get a turn
_DUPLICATE_SHARE = 0.8  # two texts that share at least this part of their words are duplicates, …
# … and so are two texts of different origins if one has this part of the other's runs of words,
# if these are so long and at least so many: other formats of a document are cut elsewhere
_COMMON_RUNS_SHARE, _RUN_WORDS, _MIN_RUNS = 0.5, 4, 10

T = TypeVar("T")


@frozen
class Confidence:
    """The confidence that a hit answers the query. A hit with a `value` below 1 is weak; `reason` explains the value.

    `features` are the numbers from which the value was computed. They are empty if the parts of texts were not compared
    (late interaction, see `parts.py`).
    """

    value: float
    reason: str
    features: tuple[float, ...] = ()

    @property
    def level(self) -> Level:
        if self.value < 1:
            return "weak"
        return "sure" if self.value >= SURE_THRESHOLD else "likely"


@frozen
class Evidence:
    """The comparison of a hit with the other hits, on which its confidence depends.

    `lead` is the hit's word similarity minus the mean of the three best other hits. `word_place` and `meaning_place`
    are the hit's ranks (1 is best) by words alone and by cosine alone.
    """

    lead: float
    word_place: int
    meaning_place: int


def confidence_of(
    query: Query, candidate: Candidate, evidence: Evidence | None = None, quote: tuple[str, int] | None = None
) -> Confidence:
    """Rate how surely a candidate answers the query, by the query's words that it contains and its nearness in meaning.

    With `evidence` and `quote`, the rating uses the numbers of `features_of` instead. `quote` is the quoted text and
    the number of the question's words in it.
    """
    cosine, part_similarity, question_weight = candidate.cosine, candidate.part_similarity, query.question_weight
    known_share = (
        sum(term.weight for term in query.question_terms if term.item_count) / question_weight
        if question_weight
        else 0.0
    )
    reasons = [*_reasons(query, candidate)]
    features: tuple[float, ...] = ()
    if cosine is None:
        value = min(candidate.match.coverage * (1 + known_share) / 2 / _ANSWER_THRESHOLD_BY_WORDS, _MAX_DOUBTFUL)
        doubts = ["its meaning was not compared"]
    elif evidence is None or quote is None or part_similarity is None:
        nearest_cosine = cosine if part_similarity is None else part_similarity.cosine
        value = cosine + nearest_cosine + _WORD_WEIGHT * (candidate.match.coverage + known_share)
        value /= _ANSWER_THRESHOLD
        doubts = ["its sentences are not near enough in meaning"]
    else:
        features = features_of(query, part_similarity, evidence, *quote)
        value = math.exp(
            _BASE + sum(weight * feature for weight, feature in zip(_FEATURE_WEIGHTS, features, strict=True))
        )
        nearness = "as near" if evidence.lead <= 0 else "nearly as near"
        doubts = [
            *[f"other passages are {nearness}"] * (evidence.lead < _CLEAR_LEAD),
            *["another has more of the words"] * (evidence.word_place > 1),
            *["another is nearer in meaning"] * (evidence.meaning_place > 1),
        ] or ["no sentence is near in meaning to all the words"]
    if quote is not None and _has_number(query, quote[0]) < 0:
        value = min(value, _MAX_DOUBTFUL)
        doubts.append("it has no number")
    if value < SURE_THRESHOLD:
        reasons += doubts
    return Confidence(value, "; ".join(reasons), features)


def doubt_names(query: Query, confidence: Confidence, text: str) -> Confidence:
    """Lower the confidence below "sure" if the query names a version number or another word with a digit that `text` lacks.

    `text` is the quote with its titles.
    """
    names = _NUMBERED_NAME.findall(text.casefold())
    missing_names = [name for name in _NUMBERED_NAME.findall(query.text) if name.casefold() not in names]
    if not missing_names:
        return confidence
    reason = f"{confidence.reason}; the quote does not name {', '.join(missing_names)}"
    return replace(confidence, value=min(confidence.value, _MAX_DOUBTFUL), reason=reason)


def features_of(
    query: Query, part_similarity: PartSimilarity, evidence: Evidence, quote: str, covered_count: int
) -> tuple[float, ...]:
    """Return the five numbers that decide a hit's confidence.

    These are the hit's lead, the similarity of its weakest word, the agreement of its ranks by words and by meaning,
    the number of the question's words in the quote or its titles (`covered_count`), and the result of `_has_number`.
    """
    return (
        min(evidence.lead, _MAX_LEAD),
        part_similarity.weakest_word,
        1 / evidence.word_place + 1 / evidence.meaning_place,
        min(covered_count, _MAX_COVERED),
        _has_number(query, quote),
    )


def _has_number(query: Query, quote: str) -> int:
    """Return 1 if the quote has the number that the query asks for, -1 if it does not, 0 if the query asks for no number."""
    return 0 if _NUMBER_ASKED.search(query.text) is None else 1 if _NUMBER_QUOTED.search(quote) else -1


def _reasons(query: Query, candidate: Candidate) -> Iterable[str]:
    matched_words = {word for words in candidate.match.words_by_field.values() for word in words}
    question_words = [term.word for term in query.question_terms]
    unknown_words = [term.word for term in query.question_terms if not term.item_count]
    if matched_words:
        words = [term.word for term in query.terms if term.word in matched_words]
        yield f"has the word{'s' * (len(words) > 1)} {', '.join(words)}"
    else:
        yield "has none of the query's words"
    if candidate.cosine is not None:
        yield f"is near in meaning ({candidate.best_cosine:.2f})"
    if missing_words := [word for word in question_words if word not in matched_words and word not in unknown_words]:
        yield f"lacks {', '.join(missing_words)}"
    if unknown_words:
        yield f"nothing here has {', '.join(unknown_words)}"


def quote_span(
    text: str,
    stem_weights: Mapping[str, float],
    stem_words: Callable[[Sequence[str]], list[str]],
    nearest_position: float | None,
) -> tuple[int, int]:
    """Return the start and end of the quote: whole sentences around the best sentence, at most about 800 characters.

    The best sentence is the one at `nearest_position`: the place in the text (0 to 1) that is nearest in meaning. If
    this is None, it is the sentence with the heaviest stems. `stem_weights` maps each stem of the query to its weight.
    """
    spans = sentence_spans(text)
    if not spans or spans[-1][1] - spans[0][0] <= _MAX_QUOTE_CHARACTERS:
        return (spans[0][0], spans[-1][1]) if spans else (0, len(text))
    sentence_stems = [stem_weights.keys() & set(stem_words(words_of(text[start:end]))) for start, end in spans]
    sentence_weights = [sum(stem_weights[stem] for stem in matched_stems) for matched_stems in sentence_stems]
    if nearest_position is None:
        first = max(range(len(spans)), key=lambda at: (sentence_weights[at], -at))
    else:
        first = next((at for at, (_, end) in enumerate(spans) if nearest_position * len(text) < end), len(spans) - 1)
    last, covered_stems, prefers_previous = first, set(sentence_stems[first]), True
    while True:
        neighbours = [
            at
            for at in (last + 1, first - 1)
            if 0 <= at < len(spans)
            and max(spans[last][1], spans[at][1]) - min(spans[first][0], spans[at][0]) <= _MAX_QUOTE_CHARACTERS
        ]
        if not neighbours:
            return spans[first][0], spans[last][1]
        gains = [sum(stem_weights[stem] for stem in sentence_stems[at] - covered_stems) for at in neighbours]
        neighbour = neighbours[gains.index(max(gains))]
        if len(neighbours) == 2 and gains[0] == gains[1]:  # the sentence before adds context; then alternate
            neighbour, prefers_previous = first - 1 if prefers_previous else last + 1, not prefers_previous
        first, last = min(first, neighbour), max(last, neighbour)
        covered_stems |= sentence_stems[neighbour]


def merge_hits(
    rankings: Iterable[Sequence[T]],
    limit: int,
    *,
    confidence: Callable[[T], Confidence],
    text: Callable[[T], str],
    origin: Callable[[T], object],
) -> list[T]:
    """Merge the rankings of several stores, each best first, into one.

    The store whose next hit has the highest confidence comes next; hits of one store keep their order. An origin is a file
    or an entry; its third hit comes after the first two hits of all origins. Duplicates are dropped.
    """
    queues = [list(ranking) for ranking in rankings if ranking]
    merged: list[T] = []
    while queues:
        best = max(queues, key=lambda queue: confidence(queue[0]).value)
        merged.append(best.pop(0))
        queues = [queue for queue in queues if queue]
    distinct: list[tuple[T, Sequence[str]]] = []
    for candidate in merged:
        words = words_of(text(candidate))
        if not any(
            _are_duplicates(words, other_words) or (origin(hit) != origin(candidate) and _overlap(words, other_words))
            for hit, other_words in distinct
        ):
            distinct.append((candidate, words))
    origin_counts = Counter[object]()
    hits_by_round = []
    for candidate, _ in distinct:
        hits_by_round.append((origin_counts[origin(candidate)] // _HITS_PER_ORIGIN, candidate))
        origin_counts[origin(candidate)] += 1
    return [hit for _, hit in sorted(hits_by_round, key=lambda pair: pair[0])][:limit]


def _are_duplicates(words: Sequence[str], other_words: Sequence[str]) -> bool:
    shorter, longer = sorted((set(words), set(other_words)), key=len)
    return len(shorter & longer) >= max(1, _DUPLICATE_SHARE * len(longer))


def _overlap(words: Sequence[str], other_words: Sequence[str]) -> bool:
    """Return True if two texts share about half of their sequences of consecutive words."""
    runs, other_runs = (
        set(zip(*(text[at:] for at in range(_RUN_WORDS)), strict=False)) for text in (words, other_words)
    )
    fewest = min(len(runs), len(other_runs))
    return fewest >= _MIN_RUNS and len(runs & other_runs) >= _COMMON_RUNS_SHARE * fewest
