"""`Meanings`: what queries and a store's own texts mean, by its embedder; what waits for a vector, and gets it (spec 9)."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from hivemind.embedding import INSTALL, Embedder, EmbedderUnavailable, TextVectors, embed_each, put_vectors
from hivemind.frozen import frozen
from hivemind.fs import reached
from hivemind.fs.database import Sql, Transactions
from hivemind.search.parts import keep_parts, meaning_asked, meanings
from hivemind.search.query import Query, without

_AT_ONCE = 64  # texts of one request, and of one transaction
_HURRIED = 8  # where somebody waits: the embedder is stopped when the time is up
_REFUSED_AT_ONCE = 16  # texts, each of which is asked for alone, unless all are to be embedded


@frozen(kw_only=True)
class Backlog:
    """The rows of a store that are to have a vector, of which some wait for it.

    `rows` is what a SELECT has from its FROM on, to the end of its WHERE, with the parameters `given`; `vectors v` is joined
    to its column `key`. `texts` returns what is embedded of some keys, `group` the group of a vector. `put` writes vectors,
    and `kept` is told of each key in the same transaction.
    """

    key: str
    rows: str
    texts: Callable[[Any, Sequence[int]], Mapping[int, str]]
    given: Sequence[object] = ()
    group: Callable[[int], int] = lambda _: 0
    newest_first: bool = False
    put: Callable[[Any, str, list[tuple[int, int, bytes]]], None] = put_vectors
    kept: Callable[[Any, int], object] = lambda *_: None

    def waiting(self, sql: Sql, model: str, dimension: int) -> int:
        """How many rows have no vector of the model."""
        rows, given = self._without(model, dimension)
        return int(sql.execute(f"SELECT count(*) {rows}", given).fetchone()[0])

    def following(
        self, sql: Sql, embedder: Embedder, after: int | None, most: int, among: Collection[int] | None
    ) -> list[int]:
        """The keys of those that follow the key `after` (None: the first), among some or all."""
        rows, given = self._without(embedder.name, embedder.dimension)
        if after is not None:
            rows, given = f"{rows} AND {self.key} {'<' if self.newest_first else '>'} ?", (*given, after)
        if among is not None:
            rows += f" AND {self.key} IN ({','.join(map(str, among))})"
        order = f"ORDER BY {self.key}{' DESC' if self.newest_first else ''} LIMIT ?"
        return [key for (key,) in sql.execute(f"SELECT {self.key} {rows} {order}", (*given, most))]

    def _without(self, model: str, dimension: int) -> tuple[str, tuple[object, ...]]:
        missing = "(v.key IS NULL OR v.model <> ? OR length(v.vector) <> ?)"
        return f"{self.rows} AND {missing}", (*self.given, model, 4 * dimension)


class Meanings:
    """The embedder of a store (None: words alone decide). `fine`: it is asked for the parts of texts where it knows them;
    `remembered`: of how many queries the meaning is kept."""

    lack: str | None = None
    """What hits say where there is no embedder,"""
    mend = INSTALL
    """and how to have one."""

    def __init__(self, embedder: Embedder | None, *, fine: bool = True, remembered: int = 0) -> None:
        self.embedder, self.fine = embedder, fine
        self._refused: set[bytes] = set()  # digests of texts that it does not take, though it takes others
        self._asked = lru_cache(remembered)(self._ask)

    def query(self, text: str, names: frozenset[str] = frozenset()) -> Query:
        """A query with its meaning, or why it has none; `names` are of who takes part."""
        about = without(text, names)
        if self.embedder is None or not about.strip():
            return Query(text, names, lack=self.lack if about.strip() else None)
        try:
            return Query(text, names, self.meaning(about), self.embedder.name)
        except EmbedderUnavailable as error:
            return Query(text, names, lack=error.what)

    def meaning(self, text: str) -> TextVectors:
        """What a text means that is asked. Raises EmbedderUnavailable."""
        return self._asked(text)

    def _ask(self, text: str) -> TextVectors:
        return meaning_asked(self.there(), text, fine=self.fine)

    def there(self) -> Embedder:
        """The embedder. Raises EmbedderUnavailable where there is none."""
        if self.embedder is None:
            raise EmbedderUnavailable("there is no embedder", mend=self.mend)
        return self.embedder

    def embed_waiting(
        self,
        database: Transactions[Any],
        backlog: Backlog,
        limit: int = sys.maxsize,
        *,
        among: Collection[int] | None = None,
        seconds: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Embed at most `limit` of what waits, `among` some keys or all; returns how many.

        Progress is in the database: a killed process loses one batch, and any other goes on. A text that the embedder refuses
        is passed over, and not asked for again by this process. With `seconds` it ends when they are over. Raises
        EmbedderUnavailable where it takes no text. Call it outside of any transaction.
        """
        if (embedder := self.embedder) is None:
            return 0
        done, after, before = 0, None, len(self._refused)
        patience = sys.maxsize if limit == sys.maxsize else _REFUSED_AT_ONCE
        end = None if seconds is None else time.monotonic() + seconds
        while done < limit and len(self._refused) - before < patience and (end is None or time.monotonic() < end):
            with database.read() as sql:
                size = min(_AT_ONCE if end is None else _HURRIED, limit - done)
                if not (keys := backlog.following(sql, embedder, after, size, among)):
                    break
                texts = backlog.texts(sql, keys)
            after = keys[-1]
            asked = {key: text for key, text in texts.items() if _digest(text) not in self._refused}
            found = embed_each(partial(meanings, embedder, fine=self.fine), [*asked.values()])
            known = {key: one for key, one in zip(asked, found, strict=True) if one is not None}
            self._refused |= {_digest(text) for key, text in asked.items() if key not in known}
            if known:
                self._keep(database, backlog, embedder.name, asked, known)
            done += len(known)
            if progress is not None:
                progress(done)
        return done

    @staticmethod
    def _keep(
        database: Transactions[Any],
        backlog: Backlog,
        model: str,
        asked: Mapping[int, str],
        known: Mapping[int, TextVectors],
    ) -> None:
        """Write the meanings of what says still what it said."""
        with database.write() as sql:
            now = backlog.texts(sql, [*known])
            for key, meaning in known.items():
                if now.get(key) == asked[key]:
                    backlog.put(sql, model, [(key, backlog.group(key), meaning.vector)])
                    keep_parts(sql, key, model, meaning.parts)
                    backlog.kept(sql, key)
        reached("search.embed.batch")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
