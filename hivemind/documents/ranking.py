"""How well a passage answers a question: BM25 over its fields, by coverage and nearness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hivemind.documents.question import FIELDS, Fields, Match, Question
from hivemind.terms import words_of
from hivemind.words import NUMBERS

__all__ = ["FLOOR", "rank"]

FLOOR = 0.4
"""The share of a question (its words weighted by how rare they are) that a passage must cover to be an answer at all."""

_WEIGHT = {
    "text": 1.0,
    "heading": 1.1,
    "titles": 0.8,
    "labels": 0.5,
    "near": 0.2,
    "example": 0.4,
}  # of a word there, for the score
_CREDIT = {
    "text": 1.0,
    "heading": 0.95,
    "titles": 0.85,
    "labels": 0.7,
    "near": 0.35,
    "example": 0.5,
}  # and for what is covered
_K1, _B, _USUAL_LENGTH = 1.2, 0.5, 350  # saturation; length: how much it counts, and the usual one in characters
_NEAR = 0.35  # what two words of the question gain by standing side by side, as they do in the question
_COUNTED = 1.0  # what a word gains by a number before it, where an amount is asked for
_BEFORE = 3  # words: "at most 32 of the devices"
_LEAD = 0.6  # what the first text below a heading gains by each word of the heading: it says what the heading promises


def rank(
    question: Question, rows: Sequence[Fields], places: Sequence[Mapping[tuple[str, str], list[int]]]
) -> list[Match]:
    """One match for each of the rows; `places` as Words.places gives them."""
    return [_match(question, row, found) for row, found in zip(rows, places, strict=True)]


def _match(question: Question, row: Fields, found: Mapping[tuple[str, str], list[int]]) -> Match:
    score = covered = asked = 0.0
    match = Match(0.0, 0.0)
    for term in question.terms:
        asked += term.weight
        best = max((name for name in FIELDS if (term.stem, name) in found), key=_CREDIT.__getitem__, default=None)
        if best is None:
            match.missing.append(term.word)
            continue
        match.where.setdefault(best, []).append(term.word)
        covered += term.weight * _CREDIT[best]
        often = sum(_often(name, found.get((term.stem, name), ()), len(row.text) + len(row.example)) for name in FIELDS)
        score += term.weight * often * (_K1 + 1) / (_K1 + often)
        if row.leads and (term.stem, "heading") in found:
            score += term.weight * _LEAD
    if question.amount:
        score += _counted(question, row.text, found)
    match.covered = covered / asked if asked else 0.0
    match.score = (score + _together(question, found)) * (0.4 + 0.6 * match.covered)
    return match


def _often(name: str, offsets: Sequence[int], length: int) -> float:
    often = len(offsets) * _WEIGHT[name]
    return often / (1 - _B + _B * length / _USUAL_LENGTH) if name in ("text", "example") else often


def _counted(question: Question, text: str, found: Mapping[tuple[str, str], list[int]]) -> float:
    """What the words of a question that asks how many gain where the text says a number of them."""
    words = words_of(text)  # as the index parts them: offsets are places in it

    def is_counted(offset: int) -> bool:
        return any(word.isdigit() or word in NUMBERS for word in words[max(0, offset - _BEFORE) : offset])

    return sum(
        term.weight * _COUNTED for term in question.terms if any(map(is_counted, found.get((term.stem, "text"), ())))
    )


def _together(question: Question, found: Mapping[tuple[str, str], list[int]]) -> float:
    gain = 0.0
    for one, two in pairwise(question.terms):
        for name in ("text", "heading"):
            first, second = found.get((one.stem, name), ()), set(found.get((two.stem, name), ()))
            if any({offset + 1, offset + 2, offset + 3} & second for offset in first):
                gain += _NEAR * min(one.weight, two.weight) * _WEIGHT[name]
    return gain
