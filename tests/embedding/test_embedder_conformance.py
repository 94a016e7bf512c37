"""Every embedder keeps to what the port says."""

from __future__ import annotations

import math

import pytest

from hivemind.embedding import Embedder, HashingEmbedder, MiniLM
from hivemind.embedding.local import is_installed
from hivemind.testing.embedder import EmbedderConformance


class TestHashing(EmbedderConformance):
    @pytest.fixture(params=[384, 1])
    def embedder(self, request: pytest.FixtureRequest) -> Embedder:
        return HashingEmbedder(request.param)


class TestMiniLM(EmbedderConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def embedder(cls) -> Embedder:
        if not is_installed():
            pytest.skip("the extra embed is not installed")
        return MiniLM()


class Careless:
    """One that forgets about empty texts, and about order."""

    name = ""
    dimension = 2

    def embed(self, texts: list[str]) -> list[list[float]]:
        texts.sort()
        return [[math.nan, float(at)] for at, _ in enumerate(texts)] or [[0.0, 0.0]]


@pytest.mark.parametrize("name", [name for name in vars(EmbedderConformance) if name.startswith("test_")])
def test_the_suite_finds_an_embedder_that_does_not(name: str) -> None:
    with pytest.raises(AssertionError):
        getattr(EmbedderConformance(), name)(Careless())
