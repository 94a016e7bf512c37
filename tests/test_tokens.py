from __future__ import annotations

import base64
import hashlib

import pytest

from hivemind.tokens import TokenCounter, _encoding


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
        ("o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
    ],
)
def test_a_vocabulary_ranks_its_words_as_the_published_file_does(name: str, digest: str) -> None:
    encoding = _encoding(name)
    assert encoding is not None
    words = map(encoding.decode_single_token_bytes, range(encoding.n_vocab))
    published = b"".join(b"%s %d\n" % (base64.b64encode(word), rank) for rank, word in enumerate(words))
    assert hashlib.sha256(published).hexdigest() == digest
    assert TokenCounter(name)("hello world") == 2
