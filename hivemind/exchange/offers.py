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
from hivemind.exchange.files import attachments_of, check_received_files, write_result
from hivemind.exchange.schema import FILES_BYTES, HEAD_BYTES, TEXT_BYTES, notify
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

__all__ = ["SENT_FIELDS", "Offers"]

SENT_FIELDS = (
    "title", "project", "priority", "assignee", "role", "deadline", "steps", "proof", "view", "max_tokens", "review",
    "finish", "budget",
)  # fmt: skip
"""What goes along of a task's front matter."""
_MAX_OFFERS = 1000  # offers at a time; what is beyond waits in the inbox
_OFFERS_PER_BATCH = 20
_RETENTION_DAYS = 30


class Offers:
    """The tasks that this hive's exchange has claimed: offered there, and parked here until their result comes."""

    def __init__(self, hive: Parts, connection: Connection, name: str) -> None:
        self._hive, self._connection, self._name = hive, connection, name
        self._lanes = _RemoteLanes(hive, name)
        self._offered_tasks = {str(task.claim): task for task in hive.tasks.mine(EXCHANGE)}
        self._park_reasons = {key: task.parked.reason for key, task in self._offered_tasks.items() if task.parked}
        self._returned_tasks: set[str] = set()  # tasks that were put back for an agent here

    def reconcile(self) -> None:
        """Have the exchange know what is offered, and nothing else; say here where each task is."""
        for key, task in [*self._offered_tasks.items()]:
            if not self._holds_claim(task):
                del self._offered_tasks[key]
        rows = self._connection.execute(
            "delete from tasks where giver = %s and not (key = any(%s)) and state in ('open', 'taken') returning taker",
            (self._name, [*self._offered_tasks]),
        ).fetchall()
        notify(self._connection, *(taker for (taker,) in rows if taker is not None))
        offered_keys = self.update_locations()
        for key in [key for key in self._offered_tasks if key not in offered_keys]:
            self._offer(self._offered_tasks[key])

    def update_locations(self) -> set[str]:
        """Say here where each task is; returns the keys of those that are in the exchange."""
        rows = self._connection.execute(
            "select key, taker, state, once and (lease < now() or taker is null) from tasks"
            " where giver = %s and state <> 'closed'",
            (self._name,),
        ).fetchall()
        for key, taker, state, is_lost in rows:
            if state == "taken" and key in self._offered_tasks:
                self._record_location(self._offered_tasks[key], taker, is_lost=is_lost)
        return {key for key, *_ in rows}

    def offer(self) -> bool:
        """Offer tasks that wait in the inbox and that others may take."""
        for _ in range(_OFFERS_PER_BATCH):
            task = self._hive.tasks.claim(EXCHANGE, lanes=self._lanes) if len(self._offered_tasks) < _MAX_OFFERS else None
            if task is None:
                return False
            reached("exchange.tasks.claimed")
            self._offered_tasks[str(task.claim)] = task
            self._offer(task)
        return True

    def _offer(self, task: Task) -> None:
        files = attachments_of(task, self._hive.layout.root, self._hive.config.read_roots(self._hive.layout))
        head, place = self._front_matter(task)
        text = task.full_text.replace("\0", "\ufffd")
        omitted = [
            *files.omitted,
            *(["the text"] if len(text.encode()) > TEXT_BYTES or len(head.encode()) > HEAD_BYTES else []),
        ]
        if omitted:
            bounds = f"at most {FILES_BYTES >> 20} MiB in files and {TEXT_BYTES >> 20} MiB of text go to another hive"
            self._end(task, is_done=False, text=f"It could not be offered to other hives: {bounds}: {', '.join(omitted)}")
            return
        with self._connection.transaction():
            self._connection.execute(
                "insert into tasks (giver, id, key, place, assignee, role, priority, once, maker, head, body, names, contents)"
                " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing",
                (
                    self._name, task.id, task.claim, place, task.assignee, task.role, task.priority,
                    any(step.once for step in task.steps), task.maker, head, text,
                    [*files.contents], [*files.contents.values()],
                ),
            )  # fmt: skip
            notify(self._connection, place)
        reached("exchange.tasks.offered")
        audience = "any linked hive" if place == ANY else place
        self._park(task, f"offered to {audience}")

    def _front_matter(self, task: Task) -> tuple[str, str]:
        """What goes along of the front matter, as JSON, and which hive may take it."""
        record = load(task.path)
        assert record is not None
        with boundary("task", task.id):
            text = record.raw.decode()
            front = text if is_yaml(record.name) else split(text)[0]
            values = {} if front is None else parse(front, task.id).values
        fields = {key: values[key] for key in SENT_FIELDS if values.get(key) is not None}
        place = str(values.get("where") or ANY).strip().lower()
        fields |= {key: name for key, name in (("assignee", task.assignee), ("role", task.role)) if name is not None}
        return json.dumps({**fields, "title": task.title}, default=str).replace("\\u0000", "\\ufffd"), place

    # while it is away

    def _holds_claim(self, task: Task) -> bool:
        """Whether its claim still holds: nobody has cancelled or moved it."""
        with suppress(UserError):
            record = load(task.path)
            return record is not None and record.claim is not None and record.claim.key == task.claim
        return False

    def _record_location(self, task: Task, taker: str | None, *, is_lost: bool) -> None:
        if not is_lost:
            self._park(task, f"{taker} works on it")
            return
        reason = (
            f"{taker or 'the hive that had it, which was unlinked,'} may have begun a step of it that must run once, and was"
            f" not heard of since: it goes on if {taker or 'that'} comes back; look what became of it, then: hivemind task"
            f" cancel {task.id}, or cancel and retry"
        )
        if self._park(task, reason, needs_operator=True):
            self._hive.mail.send(
                POSTMASTER, [HUMAN], f"What is to become of it? {task.title}", f"Task {task.id}: {reason}\n",
                message_id=f"{task.claim}.lost@{self._name}", task=task.id,
            )  # fmt: skip

    def _park(self, task: Task, reason: str, *, needs_operator: bool = False) -> bool:
        """Returns whether that is new. Nobody is told of what goes on elsewhere: it rests until now."""
        if self._park_reasons.get(str(task.claim)) == reason:
            return False
        try:
            self._hive.tasks.park(task, reason, None if needs_operator else datetime.now(UTC))
        except TaskMoved:
            return False
        self._park_reasons[str(task.claim)] = reason
        return True

    def withdraw_for_idle(self, idle: list[tuple[str, str | None]]) -> None:
        """Have agents here that have nothing to do work on what nobody has taken."""
        inbox = self._hive.layout.inbox
        self._returned_tasks = {name for name in self._returned_tasks if os.path.lexists(inbox / name)}
        free_agents = len(idle) - len(self._returned_tasks)
        if free_agents <= 0 or not self._offered_tasks:
            return
        rows = self._connection.execute(
            "delete from tasks where number in (select number from tasks where giver = %s and state = 'open' and place = %s"
            " and exists (select from unnest(%s::text[], %s::text[]) as idle (name, role)"
            " where coalesce(assignee, idle.name) = idle.name and (tasks.role is null or tasks.role = idle.role))"
            " order by priority, number limit %s for update skip locked) returning key",
            (self._name, ANY, [name for name, _ in idle], [role for _, role in idle], free_agents),
        ).fetchall()
        reached("exchange.tasks.home")
        for (key,) in rows:
            self._release_locally(self._offered_tasks.pop(key))

    def _release_locally(self, task: Task) -> None:
        with suppress(TaskMoved):
            self._hive.tasks.keep(task, "here", True)
            self._returned_tasks.add(self._hive.tasks.release(task).name)

    # its end

    def collect_result(self) -> bool:
        """Bring home what others have done: each result once, its row is closed then."""
        row = self._connection.execute(
            "select number, key, state, taker, body, names, contents from tasks"
            " where giver = %s and state in ('done', 'failed') order by number limit 1",
            (self._name,),
        ).fetchone()
        if row is None:
            return False
        number, key, state, taker, text, names, contents = row
        task = self._offered_tasks.pop(key, None)
        if task is not None:
            self._store_result(task, taker or "a hive that was unlinked", state == "done", text, names, contents)
        reached("exchange.tasks.finished")
        self._connection.execute(
            "update tasks set state = 'closed', closed = now(), head = '', body = '', names = '{}', contents = '{}'"
            " where number = %s",
            (number,),
        )
        return True

    def delete_old(self) -> None:
        """Delete the rows of tasks that have long ended: until then a hive that reports one again is told that it did."""
        self._connection.execute(
            "delete from tasks where giver = %s and closed < now() - make_interval(days => %s)",
            (self._name, _RETENTION_DAYS),
        )

    def _store_result(
        self, task: Task, taker: str, is_done: bool, text: str, names: Sequence[object], contents: Sequence[object]
    ) -> None:
        with suppress(TaskMoved, FileNotFoundError):
            self._hive.tasks.keep(task, "hive", taker)
            try:
                refused = write_result(task.path, check_received_files(names, contents), durable=self._hive.config.durable)
            except Unreadable as error:
                refused = [str(error)]
            notes = [f"\n\nNot taken over from {taker}: {', '.join(refused)}\n"] if refused else []
            self._end(task, is_done=is_done, text="".join([text, *notes]))

    def _end(self, task: Task, *, is_done: bool, text: str) -> None:
        """End a task here."""
        self._offered_tasks.pop(str(task.claim), None)
        with suppress(TaskMoved):
            (self._hive.tasks.finish if is_done else self._hive.tasks.fail)(task, text)
            self._hive.steps.end_task(task.id, "done" if is_done else "failed", agent_id=EXCHANGE, has_left_active=True)
            if self._hive.tasks.restless:
                ring_all(self._hive)


class _RemoteLanes:
    """The lanes of the inbox whose tasks go to other hives: what says so (`where:`), and what only an agent of another hive may
    claim."""

    def __init__(self, hive: Parts, name: str) -> None:
        self._hive, self._name = hive, name

    def __contains__(self, lane: object) -> bool:
        claimant, _, hive = str(lane).partition("@")
        linked = self._hive.linked_hives.agents
        if hive:
            return hive == ANY or hive in linked
        assignee, _, role = claimant.partition("/")
        if not assignee and not role:
            return False

        def can_claim(agents: Mapping[str, Any]) -> bool:
            return any(assignee in ("", agent) and role in ("", agents[agent]) for agent in agents)

        return not can_claim(self._hive.agent_files.roles()) and any(can_claim(agents) for agents in linked.values())
