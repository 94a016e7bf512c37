"""Questions to the operator about a coding agent's calls, and what he has answered (`permissions:` in an agent's file).

An answer outlives the program: it is kept in the task's record, and holds when the program asks for the same call again.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Literal

from hivemind.boundary import as_dataclass, boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.minds.agents.events import ProgramCall
from hivemind.minds.agents.permissions import call_key, command_of
from hivemind.taskrun.replies import read_permission
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking
from hivemind.tools import ToolContext
from hivemind.tools.waiting import ask_person

_RECORD = "permissions"
_MAX_CHARS = 2_000


@frozen
class Grant:
    """The operator's answer about a call that a coding agent wants to make.

    `answer` is empty while the question is open. An answer that `lasts` for `once` becomes `used` with the first call; one for
    the `task` holds for all of them. `number` counts the questions about the call.
    """

    key: str
    description: str
    number: int = 1
    answer: Literal["", "allow", "deny", "used"] = ""
    lasts: Literal["once", "task"] = "once"
    reason: str = ""


class PermissionDesk:
    """The questions of one task, and their answers."""

    def __init__(self, context: ToolContext, work: TaskRun) -> None:
        """Restore the grants from the task's record. Raises Unreadable if it is invalid."""
        self._context, self._work = context, work
        with boundary("task's permissions"):
            rows = work.task.kept.get(_RECORD) or []
            self._grants = {row["key"]: as_dataclass(Grant, row, "permission") for row in rows}

    def look_up(self, call: ProgramCall) -> Grant | None:
        """Return the operator's answer about a call, or None without one. Mark an answer that lasts for one call as used."""
        grant = self._grants.get(call_key(call))
        if grant is None or grant.answer in ("", "used"):
            return None
        if grant.lasts == "once":
            self._keep(replace(grant, answer="used"))
        return grant

    def ask(self, call: ProgramCall) -> Grant:
        """Ask the operator about a call, once. Return the open question."""
        key, description = call_key(call), describe_call(call)
        earlier = self._grants.get(key)
        if earlier is not None and not earlier.answer:
            return earlier
        return self._ask(Grant(key, description, 1 if earlier is None else earlier.number + 1))

    def _ask(self, grant: Grant, problem: str = "") -> Grant:
        question = (
            f"{problem}{self._context.agent} wants to do this:\n\n{grant.description[:_MAX_CHARS]}\n\n"
            "Answer `once`, `always` or `deny` with the reason; `always` holds for this task."
        )
        self._work.waits.begin(self._wait_name(grant), {"human": question}, datetime.now(UTC))
        ask_person(self._context, self._wait_name(grant), question, subject="Permission")
        self._keep(grant)
        return grant

    def take_answers(self) -> list[Grant]:
        """Read the operator's new answers and return their grants. If an answer is unclear, ask again and return the open
        grant."""
        grants = []
        for grant in [*self._grants.values()]:
            wait = self._work.waits.get(self._wait_name(grant))
            if grant.answer or wait is None or wait.answer is None:
                continue
            try:
                reply = self._context.hive.mail.read(self._context.agent, wait.answer, mark=False).answer
            except UserError as error:  # for example: the letter was deleted
                reply = f"deny your answer cannot be read: {error}"
            if (verdict := read_permission(reply)) is None:
                problem = f"Your answer is unclear: {' '.join(reply.split())[:200]}\n\n"
                grants.append(self._ask(replace(grant, number=grant.number + 1), problem))
                continue
            grants.append(replace(grant, answer=verdict[0], lasts=verdict[1], reason=verdict[2]))
            self._keep(grants[-1])
        return grants

    def parking(self, grant: Grant) -> Parking:
        """Return the parking of the task until the operator answers."""
        wait = self._work.waits.get(self._wait_name(self._grants[grant.key]))
        message_id = None if wait is None else wait.message_id
        hint = f"(answer with: hivemind mail reply human {message_id} once|always|'deny REASON')"
        return Parking(f"asks for permission: {' '.join(grant.description.split())[:200]} {hint}", asks=message_id)

    def _wait_name(self, grant: Grant) -> str:
        return f"{self._work.task.id}.permission.{grant.key}.{grant.number}"

    def _keep(self, grant: Grant) -> None:
        self._grants[grant.key] = grant
        self._work.keep(_RECORD, [asdict(grant) for grant in self._grants.values()])


def describe_call(call: ProgramCall) -> str:
    """Return a few lines that describe a call to a person."""
    subject: Any = command_of(call) or call.title or call.arguments
    paths = "".join(f"\n* {path}" for path in call.paths)
    tool = "" if call.tool == call.kind else f" ({call.tool})"
    return f"{call.kind or 'call'}{tool}: {subject}{paths}"
