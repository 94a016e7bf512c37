"""The document store: create, change, import, search and expand documents, which are trees of text nodes."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hivemind.boundary import boundary
from hivemind.documents import summaries, toml, tree
from hivemind.documents.edit import CONTEXT_FIELDS, Edit, NodeDraft, Version, copy, move
from hivemind.documents.expansion import By, Interior, Resolution, expand, without_interior
from hivemind.documents.files import Stamp, store_document
from hivemind.documents.formats import read_bytes, read_outline
from hivemind.documents.formats.outline import decode_text
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
from hivemind.documents.progress import count_embedded, file_languages
from hivemind.documents.schema import LOST_VECTORS, SCHEMA, index, index_if_many, problems
from hivemind.documents.search import (
    WEIGHTS,
    DocumentHit,
    Units,
    find_hits,
    find_notes,
    find_passages,
    question_language,
    score_units,
)
from hivemind.documents.summaries import extract
from hivemind.documents.toml import write_entries
from hivemind.documents.tree import NodeListing, NodeSource, show
from hivemind.embedding import Embedder, EmbedderUnavailable
from hivemind.fs.database import Database, DatabaseOwner
from hivemind.search import Confidence, Engine, Query, StoreEmbedder
from hivemind.tokens import count_tokens
from hivemind.words import language_of, short_repr

_EMBEDDED_FIRST = 40  # before ranking, a search embeds up to this many passages that match by words and have no vector
_RELEVANT_PASSAGES = 200  # `expand_to_length(by="relevance")` ranks this many passages
_NO_LIMIT = 2**40
_log = logging.getLogger(__name__)


class Docmem(DatabaseOwner):
    """The store of a hive's documents. A document is a tree of nodes; in reading order, the nodes' texts are the document.

    Several processes may use one database. `path` is the database file, created at first use. `token_counter` counts
    the tokens of a text. `embedder` (optional) embeds passages and queries. `clock` is for tests.

    Methods raise NodeNotFoundError if a node does not exist, and OptimisticLockError if the node's hash is not
    `expected_hash`. Each writing method is one atomic transaction across processes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        token_counter: Callable[[str], int] = count_tokens,
        embedder: Embedder | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.database = Database(path, SCHEMA)
        self.count = token_counter
        self.meanings = StoreEmbedder(embedder)
        self._clock = clock
        self._engine = Engine(WEIGHTS, candidates=80, candidates_read=64)

    @contextmanager
    def transaction(self) -> Iterator[Edit]:
        """Run several operations in one atomic transaction. Other writers wait until its end."""
        with self.database.write() as sql:
            now = self._clock().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            yield Edit(sql, now, self.count)
            if not self.database.is_nested:
                index_if_many(sql)

    # -- finding ----------------------------------------------------------------------------------------------------
    def find(self, node_id: str) -> Node | None:
        with self.database.read() as sql:
            return tree.find(sql, node_id)

    def roots(self) -> list[Node]:
        """Return the root of every document, oldest first."""
        with self.database.read() as sql:
            rows = sql.execute("SELECT id FROM nodes WHERE parent_id IS NULL ORDER BY created_at, seq")
            return tree.get_many(sql, [row[0] for row in rows])

    def root_of(self, node_id: str) -> Node:
        with self.database.read() as sql:
            return tree.ancestry(sql, node_id)[-1]

    def size(self, node_id: str) -> tuple[int, int]:
        """Return the number of the node's descendants, and the number of tokens in the node and its descendants together."""
        with self.database.read() as sql:
            count, tokens = tree.size(sql, node_id)
            return count - 1, tokens

    def serialize(self, node_id: str, *, interior: Interior = "keep") -> list[Node]:
        """Return the node and its descendants in reading order (depth first, by order value).

        `interior`: "keep" returns all nodes, "skip" only the leaves, "replace" all nodes except summaries.
        """
        with self.database.read() as sql:
            return without_interior(sql, tree.subtree(sql, node_id), interior)

    def structure(self, node_id: str) -> list[dict[str, Any]]:
        """Return `Node.outline` (no text, no hash) of the node and its descendants, in reading order."""
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
        """Create a document with this text, and return its root. The context says what a node is for. Raises
        DocmemError if the id is taken.

        An `id` of None is replaced by a new id.
        """
        draft = NodeDraft(check_context(context_type, context_name, context_value), text, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(None, 0.0, draft)

    def append_child(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """Create a child after the node's last child, and return it. Its order (the sort key among siblings) is the
        largest one + 1.

        The context says what the new node is for; an `id` of None is replaced by a new id.
        """
        draft = NodeDraft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(*edit.free_slot("child", node_id), draft)

    def insert_before(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """Create a sibling directly before the node, and return it. Arguments are as for `append_child`. Raises
        DocmemError for a root."""
        draft = NodeDraft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(*edit.free_slot("before", node_id), draft)

    def insert_after(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """Create a sibling directly after the node, and return it. Arguments are as for `append_child`. Raises
        DocmemError for a root."""
        draft = NodeDraft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(*edit.free_slot("after", node_id), draft)

    def add_note(self, node_id: str, text: str, author: str) -> Node:
        """Add a note directly after the node, which may be readonly, and return it. A note on a root becomes its first child."""
        draft = NodeDraft(check_context("note", "by", author), text)
        with self.transaction() as edit:
            if tree.get(edit.sql, node_id).parent_id is not None:
                return edit.add(*edit.free_slot("after", node_id), draft)
            first = tree.first_child(edit.sql, node_id)
            return edit.add(*(edit.free_slot("before", first) if first else edit.free_slot("child", node_id)), draft)

    # -- changing ---------------------------------------------------------------------------------------------------
    def update_content(self, node_id: str, content: str, expected_hash: str | None = None) -> Node:
        """Replace the node's text. Raises ReadonlyError for a readonly node, OptimisticLockError if the node's hash is
        not `expected_hash` (None: not checked)."""
        with self.transaction() as edit:
            return edit.change(edit.writable(node_id, expected_hash), text=content)

    def update_context(
        self, node_id: str, context_type: str, context_name: str, context_value: str, expected_hash: str | None = None
    ) -> Node:
        """Replace the node's context. Raises ReadonlyError for a readonly node, OptimisticLockError if the node's hash
        is not `expected_hash` (None: not checked)."""
        context = check_context(context_type, context_name, context_value)
        with self.transaction() as edit:
            return edit.change(edit.writable(node_id, expected_hash), context=context)

    def set_importance(self, node_id: str, importance: float) -> Node:
        """Set the node's importance, 0 to 1 (default 0.5), for `expand_to_length(by="importance")`."""
        share = check_fraction(importance, "importance")
        with self.transaction() as edit:
            return edit.change(tree.get(edit.sql, node_id), importance=share)

    def set_sticky(self, node_id: str, sticky: bool = True) -> Node:
        """Set whether the node is sticky: it and its next sibling are then expanded, moved and summarised only together."""
        flag = check_flag(sticky, "sticky")
        with self.transaction() as edit:
            return edit.change(tree.get(edit.sql, node_id), sticky=flag)

    def history(self, node_id: str) -> list[Version]:
        """Return every version of the node's text and context, oldest first; the last one is the current state."""
        with self.database.read() as sql:
            node = tree.get(sql, node_id)
            rows = sql.execute(
                "SELECT version, text, context_type, context_name, context_value, updated_at, hash"
                " FROM versions WHERE node_id = ? ORDER BY version",
                (node_id,),
            )
            versions = [Version(*row) for row in rows]
            return [*versions, Version(len(versions) + 1, node.text, *node.context, node.updated_at, node.hash)]

    def restore(self, node_id: str, version: int, expected_hash: str | None = None) -> Node:
        """Restore the node's text and context from an earlier version (counted from 1), and return the node. The
        history keeps all versions.

        Raises OptimisticLockError if the node's hash is not `expected_hash` (None: not checked).
        """
        check_integer(version, "version", 1)
        with self.transaction() as edit:
            node = edit.writable(node_id, expected_hash)
            for earlier in self.history(node_id):
                if earlier.version == version:
                    return edit.change(node, **{name: getattr(earlier, name) for name in ("text", *CONTEXT_FIELDS)})
        raise DocmemError(
            f"node {node_id!r} has no version {short_repr(version)}", remedy="history(node_id) lists them"
        )

    def delete(self, node_id: str) -> None:
        """Delete the node and its descendants."""
        with self.transaction() as edit:
            edit.remove(tree.subtree_ids(edit.sql, node_id))

    # -- moving and copying -----------------------------------------------------------------------------------------
    def move_append_child(self, node_id: str, target_parent_id: str, expected_hash: str | None = None) -> Node:
        """Move the node, with the siblings that stick to it, to the end of the target's children.

        Raises CycleError if the target is in the moved subtree, OptimisticLockError if the node's hash is not
        `expected_hash` (None: not checked).
        """
        with self.transaction() as edit:
            return move(edit, node_id, target_parent_id, "child", expected_hash)

    def move_before(self, node_id: str, target_node_id: str, expected_hash: str | None = None) -> Node:
        """Move the node, with the siblings that stick to it, directly before the target. `expected_hash` is as for
        `move_append_child`.

        Raises CycleError if the target is in the moved subtree, DocmemError if the target is a root.
        """
        with self.transaction() as edit:
            return move(edit, node_id, target_node_id, "before", expected_hash)

    def move_after(self, node_id: str, target_node_id: str, expected_hash: str | None = None) -> Node:
        """Move the node, with the siblings that stick to it, directly after the target. `expected_hash` is as for
        `move_append_child`.

        Raises CycleError if the target is in the moved subtree, DocmemError if the target is a root.
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
        """Create a summary with the text `content`, move the consecutive leaves from start to end (both included) below
        it, and return it.

        By default, its context says that it was written by hand.
        """
        context = check_context(context_type, context_name, context_value)
        with self.transaction() as edit:
            return summaries.add_summary(edit, start_node_id, end_node_id, content, context)

    def remove_summary(self, node_id: str, expected_hash: str | None = None) -> list[Node]:
        """Move a summary's children up to its parent, delete the summary, and return the children.

        Raises OptimisticLockError if the summary's hash is not `expected_hash` (None: not checked).
        """
        with self.transaction() as edit:
            return summaries.remove_summary(edit, node_id, expected_hash)

    def summarize(
        self, node_id: str, writer: summaries.Writer | None = None, max_tokens: int = summaries.MAX_SUMMARY_TOKENS
    ) -> Node:
        """Rewrite the node if it is a summary; otherwise summarise its first run of consecutive leaf children.

        Return the summary; its history keeps the old text. `writer` writes the text (default: extracted sentences). It is
        called outside any transaction, and again if the summarised nodes change meanwhile.
        """
        check_integer(max_tokens, "max_tokens", 1)
        for _ in range(10):
            with self.database.read() as sql:
                material = summaries.read_material(sql, node_id)
            texts = [member.text for member in material[1]]
            text = writer(texts, max_tokens) if writer else extract(texts, max_tokens, self.count)
            with self.transaction() as edit:
                summary = summaries.write_summary(edit, material, text)
            if summary is not None:
                return summary
        raise DocmemError(f"the nodes below {node_id!r} change faster than they are summarised", remedy="try later")

    def stale_summaries(self) -> list[Node]:
        """Return the summaries older than the last change of their children, oldest first."""
        with self.database.read() as sql:
            rows = sql.execute(
                "SELECT s.node_id FROM summaries s JOIN nodes n ON n.id = s.node_id WHERE s.stale ORDER BY n.updated_at, n.id"
            )
            return tree.get_many(sql, [row[0] for row in rows])

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

        Descendants are selected breadth first; one that does not fit is skipped, and smaller ones may still follow. With
        `by="importance"` or `by="relevance"` (to `query`), the most important or relevant ones are selected first. With
        `resolution="mixed"`, a summary replaces its children if they do not all fit. `interior` works as in
        `serialize`. The node itself is always included, even if it alone exceeds `max_tokens`.
        """
        with self._expanding(node_id, max_tokens, by, query) as (sql, priority):
            return expand(sql, node_id, max_tokens, interior=interior, resolution=resolution, priority=priority)

    def shown(self, node_id: str, max_tokens: int, *, by: By = "order", query: str | None = None) -> NodeListing:
        """Return the text of the node and its descendants, shortened to `max_tokens` by summaries and omissions.

        The text exceeds `max_tokens` only if the node's own text does. The listing's `form` says how complete it is.
        """
        token_budget = max_tokens
        with self._expanding(node_id, max_tokens, by, query) as (sql, priority):
            while True:
                nodes = expand(sql, node_id, token_budget, resolution="mixed", priority=priority)
                listing = show(sql, nodes)
                excess = self.count(listing.text) - max_tokens
                if excess <= 0 or len(nodes) == 1:
                    return listing
                token_budget = min(token_budget - excess, sum(node.token_count for node in nodes) - 1)

    @contextmanager
    def _expanding(
        self, node_id: str, max_tokens: int, by: By, query: str | None
    ) -> Iterator[tuple[sqlite3.Connection, Callable[[str, float], float] | None]]:
        """Yield a read transaction's connection, and a function that computes a node's priority from its id and its importance.

        The function is None if `by` is "order": nodes then have no priority.
        """
        check_integer(max_tokens, "max_tokens")
        relevance_query = None if query is None else self.prepare_query(query, below=node_id)
        with self.database.read() as sql:
            if by == "order":
                yield sql, None
            elif by == "importance":
                yield sql, lambda _, importance: importance
            elif by == "relevance" and relevance_query is not None:
                units = score_units(self._engine, sql, relevance_query, node_id, _RELEVANT_PASSAGES)
                scores = {member_id: unit.score * share for unit in units for member_id, share in unit.shares.items()}
                yield sql, lambda member_id, _: scores.get(member_id, 0.0)
            else:
                remedy = 'use "order", "importance", or "relevance" with a query'
                raise DocmemError(f"invalid by={short_repr(by)}", remedy=remedy)

    def query(self, text: str, limit: int = 10, *, node_id: str | None = None) -> list[DocumentHit]:
        """Search all nodes, or the node `node_id` and its descendants; return the best hits, best first.

        The search compares words and, if there is an embedder, vectors. A summary replaces the matching nodes below it.
        Several hits under one parent raise each other's score. `@name` in the query finds nodes with the tag `name`. The
        query may contain any characters.
        """
        max_hits = min(check_integer(limit, "limit", 0), _NO_LIMIT)
        if node_id is not None:
            with self.database.read() as sql:
                tree.get(sql, node_id)
        prepared_query = self.prepare_query(text, below=node_id)
        with self.database.read() as sql:
            return find_hits(self._engine, sql, prepared_query, node_id, max_hits)

    def prepare_query(self, text: str, *, keys: Sequence[str] | None = None, below: str | None = None) -> Query:
        """Return the query with its vectors. First embed the texts of the best matches by words, where they lack a vector.

        `keys` limits these matches to files at or below the paths, `below` to the subtree of this node (None: no
        limit). Do not call `prepare_query` inside a transaction: an embedder may be slow.
        """
        query = self.meanings.build_query(check_text(text, "a query"))
        with self.database.read() as sql:
            query = replace(query, language=question_language(sql, text))
        if query.words_only_reason is not None:
            _log.warning("documents: searched by words only: %s", query.words_only_reason)
        if query.vectors is not None:
            with self.database.read() as sql:
                units = Units(sql, self._engine.stemmer_of(query.language), text, keys=keys, below=below)
                _, best_units = self._engine.search_words(units, query, _EMBEDDED_FIRST)
                # new or tagged passages come first
                first_keys = units.keys_of({*best_units[:_EMBEDDED_FIRST], *best_units[-_EMBEDDED_FIRST:]})
            try:
                self._embed(len(first_keys), only_keys=first_keys)
                # few matches by words: others may match by meaning
                self._embed(_EMBEDDED_FIRST - len(first_keys), is_awaited=True)
            except EmbedderUnavailable as error:
                _log.warning("documents: searched with existing vectors only: %s", error)
        return query

    def notes(self, text: str, limit: int) -> list[tuple[Node, Confidence]]:
        """Search the notes by words; return the best notes and the confidence of each, best first."""
        with self.database.read() as sql:
            return find_notes(self._engine, sql, check_text(text, "a query"), limit)

    def passages(
        self, text: str, limit: int, keys: Sequence[str], context: str = "", without: Collection[str] = ()
    ) -> list[Passage]:
        """Return the passages that answer `text` best, best first, from files at or below the paths `keys`, but not
        from the files `without`.

        Words of `context` count half. Before the search, the best matches by words are embedded, which may take long.
        Passages that still lack a vector are ranked by words only; their `why` says so.
        """
        if limit <= 0 or not keys:
            return []
        prepared_query = replace(self.prepare_query(text, keys=keys), context=context)
        with self.database.read() as sql:
            return find_passages(self._engine, sql, prepared_query, limit, keys, without)

    def _embed(self, limit: int, **options: Any) -> int:
        """Embed at most `limit` texts that lack a vector, and return their number (0 if the database is read-only).

        The other options are those of `StoreEmbedder.embed_backlog`.
        """
        if self.database.is_read_only:
            return 0
        return self.meanings.embed_backlog(self.database, BACKLOG, limit, **options)

    def embedded_counts(self) -> tuple[int, int]:
        """Return the number of embedded passages and of all passages; a node without a file counts as a passage."""
        with self.database.read() as sql:
            return count_embedded(sql, self.meanings.embedder)

    def language_gap(self, question: str, near_texts: Iterable[str] = ()) -> str:
        """Return a warning (a sentence) if the question's language is neither that of most documents nor that of one of the
        texts nearest to it, else ""."""
        with self.database.read() as sql:
            languages = file_languages(sql)
        documents_language = next((name for name, count in languages.items() if 2 * count > languages.total()), "")
        language = language_of(question, documents_language)
        if not documents_language or language in (documents_language, *map(language_of, near_texts)):
            return ""
        return (
            f"Most documents are in {documents_language.title()}, the question in {language.title()}: few words match."
        )

    def tags_of(self, node_id: str) -> list[str]:
        """Return the tags in a node's text, sorted and without `@`. A root also has the labels of its document as tags."""
        with self.database.read() as sql:
            tree.get(sql, node_id)
            return [row[0] for row in sql.execute("SELECT tag FROM tags WHERE node_id = ? ORDER BY tag", (node_id,))]

    def embed_pending(self, limit: int = 1_000) -> int:
        """Embed at most `limit` passages (and nodes without a file) that lack a vector; return their number.

        If the embedder refuses a text, this process does not try it again. Raises EmbedderUnavailable if the embedder
        fails; vectors written before are kept.
        """
        return self._embed(min(check_integer(limit, "limit", 0), _NO_LIMIT))

    # -- files ------------------------------------------------------------------------------------------------------
    def import_file(self, path: str | os.PathLike[str]) -> Node:
        """Import a file as a readonly document and return its root. Nodes of a .toml file have their own `readonly`.

        If the file was imported before, update its document node by node; ids and notes stay. If the file cannot be
        read, raise DocmemError, which names the file (and line), and change nothing.
        """
        name = check_path(path)
        raw, status = read_bytes(name)
        if name.lower().endswith(".toml"):
            with boundary("document", name):
                entries = toml.read(decode_text(raw, name), name)
            with self.transaction() as edit:
                return write_entries(edit, entries)[0]
        stamp, digest = Stamp.of(status), hashlib.sha256(raw).hexdigest()
        outline = read_outline(raw, name, self.count)
        with self.transaction() as edit:
            root_id, _ = store_document(edit, name, outline, stamp, digest, is_synced=False)
            return tree.get(edit.sql, root_id)

    def source(self, node_id: str) -> NodeSource | None:
        """Return an imported node's place in its file (`.citation` is `path:line-line`); None for any other node."""
        with self.database.read() as sql:
            tree.get(sql, node_id)
            row = sql.execute(
                "SELECT f.path, p.start_line, p.end_line, f.digest, p.kind, f.class, f.why"
                " FROM places p JOIN files f ON f.id = p.file_id WHERE p.node_id = ?",
                (node_id,),
            ).fetchone()
        return None if row is None else NodeSource(*row)

    def keep_thread(self, subject: str, letters: Sequence[Letter], thread: str) -> Node:
        """Add the letters that are not stored yet to the document of their mail thread; return the document's root.

        `thread` is the Message-ID of the thread's first letter. `subject` is the title of a new document.
        """
        with self.transaction() as edit:
            return keep_thread(edit, subject, letters, thread)

    def import_toml(self, text: str) -> list[Node]:
        """Import trees from TOML written by `export_toml` or by hand; return the new nodes in reading order.

        If the TOML has an error, change nothing and raise DocmemError, which names the line.
        """
        entries = toml.read(text)
        with self.transaction() as edit:
            return write_entries(edit, entries)

    def export_toml(self, node_id: str) -> str:
        """Export the node and its descendants as TOML without ids and times. `import_toml` recreates the tree from it."""
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
    """Tables that `fs.backup` copies from a damaged database, each with SQL for a column to recompute, or ""."""
    locks: Sequence[str] = (".sync", ".lock")

    def elsewhere(self, path: Path) -> Docmem:
        """Return a store for the database file `path`, without an embedder."""
        return Docmem(path)

    def rebuild(self) -> None:
        """Rebuild the full-text index, and delete the vectors of nodes that no longer exist. The next sync reads every
        file again."""
        with self.database.write() as sql:
            sql.execute("INSERT INTO words(words) VALUES ('rebuild')")
            sql.execute("DELETE FROM unindexed")
            sql.execute(f"DELETE {LOST_VECTORS}")
            sql.execute("UPDATE files SET parser = 0")
