"""The settings that all parts of a hive's tasks share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path

from hivemind.frozen import frozen
from hivemind.layout import Layout
from hivemind.tasks.form import TextReader
from hivemind.tasks.outbox import Outbox
from hivemind.tasks.record import Records

Settled = Callable[[str | int, float, datetime], bool]


@frozen
class Settings:
    """The settings that all parts of a hive's tasks share. `Tasks` explains the fields."""

    layout: Layout
    reader: TextReader
    records: Records
    agents: Callable[[], Mapping[str, str | None]]
    settle_ms: float
    grace_s: float
    clock: Callable[[], datetime]
    roots: Collection[Path]
    settled: Settled
    rename: Callable[[str, str], None]
    ask_about_files: bool
    outbox: Outbox
    local_hives: Callable[[], tuple[str, ...]]
