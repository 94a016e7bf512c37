"""Trees of text in one database, for many processes at once: the operations of seed 003 (which is normative)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from hivemind.documents import summaries, tree
from hivemind.documents.edit import Draft, Edit, Version, copy, history, move, restore
from hivemind.documents.errors import DocmemError, ReadonlyError
from hivemind.documents.expansion import Interior, without_interior
from hivemind.documents.node import Node, check_context
from hivemind.documents.schema import SCHEMA, index_if_many
from hivemind.documents.summaries import extract
from hivemind.documents.validation import check_flag, check_share, check_whole
from hivemind.fs.database import Database
from hivemind.tokens import count_tokens

__all__ = ["Trees", "short_id"]

_NAMES = "abcdefghijkmnpqrstuvwxyz23456789"  # ids that a person can read aloud: no l, o, 0, 1


def short_id() -> str:
    """Eight characters at random (40 bits): collisions are checked for where it is used."""
    number = int.from_bytes(os.urandom(5), "big")
    return "".join(_NAMES[number >> shift & 31] for shift in range(0, 40, 5))


class Trees:
    """All documents of a hive: each is a tree of nodes whose reading order is the document.

    `path` is the database file, made at first use. `token_counter` counts the tokens of a text. `durable=False` leaves
    out the fsync of each commit. `clock` and `new_id` are for tests.

    Every method that names a node raises NodeNotFoundError for an unknown one; every one that writes is one
    transaction, across processes: it happens whole or not at all.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        token_counter: Callable[[str], int] = count_tokens,
        durable: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = short_id,
    ) -> None:
        if "://" in os.fspath(path):
            raise DocmemError("only SQLite files are supported so far", where=path, mend="give the path of a file")
        self.database = Database(path, SCHEMA, durable=durable)
        self.count = token_counter
        self._clock = clock
        self._new_id = new_id

    def close(self) -> None:
        """Close this process's connection; the next use opens it again."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[Edit]:
        """One transaction around several operations: all of them happen, or none. Keep it short: others wait."""
        with self.database.write() as sql:
            now = self._clock().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            yield Edit(sql, now, self.count, self._new_id)
            if not self.database.is_nested:
                index_if_many(sql)

    # -- finding ----------------------------------------------------------------------------------------------------
    def find(self, node_id: str) -> Node | None:
        """The node, or None if there is none of that id."""
        with self.database.read() as sql:
            return tree.find(sql, node_id)

    def roots(self) -> list[Node]:
        """The root of every document, oldest first."""
        with self.database.read() as sql:
            return tree.roots(sql)

    def root_of(self, node_id: str) -> Node:
        """The root of the document that the node is in."""
        with self.database.read() as sql:
            *_, (root_id, _) = [*tree.ancestors(sql, tree.get(sql, node_id).id)]
            return tree.get(sql, root_id)

    def size(self, node_id: str) -> tuple[int, int]:
        """(how many nodes are below the node, the tokens of all of them and its own)."""
        with self.database.read() as sql:
            count, tokens = tree.size(sql, tree.get(sql, node_id).id)
            return count - 1, tokens

    def serialize(self, node_id: str, *, interior: Interior = "keep") -> list[Node]:
        """The node and all below it in reading order (depth first, by order value).

        `interior`: "keep" all; "skip" leaves out every node that has children; "replace" leaves out only summaries,
        whose children stand in their place.
        """
        with self.database.read() as sql:
            return without_interior(sql, tree.subtree(sql, node_id), interior)

    def structure(self, node_id: str) -> list[dict[str, Any]]:
        """The same in the same order, as dicts with the seed's ten keys in camel case: no text, no hash."""
        with self.database.read() as sql:
            return [node.outline() for node in tree.subtree(sql, node_id)]

    # -- making -----------------------------------------------------------------------------------------------------
    def create_root(
        self,
        id: str | None = None,  # noqa: A002 - the seed's name
        text: str = "",
        context_type: str = "root",
        context_name: str = "purpose",
        context_value: str = "document",
        *,
        readonly: int = 0,
    ) -> Node:
        """A new document. Raises DocmemError for an id that is taken."""
        draft = Draft(check_context(context_type, context_name, context_value), text, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(None, 0.0, draft)

    def append_child(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """A new last child of the node: order = largest order among its siblings + 1."""
        draft = Draft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            tree.get(edit.sql, node_id)
            return edit.add(node_id, edit.last_in(node_id), draft)

    def insert_before(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """A new sibling just before the node. Raises DocmemError for a root."""
        draft = Draft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(edit.parent_of(node_id), edit.before(node_id), draft)

    def insert_after(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """A new sibling just after the node. Raises DocmemError for a root."""
        draft = Draft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(edit.parent_of(node_id), edit.after(node_id), draft)

    def add_note(self, node_id: str, text: str, author: str) -> Node:
        """A note on a node, readonly or not: a sibling right after it, or the first child of a root."""
        draft = Draft(check_context("note", "by", author), text)
        with self.transaction() as edit:
            node = tree.get(edit.sql, node_id)
            if node.parent_id is not None:
                return edit.add(node.parent_id, edit.after(node_id), draft)
            first = tree.first_child(edit.sql, node_id)
            return edit.add(node_id, edit.before(first) if first else edit.last_in(node_id), draft)

    # -- changing ---------------------------------------------------------------------------------------------------
    def update_content(self, node_id: str, content: str, expected_hash: str | None = None) -> Node:
        """Give the node another text. Raises OptimisticLockError if it is not as expected, ReadonlyError."""
        with self.transaction() as edit:
            return edit.change(self._writable(edit, node_id, expected_hash), text=content)

    def update_context(
        self,
        node_id: str,
        context_type: str,
        context_name: str,
        context_value: str,
        expected_hash: str | None = None,
    ) -> Node:
        """Give the node another context. Raises OptimisticLockError if it is not as expected, ReadonlyError."""
        context = check_context(context_type, context_name, context_value)
        with self.transaction() as edit:
            node = self._writable(edit, node_id, expected_hash)
            return edit.change(node, context_type=context.type, context_name=context.name, context_value=context.value)

    @staticmethod
    def _writable(edit: Edit, node_id: str, expected_hash: str | None) -> Node:
        node = edit.expect(node_id, expected_hash)
        if node.readonly:
            raise ReadonlyError(node_id)
        return node

    def set_importance(self, node_id: str, importance: float) -> Node:
        """How much the node matters to `expand_to_length(by="importance")`: 0 to 1, 0.5 unless set."""
        share = check_share(importance, "importance")
        with self.transaction() as edit:
            return edit.change(tree.get(edit.sql, node_id), importance=share)

    def set_sticky(self, node_id: str, sticky: bool = True) -> Node:
        """Whether the node stays with its next sibling when one of them is expanded, moved or summarised."""
        flag = check_flag(sticky, "sticky")
        with self.transaction() as edit:
            return edit.change(tree.get(edit.sql, node_id), sticky=flag)

    def history(self, node_id: str) -> list[Version]:
        """Every version of the node's text and context, oldest first; the last is how it stands."""
        with self.database.read() as sql:
            return history(sql, node_id)

    def restore(self, node_id: str, version: int, expected_hash: str | None = None) -> Node:
        """Give the node the text and context of an earlier version; nothing is forgotten by it."""
        check_whole(version, "version", 1)
        with self.transaction() as edit:
            return restore(edit, node_id, version, expected_hash)

    def delete(self, node_id: str) -> None:
        """Remove the node and all below it."""
        with self.transaction() as edit:
            tree.get(edit.sql, node_id)
            edit.remove(tree.descendant_ids(edit.sql, node_id))

    # -- moving and copying -----------------------------------------------------------------------------------------
    def move_append_child(self, node_id: str, target_parent_id: str, expected_hash: str | None = None) -> Node:
        """Make the node, and what it is stuck to, another's last child. Raises CycleError, OptimisticLockError."""
        with self.transaction() as edit:
            return move(edit, node_id, target_parent_id, "child", expected_hash)

    def move_before(self, node_id: str, target_node_id: str, expected_hash: str | None = None) -> Node:
        """Put the node just before another. Raises CycleError, OptimisticLockError, DocmemError beside a root."""
        with self.transaction() as edit:
            return move(edit, node_id, target_node_id, "before", expected_hash)

    def move_after(self, node_id: str, target_node_id: str, expected_hash: str | None = None) -> Node:
        """Put the node just after another. Raises CycleError, OptimisticLockError, DocmemError beside a root."""
        with self.transaction() as edit:
            return move(edit, node_id, target_node_id, "after", expected_hash)

    def copy_append_child(self, node_id: str, target_parent_id: str) -> Node:
        """Copy the node and all below it to be another's last child; gives the copy's root."""
        with self.transaction() as edit:
            return copy(edit, node_id, target_parent_id, "child")

    def copy_before(self, node_id: str, target_node_id: str) -> Node:
        """Copy the node and all below it to stand just before another; gives the copy's root."""
        with self.transaction() as edit:
            return copy(edit, node_id, target_node_id, "before")

    def copy_after(self, node_id: str, target_node_id: str) -> Node:
        """Copy the node and all below it to stand just after another; gives the copy's root."""
        with self.transaction() as edit:
            return copy(edit, node_id, target_node_id, "after")

    # -- summaries --------------------------------------------------------------------------------------------------
    def add_summary(
        self,
        start_node_id: str,
        end_node_id: str,
        content: str,
        context_type: str = "summary",
        context_name: str = "by",
        context_value: str = "hand",
    ) -> Node:
        """Put a summary between the siblings from start to end (leaves, one is enough) and their parent."""
        context = check_context(context_type, context_name, context_value)
        with self.transaction() as edit:
            return summaries.add_summary(edit, start_node_id, end_node_id, content, context)

    def remove_summary(self, node_id: str, expected_hash: str | None = None) -> list[Node]:
        """Take a summary away and give its children back to its parent; gives the children."""
        with self.transaction() as edit:
            return summaries.remove_summary(edit, node_id, expected_hash)

    def summarize(
        self, node_id: str, writer: summaries.Writer | None = None, max_tokens: int = summaries.LONGEST
    ) -> Node:
        """Write a summary's text anew, or summarise the first leaves in a row among another node's children.

        `writer` is a mind's; without one the summary is an extract. It is asked outside any transaction; if the
        material changes meanwhile it is asked again. The old text stays in the history.
        """
        check_whole(max_tokens, "max_tokens", 1)
        for _ in range(10):
            with self.database.read() as sql:
                found = summaries.material(sql, node_id)
            texts = [member.text for member in found.members]
            text = writer(texts, max_tokens) if writer else extract(texts, max_tokens, self.count)
            with self.transaction() as edit:
                written = summaries.write_summary(edit, found, text)
            if written is not None:
                return written
        raise DocmemError(f"what node {node_id!r} summarises changes faster than it is written", mend="try later")

    def stale_summaries(self) -> list[Node]:
        """The summaries whose children have changed since: for the janitor, who calls `summarize` on each."""
        with self.database.read() as sql:
            return summaries.stale(sql)
