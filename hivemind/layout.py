"""The paths of a hive. No other module knows the names of its folders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.names import check_name
from hivemind.outcome import ENDED
from hivemind.pattern import pattern

CONFIG_NAME = "hive.yaml"
HUMAN = "human"
EXCHANGE = "exchange"
LANDING = "landing"
METRICS = "metrics"
TELEMETRY = "telemetry"
POSTMASTER = "postmaster"
"""`EXCHANGE` is the process that carries tasks and mail to linked hives, and its mailbox of outgoing mail. `LANDING` is the
process that brings finished branches into the branches of people; it owns a task from its finish to its landing. `METRICS` is the
process that answers a monitoring system, `TELEMETRY` the one that sends traces to a collector."""
ANY = "any"
"""The value of `where:` in a task that any linked hive may take; no hive may have this name."""
MONTH = pattern(r"\d{4}-\d{2}")
"""The name of the folder for one month in an archive."""


class _Path:
    """A path below the root of a layout."""

    def __init__(self, below: str) -> None:
        self._below = below
        self._last: tuple[Path | None, Path] = None, Path()

    def __get__(self, layout: Layout, _: type[Layout]) -> Path:
        root, path = self._last  # cached, since joining paths took a tenth of a claim
        if root is not layout.root:
            root, path = self._last = layout.root, layout.root / self._below
        return path


@frozen
class Layout:
    """The paths of one hive, all below `root` (absolute, symbolic links resolved). Does not access the disk.

    If `read_only`, the hive's parts never create, lock or write files.
    """

    root: Path
    read_only: bool = False

    @classmethod
    def at(cls, root: str | os.PathLike[str], *, read_only: bool = False) -> Layout:
        return cls(Path(os.path.realpath(root)), read_only)

    # For people
    config = _Path(CONFIG_NAME)
    agents = _Path("agents")
    rom = _Path("rom")
    mailboxes = _Path("mailboxes")
    knowledge = _Path("knowledge")
    lessons = _Path("knowledge/lessons")  # what agents have learned: written by people and the runtime only
    tasks = _Path("tasks")
    inbox = _Path("tasks/inbox")
    active = _Path("tasks/active")
    done = _Path("tasks/done")
    failed = _Path("tasks/failed")
    archive = _Path("tasks/archive")  # old tasks by month: `2026-11/done/ID`, `2026-11/failed/ID`
    wrong_quotes = _Path("tasks/wrong-quotes.yaml")  # what people have called wrong
    skills = _Path("skills")  # ways of working, a folder each with a SKILL.md
    schedule = _Path("tasks/schedule")  # recurring tasks, a file each
    claimed = _Path("tasks/active/.claimed")  # tasks on their way from the inbox to `active`, a folder per agent
    worktrees = _Path("worktrees")  # a folder per agent, created with its first worktree

    # For the runtime only
    state = _Path(".hive")
    journal = _Path(".hive/journal")
    locks = _Path(".hive/locks")
    stopped = _Path(".hive/stopped")  # stopped agents: an empty file each, until `agent start`; its mtime is a deadline
    deadline = _Path(".hive/deadline")  # empty: until its mtime, a swarm that `down` ends waits for running commands
    doorbells = _Path(".hive/doorbells")
    logs = _Path(".hive/logs")
    reading = _Path(".hive/reading")  # the input that each process reads: shows which input killed a process
    aside = _Path(".hive/aside")  # damaged or misplaced files, a folder per day
    backup_record = _Path(".hive/backup.json")  # in a backup alone: when, and of which hive, it was made
    backups = _Path(".hive/backups")  # the last two backups of each database with original data
    mail_key = _Path(".hive/mail.key")  # the key with which the runtime seals its messages
    task_queue = _Path(".hive/tasks.queue")  # the order in which waiting tasks are claimed: a cache
    schedule_record = _Path(".hive/schedule.json")  # the time up to which the tasks of `schedule` were dropped
    due_record = _Path(".hive/due.json")  # the next time when work is due for `hivemind due`
    outbox = _Path(".hive/outbox")  # notices about tasks that are not sent yet, a file each
    workspace_record = _Path(".hive/workspace.json")  # the workspace and project of this state
    checked_settings = _Path(".hive/settings.json")  # the checked settings of hive.yaml and agents/: a cache
    budget_record = _Path(".hive/budget.json")  # the usage of all agents together per day
    memory_db = _Path(".hive/memory.db")
    documents_db = _Path(".hive/documents.db")
    graphs_db = _Path(".hive/graphs.db")  # the index of the graphs of all tasks: a cache
    link = _Path(".hive/link")  # the linked hives, and their tasks and mail in this hive
    relevance = _Path(".hive/relevance.json")  # learned weights: which texts of openings are used
    lesson_records = _Path(".hive/lessons")  # ids, counts and history of the lessons, a file per root
    landing = _Path(".hive/landing")  # the worktrees, homes and results of checks, a folder per root
    web_db = _Path(".hive/web.db")  # ended tasks and their costs for the page: a cache

    def mailbox(self, agent: str) -> Path:
        return self.mailboxes / check_name(agent, "agent name")

    def agent_config(self, agent: str) -> Path:
        return self.agents / f"{check_name(agent, 'agent name')}.yaml"

    def agent_state(self, agent: str) -> Path:
        """Return the folder for the state of an agent's process."""
        return self.state / "agents" / check_name(agent, "agent name")

    def send_records(self, sender: str) -> Path:
        """Return the file that records a sender's sends: those with a Message-ID that the sender chose, and those that failed for
        a recipient.
        """
        return self.state / "sends" / check_name(sender, "sender")

    def folders(self) -> tuple[Path, ...]:
        """Return every folder of a hive, parents first."""
        return (
            self.agents, self.rom, self.mailboxes, self.knowledge,
            self.tasks, self.inbox, self.active, self.done, self.failed,
            self.state, self.journal, self.locks, self.doorbells, self.logs, self.state / "agents",
        )  # fmt: skip

    def owns(self, path: Path) -> bool:
        """Check whether a path is in one of the hive's folders."""
        return not {*self.folders(), self.worktrees}.isdisjoint((path, *path.parents))

    def relative(self, path: str | os.PathLike[str]) -> str:
        """Return `path` relative to the hive, with `/`. Return a path outside the hive unchanged."""
        text = os.fspath(path)
        root = os.fspath(self.root)
        if text == root:
            return "."
        return text[len(root) + 1 :].replace(os.sep, "/") if text.startswith(root + os.sep) else text


