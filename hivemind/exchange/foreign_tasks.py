"""Tasks of other hives that this hive claims in the exchange, drops in its inbox and reports on (README.md, *Tasks*)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.exchange.files import check_paths, check_received_files, result_files
from hivemind.exchange.offers import FITS_IDLE, SENT_FIELDS, IdleAgent
from hivemind.exchange.rows import TaskRow, read_row
from hivemind.exchange.schema import LEASE, notification
from hivemind.frozen import frozen
from hivemind.fs import crash_point, load_dataclass, make_folder, save_dataclass
from hivemind.layout import ANY, EXCHANGE, Layout
from hivemind.names import slug
from hivemind.outcome import Outcome
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.tasks import read_outcome

if TYPE_CHECKING:
    from psycopg import Connection

_KIND, _VERSION = "foreign-task", 1
_RESERVED_NAMES = ("task.md", "task.yaml", "task.yml", "task.json", "attempts", "result.md", "error.md")
_MAX_RESULT_CHARS = 4 << 20  # characters


@frozen
class ForeignTask:
    """A task `id` of the hive `giver`. `generation` is the number of this hive's claim, `task` the task's id in this hive."""

    generation: int
    giver: str
    id: str
    task: str


def load_foreign_tasks(layout: Layout) -> dict[int, ForeignTask]:
    """Return the tasks of other hives that this hive has claimed, by the number of the claim (`generation`).

    Raises UserError for a record that cannot be read.
    """
    folder = layout.link / "tasks"
    names = os.listdir(folder) if folder.is_dir() else []
    tasks = [load_dataclass(ForeignTask, folder / name, _KIND, _VERSION) for name in names if name.endswith(".json")]
    return {task.generation: task for task in tasks if task is not None}


def abandon_task(hive: Parts, task: ForeignTask, reason: str) -> bool:
    """End this hive's work on a task of another hive, for a `reason`. What was done so far, or comes later, is kept in
    `attempts/`.

    Return False if an agent moved the task at the same moment.
    """
    with suppress(UserError):
        if hive.tasks.listing.is_open(task.task):
            hive.tasks.cancel(task.task, by=EXCHANGE, reason=reason)
        else:
            hive.tasks.active.disown(task.task, f"Cancelled by {EXCHANGE}: {reason}")
    if hive.tasks.listing.is_open(task.task):
        return False
    _delete_record(hive.layout, task)
    return True


def _delete_record(layout: Layout, task: ForeignTask) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_record_path(layout, task))


def _record_path(layout: Layout, task: ForeignTask) -> str:
    return os.path.join(layout.link, "tasks", f"{task.generation}.json")


class ForeignTasks:
    """Claims tasks of other hives, drops them in this hive's inbox, and reports their outcomes."""

    def __init__(self, hive: Parts, connection: Connection, name: str) -> None:
        self._hive, self._connection, self._name = hive, connection, name
        make_folder(hive.layout.link / "tasks")
        self._tasks = load_foreign_tasks(hive.layout)
        # Give back tasks that were claimed by a process that died before it recorded the claims.
        self._give_back("not (generation = any(%s))", [*self._tasks])

    def renew(self) -> None:
        """Renew the leases of other hives' tasks that this hive works on. Abandon the tasks that another hive leases now.

        Then return all hives' tasks with expired leases, so any hive can claim them. Tasks with a step that must run once are
        left out.
        """
        renewed_rows = self._connection.execute(
            f"update tasks set lease = now() + {LEASE} where taker = %s and state = 'taken' and generation = any(%s)"  # noqa: S608
            " returning generation",
            (self._name, [*self._tasks]),
        ).fetchall()
        for generation in set(self._tasks) - {generation for (generation,) in renewed_rows}:
            # a task that has ended is kept: its outcome must still be reported
            if self._hive.tasks.listing.is_open(self._tasks[generation].task):
                self._abandon(generation)
        self._connection.execute(
            "update tasks set state = 'open', taker = null where state = 'taken' and not once and lease < now()"  # noqa: S608
            f" and pg_postmaster_start_time() < now() - {LEASE} returning {notification('place')}"
        )

    def claim_tasks(self, idle: list[IdleAgent]) -> None:
        """Claim tasks for idle agents, and notify the hives that gave the tasks.

        A hive in which a person decides about merges claims only tasks that name this hive in `where:`, because any other task
        would have to wait for that person.
        """
        inbox, roots = self._hive.layout.inbox, self._hive.config.repository_roots(self._hive.layout)
        waits_for_person = any(root.land == "ask" for root in roots.values())
        places = [self._name] if waits_for_person else [ANY, self._name]
        free_agents = [*idle]
        for task in self._tasks.values():
            if free_agents and os.path.lexists(inbox / task.task):  # no agent has claimed it yet
                free_agents.pop()
        while free_agents:
            row = self._connection.execute(
                "update tasks set state = 'taken', taker = %(me)s, generation = nextval('generations'),"  # noqa: S608
                f" lease = now() + {LEASE} where number = (select number from tasks where state = 'open'"
                " and place = any(%(places)s) and giver <> %(me)s"
                f" and {FITS_IDLE}"
                " order by priority, number limit 1 for update skip locked)"
                " returning generation, giver, id, assignee, role, maker, head, body, names, contents,"
                f" {notification('giver', 'taken')}",
                {"me": self._name, "places": places, "idle": json.dumps([agent._asdict() for agent in free_agents])},
            ).fetchone()
            if row is None:
                return
            crash_point("exchange.tasks.taken")
            if self._drop_task(row):
                free_agents.remove(next(agent for agent in free_agents if agent.fits(row[3], row[4])))

    def _drop_task(self, columns: tuple[Any, ...]) -> bool:
        """Drop a claimed task in the inbox. If it is invalid, report the reason to its giver and return False."""
        generation, giver, task_id = columns[:3]
        task = ForeignTask(generation, giver, task_id, f"{slug(f'{giver}-{task_id}')}-{generation}")
        self._tasks[generation] = task
        save_dataclass(_record_path(self._hive.layout, task), _KIND, _VERSION, task)
        crash_point("exchange.tasks.noted")
        try:
            with boundary("task of a linked hive", f"{giver}/{task_id}"):
                row = read_row(TaskRow, columns)
                self._hive.tasks.add(
                    row.body if not row.body.startswith(("---", "\ufeff")) else f"\n{row.body}",
                    by=f"{row.maker.partition('@')[0]}@{row.giver}",
                    files=_attachment_paths(check_received_files(row.names, row.contents)),
                    id=task.task, **{key: value for key, value in row.head.items() if key in SENT_FIELDS},
                )  # fmt: skip
        except UserError as problem:
            self._report_outcome(task, "failed", f"{self._name} cannot take the task: {problem}", {})
            return False
        crash_point("exchange.tasks.dropped")
        ring_all(self._hive)
        return True

    def report_outcomes(self) -> None:
        """Report the outcomes of ended tasks to the hives that gave the tasks."""
        for task in [*self._tasks.values()]:
            if self._hive.tasks.listing.is_open(task.task):
                continue
            outcome = self._hive.tasks.listing.outcome(task.task)
            if outcome is None:  # a person removed it, or a process died before it was dropped
                self._give_back("generation = any(%s)", [task.generation])
                self._tasks.pop(task.generation)
                _delete_record(self._hive.layout, task)
                continue
            folder = self._hive.tasks.get(task.task).path
            text, files = read_outcome(folder) or "", result_files(folder)
            if files.omitted or len(text) > _MAX_RESULT_CHARS:
                omitted = ", ".join(
                    [*files.omitted, *(["the rest of this text"] if len(text) > _MAX_RESULT_CHARS else [])]
                )
                text = f"{text[:_MAX_RESULT_CHARS]}\n\nNot transferred, because too large or not readable: {omitted}\n"
            self._report_outcome(task, outcome, text, files.contents)

    def _report_outcome(self, task: ForeignTask, outcome: Outcome, text: str, files: Mapping[str, bytes]) -> None:
        accepted = self._connection.execute(
            "update tasks set state = %s, body = %s, names = %s, contents = %s where taker = %s and state = 'taken'"  # noqa: S608
            f" and generation = %s and giver = %s returning {notification('giver')}",
            (
                outcome, text.replace("\0", "\ufffd"), [*files], [*files.values()], self._name, task.generation,
                task.giver,
            ),
        ).rowcount  # fmt: skip
        if not accepted:  # or was it accepted before a process died?
            accepted = self._connection.execute(
                "select from tasks where taker = %s and generation = %s and state <> 'taken'",
                (self._name, task.generation),
            ).rowcount
        crash_point("exchange.tasks.reported")
        if not accepted:
            self._abandon(task.generation)
            return
        self._tasks.pop(task.generation)
        _delete_record(self._hive.layout, task)

    def _abandon(self, generation: int) -> None:
        task = self._tasks[generation]
        if abandon_task(self._hive, task, f"The task {task.id} of {task.giver} continues elsewhere, or was withdrawn."):
            del self._tasks[generation]

    def _give_back(self, condition: str, generations: list[int]) -> None:
        self._connection.execute(
            "update tasks set state = 'open', taker = null where taker = %s and state = 'taken'"  # noqa: S608
            f" and {condition} returning {notification('place')}".encode(),
            (self._name, generations),
        )


def _attachment_paths(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the attachments by their paths in the dropped folder. Attachments with names that are reserved there move into
    `attachments/`.
    """
    paths = [f"attachments/{name}" if name.split("/")[0].lower() in _RESERVED_NAMES else name for name in files]
    check_paths(paths)
    return dict(zip(paths, files.values(), strict=True))
