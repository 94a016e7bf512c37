"""Outlines and mail threads as nodes, each with its place in the file (seed 003, *Import*; spec 5)."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hivemind.documents import tree
from hivemind.documents.classes import classify_thread
from hivemind.documents.edit import Draft, Edit
from hivemind.documents.formats import Outline
from hivemind.documents.meaning import drop_meanings
from hivemind.documents.node import Context, Node
from hivemind.documents.passages import group
from hivemind.fs import reached
from hivemind.masking import mask

__all__ = ["Letter", "import_outline", "keep_thread", "section_contexts", "value", "write_places"]

_LONGEST_VALUE = 256


def value(text: str, default: str) -> str:
    """`text` as a context value: its last 256 characters, or `default` if it has none."""
    text = " ".join(text.split()) or default
    return text if len(text) <= _LONGEST_VALUE else "…" + text[1 - _LONGEST_VALUE :]


def section_contexts(outline: Outline) -> list[Context]:
    """The context of each piece: its kind, and the title of the section that it stands in."""
    titles: list[tuple[int, str]] = [(0, outline.title)]
    found = []
    for piece in outline.pieces:
        while titles[-1][0] >= piece.depth:
            titles.pop()
        if piece.title:
            titles.append((piece.depth, piece.title))
        found.append(Context(piece.kind, "section", value(titles[-1][1], "document")))
    return found


def import_outline(edit: Edit, outline: Outline, root_context: Context) -> tuple[str, list[str]]:
    """Write a new document with the outline's nodes; gives the root's id and those of the pieces."""
    root = edit.add(None, 0.0, Draft(root_context, outline.title, 1))
    ids = edit.free_ids(len(outline.pieces))
    edit.insert_all(_nodes(edit, root.id, ids, outline))
    return root.id, ids


def _nodes(edit: Edit, root_id: str, ids: Sequence[str], outline: Outline) -> Iterator[Node]:
    above: list[tuple[int, str]] = [(0, root_id)]
    counts: dict[str, int] = {}
    each = zip(ids, outline.pieces, outline.tokens, section_contexts(outline), strict=True)
    for node_id, piece, tokens, context in each:
        while above[-1][0] >= piece.depth:
            above.pop()
        parent_id = above[-1][1]
        counts[parent_id] = order = counts.get(parent_id, 0) + 1
        text = outline.text[piece.start : piece.end]
        yield edit.made(node_id, parent_id, float(order), Draft(context, text, 1, tokens=tokens))
        above.append((piece.depth, node_id))
        reached("documents.import.one")


def write_places(
    sql: sqlite3.Connection, file_id: int, root_id: str, outline: Outline, node_ids: Sequence[str]
) -> None:
    """Remember where in the file each node stands, and what stands between them."""
    before = _compositions(sql, file_id)
    sql.execute("DELETE FROM places WHERE file_id = ?", (file_id,))
    gaps = outline.gaps()
    pages = outline.lines() if outline.format == "pdf" else []  # a page is cited by itself
    passages = group(
        outline.text, outline.pieces, outline.tokens, {at for at in range(1, len(pages)) if pages[at] != pages[at - 1]}
    )
    rows: list[tuple[object, ...]] = [(root_id, file_id, 0, 0, "root", 1, 1, next(gaps), 0)]
    each = zip(node_ids, outline.pieces, passages, outline.lines(), gaps, strict=True)
    for at, (node_id, piece, passage, lines, gap) in enumerate(each, 1):
        leads = piece.kind != "heading" and (at == 1 or passage != passages[at - 2])
        rows.append((node_id, file_id, at, passage, piece.kind, *lines, gap, int(leads)))
    sql.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    after = _compositions(sql, file_id)
    drop_meanings(sql, [lead for lead, members in before.items() if after.get(lead) != members])


def _compositions(sql: sqlite3.Connection, file_id: int) -> dict[str, list[str]]:
    """The nodes of each passage of a file, by the first of them."""
    found: dict[int, list[str]] = {}
    for passage, node_id in sql.execute(
        "SELECT passage, node_id FROM places WHERE file_id = ? AND number > 0 ORDER BY number", (file_id,)
    ):
        found.setdefault(passage, []).append(node_id)
    return {members[0]: members for members in found.values()}


@dataclass(frozen=True, slots=True)
class Letter:
    """A message of a thread: its id (Message-ID), who wrote it and when, and what it says."""

    id: str
    sender: str
    date: str
    text: str


def keep_thread(edit: Edit, subject: str, letters: Sequence[Letter], thread: str) -> Node:
    """Write what is new of a thread, known by the Message-ID that it began with; returns its root. Letters are readonly, each
    there once."""
    subject, root_id = mask(subject), f"thread-{hashlib.blake2b(thread.encode(), digest_size=6).hexdigest()}"
    found = classify_thread(subject, [letter.text for letter in letters])
    context = Context("root", "mail", found.name)
    root = tree.find(edit.sql, root_id) or edit.add(None, 0.0, Draft(context, subject, 1, id=root_id))
    if root.context != context:
        root = edit.change(root, context_name=context.name, context_value=context.value)
    edit.label(root.id, [*found.tags, found.name])
    known = {(child.context_value, child.text) for child in tree.children(edit.sql, root.id)}
    for letter in letters:
        key, text = mask(value(f"{letter.sender} {letter.date} {letter.id}", "mail")), mask(letter.text)
        if (key, text) not in known:
            draft = Draft(Context("message", "from", key), text, 1)
            edit.add(root.id, edit.last_in(root.id), draft)
    return tree.get(edit.sql, root.id)
