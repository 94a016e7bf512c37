"""Hives that work together: linked through PostgreSQL, each in its own folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind.cli.command import Answer, command
from hivemind.cli.opening import open_hive

if TYPE_CHECKING:
    from hivemind.hive import Hive


@command("link", open_hive)
def link(hive: Hive, url: str) -> Answer:
    """Link this hive with others through a PostgreSQL database.

    Its name there is its workspace (hive.yaml), which no other hive may have. The tables are made where there are
    none. A password is never kept in the hive: set PGPASSWORD where `hivemind up` runs, or use ~/.pgpass or a
    service file. A swarm that is up takes the link up by itself.

    arguments:
      URL  the database: postgresql://USER@HOST/DATABASE, or postgresql://?service=NAME

    examples:
      hivemind link postgresql://hivemind@db.example/hives
    """
    from hivemind.exchange.link import link as make_link

    made = make_link(hive, url)
    lines = [
        f"This hive is linked as {made.name}.",
        f"Agents of other hives write to its own at NAME@{made.name}, and to you at human@{made.name}.",
    ]
    return Answer({"name": made.name, "url": made.url}, lines)


@command("unlink", open_hive)
def unlink(hive: Hive, *, force: bool = False) -> Answer:
    """End this hive's link with others; its name is free then.

    Letters to it that have not arrived go back to who sent them.

    arguments:
      --force  also if the database cannot be reached; its name there stays taken

    examples:
      hivemind unlink
    """
    from hivemind.exchange.link import unlink as end_link

    ended = end_link(hive, force=force)
    return Answer({"name": ended.name, "url": ended.url}, [f"This hive is not linked any more; it was {ended.name}."])
