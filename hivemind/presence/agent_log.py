"""An agent's log of its work outside tasks: turns about mail, requests to its model, and the calls of a member (an MCP
client).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.fs import Log, LogDamaged, set_aside

_SEGMENT_BYTES = 8 * 1024 * 1024


class AgentLog(Log):
    """The log file `log.jsonl` in an agent's state folder. A full file is renamed to `log-000000000001.jsonl`."""

    def __init__(self, folder: Path, *, segment_bytes: int = _SEGMENT_BYTES) -> None:
        super().__init__(folder / "log.jsonl", "agent-log", 1, durable=False, segment_bytes=segment_bytes)

    def note(self, record: Mapping[str, Any]) -> None:
        """Append a record. A damaged log, or anything at the path that is not a file, is set aside first. Raises UserError."""
        try:
            self.append(record)
        except UserError as error:
            if os.path.isfile(self.path) and not isinstance(error, LogDamaged):
                raise
            set_aside(self.path)
            self.append(record)
