"""What a task's log says of its turns, and the mind and the tools that take them again: what commands printed, reviewers said and
people answered stands in the log."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from hivemind.frozen import frozen
from hivemind.minds import Mind, MindError, Thought, ToolCall, ToolSchema, Turn
from hivemind.taskrun.transcript import Transcript
from hivemind.taskrun.waits import Parking
from hivemind.tools import Session, Tool, ToolProblem
from hivemind.tools.criteria import verdict_text
from hivemind.tools.excerpt import as_lines

Record = Mapping[str, Any]
RULE = "extractive"
_PASSING = frozenset({
    "seconds", "timestamp", "time", "date", "since", "until", "id", "message_id", "generation", "seq", "expires_seq",
    "acquired_seq", "left",
})  # fmt: skip
"""What is another each time a tool is used: times, ids of messages, numbers of events."""
_NUMBERED = frozenset({"node", "card"})
"""Numbers of nodes, where a model's memory puts its own between them whenever it has thought."""
_OF_THE_HIVE = frozenset({
    "cancel_task", "check_mailbox", "delegate", "doc_find", "list_files", "list_tasks", "recall", "release", "remember",
    "reserve", "search_files", "search_memory", "send_to_task", "wait_for",
})  # fmt: skip
"""Tools whose results depend on more of the hive than its files and this task, or change that: not used again."""
_OF_WORKTREES = frozenset({"read_file", "write_file", "edit_file", "apply_patch", "merge_worktree"})


@frozen
class Difference:
    """`what` is focus, action, result or end; `where` which call; then what it was and would be now."""

    what: str
    where: str
    was: Any
    now: Any


def differences(was: Mapping[str, Any], now: Mapping[str, Any], *, by_rule: bool) -> Iterator[Difference]:
    """The differences of two records of a turn, in the order of the turn."""
    if was.get("step") != now.get("step"):
        yield Difference("focus", "step", was.get("step"), now.get("step"))
    recorded_calls, replayed_calls = wishes_of(was), wishes_of(now)
    for position in range(max(len(recorded_calls), len(replayed_calls))):
        recorded_call = recorded_calls[position] if position < len(recorded_calls) else None
        replayed_call = replayed_calls[position] if position < len(replayed_calls) else None
        if recorded_call != replayed_call:
            yield Difference("action", str(position + 1), recorded_call, replayed_call)
            return  # what follows another action follows from it
    volatile_keys = _PASSING if by_rule else _PASSING | _NUMBERED
    for position, (recorded_call, replayed_call) in enumerate(zip(was.get("actions", ()), now.get("actions", ()), strict=False), 1):
        recorded_outcome, replayed_outcome = _outcome(recorded_call, volatile_keys), _outcome(replayed_call, volatile_keys)
        if recorded_outcome != replayed_outcome:
            yield Difference("result", f"{position} {recorded_call['tool']}", recorded_outcome, replayed_outcome)


