"""Count tokens with tiktoken and the vocabularies that ship with the package. Nothing is downloaded."""

from __future__ import annotations

import hashlib
from functools import lru_cache
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
    "cl100k_base": (_CL100K, "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
    "o200k_base": (_O200K, "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
}


def estimate_tokens(text: str) -> int:
    """Estimate tokens as characters / 4, rounded up, for encodings without a vocabulary."""
    return (len(text) + 3) // 4


@lru_cache(maxsize=2)
def _encoding(name: str) -> tiktoken.Encoding | None:
    if name not in _SHIPPED:
        _log.warning("tokens: encoding %r does not ship with hivemind; counting characters / 4 instead", name)
        return None
    import binascii  # late: importing hivemind loads no vocabulary
    import gzip
    from importlib import resources

    import tiktoken

    pattern, digest = _SHIPPED[name]
    compressed = (resources.files("hivemind") / "vocabulary" / f"{name}.tiktoken.gz").read_bytes()
    vocabulary = gzip.decompress(compressed)
    if hashlib.sha256(vocabulary).hexdigest() != digest:
        raise HivemindError(f"the vocabulary {name} of this installation is damaged; reinstall hivemind")
    words = map(binascii.a2b_base64, vocabulary.split()[::2])  # each is followed by its rank, which equals its position
    ranks = {word: rank for rank, word in enumerate(words)}
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # tiktoken has its own copy; this one would cost every process 15 MB
    return encoding


class TokenCounter:
    """Counts the tokens of a text in one encoding, when it is called. Creating it is cheap: the vocabulary is loaded at
    first use."""

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
