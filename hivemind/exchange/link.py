"""Links a hive and unlinks it: writes the link's record, registers the hive's name, connects to the exchange."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, as_dataclass
from hivemind.errors import HivemindError, UserError
from hivemind.exchange.foreign_tasks import abandon_task, load_foreign_tasks
from hivemind.exchange.rows import HiveRow, OverviewRow, read_row, readable_rows
from hivemind.exchange.schema import LEASE, SCHEMA, channel, notify
from hivemind.frozen import frozen
from hivemind.fs import LockBusy, crash_point, load_record, make_folder, ring, save_record
from hivemind.fs.locks import machine_identity
from hivemind.fs.postgres import check_url, connect, import_client
from hivemind.layout import ANY, EXCHANGE, Layout
from hivemind.lessons.choice import all_books
from hivemind.lessons.sharing import exchange_lessons
from hivemind.names import is_name
from hivemind.presence.identity import lock_name
from hivemind.presence.parts import Parts
from hivemind.presence.watching import SUPERVISOR, ring_all
from hivemind.tasks import Task, TaskState

if TYPE_CHECKING:
    from psycopg import Connection

_KIND, _VERSION = "link", 1
_LOCK_TIMEOUT_S = 15.0
# Both sides notice within ten seconds that the other is gone, even if the network drops packets silently.
_CONNECTION_DEFAULTS = {
    "connect_timeout": "5", "tcp_user_timeout": "10000", "application_name": "hivemind exchange",
    "keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3",
}  # fmt: skip
_SETTINGS = (
    f"SET search_path = {SCHEMA.name}; SET statement_timeout = '10s'; SET tcp_user_timeout = '10s';"
    " SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"
)


class LinkDown(HivemindError):
    """The exchange cannot be reached or refuses this hive. The message is the reason."""


@frozen
class HiveLink:
    """A hive's link: the exchange's `url` without a password, the hive's `name` there, and the `identity` that owns the name."""

    url: str
    name: str
    identity: str


def load_link(layout: Layout) -> HiveLink | None:
    """Return the hive's link; None if it is not linked. Raises UserError for a record that cannot be read."""
    record = load_record(layout.link / "link.json", _KIND, _VERSION)
    return None if record is None else as_dataclass(HiveLink, record, "link record", layout.link / "link.json")


def link(hive: Parts, url: str) -> HiveLink:
    """Link a hive: create missing tables, and register the hive's name. Return the link. Raises UserError, LinkDown."""
    current_link = load_link(hive.layout)
    if current_link is not None:
        raise UserError(
            f"is linked already, as {current_link.name}, through {current_link.url}",
            remedy="hivemind unlink ends that link",
        )
    check_url(url)
    name = hive.config.workspace.lower()
    if not is_name(name) or name == ANY:
        remedy = f"change workspace: in hive.yaml, and move {hive.layout.relative(hive.layout.workspace_record)} away"
        raise UserError(f"the workspace {name!r} cannot be a hive's name: it must be like berlin", remedy=remedy)
    new_link = HiveLink(url, name, os.urandom(16).hex())
    with connect_exchange(url) as connection:
        SCHEMA.prepare(connection, url)
        with connection.transaction():
            agents = {agent: config.role for agent, config in hive.agents.items()}
            from psycopg.types.json import Jsonb

            inserted = connection.execute(
                "insert into hives (name, identity, agents) values (%s, %s, %s) on conflict (name) do nothing",
                (name, new_link.identity, Jsonb(agents)),
            ).rowcount
            if not inserted:
                raise UserError(
                    f"another hive is linked there as {name}",
                    remedy=f"unlink that hive; or change workspace: in this hive's hive.yaml, and move"
                    f" {hive.layout.relative(hive.layout.workspace_record)} away, which holds the old name",
                )
            make_folder(hive.layout.link)
            # Written before the commit: after a crash in between, the name is not registered, and the process reports that.
            save_record(hive.layout.link / "link.json", _KIND, _VERSION, asdict(new_link))
            notify(connection, ANY, payload="hives")
    hive.mail.ensure(EXCHANGE)
    ring(hive.layout.doorbells, SUPERVISOR)
    return new_link


