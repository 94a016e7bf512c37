"""Keep agents' hands off files while you edit them.

Exit status 1: another holds what could be one of these paths.

examples:
  hivemind reserve paths 'knowledge/boats/**' --reason 'new chapter'
  hivemind reserve list
  hivemind reserve release
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hivemind.cli.command import Answer, command
from hivemind.cli.opening import acting, known_name, look_at, open_hive
from hivemind.cli.output import table_lines
from hivemind.cli.text import one_line
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.hive import Hive

_COLUMNS = ("reservation", "agent", "paths", "shared", "reason")


@command("reserve paths", open_hive, agents=True)
def paths(hive: Hive, paths: list[str], *, shared: bool = False, reason: str = "", agent: str = HUMAN) -> Answer:
    """Reserve every path that the patterns match, or none of them.

    A person's reservation lasts until it is released, an agent's no longer than its process. The tools of agents and
    MCP clients respect it; other programs are not held back.

    arguments:
      PATTERN  from the hive's folder: *, ** and ? as in a shell, in quotes
      --shared  others may hold a shared reservation of them, too
      --reason TEXT  shown to whoever is refused
      --agent WHO  for whom: an agent, or human (default)

    examples:
      hivemind reserve paths 'knowledge/boats/**' knowledge/index.md
      hivemind reserve paths 'knowledge/**' --shared
    """
    from hivemind.tools.registry import use_by_hand

    holder = acting(hive, agent)
    made = use_by_hand(hive, holder, "reserve", {"paths": paths, "shared": shared, "reason": reason})
    line = f"{holder} holds {one_line(', '.join(made['paths']))}: reservation {made['reservation']}."
    return Answer(made, [line])


@command("reserve list", look_at, agents=True)
def reservations(hive: Hive, *, agent: str | None = None) -> Answer:
    """List what is reserved, oldest first.

    arguments:
      --agent WHO  only what this agent holds

    examples:
      hivemind reserve list --json
    """
    from hivemind.coordination import Reservations

    found = Reservations(hive.journal).list(None if agent is None else known_name(hive, agent))
    rows = [
        {**asdict(one), "reservation": one.id, "agent": one.agent_id, "paths": " ".join(one.patterns)} for one in found
    ]
    record = [{**asdict(one), "patterns": list(one.patterns)} for one in found]
    return Answer(record, table_lines(rows, _COLUMNS, empty="Nothing is reserved."))


@command("reserve release", open_hive, agents=True)
def release(hive: Hive, reservation: int | None = None, *, agent: str = HUMAN) -> Answer:
    """Release reserved paths.

    arguments:
      N  which (default: all of them)
      --agent WHO  for whom: an agent, or human (default)

    examples:
      hivemind reserve release 42
      hivemind reserve release --agent researcher
    """
    from hivemind.tools.registry import use_by_hand

    holder = acting(hive, agent)
    ended = use_by_hand(hive, holder, "release", {} if reservation is None else {"reservation": reservation})
    return Answer(ended, [f"{holder} has released {ended['released']}."])