def month_of(seconds: float) -> str:
    """Return the name of the archive's month for a time in seconds since 1970, in UTC: `2026-11`."""
    return f"{datetime.fromtimestamp(min(max(0.0, seconds), 2.0**37), UTC):%Y-%m}"


def archived_folders(layout: Layout) -> list[Path]:
    """Return the folders `done` and `failed` of each month in the archive of tasks, newest month first."""
    try:
        months = [name for name in os.listdir(layout.archive) if MONTH.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [layout.archive / month / state for month in sorted(months, reverse=True) for state in ENDED]


def template_folder() -> Path:
    """Return the folder with the manual and the files of a new hive. Raises UserError if this installation has none.

    In a wheel the folder is part of the package. In a checkout it is the repository's root, which is itself a hive.
    """
    package = Path(__file__).parent
    for folder in (package / "template", package.parent):
        if (folder / CONFIG_NAME).is_file():
            return folder
    raise UserError("this installation lacks the template of a hive", location=package, remedy="reinstall hivemind")


def find_hive(
    explicit: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    start: str | os.PathLike[str] = ".",
) -> Layout:
    """Find the hive to work in, as git finds a repository.

    `explicit` (the option `--hive`) comes first, then `$HIVEMIND_HIVE` in `environ` (default: this process's environment), then
    the nearest ancestor of `start` with a hive.yaml. A hive.yaml in a folder of another hive is ignored, because agents write to
    such folders. Raises UserError if no hive is found.
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
            f"no {CONFIG_NAME} here or in any folder above",
            location=start_folder,
            remedy="make a hive with: hivemind init",
        )
    return nearest
