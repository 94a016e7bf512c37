"""Bring the shipped vectors of the manual in line with it: `python -m tests.manual`, after each change of knowledge/manual/.

The README of a new hive's knowledge/ is listed as shipped, too.
"""

from __future__ import annotations

import base64
import hashlib
from array import array

from hivemind.documents.knowledge import SHIPPED
from hivemind.documents.manual import VECTORS, read_manual, texts_to_embed
from hivemind.embedding import MiniLM
from hivemind.layout import template_folder


def main() -> None:
    embedder = MiniLM()
    with read_manual() as manual:
        texts = dict(texts_to_embed(manual.docmem, embedder).values())
    cache = dict(line.split(" ", 1) for line in VECTORS.read_text().splitlines()[1:]) if VECTORS.exists() else {}
    lines = [f"{digest} {cache.get(digest) or _vector(embedder, text)}" for digest, text in sorted(texts.items())]
    VECTORS.write_text("\n".join([embedder.name, *lines, ""]))
    readme = hashlib.sha256((template_folder() / "knowledge/README.md").read_bytes()).hexdigest()[:16]
    SHIPPED.write_text("\n".join(sorted({*SHIPPED.read_text().split(), readme})) + "\n")


def _vector(embedder: MiniLM, text: str) -> str:
    """Return the text's vector in bytes, the largest number as 127, in base 85."""
    numbers = embedder.embed([text])[0]
    scale = 127 / max(map(abs, numbers))
    return base64.b85encode(array("b", [round(number * scale) for number in numbers]).tobytes()).decode()


if __name__ == "__main__":
    main()
