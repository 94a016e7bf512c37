"""The program's own manual, for `hivemind help` and the tool `ask_manual`. A hive's knowledge does not include it.

`manual_vectors.txt` has a model's name and then, for each passage, a digest of its text and its vector.
`python -m tests.manual` brings it in line with the manual.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from hivemind.documents.docmem import Docmem
from hivemind.documents.knowledge import Knowledge, KnowledgeSync
from hivemind.documents.passages import BACKLOG, Passage
from hivemind.embedding import Embedder, pack
from hivemind.layout import Layout, template_folder

VECTORS = Path(__file__).with_name("manual_vectors.txt")
_CHARS_PER_TOKEN = 4  # counting tokens exactly would take half of the time of an answer


def ask_manual(question: str, limit: int = 3, embedder: Embedder | None = None) -> list[Passage]:
    """Return the passages of the manual that answer a question best, best first; [] if no passage is relevant.

    Without an embedder, the manual is searched by words only.
    """
    with ThreadPoolExecutor(1) as thread:
        if embedder is not None:
            thread.submit(embedder.embed, [question])  # it starts while the manual is read
        with read_manual(embedder) as manual:
            if embedder is not None:
                _load_vectors(manual.docmem, embedder)
            thread.shutdown()
            return manual.search(question, limit, scope=[manual_folder()])


def manual_folder() -> Path:
    return template_folder() / "knowledge" / "manual"


@contextmanager
def read_manual(embedder: Embedder | None = None) -> Iterator[Knowledge]:
    """Read the manual into a store in memory, and yield it. It has no vectors yet; `embedder` will embed texts and queries."""
    layout = Layout.at(template_folder(), read_only=True)
    with Docmem(":memory:", token_counter=lambda text: len(text) // _CHARS_PER_TOKEN, embedder=embedder) as docmem:
        KnowledgeSync(docmem, layout, ()).run([manual_folder()])
        yield Knowledge(docmem, layout)


def texts_to_embed(docmem: Docmem, embedder: Embedder) -> dict[int, tuple[str, str]]:
    """Return (digest, text) of each text that lacks a vector. The digests will be the vectors' keys."""
    with docmem.database.read() as sql:
        texts = BACKLOG.texts_of(sql, BACKLOG.next_keys(sql, embedder, None, sys.maxsize, None))
    return {key: (hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), text) for key, text in texts.items()}


def _load_vectors(docmem: Docmem, embedder: Embedder) -> None:
    """Write the shipped vectors into the store, if the embedder's model computed them. Texts without a shipped vector
    are embedded by a search."""
    model, *lines = VECTORS.read_bytes().splitlines()
    if model != embedder.name.encode():
        return
    vectors = dict(line.split(b" ", 1) for line in lines)
    rows = [
        (key, 0, pack(array("b", base64.b85decode(vectors[digest.encode()])), embedder.dimension))
        for key, (digest, _) in texts_to_embed(docmem, embedder).items()
        if digest.encode() in vectors
    ]
    with docmem.database.write() as sql:
        BACKLOG.write_vectors(sql, embedder.name, rows)
