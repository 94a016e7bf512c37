"""What happened, from the journal or from one agent's own log."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.command import command
from hivemind.cli.opening import known_agent, look_at
from hivemind.cli.output import as_json, cut, print_array, say
from hivemind.cli.streams import Bell
from hivemind.cli.text import one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.coordination import Event
    from hivemind.hive import Hive


def story(record: Mapping[str, Any]) -> str:
    """One record of an agent's own log: a line of what it is with its fields, and one for each call."""
    calls = record.get("calls")
    fields = {key: value for key, value in record.items() if key not in ("kind", "event", "time", "at", "calls")}
    kind = one_line(str(record.get("kind") or record.get("event") or ""))
    lines = [f"{time_of(record)}{kind}  {said(fields)}".rstrip()]
    lines += [
        f"    {said(one) if isinstance(one, dict) else _value(one)}"
        for one in (calls if isinstance(calls, list) else [])
    ]
    return "\n".join(cut(lines))


def event_line(event: Mapping[str, Any]) -> str:
    """One event of the journal: its number, its kind, what it says."""
    payload = {key: value for key, value in event.items() if key not in ("seq", "kind")}
    if "time" in payload:
        payload["time"] = time_of({"time": payload["time"]}).strip() or payload["time"]
    return f"{event.get('seq'):>6}  {one_line(str(event.get('kind'))):18} {said(payload)}".rstrip()


def said(fields: Mapping[str, Any]) -> str:
    """`key=value …`, a value in quotes where it could be taken for more than one."""
    return "  ".join(f"{one_line(str(key))}={_value(value)}" for key, value in fields.items() if value is not None)


def _value(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(" ='\""):
        return value
    return one_line(json.dumps(value, ensure_ascii=False, default=str))


def time_of(record: Mapping[str, Any]) -> str:
    """The record's time of day in this machine's zone, if it has one."""
    with suppress(Unreadable), boundary("time"):
        if "at" in record:
            return f"{datetime.fromisoformat(str(record['at'])).astimezone():%H:%M:%S}  "
        return f"{datetime.fromtimestamp(float(record['time']), UTC).astimezone():%H:%M:%S}  "
    return ""


_NET_S = 5.0  # how often a follower looks although nothing was reported


@command("log", look_at)
def log(
    hive: Hive,
    *,
    follow: bool = False,
    since: int | None = None,
    kind: list[str] | None = None,
    agent: str | None = None,
    all_: bool = False,
    json: bool,
) -> None:
    """Show the journal of the hive, or the log of one agent.

    Each line is an event: its number, its kind and its fields. Events are ordered by their number; those of agents
    and tasks have a clock time, for people alone. --json prints an array; with --follow, one JSON object per line.

    arguments:
      --follow  keep printing new events; Ctrl-C ends it
      --since SEQ  only events after this number
      --kind KIND  only this kind (step.done), or a family of them (step)
      --all  the journals of all linked hives, as far as they were shipped: each hive's events in their order
      --agent AGENT  show instead what this agent did outside of tasks, mostly mail

    examples:
      hivemind log --kind lease --kind agent
      hivemind log --since 120 --follow
      hivemind log --agent researcher
    """

    def wanted(found: str) -> bool:
        return kind is None or any(found == one or found.startswith(f"{one}.") for one in kind)

    if all_ and (agent is not None or since is not None):
        raise UserError("--all does not go with --agent or --since", mend="leave them out")
    if agent is not None and (follow or since is not None):
        raise UserError("--agent does not go with --follow or --since", mend="leave them out")
    with ExitStack() as opened:
        records: Iterator[dict[str, Any]]
        tell: Callable[[dict[str, Any]], str] = event_line
        if all_:
            from hivemind.exchange.events import events_of_all
            from hivemind.exchange.link import open_exchange

            records, tell = (
                events_of_all(opened.enter_context(open_exchange(hive.layout)), follow=follow),
                lambda record: f"{one_line(record.pop('hive')):12} {event_line(record)}",
            )
        elif agent is not None:
            from hivemind.presence.agent_log import AgentLog

            records, tell = AgentLog(hive.layout.agent_state(known_agent(hive, agent))).records(), story
        else:
            found = _events_as_they_come(hive, since or 0) if follow else hive.journal.events(since or 0)
            records = (event.as_dict() for event in found)
        records = (record for record in records if wanted(str(record.get("kind", ""))))
        if json and not follow:
            print_array(records)
            return
        for record in records:
            say(as_json(record) if json else tell(record))
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
