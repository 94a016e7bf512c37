"""Show the hive in a terminal, redrawn on changes: what needs attention, what the agents do, the state of the tasks."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from hivemind.cli.command import command
from hivemind.cli.open_hive import find_layout
from hivemind.cli.output import headed_text, print_line, table
from hivemind.cli.screen import Screen, raw_keyboard
from hivemind.cli.streams import OutputWaiter
from hivemind.cli.text import age, fit, is_terminal, one_line, width
from hivemind.errors import HivemindError
from hivemind.frozen import frozen
from hivemind.outcome import ENDED

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.layout import Layout
    from hivemind.web.index import PageIndex
    from hivemind.web.snapshot import Snapshot


_STATE_ORDER = "failed stuck set aside parked working active lands starting stopping waiting idle down done"
_MAX_LETTERS = 100
_MAX_ENDED_TASKS = 50  # only the newest finished tasks are listed
_KEYS = """j, k, arrows  move, or scroll
Enter         open a task, an agent, a mailbox
q             back; from the list: end
s             sort by state, name, newest, tokens
/             filter by words; Enter ends typing, no words show all
p             show only rows that need attention, or all
?             these keys"""
_HEADINGS = ("  WHAT", "NAME", "STATE", "", "TOKENS", "ABOUT")
_BOLD, _REVERSED, _PLAIN = "\x1b[1m", "\x1b[7m", "\x1b[0m"


@frozen
class ScreenRow:
    """A row of the screen's list of needs, agents and tasks. Rows that need attention begin with `!`.

    `target` is the kind and the name of the page that Enter opens, `cells` are the texts below `_HEADINGS`.
    """

    target: tuple[str, str]
    cells: tuple[str, ...]
    since: float = 0.0
    tokens: int = 0


_SORTS: dict[str, Callable[[ScreenRow], Any]] = {
    "state": lambda row: (_STATE_ORDER.find(row.cells[2]) % 1_000, -row.since),  # other states are last
    "name": lambda row: row.cells[1:],
    "newest": lambda row: (-row.since, row.cells[1:]),
    "tokens": lambda row: (-row.tokens, row.cells[1:]),
}


@dataclass(slots=True)
class ScreenState:
    """The state of the screen: sort order, filter, cursor, and the opened page with its scroll position."""

    sort: str = "state"
    filter_text: str = ""
    only_attention: bool = False
    cursor: int = 0
    is_typing: bool = False
    open_target: tuple[str, str] | None = None
    detail: list[str] = field(default_factory=list)
    scroll: int = 0


@command("top", find_layout, fixed_format=True)
def top(layout: Layout, *, once: bool = False, plain: bool = False) -> None:
    """Watch the hive in this terminal: what needs attention, what the agents do, the state of the tasks.

    Redraws only on changes. ? shows the keys. An exclamation mark marks rows that need attention; colours carry no
    meaning.

    arguments:
      --once  print the list once, for scripts, also with --plain
      --plain  print the list again on each change, for pipes (default without a terminal)

    examples:
      hivemind top
      hivemind top --once | head -3
    """
    from hivemind.hive import Hive
    from hivemind.web.index import PageIndex
    from hivemind.web.subscriptions import SnapshotWatch

    with (
        closing(PageIndex(layout.root)) as index,
        closing(SnapshotWatch(layout.root, index)) as watch,
        OutputWaiter() as bell,
        nullcontext() if once else watch.subscribe(bell.wake),
    ):
        last_lines: list[str] = []
        while once or plain or not is_terminal() or not sys.stdin.isatty():
            lines = list_lines(watch.snapshot(), index, ScreenState(), None)
            if lines != last_lines:
                print_line("\n".join([*([""] if last_lines else []), *lines]))
                sys.stdout.flush()
                last_lines = lines
            if once:
                return
            bell.wait()
        hive, view = Hive.look(layout.root), ScreenState()
        signal.signal(signal.SIGWINCH, lambda *_: bell.wake())
        with raw_keyboard() as keyboard, Screen() as screen:
            while True:
                snapshot = watch.snapshot()
                if view.open_target is not None:
                    view.detail = list(detail_lines(hive, snapshot, view.open_target))
                rows = list_rows(snapshot, index, view)
                view.cursor = max(0, min(view.cursor, len(rows) - 1))
                screen.draw(partial(_screen_lines, snapshot, rows, view))
                for key in _read_keys(keyboard, bell):
                    if not handle_key(view, key, rows):
                        return


def handle_key(view: ScreenState, key: str, rows: Sequence[ScreenRow]) -> bool:
    """Apply a typed key to the screen's state `view`. `rows` are the rows on the screen. Return False if the key ends
    the program."""
    step = {"j": 1, "\x1b[B": 1, "k": -1, "\x1b[A": -1}.get(key, 0)
    if view.is_typing:
        view.is_typing = key not in ("\r", "\n", "\x1b")
        if key in ("\x7f", "\b"):
            view.filter_text = view.filter_text[:-1]
        elif len(key) == 1 and key.isprintable():
            view.filter_text += key
    elif view.open_target is not None:
        view.scroll = max(0, min(view.scroll + step, len(view.detail) - 1))
        if key in ("q", "\x1b"):
            view.open_target, view.scroll = None, 0
    elif step:
        view.cursor += step
    elif key in ("\r", "\n") and rows:
        view.open_target = rows[view.cursor].target
    elif key == "s":
        sorts = [*_SORTS]
        view.sort = sorts[(sorts.index(view.sort) + 1) % len(sorts)]
    elif key == "p":
        view.only_attention = not view.only_attention
    elif key == "/":
        view.is_typing, view.filter_text = True, ""
    elif key == "?":
        view.open_target = "keys", ""
    elif key == "q":
        return False
    return key != "\x03"


def list_rows(snapshot: Snapshot, index: PageIndex | None, view: ScreenState) -> list[ScreenRow]:
    """Return the filtered and sorted rows: first what needs a person, then agents, then (unless `index` is None) tasks."""
    key = _SORTS[view.sort]
    rows = [*_need_rows(snapshot), *sorted(_agent_rows(snapshot), key=key)]
    if index is not None:
        rows += sorted(_task_rows(snapshot, index), key=key)
    words = view.filter_text.casefold().split()
    return [
        row
        for row in rows
        if (row.cells[0][0] == "!" or not view.only_attention)
        and all(word in " ".join(row.cells).casefold() for word in words)
    ]


def _need_rows(snapshot: Snapshot) -> Iterator[ScreenRow]:
    targets = {"agent": "agent", "letter": "box", "disk": "box"}
    for need in snapshot.needs:
        kind = targets.get(need.kind, "task")
        text = need.letter.body if need.letter is not None else need.message
        name = need.about if need.kind != "letter" else "a letter"
        since = age(need.since) if need.since is not None else ""
        target = (kind, "human" if kind == "box" else need.about)
        yield ScreenRow(target, ("! need", name, need.kind, since, "", one_line(text)))


def _agent_rows(snapshot: Snapshot) -> Iterator[ScreenRow]:
    for agent in snapshot.agents:
        step, unread = f"step {agent.step}" if agent.step else None, f"{agent.unread} unread" if agent.unread else ""
        activity = one_line(" ".join(filter(None, (agent.task, step, agent.last_action, agent.problem))))
        mark, tokens = "! agent" if agent.problem else "  agent", f"{agent.tokens:,}" if agent.tokens else ""
        cells = (mark, agent.name, agent.state, unread, tokens, activity)
        yield ScreenRow(("agent", agent.name), cells, tokens=agent.tokens)


def _task_rows(snapshot: Snapshot, index: PageIndex) -> Iterator[ScreenRow]:
    from hivemind.web.pages.now import open_rows

    need_ids = {need.about for need in snapshot.needs}
    ended_tasks, _ = index.ended_tasks(ENDED, "", "newest", _MAX_ENDED_TASKS, 0)
    for task in (*open_rows(snapshot.open_tasks, index), *ended_tasks):
        mark, tokens = "! task" if task.id in need_ids else "  task", f"{task.tokens:,}" if task.tokens else ""
        since, text = age(datetime.fromtimestamp(task.since, UTC)), one_line(task.note or task.title)
        yield ScreenRow(("task", task.id), (mark, task.id, task.state, since, tokens, text), task.since, task.tokens)


def list_lines(snapshot: Snapshot, index: PageIndex | None, view: ScreenState, columns: int | None) -> list[str]:
    """Return the rows of `list_rows` as plain lines. The table is at most `columns` wide (None: unlimited)."""
    return [_head(snapshot), *_row_lines(list_rows(snapshot, index, view), columns)]


def up_lines(snapshot: Snapshot, columns: int, height: int) -> list[str]:
    """Return the screen of `hivemind up`: what needs a person, and the agents, cut to the size."""
    lines = list_lines(snapshot, None, ScreenState(), columns)
    if len(lines) >= height > 2:
        lines[height - 2 :] = [f"… and {len(lines) - height + 2} more: hivemind top"]
    return [fit(line, columns) for line in [*lines, "Ctrl-C ends the swarm in order."]][:height]


def _head(snapshot: Snapshot) -> str:
    overview, counts = snapshot.overview, snapshot.overview.tasks
    up_count = sum(agent.pid is not None for agent in overview.agents)
    need_text = f"{len(snapshot.needs)} need you" if snapshot.needs else "nothing needs you"
    return (
        f"{overview.hive.name}: {need_text}; {up_count} of {len(overview.agents)} agents up; "
        f"{counts['inbox']} waiting, {counts['active']} active, {counts['done']} done, {counts['failed']} failed; "
        f"{overview.human_unread} letters for you"
    )


def _row_lines(rows: Sequence[ScreenRow], columns: int | None) -> list[str]:
    """Return the headings and a line per row."""
    no_rows = ("  no such rows", *[""] * 5)
    return table([_HEADINGS, *([row.cells for row in rows] or [no_rows])], columns)


def _screen_lines(
    snapshot: Snapshot, rows: Sequence[ScreenRow], view: ScreenState, columns: int, height: int
) -> Iterator[str]:
    """Yield the whole screen: the head, then the opened page or the rows around the cursor, then a line that names the keys."""
    body_height = max(1, height - 4)
    if view.open_target is not None:
        heading, body, cursor = "", view.detail[view.scroll : view.scroll + body_height], -1
        hint = f"{' '.join(view.open_target)}   j k: scroll   q: back"
    else:
        first_row = max(0, min(view.cursor - body_height // 2, len(rows) - body_height))
        heading, *body = _row_lines(rows, columns)
        body, cursor = body[first_row : first_row + body_height], view.cursor - first_row
        hint = (
            f"{view.cursor + bool(rows)} of {len(rows)}  q: end  ?: keys  Enter: open  s: by {view.sort}"
            f"  p: {'all' if view.only_attention else 'attention'}"
            f"  {f'/{view.filter_text}' if view.filter_text or view.is_typing else '/: filter'}{'_' * view.is_typing}"
        )
    yield f"{_BOLD}{fit(_head(snapshot), columns)}"
    yield f"{heading}{_PLAIN}"
    for position, line in enumerate(fit(line, columns) for line in body):
        yield f"{_REVERSED}{line}{' ' * (columns - width(line))}{_PLAIN}" if position == cursor else line
    yield fit(hint, columns)


def detail_lines(hive: Hive, snapshot: Snapshot, open_target: tuple[str, str]) -> Iterator[str]:
    """Yield the lines of the opened task, agent or mailbox, in the format of its command."""
    from hivemind.cli.mail import messages
    from hivemind.cli.task import show
    from hivemind.cli.transcript import transcript

    kind, name = open_target
    if kind == "keys":
        yield from _KEYS.splitlines()
        return
    sections: list[Callable[..., Any]] = [partial(messages.function, hive, name, limit=_MAX_LETTERS)]
    if kind == "task":
        sections = [partial(show.function, hive, [name]), partial(transcript.function, hive, name, json=False)]
    elif kind == "agent":
        agent = next(candidate for candidate in snapshot.agents if candidate.name == name)
        yield from headed_text(asdict(agent).items(), "")
    try:
        for section in sections:
            yield from (one_line(line) for text in section().lines for line in text.splitlines() or [""])
            yield ""
    except (HivemindError, OSError) as error:
        yield one_line(str(error))


def _read_keys(keyboard: int, bell: OutputWaiter) -> list[str]:
    """Wait for keys and return them. Return [] if the hive or the window's size changes first."""
    text = os.read(keyboard, 256).decode("utf-8", "ignore") if bell.wait(file=keyboard) else ""
    return [key.replace("\x1bO", "\x1b[") for key in re.findall(r"\x1b[\[O].?|.", text, re.DOTALL)]
