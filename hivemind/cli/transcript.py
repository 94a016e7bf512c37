"""hivemind task transcript: what was said, done and answered in a task, turn by turn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind.cli.hive_of import look_at
from hivemind.cli.output import as_json, print_json, say
from hivemind.cli.parser import Commands, Parser, add_command, add_json, number
from hivemind.cli.reader import Bell
from hivemind.cli.story import time_of
from hivemind.cli.text import one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.taskrun.transcript import Entry
    from hivemind.tasks import Task

__all__ = ["add_transcript"]

_SHOWN_CHARS = 1_000
_LAST_S = 2.0  # how long the last results of a task that is over may take to be written


def add_transcript(task: Commands, common: Parser) -> None:
    parser = add_command(
        task, common, "transcript", run, "show what was said, done and answered in a task, turn by turn",
        about="Each turn with its tokens, the share of them that the provider's cache had, its price and its time; what the\n"
        "conversation begins with, and why it begins anew; news; requests that got no answer.\n"
        "--json gives one object; with --follow one entry a line.",
        examples="  hivemind task transcript what-is-a-lease\n  hivemind task transcript what-is-a-lease --turn 3\n"
        "  hivemind task transcript what-is-a-lease --html lease.html",
    )  # fmt: skip
    parser.add_argument("id", metavar="ID", help="the task's id")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--turn", type=number("of a turn", 1), metavar="N", help="only this turn, and all of it")
    which.add_argument("--follow", action="store_true", help="go on until the task ends")
    which.add_argument("--html", metavar="FILE", help="write it as one page for a browser")
    parser.add_argument("--attempt", type=number("of an attempt", 1), metavar="N", help="of an attempt before a retry")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from hivemind.fs import write
    from hivemind.taskrun.transcript import Transcript
    from hivemind.taskrun.transcript_page import transcript_page

    hive = look_at(arguments)
    task = hive.tasks.get(arguments.id)
    if arguments.follow and arguments.attempt is None:
        return _follow(hive, task, as_json_lines=arguments.json)
    transcript = Transcript()
    with suppress(NotADirectoryError):  # a file that waits in the inbox
        transcript = Transcript(hive.tasks.read_log(task.id, arguments.attempt))
    named = task.id if arguments.attempt is None else f"{task.id} --attempt {arguments.attempt}"
    entries = [one for one in transcript.entries if arguments.turn in (None, one.turn)]
    if not entries:
        what = "nothing was said in it" if arguments.turn is None else f"it has {len(transcript.turns)} turns"
        raise UserError(what, where=named, mend="--attempt N shows an earlier attempt")
    if arguments.html is not None:
        page = transcript_page(task.id, task.title, task.state.value, transcript)
        write(Path(arguments.html), page)
        say(arguments.html)
    elif arguments.json:
        told = {"task": task.id, "title": task.title, "state": task.state.value}
        print_json(
            {**told, "totals": asdict(transcript.account.spent()), "entries": [one.as_record() for one in entries]}
        )
    else:
        say(one_line(f"{task.id}: {task.title}, {task.state.value}, {transcript.in_words}"))
        for one in entries:
            for line in _lines(one, None if arguments.turn else named):
                say(line)
    return 0


def _lines(entry: Entry, named: str | None) -> Iterator[str]:
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


def _follow(hive: Hive, task: Task, *, as_json_lines: bool) -> int:
    """Print what comes as it comes, until the task is over, or the reader has gone (BrokenPipeError)."""
    from hivemind.fs.watch import open_watcher
    from hivemind.taskrun.transcript import Transcript
    from hivemind.tasks import TaskState
    from hivemind.tasks.log import open_log

    layout, transcript, log = hive.layout, Transcript(), open_log(task.path, durable=False)
    places = [layout.inbox, layout.active, layout.done, layout.failed]
    entries = lines = 0  # that were printed, and of the entry after them
    ended = last = False
    with Bell() as bell, open_watcher(hive.config.watch, places, [], bell.ring) as watcher:
        while not last:
            was_over = ended
            with suppress(UserError):  # on its way to another folder: the next ring says where it is
                task = hive.tasks.get(task.id)
            if task.path.is_dir():
                watcher.add(task.path)
            log.path = open_log(task.path, durable=False).path
            epoch, records = log.epoch, []
            with suppress(NotADirectoryError):
                records = log.read()
            transcript = (
                transcript if log.epoch == epoch else Transcript()
            )  # it was moved: read anew from its beginning
            for record in records:
                transcript.take(record)
            ended = task.state in (TaskState.DONE, TaskState.FAILED)
            last = ended and (was_over or not any(one.is_open for one in transcript.turns[-1:]))
            for one in transcript.entries[entries:]:
                grows = one.is_open and not last and (one.kind == "turn" or one is transcript.entries[-1])
                told = list(_lines(one, task.id)) if one.kind == "turn" or not grows else []
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
                bell.wait(_LAST_S if ended else None)
    return 0
