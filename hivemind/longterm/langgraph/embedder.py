"""An embeddings object of LangChain as an embedder."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.embeddings import Embeddings

__all__ = ["LangChainEmbedder"]


class LangChainEmbedder:
    """Asks `embed_documents`; equal names mean comparable vectors, so the name says the class, its model and dimension."""

    def __init__(self, embeddings: Embeddings, dimension: int) -> None:
        self.embeddings = embeddings
        self.dimension = dimension
        model = getattr(embeddings, "model", None) or getattr(embeddings, "model_name", None) or ""
        self.name = f"langchain-{type(embeddings).__name__}-{model}-{dimension}"

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        return self.embeddings.embed_documents(texts)
