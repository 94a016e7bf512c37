"""Who did what when in a task."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from hivemind.cli.command import Answer, command
from hivemind.cli.opening import look_at
from hivemind.cli.output import cut, put_out
from hivemind.cli.text import one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.hive import Hive


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
