"""A conversation as people look at it: its epochs, turns, news and requests, in the order in which they came."""

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
from hivemind.taskrun.conversation import used
from hivemind.taskrun.report import Account, Spent
from hivemind.tasks.folder import open_log

Record = Mapping[str, Any]


@dataclass(slots=True)
class TranscriptEntry:
    """One thing that happened: an `epoch`, a `turn`, `news`, or a `request` that led to no turn.

    `turn` is the turn that it is, or leads to; `record` its line in the file, `mind` the mind of its epoch. A turn has the
    `results` of its calls by their ids, and `begun` says when its request was sent.
    """

    kind: str
    turn: int
    record: dict[str, Any]
    mind: Any = None
    begun: float | None = None
    results: dict[str, Record] = field(default_factory=dict)

    @property
    def usage(self) -> Usage:
        return used(self.record)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Each call with what came of it: ok, text, result."""
        found = []
        for call in self.record.get("calls", ()):
            made = self.results.get(call["id"], {})
            found.append({**call, **{key: made[key] for key in ("ok", "text", "result") if key in made}})
        return found

    @property
    def is_open(self) -> bool:
        """Whether something is still missing: the result of a call, what came of a request."""
        if self.kind == "request":
            return "answered" not in self.record
        return len(self.results) < len(self.record.get("calls", ()))

    @property
    def seconds(self) -> float | None:
        """How long a turn has taken so far; by the times of its lines where an older version has written them."""
        lines = [self.record, *self.results.values()]
        if told := [took for one in lines if isinstance(took := one.get("seconds"), int | float)]:
            return sum(told)
        ended = _moment(lines[-1])
        return None if self.begun is None or ended is None else max(0.0, ended - self.begun)

    @property
    def heading(self) -> str:
        """What it is, in one line that does not change any more."""
        told = self.record
        cause = f" ({told['cause']})" if told.get("cause", "turn") != "turn" else ""
        if self.kind == "epoch":
            mind = self.mind if isinstance(self.mind, str) else json.dumps(self.mind)
            return f"Epoch {told['epoch']}{cause}, {told.get('agent')}, mind: {mind}"
        if self.kind == "turn":
            step = [f"step {told['step']}"] if told.get("step") else []
            return ", ".join([f"Turn {self.turn}{cause}", str(told.get("agent")), *step, *_words(self.usage)])
        if self.kind == "news":
            return "News"
        outcome = ["no answer", f"counted as {told['reserved']['tokens']:,} tokens"]
        if not self.is_open:
            outcome = [str(told["error"]), *_words(self.usage)] if "error" in told else _words(self.usage)
        return ", ".join([f"Request{cause}", str(told.get("model")), *outcome])

    @property
    def parts(self) -> Iterator[tuple[str, str]]:
        """What it says, each with a name (may be empty). What a turn gets later comes at the end of what it has now."""
        told = self.record
        if rows := [row for row in told.get("selected", ()) if row.get("in")]:
            lines = (
                f"{row.get('id')}: score {row.get('score')}, {row.get('tokens')} tokens, {row.get('why')}"
                for row in rows
            )
            yield "selected", "\n".join(lines)
        yield from ((one["role"], one["text"]) for one in told.get("opening", ()))
        if text := told.get("text") or told.get("why"):
            yield "", str(text)
        if told.get("cut"):
            yield "", "[cut off]"
        for call in self.calls:
            yield f"> {call['tool']}", call.get("raw") or _arguments(call["arguments"])
            if "ok" not in call:
                return
            yield "result", call["text"]
        if self.kind == "turn" and self.seconds is not None:
            yield "took", f"{self.seconds:.1f} s"

    def as_record(self) -> dict[str, Any]:
        more = {"calls": self.calls, "seconds": self.seconds, "mind": self.mind} if self.kind == "turn" else {}
        return {"kind": self.kind, "turn": self.turn, **self.record, **more}


class Transcript:
    """Folded from the records of messages.jsonl, record by record as they come. `entries` only grow. A record that something
    else has written, and that cannot be read, is told as such."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._entries: list[TranscriptEntry] = []
        self.account = Account()
        self.turns: list[TranscriptEntry] = []
        self._mind: Any = None
        self._requests: dict[str, TranscriptEntry] = {}
        self._calls: dict[str, TranscriptEntry] = {}
        self._before: float | None = None
        for record in records:
            self.take(record)

    @property
    def entries(self) -> list[TranscriptEntry]:
        """Without the requests whose answer is a turn."""
        return [one for one in self._entries if one.kind != "request" or one.record.get("answered") != "turn"]

    @property
    def in_words(self) -> str:
        """How many turns whose, and what they used."""
        agents = ", ".join(dict.fromkeys(str(one.record.get("agent")) for one in self.turns))
        used = sum((one.usage for one in self.entries), Usage())
        seconds = f"{self.account.spent().seconds:.1f} s"
        turns = f"{len(self.turns)} turn{'s' if len(self.turns) != 1 else ''}"
        return ", ".join([f"{turns} of {agents}" if agents else turns, *_words(used), seconds])

    def take(self, record: Record) -> None:
        """Take the next record in."""
        self.account.book(record)
        try:
            with boundary("record"):
                self._take(dict(record))
        except HivemindError as error:
            self._add("news", {"text": f"[{error}]"})
        self._before = _moment(record) or self._before

    def _take(self, record: dict[str, Any]) -> None:
        for message in record.get("opening", [record] if "role" in record else []):
            ChatMessage.of(message)
        if record.get("role") == "tool":
            if (turn := self._calls.get(record["call_id"])) is not None:
                turn.results[record["call_id"]] = record
        elif "answered" in record:
            used(record)  # raises for what is none
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
        begun, request = self._before, self._requests.get(record.get("request", ""))
        if request is not None:
            begun, record["cause"] = _moment(request.record) or begun, request.record.get("cause", "turn")
            request.record["answered"] = "turn"
        turn = self._add("turn", record, begun=begun)
        self.turns.append(turn)
        self._calls |= {call["id"]: turn for call in record.get("calls", ())}

    def _add(self, kind: str, record: dict[str, Any], begun: float | None = None) -> TranscriptEntry:
        used(record)
        self._entries.append(entry := TranscriptEntry(kind, len(self.turns) + 1, record, self._mind, begun))
        return entry


