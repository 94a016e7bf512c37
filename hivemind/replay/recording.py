"""The turns in a task's log, and the mind and tools that replay them. Output of commands, verdicts and answers come from the
log."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Any

from hivemind.frozen import frozen
from hivemind.minds import Mind, MindError, Thought, ToolCall, ToolSchema, Turn
from hivemind.taskrun.transcript import TranscriptEntry
from hivemind.tools import Tool, ToolContext, ToolProblem
from hivemind.tools.excerpt import as_lines
from hivemind.tools.review import verdict_text

Record = Mapping[str, Any]
RULE_MIND = "extractive"
_VOLATILE_KEYS = frozenset({
    "seconds", "timestamp", "time", "date", "since", "until", "id", "message_id", "generation", "seq", "expires_seq",
    "acquired_seq", "left",
})  # fmt: skip
"""Keys that differ in each call: times, message ids, event numbers."""
_NODE_KEYS = frozenset({"node", "card"})
"""Keys of node numbers, which differ in the replay of a model: its memory has added nodes after each thought."""
_HIVE_TOOLS = frozenset({
    "cancel_task", "check_mailbox", "delegate", "doc_find", "list_files", "list_tasks", "recall", "release", "remember",
    "reserve", "search_files", "search_memory", "send_to_task", "wait_for",
})  # fmt: skip
"""Tools that read or change more of the hive than its files and this task. A replay uses their recorded results."""
_WORKTREE_TOOLS = frozenset({"read_file", "write_file", "edit_file", "apply_patch"})


@frozen
class Difference:
    """A difference between log and replay. `what` is focus, action, result or end; `where` names the call."""

    what: str
    where: str
    was: Any
    now: Any


def differences(recorded: TranscriptEntry, replayed: TranscriptEntry) -> Iterator[Difference]:
    """Yield the differences between a turn in the log and the same turn in the replay, in order."""
    recorded_step, replayed_step = recorded.record.get("step"), replayed.record.get("step")
    if recorded_step != replayed_step:
        yield Difference("focus", "step", recorded_step, replayed_step)
    call_pairs = zip_longest(requested_calls(recorded), requested_calls(replayed))
    for position, (recorded_call, replayed_call) in enumerate(call_pairs, 1):
        if recorded_call != replayed_call:
            yield Difference("action", str(position), recorded_call, replayed_call)
            return  # later differences are consequences of this one
    volatile_keys = _VOLATILE_KEYS if is_by_rule(recorded) else _VOLATILE_KEYS | _NODE_KEYS
    outcomes = ([_outcome(call, volatile_keys) for call in turn.calls] for turn in (recorded, replayed))
    for position, (recorded_outcome, replayed_outcome) in enumerate(zip(*outcomes, strict=True), 1):
        if recorded_outcome != replayed_outcome:
            where = f"{position} {recorded.calls[position - 1]['tool']}"
            yield Difference("result", where, recorded_outcome, replayed_outcome)


def _outcome(call: Record, volatile_keys: Collection[str]) -> dict[str, Any]:
    error = _error_of(call)
    fields = {} if error is None else {"error": error}
    return fields | {"result": _stable_part(call.get("result", {}), volatile_keys)}


def _error_of(call: Record) -> str | None:
    """Return the reason why a call failed; None if it did not."""
    return None if call.get("ok", True) else str(call["text"]).removeprefix("failed: ")


def _stable_part(recorded_part: Any, volatile_keys: Collection[str]) -> Any:
    """Return a result, or a part of one, without the values of `volatile_keys`, which differ in each run."""
    if isinstance(recorded_part, Mapping):
        return {
            key: _stable_part(item, volatile_keys) for key, item in recorded_part.items() if key not in volatile_keys
        }
    return (
        [_stable_part(child, volatile_keys) for child in recorded_part]
        if isinstance(recorded_part, list)
        else recorded_part
    )


def is_by_rule(turn: TranscriptEntry) -> bool:
    """Return True if a mind that works by rule took the turn."""
    return not turn.mind or turn.mind == RULE_MIND


def requested_calls(turn: TranscriptEntry) -> list[dict[str, Any]]:
    """Return all calls that the mind requested in a turn, including calls that did not run."""
    return [{"tool": call["tool"], "arguments": call.get("arguments", {})} for call in turn.calls]


def written_files(turns: Iterable[TranscriptEntry]) -> set[str]:
    """Return the files that a task wrote into its own folder, by relative path."""
    calls = [call for turn in turns for call in turn.calls if call["tool"] == "write_file" and _error_of(call) is None]
    names = {PurePosixPath(str(call.get("arguments", {}).get("path", ""))) for call in calls}
    return {str(name) for name in names if name.name and not name.is_absolute() and ".." not in name.parts}


class ReplayCursor:
    """The turns of a log, shared by all agents of a replay. `position` is the index of the current turn."""

    def __init__(self, turns: Sequence[TranscriptEntry]) -> None:
        self.turns = turns
        self.position = -1

    @property
    def turn(self) -> TranscriptEntry:
        """The current turn. Raises MindError after the last turn."""
        if self.position >= len(self.turns):
            raise MindError("the log has no further turn")
        return self.turns[self.position]


class RecordedMind:
    """A mind that returns the recorded thoughts. Several agents may share the cursor.

    If there is a `rule` mind (it works by rule), it thinks instead, so a replay shows the effect of changes in the rules.
    """

    def __init__(self, cursor: ReplayCursor, rule: Mind | None) -> None:
        self._cursor, self._rule = cursor, rule
        self.by_rule = rule is not None

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:
        """Return the thought of the next turn. Raises MindError after the last turn."""
        self._cursor.position += 1
        recorded_turn = self._cursor.turn
        if self._rule is not None:
            return self._rule.think(turn, tools)
        calls = [ToolCall(call["tool"], call["arguments"], call["id"], call.get("raw")) for call in recorded_turn.calls]
        return Thought(recorded_turn.record["text"], tuple(calls), cut=recorded_turn.record.get("cut", False))

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """Return the rule mind's completion. Raises MindError without a rule mind, because a replay asks no model."""
        if self._rule is not None:
            return self._rule.complete(text, schema)
        raise MindError("a replay asks no model")


