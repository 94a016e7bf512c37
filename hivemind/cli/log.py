"""What happened, from the journal or from one agent's own log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hivemind.cli.command import command
from hivemind.cli.opening import known_agent, look_at
from hivemind.cli.output import as_json, cut, print_array, say
from hivemind.cli.story import event_line, story_lines
from hivemind.cli.streams import Bell
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.coordination import Event
    from hivemind.hive import Hive

_NET_S = 5.0  # how often a follower looks although nothing was reported


@command("log", look_at)
def log(
    hive: Hive,
    *,
    follow: bool = False,
    since: int | None = None,
    kind: list[str] | None = None,
    agent: str | None = None,
    json: bool,
) -> None:
    """Show the journal of the hive, or the log of one agent.

    An event is its number, its kind and what it says. The number is the hive's own time: no clock is in it.
    --json gives an array; with --follow, which has no end, one JSON object a line.

    arguments:
      --follow  go on as new events come; Ctrl-C ends it
      --since SEQ  only events after this number
      --kind KIND  only this kind (step.done), or a family of them (step)
      --agent AGENT  what this agent did that belongs to no task instead: mail above all

    examples:
      hivemind log --kind lease --kind agent
      hivemind log --since 120 --follow
      hivemind log --agent researcher
    """

    def wanted(found: str) -> bool:
        return kind is None or any(found == one or found.startswith(f"{one}.") for one in kind)

    if agent is not None:
        if follow or since is not None:
            raise UserError("--agent does not go with --follow or --since", mend="leave them out")
        from hivemind.presence.agent_log import AgentLog

        own = AgentLog(hive.layout.agent_state(known_agent(hive, agent))).records()
        records = (record for record in own if wanted(str(record.get("kind", ""))))
        lines = cut(line for record in records for line in story_lines(record))
    else:
        found = _events_as_they_come(hive, since or 0) if follow else hive.journal.events(since or 0)
        records = (event.as_dict() for event in found if wanted(event.kind))
        lines = (as_json(record) if json and follow else event_line(record) for record in records)
    if json and not follow:
        print_array(records)
        return
    for line in lines:
        say(line)
        if follow:
            sys.stdout.flush()


def _events_as_they_come(hive: Hive, since: int) -> Iterator[Event]:
    """Events until the reader has gone (BrokenPipeError): read again when the journal's folder changed, and every few
    seconds in case that went unsaid."""
    from hivemind.fs.watch import open_watcher

    with Bell() as bell, open_watcher(hive.config.watch, [], [hive.layout.journal], bell.ring):
        while True:
            for event in hive.journal.read(since):
                since = event.seq
                yield event
            bell.wait(_NET_S)
