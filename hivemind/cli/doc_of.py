"""A node as commands name it and show it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hivemind.cli.output import progress, warn
from hivemind.cli.text import one_line

if TYPE_CHECKING:
    from hivemind.documents import Docmem, Node
    from hivemind.hive import Hive

__all__ = ["NODE", "brought_in", "node_of", "record_of", "source_line", "title_line"]

NODE = "a node's id, or PATH or PATH:LINE of a file"


def node_of(hive: Hive, reference: str) -> Node:
    """The node that a reference means, in documents as knowledge/ is now. Raises UserError."""
    from hivemind.documents import NodeNotFoundError
    from hivemind.errors import UserError

    brought_in(hive)
    try:
        return hive.knowledge.locate(reference)
    except NodeNotFoundError:
        raise UserError(f"there is no node {reference!r}", mend="`hivemind doc tree` lists the documents") from None


def brought_in(hive: Hive) -> None:
    """Bring the documents in line with knowledge/, showing how far it is where that takes long.

    Where nothing can be written it is said, and the documents are as they were.
    """
    from hivemind.documents import UnwritableError

    try:
        with progress() as tell:
            hive.knowledge.sync(tell=tell)
    except UnwritableError as error:
        warn(f"{error.where}: {error.what}: files look changed since, and what was read in last is shown")


def record_of(documents: Docmem, node: Node, *, brief: bool = False) -> dict[str, Any]:
    """A node for programs; `brief` leaves out what has to be looked up beside it."""
    source = documents.source(node.id)
    record = asdict(node) | {"source": None if source is None else asdict(source) | {"citation": source.citation}}
    if not brief:
        record |= {
            "document": documents.root_of(node.id).id,
            "tags": documents.tags_of(node.id),
            "versions": len(documents.history(node.id)),
            "below": documents.size(node.id)[0],
        }
    return record


def source_line(source: dict[str, Any]) -> str:
    """Where a node came from, in words."""
    return f"{source['citation']} ({source['document_class']}: {source['why']})"


def title_line(node: Node) -> str:
    """What a node is called, on one line."""
    from hivemind.documents import title_of

    return one_line(title_of(node))
