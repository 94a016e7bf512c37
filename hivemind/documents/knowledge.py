"""Synchronise the files of knowledge/ and of tasks with documents; search the files and cite them by line and digest."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hivemind.documents import tree
from hivemind.documents.citation import Citation, Verdict
from hivemind.documents.docmem import Docmem
from hivemind.documents.edit import Edit
from hivemind.documents.files import (
    MISSING_DIGEST,
    Stamp,
    files_with_digest,
    find_file,
    forget_file,
    has_digest,
    known_files,
    record_skipped,
    store_document,
)
from hivemind.documents.formats import Outline, read_outline
from hivemind.documents.node import (
    DamagedError,
    MissingLibraryError,
    Node,
    NodeNotFoundError,
    UnwritableError,
    is_utf8,
    uncitable_error,
)
from hivemind.documents.passages import Passage, passage_text, read_parts
from hivemind.documents.tree import node_at, split_reference
from hivemind.documents.verification import read_file, verify
from hivemind.documents.wrong_quotes import WrongQuote, read_wrong_quotes
from hivemind.errors import UserError, remedy_of
from hivemind.frozen import frozen
from hivemind.fs import DeadlyInputs, Lock, resolve_inside
from hivemind.fs.backup import restore
from hivemind.fs.leftovers import is_leftover
from hivemind.fs.trees import is_too_deep
from hivemind.layout import Layout, template_folder
from hivemind.search import Confidence

_BATCH_NODES = 2_000  # nodes written per transaction: a commit per small file would take most of the time
SHIPPED = Path(__file__).with_name("shipped_digests.txt")
"""The beginnings of the SHA-256 digests of all files that any version of `hivemind init` has written into knowledge/."""
_DIGEST_CHARS = 16
AS_SHIPPED = "is as `hivemind init` wrote it, so it is not searched: hivemind help QUESTION asks the manual"
_BEST_HITS = 3  # an answer has at most so many quotes
_HITS_PER_WRONG_QUOTE = 3  # a wrong quote may be in several passages: of other formats, or cut elsewhere
_MIN_REPORTED_BYTES = 1_000_000  # the progress of smaller imports is not reported


@dataclass(slots=True)
class SyncReport:
    """The result of a sync: the paths of the files by what happened to them. `skipped` maps a path to the reason why it
    is skipped."""

    imported: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unchanged: int = 0


_ChangedFiles = list[tuple[str, Stamp]]


@frozen
class _ReadFile:
    """A file that was read: its outline, or the reason why there is none."""

    key: str
    stamp: Stamp
    digest: str
    outline: Outline | str


class KnowledgeSync:
    """A run of the synchronisation. `progress` is called with descriptions of the work in progress."""

    def __init__(
        self, docmem: Docmem, layout: Layout, roots: Sequence[Path], progress: Callable[[str], None] | None = None
    ) -> None:
        self._docmem, self._layout, self._roots = docmem, layout, roots
        self._progress = progress or _log.info
        self._deadly_inputs = DeadlyInputs(layout.reading, read_only=layout.read_only)
        self._report = SyncReport()

    def run(self, tops: Sequence[Path]) -> SyncReport:
        """Import the changed files at or below `tops`, and remove the documents of deleted files."""
        changed_files, removed_keys = self._find_changes(tops)
        if not changed_files and not removed_keys:
            return self._report
        try:
            with self._sync_lock():
                self._report = SyncReport()
                # again: another process may have done the work while this one waited
                self._read_changes(*self._find_changes(tops))
        except UnwritableError:
            if removed_keys or not self._have_same_content(changed_files):
                raise
        return self._report

    def _have_same_content(self, changed_files: _ChangedFiles) -> bool:
        """Return True if each file has the recorded digest. Just after a change, a file's size and times do not prove this."""
        with self._docmem.database.read() as sql:
            stored_files = [(key, find_file(sql, key)) for key, _ in changed_files]
        try:
            return all(
                stored is not None
                and stored.digest == hashlib.sha256(read_file(key, self._layout, self._roots)[0]).hexdigest()
                for key, stored in stored_files
            )
        except (OSError, UserError):
            return False

    def forget_gone(self) -> list[str]:
        """Remove the documents of all synchronised files that no longer exist; return the files' paths."""
        with self._docmem.database.read() as sql:
            rows = sql.execute("SELECT path FROM files WHERE kept AND digest <> ?", (MISSING_DIGEST,)).fetchall()
        for (key,) in rows:
            if not os.path.lexists(os.path.join(self._layout.root, key)):
                self._forget(key)
        return self._report.removed

    def _find_changes(self, tops: Sequence[Path]) -> tuple[_ChangedFiles, list[str]]:
        """Return the files that may have changed, and the paths of deleted files."""
        changed_files, removed_keys, report = _ChangedFiles(), list[str](), self._report
        for top in tops:
            name = self._layout.relative(top)
            with self._docmem.database.read() as sql:
                stored_files = known_files(sql, name) if is_utf8(name) else {}
            lessons = f"{self._layout.relative(self._layout.lessons)}/"
            for path, status in files_below(top, links=True):
                key = self._layout.relative(path)
                if stat.S_ISLNK(status.st_mode):
                    report.skipped[key] = f"{key} is a link, which is not followed: copy what it leads to"
                    continue
                if key.startswith(lessons):  # they have their own gate
                    continue
                if not is_utf8(key):
                    report.skipped[key] = str(uncitable_error(key))
                    continue
                stored = stored_files.pop(key, None)
                if stored is None or not stored.is_unchanged(status):
                    changed_files.append((key, Stamp.of(status)))
                    continue
                report.unchanged += 1
                if stored.note:
                    report.skipped[key] = stored.note
            removed_keys += [key for key, old in stored_files.items() if not old.is_gone]
        return changed_files, removed_keys

    @contextmanager
    def _sync_lock(self) -> Iterator[None]:
        """Hold a lock: only one process imports at a time, since others would do the same work in vain."""
        path = self._docmem.database.path
        if path == ":memory:":
            yield
            return
        lock = Lock(path + ".sync")
        try:
            if not lock.acquire(wait=False):
                self._progress("waiting for another process that is importing knowledge/")
                lock.acquire()
        except OSError as error:
            message = f"cannot be updated ({error.strerror})"
            raise UnwritableError(message, location=path, remedy=remedy_of(error)) from error
        try:
            yield
        finally:
            lock.release()

    def _read_changes(self, changed_files: _ChangedFiles, removed_keys: Iterable[str]) -> None:
        total_bytes, done_bytes = sum(stamp.size for _, stamp in changed_files), 0
        batch: list[_ReadFile] = []
        for at, (key, stamp) in enumerate(changed_files, 1):
            if total_bytes >= _MIN_REPORTED_BYTES and not batch:
                self._progress(
                    f"importing files: {at} of {len(changed_files)}, {done_bytes // 10**6} of {total_bytes // 10**6} MB"
                )
            done_bytes += stamp.size
            if (read := self._read(key, stamp)) is not None:
                batch.append(read)
            if (
                sum(1 if isinstance(file.outline, str) else 1 + len(file.outline.pieces) for file in batch)
                >= _BATCH_NODES
            ):
                self._store_batch(batch)
                batch = []
        self._store_batch(batch)
        for key in removed_keys:
            self._forget(key)

    def _read(self, key: str, stamp: Stamp) -> _ReadFile | None:
        """Read a file and its outline. Return None if it could not be read now and the next sync should try again."""
        try:
            raw, status = read_file(key, self._layout, self._roots)
            stamp, digest = Stamp.of(status), hashlib.sha256(raw).hexdigest()
            if is_as_shipped(self._layout, key, digest):
                self._report.skipped[key] = f"{key} {AS_SHIPPED}"
                return _ReadFile(key, stamp, "", self._report.skipped[key])
            with self._deadly_inputs.reading("document", key, digest):
                outline = read_outline(raw, key, self._docmem.count)
        except MissingLibraryError as error:
            self._report.skipped[key] = str(error)  # not recorded: the library may be installed before the next sync
            return None
        except UserError as error:
            self._report.skipped[key] = str(error)
            return _ReadFile(key, stamp, "", str(error))
        except OSError as error:
            self._report.skipped[key] = f"{key}: cannot be read ({error.strerror})"
            return None
        if outline.note:
            self._report.skipped[key] = outline.note
        return _ReadFile(key, stamp, digest, outline)

    def _store_batch(self, batch: Sequence[_ReadFile]) -> None:
        if not batch:
            return
        report = self._report
        with self._docmem.transaction() as edit:
            for file in batch:
                if isinstance(file.outline, str):
                    record_skipped(edit, file.key, file.stamp, file.outline)
                    continue
                self._follow_rename(edit, file.key, file.digest)
                _, outcome = store_document(edit, file.key, file.outline, file.stamp, file.digest, is_synced=True)
                if outcome == "unchanged":
                    report.unchanged += 1
                else:
                    (report.imported if outcome == "imported" else report.changed).append(file.key)

    def _follow_rename(self, edit: Edit, key: str, digest: str) -> None:
        """If a deleted file had the same content as a new file (a rename), give the deleted file's document to the new file."""
        if find_file(edit.sql, key) is None:
            for known_file in files_with_digest(edit.sql, digest):
                if not os.path.lexists(os.path.join(self._layout.root, known_file.path)):
                    edit.sql.execute("UPDATE files SET path = ? WHERE id = ?", (key, known_file.number))
                    return

    def _forget(self, key: str) -> None:
        with self._docmem.transaction() as edit:
            known_file = find_file(edit.sql, key)  # another process may have renamed or forgotten it
            if known_file is None or known_file.is_gone or os.path.lexists(os.path.join(self._layout.root, key)):
                return
            forget_file(edit, known_file)
        self._report.removed.append(key)


