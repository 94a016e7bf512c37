"""What the runtime needs of a hive. `hivemind.Hive` is one; the rooms below are all it opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # who looks at a few rooms does not wait for all to be imported
    from hivemind.config import AgentConfig, Agents, HiveConfig
    from hivemind.coordination import Journal, StepLeases, Steps
    from hivemind.documents import Docmem, Knowledge
    from hivemind.embedding import Embedder
    from hivemind.layout import Layout
    from hivemind.longterm import MemoryStore
    from hivemind.mail import Mail
    from hivemind.presence.linked import LinkedHives
    from hivemind.reasoning import GraphIndex
    from hivemind.tasks import Tasks
    from hivemind.tokens import TokenCounter

__all__ = ["Parts"]


class Parts(Protocol):
    """The opened parts of one hive."""

    @property
    def layout(self) -> Layout: ...
    @property
    def config(self) -> HiveConfig: ...
    @property
    def agents(self) -> dict[str, AgentConfig]: ...
    @property
    def agent_files(self) -> Agents: ...
    def read_agents(self) -> Agents: ...
    def keep_agents(self, configs: Mapping[str, AgentConfig]) -> None: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def leases(self) -> StepLeases: ...
    @property
    def linked(self) -> LinkedHives: ...
    @property
    def mail(self) -> Mail: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def count_tokens(self) -> TokenCounter: ...
    @property
    def documents(self) -> Docmem: ...
    @property
    def embedder(self) -> Embedder | None: ...
    @property
    def knowledge(self) -> Knowledge: ...
    @property
    def graph_index(self) -> GraphIndex: ...
    @property
    def memory(self) -> MemoryStore: ...
