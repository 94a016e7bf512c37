"""Every embedder keeps to what the port says."""

from __future__ import annotations

import math

import pytest

from hivemind.embedding import Embedder, HashingEmbedder, MiniLM
from hivemind.embedding.local import is_installed
from hivemind.testing.case import Case
from hivemind.testing.embedder import CASES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_hashing_embedder_keeps_to_the_port(case: Case[Embedder]) -> None:
    case.check(HashingEmbedder())
    case.check(HashingEmbedder(1))


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    if not is_installed():
        pytest.skip("the extra embed is not installed")
    return MiniLM()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_minilm_keeps_to_the_port(case: Case[Embedder], minilm: Embedder) -> None:
    case.check(minilm)


class Careless:
    """One that forgets about empty texts, and about order."""

    name = ""
    dimension = 2

    def embed(self, texts: list[str]) -> list[list[float]]:
        texts.sort()
        return [[math.nan, float(at)] for at, _ in enumerate(texts)] or [[0.0, 0.0]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_cases_find_an_embedder_that_does_not(case: Case[Embedder]) -> None:
    with pytest.raises(AssertionError):
        case.check(Careless())
