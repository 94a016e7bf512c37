"""Where everything lies in a hive. The only module that knows the names of its folders (spec 1, *Layout*)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hivemind.errors import UserError
from hivemind.names import check_name

__all__ = ["CONFIG_NAME", "HUMAN", "Layout", "find_hive"]

CONFIG_NAME = "hive.yaml"
HUMAN = "human"


@dataclass(frozen=True, slots=True)
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
    @property
    def config(self) -> Path:
        return self.root / CONFIG_NAME

    @property
    def agents(self) -> Path:
        return self.root / "agents"

    @property
    def rom(self) -> Path:
        return self.root / "rom"

    @property
    def mailboxes(self) -> Path:
        return self.root / "mailboxes"

    @property
    def knowledge(self) -> Path:
        return self.root / "knowledge"

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    @property
    def inbox(self) -> Path:
        return self.tasks / "inbox"

    @property
    def active(self) -> Path:
        return self.tasks / "active"

    @property
    def done(self) -> Path:
        return self.tasks / "done"

    @property
    def failed(self) -> Path:
        return self.tasks / "failed"

    @property
    def schedule(self) -> Path:
        """Tasks that come again, a file each."""
        return self.tasks / "schedule"

    @property
    def worktrees(self) -> Path:
        """The worktrees of tasks, a folder for each task; made when the first one is."""
        return self.root / "worktrees"

    @property
    def claimed(self) -> Path:
        """Tasks on their way from the inbox to `active`, one folder for each agent."""
        return self.active / ".claimed"

    def mailbox(self, agent: str) -> Path:
        return self.mailboxes / check_name(agent, "agent name")

    def agent_config(self, agent: str) -> Path:
        return self.agents / f"{check_name(agent, 'agent name')}.yaml"

    # what the program alone owns
    @property
    def state(self) -> Path:
        return self.root / ".hive"

    @property
    def journal(self) -> Path:
        return self.state / "journal"

    @property
    def locks(self) -> Path:
        return self.state / "locks"

    @property
    def stopped(self) -> Path:
        """The agents that a person has stopped: an empty file each, until `hivemind agent start`."""
        return self.state / "stopped"

    @property
    def doorbells(self) -> Path:
        return self.state / "doorbells"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def reading(self) -> Path:
        """Marks of what each process is reading: who died over an input is found there."""
        return self.state / "reading"

    @property
    def aside(self) -> Path:
        """Where what was damaged, or in the way, is kept, in a folder for each day."""
        return self.state / "aside"

    @property
    def backups(self) -> Path:
        """The last two backups of each database that holds what is nowhere else."""
        return self.state / "backups"

    @property
    def mail_key(self) -> Path:
        """The key that the runtime seals its messages with."""
        return self.state / "mail.key"

    def sends(self, sender: str) -> Path:
        """What became of the sends of one sender that were given a Message-ID, or failed for someone."""
        return self.state / "sends" / check_name(sender, "sender")

    @property
    def task_queue(self) -> Path:
        """The order in which waiting tasks are claimed: a cache that may be deleted at any time."""
        return self.state / "tasks.queue"

    @property
    def schedule_record(self) -> Path:
        """Up to which time the tasks of `schedule` were dropped."""
        return self.state / "schedule.json"

    @property
    def due_record(self) -> Path:
        """When `hivemind due` has something to do again."""
        return self.state / "due.json"

    @property
    def outbox(self) -> Path:
        """What a person is still to be told of tasks, a file each."""
        return self.state / "outbox"

    @property
    def workspace_record(self) -> Path:
        """Which workspace of which project this state belongs to."""
        return self.state / "workspace.json"

    @property
    def budget_record(self) -> Path:
        """What all agents together have used up on a day."""
        return self.state / "budget.json"

    @property
    def memory_db(self) -> Path:
        return self.state / "memory.db"

    @property
    def documents_db(self) -> Path:
        return self.state / "documents.db"

    @property
    def graphs_db(self) -> Path:
        """The index of the graphs of all tasks: derived from their own files, it may be deleted at any time."""
        return self.state / "graphs.db"

    @property
    def web_db(self) -> Path:
        """What the page shows of tasks that are over, and what they cost: derived, it may be deleted at any time."""
        return self.state / "web.db"

    def agent_state(self, agent: str) -> Path:
        """The folder that an agent's own process keeps its state in."""
        return self.state / "agents" / check_name(agent, "agent name")

    def folders(self) -> tuple[Path, ...]:
        """Every folder that a hive has, parents first."""
        return (
            self.agents, self.rom, self.mailboxes, self.knowledge,
            self.tasks, self.inbox, self.active, self.done, self.failed,
            self.state, self.journal, self.locks, self.doorbells, self.logs, self.state / "agents",
        )  # fmt: skip

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path` as it is named within the hive, with `/`; a path outside is given as it stands."""
        text = os.fspath(path)
        root = os.fspath(self.root)
        if text == root:
            return "."
        return text[len(root) + 1 :].replace(os.sep, "/") if text.startswith(root + os.sep) else text


def find_hive(
    explicit: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    start: str | os.PathLike[str] = ".",
) -> Layout:
    """The hive to work in, found as git finds a repository.

    `explicit` (`--hive`), else `$HIVEMIND_HIVE`, else the nearest ancestor of `start` with a hive.yaml.
    Raises UserError if there is none.
    """
    named = explicit or (os.environ if environ is None else environ).get("HIVEMIND_HIVE")
    if named:
        layout = Layout.at(named)
        if not layout.config.is_file():
            raise UserError(f"no {CONFIG_NAME} there", where=layout.root, mend=f"make one with: hivemind init {named}")
        return layout
    here = Path(os.path.realpath(start))
    for folder in (here, *here.parents):
        if (folder / CONFIG_NAME).is_file():
            return Layout(folder)
    raise UserError(f"no {CONFIG_NAME} here or in any folder above", where=here, mend="make a hive with: hivemind init")
