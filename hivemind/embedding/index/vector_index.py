"""`VectorIndex`: the one index that documents, graph and long-term memory search with. Nothing is ever built.

In files it is a cache beside a database: any process brings it up to date, all map the same pages. What the files say is
believed only within the boot of the machine that wrote them (no fsync is spent on a cache) and for the same source.
"""

from __future__ import annotations

import os
import secrets
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from hivemind.boundary import boundary
from hivemind.embedding.index.columns import KEY, Columns, FileColumns, MemoryColumns, sums
from hivemind.embedding.index.engines import Near, bits_of, living, nearest, places_of
from hivemind.embedding.index.header import Header, State
from hivemind.embedding.packed import pack
from hivemind.fs import Lock, reached

__all__ = ["Change", "VectorIndex"]

EXACT_TO = 8_000  # rows that are all compared: a few milliseconds
_KIND = "index of vectors"
_TRIES = 5  # a header may name files that its successor has removed by now

Change = tuple[int, int, bytes | None]
"""(key >= 0, group, packed vector), or None in place of the vector: there is no such row any more."""


class VectorIndex:
    """The vectors of one source, each with a key and a group; `search` looks at all groups or at some.

    `source` says what the vectors are of (a database and a model): an index of another source is begun anew. `seen` is
    the number of the last change of the source that is in here; whoever finds it too low gives the rest to `apply`.
    Without a `folder` it lives in memory. Safe for threads, processes and forks.
    """

    def __init__(
        self,
        dimension: int,
        *,
        folder: str | os.PathLike[str] | None = None,
        source: str = "",
        exact_to: int = EXACT_TO,
    ) -> None:
        self.dimension = dimension
        self._exact_to = exact_to
        self._folder = None if folder is None else os.fspath(folder)
        self._header = None if self._folder is None else Header(self._folder, f"{source} {dimension} {_boot()}")
        self._guard = threading.RLock()
        self._state = State("", 0, 0, 0)
        self._columns: Columns = MemoryColumns(dimension)

    def __len__(self) -> int:
        with self._guard, boundary(_KIND, self._folder):
            self._refresh()
            return living(self._columns.view(self._state.count))

    @property
    def seen(self) -> int:
        """The number of the last change that is in the index; 0 for a new one."""
        with self._guard:
            self._refresh()
            return self._state.seen

    def put(self, key: int, vector: Sequence[float], group: int = 0) -> None:
        """Add a vector, or replace the one of that key. Raises ValueError for one that `pack` refuses."""
        self.apply([(key, group, pack(vector, self.dimension))])

    def remove(self, key: int) -> None:
        """Take a vector out; one that is not there is no error."""
        self.apply([(key, 0, None)])

    def apply(self, changes: Iterable[Change], seen: int | None = None, *, since: int | None = None) -> bool:
        """Take changes in, in their order: all are searchable when this returns, and `seen` has the number given.

        With `since` nothing is done, and False returned, if the index is at another number by now: someone else was
        first. Raises ValueError for a key below 0 or a vector of another size; OSError, and then nothing has changed.
        """
        last = {key: (key, group, row) for key, group, row in changes}
        self._check(last.values())
        with self._writing():
            if since is not None and since != self._state.seen:
                return False
            self._take(last, self._state.seen if seen is None else seen)
        return True

    def clear(self) -> None:
        """Forget everything; `seen` is 0 again."""
        with self._writing():
            self._begin()

    def search(self, vector: Sequence[float], limit: int, *, groups: Collection[int] | None = None) -> list[Near]:
        """(key, cosine) of the nearest, best first, equal ones by key. Raises ValueError as `pack` does."""
        return self.search_packed(pack(vector, self.dimension), limit, groups=groups)

    def search_packed(self, query: bytes, limit: int, *, groups: Collection[int] | None = None) -> list[Near]:
        """The same for a vector that was packed."""
        with self._guard:
            self._refresh()
            view = self._columns.view(self._state.count)
        with boundary(_KIND, self._folder):
            return nearest(view, query, limit, groups, self._exact_to)

    def close(self) -> None:
        """Give the files back; the next use opens them again."""
        with self._guard:
            if self._header is not None:
                self._columns.close()
                self._header.close()
                self._state = State("", 0, 0, 0)

    def _check(self, changes: Iterable[Change]) -> None:
        for key, _, row in changes:
            if key < 0:
                raise ValueError(f"a key below 0: {key}")
            if row is not None and len(row) != 4 * self.dimension:
                raise ValueError(f"a vector of {len(row)} bytes, not of {4 * self.dimension}")

    def _take(self, changes: dict[int, Change], seen: int) -> None:
        state = self._state
        old = places_of(self._columns.view(state.count), changes.keys()) if state.count else []
        if state.dead + len(old) > max(1_000, state.count // 2):
            self._compact(set(old))
            state, old = self._state, []
        added = [(key, group, row) for key, group, row in changes.values() if row is not None]
        rows = [row for _, _, row in added]
        keys = b"".join(KEY.pack(key, group) for key, group, _ in added)
        bits, packed = bits_of(rows), b"".join(rows)
        self._columns.write(state.count, (keys, bits, packed))
        reached("embedding.index.written")
        self._columns.kill(old)
        reached("embedding.index.killed")  # a change whose number is not yet written is taken in again, to the same end
        count = state.count + len(added)
        keys_now = self._columns.view(count).keys[: count * KEY.size]
        now = (zlib.crc32(keys_now), zlib.crc32(bits, state.sums[1]), zlib.crc32(packed, state.sums[2]))
        self._save(State(state.files, count, state.dead + len(old), seen, now))

    def _compact(self, old: set[int]) -> None:
        """Begin new columns with the rows that still count."""
        view = self._columns.view(self._state.count)
        kept = [
            (key, group, bytes(view.rows[place * 4 * self.dimension : (place + 1) * 4 * self.dimension]))
            for place, (key, group) in enumerate(KEY.iter_unpack(view.keys[: view.count * KEY.size]))
            if key >= 0 and place not in old
        ]
        self._begin(kept, self._state.seen)

    def _begin(self, rows: Sequence[tuple[int, int, bytes]] = (), seen: int = 0) -> None:
        files = secrets.token_hex(4)
        columns: Columns = MemoryColumns(self.dimension)
        if self._header is not None:
            columns = FileColumns(self._header.stem(files), self.dimension, create=True)
        keys = b"".join(KEY.pack(key, group) for key, group, _ in rows)
        vectors = [row for _, _, row in rows]
        written = (keys, bits_of(vectors), b"".join(vectors))
        state = State(files, len(rows), 0, seen, (zlib.crc32(keys), zlib.crc32(written[1]), zlib.crc32(written[2])))
        try:
            columns.write(0, written)
            reached("embedding.index.begun")
            if self._header is not None:
                self._header.begin(state)
                self._header.sweep()
        except OSError:
            columns.close()
            raise
        self._columns.close()
        self._columns, self._state = columns, state

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Nobody else changes the index meanwhile, and what we know of it is as it is."""
        with self._guard, boundary(_KIND, self._folder):
            if self._folder is None:
                yield
                return
            os.makedirs(self._folder, exist_ok=True)
            with Lock(os.path.join(self._folder, "lock")):
                if not self._load():
                    self._begin()
                yield

    def _refresh(self) -> None:
        """Know what the index is now; begin it where there is none of our source."""
        if self._folder is not None and not self._load():
            with self._writing():
                pass

    def _load(self) -> bool:
        """Know what the header says now, and open its files. False if there is no index of our source."""
        assert self._header is not None
        for _ in range(_TRIES):
            state = self._header.read()
            if state is None:
                return False
            if state == self._state or self._open(state):
                self._state = state
                return True
            self._header.close()  # begun anew meanwhile?
        return False

    def _open(self, state: State) -> bool:
        """Use the files that a header names; False if they are gone, shorter than it says, or (looked at once) damaged."""
        assert self._header is not None
        try:
            if state.files != self._state.files:
                columns = FileColumns(self._header.stem(state.files), self.dimension)
                if sums(columns.view(state.count), self.dimension) != state.sums:
                    columns.close()
                    return False
                self._columns.close()
                self._columns = columns
            self._columns.view(state.count)
        except (FileNotFoundError, ValueError):
            return False
        return True

    def _save(self, state: State) -> None:
        if self._header is not None:
            self._header.write(state)
        self._state = state


@lru_cache(maxsize=1)
def _boot() -> str:
    """Which start of the machine this is: pages that were not written before it went down are not believed."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # no Linux: what a power cut left is believed
        return "-"
