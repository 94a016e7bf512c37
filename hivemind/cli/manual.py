"""Ask hivemind's manual."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from hivemind.cli.command import CommandOutput, command
from hivemind.cli.open_hive import without_hive
from hivemind.cli.output import separated

if TYPE_CHECKING:
    from hivemind.documents import Passage

_NO_ANSWER = "No answer stands out. The nearest passages of the manual may help:"
_NO_PASSAGE = "No passage of the manual is about this. Use other words, or look into "


@command("help", without_hive, for_agents=True)
def ask(_: str | None, question: list[str] | None = None) -> CommandOutput:
    """Answer a question about hivemind from its manual, also outside a hive.

    The manual is searched by words and, with the extra `embed`, by meaning.

    arguments:
      QUESTION  the question; without one, the chapters of the manual are listed

    examples:
      hivemind help "How do I stop the swarm?"
    """
    from hivemind.documents.manual import ask_manual, manual_folder
    from hivemind.embedding import EmbedderUnavailable, open_embedder

    if not question:
        chapters = sorted(manual_folder().glob("*.md"))
        return CommandOutput([{"path": str(path)} for path in chapters], map(str, chapters))
    embedder = None
    with suppress(EmbedderUnavailable):
        embedder = open_embedder(os.environ.get("HIVEMIND_EMBEDDER") or "auto", use_service=True)
    passages = ask_manual(" ".join(question), embedder=embedder)
    return CommandOutput([*map(asdict, passages)], _lines(passages, str(manual_folder())))


def _lines(passages: Sequence[Passage], folder: str) -> Iterator[str]:
    if not passages:
        yield _NO_PASSAGE + folder
    elif passages[0].confidence.level == "weak":
        yield f"{_NO_ANSWER}\n"
    yield from separated(
        (
            [
                f"{' > '.join(passage.titles)}\n",
                passage.text,
                f"\n{folder}/{os.path.basename(passage.path)}:{passage.start_line}",
            ]
            for passage in passages
        ),
        "-",
    )
