"""Show a task's conversation turn by turn, and the timeline of its agents."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from hivemind.cli.command import Arg, CommandOutput, Positive, command
from hivemind.cli.log import time_prefix
from hivemind.cli.open_hive import open_read_only
from hivemind.cli.output import as_json, cut_lines, print_line
from hivemind.cli.streams import OutputWaiter
from hivemind.cli.text import one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.taskrun.transcript import TranscriptEntry
    from hivemind.tasks import Task

_MAX_CHARS = 1_000
_FINAL_WAIT_S = 2.0  # wait this long for the last results of a task that has ended


@command("task transcript", open_read_only)
def transcript(
    hive: Hive,
    id_: str,
    *,
    turn: Annotated[int | None, Arg(minimum=1, exclusive_group="which")] = None,
    follow: Annotated[bool, Arg(exclusive_group="which")] = False,
    attempt: Positive | None = None,
    json: bool,
) -> CommandOutput | None:
    """Show a task's conversation turn by turn: thoughts, calls and results.

    Shows each turn's tokens, how many came from the provider's cache, its price and its duration. Also shows
    openings, the reasons for new epochs, news, and failed requests. --json prints one object; with --follow, one entry
    per line.

    arguments:
      TASK  the task's id
      --turn N  only this turn, with uncut texts
      --follow  keep printing until the task ends
      --attempt N  the attempt before a retry

    examples:
      hivemind task transcript what-is-a-lease
      hivemind task transcript what-is-a-lease --turn 3
    """
    from hivemind.taskrun.transcript import Transcript

    task = hive.tasks.get(id_)
    if follow and attempt is None:
        _follow(hive, task, as_json_lines=json)
        return None
    task_transcript = Transcript(hive.tasks.listing.read_log(task.id, attempt))
    reference = task.id if attempt is None else f"{task.id} --attempt {attempt}"
    entries = [entry for entry in task_transcript.entries if turn in (None, entry.turn)]
    if not entries:
        message = "it has no turns yet" if turn is None else f"it has {len(task_transcript.turns)} turns"
        raise UserError(message, location=reference, remedy="--attempt N shows an earlier attempt")
    head = one_line(f"{task.id}: {task.title}, {task.state.value}, {task_transcript.summary}")
    lines = (line for entry in entries for line in entry_lines(entry, None if turn else reference))
    record = {
        "task": task.id,
        "title": task.title,
        "state": task.state.value,
        "totals": asdict(task_transcript.account.usage()),
        "entries": [entry.as_record() for entry in entries],
    }
    return CommandOutput(record, [head, *lines])


def entry_lines(entry: TranscriptEntry, reference: str | None) -> Iterator[str]:
    """Yield an entry's lines. With a `reference`, cut long texts, and name the command that shows the whole text."""
    from hivemind.tools.excerpt import shortened

    yield ""
    yield one_line(f"{time_prefix(entry.record)}{entry.heading}")
    for name, text in entry.parts:
        call = f"hivemind task transcript {reference} --turn {entry.turn}"
        visible_text = shortened(text, _MAX_CHARS, call) if reference is not None else text
        if name and "\n" not in visible_text:
            yield f"  {one_line(name)}: {visible_text}"
            continue
        if name:
            yield f"  {one_line(name)}:"
        yield from (f"{'    ' if name else '  '}{line}" for line in visible_text.splitlines())


def _follow(hive: Hive, task: Task, *, as_json_lines: bool) -> None:
    """Print entries as they appear, until the task ends or the reader closes the output (BrokenPipeError)."""
    from hivemind.fs.watch import open_watcher
    from hivemind.taskrun.transcript import TranscriptReader
    from hivemind.tasks import TaskState

    layout, reader = hive.layout, TranscriptReader()
    folders = [layout.inbox, layout.active, layout.done, layout.failed]
    printed_entries = printed_lines = 0  # complete entries, and lines of the entry after them
    is_ended = is_last = False
    deadline = 0.0
    with OutputWaiter() as bell, open_watcher(hive.config.watch, folders, [], bell.wake) as watcher:
        while not is_last:
            with suppress(UserError):  # the task is being moved; the next change tells its new folder
                task = hive.tasks.get(task.id)
            if task.path.is_dir():
                watcher.add(task.path)
            transcript = reader.read(task.path)
            if not is_ended and (is_ended := task.state in (TaskState.DONE, TaskState.FAILED)):
                deadline = time.monotonic() + _FINAL_WAIT_S  # a live agent writes the last result after the move
            is_last = is_ended and (
                time.monotonic() >= deadline or not any(turn.is_open for turn in transcript.turns[-1:])
            )
            for entry in transcript.entries[printed_entries:]:
                is_growing = entry.is_open and not is_last and (entry.kind == "turn" or entry is transcript.entries[-1])
                lines = list(entry_lines(entry, task.id)) if entry.kind == "turn" or not is_growing else []
                if as_json_lines:
                    lines = [] if is_growing else [as_json(entry.as_record())]
                for line in lines[printed_lines:]:
                    print_line(line)
                printed_lines = len(lines) if is_growing else 0
                if is_growing:
                    break
                printed_entries += 1
            sys.stdout.flush()
            if not is_last:
                bell.wait(max(0.0, deadline - time.monotonic()) if is_ended else None)


@command("task timeline", open_read_only)
def timeline(hive: Hive, id_: str, *, format_: Literal["text", "svg"] = "text") -> CommandOutput | None:
    """Show what each agent did in a task and when, turn by turn.

    arguments:
      TASK  the task's id
      --format  text (default), or svg: a picture with a row for each agent

    examples:
      hivemind task timeline what-is-a-lease
      hivemind task timeline what-is-a-lease --format svg > lease.svg
    """
    from hivemind.taskrun.transcript import Transcript
    from hivemind.web.drawing.timeline import draw_timeline, spans_of

    spans = spans_of(Transcript(hive.tasks.listing.read_log(id_)))
    if not spans:
        raise UserError("no agent has worked on the task yet", location=id_)
    if format_ == "svg":
        print_line(draw_timeline(spans, is_standalone=True))
        return None
    lines = (
        f"{datetime.fromtimestamp(span.begin, UTC).astimezone():%H:%M:%S}  {span.end - span.begin:7.1f} s  "
        f"{one_line(span.agent)}  {one_line(' '.join(filter(None, (span.step, span.calls))))}"
        for span in spans
    )
    return CommandOutput([asdict(span) for span in spans], cut_lines(lines))
