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
    wanted, wants = wishes_of(was), wishes_of(now)
    for at in range(max(len(wanted), len(wants))):
        one = wanted[at] if at < len(wanted) else None
        other = wants[at] if at < len(wants) else None
        if one != other:
            yield Difference("action", str(at + 1), one, other)
            return  # what follows another action follows from it
    passing = _PASSING if by_rule else _PASSING | _NUMBERED
    for at, (one, other) in enumerate(zip(was.get("actions", ()), now.get("actions", ()), strict=False), 1):
        before, after = _outcome(one, passing), _outcome(other, passing)
        if before != after:
            yield Difference("result", f"{at} {one['tool']}", before, after)


def _outcome(action: Mapping[str, Any], passing: Collection[str]) -> dict[str, Any]:
    told: dict[str, Any] = {key: action[key] for key in ("error", "parked") if key in action}
    return told | {"result": _lasting(action.get("result", {}), passing)}


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
    told = {key: value for key, value in call.items() if key != "ok"}
    if "ok" in call:
        told["result"] = call.get("result", {})
    return told if call.get("ok", True) else {**told, "error": call["text"].removeprefix("failed: ")}


def wishes_of(turn: Record) -> list[dict[str, Any]]:
    """All calls that were asked for in a turn, those that were not come to among them."""
    return [{"tool": one["tool"], "arguments": one.get("arguments", {})} for one in turn.get("actions", ())]


def written_in(turns: Iterable[Record]) -> set[str]:
    """The files that a task wrote, those of its own folder by their names in it."""
    done = [
        one for turn in turns for one in turn.get("actions", ()) if one["tool"] == "write_file" and "error" not in one
    ]
    names = {PurePosixPath(str(one.get("arguments", {}).get("path", ""))) for one in done}
    return {str(name) for name in names if name.name and not name.is_absolute() and ".." not in name.parts}


def script_lines(records: Iterable[Record]) -> Iterator[str]:
    """A script for a scripted mind: what was answered, and the completions that folds asked for."""
    kept = list(records)
    for turn in turns_of(kept):
        yield json.dumps({"text": turn.get("thought", ""), "calls": wishes_of(turn)}, ensure_ascii=False)
    for record in kept:
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
        recorded = self._course.turn
        if self._rule is not None:
            return self._rule.think(turn, tools)
        calls = [ToolCall(one["tool"], one["arguments"], one["id"], one.get("raw")) for one in recorded["actions"]]
        return Thought(recorded["thought"], tuple(calls), cut=recorded["cut"])

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
    uses: dict[str, Callable[[Tool, Session, Any], dict[str, Any]]] = {
        "run_command": log.run_command,
        "finish_task": log.finish_task,
        "verdict": log.verdict,
        "wait": log.wait,
        "ask_human": log.wait,
        "send_mail": log.send_mail,
        **dict.fromkeys(_OF_THE_HIVE | (_OF_WORKTREES if worktrees else set()), log.as_recorded),
    }

    def bound(tool: Tool) -> Tool:
        use = uses.get(tool.name)
        if use is None:
            return tool
        # a log keeps no long fields of a result, which the tool's own text may be made of
        return replace(tool, use=lambda session, arguments: use(tool, session, arguments), text=as_lines, rest=None)

    return {name: bound(tool) for name, tool in tools.items()}


class _Log:
    """The recorded results, asked for in the order of the turn."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._taken: Counter[tuple[int, str]] = Counter()

    def _next(self, tool: str, session: Session) -> Mapping[str, Any]:
        """The record of a call: that of its id, else, where a rule has made it, the next use of the tool in this turn. Raises
        ToolProblem if there was none."""
        uses = [one for one in self._course.turn.get("actions", ()) if one["tool"] == tool]
        at = self._taken[self._course.at, tool]
        self._taken[self._course.at, tool] += 1
        named = [one for one in uses if one["id"] == session.call_id]
        if not named and at >= len(uses):
            raise ToolProblem(f"{tool} was not used here, and a replay uses nothing outside")
        found: Mapping[str, Any] = named[0] if named else uses[at]
        if "parked" in found:
            raise Parking(str(found["parked"]), datetime.now(UTC))
        return found

    def as_recorded(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:  # noqa: ARG002 - nothing is used
        return self._result(self._next(tool.name, session))

    def run_command(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """What the command printed goes where it went, its receipt to the step; nothing runs."""
        found = self._next(tool.name, session)
        result = found.get("result", {})
        if "exit_status" in result:
            step = session.step(arguments.step) if arguments.step or session.focus.step else None
            output = session.work.task.path / str(result["output_path"])
            output.parent.mkdir(parents=True, exist_ok=True)
            known = result.get("output", result["output_tail"])  # the end of it is what was recorded
            printed = str(known).encode(errors="replace")
            output.write_bytes(printed)
            if step is None:
                return self._result(found)
            receipt = {"kind": "CMD", "text": result["command"], "exit_status": result["exit_status"]}
            receipt["output_digest"] = hashlib.sha256(printed).hexdigest()
            session.hive.steps.capture(step.id, receipt, **session.shown(step))
        return self._result(found)

    def finish_task(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """The end, with the verdict that the reviewer gave."""
        found = self._next(tool.name, session)
        state, work = found.get("result", {}).get("state"), session.work
        if work.task.review is not None:
            if state != "done":
                return self._result(found)
            work.keep("criteria", {"missing": [], "approved": "the log"})
        if state is not None and work.citations():
            problems = tuple(found["result"].get("problems", ())) or (("as recorded",) if state != "done" else ())
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
        found = self._next(tool.name, session)
        result = found.get("result", {})
        if "answer" in result:
            step = session.step(arguments.step)
            session.work.trail.card(step, "note", result["answer"], title=f"{result.get('from', 'they')} answered")
        return self._result(found)

    def send_mail(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """Sent to the mailboxes of the copy, and called by the id that it had: the conversation names it."""
        found = self._next(tool.name, session)
        result = tool.use(session, arguments)
        return result | {key: found["result"][key] for key in ("message_id",) if key in found.get("result", {})}

    @staticmethod
    def _result(found: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(found.get("result", {}))
        if "error" in found:
            raise RecordedFailure(str(found["error"]), {key: value for key, value in result.items() if key != "error"})
        return result
