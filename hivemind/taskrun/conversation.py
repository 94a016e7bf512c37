"""A task's conversation, exactly as its mind sees it: messages.jsonl (README.md), an append-only file.

Besides messages the file has five kinds of lines. `epoch` restarts the conversation with an opening. `request` records a request
before it is sent, with its maximal cost. `answered` records the end of a request that led to no message. `files` records new
digests of files that the mind has seen and its own calls have changed. `event` records what a coding agent intends or thinks.
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
from hivemind.masking import mask, mask_values
from hivemind.minds import ChatMessage, Thought, ToolCall, ToolResult, Usage

INTERRUPTED = "interrupted: the process ended before the result; check whether the call took effect"
MAX_REPEATS = 5
"""After this many turns with equal calls and results, the agent asks a person."""
_VARYING = re.compile(r"\b\d+(?:\.\d+)? ?m?s\b|\bartifacts/[\w.-]+|\b0x[0-9a-f]+\b")
"""Parts that differ between results of the same command: durations, paths of outputs, addresses."""
_FILE_TOOLS = frozenset({"read_file", "write_file", "edit_file"})
Append = Callable[[Sequence[Mapping[str, Any]], bool], object]


@frozen
class TurnMessages:
    """One turn of a conversation: the mind's answer, and the results of its calls so far."""

    answer: ChatMessage
    results: tuple[ChatMessage, ...]

    @property
    def shape(self) -> str:
        """The calls and results as a text that is equal for repeated turns. It omits durations, paths of outputs, and the
        answers in refused calls of finish_task."""
        refused_ids = {message.call_id for message in self.results if not message.ok}
        calls = [
            [call.tool, {} if call.tool == "finish_task" and call.id in refused_ids else dict(call.arguments)]
            for call in self.answer.calls
        ]
        outputs = [_VARYING.sub("", message.text) for message in self.results]
        return json.dumps([calls, outputs], sort_keys=True, default=str)


