"""The small records in a task's folder: who claimed it, who made it, why it is parked (README.md, *Records*)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.fs import load_record, save_record
from hivemind.names import check_name
from hivemind.tasks.task import Parked, TaskProblem

__all__ = [
    "CLAIM",
    "HANDED",
    "MAKER",
    "PARKED",
    "Claim",
    "Handed",
    "Maker",
    "is_made_whole",
    "load_claim",
    "load_handed",
    "load_maker",
    "load_parked",
]

CLAIM, MAKER, PARKED, HANDED = "claim.json", "maker.json", "parked.json", "handed.json"
_VERSION = 1
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Claim:
    """Who works, or worked, on a task. `key` names this one claim; `source` is what the drop was called in the inbox,
    `attachments` what lay beside the text when it was claimed (relative to the folder)."""

    key: str
    agent: str
    incarnation: int
    claimed: str
    source: str
    attachments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def save(self, folder: Path, *, durable: bool) -> None:
        fields: dict[str, Any] = {
            "key": self.key,
            "agent": self.agent,
            "incarnation": self.incarnation,
            "claimed": self.claimed,
            "source": self.source,
        }
        if self.attachments:
            fields["attachments"] = self.attachments
        if self.notes:
            fields["notes"] = self.notes
        save_record(folder / CLAIM, "claim", _VERSION, fields, durable=durable)


@dataclass(frozen=True, slots=True)
class Maker:
    """Who made a task. `inode` is the number of the folder that it was written into, so that a copy is known as one."""

    by: str
    inode: int

    def save(self, folder: Path, *, durable: bool) -> None:
        save_record(folder / MAKER, "maker", _VERSION, {"by": self.by, "inode": self.inode}, durable=durable)


@dataclass(frozen=True, slots=True)
class Handed:
    """That a task was handed over: by whom, to an agent or a role, and why. `claimed` is when the claim was made that ends."""

    by: str
    to: str | None
    role: str | None
    reason: str
    claimed: str

    def save(self, folder: Path, *, durable: bool) -> None:
        fields = {"by": self.by, "to": self.to, "role": self.role, "reason": self.reason, "claimed": self.claimed}
        save_record(folder / HANDED, "handed", _VERSION, fields, durable=durable)

    def ends(self, claim: Claim) -> bool:
        """Whether it is this claim that ended: what is left to do is to put the task back."""
        return (self.by, self.claimed) == (claim.agent, claim.claimed)


def load_handed(folder: Path) -> Handed | None:
    """To whom the task was handed over, or None. Raises UserError if the record is damaged."""
    fields = _load(folder / HANDED, "handed")
    if fields is None:
        return None
    try:
        to, role = (None if fields[key] is None else check_name(fields[key], key) for key in ("to", "role"))
        return Handed(check_name(fields["by"], "agent name"), to, role, str(fields["reason"]), str(fields["claimed"]))
    except (KeyError, ValueError, TypeError, UserError) as error:
        raise _damaged(folder / HANDED, error) from None


def save_parked(folder: Path, parked: Parked, *, durable: bool) -> None:
    until = None if parked.until is None else parked.until.isoformat()
    fields = {"reason": parked.reason, "until": until, "since": parked.since.isoformat()}
    save_record(folder / PARKED, "parked", _VERSION, fields, durable=durable)


def load_claim(folder: Path) -> Claim | None:
    """The claim of a task's folder, or None. Raises UserError if it is damaged or of another version."""
    fields = _load(folder / CLAIM, "claim")
    if fields is None:
        return None
    try:
        return Claim(
            str(fields["key"]),
            str(fields["agent"]),
            int(fields["incarnation"]),
            str(fields["claimed"]),
            str(fields["source"]),
            tuple(fields.get("attachments", ())),
            tuple(fields.get("notes", ())),
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise _damaged(folder / CLAIM, error) from None


def load_maker(folder: Path) -> Maker | None:
    """Who made the task, or None for a person. Raises UserError if the record is damaged: then nobody knows."""
    fields = _load(folder / MAKER, "maker")
    if fields is None:
        return None
    try:
        return Maker(check_name(fields["by"], "agent name"), int(fields["inode"]))
    except (KeyError, ValueError, TypeError, OverflowError, UserError) as error:
        raise _damaged(folder / MAKER, error) from None


def load_parked(folder: Path) -> Parked | None:
    """Why the task is parked, or None. Raises UserError if the record is damaged."""
    fields = _load(folder / PARKED, "parked")
    if fields is None:
        return None
    try:
        until = fields["until"]
        return Parked(
            str(fields["reason"]),
            None if until is None else datetime.fromisoformat(until),
            datetime.fromisoformat(fields["since"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise _damaged(folder / PARKED, error) from None


def is_made_whole(folder: str | os.PathLike[str]) -> bool:
    """Whether `Tasks.add` put this folder there, whole, rather than someone who may still be copying it."""
    try:
        maker = load_maker(Path(folder))
    except UserError:
        return False  # said when the task is claimed
    return maker is not None and maker.inode == os.stat(folder).st_ino


def _load(path: Path, kind: str) -> dict[str, Any] | None:
    """A record from a folder that anyone may have filled: never through a link, never from a FIFO."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES:
        raise TaskProblem(f"is no {kind} record", where=path, mend="take it away")
    return load_record(path, kind, _VERSION)


def _damaged(path: Path, error: Exception) -> TaskProblem:
    return TaskProblem(f"is damaged ({type(error).__name__}: {error})", where=path, mend="take it away")
