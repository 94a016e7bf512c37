"""The tasks that this hive offers to other hives; it collects their results (README.md, *Tasks*)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.exchange.files import attachments_of, check_received_files, write_result
from hivemind.exchange.schema import FILES_BYTES, HEAD_BYTES, TEXT_BYTES, notification, notify
from hivemind.frontmatter import parse, split
from hivemind.fs import crash_point
from hivemind.layout import ANY, EXCHANGE, HUMAN, POSTMASTER
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.tasks import Task, TaskMoved
from hivemind.tasks.form import is_yaml
from hivemind.tasks.record import load

if TYPE_CHECKING:
    from psycopg import Connection

SENT_FIELDS = (
    "title", "project", "priority", "assignee", "role", "deadline", "steps", "proof", "view", "max_tokens", "review",
    "finish", "budget", "traceparent",
)  # fmt: skip
"""The keys of a task's front matter that are sent to other hives."""
_MAX_OFFERS = 1000  # open offers at a time; further tasks wait in the inbox
_OFFERS_PER_BATCH = _RESULTS_PER_BATCH = 20
_RETENTION_DAYS = 30
FITS_IDLE = (
    "exists (select from jsonb_to_recordset(%(idle)s::jsonb) as idle (name text, role text, takes_any bool)"
    " where coalesce(assignee, idle.name) = idle.name and (tasks.role is null or tasks.role = idle.role)"
    " and (takes_any or assignee is not null or tasks.role is not null))"
)
"""The SQL condition that an idle agent may claim an offered task, from the list `idle` in JSON."""


class IdleAgent(NamedTuple):
    """An idle agent of this hive. Without `takes_any` it takes only tasks that name it or its role."""

    name: str
    role: str | None
    takes_any: bool

    def fits(self, assignee: str | None, role: str | None) -> bool:
        is_named = assignee is not None or role is not None
        return assignee in (None, self.name) and role in (None, self.role) and (is_named or self.takes_any)


