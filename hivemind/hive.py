"""`Hive.open` and `Hive.init`: the parts of a hive, put together for the command line, the page, MCP and agents.

The package of a part is imported at the first access to the part, so a command loads only what it uses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from hivemind.config import GROUP_FOLDER_MODE, AgentConfig, Agents, HiveConfig, load_agents, load_hive
from hivemind.coordination import Journal, StepLeases, Steps, check_workspace
from hivemind.errors import UserError
from hivemind.fs import DamagedRecord, make_folder, set_aside
from hivemind.layout import HUMAN, Layout
from hivemind.logger import logger
from hivemind.masking import keep_secrets

if TYPE_CHECKING:
    from hivemind.documents import Docmem, Knowledge
    from hivemind.embedding import Embedder
    from hivemind.longterm import MemoryStore
    from hivemind.mail import Mail
    from hivemind.presence.linked import LinkedHives
    from hivemind.reasoning import GraphIndex
    from hivemind.tasks import Tasks
    from hivemind.tokens import TokenCounter

_log = logger(__name__)
_T = TypeVar("_T")
_WRITES = {
    "Tasks": ("add", "claim", "say", "release", "finish", "fail", "retry", "cancel", "inbox", "claims", "recovery", "active"),
    "Inbox": ("add",),
    "Claims": ("claim", "claim_one", "reject_waiting"),
    "Recovery": ("resume", "reclaim", "fail_damaged"),
    "ClaimedTasks": (
        "finish", "fail", "retry", "reopen", "disown", "cancel", "release", "hand_over", "park", "unpark", "keep", "rewrite",
        "pass_on", "say", "add_text", "log",
    ),
    "Mail": ("send", "ensure", "mark_answered"),
    "MemoryStore": ("put", "put_many", "upsert_memory", "delete", "expire", "purge", "create_user", "embed_pending", "reindex"),
}  # fmt: skip
"""The methods of the parts that write, and the parts of `Tasks` with these methods. In a hive that `Hive.look` has opened,
they are refused."""


class Hive:
    """One hive. Each part is opened at the first access.

    If the layout is read-only, opening a part never creates, locks or writes files, and the journal refuses writes.
    """

    def __init__(self, layout: Layout, config: HiveConfig) -> None:
        self.layout = layout
        self.config = config
        config.set_umask()
        self._agents = Agents()
        self._agents_time = -1

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Hive:
        """Open the hive in the folder `path`, and create its missing folders. Set this process's umask (`access:`).

        Raises UserError if the folder is a backup, or if hive.yaml is missing or invalid. Raises CoordinationError
        (WorkspaceLocked, ProjectGuardMismatch) if the hive's state belongs to another workspace or project.
        """
        layout = Layout.at(path)
        hive = cls(layout, load_hive(layout))
        if layout.backup_record.exists():
            raise UserError("is a backup", location=layout.root, remedy=f"hivemind restore {layout.root} NEW-FOLDER")
        for folder in layout.folders():
            try:
                if make_folder(folder) and hive.config.access == "group":
                    folder.chmod(GROUP_FOLDER_MODE)
            except (FileExistsError, NotADirectoryError):
                raise UserError(
                    "is a file, but must be a folder", location=folder, remedy="hivemind doctor --fix sets it aside"
                ) from None
        identity = (layout.workspace_record, hive.config.workspace, layout.root, hive.config.guard)
        try:
            check_workspace(*identity)
        except DamagedRecord as error:  # it repeats hive.yaml, so it can be rewritten
            _log.warning("%s; kept as %s", error, set_aside(layout.workspace_record).name)
            check_workspace(*identity)
        if not layout.checked_settings.exists():
            hive.read_agents()  # records the checked settings
        return hive

    @classmethod
    def look(cls, path: str | os.PathLike[str]) -> Hive:
        """Open the hive in the folder `path` read-only, for example a backup or another person's project. Tasks, mail, memory
        and journal refuse writes.

        Raises UserError if hive.yaml is missing or invalid.
        """
        layout = Layout.at(path, read_only=True)
        return cls(layout, load_hive(layout))

    @classmethod
    def init(
        cls,
        path: str | os.PathLike[str] = ".",
        *,
        replacements: Mapping[str, str] | None = None,
        workspace: str | None = None,
    ) -> Hive:
        """Create a hive in the folder `path` (created if missing) and open it. Existing files stay unchanged.

        `replacements` maps paths to texts in place of the template's files; the template's agents are then not created.
        `workspace` is the name in hive.yaml, by default `hive`. Raises UserError if `path` is a hive already.
        """
        from hivemind.swarm.template import make_hive

        HiveConfig().set_umask()
        make_hive(Layout.at(path), replacements, workspace)
        hive = cls.open(path)
        for name in (HUMAN, *hive.agents):
            hive.mail.ensure(name)
        return hive

    @property
    def agents(self) -> dict[str, AgentConfig]:
        """The agents by name, including agents added later. A removed agent stays while this object exists."""
        return self.agent_files.configs

    @property
    def agent_files(self) -> Agents:
        """The agents, with the errors of agents that are set aside. An agent whose file was readable earlier is not set
        aside."""
        try:
            folder_time = self.layout.agents.stat().st_mtime_ns
        except FileNotFoundError:  # missing in a copy, or moved away: keep the known agents
            return self._agents
        if folder_time != self._agents_time:
            self._agents_time = folder_time
            self.read_agents()
        return self._agents

    def read_agents(self) -> Agents:
        """Read agents/ now and return the agents; `agent_files` includes them from then on."""
        agents = load_agents(self.layout, self.config)
        self._agents = Agents({**self._agents.configs, **agents.configs}, agents.problems)
        for agent in self._agents.configs.values():
            keep_secrets(agent.env)
        return agents

    def keep_agents(self, configs: Mapping[str, AgentConfig]) -> None:
        """Keep the settings `configs` for these agents, because their new files cannot be used."""
        self._agents = Agents({**self._agents.configs, **configs}, self._agents.problems)

    def _guarded(self, part: _T) -> _T:
        """Return a part of the hive. If the hive is read-only, first make the part's methods refuse writes."""
        for name in _WRITES[type(part).__name__] if self.layout.read_only else ():
            inner_part = getattr(part, name)
            is_part = type(inner_part).__name__ in _WRITES
            setattr(part, name, self._guarded(inner_part) if is_part else self._refuse_write)
        return part

    def _refuse_write(self, *_: Any, **__: Any) -> NoReturn:
        raise UserError("was opened read-only", location=self.layout.root, remedy="open it for writing with Hive.open")

    @property
    def _is_persistent(self) -> bool:
        """True if indexes can be saved. Otherwise they are built in memory each time."""
        return not self.layout.read_only or os.access(self.layout.state, os.W_OK)

    @cached_property
    def count_tokens(self) -> TokenCounter:
        from hivemind.tokens import TokenCounter

        return TokenCounter(self.config.encoding)

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.layout.journal, read_only=self.layout.read_only)

    @cached_property
    def steps(self) -> Steps:
        return Steps(self.journal)

    @cached_property
    def leases(self) -> StepLeases:
        return StepLeases(self.journal)

    @cached_property
    def linked_hives(self) -> LinkedHives:
        from hivemind.presence.linked import LinkedHives

        return LinkedHives(self.layout)

    @cached_property
    def mail(self) -> Mail:
        from hivemind.mail import Mail

        mail = Mail(
            self.layout,
            self.config.workspace,
            agents=lambda: self.agent_files,
            settle_ms=self.config.settle_ms,
            roots=self.config.read_roots(self.layout),
            unknown_sender=self.config.mail.unknown_sender,
            hives=lambda: self.linked_hives.agents,
        )
        return self._guarded(mail)

    @cached_property
    def tasks(self) -> Tasks:
        from hivemind.tasks import Tasks

        tasks = Tasks(
            self.layout,
            agents=lambda: self.agent_files.roles(),
            max_bytes=self.config.max_task_bytes,
            settle_ms=self.config.settle_ms,
            roots=self.config.read_roots(self.layout),
            ask_about_files=self.config.no_text == "ask",
            tell_of=self.config.notify.events,
            zone=self.config.zone,
            local_hives=lambda: self.linked_hives.local_names(self.config.workspace.lower()),
            journal=self.journal,
            has_lander=any(root.land != "off" for root in self.config.repository_roots(self.layout).values()),
        )
        return self._guarded(tasks)

    @cached_property
    def embedder(self) -> Embedder | None:
        """The embedder from `$HIVEMIND_EMBEDDER`, or else from hive.yaml; None if texts are searched by words only.

        It starts and loads at the first text. Raises UserError for an embedder that is unknown or not installed.
        """
        from hivemind.embedding import open_embedder

        setting = self.config.embedder
        spec = setting if isinstance(setting, str) else dict(setting)
        return open_embedder(os.environ.get("HIVEMIND_EMBEDDER") or spec, use_service=True)

    @cached_property
    def documents(self) -> Docmem:
        from hivemind.documents import Docmem

        return Docmem(
            self.layout.documents_db,
            token_counter=self.count_tokens,
            embedder=None if self.layout.read_only else self.embedder,  # a read-only hive gets no vectors
        )

    @cached_property
    def knowledge(self) -> Knowledge:
        from hivemind.documents import Docmem, Knowledge

        documents = self.documents if self._is_persistent else Docmem(":memory:", token_counter=self.count_tokens)
        return Knowledge(documents, self.layout, roots=self.config.read_roots(self.layout))

    @cached_property
    def graph_index(self) -> GraphIndex:
        from hivemind.reasoning import GraphIndex

        return GraphIndex(self.layout, self.embedder, persistent=self._is_persistent)

    @cached_property
    def memory(self) -> MemoryStore:
        from hivemind.longterm import MemoryStore

        location = str(self.layout.memory_db)
        if self.config.memory is not None:
            from hivemind.fs.postgres import check_url

            location = check_url(self.config.memory)
        store = MemoryStore(location, self.embedder, token_counter=self.count_tokens)
        return self._guarded(store)
