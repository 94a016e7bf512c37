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

CONFIG_NAME = "hive.yaml"
HUMAN = "human"
EXCHANGE = "exchange"
POSTMASTER = "postmaster"
"""The process that carries tasks and mail to linked hives, and its mailbox: what is to be sent."""
ANY = "any"
"""What `where:` of a task says if any linked hive may take it; no hive has that name."""
MONTH = re.compile(r"\d{4}-\d{2}")
"""What an archive's folder of a month is called."""


class _Path:
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
    config = _Path(CONFIG_NAME)
    agents = _Path("agents")
    rom = _Path("rom")
    mailboxes = _Path("mailboxes")
    knowledge = _Path("knowledge")
    tasks = _Path("tasks")
    inbox = _Path("tasks/inbox")
    active = _Path("tasks/active")
    done = _Path("tasks/done")
    failed = _Path("tasks/failed")
    archive = _Path("tasks/archive")  # what ended long ago, by month: `2026-11/done/ID`, `2026-11/failed/ID`
    schedule = _Path("tasks/schedule")  # tasks that come again, a file each
    claimed = _Path("tasks/active/.claimed")  # on their way from the inbox to `active`, a folder for each agent
    worktrees = _Path("worktrees")  # a folder for each task; made when the first one is

    # what the program alone owns
    state = _Path(".hive")
    journal = _Path(".hive/journal")
    locks = _Path(".hive/locks")
    stopped = _Path(".hive/stopped")  # agents that a person has stopped: an empty file each, until `agent start`
    doorbells = _Path(".hive/doorbells")
    logs = _Path(".hive/logs")
    reading = _Path(".hive/reading")  # marks of what each process is reading: who died over an input is found there
    aside = _Path(".hive/aside")  # what was damaged, or in the way, in a folder for each day
    backups = _Path(".hive/backups")  # the last two of each database that holds what is nowhere else
    mail_key = _Path(".hive/mail.key")  # the runtime seals its messages with it
    task_queue = _Path(".hive/tasks.queue")  # the order in which waiting tasks are claimed: a cache
    schedule_record = _Path(".hive/schedule.json")  # up to which time the tasks of `schedule` were dropped
    due_record = _Path(".hive/due.json")  # when `hivemind due` has something to do again
    outbox = _Path(".hive/outbox")  # what a person is still to be told of tasks, a file each
    workspace_record = _Path(".hive/workspace.json")  # which workspace of which project this state belongs to
    budget_record = _Path(".hive/budget.json")  # what all agents together have used up on a day
    memory_db = _Path(".hive/memory.db")
    documents_db = _Path(".hive/documents.db")
    graphs_db = _Path(".hive/graphs.db")  # the index of the graphs of all tasks: a cache
    link = _Path(".hive/link")  # with which hives this one is linked, and what it has in hand of theirs
    web_db = _Path(".hive/web.db")  # what the page shows of tasks that are over, and what they cost: a cache

    def mailbox(self, agent: str) -> Path:
        return self.mailboxes / check_name(agent, "agent name")

    def agent_config(self, agent: str) -> Path:
        return self.agents / f"{check_name(agent, 'agent name')}.yaml"

    def agent_state(self, agent: str) -> Path:
        """The folder that an agent's own process keeps its state in."""
        return self.state / "agents" / check_name(agent, "agent name")

    def send_records(self, sender: str) -> Path:
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


def archived_folders(layout: Layout) -> list[Path]:
    """The folders `done` and `failed` of each month of the archive of tasks, the newest month first."""
    try:
        months = [name for name in os.listdir(layout.archive) if MONTH.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [layout.archive / month / state for month in sorted(months, reverse=True) for state in ("done", "failed")]


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
    name = explicit or (os.environ if environ is None else environ).get("HIVEMIND_HIVE")
    if name:
        layout = Layout.at(name)
        if not layout.config.is_file():
            raise UserError(
                f"no {CONFIG_NAME} there", location=layout.root, remedy=f"make one with: hivemind init {name}"
            )
        return layout
    start_folder = Path(os.path.realpath(start))
    nearest: Layout | None = None
    for folder in (start_folder, *start_folder.parents):
        if (folder / CONFIG_NAME).is_file() and (nearest is None or Layout(folder).owns(nearest.root)):
            nearest = Layout(folder)
    if nearest is None:
        raise UserError(
            f"no {CONFIG_NAME} here or in any folder above", location=start_folder, remedy="make a hive with: hivemind init"
        )
    return nearest
