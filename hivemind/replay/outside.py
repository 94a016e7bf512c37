"""The outside world of a replay: what commands printed, reviewers said and people answered stands in the log."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hivemind.replay.record import Course
from hivemind.taskrun.parking import Parking
from hivemind.tools import Session, Tool, ToolProblem
from hivemind.tools.criteria import verdict_text

__all__ = ["replayed_tools"]

_OF_THE_HIVE = frozenset({
    "cancel_task", "check_mailbox", "delegate", "doc_find", "list_tasks", "recall", "release", "remember", "reserve",
    "search_memory", "send_to_task", "wait_for",
})  # fmt: skip
"""Tools whose results depend on more of the hive than its files and this task, or change that: not used again."""
_OF_WORKTREES = frozenset(
    {"read_file", "write_file", "edit_file", "apply_patch", "list_files", "search_files", "merge_worktree"}
)


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
        return replace(tool, use=lambda session, arguments: use(tool, session, arguments))

    return {name: bound(tool) for name, tool in tools.items()}


class _Log:
    """The recorded results, asked for in the order of the turn."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._taken: Counter[tuple[int, str]] = Counter()

    def _next(self, tool: str) -> Mapping[str, Any]:
        """The record of the next use of a tool in this turn. Raises ToolProblem if there was none."""
        uses = [one for one in self._course.turn.get("actions", ()) if one["tool"] == tool]
        at = self._taken[self._course.at, tool]
        self._taken[self._course.at, tool] += 1
        if at >= len(uses):
            raise ToolProblem(f"{tool} was not used here, and a replay uses nothing outside")
        found: Mapping[str, Any] = uses[at]
        if "parked" in found:
            raise Parking(str(found["parked"]), datetime.now(UTC))
        return found

    def as_recorded(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:  # noqa: ARG002 - nothing is used
        return self._result(self._next(tool.name))

    def run_command(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """What the command printed goes where it went, its receipt to the step; nothing runs."""
        found = self._next(tool.name)
        result = found.get("result", {})
        if "exit_status" in result:
            step = session.step(arguments.step) if arguments.step or session.focus.step else None
            output = session.work.task.path / str(result["output_path"])
            output.parent.mkdir(parents=True, exist_ok=True)
            printed = str(result.get("output", "")).encode(errors="replace")  # the end of it is what was recorded
            output.write_bytes(printed)
            if step is None:
                return self._result(found)
            receipt = {"kind": "CMD", "text": result["command"], "exit_status": result["exit_status"]}
            receipt["output_digest"] = hashlib.sha256(printed).hexdigest()
            session.hive.steps.capture(step.id, receipt, **session.shown(step))
        return self._result(found)

    def finish_task(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """The end, with the verdict that the reviewer gave."""
        found = self._next(tool.name)
        state, work = found.get("result", {}).get("state"), session.work
        if work.task.review is not None:
            if state != "done":
                return self._result(found)
            work.keep("criteria", {"missing": [], "approved": "the log"})
        if state is not None and work.citations():
            problems = tuple(found["result"].get("problems", ())) or (("as recorded",) if state != "done" else ())
            verdict = replace(
                work.review, state="approved" if state == "done" else "rejected", reviewer="the log", problems=problems
            )
            work.set_review(verdict)
        return tool.use(session, arguments)

    def verdict(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:  # noqa: ARG002 - as recorded
        """The end of a review."""
        result = self._result(self._next("verdict"))
        session.work.finish(verdict_text(arguments.missing))
        return result

    def wait(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """The waiting is over, with the answer that came."""
        found = self._next(tool.name)
        result = found.get("result", {})
        if "answer" in result:
            step = session.step(arguments.step)
            session.work.trail.card(step, "note", result["answer"], title=f"{result.get('from', 'they')} answered")
        return self._result(found)

    def send_mail(self, tool: Tool, session: Session, arguments: Any) -> dict[str, Any]:
        """Sent to the mailboxes of the copy, and called by the id that it had: the conversation names it."""
        found = self._next(tool.name)
        result = tool.use(session, arguments)
        return result | {key: found["result"][key] for key in ("message_id",) if key in found.get("result", {})}

    @staticmethod
    def _result(found: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(found.get("result", {}))
        if "error" in found:
            raise RecordedFailure(str(found["error"]), {key: value for key, value in result.items() if key != "error"})
        return result
