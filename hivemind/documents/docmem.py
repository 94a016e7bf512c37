"""Docmem: documents as trees, and what makes them a memory: import, query, expansion (spec 5, seed 003)."""

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
from hivemind.documents.edit import Draft, Edit, Version, copy, history, move, restore
from hivemind.documents.expansion import By, Interior, Resolution, expand, without_interior
from hivemind.documents.files import Stamp, take_in
from hivemind.documents.formats import decoded, read_bytes, read_outline
from hivemind.documents.importing import Letter, keep_thread
from hivemind.documents.node import (
    DocmemError,
    Node,
    check_context,
    check_flag,
    check_path,
    check_share,
    check_text,
    check_whole,
)
from hivemind.documents.passages import BACKLOG, Passage
from hivemind.documents.progress import known_by_meaning
from hivemind.documents.schema import SCHEMA, drop_lost_vectors, index, index_if_many, problems
from hivemind.documents.search import WEIGHTS, Hit, Units, find_hits, find_notes, find_passages, scored
from hivemind.documents.summaries import extract
from hivemind.documents.toml import write_entries
from hivemind.documents.tree import Shown, Source, show, source_of
from hivemind.embedding import Embedder, EmbedderUnavailable
from hivemind.fs.database import Database, DatabaseOwner
from hivemind.search import Confidence, Engine, Meanings, Query
from hivemind.tokens import count_tokens
from hivemind.words import shown

__all__ = ["Docmem"]

_ASKED_FIRST = 40  # passages, the best by words, that a search embeds if they have no vector yet
_RELEVANT = 200  # passages that an expansion by relevance looks for
_EVERYTHING = 2**40
_log = logging.getLogger(__name__)