def _outcome(action: Mapping[str, Any], passing: Collection[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {key: action[key] for key in ("error", "parked") if key in action}
    return fields | {"result": _lasting(action.get("result", {}), passing)}


def _lasting(value: Any, passing: Collection[str]) -> Any:
    """A result without what is another each time."""
    if isinstance(value, Mapping):
        return {key: _lasting(item, passing) for key, item in value.items() if key not in passing}
    return [_lasting(item, passing) for item in value] if isinstance(value, list) else value


def turns_of(records: Iterable[Record]) -> list[Record]:
    """The turns of a conversation: who took it (`agent`, `mind`), what was answered, and for each call what came of it. Those
    that only waited (for a provider, a lease, a budget) come about by what was around them, and are none."""
    return [
        {
            "agent": turn.record.get("agent"), "mind": turn.mind or RULE, "step": turn.record.get("step"),
            "thought": turn.record["text"], "actions": list(map(_action, turn.calls)), "cut": turn.record.get("cut", False),
        }
        for turn in Transcript(records).turns
    ]  # fmt: skip


def _action(call: Record) -> Record:
    fields = {key: value for key, value in call.items() if key != "ok"}
    if "ok" in call:
        fields["result"] = call.get("result", {})
    return fields if call.get("ok", True) else {**fields, "error": call["text"].removeprefix("failed: ")}


def wishes_of(turn: Record) -> list[dict[str, Any]]:
    """All calls that were asked for in a turn, those that were not come to among them."""
    return [{"tool": action["tool"], "arguments": action.get("arguments", {})} for action in turn.get("actions", ())]


def written_in(turns: Iterable[Record]) -> set[str]:
    """The files that a task wrote, those of its own folder by their names in it."""
    writes = [
        action for turn in turns for action in turn.get("actions", ()) if one["tool"] == "write_file" and "error" not in one
    ]
    names = {PurePosixPath(str(action.get("arguments", {}).get("path", ""))) for action in writes}
    return {str(name) for name in names if name.name and not name.is_absolute() and ".." not in name.parts}


def script_lines(records: Iterable[Record]) -> Iterator[str]:
    """A script for a scripted mind: what was answered, and the completions that folds asked for."""
    record_list = list(records)
    for turn in turns_of(record_list):
        yield json.dumps({"text": turn.get("thought", ""), "calls": wishes_of(turn)}, ensure_ascii=False)
    for record in record_list:
        if "answered" in record and "text" in record:
            yield json.dumps({"complete": record["text"]}, ensure_ascii=False)


class Course:
    """The turns of a log in their order, whoever took them; `at` is the one that is being taken, from 0."""

    def __init__(self, turns: Sequence[Record]) -> None:
        self.turns = turns
        self.at = -1

    @property
    def turn(self) -> Record:
        """The record of the turn that is being taken. Raises MindError after the last."""
        if self.at >= len(self.turns):
            raise MindError("the log has no more turns")
        return self.turns[self.at]


class RecordedMind:
    """Thinks what stands in the conversation, turn by turn, for one of the agents that share a course.

    A mind that works by rule (`rule`) thinks for itself instead: its thoughts are a part of what a change of code changes.
    """

    def __init__(self, course: Course, rule: Mind | None) -> None:
        self._course, self._rule = course, rule
        self.by_rule = rule is not None

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:
        """The thought of the next turn. Raises MindError after the last."""
        self._course.at += 1
        recorded_turn = self._course.turn
        if self._rule is not None:
            return self._rule.think(turn, tools)
        calls = [ToolCall(action["tool"], action["arguments"], action["id"], action.get("raw")) for action in recorded_turn["actions"]]
        return Thought(recorded_turn["thought"], tuple(calls), cut=recorded_turn["cut"])

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """A rule's own completion. Raises MindError where there is none: a replay asks nothing."""
        if self._rule is not None:
            return self._rule.complete(text, schema)
        raise MindError("a replay asks nothing")


class RecordedFailure(ToolProblem):
    """A tool failed in the log; `result` is what it answered all the same."""

    def __init__(self, what: str, result: Mapping[str, Any]) -> None:
        super().__init__(what)
        self.result = dict(result)


def replayed_tools(tools: Mapping[str, Tool], course: Course, *, worktrees: bool) -> dict[str, Tool]:
    """The tools of an agent, those that reach outside replaced by their records; `course` knows which turn is taken. A task that
    had `worktrees` finds none: what it read and wrote there stands in the log."""
    log = _Log(course)
    replacements: dict[str, Callable[[Tool, Session, Any], dict[str, Any]]] = {
        "run_command": log.run_command,
        "finish_task": log.finish_task,
        "verdict": log.verdict,
        "wait": log.wait,
        "ask_human": log.wait,
        "send_mail": log.send_mail,
        **dict.fromkeys(_OF_THE_HIVE | (_OF_WORKTREES if worktrees else set()), log.as_recorded),
    }

    def bound(tool: Tool) -> Tool:
        replacement = replacements.get(tool.name)
        if replacement is None:
            return tool
        # a log keeps no long fields of a result, which the tool's own text may be made of
        return replace(tool, use=lambda session, arguments: replacement(tool, session, arguments), text=as_lines, rest=None)

    return {name: bound(tool) for name, tool in tools.items()}


class _Log:
    """The recorded results, asked for in the order of the turn."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._taken: Counter[tuple[int, str]] = Counter()

    def _next(self, tool: str, session: Session) -> Mapping[str, Any]:
        """The record of a call: that of its id, else, where a rule has made it, the next use of the tool in this turn. Raises
        ToolProblem if there was none."""
        uses = [action for action in self._course.turn.get("actions", ()) if action["tool"] == tool]
        use_number = self._taken[self._course.at, tool]
        self._taken[self._course.at, tool] += 1
        identified = [action for action in uses if action["id"] == session.call_id]
        if not identified and use_number >= len(uses):
            raise ToolProblem(f"{tool} was not used here, and a replay uses nothing outside")
        call_record: Mapping[str, Any] = identified[0] if identified else uses[use_number]
        if "parked" in call_record:
            raise Parking(str(call_record["parked"]), datetime.now(UTC))
        return call_record

    def as_recorded(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:  # noqa: ARG002 - nothing is used
        return self._result(self._next(tool.name, session))

    def run_command(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """What the command printed goes where it went, its receipt to the step; nothing runs."""
        call_record = self._next(tool.name, session)
        result = call_record.get("result", {})
        if "exit_status" in result:
            step = session.step(arguments.step) if arguments.step or session.focus.step else None
            output = session.work.task.path / str(result["output_path"])
            output.parent.mkdir(parents=True, exist_ok=True)
            output_text = result.get("output", result["output_tail"])  # the end of it is what was recorded
            output_bytes = str(output_text).encode(errors="replace")
            output.write_bytes(output_bytes)
            if step is None:
                return self._result(call_record)
            receipt = {"kind": "CMD", "text": result["command"], "exit_status": result["exit_status"]}
            receipt["output_digest"] = hashlib.sha256(output_bytes).hexdigest()
            session.hive.steps.capture(step.id, receipt, **session.step_authority(step))
        return self._result(call_record)

    def finish_task(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """The end, with the verdict that the reviewer gave."""
        call_record = self._next(tool.name, session)
        state, work = call_record.get("result", {}).get("state"), session.work
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
        return tool.use(session, arguments)

    def verdict(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:  # noqa: ARG002 - as recorded
        """The end of a review."""
        result = self._result(self._next("verdict", session))
        session.work.finish(verdict_text(arguments.missing))
        return result

    def wait(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """The waiting is over, with the answer that came."""
        call_record = self._next(tool.name, session)
        result = call_record.get("result", {})
        if "answer" in result:
            step = session.step(arguments.step)
            session.work.trail.add_card(step, "note", result["answer"], title=f"{result.get('from', 'they')} answered")
        return self._result(call_record)

    def send_mail(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """Sent to the mailboxes of the copy, and called by the id that it had: the conversation names it."""
        call_record = self._next(tool.name, session)
        result = tool.use(session, arguments)
        return result | {key: call_record["result"][key] for key in ("message_id",) if key in call_record.get("result", {})}

    @staticmethod
    def _result(found: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(found.get("result", {}))
        if "error" in found:
            raise RecordedFailure(str(found["error"]), {key: value for key, value in result.items() if key != "error"})
        return result
