"""Link hives in different folders or on different machines through PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind.cli.command import CommandOutput, command
from hivemind.cli.open_hive import open_hive
from hivemind.cli.output import warn

if TYPE_CHECKING:
    from hivemind.hive import Hive


@command("link", open_hive)
def link(hive: Hive, url: str) -> CommandOutput:
    """Link this hive with others through a PostgreSQL database.

    In the database the hive is named by its workspace (hive.yaml), which no other linked hive may have. Missing tables
    are created.
    The hive never stores a password: set PGPASSWORD where `hivemind up` runs, or use ~/.pgpass or a service file.
    A running swarm starts to use the link at once.

    arguments:
      URL  the database: postgresql://USER@HOST/DATABASE, or postgresql://?service=NAME

    examples:
      hivemind link postgresql://hivemind@db.example/hives
    """
    from hivemind.exchange.link import link as make_link

    new_link = make_link(hive, url)
    lines = [
        f"This hive is linked as {new_link.name}.",
        f"Agents of other hives write to this hive's agents at NAME@{new_link.name}, and to you at human@{new_link.name}.",
    ]
    return CommandOutput({"name": new_link.name, "url": new_link.url}, lines)


@command("unlink", open_hive)
def unlink(hive: Hive) -> CommandOutput:
    """End this hive's link with others, and free its name.

    Undelivered letters to this hive are returned to their senders.

    examples:
      hivemind unlink
    """
    from hivemind.exchange.link import unlink as end_link

    former_link, remarks = end_link(hive)
    for remark in remarks:
        warn(remark)
    return CommandOutput(
        {"name": former_link.name, "url": former_link.url},
        [f"This hive is not linked any more; its name was {former_link.name}."],
    )
