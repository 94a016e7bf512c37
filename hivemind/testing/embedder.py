"""A conformance suite for embedders (`hivemind.embedding.Embedder`).

class TestMyEmbedder(EmbedderConformance):
    @pytest.fixture
    def embedder(self):
        return MyEmbedder()
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hivemind.embedding import Embedder

_ODD_TEXTS = ["", " ", "\n", "heron", "été 🐝 鷺", "x" * 20_000, "\0", "\ud800"]


def _rows(embedder: Embedder, texts: list[str]) -> list[list[float]]:
    vectors: Sequence[Sequence[float]] = embedder.embed(texts)
    return [[float(number) for number in row] for row in vectors]


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True)) / (math.hypot(*first) * math.hypot(*second))


class EmbedderConformance:
    """Tests of what every embedder must do. A subclass provides the fixture `embedder`."""

    def test_it_says_what_it_is(self, embedder: Embedder) -> None:
        """The embedder has a name and a dimension. Vectors of embedders with the same name must be comparable."""
        assert isinstance(embedder.name, str)
        assert embedder.name.strip()
        assert isinstance(embedder.dimension, int)
        assert embedder.dimension >= 1

    def test_any_text_has_a_vector(self, embedder: Embedder) -> None:
        """The embedder returns a row of `dimension` finite numbers for any text, even an empty or invalid one."""
        rows = _rows(embedder, _ODD_TEXTS)
        assert len(rows) == len(_ODD_TEXTS)
        for row in rows:
            assert len(row) == embedder.dimension
            assert all(math.isfinite(number) for number in row)

    def test_nothing_gives_nothing(self, embedder: Embedder) -> None:
        """The embedder returns no rows for an empty list."""
        assert _rows(embedder, []) == []

    def test_a_text_means_the_same_wherever_it_stands(self, embedder: Embedder) -> None:
        """The embedder returns rows in the order of the texts, and a row depends only on its text."""
        texts = ["A heron wades in the river.", "The invoice is due in May.", "short"]
        expected_rows = [_rows(embedder, [text])[0] for text in texts]
        for order in ([0, 1, 2], [2, 0, 1], [1, 1, 0]):
            for row, index in zip(_rows(embedder, [texts[at] for at in order]), order, strict=True):
                assert _cosine(row, expected_rows[index]) > 0.999

    def test_what_it_is_given_is_left_alone(self, embedder: Embedder) -> None:
        """The embedder does not change the list of texts."""
        texts = ["kestrel", "heron"]
        embedder.embed(texts)
        assert texts == ["kestrel", "heron"]
