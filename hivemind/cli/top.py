"""The hive in a terminal, redrawn as it changes: who needs you, what each agent does, how the tasks stand."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from hivemind.cli.command import Arg, command
from hivemind.cli.opening import layout_of
from hivemind.cli.output import headed, say, table
from hivemind.cli.screen import Screen, keyboard_alone
from hivemind.cli.streams import Bell
from hivemind.cli.text import age, fit, is_terminal, one_line, width
from hivemind.errors import HivemindError
from hivemind.frozen import frozen

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.layout import Layout
    from hivemind.web.index import Index
    from hivemind.web.snapshot import Snapshot


_ORDER = (
    "failed", "stuck", "set aside", "parked", "working", "active", "starting", "stopping", "waiting", "idle", "down", "done",
)  # fmt: skip
_LETTERS = 100
_ENDED = 50  # tasks that are over, the newest, are listed
_KEYS = """j, k, arrows  move, or scroll
Enter         open a task, an agent, a mailbox
q             back; from the list: end
s             sort by state, name, newest, tokens
/             show what has these words; Enter ends them, empty shows all
p             only what needs attention, and back
?             these keys"""
_BOLD, _TURNED, _PLAIN = "\x1b[1m", "\x1b[7m", "\x1b[0m"


@frozen
class Row:
    """A line of the list: what it is (`need`, `agent`, `task`), what Enter opens, its cells, whether it needs attention."""

    kind: str
    opens: tuple[str, str]
    cells: tuple[str, ...]
    needs: bool = False
    since: float = 0.0
    tokens: int = 0


_SORTS: dict[str, Callable[[Row], Any]] = {
    "state": lambda row: (_ORDER.index(row.cells[1]) if row.cells[1] in _ORDER else 99, -row.since),
    "name": lambda row: row.cells,
    "newest": lambda row: (-row.since, row.cells),
    "tokens": lambda row: (-row.tokens, row.cells),
}


@dataclass(slots=True)
class View:
    """What is shown of a snapshot: order, filter, where the cursor is, what is open."""

    sort: str = "state"
    words: str = ""
    only_needs: bool = False
    at: int = 0
    typing: bool = False
    helps: bool = False
    opened: tuple[str, str] | None = None
    detail: list[str] = field(default_factory=list)
    scroll: int = 0


@command("top", layout_of, own_form=True)
def top(
    layout: Layout,
    *,
    once: Annotated[bool, Arg(apart="how")] = False,
    plain: Annotated[bool, Arg(apart="how")] = False,
) -> None:
    """Watch the hive in this terminal: who needs you, what each agent does, how the tasks stand.

    Redrawn when something changes; with nothing to be seen it rests. ? shows the keys. Marks stand beside what needs
    attention: no colour is needed to see it.

    arguments:
      --once  print it once, for scripts
      --plain  print it again whenever it changes, for pipes (default where there is no terminal)

    examples:
      hivemind top
      hivemind top --once | head -3
    """
    from hivemind.hive import Hive
    from hivemind.web.index import Index
    from hivemind.web.snapshot import Watch

    with (
        closing(Index(layout.root)) as index,
        closing(Watch(layout.root, index)) as watch,
        Bell() as bell,
        nullcontext() if once else watch.onlooker(bell.ring),
    ):
        shown: list[str] = []
        while once or plain or not is_terminal() or not sys.stdin.isatty():
            lines = list(list_lines(watch.snapshot(), index, View(), None))
            if lines != shown:
                for line in [*([""] if shown else []), *lines]:
                    say(line)
                sys.stdout.flush()
                shown = lines
            if once:
                return
            bell.wait()
        hive, view = Hive.look(layout.root), View()
        signal.signal(signal.SIGWINCH, lambda *_: bell.ring())
        with keyboard_alone() as keyboard, Screen() as screen:
            while True:
                snapshot = watch.snapshot()
                if view.opened is not None:
                    view.detail = list(detail_lines(hive, snapshot, view.opened))
                rows = rows_of(snapshot, index, view)
                view.at = max(0, min(view.at, len(rows) - 1))
                screen.draw(partial(_drawn, snapshot, rows, view))
                for key in _pressed(keyboard, bell):
                    if not press(view, key, rows):
                        return


def press(view: View, key: str, rows: Sequence[Row]) -> bool:
    """What a key does; False if it ends the program."""
    step = {"j": 1, "\x1b[B": 1, "k": -1, "\x1b[A": -1}.get(key, 0)
    if view.typing:
        if key in ("\r", "\n", "\x1b"):
            view.typing = False
        elif key in ("\x7f", "\b"):
            view.words = view.words[:-1]
        elif len(key) == 1 and key.isprintable():
            view.words += key
    elif view.helps:
        view.helps = False
    elif view.opened is not None:
        view.scroll = max(0, min(view.scroll + step, len(view.detail) - 1))
        if key in ("q", "\x1b"):
            view.opened, view.scroll = None, 0
    elif step:
        view.at += step
    elif key in ("\r", "\n") and rows:
        view.opened = rows[view.at].opens
    elif key == "s":
        sorts = [*_SORTS]
        view.sort = sorts[(sorts.index(view.sort) + 1) % len(sorts)]
    elif key == "p":
        view.only_needs = not view.only_needs
    elif key == "/":
        view.typing, view.words = True, ""
    elif key == "?":
        view.helps = True
    elif key == "q":
        return False
    return key != "\x03"


def rows_of(snapshot: Snapshot, index: Index | None, view: View) -> list[Row]:
    """The list, filtered and sorted: who needs a person, then the agents, then (with an index) the tasks."""
    key = _SORTS[view.sort]
    found = [*_needs(snapshot), *sorted(_agents(snapshot), key=key)]
    if index is not None:
        found += sorted(_tasks(snapshot, index), key=key)
    words = view.words.casefold().split()
    return [
        row
        for row in found
        if (row.needs or not view.only_needs) and all(word in " ".join(row.cells).casefold() for word in words)
    ]


def _needs(snapshot: Snapshot) -> Iterator[Row]:
    for need in snapshot.needs:
        opens = {"agent": ("agent", need.about), "letter": ("box", "human"), "disk": ("box", "human")}
        told = need.letter.body if need.letter is not None else need.what
        when = age(need.since) if need.since is not None else ""
        cells = (need.about if need.kind != "letter" else "a letter", need.kind, when, one_line(told))
        yield Row("need", opens.get(need.kind, ("task", need.about)), cells, True)


def _agents(snapshot: Snapshot) -> Iterator[Row]:
    for one in snapshot.agents:
        about = " ".join(
            filter(None, (one.task, f"step {one.step}" if one.step else None, one.last_action, one.problem))
        )
        mail = f"{one.unread} unread" if one.unread else ""
        yield Row(
            "agent",
            ("agent", one.name),
            (one.name, one.state, mail, one_line(about)),
            bool(one.problem),
            0.0,
            one.tokens,
        )


def _tasks(snapshot: Snapshot, index: Index) -> Iterator[Row]:
    from hivemind.web.pages.now import open_rows

    waiting = {need.about for need in snapshot.needs}
    ended, _ = index.ended(("done", "failed"), "", "newest", _ENDED, 0)
    for one in (*open_rows(snapshot.open_tasks, index), *ended):
        cells = (one.id, one.state, age(datetime.fromtimestamp(one.since, UTC)), one_line(one.note or one.title))
        yield Row("task", ("task", one.id), cells, one.id in waiting, one.since, one.tokens)


def list_lines(snapshot: Snapshot, index: Index | None, view: View, columns: int | None) -> Iterator[str]:
    """The list as plain lines, each at most `columns` wide."""
    yield fit(_head(snapshot), columns or 10_000)
    rows = rows_of(snapshot, index, view)
    yield from _table(rows, columns)


def up_lines(snapshot: Snapshot, columns: int, height: int) -> list[str]:
    """The screen of `hivemind up`: the list without tasks, as much of it as there is room for."""
    lines = list(list_lines(snapshot, None, View(), columns))
    if len(lines) >= height > 2:
        lines[height - 2 :] = [f"… and {len(lines) - height + 2} more: hivemind top"]
    return [fit(line, columns) for line in [*lines, "Ctrl-C ends the swarm in order."]][:height]


def _head(snapshot: Snapshot) -> str:
    now, counts = snapshot.overview, snapshot.overview.tasks
    up = sum(agent.pid is not None for agent in now.agents)
    needs = f"{len(snapshot.needs)} need you" if snapshot.needs else "nothing needs you"
    return (
        f"{now.hive.name}: {needs}; {up} of {len(now.agents)} agents up; {counts['inbox']} waiting, {counts['active']} active, "
        f"{counts['done']} done, {counts['failed']} failed; {now.human_unread} letters for you"
    )


def _table(rows: Sequence[Row], columns: int | None) -> list[str]:
    """A line for each row, marked where it needs attention."""
    if not rows:
        return ["  nothing of that kind"]
    cells = [
        (
            f"{'!' if row.needs else ' '} {row.kind}",
            *row.cells[:3],
            f"{row.tokens:,}" if row.tokens else "",
            row.cells[3],
        )
        for row in rows
    ]
    return table([("  WHAT", "NAME", "STATE", "", "TOKENS", "ABOUT"), *cells], columns)


def _drawn(snapshot: Snapshot, rows: Sequence[Row], view: View, columns: int, height: int) -> list[str]:
    """The whole screen: the head, as many rows as there is room for around the cursor, what the keys do."""
    room = max(1, height - 4)
    head = _BOLD + fit(_head(snapshot), columns) + _PLAIN
    if view.helps:
        return [
            head,
            "",
            *(fit(line, columns) for line in _KEYS.splitlines()[: room + 1]),
            fit("any key: back", columns),
        ]
    if view.opened is not None:
        kind, name = view.opened
        shown = [fit(line, columns) for line in view.detail[view.scroll : view.scroll + room]]
        return [head, "", *shown, fit(f"{kind} {name}   j k: scroll   q: back", columns)]
    lines = _table(rows, columns)
    first = max(0, min(view.at - room // 2, len(rows) - room))
    shown = []
    for at, line in enumerate(lines[1 : len(rows) + 1] if rows else lines):
        if first <= at < first + room:
            marked = at == view.at and rows
            shown.append(f"{_TURNED}{line}{' ' * (columns - width(line))}{_PLAIN}" if marked else line)
    what = f"/{view.words}{'_' if view.typing else ''}" if view.words or view.typing else "/: filter"
    only = "p: all" if view.only_needs else "p: attention"
    place = f"{view.at + 1} of {len(rows)}" if rows else "0"
    hint = f"{place}  q: end  ?: keys  Enter: open  s: by {view.sort}  {only}  {what}"
    return [head, "", _BOLD + lines[0] + _PLAIN if rows else "", *shown, fit(hint, columns)]


def detail_lines(hive: Hive, snapshot: Snapshot, opened: tuple[str, str]) -> Iterator[str]:
    """A task, an agent or a mailbox, as the commands show them."""
    from hivemind.cli.mail import messages
    from hivemind.cli.task import show
    from hivemind.cli.transcript import transcript

    kind, name = opened
    asked: list[Callable[..., Any]] = [partial(messages.function, hive, name, limit=_LETTERS)]
    if kind == "task":
        asked = [partial(show.function, hive, [name]), partial(transcript.function, hive, name, json=False)]
    elif kind == "agent":
        agent = next(one for one in snapshot.agents if one.name == name)
        yield from (headed(key, value) for key, value in asdict(agent).items() if value not in (None, 0))
        yield ""
    try:
        for one in asked:
            yield from (one_line(line) for text in one().lines for line in text.splitlines() or [""])
            yield ""
    except (HivemindError, OSError) as error:
        yield one_line(str(error))


def _pressed(keyboard: int, bell: Bell) -> list[str]:
    """The keys that were pressed; none if the hive or the window's size changed instead."""
    poll = select.poll()
    poll.register(keyboard, select.POLLIN)
    poll.register(bell.fileno(), select.POLLIN)
    ready = [file for file, _ in poll.poll()]
    if bell.fileno() in ready:
        bell.wait(0)
    if keyboard not in ready:
        return []
    text = os.read(keyboard, 256).decode("utf-8", "ignore")
    if not text:  # the terminal is gone
        return ["\x03"]
    found: list[str] = []
    while text:
        size_of = 3 if text.startswith(("\x1b[", "\x1bO")) else 1
        found.append(text[:size_of].replace("\x1bO", "\x1b["))
        text = text[size_of:]
    return found
