"""Lessons of linked hives: each hive offers the lessons of its repositories in its row of the exchange, sorted by git remote.

A hive takes over the lessons that other hives offer for the remotes of its own repositories (README.md, *The rest*).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hivemind.errors import UserError
from hivemind.exchange.rows import LessonsRow, readable_rows
from hivemind.exchange.schema import LESSONS_BYTES, notify
from hivemind.layout import ANY
from hivemind.lessons.choice import book_of
from hivemind.lessons.sharing import exchange_lessons, remote_of
from hivemind.presence.parts import Parts

if TYPE_CHECKING:
    from psycopg import Connection


def transfer_lessons(hive: Parts, connection: Connection, name: str) -> set[str]:
    """Take the lessons of other hives for this hive's repositories, recognised by their git remotes, and offer this hive's
    lessons.

    `name` is this hive's name in the exchange. Return the problems, one sentence each. Raises psycopg.Error.
    """
    from psycopg.types.json import Jsonb

    own_lessons, problems = dict[str, list[dict[str, Any]]](), set[str]()
    roots = {} if hive.config.lessons == "off" else hive.config.repository_roots(hive.layout)
    for root, config in roots.items():
        try:
            remote = remote_of(root, config.push.remote if config.push else "origin")
            if remote is not None:
                offers = _read_offers(connection, name, remote, problems)
                lessons = exchange_lessons(hive, book_of(hive, root), offers)
                own_lessons.setdefault(remote, []).extend(map(asdict, lessons))
        except (UserError, OSError) as error:
            problems.add(f"no lessons of {root}: {error}")
    while len(json.dumps(own_lessons)) > LESSONS_BYTES:
        problems.add(f"too many lessons: those of {own_lessons.popitem()[0]} are not offered")
    offer = Jsonb(own_lessons)
    query = "update hives set lessons = %s where name = %s and lessons <> %s"
    if connection.execute(query, (offer, name, offer)).rowcount:
        notify(connection, ANY, payload="hives")
    return problems


def _read_offers(connection: Connection, name: str, remote: str, problems: set[str]) -> dict[str, list[Any]]:
    query = "select name, (lessons -> %s::text)::text from hives where name <> %s and lessons ? %s"
    rows = connection.execute(query, (remote, name, remote)).fetchall()
    return {row.name: row.lessons for row in readable_rows(LessonsRow, rows, problems)}