def is_as_shipped(layout: Layout, key: str, digest: str) -> bool:
    """Return True if `hivemind init` wrote the file `key` and nobody has changed it. If so, the file does not count as knowledge.

    Return False for all files of the program's own folder: they are the manual.
    """
    names = [layout.relative(layout.knowledge / name) for name in ("README.md", "manual")]
    is_template_name = key == names[0] or key.startswith(names[1] + "/")
    if not is_template_name or layout.root == template_folder():
        return False
    return digest[:_DIGEST_CHARS].encode() in SHIPPED.read_bytes().split()


def files_below(top: str | os.PathLike[str], *, links: bool = False) -> Iterator[tuple[str, os.stat_result]]:
    """Yield (path, stat) of each regular file at or below `top`, sorted. Skip hidden and temporary files. With `links`,
    also yield symbolic links themselves; links are never followed."""
    try:
        status = os.stat(top, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not os.path.isdir(top):
        yield os.fspath(top), status
        return
    folders = [os.fspath(top)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            sorted_entries = sorted(entries, key=lambda entry: entry.name)
        for entry in sorted_entries:
            if is_leftover(entry.name) or entry.name.endswith(".lock"):
                continue
            if entry.is_file(follow_symlinks=False) or (links and entry.is_symlink()):
                yield entry.path, entry.stat(follow_symlinks=False)
        folders += [
            entry.path
            for entry in reversed(sorted_entries)
            if entry.is_dir(follow_symlinks=False)
            and not entry.name.startswith(".")
            and not is_too_deep(entry.path, top)
        ]


_BEGINNINGS = (
    "SELECT n.seq FROM files f JOIN places p ON p.file_id = f.id JOIN nodes n ON n.id = p.node_id"
    " WHERE p.leads = 1 AND f.path IN (SELECT value FROM json_each(?)) ORDER BY f.path, p.number LIMIT ?"
)
_BEGINNING = Confidence(0.0, "is at the beginning of its file")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Knowledge:
    """The searchable files of a hive: those in knowledge/, and other files of the hive or of the folders `roots`.

    Files outside knowledge/ are searchable once they were passed to `sync`.
    """

    def __init__(self, docmem: Docmem, layout: Layout, *, roots: Iterable[Path] = ()) -> None:
        self.docmem = docmem
        self.layout = layout
        self.roots = tuple(Path(os.path.realpath(root)) for root in roots)

    def sync(
        self, extra: Iterable[str | os.PathLike[str]] = (), *, progress: Callable[[str], None] | None = None
    ) -> SyncReport:
        """Update the documents of knowledge/ and of the files or folders `extra` (for example a task's folder).

        An unchanged file costs one stat. One process at a time imports; others wait. `progress` is called with
        descriptions of what is being done. The report has the reasons for skipped files. Raises OutsideError for an
        `extra` that is neither in the hive nor in `roots`.
        """
        tops = [resolve_inside(top, self.layout.root, self.roots) for top in (self.layout.knowledge, *extra)]
        return self._with_repair(lambda: KnowledgeSync(self.docmem, self.layout, self.roots, progress).run(tops))

    def _with_repair(self, operation: Callable[[], _T], tops: Sequence[Path] = ()) -> _T:
        """Call `operation`. If the database is damaged, restore it, sync `tops` and call `operation` again.

        A damaged database must not stop the searches of all agents.
        """
        try:
            return operation()
        except (DamagedError, LookupError, TypeError, ValueError) as error:  # the last three: an invalid row
            repairs = self.restore()
            if not repairs:
                raise
            _log.warning("%s", error)
            for repair in repairs:
                _log.warning("%s", repair)
            KnowledgeSync(self.docmem, self.layout, self.roots).run(tops)
            return operation()

    def restore(self, progress: Callable[[str], None] = _log.info) -> list[str]:
        """Restore the database if it is damaged (see `fs.backup.restore`). Return the actions taken; [] if it was not damaged.

        After a restore, the next sync reads all files again.
        """
        repairs = restore(self.docmem, self.layout.backups, self.layout.aside, progress)
        if repairs:
            self.docmem.rebuild()
        return repairs

    def forget_gone(self) -> list[str]:
        """Remove the documents of all synchronised files that no longer exist; return the files' paths."""
        return KnowledgeSync(self.docmem, self.layout, self.roots).forget_gone()

    def search(
        self,
        query: str,
        limit: int = 8,
        scope: Sequence[str | os.PathLike[str]] | None = None,
        *,
        context: str = "",
        without: Collection[str] = (),
    ) -> list[Passage]:
        """Return the passages that answer a question best, best first; if none answers, the nearest as weak ones.

        `scope` limits the search to files or folders (default: knowledge/). Files are searched with their content at
        the last sync. The query may contain any characters. Words of `context` count half. The files `without` are not
        searched. A quote that a person has called wrong is left out.
        """
        return self.search_completely(query, limit, scope, context=context, without=without)[0]

    def search_completely(
        self,
        query: str,
        limit: int,
        scope: Sequence[str | os.PathLike[str]] | None = None,
        *,
        context: str = "",
        without: Collection[str] = (),
    ) -> tuple[list[Passage], bool]:
        """Search as `search` does. Return the passages, and True if one of the best was left out because a person
        called it wrong."""
        scope_paths = [self.layout.knowledge] if scope is None else scope
        tops = [Path(os.path.realpath(os.path.join(self.layout.root, top))) for top in scope_paths]
        keys = [name for name in map(self.layout.relative, tops) if is_utf8(name)]  # others have no document
        wrong_quotes = self._wrong_quotes()
        max_hits = limit + _HITS_PER_WRONG_QUOTE * len(wrong_quotes)
        passages = self._with_repair(lambda: self.docmem.passages(query, max_hits, keys, context, without), tops)
        wrong_passages = [passage for passage in passages if any(quote.is_in(passage) for quote in wrong_quotes)]
        is_left_out = any(passage in wrong_passages for passage in passages[:_BEST_HITS])
        return [passage for passage in passages if passage not in wrong_passages][:limit], is_left_out

    def beginnings(self, paths: Iterable[Path], limit: int) -> list[Passage]:
        """Return the first passages of files, as of their last sync, as weak ones."""
        keys = [key for key in map(self.layout.relative, paths) if is_utf8(key)]
        with self.docmem.database.read() as sql:
            leads = [seq for (seq,) in sql.execute(_BEGINNINGS, (json.dumps(keys), limit))]
            return [part.to_passage(0.0, "", _BEGINNING) for part in read_parts(sql, leads).values()]

    def _wrong_quotes(self) -> list[WrongQuote]:
        """Return the quotes that a person has called wrong, if a file still has the same content, perhaps under another path."""
        try:
            wrong_quotes = read_wrong_quotes(self.layout)
        except UserError as error:  # a person's slip must not stop all answers
            _log.warning("%s", error)
            return []
        if not wrong_quotes:
            return []
        with self.docmem.database.read() as sql:
            return [quote for quote in wrong_quotes if has_digest(sql, quote.digest)]

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each file of knowledge/ at the last sync, by its path in the hive."""
        with self.docmem.database.read() as sql:
            files = known_files(sql, self.layout.relative(self.layout.knowledge))
        return {path: file.stamp.size for path, file in files.items()}

    def passage_at(self, node_id: str) -> str:
        """Return the text of the passage that contains the node. Raises NodeNotFoundError."""
        with self.docmem.database.read() as sql:
            return passage_text(sql, tree.get(sql, node_id).id)

    def locate(self, reference: str) -> Node:
        """Return the node with the id `reference`, or at the place `path:line`. Raises NodeNotFoundError.

        The path may be relative to the hive or to the current folder. For a `path` alone, return the document's root.
        """
        path, line = split_reference(reference)
        hive_path = os.path.realpath(os.path.join(self.layout.root, path))
        local_path = os.path.realpath(path)
        names = (path, self.layout.relative(hive_path), self.layout.relative(local_path), local_path)
        with self.docmem.database.read() as sql:
            node = tree.find(sql, reference)
            for name in dict.fromkeys(names):
                if node is None and (node_id := node_at(sql, name, line)) is not None:
                    node = tree.find(sql, node_id)
        if node is None:
            raise NodeNotFoundError(reference)
        return node

    def is_among(self, node_id: str, scope: Sequence[str | os.PathLike[str]]) -> bool:
        """Return True if the node's file is at or below a path in `scope`, or if the node has no file in the hive."""
        source = self.docmem.source(self.docmem.root_of(node_id).id)
        if source is None or os.path.isabs(source.path):
            return True
        tops = (self.layout.relative(os.path.realpath(os.path.join(self.layout.root, top))) for top in scope)
        return any(source.path == top or source.path.startswith(top + "/") for top in tops)

    def verify(self, passage: Citation | Passage) -> Verdict:
        """Check that the file contains the quote at the cited lines."""
        return verify(passage, self.layout, self.roots)
