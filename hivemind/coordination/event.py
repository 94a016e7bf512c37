"""Events, and how they stand in the log: JSON lines, an array where several belong together (spec 3, *Journal*)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hivemind.errors import UserError
from hivemind.fs import Record, records_of
from hivemind.masking import masked

__all__ = ["MAX_LINE", "Draft", "Event", "encode"]

MAX_LINE = 1_048_576
Draft = tuple[str, Mapping[str, Any]]
"""An event that is about to happen: its kind and its payload."""

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_WORDLESS = ("lease.", "agent.", "focus.")  # events in which nobody says anything
_quoted = json.encoder.encode_basestring


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `seq` counts all events of the workspace from 1, without a gap."""

    seq: int
    kind: str
    payload: dict[str, Any]

    @classmethod
    def of(cls, record: Record) -> Event:
        payload = dict(record)
        return cls(payload.pop("seq"), payload.pop("kind"), payload)

    def as_dict(self) -> Record:
        """The event as it stands in the log."""
        return {"seq": self.seq, "kind": self.kind, **self.payload}


def encode(seq: int, drafts: Sequence[Draft]) -> tuple[bytes, list[Record]]:
    """One line of the log with the drafts as the events after `seq`, and those events as they will be read.

    Raises UserError for a kind that is no word, a payload that is no JSON or has a field `seq` or `kind` of its own,
    text that is no Unicode, and a line longer than 1 MiB.
    """
    for kind, payload in drafts:
        _check(kind, payload)
    try:
        said = [(kind, payload if kind.startswith(_WORDLESS) else masked(payload)) for kind, payload in drafts]
        found = [{"seq": at, "kind": kind, **payload} for at, (kind, payload) in enumerate(said, seq + 1)]
        text = _flat(seq + 1, *said[0]) if len(said) == 1 else None
        if text is not None:
            line = text.encode() + b"\n"
        else:
            line = _encoder.encode(found[0] if len(found) == 1 else found).encode() + b"\n"
            found = records_of(line)
    except (TypeError, ValueError, RecursionError) as error:
        kinds = ", ".join(sorted({kind for kind, _ in drafts}))
        raise UserError(f"a payload of {kinds} is no JSON ({error})") from None
    if len(line) > MAX_LINE:
        raise UserError(
            f"an event of {len(line)} bytes is too long for the journal ({MAX_LINE})",
            mend="put the text into a file and name the file",
        )
    return line, found


def _check(kind: object, payload: Mapping[str, Any]) -> None:
    if not isinstance(kind, str) or not kind.isprintable() or not kind.strip() or len(kind) > 128:
        raise UserError(f"{kind!r} is no kind of event", mend="a kind is a word such as agent.started")
    if "seq" in payload or "kind" in payload:
        raise UserError(f"a {kind} event has a field `seq` or `kind` of its own", mend="rename the field")


def _flat(seq: int, kind: str, payload: Mapping[str, Any]) -> str | None:
    """What the encoder would give, for a payload of plain texts and numbers; None for any other. A third of its time."""
    text = f'{{"seq":{seq},"kind":{_quoted(kind)}'
    for name, value in payload.items():
        if type(value) is str:
            text += f",{_quoted(name)}:{_quoted(value)}"
        elif type(value) is int:
            text += f",{_quoted(name)}:{value}"
        else:
            return None
    return text + "}"
