"""The knowledge folder (and a task's files) as documents: kept in line with the files, searched, quoted with line and digest."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hivemind.documents import tree
from hivemind.documents.citation import Citation, Verdict
from hivemind.documents.docmem import Docmem
from hivemind.documents.edit import Edit
from hivemind.documents.files import (
    GONE,
    Stamp,
    files_like,
    find_file,
    forget,
    known_files,
    note_skipped,
    rename,
    take_in,
)
from hivemind.documents.formats import Outline, read_outline
from hivemind.documents.node import (
    DamagedError,
    MissingLibraryError,
    Node,
    NodeNotFoundError,
    UnwritableError,
    is_utf8,
    uncitable,
)
from hivemind.documents.passages import Passage, passage_text, read_file, verify
from hivemind.documents.tree import node_at, root_source, split_reference
from hivemind.errors import UserError, mend_of
from hivemind.frozen import frozen
from hivemind.fs import CrashCount, Lock, inside
from hivemind.fs.backup import restore
from hivemind.fs.trees import is_too_deep
from hivemind.layout import Layout

_NO_KNOWLEDGE = ("~", ".swp", ".tmp", ".part", ".lock")
_NODES_AT_ONCE = 2_000  # that are written in one transaction: a commit for each small file would be most of the time
_WORTH_TELLING = 1_000_000  # bytes


@dataclass(slots=True)
class SyncReport:
    """What a sync found: paths as they are cited. `skipped` says why a file is not searched."""

    imported: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unchanged: int = 0


_Changed = list[tuple[str, Stamp]]


@frozen
class _Read:
    """A file that was read: its outline, or why there is none."""

    key: str
    stamp: Stamp
    digest: str
    outline: Outline | str


class Sync:
    """One sync. `tell` is called with what is being done, now and then."""

    def __init__(
        self, docmem: Docmem, layout: Layout, roots: Sequence[Path], tell: Callable[[str], None] | None = None
    ) -> None:
        self._docmem, self._layout, self._roots = docmem, layout, roots
        self._tell = tell or _log.info
        self._crash_count = CrashCount(layout.reading, read_only=layout.read_only)
        self._report = SyncReport()

    def run(self, tops: Sequence[Path]) -> SyncReport:
        """Look, and if anything has changed read it in; gives what was found."""
        changed, gone = self._look(tops)
        if not changed and not gone:
            return self._report
        try:
            with self._turn():
                self._report = SyncReport()
                self._do(*self._look(tops))  # again: who had the turn before us may have done it
        except UnwritableError:
            if gone or not self._say_the_same(changed):
                raise
        return self._report

    def _say_the_same(self, changed: _Changed) -> bool:
        """Whether the files that may have changed have not: very young ones look so, and the look cannot be noted down."""
        with self._docmem.database.read() as sql:
            known = [(key, find_file(sql, key)) for key, _ in changed]
        try:
            return all(
                old is not None
                and old.digest == hashlib.sha256(read_file(key, self._layout, self._roots)[0]).hexdigest()
                for key, old in known
            )
        except (OSError, UserError):
            return False

    def forget_gone(self) -> list[str]:
        """Drop the documents of files beside knowledge/ that are no longer there: a task's, once it is done."""
        with self._docmem.database.read() as sql:
            rows = sql.execute("SELECT path FROM files WHERE kept AND digest <> ?", (GONE,)).fetchall()
        for (key,) in rows:
            if not os.path.lexists(os.path.join(self._layout.root, key)):
                self._forget(key)
        return self._report.removed

    def _look(self, tops: Sequence[Path]) -> tuple[_Changed, list[str]]:
        """The files that look other than they were known, and the names of those that are gone."""
        changed, gone, report = _Changed(), list[str](), self._report
        for top in tops:
            name = self._layout.relative(top)
            with self._docmem.database.read() as sql:
                known = known_files(sql, name) if is_utf8(name) else {}
            for path, found in files_below(top):
                key = self._layout.relative(path)
                if not is_utf8(key):
                    report.skipped[key] = str(uncitable(key))
                    continue
                old = known.pop(key, None)
                if old is None or not old.is_unchanged(found):
                    changed.append((key, Stamp.of(found)))
                    continue
                report.unchanged += 1
                if old.note:
                    report.skipped[key] = old.note
            gone += [key for key, old in known.items() if not old.is_gone]
        return changed, gone

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Only one process reads files in: the others would do the same work, and then throw it away."""
        path = self._docmem.database.path
        if path == ":memory:":
            yield
            return
        lock = Lock(path + ".sync")
        try:
            if not lock.acquire(wait=False):
                self._tell("waiting for another process that is reading in knowledge/")
                lock.acquire()
        except OSError as error:
            what = f"cannot be brought up to date ({error.strerror})"
            raise UnwritableError(what, where=path, mend=mend_of(error)) from error
        try:
            yield
        finally:
            lock.release()

    def _do(self, changed: _Changed, gone: Iterable[str]) -> None:
        total, done = sum(stamp.size for _, stamp in changed), 0
        batch: list[_Read] = []
        for at, (key, stamp) in enumerate(changed, 1):
            if total >= _WORTH_TELLING and not batch:
                self._tell(f"reading in files: {at} of {len(changed)}, {done // 10**6} of {total // 10**6} MB")
            done += stamp.size
            if (read := self._read(key, stamp)) is not None:
                batch.append(read)
            if (
                sum(1 if isinstance(one.outline, str) else 1 + len(one.outline.pieces) for one in batch)
                >= _NODES_AT_ONCE
            ):
                self._take_in(batch)
                batch = []
        self._take_in(batch)
        for key in gone:
            self._forget(key)

    def _read(self, key: str, stamp: Stamp) -> _Read | None:
        """What is to be written about a file; None if nothing is."""
        try:
            raw, found = read_file(key, self._layout, self._roots)
            stamp, digest = Stamp.of(found), hashlib.sha256(raw).hexdigest()
            with self._crash_count.reading("document", key, digest):
                outline = read_outline(raw, key, self._docmem.count)
        except MissingLibraryError as error:
            self._report.skipped[key] = str(error)  # and not remembered: it may be installed before the next sync
            return None
        except UserError as error:
            self._report.skipped[key] = str(error)
            return _Read(key, stamp, "", str(error))
        except OSError as error:
            self._report.skipped[key] = f"{key}: cannot be read ({error.strerror})"
            return None
        if outline.note:
            self._report.skipped[key] = outline.note
        return _Read(key, stamp, digest, outline)

    def _take_in(self, batch: Sequence[_Read]) -> None:
        if not batch:
            return
        report = self._report
        with self._docmem.transaction() as edit:
            for one in batch:
                if isinstance(one.outline, str):
                    note_skipped(edit, one.key, one.stamp, one.outline)
                    continue
                self._follow_rename(edit, one.key, one.digest)
                _, taken = take_in(edit, one.key, one.outline, one.stamp, one.digest, kept=True)
                if taken == "unchanged":
                    report.unchanged += 1
                else:
                    (report.imported if taken == "imported" else report.changed).append(one.key)

    def _follow_rename(self, edit: Edit, key: str, digest: str) -> None:
        """A new file that is what another was, which is gone: that document goes on under the new name."""
        if find_file(edit.sql, key) is None:
            for old in files_like(edit.sql, digest):
                if not os.path.lexists(os.path.join(self._layout.root, old.path)):
                    rename(edit, old, key)
                    return

    def _forget(self, key: str) -> None:
        with self._docmem.transaction() as edit:
            old = find_file(edit.sql, key)  # it may have been renamed or forgotten meanwhile
            if old is None or old.is_gone or os.path.lexists(os.path.join(self._layout.root, key)):
                return
            forget(edit, old)
        self._report.removed.append(key)


def files_below(top: str | os.PathLike[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file at or below `top` that may be knowledge, in order; links and dot files are left alone."""
    try:
        found = os.stat(top, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not os.path.isdir(top):
        yield os.fspath(top), found
        return
    folders = [os.fspath(top)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            if entry.name.startswith(".") or entry.name.endswith(_NO_KNOWLEDGE):
                continue
            if entry.is_file(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False)
        folders += [
            entry.path
            for entry in reversed(ordered)
            if entry.is_dir(follow_symlinks=False)
            and not entry.name.startswith(".")
            and not is_too_deep(entry.path, top)
        ]


_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Knowledge:
    """Passages of knowledge/** and of other text files in a hive. `roots` are folders outside that may be read too."""

    def __init__(self, docmem: Docmem, layout: Layout, *, roots: Iterable[Path] = ()) -> None:
        self.docmem = docmem
        self.layout = layout
        self.roots = tuple(Path(os.path.realpath(root)) for root in roots)

    def sync(
        self, extra: Iterable[str | os.PathLike[str]] = (), *, tell: Callable[[str], None] | None = None
    ) -> SyncReport:
        """Bring the documents in line with knowledge/ and with the files or folders in `extra` (a task's folder).

        An unchanged file costs one stat. What has changed is read in by one process at a time; the others wait, and then
        find it done. `tell` is called with what is being done. A file that is no text is skipped, with the reason. Raises
        OutsideError for an `extra` that lies neither in the hive nor in the roots.
        """
        tops = [inside(top, self.layout.root, self.roots) for top in (self.layout.knowledge, *extra)]
        return self._soundly(lambda: Sync(self.docmem, self.layout, self.roots, tell).run(tops))

    def _soundly(self, use: Callable[[], _T], tops: Sequence[Path] = ()) -> _T:
        """What `use` returns; a damaged database is restored first, and the files at `tops` read in again.

        It must not stop every question of every agent.
        """
        try:
            return use()
        except (DamagedError, LookupError, TypeError, ValueError) as error:  # the latter: a row that makes no sense
            found = self.restore()
            if not found:
                raise
            _log.warning("%s", error)
            for done in found:
                _log.warning("%s", done)
            Sync(self.docmem, self.layout, self.roots).run(tops)
            return use()

    def restore(self, tell: Callable[[str], None] = _log.info) -> list[str]:
        """Make the database sound again (see `fs.backup.restore`); returns what was done, nothing if it was sound. The next
        sync reads files in anew."""
        done = restore(self.docmem, self.layout.backups, self.layout.aside, tell)
        if done:
            self.docmem.rebuild()
        return done

    def forget_gone(self) -> list[str]:
        """Drop the documents of files that are no longer there (a task's, once it is done); gives their names."""
        return Sync(self.docmem, self.layout, self.roots).forget_gone()

    def search(
        self, query: str, limit: int = 8, scope: Sequence[str | os.PathLike[str]] | None = None, *, context: str = ""
    ) -> list[Passage]:
        """The passages that answer a question best, best first; none where nothing is relevant.

        `scope` names the files or folders to look in (as given to sync); without it, knowledge/. The query may hold
        any characters. The words of its `context` count half. Searches what the last sync took in.
        """
        named = [self.layout.knowledge] if scope is None else scope
        tops = [Path(os.path.realpath(os.path.join(self.layout.root, top))) for top in named]
        keys = [name for name in map(self.layout.relative, tops) if is_utf8(name)]  # another names no document
        return self._soundly(lambda: self.docmem.passages(query, limit, keys, context), tops)

    def passage_at(self, node_id: str) -> str:
        """The text of the passage that begins with a node, as `search` gave it. Raises NodeNotFoundError."""
        with self.docmem.database.read() as sql:
            return passage_text(sql, tree.get(sql, node_id).id)

    def locate(self, reference: str) -> Node:
        """The node that is meant by an id, or by `path` or `path:line` as citations have it. Raises NodeNotFoundError.

        A path may be relative to the hive or to the current folder; without a line it means the document's root.
        """
        path, line = split_reference(reference)
        below = os.path.realpath(os.path.join(self.layout.root, path))
        here = os.path.realpath(path)
        names = (path, self.layout.relative(below), self.layout.relative(here), here)
        with self.docmem.database.read() as sql:
            found = tree.find(sql, reference)
            for name in dict.fromkeys(names):
                if found is None and (node_id := node_at(sql, name, line)) is not None:
                    found = tree.find(sql, node_id)
        if found is None:
            raise NodeNotFoundError(reference)
        return found

    def is_among(self, node_id: str, scope: Sequence[str | os.PathLike[str]]) -> bool:
        """Whether the node is of a file at or below those of `scope`, or its document came from none in the hive."""
        with self.docmem.database.read() as sql:
            source = root_source(sql, node_id)
        if source is None or os.path.isabs(source):
            return True
        tops = (self.layout.relative(os.path.realpath(os.path.join(self.layout.root, top))) for top in scope)
        return any(source == top or source.startswith(top + "/") for top in tops)

    def verify(self, passage: Citation | Passage) -> Verdict:
        """Whether the quote stands where it is said to stand, in the file as it is now."""
        return verify(passage, self.layout, self.roots)
