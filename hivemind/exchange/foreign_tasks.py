"""Tasks of other hives that this one works on: claimed in the exchange, dropped here, reported (README.md, *Tasks*)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.exchange.files import check_paths, of_result, received
from hivemind.exchange.offers import SENT
from hivemind.exchange.rows import TaskRow, read_row
from hivemind.exchange.schema import LEASE, tell
from hivemind.frozen import frozen
from hivemind.fs import load_value, make_folder, reached, save_value
from hivemind.layout import ANY, EXCHANGE, Layout
from hivemind.names import slug
from hivemind.outcome import Outcome
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.tasks import read_outcome

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["ForeignTask", "ForeignTasks", "foreign_tasks", "let_go"]

_KIND, _VERSION = "foreign-task", 1
_OURS = ("task.md", "task.yaml", "task.yml", "task.json", "attempts", "result.md", "error.md")
_LONGEST_RESULT = 4 << 20  # characters


@frozen
class ForeignTask:
    """A task of another hive: `generation` is this hive's claim of it, `task` what it is called here."""

    generation: int
    giver: str
    id: str
    task: str


def foreign_tasks(layout: Layout) -> dict[int, ForeignTask]:
    """What a hive has in hand of others. Raises UserError for a record that cannot be read."""
    folder = layout.link / "tasks"
    names = os.listdir(folder) if folder.is_dir() else []
    found = [load_value(ForeignTask, folder / name, _KIND, _VERSION) for name in names if name.endswith(".json")]
    return {one.generation: one for one in found if one is not None}


def let_go(hive: Parts, task: ForeignTask, reason: str) -> bool:
    """Have this hive work no more on a task of another; what was done so far, or comes late, is kept below `attempts/`.
    Returns False if it was moved this very moment."""
    with suppress(UserError):
        if hive.tasks.listing.is_open(task.task):
            hive.tasks.cancel(task.task, by=EXCHANGE, reason=reason)
        else:
            hive.tasks.endings.disown(task.task, reason)
    if hive.tasks.listing.is_open(task.task):
        return False
    _forget(hive.layout, task)
    return True


def _forget(layout: Layout, task: ForeignTask) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_place(layout, task))


def _place(layout: Layout, task: ForeignTask) -> str:
    return os.path.join(layout.link, "tasks", f"{task.generation}.json")


