"""How many processes have ended over a task without a word: the fifth is the last (`lives.json` in the task's folder).

What kills its agent (a segmentation fault, no memory left, `kill -9 $PPID`) would otherwise be taken up again for ever. A
step that is finished begins the count anew.
"""

from __future__ import annotations

from pathlib import Path

from hivemind.errors import UserError
from hivemind.fs import DamagedRecord, load_record, save_record

__all__ = ["MAX_LIVES", "Lives"]

VERSION = 1
MAX_LIVES = 5


class Lives:
    """The count of one task, read when it is first needed. Raises UserError for a record of another version."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._path = folder / "lives.json"
        self._durable = durable
        self._lost = self._read()

    def _read(self) -> int:
        try:
            record = load_record(self._path, "lives", VERSION) or {}
        except DamagedRecord:
            return 0  # it holds nothing but a count, and the next one replaces it
        lost = record.get("lost", 0)
        return lost if isinstance(lost, int) else 0

    def lose(self) -> None:
        """Count that a process ended over the task. Raises UserError once that was the last, OSError."""
        self._lost += 1
        save_record(self._path, "lives", VERSION, {"lost": self._lost}, durable=self._durable)
        if self._lost >= MAX_LIVES:
            raise UserError(
                f"its agent's process ended {self._lost} times while it worked on this task, without a word",
                mend="look at what the step in question does, and at .hive/logs; then retry the task",
            )

    def regain(self) -> None:
        """Something was finished: begin the count anew."""
        if self._lost:
            self._lost = 0
            self._path.unlink(missing_ok=True)
