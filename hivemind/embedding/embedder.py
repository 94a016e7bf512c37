"""What turns texts into vectors: the port, and its one error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hivemind.errors import UserError

__all__ = ["Embedder", "EmbedderUnavailable"]


class Embedder(Protocol):
    """Turns texts into vectors. Equal names mean comparable vectors.

    `embed` gives one row of `dimension` finite numbers for each text (a numpy float32 matrix will do), in their order,
    for any text at all: an empty one, one of a million characters. It raises EmbedderUnavailable where it cannot, and
    then nothing is wrong with the texts: ask again later.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]: ...


class EmbedderUnavailable(UserError):
    """No vectors now: the model is not installed, its process is gone or slow, or what it gave is no vector."""