def unlink(hive: Parts) -> tuple[HiveLink, list[str]]:
    """End a hive's link and free its name.

    Undelivered letters to the hive return to their senders, tasks of other hives to the exchange, and the hive's own offers to
    its inbox. Lessons of other hives that no person has adopted are removed. If the exchange does not know the hive, because
    its database was lost or restored, offered tasks with a step that must run once fail. Return the link, and remarks on what
    ended with it or is uncertain. Raises UserError, LinkDown.
    """
    current_link = load_link(hive.layout)
    if current_link is None:
        raise UserError("this hive is not linked", remedy="hivemind link postgresql://... links it")
    remarks: list[str] = []
    with connect_exchange(current_link.url) as connection, connection.transaction():
        hive_key = (current_link.name, current_link.identity)
        sql = "select from hives where name = %s and identity = %s for update"
        if SCHEMA.version(connection, current_link.url) and connection.execute(sql, hive_key).rowcount:
            _withdraw(connection, current_link.name)
            connection.execute("delete from hives where name = %s", (current_link.name,))
            givers = connection.execute("select name from hives").fetchall()
            notify(connection, ANY, *(name for (name,) in givers), payload="hives")
        else:
            remarks += [  # while the link is recorded: the next start puts all other tasks back into the inbox
                _lose_task(hive, hive.tasks.get(task.id))
                for task in hive.tasks.list(TaskState.ACTIVE)
                if task.owner == EXCHANGE
            ]
    (hive.layout.link / "link.json").unlink()
    crash_point("exchange.unlinked")
    for name in (EXCHANGE, SUPERVISOR):
        ring(hive.layout.doorbells, name)
    remarks += _return_tasks(hive)
    for book in all_books(hive):
        exchange_lessons(hive, book, {})
    (hive.layout.link / "hives.json").unlink(missing_ok=True)
    return current_link, remarks


def _withdraw(connection: Connection, name: str) -> None:
    """Give back the letters and tasks that other hives have sent to the hive `name`, so it can be unlinked. Its row must be
    locked. Raises UserError if tasks would be lost."""
    rows = connection.execute(
        "select id, giver, taker, state from tasks where (giver = %(me)s and state in ('done', 'failed'))"
        " or (once and state = 'taken' and %(me)s in (giver, taker)) order by number",
        {"me": name},
    ).fetchall()
    if rows:
        stranded_tasks = ", ".join(
            f"{task} ({f'of {giver}' if giver != name else f'with {taker}'}:"
            f" {'it has a step that must run once' if state == 'taken' else 'its result has not been collected'})"
            for task, giver, taker, state in rows
        )
        raise UserError(f"these tasks would be stranded: {stranded_tasks}", remedy="let them end first")
    connection.execute(
        "update letters set state = 'ended', reason = %s where hive = %s and state = 'open'",
        (f"no linked hive has the name {name} any more", name),
    )
    connection.execute(
        "update tasks set taker = null, state = case state when 'taken' then 'open' else state end where taker = %s",
        (name,),
    )


def _return_tasks(hive: Parts) -> list[str]:
    """Wait until the exchange process has ended. Then abandon other hives' tasks and put offered tasks back into the inbox.
    Return remarks."""
    deadline, remarks = time.monotonic() + _LOCK_TIMEOUT_S, list[str]()
    while True:
        try:
            lock = lock_name(hive.layout, EXCHANGE)
            break
        except LockBusy:
            if time.monotonic() > deadline:  # the process is suspended; the next start of the swarm returns its tasks
                return remarks
            time.sleep(0.05)
    try:
        for task in load_foreign_tasks(hive.layout).values():
            abandon_task(hive, task, f"This hive was unlinked; the task {task.id} of {task.giver} continues elsewhere.")
            remarks.append(
                f"{task.task} has ended here: it is the task {task.id} of {task.giver}, and continues elsewhere"
            )
        hive.tasks.recovery.reclaim(EXCHANGE)
    finally:
        lock.release()
    ring_all(hive)
    return remarks


def _lose_task(hive: Parts, task: Task) -> str:
    """Fail an offered task that another hive may have begun, if it has a step that must run once. Return a remark."""
    place = task.parked.reason if task.parked else "offered"
    if not any(step.once for step in task.steps):
        return (
            f"another hive may do {task.id}, or has done it ({place}): it is in the inbox again, and may be done twice"
        )
    reason = (
        f"This hive was unlinked ({place}): another hive may have begun a step that must run once. Find out what happened;"
        f" if the step did not run: hivemind task retry {task.id}"
    )
    hive.tasks.fail(task, reason)
    hive.steps.end_task(task.id, "failed", agent_id=EXCHANGE)
    return f"another hive may do {task.id}, or has done it ({place}): it has failed here, as a step of it must run once"


@contextmanager
def connect_exchange(url: str) -> Iterator[Connection]:
    """Connect to the exchange for the duration of a `with` block.

    Raises LinkDown for errors of the server and the network, UserError for missing privileges.
    """
    psycopg = import_client(url)
    try:
        with connect(url, defaults=_CONNECTION_DEFAULTS) as connection:
            connection.execute(_SETTINGS)
            try:
                yield connection
            except psycopg.errors.InsufficientPrivilege as error:
                for problem, remedy in SCHEMA.missing_requirements(connection, url):
                    raise UserError(problem, location=url, remedy=remedy) from error
                raise
    except psycopg.Error as error:
        raise LinkDown(" ".join(str(error).split()) or type(error).__name__) from error


