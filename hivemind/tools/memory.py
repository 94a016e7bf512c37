"""Tools for long-term memory, in the agent's own namespace and in the shared namespace of its workspace."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from pydantic import Field

from hivemind.fs.backup import restore
from hivemind.fs.postgres import is_postgres
from hivemind.longterm import Namespace, NamespaceForbidden, StoreDamaged, provenance
from hivemind.presence.parts import Parts
from hivemind.tools.excerpt import result_limit
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_NAMESPACE = "your own (default) or the shared one, as a list of its parts"


def namespaces_in(store_location: str, workspace: str, agent: str) -> tuple[Namespace, Namespace]:
    """Return the agent's own namespace and its workspace's shared namespace in a store. Several hives may share a PostgreSQL
    database, so an agent's own namespace in a database contains the workspace."""
    return ("memories", f"{agent}@{workspace}" if is_postgres(store_location) else agent), ("shared", workspace)


def namespaces_of(hive: Parts, agent: str) -> tuple[Namespace, Namespace]:
    """Return the two namespaces that an agent may use: its own, and the shared namespace of its workspace."""
    return namespaces_in(hive.config.memory or "", hive.config.workspace, agent)


def check_namespace(hive: Parts, agent: str, namespace: Sequence[str]) -> Namespace:
    """Return the namespace as a tuple. Raises NamespaceForbidden if the agent may not use it."""
    namespaces = namespaces_of(hive, agent)
    if tuple(namespace) not in namespaces:
        raise NamespaceForbidden(
            f"{agent} may not use the namespace {list(namespace)!r}",
            remedy=f"it may use {' and '.join(json.dumps(list(permitted)) for permitted in namespaces)}",
        )
    return tuple(namespace)


def run_with_repair(hive: Parts, use: Callable[[], _T]) -> _T:
    """Call `use` and return its result. If the memory database is damaged, restore the database and call `use` again."""
    try:
        return use()
    except StoreDamaged as error:
        _log.warning("%s", error)
        for line in restore(hive.memory, hive.layout.backups, hive.layout.aside, _log.info):
            _log.warning("%s", line)
        return use()


class Remember(Arguments):
    content: str = Field(min_length=1, description="one fact, in words that will be understood later without context")
    key: str | None = Field(None, description="a name for the memory; an entry with this key is replaced")
    metadata: dict[str, Any] | None = None
    speaker: str | None = Field(None, description="the person who stated it, if not you")
    category: str | None = Field(None, description="for example preference, fact, goal, context")
    importance: float | None = Field(None, ge=0, le=1)
    expires_at: datetime | None = None
    shared: bool = Field(False, description="true: for all agents of the workspace")
    namespace: list[str] | None = Field(None, description=_NAMESPACE)


class SearchMemory(Arguments):
    query: str = Field(min_length=1)
    limit: int = Field(8, ge=1, le=20)
    namespace: list[str] | None = Field(None, description="one of your two namespaces; default: both")


class Recall(Arguments):
    question: str = Field(min_length=1)
    tokens: int = Field(2_000, ge=200, le=4_000, description="the most text to return, in tokens")


def _remember_text(result: Mapping[str, Any]) -> str:
    return f"{result['action']}: {result['key']}{'' if result['success'] else ' (not kept)'}: {result['message']}"


@tool(text=_remember_text)
def remember(context: ToolContext, arguments: Remember) -> dict[str, Any]:
    """Remember something for later tasks: a preference, a fact, a decision. A memory that exists already is not stored twice."""
    hive = context.hive
    own_namespace, shared_namespace = namespaces_of(hive, context.agent)
    namespace = shared_namespace if arguments.shared else own_namespace
    if arguments.namespace is not None:
        namespace = check_namespace(hive, context.agent, arguments.namespace)
    author = "" if namespace == own_namespace else context.agent  # its own namespace names the agent already
    upsert = partial(
        hive.memory.upsert_memory,
        namespace,
        arguments.content,
        arguments.metadata,
        arguments.key,
        category=arguments.category,
        importance=arguments.importance,
        expires_at=arguments.expires_at,
        provenance=provenance(arguments.content, author, author=arguments.speaker, session=context.focus.id or None),
    )
    result = run_with_repair(hive, upsert)
    return {
        "success": result.success, "memory_id": result.memory_id, "action": result.action, "key": result.key,
        "namespace": list(namespace), "message": result.message,
    }  # fmt: skip


def _memories_text(result: Mapping[str, Any]) -> str:
    lines = [f"{memory['key']} ({memory['updated_at'][:10]}): {memory['content']}" for memory in result["memories"]]
    return "\n".join(lines) or "no memories about that"


@tool(text=_memories_text, is_read_only=True)
def search_memory(context: ToolContext, arguments: SearchMemory) -> dict[str, Any]:
    """Search your memories and your workspace's memories, by words and by meaning, best first."""
    hive = context.hive
    namespaces = list(namespaces_of(hive, context.agent))
    if arguments.namespace is not None:
        namespaces = [check_namespace(hive, context.agent, arguments.namespace)]
    hits = run_with_repair(hive, lambda: hive.memory.search_in(namespaces, arguments.query, limit=arguments.limit))
    return {
        "memories": [
            {
                "namespace": list(hit.namespace), "key": hit.key, "content": hit.content, "metadata": dict(hit.metadata),
                "category": hit.category, "updated_at": hit.updated_at.isoformat(timespec="seconds"),
                "similarity": round(hit.similarity, 4), "score": round(hit.score, 4), "why": hit.why,
            }
            for hit in hits
        ]
    }  # fmt: skip


def _recall_text(result: Mapping[str, Any]) -> str:
    return str(result.get("text") or "the hive knows nothing else about that")


@tool(text=_recall_text, is_read_only=True)
def recall(context: ToolContext, arguments: Recall) -> dict[str, Any]:
    """Search everything that the hive knows about a question and that you do not see here: documents, memories, your mail, cards
    of this task and of others, earlier folded turns. Each text has its source."""
    if context.recall is None:
        raise ToolProblem("only an agent at work can recall", remedy="use search_memory or doc_find")
    tokens = min(arguments.tokens, result_limit(context.config.max_tokens) // 4)
    return dict(context.recall(arguments.question, tokens))


MEMORY_TOOLS = (remember, search_memory, recall)
