"""Ranking: score candidates by words and meaning, then by further features that a store may provide.

Each feature has a name and a weight and is measured alone (docs/retrieval.md). No feature favours long items.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hivemind.frozen import frozen
from hivemind.search.item import Item, Reading
from hivemind.search.parts import PartSimilarity
from hivemind.search.query import ExpectedKind, Query, expected_kind, has_name, has_time, in_first_person
from hivemind.search.words import K1, B, bm25_scores, words_of

_MIN_SESSIONS = 2  # sessions can be compared only if there are two
_MIN_FEATURE = 0.05  # a feature that changes the score by less is not named in `why`
_BEST_COSINES = 3  # the score of a session averages this many cosines
# how much of a word counts as covered if the word is in this field
_FIELD_CREDIT = {"text": 1.0, "heading": 0.95, "titles": 0.85, "labels": 0.7, "example": 0.5}


@frozen
class Weights:
    """The weight of each feature. Words and meaning together score 0 to 1; other features are added to this score."""

    meaning: float = 2.0  # relative to 1 for words
    sentence: float = 0.4  # share of the nearest sentence's cosine in the item's cosine
    late: float = 0.0  # similarity of the query's words to the item's parts, scaled to 0 to 1
    heading: float = 1.1  # a word in the nearest title, relative to 1 in the text
    titles: float = 0.8
    labels: float = 0.5
    example: float = 0.4
    covered: float = 0.0  # share of the words' score that is multiplied by the coverage
    together: float = 0.0  # two words that are adjacent as in the query
    lead: float = 0.0  # the first text below a heading, for each matched word of the heading
    full_heading: float = 0.0  # the first text below a heading that has all words of the query
    neighbour: float = 0.3  # the previous and next items' cosines
    answer: float = 0.2  # additional weight of the previous item if it is a question
    said_before: float = 0.8  # words that only the previous item contains
    said_after: float = 0.4  # words that only the next item contains
    speaker: float = 0.2  # the query names the item's speaker
    first_person: float = 0.1  # … and the item is in the first person
    session: float = 0.2  # score (0 to 1) of the item's whole session
    date: float = 0.4  # the item is from a month or year of the query
    day: float = 0.2  # … and from about the query's day
    time: float = 0.1  # the item contains a time, and the query asks when
    written: float = 0.0  # the item contains an identifier exactly as in the query, × its share of the query's words
    name: float = 0.1  # the item contains a name, and the query asks who, where or which
    asking: float = -0.1  # the item ends with a question


@dataclass(slots=True)
class Match:
    """An item's match by words: its score, the share (0 to 1) of the query that it covers, and the matched and missing words."""

    score: float = 0.0
    coverage: float = 0.0
    words_by_field: dict[str, list[str]] = field(default_factory=dict)
    missing_words: list[str] = field(default_factory=list)


@frozen
class Candidate:
    """An item that may answer, with the positions of the query's stems in it, its match by words, and its cosine (None:
    no vector yet).

    `previous` and `next` are the positions of the item's neighbours in the list of candidates, None for a missing one.
    """

    item: Item
    reading: Reading
    match: Match
    cosine: float | None = None
    part_similarity: PartSimilarity | None = None
    previous: int | None = None
    next: int | None = None

    @property
    def best_cosine(self) -> float:
        """Return the higher cosine: of the item's vector or of its nearest sentence; -1 without vectors."""
        return max(
            -1.0 if self.cosine is None else self.cosine,
            -1.0 if self.part_similarity is None else self.part_similarity.cosine,
        )

    @property
    def word_similarity(self) -> float | None:
        """Return the mean similarity of the query's words to the item's parts; None if parts were not compared by words."""
        return None if self.part_similarity is None else self.part_similarity.word_similarity

    @property
    def session(self) -> tuple[int, str] | None:
        """Return the item's scope and session, None without a session."""
        return None if self.item.session is None else (self.item.scope, self.item.session)


