"""Print events of the journal, or one agent's own log."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.command import command
from hivemind.cli.open_hive import known_agent, open_read_only
from hivemind.cli.output import as_json, cut_lines, print_array, print_line, warn
from hivemind.cli.streams import OutputWaiter
from hivemind.cli.text import one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.coordination import Event
    from hivemind.hive import Hive


def agent_log_text(record: Mapping[str, Any]) -> str:
    """Return a record of an agent's own log as text: a line with its kind and fields, and a line per call of a tool."""
    calls = record.get("calls")
    fields = {key: value for key, value in record.items() if key not in ("kind", "event", "time", "at", "calls")}
    kind = one_line(str(record.get("kind") or record.get("event") or ""))
    lines = [f"{time_prefix(record)}{kind}  {format_fields(fields)}".rstrip()]
    lines += [
        f"    {format_fields(call) if isinstance(call, dict) else _format_value(call)}"
        for call in (calls if isinstance(calls, list) else [])
    ]
    return "\n".join(cut_lines(lines))


def event_line(event: Mapping[str, Any]) -> str:
    """Return an event of the journal as a line: its number, kind and payload."""
    payload = {key: value for key, value in event.items() if key not in ("seq", "kind")}
    if "time" in payload:
        payload["time"] = time_prefix({"time": payload["time"]}).strip() or payload["time"]
    return f"{event.get('seq'):>6}  {one_line(str(event.get('kind'))):18} {format_fields(payload)}".rstrip()


def format_fields(fields: Mapping[str, Any]) -> str:
    """Return fields as `key=value …`. A value is quoted if it is empty or contains a space, `=` or a quotation mark."""
    return "  ".join(
        f"{one_line(str(key))}={_format_value(value)}" for key, value in fields.items() if value is not None
    )


def _format_value(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(" ='\""):
        return value
    return one_line(json.dumps(value, ensure_ascii=False, default=str))


def time_prefix(record: Mapping[str, Any]) -> str:
    """Return the record's time of day in this machine's zone and two spaces, or "" if the record has no time."""
    with suppress(Unreadable), boundary("time"):
        if "at" in record:
            return f"{datetime.fromisoformat(str(record['at'])).astimezone():%H:%M:%S}  "
        return f"{datetime.fromtimestamp(float(record['time']), UTC).astimezone():%H:%M:%S}  "
    return ""


_POLL_S = 5.0  # --follow reads the journal at least this often, in case a change was not reported


@command("log", open_read_only)
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

    Each line is an event: its number, its kind and its fields. Events are ordered by number. Events of agents and tasks
    also have a clock time, for information only. --json prints an array; with --follow, one JSON object per line.

    arguments:
      --follow  keep printing new events; Ctrl-C ends it
      --since SEQ  only events after this number
      --kind KIND  only this kind (step.done), or a family of kinds (step)
      --all  the journals of all linked hives, as far as the exchange has sent them: each hive's events in their order
      --agent AGENT  the log of this agent instead: its work outside of tasks, mostly mail

    examples:
      hivemind log --kind lease --kind agent
      hivemind log --since 120 --follow
      hivemind log --agent researcher
    """

    families, is_empty = set[str](), True

    def matches_kind(event_kind: str) -> bool:
        nonlocal is_empty
        families.add(event_kind.partition(".")[0])
        matches = kind is None or any(
            event_kind == kind_prefix or event_kind.startswith(f"{kind_prefix}.") for kind_prefix in kind
        )
        is_empty = is_empty and not matches
        return matches

    if all_ and (agent is not None or since is not None):
        raise UserError("--all cannot be combined with --agent or --since", remedy="leave them out")
    if agent is not None and (follow or since is not None):
        raise UserError("--agent cannot be combined with --follow or --since", remedy="leave them out")
    if next(hive.layout.journal.glob("0*.jsonl"), None) is not None:
        raise UserError(
            "is of another version", location=hive.layout.journal, remedy="hivemind help hives of another version"
        )
    with ExitStack() as resources:
        records: Iterator[dict[str, Any]]
        format_record: Callable[[dict[str, Any]], str] = event_line
        if all_:
            from hivemind.exchange.events import all_events
            from hivemind.exchange.link import open_exchange

            records, format_record = (
                all_events(resources.enter_context(open_exchange(hive.layout)), follow=follow),
                lambda record: f"{one_line(record.pop('hive')):12} {event_line(record)}",
            )
        elif agent is not None:
            from hivemind.presence.agent_log import AgentLog

            records, format_record = (
                AgentLog(hive.layout.agent_state(known_agent(hive, agent))).records(),
                agent_log_text,
            )
        else:
            events = _follow_events(hive, since or 0) if follow else hive.journal.events(since or 0)
            records = (event.as_dict() for event in events)
        records = (record for record in records if matches_kind(str(record.get("kind", ""))))
        if json and not follow:
            print_array(records)
            return
        for record in records:
            print_line(as_json(record) if json else format_record(record))
            if follow:
                sys.stdout.flush()
    if kind and is_empty:
        warn(f"no event has the kind {' or '.join(kind)}; kinds here: {', '.join(sorted(families)) or 'none'}")


def _follow_events(hive: Hive, since: int) -> Iterator[Event]:
    """Yield events as they are appended, until the reader closes the output (BrokenPipeError).

    Reads the journal when its folder changes, and every few seconds in case a change is not reported.
    """
    from hivemind.fs.watch import open_watcher

    with OutputWaiter() as bell, open_watcher(hive.config.watch, [], [hive.layout.journal], bell.wake):
        while True:
            for event in hive.journal.read(since):
                since = event.seq
                yield event
            bell.wait(_POLL_S)