@contextmanager
def open_exchange(layout: Layout) -> Iterator[Connection]:
    """Connect to the exchange of a linked hive for reading. Raises UserError if the hive is not linked, LinkDown."""
    hive_link = load_link(layout)
    if hive_link is None:
        raise UserError("this hive is not linked", remedy="hivemind link postgresql://... links it")
    with connect_exchange(hive_link.url) as connection:
        if not SCHEMA.version(connection, hive_link.url):
            raise UserError("the database has no tables of linked hives", remedy="hivemind unlink, then link")
        yield connection


def hive_overviews(connection: Connection) -> list[dict[str, Any]]:
    """Return an overview of each linked hive: seconds since its last report, states of its agents, counts of its tasks.

    For a row that cannot be read, the overview has only the problem.
    """
    rows = connection.execute(
        "select name, case when isfinite(seen) then extract(epoch from now() - seen)::bigint end, overview::text, events"
        " from hives order by name"
    ).fetchall()
    return [_read_overview(columns) for columns in rows]


def _read_overview(columns: tuple[Any, ...]) -> dict[str, Any]:
    try:
        row = read_row(OverviewRow, columns)
    except Unreadable as error:
        return {"hive": columns[0][:64], "seen_s": None, "events": 0, "agents": {}, "tasks": {}, "problem": str(error)}
    return {"hive": row.name, "seen_s": row.seen_s, "events": row.events, **asdict(row.overview), "problem": None}


def other_hives(connection: Connection, name: str) -> tuple[dict[str, dict[str, str | None]], set[str]]:
    """Return the hives other than `name` with the roles of their agents (None: no role), and the problems of rows that cannot be
    read.
    """
    problems = set[str]()
    rows = connection.execute("select name, agents::text from hives where name <> %s", (name,)).fetchall()
    return {row.name: row.agents for row in readable_rows(HiveRow, rows, problems)}, problems


class HiveLease:
    """The lease that lets one process act for a hive in the exchange.

    The holder is the hive's folder on this machine. The next process in that folder therefore takes over at once, while a
    copy of the hive in another folder waits until the lease expires.
    """

    def __init__(self, connection: Connection, hive: str, root: Path) -> None:
        """Take the lease. Raises LinkDown if another holder has the lease."""
        self._connection, self._hive = connection, hive
        folder = os.stat(root)
        row = connection.execute(
            f"insert into places (hive, holder, generation, lease) values (%s, %s, 1, now() + {LEASE})"  # noqa: S608
            " on conflict (hive) do update set holder = excluded.holder, generation = places.generation + 1,"
            " lease = excluded.lease where places.holder = excluded.holder or places.lease < now() returning generation",
            (hive, f"{machine_identity()['machine']}:{folder.st_dev}:{folder.st_ino}"),
        ).fetchone()
        if row is None:
            raise LinkDown(
                f"another process acts for {hive}: a copy of this hive, or this hive less than 30 s ago elsewhere"
            )
        self._generation = int(row[0])

    def renew(self) -> None:
        """Extend the lease. Raises LinkDown if another holder has taken it."""
        if not self._extend(LEASE):
            raise LinkDown(f"another process now acts for {self._hive}")

    def release(self) -> None:
        """End the lease, so any holder can take it."""
        self._extend("interval '0'")

    def _extend(self, interval: str) -> int:
        sql = f"update places set lease = now() + {interval} where hive = %s and generation = %s"  # noqa: S608
        return self._connection.execute(sql.encode(), (self._hive, self._generation)).rowcount


def take_hive_lease(connection: Connection, hive_link: HiveLink, workspace: str, root: Path) -> HiveLease:
    """Take the hive's lease, return it, and listen for notifications. Raises LinkDown, UnknownVersion."""
    if workspace.lower() != hive_link.name:
        raise LinkDown(
            f"hive.yaml says workspace: {workspace}, and the hive is linked as {hive_link.name}: hivemind unlink, then link"
        )
    SCHEMA.prepare(connection, hive_link.url)
    row = connection.execute("select identity from hives where name = %s", (hive_link.name,)).fetchone()
    if row is None or row[0] != hive_link.identity:
        problem = "is not linked there" if row is None else "is the name of another hive there"
        raise LinkDown(f"{hive_link.name} {problem}: hivemind unlink, then link")
    lease = HiveLease(connection, hive_link.name, root)
    for name in (hive_link.name, ANY):
        connection.execute(f"listen {channel(name)}")
    return lease