@frozen
class RankedCandidate:
    """A candidate's position in the list of candidates, its score (0 or more), and its other features (name, weight)."""

    position: int
    score: float
    features: Sequence[tuple[str, float]]

    def explain(self, candidate: Candidate) -> str:
        parts, match = [], candidate.match
        if match.words_by_field:
            parts.append(
                "has "
                + "; ".join(", ".join(words) + _FIELD_SUFFIXES[name] for name, words in match.words_by_field.items())
            )
            if match.missing_words:
                parts.append(f"without {', '.join(match.missing_words)}")
        if candidate.cosine is not None:
            parts.append(f"is near in meaning ({candidate.best_cosine:.2f})")
        parts = parts or ["is next to a match"]
        if feature_names := [name for name, weight in self.features if abs(weight) >= _MIN_FEATURE]:
            parts.append(f"counts for it: {', '.join(feature_names)}")
        return "; ".join(parts)


_FIELD_SUFFIXES = {
    "text": "", "heading": " in its heading", "titles": " in the titles above", "labels": " in the document's labels",
    "example": " in an example",
}  # fmt: skip


def match_items(query: Query, items: Sequence[Item], readings: Sequence[Reading], weights: Weights) -> list[Match]:
    """Match each item with the query by words. The score is BM25, a standard measure, over the item's fields."""
    lengths = [reading.length for reading in readings]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    return [_match_item(query, *pair, average, weights) for pair in zip(items, readings, strict=True)]


def _match_item(query: Query, item: Item, reading: Reading, average: float, weights: Weights) -> Match:
    match = Match()
    if not reading.positions:
        return match
    length_factor = 1 - B + B * reading.length / average if average else 1.0
    field_factors = {
        "text": 1 / length_factor,
        "heading": weights.heading,
        "titles": weights.titles,
        "labels": weights.labels,
    }
    field_factors["example"] = weights.example / length_factor
    covered = with_context = 0.0
    for term in query.terms:
        positions = reading.positions.get(term.stem)
        if not positions:
            match.missing_words += [] if term.is_context else [term.word]
            continue
        best = max(positions, key=_FIELD_CREDIT.__getitem__)
        match.words_by_field.setdefault(best, []).append(term.word)
        with_context += term.weight * _FIELD_CREDIT[best]
        covered += 0.0 if term.is_context else term.weight * _FIELD_CREDIT[best]
        frequency = sum(len(at) * field_factors[name] for name, at in positions.items())
        match.score += term.weight * frequency * (K1 + 1) / (frequency + K1)
        if item.is_lead and "heading" in positions:
            match.score += term.weight * weights.lead
    question_weight = query.question_weight
    match.coverage = (
        max(covered / question_weight, with_context / sum(term.weight for term in query.terms))
        if question_weight
        else 0.0
    )
    if weights.together:
        match.score += weights.together * _proximity(query, reading)
    match.score *= 1 - weights.covered + weights.covered * match.coverage
    return match


def _proximity(query: Query, reading: Reading) -> float:
    gain = 0.0
    for term, next_term in pairwise(query.terms):
        first, second = reading.positions.get(term.stem), reading.positions.get(next_term.stem)
        if first and second:
            for name in ("text", "heading"):
                after = set(second.get(name, ()))
                if any({at + 1, at + 2, at + 3} & after for at in first.get(name, ())):
                    gain += min(term.weight, next_term.weight)
    return gain


def rank(query: Query, candidates: Sequence[Candidate], weights: Weights) -> list[RankedCandidate]:
    """Score the candidates; return them best first, equal scores by age."""
    cosines = [_blended_cosine(candidate, weights.sentence) for candidate in candidates]
    base_scores = _fuse(
        _with_neighbour_words(query, candidates, weights),
        _with_neighbours(cosines, candidates, weights),
        [candidate.match.coverage for candidate in candidates],
        weights.meaning,
    )
    word_similarities = [
        similarity for candidate in candidates if (similarity := candidate.word_similarity) is not None
    ]
    scale = _scale(word_similarities)
    sessions = _session_scores(query, candidates, cosines, weights)
    has_meanings = any(cosine is not None for cosine in cosines)
    answer_kind, ranking = expected_kind(query.text), []
    for position, candidate in enumerate(candidates):
        features = _features(query, answer_kind, candidate, weights)
        session = sessions[position]
        closeness = 0.0 if candidate.word_similarity is None else scale(candidate.word_similarity)
        if has_meanings and candidate.cosine is None:  # without a vector the words count here too
            session = base_scores[position] if session else 0.0
            closeness = base_scores[position] if word_similarities else 0.0
        if session:
            features.append(("its session or file", weights.session * session))
        score = max(0.0, base_scores[position] + weights.late * closeness + sum(worth for _, worth in features))
        ranking.append(RankedCandidate(position, score * candidate.item.standing, features))
    return sorted(
        ranking, key=lambda scored_candidate: (-scored_candidate.score, candidates[scored_candidate.position].item.age)
    )


