"""Read what was said, done and answered in a task, turn by turn, and who did what when."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from hivemind.cli.command import Answer, Arg, Positive, command
from hivemind.cli.log import time_of
from hivemind.cli.opening import look_at
from hivemind.cli.output import as_json, cut, put_out, say
from hivemind.cli.streams import Bell
from hivemind.cli.text import one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.taskrun.transcript import Entry
    from hivemind.tasks import Task

_SHOWN_CHARS = 1_000
_LAST_S = 2.0  # how long the last results of a task that is over may take to be written


@command("task transcript", look_at)
def transcript(
    hive: Hive,
    id_: str,
    *,
    turn: Annotated[int | None, Arg(least=1, apart="which")] = None,
    follow: Annotated[bool, Arg(apart="which")] = False,
    attempt: Positive | None = None,
    json: bool,
) -> Answer | None:
    """Show what was said, done and answered in a task, turn by turn.

    For each turn: its tokens and the share of them that came from the provider's cache, its price and its duration.
    Also how the conversation begins, why it was begun again, news, and requests that failed.
    --json prints one object; with --follow, one entry per line.

    arguments:
      TASK  the task's id
      --turn N  only this turn, and all of it
      --follow  keep printing until the task ends
      --attempt N  of an attempt before a retry

    examples:
      hivemind task transcript what-is-a-lease
      hivemind task transcript what-is-a-lease --turn 3
    """
    from hivemind.taskrun.transcript import Transcript

    task = hive.tasks.get(id_)
    if follow and attempt is None:
        _follow(hive, task, as_json_lines=json)
        return None
    found = Transcript(hive.tasks.read_log(task.id, attempt))
    named = task.id if attempt is None else f"{task.id} --attempt {attempt}"
    entries = [one for one in found.entries if turn in (None, one.turn)]
    if not entries:
        what = "nothing was said in it" if turn is None else f"it has {len(found.turns)} turns"
        raise UserError(what, where=named, mend="--attempt N shows an earlier attempt")
    head = one_line(f"{task.id}: {task.title}, {task.state.value}, {found.in_words}")
    lines = (line for one in entries for line in entry_lines(one, None if turn else named))
    record = {
        "task": task.id,
        "title": task.title,
        "state": task.state.value,
        "totals": asdict(found.account.spent()),
        "entries": [one.as_record() for one in entries],
    }
    return Answer(record, [head, *lines])


def entry_lines(entry: Entry, named: str | None) -> Iterator[str]:
    """An entry, its long texts cut where the task is `named` whose transcript shows all of them."""
    from hivemind.tools.excerpt import shortened

    yield ""
    yield one_line(f"{time_of(entry.record)}{entry.heading}")
    for name, text in entry.parts:
        call = f"hivemind task transcript {named} --turn {entry.turn}"
        shown = shortened(text, _SHOWN_CHARS, call) if named is not None else text
        if name and "\n" not in shown:
            yield f"  {one_line(name)}: {shown}"
            continue
        if name:
            yield f"  {one_line(name)}:"
        yield from (f"{'    ' if name else '  '}{line}" for line in shown.splitlines())


def _follow(hive: Hive, task: Task, *, as_json_lines: bool) -> None:
    """Print what comes as it comes, until the task is over, or the reader has gone (BrokenPipeError)."""
    from hivemind.fs.watch import open_watcher
    from hivemind.taskrun.transcript import TranscriptReader
    from hivemind.tasks import TaskState

    layout, reader = hive.layout, TranscriptReader()
    places = [layout.inbox, layout.active, layout.done, layout.failed]
    entries = lines = 0  # that were printed, and of the entry after them
    ended = last = False
    until = 0.0
    with Bell() as bell, open_watcher(hive.config.watch, places, [], bell.ring) as watcher:
        while not last:
            with suppress(UserError):  # on its way to another folder: the next ring says where it is
                task = hive.tasks.get(task.id)
            if task.path.is_dir():
                watcher.add(task.path)
            transcript = reader.read(task.path)
            if not ended and (ended := task.state in (TaskState.DONE, TaskState.FAILED)):
                until = time.monotonic() + _LAST_S  # the last result is written after the move, if its agent lives
            last = ended and (time.monotonic() >= until or not any(one.is_open for one in transcript.turns[-1:]))
            for one in transcript.entries[entries:]:
                grows = one.is_open and not last and (one.kind == "turn" or one is transcript.entries[-1])
                told = list(entry_lines(one, task.id)) if one.kind == "turn" or not grows else []
                if as_json_lines:
                    told = [] if grows else [as_json(one.as_record())]
                for line in told[lines:]:
                    say(line)
                lines = len(told) if grows else 0
                if grows:
                    break
                entries += 1
            sys.stdout.flush()
            if not last:
                bell.wait(max(0.0, until - time.monotonic()) if ended else None)


@command("task timeline", look_at)
def timeline(
    hive: Hive, id_: str, *, format_: Literal["text", "svg"] = "text", output: str | None = None
) -> Answer | None:
    """Show who did what when in a task, turn by turn.

    arguments:
      TASK  the task's id
      --format  text (default), or svg: a picture with a lane for each agent
      --output FILE  write the picture there, whatever was there before

    examples:
      hivemind task timeline what-is-a-lease
      hivemind task timeline what-is-a-lease --format svg --output lease.svg
    """
    from hivemind.taskrun.transcript import Transcript
    from hivemind.web.drawing.timeline import draw_timeline, spans_of

    spans = spans_of(Transcript(hive.tasks.read_log(id_)))
    if not spans:
        raise UserError("nobody has done anything in it yet", where=id_)
    if format_ == "svg":
        put_out(draw_timeline(spans, alone=True), output)
        return None
    lines = (
        f"{datetime.fromtimestamp(one.begin, UTC).astimezone():%H:%M:%S}  {one.end - one.begin:7.1f} s  "
        f"{one_line(one.who)}  {one_line(' '.join(filter(None, (one.step, one.what))))}"
        for one in spans
    )
    return Answer([asdict(one) for one in spans], cut(lines))
