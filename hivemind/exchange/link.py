"""`hivemind link` and `hivemind unlink`: the record of a link, the hive's name in the exchange, the connection."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, checked
from hivemind.errors import HivemindError, UserError
from hivemind.exchange.foreign_tasks import foreign_tasks, let_go
from hivemind.exchange.rows import HiveRow, OverviewRow, read_row
from hivemind.exchange.schema import LEASE, SCHEMA, channel, tell
from hivemind.frozen import frozen
from hivemind.fs import HeldLock, load_record, make_folder, ring, save_record
from hivemind.fs.locks import machine_identity
from hivemind.fs.postgres import check_url, client, connect
from hivemind.layout import ANY, EXCHANGE, Layout
from hivemind.names import is_name
from hivemind.presence.identity import take_name
from hivemind.presence.parts import Parts
from hivemind.presence.watching import SUPERVISOR, ring_all

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = [
    "HiveLink",
    "HivePlace",
    "LinkDown",
    "hives_now",
    "link",
    "load_link",
    "open_exchange",
    "other_hives",
    "reached_out",
    "take_place",
    "unlink",
]

_KIND, _VERSION = "link", 1
_PATIENCE_S = 15.0
# Whatever becomes of the network, either side knows within ten seconds that the other is gone.
_SOON = {
    "connect_timeout": "5", "tcp_user_timeout": "10000", "application_name": "hivemind exchange",
    "keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3",
}  # fmt: skip
_SETTINGS = (
    f"SET search_path = {SCHEMA.name}; SET statement_timeout = '10s'; SET tcp_user_timeout = '10s';"
    " SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"
)


class LinkDown(HivemindError):
    """The exchange cannot be reached, or does not take us in; `str` of it says why."""


@frozen
class HiveLink:
    """`url` says where the exchange is, without a password; `name` is this hive's there, `identity` whose name it is."""

    url: str
    name: str
    identity: str


def load_link(layout: Layout) -> HiveLink | None:
    """The link of a hive; None if it has none. Raises UserError for a record that cannot be read."""
    record = load_record(layout.link / "link.json", _KIND, _VERSION)
    return None if record is None else checked(HiveLink, record, "link record", layout.link / "link.json")


def link(hive: Parts, url: str) -> HiveLink:
    """Link a hive: make the tables where there are none, take its name. Raises UserError, Away."""
    old = load_link(hive.layout)
    if old is not None:
        raise UserError(f"is linked already, as {old.name}, through {old.url}", remedy="hivemind unlink ends that")
    check_url(url)
    name = hive.config.workspace.lower()
    if not is_name(name) or name == ANY:
        mend = f"change workspace: in hive.yaml, and move {hive.layout.relative(hive.layout.workspace_record)} away"
        raise UserError(f"the workspace {name!r} cannot be a hive's name: it must be like berlin", remedy=mend)
    new = HiveLink(url, name, os.urandom(16).hex())
    with reached_out(url) as connection:
        SCHEMA.prepare(connection, url)
        with connection.transaction():
            agents = {agent: config.role for agent, config in hive.agents.items()}
            from psycopg.types.json import Jsonb

            took = connection.execute(
                "insert into hives (name, identity, agents) values (%s, %s, %s) on conflict do nothing",
                (name, new.identity, Jsonb(agents)),
            ).rowcount
            if not took:
                raise UserError(
                    f"another hive has the name {name} there",
                    remedy=f"unlink that one; or give this one another workspace: in hive.yaml, and move"
                    f" {hive.layout.relative(hive.layout.workspace_record)} away, which holds the old one",
                )
            make_folder(hive.layout.link, durable=hive.config.durable)
            # Written before the commit: a crash in between leaves a link whose name nobody has, which the process says.
            save_record(hive.layout.link / "link.json", _KIND, _VERSION, asdict(new), durable=hive.config.durable)
            tell(connection, ANY, what="hives")
    hive.mail.ensure(EXCHANGE)
    ring(hive.layout.doorbells, SUPERVISOR)
    return new


def unlink(hive: Parts, *, force: bool = False) -> HiveLink:
    """End a link: the name is free, letters to it that have not arrived go back, tasks of others go on elsewhere, its own are
    worked on here. With `force` also without the exchange, and if tasks are lost by it. Raises UserError, Away."""
    old = load_link(hive.layout)
    if old is None:
        raise UserError("this hive is not linked", remedy="hivemind link postgresql://... links it")
    record = hive.layout.link / "link.json"
    try:
        with reached_out(old.url) as connection, connection.transaction():
            mine = (old.name, old.identity)
            sql = "select from hives where name = %s and identity = %s for update"
            if connection.execute(sql, mine).rowcount:
                _withdraw(connection, old.name, force=force)
                connection.execute("delete from hives where name = %s", (old.name,))
                givers = connection.execute("select name from hives").fetchall()
                tell(connection, ANY, *(name for (name,) in givers), what="hives")
    except LinkDown as error:
        if not force:
            raise LinkDown(f"{error}; to end the link without the database: hivemind unlink --force") from error
    record.unlink()
    for name in (EXCHANGE, SUPERVISOR):
        ring(hive.layout.doorbells, name)
    _return_tasks(hive)
    (hive.layout.link / "hives.json").unlink(missing_ok=True)
    return old


