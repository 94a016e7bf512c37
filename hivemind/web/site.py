"""What every page is made from: the hive, its snapshot, its index; and what a page is."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hivemind.frozen import frozen
from hivemind.hive import Hive
from hivemind.web.index import PageIndex
from hivemind.web.snapshot import Watch

__all__ = ["Page", "PageQuery", "Site"]

_DIGITS = 12


class PageQuery(dict[str, str]):
    """What stands behind the question mark of an address."""

    def number(self, name: str, default: int = 0) -> int:
        """A whole number from 0; the default for anything else."""
        text = self.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else default

    def choice(self, name: str, known: Mapping[str, object] | tuple[str, ...], default: str) -> str:
        """One of the known words; the default for any other."""
        return self[name] if self.get(name) in known else default


@frozen
class Page:
    """A template with what goes into it. `topics` are the changes at which its live parts are drawn anew."""

    template: str
    context: Mapping[str, Any]
    title: str
    topics: tuple[str, ...] = ()


@dataclass
class Site:
    """The hive as its pages look at it. One page is made at a time: hold `mutex`."""

    root: Path
    hive: Hive = field(init=False)
    index: PageIndex = field(init=False)
    watch: Watch = field(init=False)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.hive = Hive.look(self.root)
        self.index = PageIndex(self.root)
        self.watch = Watch(self.root, self.index)

    def close(self) -> None:
        self.watch.close()
        self.index.close()
