"""The document store: create, change, import, search and expand documents, which are trees of text nodes."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hivemind.boundary import boundary
from hivemind.documents import summaries, toml, tree
from hivemind.documents.edit import Edit, NodeDraft, Version, copy, history, move, restore
from hivemind.documents.expansion import By, Interior, Resolution, expand, without_interior
from hivemind.documents.files import Stamp, store_document
from hivemind.documents.formats import decode_text, read_bytes, read_outline
from hivemind.documents.importing import Letter, keep_thread
from hivemind.documents.node import (
    DocmemError,
    Node,
    check_context,
    check_flag,
    check_fraction,
    check_integer,
    check_path,
    check_text,
)
from hivemind.documents.passages import BACKLOG, Passage
from hivemind.documents.progress import count_embedded
from hivemind.documents.schema import SCHEMA, drop_lost_vectors, index, index_if_many, problems
from hivemind.documents.search import WEIGHTS, DocumentHit, Units, find_hits, find_notes, find_passages, score_units
from hivemind.documents.summaries import extract
from hivemind.documents.toml import write_entries
from hivemind.documents.tree import NodeListing, NodeSource, show, source_of
from hivemind.embedding import Embedder, EmbedderUnavailable
from hivemind.fs.database import Database, DatabaseOwner
from hivemind.search import Confidence, Engine, Query, StoreEmbedder
from hivemind.tokens import count_tokens
from hivemind.words import short_repr

_EMBEDDED_FIRST = 40  # the best passages by words that a search embeds if they lack a vector
_RELEVANT_PASSAGES = 200  # passages that an expansion by relevance ranks
_NO_LIMIT = 2**40
_log = logging.getLogger(__name__)


class Docmem(DatabaseOwner):
    """All documents of a hive. A document is a tree of nodes; read in order, their texts are the document.

    Many processes may use the same database. `path` is the database file, created at first use. `token_counter` counts
    the tokens of a text. `embedder` (optional) embeds passages and queries. `durable=False` omits the fsync of each
    commit. `clock` is for tests.

    Methods with a node id raise NodeNotFoundError if the node does not exist. Each writing method is one atomic
    transaction across processes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        token_counter: Callable[[str], int] = count_tokens,
        embedder: Embedder | None = None,
        durable: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.database = Database(path, SCHEMA, durable=durable)
        self.count = token_counter
        self.meanings = StoreEmbedder(embedder)
        self._clock = clock
        self._engine = Engine(WEIGHTS, candidates=80, candidates_read=64)

    @contextmanager
    def transaction(self) -> Iterator[Edit]:
        """Run several operations in one atomic transaction. Keep it short: other writers wait."""
        with self.database.write() as sql:
            now = self._clock().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            yield Edit(sql, now, self.count)
            if not self.database.is_nested:
                index_if_many(sql)

    # -- finding ----------------------------------------------------------------------------------------------------
    def find(self, node_id: str) -> Node | None:
        """Return the node, or None for an unknown id."""
        with self.database.read() as sql:
            return tree.find(sql, node_id)

    def roots(self) -> list[Node]:
        """Return the root of every document, oldest first."""
        with self.database.read() as sql:
            return tree.roots(sql)

    def root_of(self, node_id: str) -> Node:
        """Return the root of the node's document."""
        with self.database.read() as sql:
            *_, (root_id, _) = [*tree.ancestors(sql, tree.get(sql, node_id).id)]
            return tree.get(sql, root_id)

    def size(self, node_id: str) -> tuple[int, int]:
        """Return the number of the node's descendants, and the tokens of them and the node."""
        with self.database.read() as sql:
            count, tokens = tree.size(sql, tree.get(sql, node_id).id)
            return count - 1, tokens

    def serialize(self, node_id: str, *, interior: Interior = "keep") -> list[Node]:
        """Return the node and its descendants in reading order (depth first, by order value).

        `interior`: "keep" returns all nodes, "skip" only leaves, "replace" leaves out summaries but not their children.
        """
        with self.database.read() as sql:
            return without_interior(sql, tree.subtree(sql, node_id), interior)

    def structure(self, node_id: str) -> list[dict[str, Any]]:
        """Return the nodes of `serialize` as dicts with ten camel-case keys, without text and hash."""
        with self.database.read() as sql:
            return [node.outline() for node in tree.subtree(sql, node_id)]

    # -- creating ---------------------------------------------------------------------------------------------------
    def create_root(
        self,
        id: str | None = None,  # noqa: A002 - the name in the format document
        text: str = "",
        context_type: str = "root",
        context_name: str = "purpose",
        context_value: str = "document",
        *,
        readonly: int = 0,
    ) -> Node:
        """Create a document. Raises DocmemError if the id is taken."""
        draft = NodeDraft(check_context(context_type, context_name, context_value), text, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(None, 0.0, draft)

    def append_child(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """Create a last child of the node; its order is its siblings' largest order + 1."""
        draft = NodeDraft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(*edit.free_slot("child", node_id), draft)

    def insert_before(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """Create a sibling directly before the node. Raises DocmemError for a root."""
        draft = NodeDraft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(*edit.free_slot("before", node_id), draft)

    def insert_after(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """Create a sibling directly after the node. Raises DocmemError for a root."""
        draft = NodeDraft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(*edit.free_slot("after", node_id), draft)

    def add_note(self, node_id: str, text: str, author: str) -> Node:
        """Add a note to a node, which may be readonly: a sibling directly after it, or the first child of a root."""
        draft = NodeDraft(check_context("note", "by", author), text)
        with self.transaction() as edit:
            if tree.get(edit.sql, node_id).parent_id is not None:
                return edit.add(*edit.free_slot("after", node_id), draft)
            first = tree.first_child(edit.sql, node_id)
            return edit.add(*(edit.free_slot("before", first) if first else edit.free_slot("child", node_id)), draft)

    # -- changing ---------------------------------------------------------------------------------------------------
    def update_content(self, node_id: str, content: str, expected_hash: str | None = None) -> Node:
        """Replace the node's text. Raises OptimisticLockError if its hash is not `expected_hash`; ReadonlyError."""
        with self.transaction() as edit:
            return edit.change(edit.writable(node_id, expected_hash), text=content)

    def update_context(
        self, node_id: str, context_type: str, context_name: str, context_value: str, expected_hash: str | None = None
    ) -> Node:
        """Replace the node's context. Raises OptimisticLockError if its hash is not `expected_hash`; ReadonlyError."""
        context = check_context(context_type, context_name, context_value)
        with self.transaction() as edit:
            node = edit.writable(node_id, expected_hash)
            return edit.change(node, context_type=context.type, context_name=context.name, context_value=context.value)

    def set_importance(self, node_id: str, importance: float) -> Node:
        """Set the node's importance, 0 to 1 (default 0.5), for `expand_to_length(by="importance")`."""
        share = check_fraction(importance, "importance")
        with self.transaction() as edit:
            return edit.change(tree.get(edit.sql, node_id), importance=share)

    def set_sticky(self, node_id: str, sticky: bool = True) -> Node:
        """Make the node stay with its next sibling when one of them is expanded, moved or summarised."""
        flag = check_flag(sticky, "sticky")
        with self.transaction() as edit:
            return edit.change(tree.get(edit.sql, node_id), sticky=flag)

    def history(self, node_id: str) -> list[Version]:
        """Return every version of the node's text and context, oldest first; the last one is the current state."""
        with self.database.read() as sql:
            return history(sql, node_id)

    def restore(self, node_id: str, version: int, expected_hash: str | None = None) -> Node:
        """Restore the node's text and context from an earlier version. All versions are kept."""
        check_integer(version, "version", 1)
        with self.transaction() as edit:
            return restore(edit, node_id, version, expected_hash)

    def delete(self, node_id: str) -> None:
        """Delete the node and its descendants."""
        with self.transaction() as edit:
            tree.get(edit.sql, node_id)
            edit.remove(tree.descendant_ids(edit.sql, node_id))

    # -- moving and copying -----------------------------------------------------------------------------------------
    def move_append_child(self, node_id: str, target_parent_id: str, expected_hash: str | None = None) -> Node:
        """Move the node, with siblings that stick to it, to the end of the target's children.

        Raises CycleError, OptimisticLockError.
        """
        with self.transaction() as edit:
            return move(edit, node_id, target_parent_id, "child", expected_hash)

    def move_before(self, node_id: str, target_node_id: str, expected_hash: str | None = None) -> Node:
        """Move the node directly before the target.

        Raises CycleError, OptimisticLockError, DocmemError if the target is a root.
        """
        with self.transaction() as edit:
            return move(edit, node_id, target_node_id, "before", expected_hash)

    def move_after(self, node_id: str, target_node_id: str, expected_hash: str | None = None) -> Node:
        """Move the node directly after the target.

        Raises CycleError, OptimisticLockError, DocmemError if the target is a root.
        """
        with self.transaction() as edit:
            return move(edit, node_id, target_node_id, "after", expected_hash)

    def copy_append_child(self, node_id: str, target_parent_id: str) -> Node:
        """Copy the node and its descendants to the end of the target's children; return the copy's root."""
        with self.transaction() as edit:
            return copy(edit, node_id, target_parent_id, "child")

    def copy_before(self, node_id: str, target_node_id: str) -> Node:
        """Copy the node and its descendants directly before the target; return the copy's root."""
        with self.transaction() as edit:
            return copy(edit, node_id, target_node_id, "before")

    def copy_after(self, node_id: str, target_node_id: str) -> Node:
        """Copy the node and its descendants directly after the target; return the copy's root."""
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
        """Insert a summary between the sibling leaves from start to end (both included) and their parent."""
        context = check_context(context_type, context_name, context_value)
        with self.transaction() as edit:
            return summaries.add_summary(edit, start_node_id, end_node_id, content, context)

    def remove_summary(self, node_id: str, expected_hash: str | None = None) -> list[Node]:
        """Delete a summary, move its children up to its parent, and return them."""
        with self.transaction() as edit:
            return summaries.remove_summary(edit, node_id, expected_hash)

    def summarize(
        self, node_id: str, writer: summaries.Writer | None = None, max_tokens: int = summaries.MAX_SUMMARY_TOKENS
    ) -> Node:
        """Rewrite a summary, or summarise the first consecutive leaves among another node's children.

        `writer` writes the text; the default is an extract. It runs outside any transaction, and again if the source
        nodes change meanwhile. The history keeps the old text.
        """
        check_integer(max_tokens, "max_tokens", 1)
        for _ in range(10):
            with self.database.read() as sql:
                material = summaries.read_material(sql, node_id)
            texts = [member.text for member in material.members]
            text = writer(texts, max_tokens) if writer else extract(texts, max_tokens, self.count)
            with self.transaction() as edit:
                summary = summaries.write_summary(edit, material, text)
            if summary is not None:
                return summary
        raise DocmemError(f"the nodes below {node_id!r} change faster than they are summarised", remedy="try later")

    def stale_summaries(self) -> list[Node]:
        """Return the summaries whose children have changed since. The janitor calls `summarize` on each."""
        with self.database.read() as sql:
            return summaries.stale(sql)

    # -- expanding and asking ---------------------------------------------------------------------------------------
    def expand_to_length(
        self,
        node_id: str,
        max_tokens: int,
        *,
        by: By = "order",
        query: str | None = None,
        interior: Interior = "keep",
        resolution: Resolution = "full",
    ) -> list[Node]:
        """Return the node and as many of its descendants as fit into `max_tokens`, in reading order.

        Nodes are selected breadth first; a node that does not fit is skipped, smaller later ones may still fit. The
        token counts exceed `max_tokens` only if the node's own count does. `by="importance"` and `by="relevance"` (to
        `query`) select more important or relevant nodes first. `resolution="mixed"` uses a summary in place of children
        that do not all fit. `interior` works as in `serialize`, but the node itself is always included.
        """
        check_integer(max_tokens, "max_tokens")
        relevance_query = None if query is None else self.asked(query, below=node_id)
        with self.database.read() as sql:
            priority = self._priority(sql, by, relevance_query, node_id)
            return expand(sql, node_id, max_tokens, interior=interior, resolution=resolution, priority=priority)

    def shown(self, node_id: str, max_tokens: int, *, by: By = "order", query: str | None = None) -> NodeListing:
        """Return the text of the node and its descendants within `max_tokens`, using summaries to fit.

        The text exceeds `max_tokens` only if the node's own text does. `form` tells how complete the text is.
        """
        check_integer(max_tokens, "max_tokens")
        relevance_query = None if query is None else self.asked(query, below=node_id)
        with self.database.read() as sql:
            priority, token_budget = self._priority(sql, by, relevance_query, node_id), max_tokens
            while True:
                nodes = expand(sql, node_id, token_budget, resolution="mixed", priority=priority)
                listing = show(sql, nodes)
                excess = self.count(listing.text) - max_tokens
                if excess <= 0 or len(nodes) == 1:
                    return listing
                token_budget = min(token_budget - excess, sum(node.token_count for node in nodes) - 1)

    def _priority(
        self, sql: sqlite3.Connection, by: By, relevance_query: Query | None, node_id: str
    ) -> Callable[[str, float], float] | None:
        if by == "order":
            return None
        if by == "importance":
            return lambda _, importance: importance
        if by != "relevance" or relevance_query is None:
            raise DocmemError(
                f"invalid by={short_repr(by)}", remedy='by is "order", "importance", or "relevance" with a query'
            )
        units = score_units(self._engine, sql, relevance_query, node_id, _RELEVANT_PASSAGES)
        scores = {member_id: unit.score * share for unit in units for member_id, share in unit.shares.items()}
        return lambda node_id, _: scores.get(node_id, 0.0)

    def query(self, text: str, limit: int = 10, *, node_id: str | None = None) -> list[DocumentHit]:
        """Search all nodes, or those below `node_id`; return the best hits with their surroundings, best first.

        Uses full-text search, and vectors if there is an embedder. A summary replaces matches below it. Several hits
        under one parent raise each other's score. `@tags` in the query find the nodes with these tags. The query may
        contain any characters.
        """
        max_hits = min(check_integer(limit, "limit", 0), _NO_LIMIT)
        if node_id is not None:
            with self.database.read() as sql:
                tree.get(sql, node_id)
        prepared_query = self.asked(text, below=node_id)
        with self.database.read() as sql:
            return find_hits(self._engine, sql, prepared_query, node_id, max_hits)

    def asked(self, text: str, *, keys: Sequence[str] | None = None, below: str | None = None) -> Query:
        """Embed a query, and the passages that match it best by words if they lack vectors.

        `keys` or `below` limit the passages to files at or below these paths, or to a subtree. Call this outside any
        transaction: an embedder may be slow.
        """
        query = self.meanings.build_query(check_text(text, "a query"))
        if query.words_only_reason is not None:
            _log.warning("documents: searched by words only: %s", query.words_only_reason)
        if query.vectors is not None:
            with self.database.read() as sql:
                units = Units(sql, self._engine.stemmer, text, keys=keys, below=below)
                _, best_units = self._engine.search_words(units, query, _EMBEDDED_FIRST)
            # new or tagged passages come first
            first_units = {*best_units[:_EMBEDDED_FIRST], *best_units[-_EMBEDDED_FIRST:]}
            try:
                self._embed(len(first_units), only_keys=first_units)
                self._embed(_EMBEDDED_FIRST - len(first_units))  # few matches by words: others may match by meaning
            except EmbedderUnavailable as error:
                _log.warning("documents: searched with existing vectors only: %s", error)
        return query

    def notes(self, text: str, limit: int) -> list[tuple[Node, Confidence]]:
        """Search the notes by words; return the best ones with their confidence, best first."""
        with self.database.read() as sql:
            return find_notes(self._engine, sql, check_text(text, "a query"), limit)

    def passages(self, text: str, limit: int, keys: Sequence[str], context: str = "") -> list[Passage]:
        """Return the best passages of the files at or below `keys`, best first. Words of `context` count half.

        The best passages by words are embedded first, which may take long. Others without a vector are found by words
        only, and their `why` says so.
        """
        if limit <= 0 or not keys:
            return []
        prepared_query = replace(self.asked(text, keys=keys), context=context)
        with self.database.read() as sql:
            return find_passages(self._engine, sql, prepared_query, limit, keys)

    def _embed(self, limit: int, **options: Any) -> int:
        """Embed at most `limit` waiting texts (see `StoreEmbedder.embed_backlog`); none in a read-only database."""
        if self.database.is_read_only:
            return 0
        return self.meanings.embed_backlog(self.database, BACKLOG, limit, **options)

    def meaning(self) -> tuple[int, int]:
        """Return how many passages (and nodes without a file) are embedded, and how many there are."""
        with self.database.read() as sql:
            return count_embedded(sql, self.meanings.embedder)

    def tags_of(self, node_id: str) -> list[str]:
        """Return the tags of a node's text and, for a document, its labels, sorted and without `@`."""
        with self.database.read() as sql:
            tree.get(sql, node_id)
            return [row[0] for row in sql.execute("SELECT tag FROM tags WHERE node_id = ? ORDER BY tag", (node_id,))]

    def embed_pending(self, limit: int = 1_000) -> int:
        """Embed at most `limit` passages (and nodes without a file) that lack a vector; return their number.

        A text that the embedder refuses is skipped, and not tried again by this process. Raises EmbedderUnavailable if
        the embedder fails; vectors written before that are kept.
        """
        return self._embed(min(check_integer(limit, "limit", 0), _NO_LIMIT))

    # -- files ------------------------------------------------------------------------------------------------------
    def import_file(self, path: str | os.PathLike[str]) -> Node:
        """Import a file as a readonly document and return its root. A .toml file sets `readonly` itself.

        If the file was imported before, update its document node by node; ids and notes stay. Raises DocmemError that
        names the file (and line) if it cannot be read; the database is then unchanged.
        """
        name = check_path(path)
        raw, status = read_bytes(name)
        if name.lower().endswith(".toml"):
            with boundary("document", name):
                text = decode_text(raw, name)
            return self._import_toml(text, name)[0]
        stamp, digest = Stamp.of(status), hashlib.sha256(raw).hexdigest()
        outline = read_outline(raw, name, self.count)
        with self.transaction() as edit:
            root_id, _ = store_document(edit, name, outline, stamp, digest, is_synced=False)
            return tree.get(edit.sql, root_id)

    def source(self, node_id: str) -> NodeSource | None:
        """Return an imported node's place in its file (`.citation` is `path:line-line`); None for any other node."""
        with self.database.read() as sql:
            tree.get(sql, node_id)
            return source_of(sql, node_id)

    def keep_thread(self, subject: str, letters: Sequence[Letter], thread: str) -> Node:
        """Store the new letters of a mail thread as a document, classified by rule; return its root.

        `thread` is the Message-ID of the thread's first letter.
        """
        with self.transaction() as edit:
            return keep_thread(edit, subject, letters, thread)

    def import_toml(self, text: str) -> list[Node]:
        """Import trees from TOML written by `export_toml` or by hand; return the new nodes in reading order.

        Raises DocmemError that names the line of an error; the database is then unchanged.
        """
        return self._import_toml(text, "TOML")

    def _import_toml(self, text: str, path: str) -> list[Node]:
        entries = toml.read(text, path)
        with self.transaction() as edit:
            return write_entries(edit, entries)

    def export_toml(self, node_id: str) -> str:
        """Export the node and its descendants as TOML without ids and times. Importing it creates the same tree."""
        with self.database.read() as sql:
            nodes = tree.subtree(sql, node_id)
            return toml.export(nodes, {node.id for node in nodes if summaries.is_summary(sql, node.id)})

    # -- maintenance ------------------------------------------------------------------------------------------------
    def check(self) -> list[str]:
        """Check the whole database; return a sentence for each inconsistency."""
        with self.database.write() as sql:  # FTS5's integrity check is an INSERT
            index(sql)  # the check compares the index with the present texts
            return list(problems(sql))

    tables: Mapping[str, str] = MappingProxyType(
        {
            "nodes": "hash = node_hash(parent_id, context_type, context_name, context_value, text, order_value)",
            **dict.fromkeys(("versions", "summaries", "tags", "files", "places", "vectors", "parts"), ""),
        }
    )
    """Tables to copy from a damaged database (see `fs.backup`), with expressions for columns to recompute."""
    locks: Sequence[str] = (".sync", ".lock")

    def elsewhere(self, path: Path) -> Docmem:
        """Return a store for another database file."""
        return Docmem(path)

    def rebuild(self) -> None:
        """Rebuild the full-text index, delete vectors without a node, and make the next sync read every file again."""
        with self.database.write() as sql:
            sql.execute("INSERT INTO words(words) VALUES ('rebuild')")
            sql.execute("DELETE FROM unindexed")
            drop_lost_vectors(sql)
            sql.execute("UPDATE files SET parser = 0")
