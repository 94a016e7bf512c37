"""`Hive.open` and `Hive.init`: the parts of a hive, put together for every face. No rules of its own.

A part's room is imported when the part is first asked for: a command pays for what it uses.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from hivemind.config import SHARED, AgentConfig, Agents, HiveConfig, load_agents, load_hive
from hivemind.coordination import Journal, StepLeases, Steps, check_workspace
from hivemind.errors import UserError
from hivemind.fs import DamagedRecord, make_folder, set_aside
from hivemind.layout import HUMAN, Layout
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

_log = logging.getLogger(__name__)


class Hive:
    """One hive. Each part is opened when it is first named, and knows nothing of the others.

    If its layout is read-only nothing is made, locked or written by opening it, and its journal refuses to be written.
    """

    def __init__(self, layout: Layout, config: HiveConfig) -> None:
        self.layout = layout
        self.config = config
        config.take_access()
        self._agents = Agents()
        self._agents_changed = -1

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Hive:
        """The hive in the folder `path`, its folders made where they are missing. Sets this process's umask (`access:`).

        Raises UserError if there is no hive.yaml, or if it says something that is not understood; CoordinationError
        (WorkspaceLocked, ProjectGuardMismatch) if its state belongs to another workspace or project.
        """
        layout = Layout.at(path)
        hive = cls(layout, load_hive(layout))
        for folder in layout.folders():
            try:
                if make_folder(folder, durable=hive.config.durable) and hive.config.access == "group":
                    folder.chmod(SHARED)
            except (FileExistsError, NotADirectoryError):
                raise UserError(
                    "a file lies where a folder should be",
                    location=folder,
                    remedy="hivemind doctor --fix sets it aside",
                ) from None
        wall = (layout.workspace_record, hive.config.workspace, layout.root, hive.config.guard)
        try:
            check_workspace(*wall, durable=hive.config.durable)
        except DamagedRecord as error:  # it says no more than hive.yaml does: written anew
            _log.warning("%s; kept as %s", error, set_aside(layout.workspace_record).name)
            check_workspace(*wall, durable=hive.config.durable)
        return hive

    @classmethod
    def look(cls, path: str | os.PathLike[str]) -> Hive:
        """The hive in the folder `path`, as it is, to be read: a backup, a read-only disk, somebody else's project.

        Raises UserError if there is no hive.yaml, or if it says something that is not understood.
        """
        layout = Layout.at(path, read_only=True)
        return cls(layout, load_hive(layout))

    @classmethod
    def init(
        cls, path: str | os.PathLike[str] = ".", own: Mapping[str, str] | None = None, workspace: str | None = None
    ) -> Hive:
        """Make a hive in the folder `path` (made if need be) and open it; what is there already is left as it is. With `own` the
        texts of these files, by their names, stand in place of the usual ones; the agents among them are all that there are.
        `workspace` stands in place of what hive.yaml says there.

        Raises UserError if `path` is a hive.
        """
        from hivemind.swarm.template import make_hive

        HiveConfig().take_access()
        make_hive(Layout.at(path), own, workspace)
        hive = cls.open(path)
        for name in (HUMAN, *hive.agents):
            hive.mail.ensure(name)
        return hive

    @property
    def agents(self) -> dict[str, AgentConfig]:
        """The agents by name; one that was added since is there, one that was taken away stays for as long as this lives."""
        return self.agent_files.known

    @property
    def agent_files(self) -> Agents:
        """The same, with those that are set aside because their file cannot be read; one that could be is not."""
        try:
            changed = self.layout.agents.stat().st_mtime_ns
        except FileNotFoundError:  # missing from a copy, or moved away: those that were known stand
            return self._agents
        if changed != self._agents_changed:
            self._agents_changed = changed
            self.read_agents()
        return self._agents

    def read_agents(self) -> Agents:
        """Read agents/ now, whatever was known of it, and return what stands there; `agent_files` has it from then on."""
        found = load_agents(self.layout, self.config)
        self._agents = Agents({**self._agents.known, **found.known}, found.aside)
        for agent in self._agents.known.values():
            keep_secrets(agent.env)
        return found

    def keep_agents(self, configs: Mapping[str, AgentConfig]) -> None:
        """Go on with agents as they were: what their files say now cannot be had."""
        self._agents = Agents({**self._agents.known, **configs}, self._agents.aside)

    @property
    def _lasting(self) -> bool:
        """Whether what is read in can be kept; otherwise it is read into memory, for this once."""
        return not self.layout.read_only or os.access(self.layout.state, os.W_OK)

    @cached_property
    def count_tokens(self) -> TokenCounter:
        from hivemind.tokens import TokenCounter

        return TokenCounter(self.config.encoding)

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.layout.journal, durable=self.config.durable, read_only=self.layout.read_only)

    @cached_property
    def steps(self) -> Steps:
        return Steps(self.journal)

    @cached_property
    def leases(self) -> StepLeases:
        return StepLeases(self.journal)

    @cached_property
    def linked(self) -> LinkedHives:
        from hivemind.presence.linked import LinkedHives

        return LinkedHives(self.layout)

    @cached_property
    def mail(self) -> Mail:
        from hivemind.mail import Mail

        return Mail(
            self.layout,
            self.config.workspace,
            agents=lambda: self.agent_files,
            durable=self.config.durable,
            settle_ms=self.config.settle_ms,
            roots=self.config.read_roots(self.layout),
            unknown_sender=self.config.mail.unknown_sender,
            hives=lambda: self.linked.agents,
        )

    @cached_property
    def tasks(self) -> Tasks:
        from hivemind.tasks import Tasks

        return Tasks(
            self.layout,
            agents=lambda: self.agent_files.roles(),
            durable=self.config.durable,
            max_bytes=self.config.max_task_bytes,
            settle_ms=self.config.settle_ms,
            roots=self.config.read_roots(self.layout),
            ask_about_files=self.config.no_text == "ask",
            tell_of=self.config.notify.events,
            zone=self.config.zone,
            local_hives=lambda: self.linked.here(self.config.workspace.lower()),
            journal=self.journal,
        )

    @cached_property
    def embedder(self) -> Embedder | None:
        """What hive.yaml says (`$HIVEMIND_EMBEDDER` says it louder); None where there is full-text search only.

        Nothing is started or loaded before the first text. Raises UserError for what is not known or not installed.
        """
        from hivemind.embedding import open_embedder

        said = self.config.embedder
        spec = said if isinstance(said, str) else said.model_dump()
        return open_embedder(os.environ.get("HIVEMIND_EMBEDDER") or spec, use_service=True)

    @cached_property
    def documents(self) -> Docmem:
        from hivemind.documents import Docmem

        return Docmem(
            self.layout.documents_db,
            token_counter=self.count_tokens,
            embedder=None if self.layout.read_only else self.embedder,  # nothing is written, no vectors either
            durable=self.config.durable,
        )

    @cached_property
    def knowledge(self) -> Knowledge:
        from hivemind.documents import Docmem, Knowledge

        documents = self.documents if self._lasting else Docmem(":memory:", token_counter=self.count_tokens)
        return Knowledge(documents, self.layout, roots=self.config.read_roots(self.layout))

    @cached_property
    def graph_index(self) -> GraphIndex:
        from hivemind.reasoning import GraphIndex

        return GraphIndex(self.layout, self.embedder, lasting=self._lasting)

    @cached_property
    def memory(self) -> MemoryStore:
        from hivemind.longterm import MemoryStore

        place = str(self.layout.memory_db)
        if self.config.memory is not None:
            from hivemind.fs.postgres import check_url

            place = check_url(self.config.memory)
        return MemoryStore(place, self.embedder, token_counter=self.count_tokens, durable=self.config.durable)
