"""The file that `save_memory` writes: a snapshot of the graph, and the messages beside it (README.md, *graph.json*)."""

from __future__ import annotations

import json
import os

from hivemind.boundary import boundary
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import write
from hivemind.reasoning.bulk import uncollected
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.messages import Conversation
from hivemind.reasoning.snapshot_text import to_text

__all__ = ["load", "save"]

_LEFT = "the file was left as it is"


def save(path: str | os.PathLike[str], graph: ReasoningGraph, talk: Conversation, *, durable: bool) -> None:
    """Write both, whole or not at all. Raises UserError if the file can't be written."""
    with uncollected():
        text = to_text(graph, talk.to_dict())
    try:
        write(path, text.encode("utf-8", "surrogatepass"), durable=durable)
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", where=path) from None


def load(path: str | os.PathLike[str]) -> tuple[ReasoningGraph, Conversation]:
    """Both; also of a bare seed snapshot, or one in `{"memory": …}`, which have no messages.

    Raises UserError for a file that can't be read, UnknownVersion for another version; the file stays as it is.
    """
    try:
        with uncollected(), boundary("saved memory", path, mend=_LEFT), open(path, "rb") as file:
            record = json.loads(file.read())
            if isinstance(record, dict) and isinstance(record.get("memory"), dict):
                record = record["memory"]
            if not isinstance(record, dict):
                raise GraphError("is no memory")
            return ReasoningGraph.from_dict(record), Conversation.from_dict(record)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from None
    except UserError as error:
        kind = UnknownVersion if isinstance(error, UnknownVersion) else GraphError
        raise kind(error.what, where=path, mend=error.mend or _LEFT) from None
