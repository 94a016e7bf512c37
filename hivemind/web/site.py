"""The types of a page and of its sources: the hive, its index and its snapshot."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hivemind.frozen import frozen
from hivemind.hive import Hive
from hivemind.web.index import PageIndex
from hivemind.web.subscriptions import SnapshotWatch

_MAX_DIGITS = 12


class PageQuery(dict[str, str]):
    """The query parameters of an address."""

    def number(self, name: str, default: int = 0) -> int:
        """Return a query parameter as an integer ≥ 0. If it is missing or not a number ≥ 0, return the default."""
        text = self.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else default

    def choice(self, name: str, choices: Mapping[str, object] | tuple[str, ...], default: str) -> str:
        """Return a query parameter if its value is one of `choices`, else the default."""
        return self[name] if self.get(name) in choices else default


@frozen
class Page:
    """A template and its context. The live parts of the page are loaded again when one of `topics` (such as `mail`) changes."""

    template: str
    context: Mapping[str, Any]
    title: str
    topics: tuple[str, ...] = ()


@dataclass
class Site:
    """The hive, its index and its snapshot, as pages read them. Hold `mutex` while building a page."""

    root: Path
    hive: Hive = field(init=False)
    index: PageIndex = field(init=False)
    watch: SnapshotWatch = field(init=False)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.hive = Hive.look(self.root)
        self.index = PageIndex(self.root)
        self.watch = SnapshotWatch(self.root, self.index)

    def close(self) -> None:
        self.watch.close()
        self.index.close()
