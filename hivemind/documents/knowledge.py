"""The knowledge folder (and a task's files) as documents: kept up to date, searched, quoted with line and digest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hivemind.documents import tree
from hivemind.documents.docmem import Docmem
from hivemind.documents.edit import Edit
from hivemind.documents.errors import MissingLibraryError, NodeNotFoundError
from hivemind.documents.files import Stamp, files_like, find_file, forget, known_files, note_skipped, rename, take_in
from hivemind.documents.formats import read_outline
from hivemind.documents.lookup import node_at, split_reference
from hivemind.documents.node import Node
from hivemind.documents.passage import Citation, Passage, Verdict, read_file, verify
from hivemind.documents.retrieval import search
from hivemind.documents.sources import root_source
from hivemind.errors import UserError
from hivemind.fs import inside
from hivemind.layout import Layout

__all__ = ["Knowledge", "SyncReport", "files_below"]

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
        with self.docmem.database.read() as sql:
            known = known_files(sql, self.layout.relative(top))
        for path, found in files_below(top):
            key = self.layout.relative(path)
            old = known.pop(key, None)
            if old is not None and old.is_unchanged(found):
                report.unchanged += 1
                if old.note:
                    report.skipped[key] = old.note
            else:
                self._take_in(key, Stamp.of(found), report)
        for old in known.values():
            self._forget(old.path, report)

    def _take_in(self, key: str, stamp: Stamp, report: SyncReport) -> None:
        try:
            raw, found = read_file(key, self.layout, self.roots)
            stamp, digest = Stamp.of(found), hashlib.sha256(raw).hexdigest()
            outline = read_outline(raw, key, self.docmem.count)
        except MissingLibraryError as error:
            report.skipped[key] = str(error)  # and not remembered: it may be installed before the next sync
            return
        except UserError as error:
            report.skipped[key] = str(error)
            with self.docmem.transaction() as edit:
                note_skipped(edit, key, stamp, str(error))
            return
        except OSError as error:
            report.skipped[key] = f"{key}: cannot be read ({error.strerror})"
            return
        if outline.note:
            report.skipped[key] = outline.note
        with self.docmem.transaction() as edit:
            self._follow_rename(edit, key, digest)
            _, taken = take_in(edit, key, outline, stamp, digest, kept=True)
        if taken == "unchanged":
            report.unchanged += 1
        else:
            (report.imported if taken == "imported" else report.changed).append(key)

    def _follow_rename(self, edit: Edit, key: str, digest: str) -> None:
        """A new file that is what another was, which is gone: that document goes on under the new name."""
        if find_file(edit.sql, key) is None:
            for old in files_like(edit.sql, digest):
                if not os.path.lexists(os.path.join(self.layout.root, old.path)):
                    rename(edit, old, key)
                    return

    def _forget(self, key: str, report: SyncReport) -> None:
        with self.docmem.transaction() as edit:
            old = find_file(edit.sql, key)  # it may have been renamed or forgotten meanwhile
            if old is None or old.is_gone or os.path.lexists(os.path.join(self.layout.root, key)):
                return
            forget(edit, old)
        report.removed.append(key)

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
        asked = self.docmem.asked(query)
        with self.docmem.database.read() as sql:
            return search(sql, asked, limit, keys, self.docmem.words)

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

    def verify(self, passage: Citation) -> Verdict:
        """Whether the quote stands where it is said to stand, in the file as it is now."""
        return verify(passage, self.layout, self.roots)


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
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        ]
