"""Reserve files, which keeps agents from changing them while you edit.

Exit status 1: another reservation may cover one of these paths.

examples:
  hivemind reserve paths 'knowledge/boats/**' --reason 'new chapter'
  hivemind reserve list
  hivemind reserve release
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hivemind.cli.command import CommandOutput, command
from hivemind.cli.open_hive import acting_name, open_hive, open_read_only, resolve_name
from hivemind.cli.output import table_lines
from hivemind.cli.text import one_line
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.hive import Hive

_COLUMNS = ("reservation", "agent", "paths", "shared", "reason")


@command("reserve paths", open_hive, for_agents=True)
def paths(hive: Hive, paths: list[str], *, shared: bool = False, reason: str = "", agent: str = HUMAN) -> CommandOutput:
    """Reserve all paths that match the patterns, or none if another reservation overlaps.

    A person's reservation lasts until it is released, an agent's at most until its process ends. The tools of agents and
    MCP clients respect it; other programs are not prevented from writing.

    arguments:
      PATTERN  relative to the hive's folder: *, ** and ? as in a shell, in quotes
      --shared  allow others a shared reservation of the same paths
      --reason TEXT  shown to those who are refused
      --agent WHO  the holder: an agent, or human (default)

    examples:
      hivemind reserve paths 'knowledge/boats/**' knowledge/index.md
      hivemind reserve paths 'knowledge/**' --shared
    """
    from hivemind.tools.registry import use_by_hand

    holder = acting_name(hive, agent)
    reservation = use_by_hand(hive, holder, "reserve", {"paths": paths, "shared": shared, "reason": reason})
    line = f"{holder} holds {one_line(', '.join(reservation['paths']))}: reservation {reservation['reservation']}."
    return CommandOutput(reservation, [line])


@command("reserve list", open_read_only, for_agents=True)
def reservations(hive: Hive, *, agent: str | None = None) -> CommandOutput:
    """List reservations, oldest first.

    arguments:
      --agent WHO  only reservations of this holder

    examples:
      hivemind reserve list --json
    """
    from hivemind.coordination import Reservations

    active_reservations = Reservations(hive.journal).list(None if agent is None else resolve_name(hive, agent))
    rows = [
        {
            **asdict(reservation),
            "reservation": reservation.id,
            "agent": reservation.agent_id,
            "paths": " ".join(reservation.patterns),
        }
        for reservation in active_reservations
    ]
    fields = [{**asdict(reservation), "patterns": list(reservation.patterns)} for reservation in active_reservations]
    return CommandOutput(fields, table_lines(rows, _COLUMNS, empty="Nothing is reserved."))


@command("reserve release", open_hive, for_agents=True)
def release(hive: Hive, reservation: int | None = None, *, agent: str = HUMAN) -> CommandOutput:
    """Release reserved paths.

    arguments:
      N  the reservation's number (default: all)
      --agent WHO  the holder: an agent, or human (default)

    examples:
      hivemind reserve release 42
      hivemind reserve release --agent researcher
    """
    from hivemind.tools.registry import use_by_hand

    holder = acting_name(hive, agent)
    release_report = use_by_hand(hive, holder, "release", {} if reservation is None else {"reservation": reservation})
    return CommandOutput(release_report, [f"{holder} has released {release_report['released']}."])
