"""The knowledge folder (and a task's files) as documents: kept up to date, searched, quoted with line and digest."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from hivemind.documents import tree
from hivemind.documents.docmem import Docmem
from hivemind.documents.errors import DamagedError, NodeNotFoundError
from hivemind.documents.filenames import is_utf8
from hivemind.documents.lookup import node_at, split_reference
from hivemind.documents.node import Node
from hivemind.documents.passage import Citation, Passage, Verdict, verify
from hivemind.documents.passages import passage_text
from hivemind.documents.sources import root_source
from hivemind.documents.syncing import Sync, SyncReport
from hivemind.fs import inside
from hivemind.fs.backup import restore
from hivemind.layout import Layout

__all__ = ["Knowledge"]

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
        self, query: str, limit: int = 8, scope: Sequence[str | os.PathLike[str]] | None = None
    ) -> list[Passage]:
        """The passages that answer a question best, best first; none where nothing is relevant.

        `scope` names the files or folders to look in (as given to sync); without it, knowledge/. The query may hold
        any characters. Searches what the last sync took in.
        """
        named = [self.layout.knowledge] if scope is None else scope
        tops = [Path(os.path.realpath(os.path.join(self.layout.root, top))) for top in named]
        keys = [name for name in map(self.layout.relative, tops) if is_utf8(name)]  # another names no document
        return self._soundly(lambda: self.docmem.passages(query, limit, keys), tops)

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

    def verify(self, passage: Citation) -> Verdict:
        """Whether the quote stands where it is said to stand, in the file as it is now."""
        return verify(passage, self.layout, self.roots)
