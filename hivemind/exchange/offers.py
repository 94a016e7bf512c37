"""Tasks of this hive that others may take: offered, looked after, brought home with their results (README.md, *Tasks*)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.exchange.files import of_task, received, write_result
from hivemind.exchange.schema import FILES_BYTES, HEAD_BYTES, TEXT_BYTES, tell
from hivemind.frontmatter import parse, split
from hivemind.fs import reached
from hivemind.layout import ANY, EXCHANGE, HUMAN, POSTMASTER
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.tasks import Task, TaskMoved
from hivemind.tasks.form import is_yaml
from hivemind.tasks.record import load

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["SENT", "Offers"]

SENT = (
    "title", "project", "priority", "assignee", "role", "deadline", "steps", "proof", "view", "max_tokens", "review",
    "finish", "budget",
)  # fmt: skip
"""What goes along of a task's front matter."""
_MOST = 1000  # offers at a time; what is beyond waits in the inbox
_AT_ONCE = 20
_KEPT_DAYS = 30


class Offers:
    """The tasks that this hive's exchange has claimed: offered there, and parked here until their result comes."""

    def __init__(self, hive: Parts, connection: Connection, name: str) -> None:
        self._hive, self._connection, self._name = hive, connection, name
        self._lanes = _LanesElsewhere(hive, name)
        self._mine = {str(task.claim): task for task in hive.tasks.mine(EXCHANGE)}
        self._said = {key: task.parked.reason for key, task in self._mine.items() if task.parked}
        self._promised: set[str] = set()  # tasks that were put back for an agent here

    def check(self) -> None:
        """Have the exchange know what is offered, and nothing else; say here where each task is."""
        for key, task in [*self._mine.items()]:
            if not self._is_ours(task):
                del self._mine[key]
        rows = self._connection.execute(
            "delete from tasks where giver = %s and not (key = any(%s)) and state in ('open', 'taken') returning taker",
            (self._name, [*self._mine]),
        ).fetchall()
        tell(self._connection, *(taker for (taker,) in rows if taker is not None))
        there = self.look()
        for key in [key for key in self._mine if key not in there]:
            self._offer(self._mine[key])

    def look(self) -> set[str]:
        """Say here where each task is; returns the keys of those that are in the exchange."""
        rows = self._connection.execute(
            "select key, taker, state, once and (lease < now() or taker is null) from tasks"
            " where giver = %s and state <> 'closed'",
            (self._name,),
        ).fetchall()
        for key, taker, state, lost in rows:
            if state == "taken" and key in self._mine:
                self._tell_where(self._mine[key], taker, lost=lost)
        return {key for key, *_ in rows}

    def offer(self) -> bool:
        """Offer tasks that wait in the inbox and that others may take."""
        for _ in range(_AT_ONCE):
            task = self._hive.tasks.claim(EXCHANGE, lanes=self._lanes) if len(self._mine) < _MOST else None
            if task is None:
                return False
            reached("exchange.tasks.claimed")
            self._mine[str(task.claim)] = task
            self._offer(task)
        return True

    def _offer(self, task: Task) -> None:
        files = of_task(task, self._hive.layout.root, self._hive.config.read_roots(self._hive.layout))
        head, where = self._head(task)
        text = task.full_text.replace("\0", "\ufffd")
        too_much = [
            *files.left,
            *(["the text"] if len(text.encode()) > TEXT_BYTES or len(head.encode()) > HEAD_BYTES else []),
        ]
        if too_much:
            bounds = f"at most {FILES_BYTES >> 20} MiB in files and {TEXT_BYTES >> 20} MiB of text go to another hive"
            self._end(task, done=False, text=f"It could not be offered to other hives: {bounds}: {', '.join(too_much)}")
            return
        with self._connection.transaction():
            self._connection.execute(
                "insert into tasks (giver, id, key, place, assignee, role, priority, once, maker, head, body, names, contents)"
                " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing",
                (
                    self._name, task.id, task.claim, where, task.assignee, task.role, task.priority,
                    any(step.once for step in task.steps), task.maker, head, text,
                    [*files.contents], [*files.contents.values()],
                ),
            )  # fmt: skip
            tell(self._connection, where)
        reached("exchange.tasks.offered")
        whom = "any linked hive" if where == ANY else where
        self._park(task, f"offered to {whom}")

    def _head(self, task: Task) -> tuple[str, str]:
        """What goes along of the front matter, as JSON, and which hive may take it."""
        record = load(task.path)
        assert record is not None
        with boundary("task", task.id):
            text = record.raw.decode()
            front = text if is_yaml(record.name) else split(text)[0]
            values = {} if front is None else parse(front, task.id).values
        told = {key: values[key] for key in SENT if values.get(key) is not None}
        where = str(values.get("where") or ANY).strip().lower()
        told |= {key: one for key, one in (("assignee", task.assignee), ("role", task.role)) if one is not None}
        return json.dumps({**told, "title": task.title}, default=str).replace("\\u0000", "\\ufffd"), where

    # while it is away

    def _is_ours(self, task: Task) -> bool:
        """Whether its claim still holds: nobody has cancelled or moved it."""
        with suppress(UserError):
            record = load(task.path)
            return record is not None and record.claim is not None and record.claim.key == task.claim
        return False

    def _tell_where(self, task: Task, taker: str | None, *, lost: bool) -> None:
        if not lost:
            self._park(task, f"{taker} works on it")
            return
        reason = (
            f"{taker or 'the hive that had it, which was unlinked,'} may have begun a step of it that must run once, and was"
            f" not heard of since: it goes on if {taker or 'that'} comes back; look what became of it, then: hivemind task"
            f" cancel {task.id}, or cancel and retry"
        )
        if self._park(task, reason, asks=True):
            self._hive.mail.send(
                POSTMASTER, [HUMAN], f"What is to become of it? {task.title}", f"Task {task.id}: {reason}\n",
                message_id=f"{task.claim}.lost@{self._name}", task=task.id,
            )  # fmt: skip

    def _park(self, task: Task, reason: str, *, asks: bool = False) -> bool:
        """Returns whether that is new. Nobody is told of what goes on elsewhere: it rests until now."""
        if self._said.get(str(task.claim)) == reason:
            return False
        try:
            self._hive.tasks.active.park(task, reason, None if asks else datetime.now(UTC))
        except TaskMoved:
            return False
        self._said[str(task.claim)] = reason
        return True

    def bring_home(self, idle: list[tuple[str, str | None]]) -> None:
        """Have agents here that have nothing to do work on what nobody has taken."""
        inbox = self._hive.layout.inbox
        self._promised = {one for one in self._promised if os.path.lexists(inbox / one)}
        free = len(idle) - len(self._promised)
        if free <= 0 or not self._mine:
            return
        rows = self._connection.execute(
            "delete from tasks where number in (select number from tasks where giver = %s and state = 'open' and place = %s"
            " and exists (select from unnest(%s::text[], %s::text[]) as idle (name, role)"
            " where coalesce(assignee, idle.name) = idle.name and (tasks.role is null or tasks.role = idle.role))"
            " order by priority, number limit %s for update skip locked) returning key",
            (self._name, ANY, [name for name, _ in idle], [role for _, role in idle], free),
        ).fetchall()
        reached("exchange.tasks.home")
        for (key,) in rows:
            self._release(self._mine.pop(key))

    def _release(self, task: Task) -> None:
        with suppress(TaskMoved):
            self._hive.tasks.active.keep(task, "here", True)
            self._promised.add(self._hive.tasks.release(task).name)

    # its end

    def finish(self) -> bool:
        """Bring home what others have done: each result once, its row is closed then."""
        row = self._connection.execute(
            "select number, key, state, taker, body, names, contents from tasks"
            " where giver = %s and state in ('done', 'failed') order by number limit 1",
            (self._name,),
        ).fetchone()
        if row is None:
            return False
        number, key, state, taker, text, names, contents = row
        task = self._mine.pop(key, None)
        if task is not None:
            self._bring_in(task, taker or "a hive that was unlinked", state == "done", text, names, contents)
        reached("exchange.tasks.finished")
        self._connection.execute(
            "update tasks set state = 'closed', closed = now(), head = '', body = '', names = '{}', contents = '{}'"
            " where number = %s",
            (number,),
        )
        return True

    def forget(self) -> None:
        """Delete the rows of tasks that have long ended: until then a hive that reports one again is told that it did."""
        self._connection.execute(
            "delete from tasks where giver = %s and closed < now() - make_interval(days => %s)",
            (self._name, _KEPT_DAYS),
        )

    def _bring_in(
        self, task: Task, taker: str, done: bool, text: str, names: Sequence[object], contents: Sequence[object]
    ) -> None:
        with suppress(TaskMoved, FileNotFoundError):
            self._hive.tasks.active.keep(task, "hive", taker)
            try:
                refused = write_result(task.path, received(names, contents), durable=self._hive.config.durable)
            except Unreadable as problem:
                refused = [str(problem)]
            notes = [f"\n\nNot taken over from {taker}: {', '.join(refused)}\n"] if refused else []
            self._end(task, done=done, text="".join([text, *notes]))

    def _end(self, task: Task, *, done: bool, text: str) -> None:
        """End a task here."""
        self._mine.pop(str(task.claim), None)
        with suppress(TaskMoved):
            (self._hive.tasks.finish if done else self._hive.tasks.fail)(task, text)
            self._hive.steps.end_task(task.id, "done" if done else "failed", agent_id=EXCHANGE, has_left_active=True)
            if self._hive.tasks.claims.recheck_count:
                ring_all(self._hive)


class _LanesElsewhere:
    """The lanes of the inbox whose tasks go to other hives: what says so (`where:`), and what only an agent of another hive may
    claim."""

    def __init__(self, hive: Parts, name: str) -> None:
        self._hive, self._name = hive, name

    def __contains__(self, lane: object) -> bool:
        who, _, where = str(lane).partition("@")
        linked = self._hive.linked.agents
        if where:
            return where == ANY or where in linked
        assignee, _, role = who.partition("/")
        if not assignee and not role:
            return False

        def fits(agents: Mapping[str, Any]) -> bool:
            return any(assignee in ("", one) and role in ("", agents[one]) for one in agents)

        return not fits(self._hive.agent_files.roles()) and any(fits(agents) for agents in linked.values())
