"""Docmem: documents as trees, and what makes them a memory: import, query, expansion (spec 5, seed 003)."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from hivemind.boundary import boundary
from hivemind.documents import summaries, toml, tree
from hivemind.documents.errors import DocmemError
from hivemind.documents.expansion import By, Interior, Resolution, expand
from hivemind.documents.files import Stamp, take_in
from hivemind.documents.formats import decoded, read_bytes, read_outline
from hivemind.documents.given import check_path, check_whole, shown
from hivemind.documents.indexing import index
from hivemind.documents.integrity import drop_lost_vectors, problems, rehash
from hivemind.documents.node import Node, check_text
from hivemind.documents.query import Asked, Hit, find_hits, scored
from hivemind.documents.question import Words
from hivemind.documents.shown import Shown, show
from hivemind.documents.sources import Source, source_of
from hivemind.documents.threads import Letter, keep_thread
from hivemind.documents.treefile import write_entries
from hivemind.documents.trees import Trees, short_id
from hivemind.documents.vectors import Meaning, store, without_vector
from hivemind.embedding import Embedder, EmbedderUnavailable, Vectors, embed_each, embed_packed
from hivemind.tokens import count_tokens

__all__ = ["Docmem"]

_EMBEDDED_AT_ONCE = 64
_EMBEDDED_BY_A_QUERY = 64
_SHARE = 50
_REFUSED_AT_ONCE = 16
_EVERYTHING = 2**62
_log = logging.getLogger(__name__)


class Docmem(Trees):
    """All documents of a hive in one SQLite file, for many processes at once.

    `token_counter` counts the tokens of a text; `embedder` (optional) gives vectors for queries. `durable=False` leaves
    out the fsync of each commit. `clock` and `new_id` are for tests.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        token_counter: Callable[[str], int] = count_tokens,
        embedder: Embedder | None = None,
        durable: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = short_id,
    ) -> None:
        super().__init__(path, token_counter=token_counter, durable=durable, clock=clock, new_id=new_id)
        self.embedder = embedder
        self.words = Words()
        self._vectors = Vectors(self.database.path)
        self._refused: set[str] = set()  # hashes of nodes whose text the embedder does not take

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
        asked = None if query is None else self.asked(query, node_id)
        with self.database.read() as sql:
            priority = self._priority(sql, by, asked)
            return expand(sql, node_id, max_tokens, interior=interior, resolution=resolution, priority=priority)

    def shown(
        self, node_id: str, max_tokens: int | None = None, *, by: By = "order", query: str | None = None
    ) -> Shown:
        """The node and what is below it as text, within `max_tokens` (None: all of it), summaries where they must do.

        The text counts no more than `max_tokens` unless the node alone does; `form` says how much of it is there.
        """
        if max_tokens is not None:
            check_whole(max_tokens, "max_tokens")
        asked = None if query is None else self.asked(query, node_id)
        with self.database.read() as sql:
            if max_tokens is None:
                return show(sql, tree.subtree(sql, node_id))
            priority, room = self._priority(sql, by, asked), max_tokens
            while True:
                nodes = expand(sql, node_id, room, resolution="mixed", priority=priority)
                found = show(sql, nodes)
                excess = self.count(found.text) - max_tokens
                if excess <= 0 or len(nodes) == 1:
                    return found
                room = min(room - excess, sum(node.token_count for node in nodes) - 1)

    def _priority(self, sql: sqlite3.Connection, by: By, asked: Asked | None) -> Callable[[str, float], float] | None:
        if by == "order":
            return None
        if by == "importance":
            return lambda _, importance: importance
        if by != "relevance" or asked is None:
            raise DocmemError(
                f"by={shown(by)} cannot be", mend='by is "order", "importance", or "relevance" with a query'
            )
        found = scored(sql, asked, self.words)
        return lambda node_id, _: found[node_id].score if node_id in found else 0.0

    def query(self, text: str, limit: int = 10, *, node_id: str | None = None) -> list[Hit]:
        """The nodes that answer best (below `node_id`, if given), best first, each with where it stands and why.

        Full text, and vectors if there is an embedder. A summary covers what matches below it; several hits under one
        parent count for each other; `@tags` in the query find what has them. Any characters may stand in the query.
        """
        check_whole(limit, "limit", 0)
        asked = self.asked(text, node_id)
        with self.database.read() as sql:
            if node_id is not None:
                tree.get(sql, node_id)
            return find_hits(sql, asked, limit, self.words)

    def asked(self, text: str, below: str | None = None) -> Asked:
        """A query with its vector, got outside any transaction: an embedder may be slow."""
        check_text(text, "a query")
        if self.embedder is None or not text.strip():
            return Asked(text, below)
        if self._many_wait():
            return Asked(text, below, lack="many parts wait for their vectors")
        try:
            self.embed_pending(_EMBEDDED_BY_A_QUERY)
            (vector,) = embed_packed(self.embedder, [text])
        except EmbedderUnavailable as error:
            _log.warning("documents: searched by words only: %s", error)
            return Asked(text, below, lack=error.what)
        return Asked(text, below, Meaning(self._vectors, self.embedder.name, vector))

    def _many_wait(self) -> bool:
        """Whether so many nodes have no vector yet (more than 64, and than a fiftieth of all) that answers by the meanings of
        the others would say how far the janitor is."""
        assert self.embedder is not None
        with self.database.read() as sql:
            (newest,) = sql.execute("SELECT coalesce(max(seq), 0) FROM nodes").fetchone()
            few = max(_EMBEDDED_BY_A_QUERY, int(newest) // _SHARE)
            return len(without_vector(sql, self.embedder, few + 1)) > few

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
        """Give vectors to at most `limit` nodes that have none yet; gives how many. For the janitor.

        A text that the embedder refuses is passed over, and not tried again by this process. Raises EmbedderUnavailable where
        it takes none; what was embedded before is kept.
        """
        most = min(check_whole(limit, "limit", 0), _EVERYTHING)
        done, after, refused = 0, -1, len(self._refused)
        while self.embedder is not None and done < most and len(self._refused) - refused < _REFUSED_AT_ONCE:
            with self.database.read() as sql:
                rows = without_vector(sql, self.embedder, min(_EMBEDDED_AT_ONCE, most - done), after)
            if not rows:
                break
            after = rows[-1][0]
            batch = [row for row in rows if row[2] not in self._refused]
            vectors = embed_each(self.embedder, [text for _, text, _ in batch])
            self._refused |= {h for (_, _, h), vector in zip(batch, vectors, strict=True) if vector is None}
            if kept := [(s, h, v) for (s, _, h), v in zip(batch, vectors, strict=True) if v is not None]:
                with self.database.write() as sql:
                    store(sql, self.embedder.name, kept)
            done += len(kept)
        return done

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

    def keep_thread(self, subject: str, letters: Sequence[Letter], root_id: str | None = None) -> Node:
        """Keep a mail thread as a document (what is new of it, below `root_id`); gives its root, classed by rule."""
        with self.transaction() as edit:
            return keep_thread(edit, subject, letters, root_id)

    def import_toml(self, text: str) -> list[Node]:
        """The trees that `export_toml` wrote, or a person; gives the new nodes in reading order.

        Raises DocmemError that names the line; then nothing has changed.
        """
        return self._import_toml(text, "TOML")

    def _import_toml(self, text: str, where: str) -> list[Node]:
        entries = toml.read(text, where)
        with self.transaction() as edit:
            return write_entries(edit, entries, where)

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

    def rebuild_index(self) -> None:
        """Build the full-text index anew from the nodes."""
        with self.database.write() as sql:
            sql.execute("INSERT INTO words(words) VALUES ('rebuild')")
            sql.execute("DELETE FROM unindexed")

    def drop_lost_vectors(self) -> int:
        """Take out the vectors that belong to no node; gives how many they were."""
        with self.database.write() as sql:
            return drop_lost_vectors(sql)

    def rehash(self) -> list[str]:
        """Compute the hash of nodes that were changed past this program anew; gives their ids.

        Raises DamagedError where SQLite gives up.
        """
        with self.database.write() as sql:
            return rehash(sql)

    def distrust_files(self) -> None:
        """Let every file be read anew at the next sync, as if its importer had changed."""
        with self.database.write() as sql:
            sql.execute("UPDATE files SET parser = 0")