class RecordedFailure(ToolProblem):
    """A tool call that failed in the log. `result` is its recorded result, which a failed call may have, too."""

    def __init__(self, message: str, result: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.result = dict(result)


def replayed_tools(tools: Mapping[str, Tool], cursor: ReplayCursor, *, worktrees: bool) -> dict[str, Tool]:
    """Return an agent's tools for a replay. A tool with effects outside the copy of the hive instead returns the result that the
    log has for the cursor's turn.

    `worktrees` says that the task had worktrees. The copy has none, so the tools for files then return recorded results, too.
    """
    log = _RecordedTools(cursor)
    replacements: dict[str, Callable[[Tool, ToolContext, Any], dict[str, Any]]] = {
        "run_command": log.run_command,
        "finish_task": log.finish_task,
        "verdict": log.verdict,
        "wait": log.wait,
        "ask_human": log.wait,
        "send_mail": log.send_mail,
        **dict.fromkeys(_HIVE_TOOLS | (_WORKTREE_TOOLS if worktrees else set()), log.as_recorded),
    }

    def replace_use(tool: Tool) -> Tool:
        replacement = replacements.get(tool.name)
        if replacement is None:
            return tool
        # the log omits long fields of results, which the tool's own text function may need
        return replace(
            tool, use=lambda context, arguments: replacement(tool, context, arguments), text=as_lines, continuation=None
        )

    return {name: replace_use(tool) for name, tool in tools.items()}


class _RecordedTools:
    """Replacements for tools, which return recorded results in the order in which the log has them."""

    def __init__(self, cursor: ReplayCursor) -> None:
        self._cursor = cursor
        self._use_counts: Counter[tuple[int, str]] = Counter()

    def _next(self, tool: str, context: ToolContext) -> Record:
        """Return the recorded call with the id of the current call. A rule mind's calls have no ids: return the tool's next call
        in the recorded turn.

        Raises ToolProblem if the log does not have the call.
        """
        uses = [call for call in self._cursor.turn.calls if call["tool"] == tool]
        use_number = self._use_counts[self._cursor.position, tool]
        self._use_counts[self._cursor.position, tool] += 1
        candidates = [*(call for call in uses if call["id"] == context.call_id), *uses[use_number:]]
        if not candidates:
            raise ToolProblem(f"{tool} was not used in this turn, and a replay runs no tool with outside effects")
        return candidates[0]

    def as_recorded(self, tool: Tool, context: ToolContext, arguments: Any) -> dict[str, Any]:  # noqa: ARG002 - the tools' signature
        return self._result(self._next(tool.name, context))

    def run_command(self, tool: Tool, context: ToolContext, arguments: Any) -> dict[str, Any]:
        """Write the recorded output to its file and add the receipt to the step, without running the command. Return the recorded
        result."""
        call_record = self._next(tool.name, context)
        command_result = call_record.get("result", {})
        if "exit_status" in command_result:
            step = context.step(arguments.step) if arguments.step or context.focus.step else None
            output = context.work.task.path / str(command_result["output_path"])
            output.parent.mkdir(parents=True, exist_ok=True)
            # the log may have only the end of the output
            output_text = command_result.get("output", command_result["output_tail"])
            output_bytes = str(output_text).encode(errors="replace")
            output.write_bytes(output_bytes)
            if step is None:
                return self._result(call_record)
            receipt = {"kind": "CMD", "text": command_result["command"], "exit_status": command_result["exit_status"]}
            receipt["output_digest"] = hashlib.sha256(output_bytes).hexdigest()
            context.hive.steps.capture(step.id, receipt, **context.step_authority(step))
        return self._result(call_record)

    def finish_task(self, tool: Tool, context: ToolContext, arguments: Any) -> dict[str, Any]:
        """Finish the task with the reviewer's recorded verdict."""
        call_record = self._next(tool.name, context)
        state, work = call_record.get("result", {}).get("state"), context.work
        if work.task.review is not None:
            if state != "done":
                return self._result(call_record)
            work.keep("criteria", {"missing": [], "approved": "the log"})
        if state is not None and work.citations():
            problems = tuple(call_record["result"].get("problems", ())) or (("as recorded",) if state != "done" else ())
            verdict = replace(
                work.review, state="rejected" if problems else "approved", reviewer="the log", problems=problems
            )
            work.set_review(verdict)
        return tool.use(context, arguments)

    def verdict(self, tool: Tool, context: ToolContext, arguments: Any) -> dict[str, Any]:  # noqa: ARG002 - the tools' signature
        """Finish a review, and return the recorded result."""
        result = self._result(self._next("verdict", context))
        context.work.finish(verdict_text(arguments.missing))
        return result

    def wait(self, tool: Tool, context: ToolContext, arguments: Any) -> dict[str, Any]:
        """End the wait at once, with the recorded answer."""
        call_record = self._next(tool.name, context)
        wait_result = call_record.get("result", {})
        if "answer" in wait_result:
            step = context.step(arguments.step)
            context.work.trail.add_card(
                step, "note", wait_result["answer"], title=f"{wait_result.get('from', 'they')} answered"
            )
        return self._result(call_record)

    def send_mail(self, tool: Tool, context: ToolContext, arguments: Any) -> dict[str, Any]:
        """Send to mailboxes of the hive's copy. Return the recorded Message-ID, to which later calls refer."""
        call_record = self._next(tool.name, context)
        result = tool.use(context, arguments)
        return result | {
            key: call_record["result"][key] for key in ("message_id",) if key in call_record.get("result", {})
        }

    @staticmethod
    def _result(call_record: Record) -> dict[str, Any]:
        result = dict(call_record.get("result", {}))
        if (error := _error_of(call_record)) is not None:
            raise RecordedFailure(error, {key: value for key, value in result.items() if key != "error"})
        return result
