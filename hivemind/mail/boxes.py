"""The mailboxes of a hive by their owners' names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hivemind.fs import inside
from hivemind.layout import Layout
from hivemind.mail.maildir import Maildir

__all__ = ["Boxes"]


class Boxes:
    """Opens mailboxes. One that is a symbolic link out of the hive is refused, unless it leads to one of `roots`."""

    __slots__ = ("_durable", "_layout", "_open", "_roots")

    def __init__(self, layout: Layout, durable: bool, roots: Iterable[Path]) -> None:
        self._layout = layout
        self._durable = durable
        self._roots = tuple(roots)
        self._open: dict[tuple[str, str], Maildir] = {}

    def get(self, name: str, folder: str = "inbox") -> Maildir:
        """The Maildir of that owner, or its sub-folder. Raises UserError for a bad name and OutsideError."""
        found = self._open.get((name, folder))
        if found is None:
            root = self._layout.mailbox(name)
            maildir = Maildir(root).sub(folder)
            for place in (maildir.new, maildir.cur, maildir.tmp):
                inside(place, self._layout.root, self._roots)
            found = self._open[name, folder] = maildir
        return found

    def ensure(self, name: str) -> Maildir:
        """The Maildir, made if it is not there."""
        box = self.get(name)
        box.ensure(self._durable)
        return box
