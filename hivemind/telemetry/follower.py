"""Follows the journal, the conversations of open tasks and the agents' logs, and sends the spans that have ended."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from hivemind.boundary import boundary
from hivemind.coordination import Event
from hivemind.errors import HivemindError
from hivemind.fs import crash_point, load_dataclass, save_dataclass
from hivemind.fs.paths import names_in
from hivemind.presence.agent_log import AgentLog
from hivemind.presence.parts import Parts
from hivemind.taskrun.conversation import open_thread, usage_of
from hivemind.tasks import read_outcome
from hivemind.tasks.folder import ended_at, ended_folder
from hivemind.tasks.record import load_sound, open_log
from hivemind.telemetry.spans import ConversationSpans, SpanFactory, message_json, timestamp
from hivemind.trace_context import TraceContext

_KIND, _VERSION = "telemetry", 1
_ENDS = {"task.done": "done", "task.failed": "failed", "task.cancelled": "cancelled"}
_MAX_SPANS = 200  # that are sent at once
_FIRST_S, _MAX_FIRST_EVENTS = 60.0, 10_000
_log = logging.getLogger(__name__)
Spans = list[ReadableSpan]


@dataclass
class TracePosition:
    """How far spans were sent. `seq` is the last event of the journal; `tasks` and `agents` count the lines that were sent of
    each open task's and each agent's log.
    """

    seq: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    agents: dict[str, int] = field(default_factory=dict)


class OpenTask:
    """An open task: its log (`line_count` lines were read) and its token usage."""

    def __init__(self, factory: SpanFactory, folder: Path, context: TraceContext) -> None:
        self.log, self.line_count = open_log(folder), 0
        self.spans = ConversationSpans(factory, context, {"gen_ai.conversation.id": folder.name})
        self.usage: dict[str, tuple[int, int]] = {}
        self.began_at: float | None = None

    def ended_spans(self, line: Mapping[str, Any]) -> Spans:
        """Return the spans that end with `line`, the next line of the log."""
        self.line_count += 1
        try:
            with boundary("line of a conversation", self.log.path):
                self.began_at = self.began_at or timestamp(line)
                if "usage" in line or "reserved" in line:
                    usage = usage_of(line)
                    key = str(line.get("answered") or line.get("request") or len(self.usage))
                    self.usage[key] = usage.tokens_in, usage.tokens_out
                return [*self.spans.line_spans(line)]
        except HivemindError as error:
            _log.warning("%s", error)
            return []


class TraceFollower:
    """Sends each span at least once, always under the same id. `send` returns False if the spans have to be sent again."""

    def __init__(self, hive: Parts, factory: SpanFactory, send: Callable[[Spans], bool]) -> None:
        self._hive, self._factory, self._send = hive, factory, send
        self._path = hive.layout.state / "telemetry.json"
        self._saved = self._load() or self._first_position()
        self._rewind()

    def _load(self) -> TracePosition | None:
        try:
            return load_dataclass(TracePosition, self._path, _KIND, _VERSION)
        except HivemindError as error:
            _log.warning("%s; traces begin anew", error)
            return None

    def _first_position(self) -> TracePosition:
        """Save and return the position where the follower begins in a hive.

        In the journal and the agents' logs it is a minute ago, because agents start before this process. In an active task's
        log it is the beginning.
        """
        began_at, seq = time.time() - _FIRST_S, self._hive.journal.seq
        for event in self._hive.journal.events(max(0, seq - _MAX_FIRST_EVENTS)):
            if event.payload.get("time", 0) >= began_at:
                seq = event.seq - 1
                break
        active = [name for name in names_in(self._hive.layout.active) if not name.startswith(".")]
        logs = {
            name: sum(line.get("time", 0) < began_at for line in log.records())
            for name, log in self._agent_logs().items()
        }
        position = TracePosition(seq, dict.fromkeys(active, 0), logs)
        save_dataclass(self._path, _KIND, _VERSION, position, durable=False)
        return position

    def _rewind(self) -> None:
        """Return to the last saved position."""
        self._position = deepcopy(self._saved)
        self._open_tasks: dict[str, OpenTask] = {}
        self._logs: dict[str, tuple[AgentLog, int]] = {}

    def step(self) -> bool:
        """Send the spans that have ended since the last step. Return False on a failure; the next step then sends them again."""
        batch: Spans = []
        is_sent = False
        try:
            for spans in self._new_spans():
                batch += spans
                if len(batch) >= _MAX_SPANS and not self._flush(batch):
                    return False
            is_sent = self._flush(batch)
        except (HivemindError, OSError) as error:  # the disk is full, or the journal cannot be read
            _log.warning("traces wait: %s", error)
        finally:
            if not is_sent:
                self._rewind()
        return is_sent

    def _flush(self, batch: Spans) -> bool:
        sampled_spans = [span for span in batch if span.context.trace_flags.sampled]
        batch.clear()
        if sampled_spans and not self._send(sampled_spans):
            return False
        if self._position != self._saved:
            crash_point("telemetry.sent")
            save_dataclass(self._path, _KIND, _VERSION, self._position, durable=False)
            self._saved = deepcopy(self._position)
        return True

    def _new_spans(self) -> Iterator[Spans]:
        """Yield the spans of each new record of the journal, the open tasks and the agents' logs.

        The position moves past a record before that record's spans are yielded.
        """
        position, seq = self._position, self._hive.journal.seq
        position.seq = min(position.seq, seq)  # after a restored backup
        for event in self._hive.journal.events(position.seq) if seq > position.seq else ():
            task_id = str(event.payload.get("task_id"))
            if event.kind == "task.claimed":
                position.tasks.setdefault(task_id, 0)
            elif event.kind in _ENDS and task_id in position.tasks:
                yield from self._end_task(task_id, event)
            position.seq = event.seq
        for task_id in [*position.tasks]:
            yield from self._read_task(task_id, self._hive.layout.active / task_id)
        for name, log in self._agent_logs().items():
            yield from self._read_agent(name, log)

    def _read_task(self, task_id: str, folder: Path) -> Iterator[Spans]:
        task = self._open_tasks.get(task_id)
        record = load_sound(folder) if task is None else None
        if task is None and record is not None and record.trace is not None:
            task = self._open_tasks[task_id] = OpenTask(self._factory, folder, record.trace)
        if task is None or not folder.is_dir():
            return
        task.log.path = os.path.join(folder, os.path.basename(task.log.path))
        with _logged_errors():
            for line in task.log.read():
                spans = task.ended_spans(line)
                if task.line_count > self._position.tasks[task_id]:
                    self._position.tasks[task_id] = task.line_count
                    yield spans

    def _end_task(self, task_id: str, event: Event) -> Iterator[Spans]:
        """Yield the spans of a task's remaining lines, then those of the task itself. `event` is the journal's event of
        its end.
        """
        folder = ended_folder(self._hive.layout, task_id)
        if folder is not None:
            yield from self._read_task(task_id, folder)
        task, record = self._open_tasks.pop(task_id, None), None if folder is None else load_sound(folder)
        del self._position.tasks[task_id]
        self._position.seq = event.seq
        if task is None or folder is None or record is None or record.claim is None:  # retried or deleted meanwhile
            return
        outcome, text, spans = _ENDS[event.kind], read_outcome(folder), []
        with _logged_errors(), boundary("task's record", folder):
            end, claimed = ended_at(folder), datetime.fromisoformat(record.claim.claimed).timestamp()
            spans = [*task.spans.open_spans(end)]
            landing = record.kept.get("landing") or {}
            agent = str(landing.get("agent") or record.claim.agent)
            context = task.spans.context
            times = min(task.began_at or end, claimed), end
            tokens_in, tokens_out = map(sum, zip((0, 0), *task.usage.values(), strict=True))
            attributes = {
                "gen_ai.conversation.id": task_id, "gen_ai.agent.name": agent, "gen_ai.usage.input_tokens": tokens_in,
                "gen_ai.usage.output_tokens": tokens_out, "hivemind.task.outcome": outcome, "hivemind.task.maker": record.maker,
            }  # fmt: skip
            content = {
                "gen_ai.input.messages": message_json("user", record.text),
                "gen_ai.output.messages": message_json("assistant", text if outcome == "done" else None),
            }
            error = None if outcome == "done" else (f"task_{outcome}", str(text or event.payload.get("reason")))
            if landing.get("queued"):
                queued = datetime.fromisoformat(landing["queued"]).timestamp(), end
                spans.append(
                    self._factory.span(context.child("landing"), "landing", queued, {"hivemind.task": task_id}, {})
                )
            if record.kept.get("subtasks") or record.kept.get("contest"):  # the workflow's span is around the agent's
                workflow = replace(context.child("workflow"), parent=context.parent)
                context = replace(context, parent=workflow.span)
                spans.append(self._operation("invoke_workflow", workflow, times, attributes, content, error))
            spans.append(self._operation("invoke_agent", context, times, attributes, content, error))
        yield spans

    def _operation(
        self, operation: str, context: TraceContext, times: tuple[float, float], attributes: Mapping[str, Any],
        content: Mapping[str, Any], error: tuple[str, str] | None = None,
    ) -> ReadableSpan:  # fmt: skip
        name = f"{operation} {attributes['gen_ai.agent.name']}"
        return self._factory.span(
            context, name, times, {**attributes, "gen_ai.operation.name": operation}, content, error=error
        )

    # outside tasks

    def _agent_logs(self) -> dict[str, AgentLog]:
        layout = self._hive.layout
        return {
            name: AgentLog(layout.agent_state(name))
            for name in sorted(names_in(layout.state / "agents"))
            if (layout.agent_state(name) / "log.jsonl").exists()
        }

    def _read_agent(self, name: str, log: AgentLog) -> Iterator[Spans]:
        log, line_count = self._logs.setdefault(name, (log, 0))
        with _logged_errors():
            for line in log.read():
                line_count += 1
                self._logs[name] = log, line_count
                if line_count > self._position.agents.get(name, 0):
                    self._position.agents[name] = line_count
                    with _logged_errors(), boundary("line of an agent's log", log.path):
                        yield [*self._turn_spans(name, line)]

    def _turn_spans(self, agent: str, line: Mapping[str, Any]) -> Iterator[ReadableSpan]:
        """Yield the spans of an agent's turn outside tasks, from the turn's line in the agent's log.

        If the turn is about a letter with a span, all of the turn's spans are within it. Otherwise there is one span for each
        tool call by a program that sent its own span.
        """
        end, calls = float(line["time"]), () if "thread" in line else line.get("calls", ())
        times, letter_span = (end - line.get("seconds", 0.0), end), TraceContext.parse(line.get("traceparent"))
        if letter_span is None:
            for number, call in enumerate(calls):
                if (caller := TraceContext.parse(call.get("traceparent"))) is not None:
                    span, names = caller.child(agent, str(end), str(number)), {"mcp.method.name": "tools/call"}
                    yield self._factory.span(span, f"tools/call {call['tool']}", times, names, {})
            return
        letter_id = str(line["about"]["id"])
        attributes = {"gen_ai.conversation.id": letter_id, "gen_ai.agent.name": agent}
        context = letter_span.child(agent, str(end), letter_id)
        error = ("turn_error", str(line["problem"])) if "problem" in line else None
        yield self._operation("invoke_agent", context, times, attributes, {}, error)
        for number, call in enumerate(calls):
            yield self._factory.tool_span(context, {**call, "id": call["id"] or str(number)}, times, call, attributes)
        if "thread" in line:
            conversation = ConversationSpans(self._factory, context, attributes)
            for message in open_thread(self._hive.layout, agent, line["thread"]).records():
                spans = [*conversation.line_spans(message)]
                yield from (span for span in spans if times[0] <= timestamp(message) <= times[1])


@contextmanager
def _logged_errors() -> Iterator[None]:
    """Within a `with` block, log an error of one record instead of raising it, so the other records are exported."""
    try:
        yield
    except (HivemindError, OSError) as error:
        _log.warning("left out of the traces: %s", error)
