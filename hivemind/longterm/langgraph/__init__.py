"""Long-term memory for LangGraph (extra `langgraph`): a store, and nodes that retrieve and store memories."""

from __future__ import annotations

from hivemind.errors import UserError

try:
    from hivemind.longterm.langgraph.nodes import MemoryState, format_memories, retrieve_memories, store_memories
    from hivemind.longterm.langgraph.store import HivemindStore
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("langgraph", "langchain_core"):
        raise
    raise UserError("LangGraph is not installed", remedy="pip install 'hivemind-swarm[langgraph]'") from None

__all__ = ["HivemindStore", "MemoryState", "format_memories", "retrieve_memories", "store_memories"]