def are_supported(query: Query, candidates: Sequence[Candidate], min_cosine: float) -> list[bool]:
    """Return, for each candidate, True if it is supported. An unsupported candidate may be unrelated to the query.

    A match has a word of the query or a cosine of at least `min_cosine`. A candidate is supported if it is a match, if
    a neighbour or an item of its session is one, or if the query names its speaker.
    """
    has_match = [
        candidate.match.score > 0 or (candidate.cosine is not None and candidate.cosine >= min_cosine)
        for candidate in candidates
    ]
    pairs = [*zip(candidates, has_match, strict=True)]
    sessions = {candidate.session for candidate, is_match in pairs if is_match} - {None}
    return [
        is_match
        or any(has_match[neighbour] for neighbour in (candidate.previous, candidate.next) if neighbour is not None)
        or candidate.session in sessions
        or not query.participants.isdisjoint(candidate.reading.speaker_words)
        for candidate, is_match in pairs
    ]


def _features(
    query: Query, answer_kind: ExpectedKind, candidate: Candidate, weights: Weights
) -> list[tuple[str, float]]:
    """Return (name, weight) of the candidate's features, except words, meaning and session."""
    features = []
    text, moment = candidate.item.text, candidate.item.moment
    if not query.participants.isdisjoint(candidate.reading.speaker_words):
        features.append(("its speaker", weights.speaker))
        if in_first_person(text):
            features.append(("the first person", weights.first_person))
    if answer_kind.dates and moment is not None and answer_kind.dates.fits(moment):
        features.append(("its date", weights.date + (weights.day if answer_kind.dates.is_near(moment) else 0.0)))
    if weights.time and answer_kind.time and has_time(text):
        features.append(("a time", weights.time))
    if weights.name and answer_kind.name and has_name(text):
        features.append(("a name", weights.name))
    if weights.written and answer_kind.identifiers:
        searchable_text = "\n".join((candidate.item.text, candidate.item.example, candidate.item.heading)).casefold()
        features += [
            (f"{name} as written", weights.written * query.share_of(words_of(name)))
            for name in answer_kind.identifiers
            if name in searchable_text
        ]
    if weights.full_heading and candidate.item.is_lead and len(query.question_terms) > 1:
        positions = candidate.reading.positions
        if all("heading" in positions.get(term.stem, ()) for term in query.question_terms):
            features.append(("a heading with all words", weights.full_heading))
    if candidate.reading.is_question:
        features.append(("that it is a question", weights.asking))
    return features


def _blended_cosine(candidate: Candidate, share: float) -> float | None:
    """Return the item's cosine, moved by `share` (0 to 1) towards the cosine of its nearest sentence; None without a vector."""
    if candidate.cosine is None or candidate.part_similarity is None:
        return candidate.cosine
    return candidate.cosine + share * (candidate.part_similarity.cosine - candidate.cosine)


def _with_neighbours(
    cosines: Sequence[float | None], candidates: Sequence[Candidate], weights: Weights
) -> list[float | None]:
    """Add to each item's cosine a share of its neighbours' cosines. The share is larger if the previous item is a question.

    A missing neighbour counts as if it had the item's own cosine. The result is None for an item without a vector.
    """

    sums: list[float | None] = []
    for cosine, candidate in zip(cosines, candidates, strict=True):
        if cosine is None:
            sums.append(None)
            continue
        total, share = cosine, weights.neighbour
        if candidate.previous is not None and candidates[candidate.previous].reading.is_question:
            share += weights.answer
        for neighbour, factor in ((candidate.previous, share), (candidate.next, weights.neighbour)):
            neighbour_cosine = None if neighbour is None else cosines[neighbour]
            total += factor * (cosine if neighbour_cosine is None else neighbour_cosine)
        sums.append(total)
    return sums