class Docmem(DatabaseOwner):
    """All documents of a hive, for many processes at once: each is a tree of nodes whose reading order is the document.

    `path` is the database file, made at first use. `token_counter` counts the tokens of a text; `embedder` (optional) gives
    vectors for queries. `durable=False` leaves out the fsync of each commit. `clock` is for tests.

    Every method that names a node raises NodeNotFoundError for an unknown one; every one that writes is one
    transaction, across processes: it happens whole or not at all.
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
        if "://" in os.fspath(path):
            raise DocmemError("only SQLite files are supported so far", where=path, mend="give the path of a file")
        self.database = Database(path, SCHEMA, durable=durable)
        self.count = token_counter
        self.meanings = Meanings(embedder)
        self._clock = clock
        self._engine = Engine(WEIGHTS, candidates=80, closely=64)

    @contextmanager
    def transaction(self) -> Iterator[Edit]:
        """One transaction around several operations: all of them happen, or none. Keep it short: others wait."""
        with self.database.write() as sql:
            now = self._clock().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            yield Edit(sql, now, self.count)
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
            return edit.add(*edit.place("child", node_id), draft)

    def insert_before(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """A new sibling just before the node. Raises DocmemError for a root."""
        draft = Draft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(*edit.place("before", node_id), draft)

    def insert_after(
        self, node_id: str, context_type: str, context_name: str, context_value: str, content: str,
        *, id: str | None = None, readonly: int = 0,  # noqa: A002
    ) -> Node:  # fmt: skip
        """A new sibling just after the node. Raises DocmemError for a root."""
        draft = Draft(check_context(context_type, context_name, context_value), content, readonly, id=id)
        with self.transaction() as edit:
            return edit.add(*edit.place("after", node_id), draft)

    def add_note(self, node_id: str, text: str, author: str) -> Node:
        """A note on a node, readonly or not: a sibling right after it, or the first child of a root."""
        draft = Draft(check_context("note", "by", author), text)
        with self.transaction() as edit:
            if tree.get(edit.sql, node_id).parent_id is not None:
                return edit.add(*edit.place("after", node_id), draft)
            first = tree.first_child(edit.sql, node_id)
            return edit.add(*(edit.place("before", first) if first else edit.place("child", node_id)), draft)

    # -- changing ---------------------------------------------------------------------------------------------------
    def update_content(self, node_id: str, content: str, expected_hash: str | None = None) -> Node:
        """Give the node another text. Raises OptimisticLockError if it is not as expected, ReadonlyError."""
        with self.transaction() as edit:
            return edit.change(edit.writable(node_id, expected_hash), text=content)

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
            node = edit.writable(node_id, expected_hash)
            return edit.change(node, context_type=context.type, context_name=context.name, context_value=context.value)

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
        """The node first, then as much below it as fits into `max_tokens`, in reading order.

        Breadth first and group by group in order; what doesn't fit is passed over and smaller later nodes still go in.
        The sum of token counts exceeds `max_tokens` only if the node alone does. `by="importance"` and
        `by="relevance"` (to `query`) prefer what matters more; `resolution="mixed"` gives a summary in place of
        children that don't all fit; `interior` as for serialize, but the node itself is always there.
        """
        check_whole(max_tokens, "max_tokens")
        asked = None if query is None else self.asked(query, below=node_id)
        with self.database.read() as sql:
            priority = self._priority(sql, by, asked, node_id)
            return expand(sql, node_id, max_tokens, interior=interior, resolution=resolution, priority=priority)

    def shown(
        self, node_id: str, max_tokens: int | None = None, *, by: By = "order", query: str | None = None
    ) -> Shown:
        """The node and what is below it as text, within `max_tokens` (None: all of it), summaries where they must do.

        The text counts no more than `max_tokens` unless the node alone does; `form` says how much of it is there.
        """
        if max_tokens is not None:
            check_whole(max_tokens, "max_tokens")
        asked = None if query is None else self.asked(query, below=node_id)
        with self.database.read() as sql:
            if max_tokens is None:
                return show(sql, tree.subtree(sql, node_id))
            priority, room = self._priority(sql, by, asked, node_id), max_tokens
            while True:
                nodes = expand(sql, node_id, room, resolution="mixed", priority=priority)
                found = show(sql, nodes)
                excess = self.count(found.text) - max_tokens
                if excess <= 0 or len(nodes) == 1:
                    return found
                room = min(room - excess, sum(node.token_count for node in nodes) - 1)

    def _priority(
        self, sql: sqlite3.Connection, by: By, asked: Query | None, node_id: str
    ) -> Callable[[str, float], float] | None:
        if by == "order":
            return None
        if by == "importance":
            return lambda _, importance: importance
        if by != "relevance" or asked is None:
            raise DocmemError(
                f"by={shown(by)} cannot be", mend='by is "order", "importance", or "relevance" with a query'
            )
        units = scored(self._engine, sql, asked, node_id, _RELEVANT)
        scores = {one: unit.score * share for unit in units for one, share in unit.shares.items()}
        return lambda node_id, _: scores.get(node_id, 0.0)

    def query(self, text: str, limit: int = 10, *, node_id: str | None = None) -> list[Hit]:
        """The nodes that answer best (below `node_id`, if given), best first, each with where it stands and why.

        Full text, and vectors if there is an embedder. A summary covers what matches below it; several hits under one
        parent count for each other; `@tags` in the query find what has them. Any characters may stand in the query.
        """
        most = min(check_whole(limit, "limit", 0), _EVERYTHING)
        if node_id is not None:
            with self.database.read() as sql:
                tree.get(sql, node_id)
        asked = self.asked(text, below=node_id)
        with self.database.read() as sql:
            return find_hits(self._engine, sql, asked, node_id, most)

    def asked(self, text: str, *, keys: Sequence[str] | None = None, below: str | None = None) -> Query:
        """A query with its meaning, got outside any transaction: an embedder may be slow. What matches it best by words, of
        the files at or below `keys` or below a node, has its vectors then."""
        query = self.meanings.query(check_text(text, "a query"))
        if query.lack is not None:
            _log.warning("documents: searched by words only: %s", query.lack)
        if query.meaning is not None:
            with self.database.read() as sql:
                source = Units(sql, self._engine.stems, text, keys=keys, below=below)
                _, best = self._engine.by_words(source, query, _ASKED_FIRST)
            first = {*best[:_ASKED_FIRST], *best[-_ASKED_FIRST:]}  # what is new, or has a tag, stands before the best
            try:
                self._embed(len(first), among=first)
                self._embed(_ASKED_FIRST - len(first))  # few have its words: what else waits may mean it
            except EmbedderUnavailable as error:
                _log.warning("documents: searched with the vectors that there are: %s", error)
        return query

    def notes(self, text: str, limit: int) -> list[tuple[Node, Confidence]]:
        """The notes on documents whose words answer best, best first, and how far each can be trusted to answer."""
        with self.database.read() as sql:
            return find_notes(self._engine, sql, check_text(text, "a query"), limit)

    def passages(self, text: str, limit: int, keys: Sequence[str], context: str = "") -> list[Passage]:
        """The passages of the files at or below `keys` that answer best, best first; the words of the `context` count half.

        The best by their words are embedded first, however long that takes; what has no vector then is found by its words,
        and `why` says so.
        """
        if limit <= 0 or not keys:
            return []
        asked = replace(self.asked(text, keys=keys), context=context)
        with self.database.read() as sql:
            return find_passages(self._engine, sql, asked, limit, keys)

    def _embed(self, limit: int, **told: Any) -> int:
        """Embed at most `limit` of what waits (see `Meanings.embed_waiting`), where it can be written."""
        return 0 if self.database.is_read_only else self.meanings.embed_waiting(self.database, BACKLOG, limit, **told)

    def meaning(self) -> tuple[int, int]:
        """How many passages (and nodes from no file) are known by their meaning, and of how many; (0, all) without an
        embedder."""
        with self.database.read() as sql:
            return known_by_meaning(sql, self.meanings.embedder)

    def tagged(self, tag: str) -> list[Node]:
        """The nodes whose text has `@tag`, and documents labelled so, oldest first."""
        check_text(tag, "a tag")
        with self.database.read() as sql:
            rows = sql.execute("SELECT node_id FROM tags WHERE tag = ?", (tag.removeprefix("@").casefold(),))
            found = tree.get_many(sql, [row[0] for row in rows])
        return sorted(found, key=lambda node: (node.created_at, node.id))

    def tags_of(self, node_id: str) -> list[str]:
        """The tags that the node is found by, without `@`, in order."""
        with self.database.read() as sql:
            tree.get(sql, node_id)
            return [row[0] for row in sql.execute("SELECT tag FROM tags WHERE node_id = ? ORDER BY tag", (node_id,))]

    def embed_pending(self, limit: int = 1_000) -> int:
        """Give vectors to at most `limit` passages (and nodes from no file) that have none yet; returns how many.

        A text that the embedder refuses is passed over, and not tried again by this process. Raises EmbedderUnavailable where
        it takes none; what was embedded before is kept.
        """
        return self._embed(min(check_whole(limit, "limit", 0), _EVERYTHING))

    # -- files ------------------------------------------------------------------------------------------------------
    def import_file(self, path: str | os.PathLike[str]) -> Node:
        """A file as a document, all of it readonly (a .toml file: as it says); gives the root.

        A file that was imported before is changed into what it is now, node by node; ids and notes stay. Raises
        DocmemError that names the file (and line) for what cannot be read; then nothing has changed.
        """
        name = check_path(path)
        raw, found = read_bytes(name)
        if name.lower().endswith(".toml"):
            with boundary("document", name):
                text = decoded(raw, name)
            return self._import_toml(text, name)[0]
        stamp, digest = Stamp.of(found), hashlib.sha256(raw).hexdigest()
        outline = read_outline(raw, name, self.count)
        with self.transaction() as edit:
            root_id, _ = take_in(edit, name, outline, stamp, digest, kept=False)
            return tree.get(edit.sql, root_id)

    def source(self, node_id: str) -> Source | None:
        """Where an imported node stands in its file (`.citation` gives `path:line-line`); None for any other node."""
        with self.database.read() as sql:
            tree.get(sql, node_id)
            return source_of(sql, node_id)

    def keep_thread(self, subject: str, letters: Sequence[Letter], thread: str) -> Node:
        """Keep a mail thread, known by the Message-ID that it began with, as a document, or what is new of it; returns its
        root, classed by rule."""
        with self.transaction() as edit:
            return keep_thread(edit, subject, letters, thread)

    def import_toml(self, text: str) -> list[Node]:
        """The trees that `export_toml` wrote, or a person; gives the new nodes in reading order.

        Raises DocmemError that names the line; then nothing has changed.
        """
        return self._import_toml(text, "TOML")

    def _import_toml(self, text: str, where: str) -> list[Node]:
        entries = toml.read(text, where)
        with self.transaction() as edit:
            return write_entries(edit, entries)

    def export_toml(self, node_id: str) -> str:
        """The node and all below it as TOML, without ids and times: importing it gives the same tree again."""
        with self.database.read() as sql:
            nodes = tree.subtree(sql, node_id)
            return toml.export(nodes, {node.id for node in nodes if summaries.is_summary(sql, node.id)})

    # -- looking after it -------------------------------------------------------------------------------------------
    def check(self) -> list[str]:
        """What is wrong with the database, one sentence each; empty if it is sound. Reads all of it."""
        with self.database.write() as sql:  # the full-text index's own check is written as an insert
            index(sql)  # it compares with the texts as they are now
            return list(problems(sql))

    tables: Mapping[str, str] = MappingProxyType(
        {
            "nodes": "hash = node_hash(parent_id, context_type, context_name, context_value, text, order_value)",
            **dict.fromkeys(("versions", "summaries", "tags", "files", "places", "vectors", "parts"), ""),
        }
    )
    """What is taken over from a damaged database (`fs.backup`)."""
    locks: Sequence[str] = (".sync", ".lock")

    def elsewhere(self, path: Path) -> Docmem:
        """A store over another file, as this one."""
        return Docmem(path)

    def rebuild(self) -> None:
        """Rebuild what follows from the nodes: the full-text index, which vectors there are. Every file is read anew at the
        next sync, as if its importer had changed."""
        with self.database.write() as sql:
            sql.execute("INSERT INTO words(words) VALUES ('rebuild')")
            sql.execute("DELETE FROM unindexed")
            drop_lost_vectors(sql)
            sql.execute("UPDATE files SET parser = 0")
