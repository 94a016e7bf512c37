"""The seed's graph state and its two nodes: memories before the model, what it wants remembered after (seed 001)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.config import get_config
from langgraph.graph import MessagesState

from hivemind.errors import UserError
from hivemind.longterm.entry import MemorySearchResult, UpsertMemoryInput, UpsertMemoryResult
from hivemind.longterm.errors import NamespaceInvalid
from hivemind.longterm.store import MemoryStore
from hivemind.longterm.validation import provenance
from hivemind.tokens import count_tokens

_TOOLS = ("upsert_memory", "upsertMemory")


class MemoryState(MessagesState, total=False):
    """The state of a conversation with memory. `user_id` says whose: the namespace is ("memories", user_id).

    `retrieved_memories` are those of the last message, for one turn; `memory_operations` what the model wants stored, and
    `memory_results` what came of it.
    """

    summary: str
    user_id: str
    retrieved_memories: list[MemorySearchResult]
    memory_operations: list[UpsertMemoryInput]
    memory_results: list[UpsertMemoryResult]


Node = Callable[[MemoryState], dict[str, Any]]


def retrieve_memories(
    store: MemoryStore, *, threshold: float | None = None, limit: int = 20, max_tokens: int = 1_000
) -> Node:
    """The node before the model: what the user's memory has about the last message of the user.

    At most `limit` memories within `max_tokens` of content; one that does not fit is passed over. They take the place of
    those of the turn before.
    """

    def node(state: MemoryState) -> dict[str, Any]:
        namespace, query, kept, left = _namespace(state), _asked(state), [], max_tokens
        hits = store.search(namespace, query, threshold, limit) if query else []
        for hit in hits:
            tokens = count_tokens(hit.content)
            if tokens <= left:
                left -= tokens
                kept.append(hit)
        return {"retrieved_memories": kept}

    return node


def _namespace(state: MemoryState) -> tuple[str, str]:
    """Whose memory it is. A graph that was not told must not fall back on a namespace that all users would share."""
    if "user_id" not in state:
        raise NamespaceInvalid(
            "the state has no user_id, which says whose memory it is",
            mend='give one where the graph is called: {"user_id": "ann", "messages": [...]}',
        )
    return ("memories", state["user_id"])


def _asked(state: MemoryState) -> str:
    last = next((one for one in reversed(state.get("messages", [])) if isinstance(one, HumanMessage)), None)
    return "" if last is None else str(last.text).strip()


def told(memories: Sequence[MemorySearchResult]) -> str:
    """Memories as a passage of a system message; empty where there are none."""
    if not memories:
        return ""
    return "\n".join(["What is remembered of this user:", *(f"* {memory.content}" for memory in memories)])


def store_memories(store: MemoryStore) -> Node:
    """The node after the model: store its `memory_operations`, and its calls of the tool `upsert_memory`.

    A new memory is the user's (`speaker`), of the graph's thread (`session`), linked with the one before it there. One that
    cannot be stored is a result without success, with the reason; the others are stored all the same.
    """

    def node(state: MemoryState) -> dict[str, Any]:
        namespace, thread = _namespace(state), _thread()
        wishes = [*state.get("memory_operations", []), *_called(state)]
        return {"memory_operations": [], "memory_results": [_stored(store, namespace, wish, thread) for wish in wishes]}

    return node


def _thread() -> object:
    """The thread of the graph that runs; None where none does, or it has none."""
    try:
        return (get_config().get("configurable") or {}).get("thread_id")
    except RuntimeError:
        return None


def _stored(
    store: MemoryStore, namespace: tuple[str, str], wish: UpsertMemoryInput, thread: object
) -> UpsertMemoryResult:
    told = provenance(str(wish.content), namespace[1], session=None if thread is None else str(thread))
    try:
        return store.upsert_memory(namespace, wish.content, wish.metadata, wish.key, provenance=told)
    except UserError as error:
        return UpsertMemoryResult(False, "", "refused", str(error), wish.key or "")


def _called(state: MemoryState) -> list[UpsertMemoryInput]:
    messages = state.get("messages", [])
    calls = messages[-1].tool_calls if messages and isinstance(messages[-1], AIMessage) else []
    given = [call["args"] for call in calls if call["name"] in _TOOLS]
    return [UpsertMemoryInput(args.get("content", ""), args.get("metadata"), args.get("key")) for args in given]
