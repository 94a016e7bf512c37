"""Mail threads that are kept: one document each, a node per message, word for word (spec 5, *Import*)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hivemind.documents import tree
from hivemind.documents.classes import classify_thread
from hivemind.documents.edit import Draft, Edit
from hivemind.documents.importing import value
from hivemind.documents.node import Context, Node
from hivemind.masking import mask

__all__ = ["Letter", "keep_thread"]


@dataclass(frozen=True, slots=True)
class Letter:
    """A message of a thread: its id (Message-ID), who wrote it and when, and what it says."""

    id: str
    sender: str
    date: str
    text: str


def keep_thread(edit: Edit, subject: str, letters: Sequence[Letter], root_id: str | None) -> Node:
    """Write a thread, or what is new of it below `root_id`; gives its root. Messages are readonly, each there once."""
    subject = mask(subject)
    found = classify_thread(subject, [letter.text for letter in letters])
    context = Context("root", "mail", found.name)
    if root_id is None:
        root = edit.add(None, 0.0, Draft(context, subject, 1))
    else:
        root = tree.get(edit.sql, root_id)
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