class Conversation:
    """The state of a conversation, built from the records of its file. `append` writes records to the file, and syncs them if
    asked to.

    `messages` are the messages of the current epoch, `pending_calls` the calls of its last answer that have no result.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]], append: Append, agent: str) -> None:
        """Apply the records of the file. Raises Unreadable for invalid records."""
        self._append, self._agent = append, agent
        self._buffer: list[Mapping[str, Any]] | None = None
        self.messages: list[ChatMessage] = []
        self.epoch: Mapping[str, Any] | None = None
        self.said = 0
        self.turns = 0
        self.files: dict[str, str | None] = {}
        """The digests of files in the state that the mind has seen; None for a file that, as the mind knows, is gone."""
        self.totals: dict[str, Usage] = {}  # the usage of coding agents, by session
        self.unanswered: dict[str, Mapping[str, Any]] = {}  # requests without an end
        self.letters: set[str] = set()  # the Message-IDs of letters in the conversation
        self.overlaps: set[tuple[str, str]] = set()  # conflicts of branches that the mind knows: task and path
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
                for message in record["opening"]:
                    self._add_message(ChatMessage.of(message))
            elif "role" in record:
                self._add_message(ChatMessage.of(record))
                self.unanswered.pop(str(record.get("request")), None)
            elif "reserved" in record:
                self.unanswered[str(record["request"])] = record
            elif "files" in record:
                self.files |= {str(name): digest for name, digest in record["files"].items()}
            self.unanswered.pop(str(record.get("answered")), None)
            if "session" in record:
                self.totals[str(record["session"])] = Usage(**record["total"])

    def _add_message(self, message: ChatMessage) -> None:
        """Add a message. A user message that comes before all results of the calls is placed after the last result."""
        if message.role == "user" and self._open:
            self._news.append(message)
        else:
            self.messages.append(message)
        self._open |= {call.id: call for call in message.calls}
        call, value = self._open.get(message.call_id or ""), message.result or {}
        if call is not None and call.tool in _FILE_TOOLS and message.ok and {"path", "digest"} <= value.keys():
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
        self.overlaps |= {(str(task), str(path)) for task, path in news.get("overlaps", ())}
        if "letter" in news:
            self.letters.add(str(news["letter"]))
        if news.get("by") == "person":
            self.turns = 0  # a person's answer allows as many turns again

    # Writing

    def begin(self, cause: str, opening: Sequence[ChatMessage], **facts: Any) -> None:
        """Begin an epoch with its opening. `facts` are recorded with it: the opening's dependencies, selection and reasons."""
        number = 1 + self._epochs
        stamped = [self._stamp(message, at) for at, message in enumerate(opening)]
        record = {"epoch": number, "cause": cause, "at": _now(), "agent": self._agent, **mask_values(facts)}
        self._write({**record, "opening": [message.as_record() for message in stamped]}, sync_now=True)

    def add(self, message: ChatMessage, *, sync_now: bool = True, **fields: Any) -> ChatMessage:
        """Append a message, with secrets masked, and return it as it was stored. Write `fields` (usage, request, seconds) on its
        line."""
        stamped = self._stamp(message, 0)
        self._write(
            {**stamped.as_record(), **{key: field for key, field in fields.items() if field}}, sync_now=sync_now
        )
        return stamped

    def answer(
        self, thought: Thought, *, step: str | None = None, request: str | None = None, sync_now: bool = True
    ) -> ChatMessage:
        """Append the mind's answer and return it as a message. Calls without a unique id get one. `step` is the id of the step in
        focus, `request` that of the request that led to the answer."""
        calls: list[ToolCall] = []
        for at, call in enumerate(thought.actions):
            is_duplicate = not call.id or call.id in self._calls or call.id in {earlier.id for earlier in calls}
            calls.append(replace(call, id=f"call_{self._number}_{at}") if is_duplicate else call)
        message = ChatMessage(
            "assistant", thought.text, tuple(calls), provider=thought.provider, cut=thought.cut, step=step
        )
        fields = {"usage": thought.usage.as_record(), "request": request, "seconds": round(thought.seconds, 3)}
        return self.add(message, sync_now=sync_now, **fields)

    def result(self, result: ToolResult, *, sync_now: bool = True) -> None:
        value = dict(result.value) or None
        message = ChatMessage("tool", result.text, call_id=result.call.id, ok=result.ok, result=value)
        self.add(message, sync_now=sync_now, seconds=round(result.seconds, 3))

    def add_turn(self, thought: Thought, results: Sequence[ToolResult], *, step: str | None = None) -> None:
        """Append a whole turn at once, answer and results, without a sync. If a power cut has lost results of the previous turn,
        their calls are first answered as interrupted."""
        with self.batch():
            for call in self.pending_calls:
                self.result(ToolResult.failure(call, INTERRUPTED), sync_now=False)
            answer = self.answer(replace(thought, actions=thought.actions[: len(results)]), step=step, sync_now=False)
            for call, result in zip(answer.calls, results, strict=True):
                self.result(replace(result, call=call), sync_now=False)

    def add_news(self, text: str, parts: Sequence[Mapping[str, Any]] = (), **news: Any) -> None:
        """Append news for the mind; `parts` are pictures. `news` has further fields, such as the `cause`."""
        self.add(ChatMessage("user", text, parts=tuple(parts), news=news))

    def note_files(self, files: Mapping[str, str | None]) -> None:
        """Record new digests of files that the mind's own calls have changed, so they do not count as changes by others."""
        if files:
            self._write({"at": _now(), "files": dict(files)}, sync_now=False)

    def note(self, record: Mapping[str, Any], *, sync_now: bool = True) -> None:
        """Append a line that is not a message: a request before it is sent, or its end."""
        self._write(mask_values({"at": _now(), **record}), sync_now=sync_now)

    def _stamp(self, message: ChatMessage, offset: int) -> ChatMessage:
        number = self._number + 1 + offset
        calls = tuple(
            replace(call, arguments=mask_values(dict(call.arguments)), raw=call.raw and mask(call.raw))
            for call in message.calls
        )
        return replace(
            message, id=f"m{number}", at=_now(), agent=self._agent, text=mask(message.text), calls=calls,
            result=None if message.result is None else mask_values(dict(message.result)),
        )  # fmt: skip

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect the records that are added in the block, and append them together at its end, without a sync."""
        self._buffer = []
        try:
            yield
        finally:
            records, self._buffer = self._buffer, None
        if records:
            self._append(records, False)

    def _write(self, record: Mapping[str, Any], *, sync_now: bool) -> None:
        if self._buffer is None:
            self._append([record], sync_now)
        else:
            self._buffer.append(record)
        with boundary("conversation"):  # in the form in which it will be read again
            record = json.loads(json.dumps(record))
        self._take(record)

    # Reading

    @property
    def pending_calls(self) -> list[ToolCall]:
        """The calls of the last answer that have no result: the process ended, or the task is parked."""
        return [*self._open.values()]

    @property
    def last_id(self) -> str:
        """The id of the last message; "" without messages."""
        return self.messages[-1].id if self.messages else ""

    @property
    def last_words(self) -> str:
        """The last text of the mind."""
        words = (message.text for message in reversed(self.messages) if message.role == "assistant" and message.text)
        return next(words, "nothing")

    @property
    def last_results(self) -> list[ToolResult]:
        """The results of the last turn."""
        last_turn = next(self.turn_messages(reverse=True), None)
        if last_turn is None:
            return []
        calls = {call.id: call for call in last_turn.answer.calls}
        return [
            ToolResult(
                calls[message.call_id or ""], message.text, message.result or {}, None if message.ok else message.text
            )
            for message in last_turn.results
        ]

    def turn_messages(self, *, reverse: bool = False) -> Iterator[TurnMessages]:
        """Yield the turns of this epoch, oldest first or newest first."""
        positions = [number for number, message in enumerate(self.messages) if message.role == "assistant"]
        for number in reversed(positions) if reverse else positions:
            ids = {call.id for call in self.messages[number].calls}
            following_messages = self.messages[number + 1 :]
            yield TurnMessages(
                self.messages[number],
                tuple(message for message in following_messages if message.role == "tool" and message.call_id in ids),
            )

    @property
    def is_repeating(self) -> bool:
        """True if the last turns had equal calls and results, without news in between."""
        last_turns: list[TurnMessages] = []
        for turn in self.turn_messages(reverse=True):
            last_turns.append(turn)
            if len(last_turns) == MAX_REPEATS:
                break
        start = self.messages.index(last_turns[-1].answer) if last_turns else 0
        is_undisturbed = all(message.role != "user" for message in self.messages[start:])
        return (
            len(last_turns) == MAX_REPEATS
            and is_undisturbed
            and bool(last_turns[0].answer.calls)
            and len({turn.shape for turn in last_turns}) == 1
        )


def open_thread(layout: Layout, agent: str, thread: str) -> Log:
    """Return the log of an agent's conversation about a mail thread. `thread` is the Message-ID of the thread's first message."""
    name = hashlib.sha256(thread.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = layout.agent_state(agent) / "threads" / f"{name}.jsonl"
    return Log(path, "messages", 1, lazy=True)


def usage_of(record: Mapping[str, Any]) -> Usage:
    """Return the usage on a line of a conversation. A request without an end counts with its reserved usage, a line without usage
    with zero."""
    if "reserved" in record and "answered" not in record:
        return Usage(record["reserved"]["tokens"], money=record["reserved"].get("money", 0.0))
    fields = record.get("usage") or {}
    return Usage(**fields) if isinstance(fields, Mapping) else Usage()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