def _withdraw(connection: Connection, name: str, *, force: bool) -> None:
    """End what is under way of a hive whose row is locked. Raises UserError for tasks that would be lost by it."""
    rows = connection.execute(
        "select id, giver, taker, state from tasks where (giver = %(me)s and state in ('done', 'failed'))"
        " or (once and state = 'taken' and %(me)s in (giver, taker)) order by number",
        {"me": name},
    ).fetchall()
    if rows and not force:
        told = ", ".join(
            f"{task} ({f'of {giver}' if giver != name else f'with {taker}'}:"
            f" {'a step of it must run once' if state == 'taken' else 'its result has not come home'})"
            for task, giver, taker, state in rows
        )
        raise UserError(f"these tasks would be stranded: {told}", remedy="let them end first, or use --force")
    connection.execute(
        "update letters set state = 'ended', reason = %s where hive = %s and state = 'open'",
        (f"no linked hive has the name {name} any more", name),
    )
    connection.execute(
        "update tasks set taker = null, state = case when state = 'taken' and not once then 'open' else state end"
        " where taker = %s",
        (name,),
    )


def _return_tasks(hive: Parts) -> None:
    """Let go of the tasks of others, and put its own back into the inbox, once no process carries them any more."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            lock = take_name(hive.layout, EXCHANGE)
            break
        except HeldLock:
            if time.monotonic() > end:  # it is stopped; what it has goes back when it ends, by whoever starts the swarm
                return
            time.sleep(0.05)
    try:
        for task in foreign_tasks(hive.layout).values():
            let_go(hive, task, f"This hive was unlinked; the task {task.id} of {task.giver} goes on elsewhere.")
        hive.tasks.claims.reclaim(EXCHANGE)
    finally:
        lock.release()
    ring_all(hive)


@contextmanager
def reached_out(url: str) -> Iterator[Connection]:
    """A connection to the exchange, closed at the end. Raises Away for whatever the server or the network says, UserError for
    what the role's owner has to give."""
    psycopg = client(url)
    try:
        with connect(url, defaults=_SOON) as connection:
            connection.execute(_SETTINGS)
            try:
                yield connection
            except psycopg.errors.InsufficientPrivilege as error:
                for problem, mend in SCHEMA.lacks(connection, url):
                    raise UserError(problem, location=url, remedy=mend) from error
                raise
    except psycopg.Error as error:
        raise LinkDown(" ".join(str(error).split()) or type(error).__name__) from error


@contextmanager
def open_exchange(layout: Layout) -> Iterator[Connection]:
    """The exchange that a hive is linked with, to be looked at. Raises UserError for a hive that is not linked, Away."""
    mine = load_link(layout)
    if mine is None:
        raise UserError("this hive is not linked", remedy="hivemind link postgresql://... links it")
    with reached_out(mine.url) as connection:
        if not SCHEMA.version(connection, mine.url):
            raise UserError("the database has no tables of linked hives", remedy="hivemind unlink --force, then link")
        yield connection


def hives_now(connection: Connection) -> list[dict[str, Any]]:
    """Every linked hive: when it was last seen (seconds ago), its agents with their states, how its tasks stand; or the problem
    of a row that cannot be read."""
    rows = connection.execute(
        "select name, case when isfinite(seen) then extract(epoch from now() - seen)::bigint end, overview::text, events"
        " from hives order by name"
    ).fetchall()
    return [_hive_now(columns) for columns in rows]


def _hive_now(columns: tuple[Any, ...]) -> dict[str, Any]:
    try:
        row = read_row(OverviewRow, columns)
    except Unreadable as error:
        return {"hive": columns[0][:64], "seen_s": None, "events": 0, "agents": {}, "tasks": {}, "problem": str(error)}
    return {"hive": row.name, "seen_s": row.seen_s, "events": row.events, **asdict(row.overview), "problem": None}


def other_hives(connection: Connection, name: str) -> tuple[dict[str, dict[str, str | None]], set[str]]:
    """The hives beside `name` with their agents' roles, and the problems of those whose rows cannot be read."""
    hives, problems = {}, set()
    for columns in connection.execute("select name, agents::text from hives where name <> %s", (name,)).fetchall():
        try:
            row = read_row(HiveRow, columns)
        except Unreadable as error:
            problems.add(str(error))
        else:
            hives[row.name] = row.agents
    return hives, problems


class HivePlace:
    """The lease of a hive's place in the exchange: its holder speaks for the hive. The holder is a hive's folder on a machine,
    so that the next process goes on at once, and a copy of the hive waits until the lease has ended."""

    def __init__(self, connection: Connection, hive: str, root: Path) -> None:
        """Take the place. Raises Away if another holds it."""
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
                f"another process speaks for {hive}: a copy of this hive, or this hive less than 30 s ago elsewhere"
            )
        self._generation = int(row[0])

    def renew(self) -> None:
        """Raise Away if another holder has taken the place meanwhile."""
        if not self._extend(LEASE):
            raise LinkDown(f"another process speaks for {self._hive} now")

    def leave(self) -> None:
        """Free the place for any holder."""
        self._extend("interval '0'")

    def _extend(self, interval: str) -> int:
        sql = f"update places set lease = now() + {interval} where hive = %s and generation = %s"  # noqa: S608
        return self._connection.execute(sql.encode(), (self._hive, self._generation)).rowcount


def take_place(connection: Connection, mine: HiveLink, workspace: str, root: Path) -> HivePlace:
    """Make sure that this connection alone speaks for the hive, and listen for what is new. Raises Away, UnknownVersion."""
    if workspace.lower() != mine.name:
        raise LinkDown(
            f"hive.yaml says workspace: {workspace}, and the hive is linked as {mine.name}: hivemind unlink, then link"
        )
    SCHEMA.prepare(connection, mine.url)
    row = connection.execute("select identity from hives where name = %s", (mine.name,)).fetchone()
    if row is None or row[0] != mine.identity:
        whose = "is not linked there" if row is None else "is the name of another hive there"
        raise LinkDown(f"{mine.name} {whose}: hivemind unlink, then link")
    place = HivePlace(connection, mine.name, root)
    for name in (mine.name, ANY):
        connection.execute(f"listen {channel(name)}")
    return place
