"""The knowledge folder (and a task's files) as documents: kept up to date, searched, quoted with line and digest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hivemind.documents.docmem import Docmem
from hivemind.documents.formats import read_outline
from hivemind.documents.importing import Stamp, import_outline
from hivemind.documents.passage import Citation, Passage, Verdict, read_file, verify
from hivemind.documents.retrieval import search
from hivemind.errors import UserError
from hivemind.fs import inside
from hivemind.layout import Layout

__all__ = ["Knowledge", "SyncReport"]

_YOUNG_NS = (
    2_000_000_000  # a file changed this shortly before it was read may change again within one tick of its clock
)
_NO_KNOWLEDGE = ("~", ".swp", ".tmp", ".part", ".lock")


@dataclass(slots=True)
class SyncReport:
    """What a sync found: paths as they are cited. `skipped` says why a file is not searched."""

    imported: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unchanged: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    stamp: Stamp
    digest: str
    root_id: str | None
    note: str | None

    def is_unchanged(self, found: os.stat_result) -> bool:
        mine = self.stamp
        same = (mine.size, mine.mtime_ns, mine.ctime_ns, mine.inode) == (
            found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino,
        )  # fmt: skip
        return same and abs(mine.seen_ns - max(found.st_mtime_ns, found.st_ctime_ns)) > _YOUNG_NS


class Knowledge:
    """Passages of knowledge/** and of other text files in a hive. `roots` are folders outside that may be read too."""

    def __init__(self, docmem: Docmem, layout: Layout, *, roots: Iterable[Path] = ()) -> None:
        self.docmem = docmem
        self.layout = layout
        self.roots = tuple(Path(os.path.realpath(root)) for root in roots)

    def sync(self, extra: Iterable[str | os.PathLike[str]] = ()) -> SyncReport:
        """Bring the documents in line with knowledge/ and with the files or folders in `extra` (a task's folder).

        An unchanged file costs one stat. A file that is no text is skipped, with the reason. Raises OutsideError for
        an `extra` that lies neither in the hive nor in the roots.
        """
        report = SyncReport()
        for top in (self.layout.knowledge, *extra):
            self._sync_one(inside(top, self.layout.root, self.roots), report)
        return report

    def _sync_one(self, top: Path, report: SyncReport) -> None:
        known = self._known(self.layout.relative(top))
        seen: set[str] = set()
        for path, found in _files(top):
            key = self.layout.relative(path)
            seen.add(key)
            old = known.get(key)
            if old is not None and old.is_unchanged(found):
                report.unchanged += 1
                if old.note:
                    report.skipped[key] = old.note
            else:
                self._take_in(key, report)
        for key in sorted(known.keys() - seen):
            with self.docmem.transaction() as edit:
                row = edit.sql.execute("DELETE FROM files WHERE path = ? RETURNING root_id", (key,)).fetchone()
                if row is not None and row[0] is not None:
                    self.docmem.delete(row[0])
            report.removed.append(key)

    def _known(self, top: str) -> dict[str, _Known]:
        with self.docmem.database.read() as sql:
            rows = sql.execute(
                "SELECT path, size, mtime_ns, ctime_ns, inode, seen_ns, digest, root_id, note FROM files"
                " WHERE kept AND (path = ? OR (path >= ? AND path < ?))",
                (top, top + "/", top + "0"),  # "0" follows "/"
            )
            return {row[0]: _Known(Stamp(*row[1:6]), *row[6:]) for row in rows}

    def _take_in(self, key: str, report: SyncReport) -> None:
        try:
            raw, found = read_file(key, self.layout, self.roots)
            stamp, digest = Stamp.of(found), hashlib.sha256(raw).hexdigest()
            outline = read_outline(raw, key, self.docmem.count)
        except (UserError, OSError) as error:
            report.skipped[key] = str(error)
            return
        with self.docmem.transaction() as edit:
            row = edit.sql.execute("SELECT digest, root_id FROM files WHERE path = ?", (key,)).fetchone()
            if row is not None and row[0] == digest and row[1] is not None:
                edit.sql.execute(
                    "UPDATE files SET size = ?, mtime_ns = ?, ctime_ns = ?, inode = ?, seen_ns = ? WHERE path = ?",
                    (stamp.size, stamp.mtime_ns, stamp.ctime_ns, stamp.inode, stamp.seen_ns, key),
                )
                report.unchanged += 1
                return
            if row is not None and row[1] is not None:
                self.docmem.delete(row[1])
            import_outline(edit, outline, key, stamp, digest, kept=True)
        (report.imported if row is None else report.changed).append(key)

    def search(
        self, query: str, limit: int = 8, scope: Sequence[str | os.PathLike[str]] | None = None
    ) -> list[Passage]:
        """The passages that answer a question best, best first; none where nothing is relevant.

        `scope` names the files or folders to look in (as given to sync); without it, knowledge/. The query may hold
        any characters. Searches what the last sync took in.
        """
        tops = (
            [self.layout.knowledge] if scope is None else [Path(os.path.join(self.layout.root, top)) for top in scope]
        )
        keys = [self.layout.relative(os.path.realpath(top)) for top in tops]
        with self.docmem.database.read() as sql:
            return search(sql, query, limit, keys, self.docmem.words)

    def verify(self, passage: Citation) -> Verdict:
        """Whether the quote stands where it is said to stand, in the file as it is now."""
        return verify(passage, self.layout, self.roots)


def _files(top: Path) -> Iterator[tuple[str, os.stat_result]]:
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
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        ]
