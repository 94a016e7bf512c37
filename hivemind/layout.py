"""Where everything lies in a hive. The only module that knows the names of its folders (spec 1, *Layout*)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.names import check_name
from hivemind.outcome import ENDED

CONFIG_NAME = "hive.yaml"
HUMAN = "human"
EXCHANGE = "exchange"
POSTMASTER = "postmaster"
"""The process that carries tasks and mail to linked hives, and its mailbox: what is to be sent."""
ANY = "any"
"""What `where:` of a task says if any linked hive may take it; no hive has that name."""
MONTH = re.compile(r"\d{4}-\d{2}")
"""What an archive's folder of a month is called."""


class _Place:
    """A path below the root of a layout."""

    def __init__(self, below: str) -> None:
        self._below = below
        self._last: tuple[Path | None, Path] = None, Path()

    def __get__(self, layout: Layout, _: type[Layout]) -> Path:
        root, path = self._last  # a process has one hive, mostly; joined anew, these were a tenth of a claim
        if root is not layout.root:
            root, path = self._last = layout.root, layout.root / self._below
        return path


@frozen
class Layout:
    """The paths of one hive, all below `root` (absolute, symbolic links resolved). Touches no disk.

    If `read_only`, opening and reading the hive's parts makes, locks and writes nothing.
    """

    root: Path
    read_only: bool = False

    @classmethod
    def at(cls, root: str | os.PathLike[str], *, read_only: bool = False) -> Layout:
        return cls(Path(os.path.realpath(root)), read_only)

    # what people see and change
    config = _Place(CONFIG_NAME)
    agents = _Place("agents")
    rom = _Place("rom")
    mailboxes = _Place("mailboxes")
    knowledge = _Place("knowledge")
    tasks = _Place("tasks")
    inbox = _Place("tasks/inbox")
    active = _Place("tasks/active")
    done = _Place("tasks/done")
    failed = _Place("tasks/failed")
    archive = _Place("tasks/archive")  # what ended long ago, by month: `2026-11/done/ID`, `2026-11/failed/ID`
    schedule = _Place("tasks/schedule")  # tasks that come again, a file each
    claimed = _Place("tasks/active/.claimed")  # on their way from the inbox to `active`, a folder for each agent
    worktrees = _Place("worktrees")  # a folder for each task; made when the first one is

    # what the program alone owns
    state = _Place(".hive")
    journal = _Place(".hive/journal")
    locks = _Place(".hive/locks")
    stopped = _Place(".hive/stopped")  # agents that a person has stopped: an empty file each, until `agent start`
    doorbells = _Place(".hive/doorbells")
    logs = _Place(".hive/logs")
    reading = _Place(".hive/reading")  # marks of what each process is reading: who died over an input is found there
    aside = _Place(".hive/aside")  # what was damaged, or in the way, in a folder for each day
    backups = _Place(".hive/backups")  # the last two of each database that holds what is nowhere else
    mail_key = _Place(".hive/mail.key")  # the runtime seals its messages with it
    task_queue = _Place(".hive/tasks.queue")  # the order in which waiting tasks are claimed: a cache
    schedule_record = _Place(".hive/schedule.json")  # up to which time the tasks of `schedule` were dropped
    due_record = _Place(".hive/due.json")  # when `hivemind due` has something to do again
    outbox = _Place(".hive/outbox")  # what a person is still to be told of tasks, a file each
    workspace_record = _Place(".hive/workspace.json")  # which workspace of which project this state belongs to
    budget_record = _Place(".hive/budget.json")  # what all agents together have used up on a day
    memory_db = _Place(".hive/memory.db")
    documents_db = _Place(".hive/documents.db")
    graphs_db = _Place(".hive/graphs.db")  # the index of the graphs of all tasks: a cache
    link = _Place(".hive/link")  # with which hives this one is linked, and what it has in hand of theirs
    web_db = _Place(".hive/web.db")  # what the page shows of tasks that are over, and what they cost: a cache

    def mailbox(self, agent: str) -> Path:
        return self.mailboxes / check_name(agent, "agent name")

    def agent_config(self, agent: str) -> Path:
        return self.agents / f"{check_name(agent, 'agent name')}.yaml"

    def agent_state(self, agent: str) -> Path:
        """The folder that an agent's own process keeps its state in."""
        return self.state / "agents" / check_name(agent, "agent name")

    def sends(self, sender: str) -> Path:
        """What became of the sends of one sender that were given a Message-ID, or failed for someone."""
        return self.state / "sends" / check_name(sender, "sender")

    def folders(self) -> tuple[Path, ...]:
        """Every folder that a hive has, parents first."""
        return (
            self.agents, self.rom, self.mailboxes, self.knowledge,
            self.tasks, self.inbox, self.active, self.done, self.failed,
            self.state, self.journal, self.locks, self.doorbells, self.logs, self.state / "agents",
        )  # fmt: skip

    def owns(self, path: Path) -> bool:
        """Whether it lies in one of the hive's folders."""
        return not {*self.folders(), self.worktrees}.isdisjoint((path, *path.parents))

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path` as it is named within the hive, with `/`; a path outside is given as it stands."""
        text = os.fspath(path)
        root = os.fspath(self.root)
        if text == root:
            return "."
        return text[len(root) + 1 :].replace(os.sep, "/") if text.startswith(root + os.sep) else text


def month_of(seconds: float) -> str:
    """The month (of UTC) in whose archive something of that time (seconds since 1970) is kept: `2026-11`."""
    return f"{datetime.fromtimestamp(min(max(0.0, seconds), 2.0**37), UTC):%Y-%m}"


def archived_places(layout: Layout) -> list[Path]:
    """The folders `done` and `failed` of each month of the archive of tasks, the newest month first."""
    try:
        months = [name for name in os.listdir(layout.archive) if MONTH.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [layout.archive / month / state for month in sorted(months, reverse=True) for state in ENDED]


def find_hive(
    explicit: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    start: str | os.PathLike[str] = ".",
) -> Layout:
    """The hive to work in, found as git finds a repository.

    `explicit` (`--hive`), else `$HIVEMIND_HIVE`, else the nearest ancestor of `start` with a hive.yaml that does not lie in a
    folder of another hive's, where agents write. Raises UserError if there is none.
    """
    named = explicit or (os.environ if environ is None else environ).get("HIVEMIND_HIVE")
    if named:
        layout = Layout.at(named)
        if not layout.config.is_file():
            raise UserError(
                f"no {CONFIG_NAME} there", location=layout.root, remedy=f"make one with: hivemind init {named}"
            )
        return layout
    here = Path(os.path.realpath(start))
    found: Layout | None = None
    for folder in (here, *here.parents):
        if (folder / CONFIG_NAME).is_file() and (found is None or Layout(folder).owns(found.root)):
            found = Layout(folder)
    if found is None:
        raise UserError(
            f"no {CONFIG_NAME} here or in any folder above", location=here, remedy="make a hive with: hivemind init"
        )
    return found
