"""A conversation for people: its epochs, turns, news and requests, in their order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import HivemindError
from hivemind.fs import Log
from hivemind.minds import ChatMessage, Usage
from hivemind.taskrun.conversation import usage_of
from hivemind.taskrun.report import Account, TaskUsage
from hivemind.tasks.record import open_log

Record = Mapping[str, Any]


@dataclass(slots=True)
class TranscriptEntry:
    """One entry: an `epoch`, a `turn`, `news`, or a `request` that led to no turn.

    `turn` is the number of this turn or of the next turn, `record` the line in the file, `mind` the mind of the epoch. A turn has
    the `results` of its calls by id, and the time `started_at` when its request was sent, or when it was recorded.
    """

    kind: str
    turn: int
    record: dict[str, Any]
    mind: Any = None
    started_at: float | None = None
    results: dict[str, Record] = field(default_factory=dict)

    @property
    def usage(self) -> Usage:
        return usage_of(self.record)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Each call with its outcome: ok, text, result."""
        calls = []
        for call in self.record.get("calls", ()):
            result = self.results.get(call["id"], {})
            calls.append({**call, **{key: result[key] for key in ("ok", "text", "result") if key in result}})
        return calls

    @property
    def is_open(self) -> bool:
        """True while the result of a call or the end of a request is missing."""
        if self.kind == "request":
            return "answered" not in self.record
        return len(self.results) < len(self.record.get("calls", ()))

    @property
    def seconds(self) -> float | None:
        """The duration of a turn so far; None if its lines name none."""
        lines = [self.record, *self.results.values()]
        durations = [seconds for line in lines if isinstance(seconds := line.get("seconds"), int | float)]
        return sum(durations) if durations else None

    @property
    def heading(self) -> str:
        """The heading of the entry: one line, which stays the same while the entry grows."""
        fields = self.record
        cause = f" ({fields['cause']})" if fields.get("cause", "turn") != "turn" else ""
        if self.kind == "epoch":
            mind = self.mind if isinstance(self.mind, str) else json.dumps(self.mind)
            return f"Epoch {fields['epoch']}{cause}, {fields.get('agent')}, mind: {mind}"
        if self.kind == "turn":
            step = [f"step {fields['step']}"] if fields.get("step") else []
            return ", ".join([f"Turn {self.turn}{cause}", str(fields.get("agent")), *step, *_usage_words(self.usage)])
        if self.kind == "news":
            return {"plan": "It intends", "thought": "Thought", "denied": "Not allowed"}.get(
                fields.get("event", ""), "News"
            )
        outcome = ["no answer", f"counted as {fields['reserved']['tokens']:,} tokens"]
        if not self.is_open:
            outcome = (
                [str(fields["error"]), *_usage_words(self.usage)] if "error" in fields else _usage_words(self.usage)
            )
        return ", ".join([f"Request{cause}", str(fields.get("model")), *outcome])

    @property
    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield the parts of the entry's text as (name, text); the name may be empty. While a turn grows, new parts come last."""
        fields = self.record
        if rows := [row for row in fields.get("selected", ()) if row.get("in")]:
            lines = (
                f"{row.get('id')}: score {row.get('score')}, {row.get('tokens')} tokens, {row.get('why')}"
                for row in rows
            )
            yield "selected", "\n".join(lines)
        yield from ((message["role"], message["text"]) for message in fields.get("opening", ()))
        if text := fields.get("text") or fields.get("why"):
            yield "", str(text)
        if fields.get("cut"):
            yield "", "[cut off]"
        for call in self.calls:
            yield f"> {call['tool']}", call.get("raw") or _arguments(call["arguments"])
            if "ok" not in call:
                return
            yield "result", call["text"]
        if self.kind == "turn" and self.seconds is not None:
            yield "took", f"{self.seconds:.1f} s"

    def as_record(self) -> dict[str, Any]:
        turn_fields = {"calls": self.calls, "seconds": self.seconds, "mind": self.mind} if self.kind == "turn" else {}
        return {"kind": self.kind, "turn": self.turn, **self.record, **turn_fields}