class ForeignTasks:
    """The tasks of others that one hive has claimed."""

    def __init__(self, hive: Parts, connection: Connection, name: str) -> None:
        self._hive, self._connection, self._name = hive, connection, name
        make_folder(hive.layout.link / "tasks", durable=hive.config.durable)
        self._mine = foreign_tasks(hive.layout)
        # What was claimed just before a process died, and nobody here was told of.
        self._give_back("not (generation = any(%s))", [*self._mine])

    def renew(self) -> None:
        """Hold on to what is worked on here; let go of what went on elsewhere. Leases of hives that are gone end."""
        kept = self._connection.execute(
            f"update tasks set lease = now() + {LEASE} where taker = %s and state = 'taken' and generation = any(%s)"  # noqa: S608
            " returning generation",
            (self._name, [*self._mine]),
        ).fetchall()
        for generation in set(self._mine) - {generation for (generation,) in kept}:
            if self._hive.tasks.listing.is_open(self._mine[generation].task):  # else its end is still to be told
                self._lose(generation)
        freed = self._connection.execute(
            "update tasks set state = 'open', taker = null where state = 'taken' and not once and lease < now()"  # noqa: S608
            f" and pg_postmaster_start_time() < now() - {LEASE} returning place"
        ).fetchall()
        tell(self._connection, *(place for (place,) in freed))

    def take(self, idle: list[tuple[str, str | None]]) -> None:
        """Claim tasks for agents that have nothing to do. Whoever takes one rings."""
        inbox = self._hive.layout.inbox
        free = [*idle]
        for one in self._mine.values():
            if free and os.path.lexists(inbox / one.task):  # nobody has claimed it so far
                free.pop()
        while free:
            row = self._connection.execute(
                "update tasks set state = 'taken', taker = %(me)s, generation = nextval('generations'),"  # noqa: S608
                f" lease = now() + {LEASE} where number = (select number from tasks where state = 'open'"
                " and place = any(%(places)s) and giver <> %(me)s"
                " and exists (select from unnest(%(names)s::text[], %(roles)s::text[]) as idle (name, role)"
                " where coalesce(assignee, idle.name) = idle.name and (tasks.role is null or tasks.role = idle.role))"
                " order by priority, number limit 1 for update skip locked)"
                " returning generation, giver, id, assignee, role, maker, head, body, names, contents",
                {
                    "me": self._name, "places": [ANY, self._name],
                    "names": [name for name, _ in free], "roles": [role for _, role in free],
                },
            ).fetchone()  # fmt: skip
            if row is None:
                return
            tell(self._connection, row[1], what="taken")
            reached("exchange.tasks.taken")
            if self._drop(row):
                fits = (agent for agent in free if row[3] in (None, agent[0]) and row[4] in (None, agent[1]))
                free.remove(next(fits))

    def _drop(self, columns: tuple[Any, ...]) -> bool:
        """Drop a task here, whole. Returns False if it could be no task: its giver is told."""
        generation, giver, task_id = columns[:3]
        task = ForeignTask(generation, giver, task_id, f"{slug(f'{giver}-{task_id}')}-{generation}")
        self._mine[generation] = task
        save_value(_place(self._hive.layout, task), _KIND, _VERSION, task, durable=self._hive.config.durable)
        reached("exchange.tasks.noted")
        try:
            with boundary("task of a linked hive", f"{giver}/{task_id}"):
                row = read_row(TaskRow, columns)
                self._hive.tasks.add(
                    row.body if not row.body.startswith(("---", "\ufeff")) else f"\n{row.body}",
                    by=f"{row.maker.partition('@')[0]}@{row.giver}", files=_below(received(row.names, row.contents)),
                    id=task.task, **{key: value for key, value in row.head.items() if key in SENT},
                )  # fmt: skip
        except UserError as problem:
            self._close(task, "failed", f"{self._name} cannot take it, and says of files of its own: {problem}", {})
            return False
        reached("exchange.tasks.dropped")
        ring_all(self._hive)
        return True

    # its end

    def report(self) -> None:
        """Tell the givers of what has ended here."""
        for task in [*self._mine.values()]:
            if self._hive.tasks.listing.is_open(task.task):
                continue
            outcome = self._hive.tasks.listing.outcome(task.task)
            if outcome is None:  # it was taken away by hand, or a process died before it was dropped
                self._give_back("generation = any(%s)", [task.generation])
                self._mine.pop(task.generation)
                _forget(self._hive.layout, task)
                continue
            folder = self._hive.tasks.get(task.task).path
            text, files = read_outcome(folder) or "", of_result(folder)
            if files.left or len(text) > _LONGEST_RESULT:
                left = ", ".join([*files.left, *(["the rest of this text"] if len(text) > _LONGEST_RESULT else [])])
                text = f"{text[:_LONGEST_RESULT]}\n\nNot brought along, too much or not readable: {left}\n"
            self._close(task, outcome, text, files.contents)

    def _close(self, task: ForeignTask, outcome: Outcome, text: str, files: Mapping[str, bytes]) -> None:
        with self._connection.transaction():
            accepted = self._connection.execute(
                "update tasks set state = %s, body = %s, names = %s, contents = %s"
                " where taker = %s and state = 'taken' and generation = %s and giver = %s",
                (
                    outcome, text.replace("\0", "\ufffd"), [*files], [*files.values()], self._name, task.generation,
                    task.giver,
                ),
            ).rowcount  # fmt: skip
            tell(self._connection, task.giver)
            if not accepted:  # unless it was, before a process died
                accepted = self._connection.execute(
                    "select from tasks where taker = %s and generation = %s and state <> 'taken'",
                    (self._name, task.generation),
                ).rowcount
        reached("exchange.tasks.reported")
        if not accepted:
            self._lose(task.generation)
            return
        self._mine.pop(task.generation)
        _forget(self._hive.layout, task)

    def _lose(self, generation: int) -> None:
        task = self._mine[generation]
        if let_go(self._hive, task, f"The task {task.id} of {task.giver} went on elsewhere, or was withdrawn."):
            del self._mine[generation]

    def _give_back(self, which: str, generations: list[int]) -> None:
        rows = self._connection.execute(
            f"update tasks set state = 'open', taker = null where taker = %s and state = 'taken' and {which} returning place".encode(),  # noqa: S608, E501
            (self._name, generations),
        ).fetchall()
        tell(self._connection, *(place for (place,) in rows))


def _below(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The attachments by their paths in the dropped folder; what would have the place of the task's own has another."""
    paths = [f"attachments/{name}" if name.split("/")[0].lower() in _OURS else name for name in files]
    check_paths(paths)
    return dict(zip(paths, files.values(), strict=True))