def _with_neighbour_words(query: Query, candidates: Sequence[Candidate], weights: Weights) -> list[float]:
    """Add to each item's word score a share of its neighbours' word scores, for terms that the item does not contain.

    An answer often omits its subject because the sentence before names it. A neighbour with only the item's own terms
    adds nothing.
    """
    term_weights = {term.stem: term.weight for term in query.terms}
    matched_stems = [
        term_weights.keys() & candidate.reading.positions.keys() if candidate.match.score > 0 else set[str]()
        for candidate in candidates
    ]

    def added_score(position: int, neighbour: int | None) -> float:
        if neighbour is None or not (stems := matched_stems[neighbour]):
            return 0.0
        share, total = (sum(map(term_weights.__getitem__, part)) for part in (stems - matched_stems[position], stems))
        return candidates[neighbour].match.score * share / total

    return [
        candidate.match.score
        + weights.said_before * added_score(position, candidate.previous)
        + weights.said_after * added_score(position, candidate.next)
        for position, candidate in enumerate(candidates)
    ]


def _fuse(
    word_scores: Sequence[float], cosines: Sequence[float | None], coverage: Sequence[float], meaning_weight: float
) -> list[float]:
    """Scale word scores and cosines to 0 to 1 each; return their weighted mean for each candidate.

    A missing cosine is replaced by the candidate's scaled word score × coverage. If no candidate has a cosine, return
    the scaled word scores.
    """
    scale_word_score, scale_cosine = _scale(word_scores), _scale([cosine for cosine in cosines if cosine is not None])
    if all(cosine is None for cosine in cosines):
        return [scale_word_score(word) for word in word_scores]
    similarities = [
        scale_word_score(word) * share if cosine is None else scale_cosine(cosine)
        for word, cosine, share in zip(word_scores, cosines, coverage, strict=True)
    ]
    return [
        (scale_word_score(word) + meaning_weight * similarity) / (1 + meaning_weight)
        for word, similarity in zip(word_scores, similarities, strict=True)
    ]


def _session_scores(
    query: Query, candidates: Sequence[Candidate], cosines: Sequence[float | None], weights: Weights
) -> list[float]:
    """Return the score (0 to 1) of each candidate's whole session, 0 for a candidate without a session.

    A session is scored by the words of all its candidates and the mean of their three best cosines. If no candidate has
    a cosine, all scores are 0.
    """
    members: dict[tuple[int, str], list[int]] = defaultdict(list)
    for position, candidate in enumerate(candidates):
        if candidate.session is not None:
            members[candidate.session].append(position)
    if len(members) < _MIN_SESSIONS or all(cosine is None for cosine in cosines):
        return [0.0] * len(candidates)
    tops = [
        sorted((cosine for position in positions if (cosine := cosines[position]) is not None), reverse=True)[
            :_BEST_COSINES
        ]
        for positions in members.values()
    ]
    mean_cosines = [sum(top) / len(top) if top else None for top in tops]
    term_weights = {term.stem: term.weight for term in query.terms}
    tallies = [_tally([candidates[position].reading for position in positions]) for positions in members.values()]
    lengths = [
        sum(candidates[position].reading.length for position in session_positions)
        for session_positions in members.values()
    ]
    words = bm25_scores(term_weights, tallies, lengths)
    scores = [0.0] * len(candidates)
    for positions, score in zip(
        members.values(), _fuse(words, mean_cosines, [1.0] * len(mean_cosines), weights.meaning), strict=True
    ):
        for position in positions:
            scores[position] = score
    return scores


def _tally(readings: Sequence[Reading]) -> Mapping[str, int]:
    """Count each stem in the texts of several items together."""
    counts = Counter[str]()
    for reading in readings:
        counts.update({stem: len(places.get("text", ())) for stem, places in reading.positions.items()})
    return counts


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """Return a function that scales `values` to 0 to 1. If all values are equal, it maps positive ones to 1, others to 0."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high > low:
        return lambda value: (value - low) / (high - low)
    return lambda value: 1.0 if value > 0 else 0.0