class TranscriptReader:
    """Reads the conversation of a task as it grows: each call takes in what is new."""

    def __init__(self) -> None:
        self._log: Log | None = None
        self._epoch = 0
        self._said = Transcript()

    def read(self, folder: Path) -> Transcript:
        """What was said in the task whose folder that is now; nothing for a file that waits in the inbox."""
        found = open_log(folder, durable=False)
        log = self._log = self._log or found
        log.path = found.path
        records = log.read() if folder.is_dir() else []
        if log.epoch != self._epoch:  # it was begun again
            self._epoch, self._said = log.epoch, Transcript()
        for record in records:
            self._said.take(record)
        return self._said


def _words(usage: Usage) -> list[str]:
    """Tokens, the share of them that a cache had, and the price; nothing where nothing was used."""
    cached = f" ({usage.cached / usage.tokens_in:.0%} cached)" if usage.cached and usage.tokens_in else ""
    told = [f"{usage.tokens_in:,} tokens in{cached}", f"{usage.tokens_out:,} out"] if usage.tokens else []
    price = Spent(money=usage.money, unpriced=usage.unpriced).cost
    return [*told, price] if price else told


def _arguments(arguments: Record) -> str:
    texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in arguments.items()}
    return "\n".join(f"{name}:{chr(10) if chr(10) in text else ' '}{text}" for name, text in texts.items())


def _moment(record: Record) -> float | None:
    with suppress(Unreadable), boundary("time"):
        return datetime.fromisoformat(record["at"]).timestamp()
    return None
