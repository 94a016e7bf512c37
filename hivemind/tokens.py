"""Count tokens with tiktoken and the vocabularies that ship with the package. Nothing is downloaded."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind.errors import HivemindError
from hivemind.logger import logger

if TYPE_CHECKING:
    import tiktoken

DEFAULT_ENCODING = "cl100k_base"
MIN_CONTEXT = 1000
"""The smallest allowed context budget: room for the capsule and a task of a few lines, without a tool."""
# Longer texts are counted in parts, since byte-pair merging is quadratic in the length of an unbroken run.
_MAX_PIECE = 65_536
_log = logger(__name__)

_SEPARATOR = b"\xff\xfe\xfd\xfc"  # between two words of a vocabulary, and in none
# The split patterns and special tokens are those published with tiktoken.
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
    r"|\s*[\r\n]|\s+(?!\S)|\s"
)
_O200K = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_SHIPPED = {
    "cl100k_base": (_CL100K, "aa0b16998f8e1c3ecc7583aa1a9f387f566b54c63b7fc36272aabea39fc74282"),
    "o200k_base": (_O200K, "6a05fb1ef8ce46a3ce7f8968433bcae7a1796cfa51ba416f0c40c9651ac2f946"),
}


def estimate_tokens(text: str) -> int:
    """Estimate tokens as characters / 4, rounded up, for encodings without a vocabulary."""
    return (len(text) + 3) // 4


@lru_cache(maxsize=2)
def _encoding(name: str) -> tiktoken.Encoding | None:
    if name not in _SHIPPED:
        _log.warning("tokens: encoding %r does not ship with hivemind; counting characters / 4 instead", name)
        return None
    import gzip  # late: importing hivemind loads no vocabulary

    import tiktoken

    pattern, digest = _SHIPPED[name]
    compressed = (Path(__file__).parent / "vocabulary" / f"{name}.gz").read_bytes()
    vocabulary = gzip.decompress(compressed)
    if hashlib.sha256(vocabulary).hexdigest() != digest:
        raise HivemindError(f"the vocabulary {name} of this installation is damaged; reinstall hivemind")
    ranks = {word: rank for rank, word in enumerate(vocabulary.split(_SEPARATOR))}
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # tiktoken has its own copy; this one would cost every process 15 MB
    return encoding


class TokenCounter:
    """A function object that counts the tokens of a text in one encoding. Creating it is cheap: the vocabulary is loaded at the
    first call."""

    __slots__ = ("encoding",)

    def __init__(self, encoding: str = DEFAULT_ENCODING) -> None:
        self.encoding = encoding

    @property
    def is_exact(self) -> bool:
        """False if the encoding does not ship with the package, and the counts are estimates."""
        return self.encoding in _SHIPPED

    def warm(self) -> TokenCounter:
        """Load the vocabulary now, in a process that will fork. Return the counter itself."""
        _encoding(self.encoding)
        return self

    def __call__(self, text: str) -> int:
        """Return the number of tokens in `text`. Special tokens in the text count as plain text."""
        encoding = _encoding(self.encoding)
        if encoding is None:
            return estimate_tokens(text)
        if len(text) <= _MAX_PIECE:
            return len(encoding.encode_ordinary(text))
        parts = (text[at : at + _MAX_PIECE] for at in range(0, len(text), _MAX_PIECE))
        return sum(len(encoding.encode_ordinary(part)) for part in parts)

    def __repr__(self) -> str:
        return f"TokenCounter({self.encoding!r})"


count_tokens = TokenCounter()
"""The token counter for the default encoding, cl100k_base: `count_tokens("hello world") == 2`."""
