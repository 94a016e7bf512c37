"""A task's conversation, exactly as its mind has it: messages.jsonl (README.md), which only grows (spec 8).

Besides messages the file has four kinds of lines: `epoch` begins a conversation anew with its opening, `request` says what is
about to be sent and what that may cost, `answered` what a request came to that gave no message, `files` what the mind's own
calls have made of files that it was shown.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hivemind.boundary import boundary
from hivemind.frozen import frozen
from hivemind.fs import Log
from hivemind.layout import Layout
from hivemind.masking import mask, masked
from hivemind.minds import ChatMessage, Thought, ToolCall, ToolResult, Usage

INTERRUPTED = "interrupted: its process ended before there was a result; check whether it took effect"
SAME = 5
"""So many turns with the same calls and the same results, and a person is asked."""
_PASSING = re.compile(r"\b\d+(?:\.\d+)? ?m?s\b|\bartifacts/[\w.-]+|\b0x[0-9a-f]+\b")
"""What is another in each result of the same command: how long it took, where its output is kept, addresses."""
_SHOWING = frozenset({"read_file", "write_file", "edit_file"})
Append = Callable[[Sequence[Mapping[str, Any]], bool], object]


@frozen
class TurnMessages:
    """One turn of a conversation: what was answered, and the results of its calls as far as there are any."""

    answer: ChatMessage
    results: tuple[ChatMessage, ...]

    @property
    def shape(self) -> str:
        """What was asked for and what came of it: the same for a turn that is the same again."""
        calls = [[call.tool, dict(call.arguments)] for call in self.answer.calls]
        told = [_PASSING.sub("", one.text) for one in self.results]
        return json.dumps([calls, told], sort_keys=True, default=str)


class Conversation:
    """Folded from the records of the file; `append` writes records to it, durable or not.

    `messages` are those of the present epoch, `pending` the calls of its last answer that have no result.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]], append: Append, agent: str) -> None:
        """Raises Unreadable for records that something else has written."""
        self._append, self._agent = append, agent
        self._waiting: list[Mapping[str, Any]] | None = None
        self.messages: list[ChatMessage] = []
        self.epoch: Mapping[str, Any] | None = None
        self.said = 0
        self.turns = 0
        self.files: dict[str, str | None] = {}
        """The files that it has shown, with their digests as the mind knows them; None: that it is gone."""
        self.totals: dict[str, Usage] = {}  # what programs have used in their sessions
        self.unanswered: dict[str, Mapping[str, Any]] = {}  # requests of which nothing is known yet
        self.letters: set[str] = set()  # that stand in it, by Message-ID
        self._number = self._epochs = 0
        self._calls: set[str] = set()
        self._open: dict[str, ToolCall] = {}
        self._news: list[ChatMessage] = []
        for record in records:
            self._take(record)

    def _take(self, record: Mapping[str, Any]) -> None:
        with boundary("conversation"):
            if "opening" in record:
                self._epochs = int(record["epoch"])
                self.epoch = {key: value for key, value in record.items() if key != "opening"}
                self.messages = []
                for one in record["opening"]:
                    self._hear(ChatMessage.of(one))
            elif "role" in record:
                self._hear(ChatMessage.of(record))
                self.unanswered.pop(str(record.get("request")), None)
            elif "reserved" in record:
                self.unanswered[str(record["request"])] = record
            elif "files" in record:
                self.files |= {str(name): digest for name, digest in record["files"].items()}
            self.unanswered.pop(str(record.get("answered")), None)
            if "session" in record:
                self.totals[str(record["session"])] = Usage(**record["total"])

    def _hear(self, message: ChatMessage) -> None:
        """Take a message in. What comes while calls are under way stands after the last result."""
        if message.role == "user" and self._open:
            self._news.append(message)
        else:
            self.messages.append(message)
        self._open |= {call.id: call for call in message.calls}
        call, value = self._open.get(message.call_id or ""), message.result or {}
        if call is not None and call.tool in _SHOWING and message.ok and {"path", "digest"} <= value.keys():
            self.files[str(value["path"])] = str(value["digest"])
        if message.role == "tool" and self._open.pop(message.call_id or "", None) is not None and not self._open:
            self.messages += self._news
            self._news = []
        self._number += 1
        self._calls |= {call.id for call in message.calls}
        self.turns += message.role == "assistant"
        news = message.news or {}
        self.said = max(self.said, int(news.get("said", 0)))
        for name in news.get("files", ()):
            self.files.pop(name, None)
        if "letter" in news:
            self.letters.add(str(news["letter"]))
        if news.get("by") == "person":
            self.turns = 0  # whoever answers lets it go on for as long again

    # writing

    def begin(self, cause: str, opening: Sequence[ChatMessage], **facts: Any) -> None:
        """Begin an epoch with its opening. `facts` are kept with it: what it depends on, what was selected and why."""
        number = 1 + self._epochs
        stamped = [self._stamp(one, at) for at, one in enumerate(opening)]
        record = {"epoch": number, "cause": cause, "at": _now(), "agent": self._agent, **masked(facts)}
        self._write({**record, "opening": [one.as_record() for one in stamped]}, durable=True)

    def add(self, message: ChatMessage, *, durable: bool = True, **told: Any) -> ChatMessage:
        """Append a message, masked; `told` (usage, request, seconds) is kept on its line."""
        stamped = self._stamp(message, 0)
        self._write({**stamped.as_record(), **{key: one for key, one in told.items() if one}}, durable=durable)
        return stamped

    def answer(
        self, thought: Thought, *, step: str | None = None, request: str | None = None, durable: bool = True
    ) -> ChatMessage:
        """Append what the mind answered; its calls get ids where they have none of their own."""
        calls: list[ToolCall] = []
        for at, call in enumerate(thought.actions):
            taken = not call.id or call.id in self._calls or call.id in {one.id for one in calls}
            calls.append(replace(call, id=f"call_{self._number}_{at}") if taken else call)
        message = ChatMessage(
            "assistant", thought.text, tuple(calls), provider=thought.provider, cut=thought.cut, step=step
        )
        told = {"usage": thought.usage.as_record(), "request": request, "seconds": round(thought.seconds, 3)}
        return self.add(message, durable=durable, **told)

    def result(self, result: ToolResult, *, durable: bool = True) -> None:
        """Append the result of a call."""
        value = dict(result.value) or None
        message = ChatMessage("tool", result.text, call_id=result.call.id, ok=result.ok, result=value)
        self.add(message, durable=durable, seconds=round(result.seconds, 3))

    def took(self, thought: Thought, results: Sequence[ToolResult], *, step: str | None = None) -> None:
        """Append a turn that was taken already: what was answered, and the results of its calls, in one go; nothing of it is
        durable. Calls of the one before whose results a power cut has torn off are answered first, as interrupted."""
        with self.in_one_go():
            for call in self.pending:
                self.result(ToolResult.failed(call, INTERRUPTED), durable=False)
            said = self.answer(replace(thought, actions=thought.actions[: len(results)]), step=step, durable=False)
            for call, result in zip(said.calls, results, strict=True):
                self.result(replace(result, call=call), durable=False)

    def tell(self, text: str, parts: Sequence[Mapping[str, Any]] = (), **news: Any) -> None:
        """Append news: something happened that the mind should know, with pictures of it."""
        self.add(ChatMessage("user", text, parts=tuple(parts), news=news))

    def saw(self, files: Mapping[str, str | None]) -> None:
        """Note what its own calls have made of files that it has shown: that is nobody else's doing."""
        if files:
            self._write({"at": _now(), "files": dict(files)}, durable=False)

    def note(self, record: Mapping[str, Any], *, durable: bool = True) -> None:
        """Append a line that is no message: a request that is about to be sent, or what it came to."""
        self._write(masked({"at": _now(), **record}), durable=durable)

    def _stamp(self, message: ChatMessage, ahead: int) -> ChatMessage:
        number = self._number + 1 + ahead
        calls = tuple(
            replace(one, arguments=masked(dict(one.arguments)), raw=one.raw and mask(one.raw)) for one in message.calls
        )
        return replace(
            message, id=f"m{number}", at=_now(), agent=self._agent, text=mask(message.text), calls=calls,
            result=None if message.result is None else masked(dict(message.result)),
        )  # fmt: skip

    @contextmanager
    def in_one_go(self) -> Iterator[None]:
        """What is added inside stands in the file once it is over, and all of it at once; nothing of it is durable."""
        self._waiting = []
        try:
            yield
        finally:
            records, self._waiting = self._waiting, None
        if records:
            self._append(records, False)

    def _write(self, record: Mapping[str, Any], *, durable: bool) -> None:
        if self._waiting is None:
            self._append([record], durable)
        else:
            self._waiting.append(record)
        with boundary("conversation"):  # as it will be read again
            record = json.loads(json.dumps(record))
        self._take(record)

    # reading

    @property
    def pending(self) -> list[ToolCall]:
        """The calls of the last answer that have no result yet: its process ended, or the task rests."""
        return [*self._open.values()]

    @property
    def before(self) -> list[ToolResult]:
        """The results of the last turn."""
        last = next(self.exchanged(reverse=True), None)
        if last is None:
            return []
        calls = {call.id: call for call in last.answer.calls}
        return [
            ToolResult(calls[one.call_id or ""], one.text, one.result or {}, None if one.ok else one.text)
            for one in last.results
        ]

    def exchanged(self, *, reverse: bool = False) -> Iterator[TurnMessages]:
        """The turns of this epoch, oldest first or newest first."""
        at = [number for number, one in enumerate(self.messages) if one.role == "assistant"]
        for number in reversed(at) if reverse else at:
            ids = {call.id for call in self.messages[number].calls}
            after = self.messages[number + 1 :]
            yield TurnMessages(
                self.messages[number], tuple(one for one in after if one.role == "tool" and one.call_id in ids)
            )

    @property
    def is_going_round(self) -> bool:
        """Whether the last turns had the same calls with the same results, and nothing else happened in between."""
        last: list[TurnMessages] = []
        for one in self.exchanged(reverse=True):
            last.append(one)
            if len(last) == SAME:
                break
        since = self.messages.index(last[-1].answer) if last else 0
        quiet = all(one.role != "user" for one in self.messages[since:])
        return len(last) == SAME and quiet and bool(last[0].answer.calls) and len({one.shape for one in last}) == 1


def open_thread(layout: Layout, agent: str, about: str, *, durable: bool) -> Log:
    """The log of an agent's conversation about a thread of mail, by the Message-ID with which that began."""
    name = hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = layout.agent_state(agent) / "threads" / f"{name}.jsonl"
    return Log(path, "messages", 1, durable=durable, lazy=True)


def used(record: Mapping[str, Any]) -> Usage:
    """Return the usage on a line, none if it has none; of a request under way it is what is reserved."""
    if "reserved" in record and "answered" not in record:
        return Usage(record["reserved"]["tokens"], money=record["reserved"].get("money", 0.0))
    told = record.get("usage") or {}
    return Usage(**told) if isinstance(told, Mapping) else Usage()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