class Offers:
    """Offers tasks of this hive to other hives. The exchange process claims an offered task and parks it until its result."""

    def __init__(self, hive: Parts, connection: Connection, name: str) -> None:
        self._hive, self._connection, self._name = hive, connection, name
        self._partitions = _RemotePartitions(hive, name)
        self._offered_tasks = {str(task.claim): task for task in hive.tasks.mine(EXCHANGE)}
        self._park_reasons = {key: task.parked.reason for key, task in self._offered_tasks.items() if task.parked}
        self._returned_tasks: set[str] = set()  # tasks put back into the inbox for an agent here

    def reconcile(self) -> None:
        """Add and delete offers in the exchange, so it lists exactly this hive's offers. Record which hive has each task."""
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
        """Park each offered task with the name of the hive that has taken it. Return the keys of this hive's offers."""
        rows = self._connection.execute(
            "select key, taker, state, place, once and (lease < now() or taker is null) from tasks"
            " where giver = %s and state <> 'closed'",
            (self._name,),
        ).fetchall()
        for key, taker, state, place, is_lost in rows:
            if state == "taken" and key in self._offered_tasks:
                self._record_location(self._offered_tasks[key], taker, is_lost=is_lost)
            elif state == "open" and key in self._offered_tasks:
                self._park_offered(self._offered_tasks[key], place)
        return {key for key, *_ in rows}

    def offer(self) -> bool:
        """Offer a batch of waiting tasks that other hives may take. Return True if there may be more of these tasks."""
        for _ in range(_OFFERS_PER_BATCH):
            task = (
                self._hive.tasks.claim(EXCHANGE, partitions=self._partitions)
                if len(self._offered_tasks) < _MAX_OFFERS
                else None
            )
            if task is None:
                return False
            crash_point("exchange.tasks.claimed")
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
            bounds = f"the limits are {FILES_BYTES >> 20} MiB of files and {TEXT_BYTES >> 20} MiB of text"
            self._end(
                task,
                is_done=False,
                text=f"The task could not be offered to other hives, {bounds}: {', '.join(omitted)}",
            )
            return
        self._connection.execute(
            "insert into tasks (giver, id, key, place, assignee, role, priority, once, maker, head, body, names, contents)"  # noqa: S608 - constants of this program
            " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing"
            f" returning {notification('place')}",
            (
                self._name, task.id, task.claim, place, task.assignee, task.role, task.priority,
                any(step.once for step in task.steps), task.maker, head, text,
                [*files.contents], [*files.contents.values()],
            ),
        )  # fmt: skip
        crash_point("exchange.tasks.offered")
        self._park_offered(task, place)

    def _front_matter(self, task: Task) -> tuple[str, str]:
        """Return the front matter to send, as JSON, and the hive that may take the task (`any`: every hive may)."""
        record = load(task.path)
        assert record is not None
        with boundary("task", task.id):
            text = record.raw.decode()
            front = text if is_yaml(record.name) else split(text)[0]
            values = {} if front is None else parse(front, task.id).values
        fields = {key: values[key] for key in SENT_FIELDS if values.get(key) is not None}
        place = str(values.get("where") or ANY).strip().lower()
        fields |= {key: name for key, name in (("assignee", task.assignee), ("role", task.role)) if name is not None}
        own_fields = {"title": task.title, "traceparent": task.traceparent}
        return json.dumps({**fields, **own_fields}, default=str).replace("\\u0000", "\\ufffd"), place

    def _holds_claim(self, task: Task) -> bool:
        """Return True if the exchange process still has the claim, because the task was not cancelled or moved."""
        with suppress(UserError):
            record = load(task.path)
            return record is not None and record.claim is not None and record.claim.key == task.claim
        return False

    def _park_offered(self, task: Task, place: str) -> None:
        self._park(task, f"offered to {'any linked hive' if place == ANY else place}")

    def _record_location(self, task: Task, taker: str | None, *, is_lost: bool) -> None:
        if not is_lost:
            self._park(task, f"{taker} works on it")
            return
        reason = (
            f"{taker or 'the hive that had it, which was unlinked,'} may have begun a step that must run once, and has not"
            f" been seen since: the task continues if {taker or 'that hive'} returns; find out what happened, then: hivemind"
            f" task cancel {task.id}, or cancel and retry"
        )
        if self._park(task, reason, needs_operator=True):
            self._hive.mail.send(
                POSTMASTER, [HUMAN], f"A decision is needed: {task.title}", f"Task {task.id}: {reason}\n",
                message_id=f"{task.claim}.lost@{self._name}", task=task.id,
            )  # fmt: skip

    def _park(self, task: Task, reason: str, *, needs_operator: bool = False) -> bool:
        """Park the task for a reason. Return True if the reason is new and the task was not moved.

        With `needs_operator` the wait has no end, so the operator is asked to act. Without it, the wait ends now, so nobody is
        asked.
        """
        if self._park_reasons.get(str(task.claim)) == reason:
            return False
        try:
            self._hive.tasks.active.park(task, reason, None if needs_operator else datetime.now(UTC))
        except TaskMoved:
            return False
        self._park_reasons[str(task.claim)] = reason
        return True

    def withdraw_for_idle(self, idle: list[IdleAgent]) -> None:
        """Withdraw offers that no hive has taken, so this hive's idle agents can claim the tasks."""
        inbox = self._hive.layout.inbox
        self._returned_tasks = {name for name in self._returned_tasks if os.path.lexists(inbox / name)}
        free_agents = len(idle) - len(self._returned_tasks)
        if free_agents <= 0 or not self._offered_tasks:
            return
        agents_json = json.dumps([agent._asdict() for agent in idle])
        rows = self._connection.execute(
            "delete from tasks where number in (select number from tasks where giver = %(me)s and state = 'open'"  # noqa: S608
            f" and place = %(any)s and {FITS_IDLE}"
            " order by priority, number limit %(limit)s for update skip locked) returning key",
            {"me": self._name, "any": ANY, "limit": free_agents, "idle": agents_json},
        ).fetchall()
        crash_point("exchange.tasks.home")
        for (key,) in rows:
            self._release_locally(self._offered_tasks.pop(key))

    def _release_locally(self, task: Task) -> None:
        with suppress(TaskMoved):
            self._hive.tasks.active.keep(task, "here", True)
            self._returned_tasks.add(self._hive.tasks.release(task).name)

    def collect_results(self) -> bool:
        """Store a batch of results from other hives and close their rows. Return True if there may be more results."""
        closed_number = None
        for _ in range(_RESULTS_PER_BATCH):
            row = self._connection.execute(
                "with closed as (update tasks set state = 'closed', closed = now(), head = '', body = '', names = '{}',"
                " contents = '{}' where number = %s returning number)"
                " select number, key, state, taker, body, names, contents from tasks"
                " where giver = %s and state in ('done', 'failed') and not (number in (select number from closed))"
                " order by number limit 1",
                (closed_number, self._name),
            ).fetchone()
            if row is None:
                return False
            closed_number, key, state, taker, text, names, contents = row
            task = self._offered_tasks.pop(key, None)
            if task is not None:
                self._store_result(task, taker or "a hive that was unlinked", state == "done", text, names, contents)
            crash_point("exchange.tasks.finished")
        return True

    def delete_old(self) -> None:
        """Delete the rows of old tasks. While a row exists, a hive can repeat its report of the result."""
        self._connection.execute(
            "delete from tasks where giver = %s and closed < now() - make_interval(days => %s)",
            (self._name, _RETENTION_DAYS),
        )

    def _store_result(
        self, task: Task, taker: str, is_done: bool, text: str, names: Sequence[object], contents: Sequence[object]
    ) -> None:
        with suppress(TaskMoved, FileNotFoundError):
            self._hive.tasks.active.keep(task, "hive", taker)
            try:
                refused = write_result(task.path, check_received_files(names, contents))
            except Unreadable as error:
                refused = [str(error)]
            notes = [f"\n\nNot accepted from {taker}: {', '.join(refused)}\n"] if refused else []
            self._end(task, is_done=is_done, text="".join([text, *notes]))

    def _end(self, task: Task, *, is_done: bool, text: str) -> None:
        self._offered_tasks.pop(str(task.claim), None)
        with suppress(TaskMoved):
            (self._hive.tasks.finish if is_done else self._hive.tasks.fail)(task, text)
            self._hive.steps.end_task(task.id, "done" if is_done else "failed", agent_id=EXCHANGE)
            if self._hive.tasks.claims.recheck_count:
                ring_all(self._hive)


class _RemotePartitions:
    """The partitions of the queue with tasks that another hive may take: because of `where:`, or because no agent here may claim
    them.
    """

    def __init__(self, hive: Parts, name: str) -> None:
        self._hive, self._name = hive, name

    def __contains__(self, partition: object) -> bool:
        claimant, _, hive = str(partition).partition("@")
        linked = self._hive.linked_hives.agents
        if hive:
            return hive == ANY or hive in linked
        assignee, _, role = claimant.partition("/")
        if not assignee and not role:
            return False

        def can_claim(agents: Mapping[str, Any]) -> bool:
            return any(assignee in ("", agent) and role in ("", agents[agent]) for agent in agents)

        return not can_claim(self._hive.agent_files.roles()) and any(can_claim(agents) for agents in linked.values())
