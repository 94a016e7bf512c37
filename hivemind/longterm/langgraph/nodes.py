"""A graph state with memory, and two nodes: one retrieves memories before the model runs, one stores new ones after it."""

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
    """The state of a conversation with memory in the namespace ("memories", user_id).

    `retrieved_memories` are the memories for the last message. `memory_operations` are the memories that the model wants
    to store, `memory_results` the results of storing them.
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
    """Return a node to run before the model; it retrieves the user's memories about the user's last message.

    The node selects at most `limit` memories with at most `max_tokens` of content together, skips memories that do not
    fit, and replaces the memories of the previous turn. `threshold` is the minimal similarity, as in
    `MemoryStore.search`.
    """

    def node(state: MemoryState) -> dict[str, Any]:
        namespace, query, memories, remaining_tokens = _namespace(state), _last_question(state), [], max_tokens
        hits = store.search(namespace, query, threshold, limit) if query else []
        for hit in hits:
            tokens = count_tokens(hit.content)
            if tokens <= remaining_tokens:
                remaining_tokens -= tokens
                memories.append(hit)
        return {"retrieved_memories": memories}

    return node


def _namespace(state: MemoryState) -> tuple[str, str]:
    """Return the user's namespace. Raises NamespaceInvalid if the state has no `user_id`: otherwise all users would
    share a namespace."""
    if "user_id" not in state:
        raise NamespaceInvalid(
            "the state has no user_id",
            remedy='pass one when you invoke the graph: {"user_id": "ann", "messages": [...]}',
        )
    return ("memories", state["user_id"])


def _last_question(state: MemoryState) -> str:
    last = next((message for message in reversed(state.get("messages", [])) if isinstance(message, HumanMessage)), None)
    return "" if last is None else str(last.text).strip()


def format_memories(memories: Sequence[MemorySearchResult]) -> str:
    """Return the memories as a text for a system message; "" without memories."""
    if not memories:
        return ""
    return "\n".join(["Memories of this user:", *(f"* {memory.content}" for memory in memories)])


def store_memories(store: MemoryStore) -> Node:
    """Return a node to run after the model; it stores the memories that the model wants to keep.

    These are the `memory_operations` of the state, and the arguments of the model's calls of the tool `upsert_memory`.
    A new memory has the user as `speaker` and the graph's thread as `session`, and is linked to the previous memory of
    the thread. If a memory cannot be stored, its result in `memory_results` has `success` False and the reason; the
    other memories are stored.
    """

    def node(state: MemoryState) -> dict[str, Any]:
        namespace, thread = _namespace(state), _thread()
        operations = [*state.get("memory_operations", []), *_tool_inputs(state)]
        return {
            "memory_operations": [],
            "memory_results": [_store_memory(store, namespace, operation, thread) for operation in operations],
        }

    return node


def _thread() -> object:
    """Return the thread id of the running graph; None if no graph runs or it has no thread."""
    try:
        return (get_config().get("configurable") or {}).get("thread_id")
    except RuntimeError:
        return None


def _store_memory(
    store: MemoryStore, namespace: tuple[str, str], operation: UpsertMemoryInput, thread: object
) -> UpsertMemoryResult:
    origin = provenance(str(operation.content), namespace[1], session=None if thread is None else str(thread))
    try:
        return store.upsert_memory(namespace, operation.content, operation.metadata, operation.key, provenance=origin)
    except UserError as error:
        return UpsertMemoryResult(False, "", "refused", str(error), operation.key or "")


def _tool_inputs(state: MemoryState) -> list[UpsertMemoryInput]:
    messages = state.get("messages", [])
    calls = messages[-1].tool_calls if messages and isinstance(messages[-1], AIMessage) else []
    arguments = [call["args"] for call in calls if call["name"] in _TOOLS]
    return [UpsertMemoryInput(args.get("content", ""), args.get("metadata"), args.get("key")) for args in arguments]