class Transcript:
    """The entries of messages.jsonl, built record by record: the list `entries` only grows. An unreadable record becomes an entry
    that says so."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._entries: list[TranscriptEntry] = []
        self.account = Account()
        self.turns: list[TranscriptEntry] = []
        self._mind: Any = None
        self._requests: dict[str, TranscriptEntry] = {}
        self._calls: dict[str, TranscriptEntry] = {}
        for record in records:
            self.take(record)

    @property
    def entries(self) -> list[TranscriptEntry]:
        """The entries, without requests that led to a turn."""
        return [entry for entry in self._entries if entry.kind != "request" or entry.record.get("answered") != "turn"]

    @property
    def summary(self) -> str:
        """The number of turns, their agents and their usage, in words."""
        agents = ", ".join(dict.fromkeys(str(entry.record.get("agent")) for entry in self.turns))
        usage = sum((entry.usage for entry in self.entries), Usage())
        seconds = f"{self.account.usage().seconds:.1f} s"
        turns = f"{len(self.turns)} turn{'s' if len(self.turns) != 1 else ''}"
        return ", ".join([f"{turns} of {agents}" if agents else turns, *_usage_words(usage), seconds])

    def take(self, record: Record) -> None:
        self.account.book(record)
        try:
            with boundary("record"):
                self._take(dict(record))
        except HivemindError as error:
            self._add("news", {"text": f"[{error}]"})

    def _take(self, record: dict[str, Any]) -> None:
        for message in record.get("opening", [record] if "role" in record else []):
            ChatMessage.of(message)
        if record.get("role") == "tool":
            if (turn := self._calls.get(record["call_id"])) is not None:
                turn.results[record["call_id"]] = record
        elif "answered" in record:
            usage_of(record)  # raises for invalid usage
            if (request := self._requests.get(record["answered"])) is not None:
                request.record |= record
        elif "reserved" in record:
            record["reserved"] = {"tokens": int(record["reserved"]["tokens"])}
            self._requests[record["request"]] = self._add("request", record)
        elif "opening" in record:
            record["selected"] = [dict(row) for row in record.get("selected", ())]
            self._mind = record.get("mind")
            self._add("epoch", record)
        elif record.get("role") == "assistant":
            self._turn(record)
        elif "role" in record or "event" in record:
            self._add("news", record)

    def _turn(self, record: dict[str, Any]) -> None:
        started_at, request = _timestamp(record), self._requests.get(record.get("request", ""))
        if request is not None:
            started_at, record["cause"] = _timestamp(request.record) or started_at, request.record.get("cause", "turn")
            request.record["answered"] = "turn"
        turn = self._add("turn", record, started_at=started_at)
        self.turns.append(turn)
        self._calls |= {call["id"]: turn for call in record.get("calls", ())}

    def _add(self, kind: str, record: dict[str, Any], started_at: float | None = None) -> TranscriptEntry:
        usage_of(record)
        self._entries.append(entry := TranscriptEntry(kind, len(self.turns) + 1, record, self._mind, started_at))
        return entry


class TranscriptReader:
    """A reader of a growing conversation: each call of `read` reads the new records."""

    def __init__(self) -> None:
        self._log: Log | None = None
        self._epoch = 0
        self._transcript = Transcript()

    def read(self, folder: Path) -> Transcript:
        """Return the transcript of the task in that folder. If `folder` is a file in the inbox, the transcript is empty."""
        new_log = open_log(folder)
        log = self._log = self._log or new_log
        log.path = new_log.path
        records = log.read() if folder.is_dir() else []
        if log.epoch != self._epoch:  # the file was started again
            self._epoch, self._transcript = log.epoch, Transcript()
        for record in records:
            self._transcript.take(record)
        return self._transcript


def _usage_words(usage: Usage) -> list[str]:
    """Return the usage in words: tokens, how many of them were cached, and the price. The list is empty without usage."""
    cache_note = f" ({usage.cached / usage.tokens_in:.0%} cached)" if usage.cached and usage.tokens_in else ""
    parts = [f"{usage.tokens_in:,} tokens in{cache_note}", f"{usage.tokens_out:,} out"] if usage.tokens else []
    price = TaskUsage(money=usage.money, unpriced=usage.unpriced).cost
    return [*parts, price] if price else parts


def _arguments(arguments: Record) -> str:
    texts = {
        name: argument if isinstance(argument, str) else json.dumps(argument) for name, argument in arguments.items()
    }
    return "\n".join(f"{name}:{chr(10) if chr(10) in text else ' '}{text}" for name, text in texts.items())


def _timestamp(record: Record) -> float | None:
    with suppress(Unreadable), boundary("time"):
        return datetime.fromisoformat(record["at"]).timestamp()
    return None
