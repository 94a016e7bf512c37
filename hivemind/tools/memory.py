"""Tools for long-term memory: an agent's own namespace, and the one that its workspace shares."""

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
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_NAMESPACE = "your own (default) or the shared one, as a list of its parts"


def namespaces_in(place: str, workspace: str, agent: str) -> tuple[Namespace, Namespace]:
    """The two namespaces that an agent of a workspace may use where its hive's memories are kept: its own, and the one that
    the workspace shares. A database may be that of several hives, and an agent's own memory is not that of its namesake."""
    return ("memories", f"{agent}@{workspace}" if is_postgres(place) else agent), ("shared", workspace)


def namespaces_of(hive: Parts, agent: str) -> tuple[Namespace, Namespace]:
    """The two namespaces that an agent of a hive may use: its own, and the one that the workspace shares."""
    return namespaces_in(hive.config.memory or "", hive.config.workspace, agent)


def allowed(hive: Parts, agent: str, namespace: Sequence[str]) -> Namespace:
    """The namespace, if the agent may use it. Raises NamespaceForbidden (seed 001, *Security & Privacy*)."""
    mine = namespaces_of(hive, agent)
    if tuple(namespace) not in mine:
        raise NamespaceForbidden(
            f"{agent} may not use the namespace {list(namespace)!r}",
            remedy=f"it has {' and '.join(json.dumps(list(one)) for one in mine)}",
        )
    return tuple(namespace)


def soundly(hive: Parts, use: Callable[[], _T]) -> _T:
    """What `use` returns; a damaged memory database is restored first: it must not stop every turn of every agent."""
    try:
        return use()
    except StoreDamaged as error:
        _log.warning("%s", error)
        for done in restore(hive.memory, hive.layout.backups, hive.layout.aside, _log.info):
            _log.warning("%s", done)
        return use()


class Remember(Arguments):
    content: str = Field(min_length=1, description="one fact, in words that will be understood later, alone")
    key: str | None = Field(None, description="a name for it; an entry with that key is replaced")
    metadata: dict[str, Any] | None = None
    speaker: str | None = Field(None, description="whose words it is, where not yours")
    category: str | None = Field(None, description="such as preference, fact, goal, context")
    importance: float | None = Field(None, ge=0, le=1)
    expires_at: datetime | None = None
    shared: bool = Field(False, description="for all agents of the workspace")
    namespace: list[str] | None = Field(None, description=_NAMESPACE)


class SearchMemory(Arguments):
    query: str = Field(min_length=1)
    limit: int = Field(8, ge=1, le=20)
    namespace: list[str] | None = Field(None, description="only this one of your two; default: both")


class Recall(Arguments):
    question: str = Field(min_length=1)
    tokens: int = Field(2_000, ge=200, le=4_000, description="at most so much text")


def _kept(result: Mapping[str, Any]) -> str:
    return f"{result['action']}: {result['key']}{'' if result['success'] else ' (not kept)'}: {result['message']}"


@tool(text=_kept)
def remember(session: Session, arguments: Remember) -> dict[str, Any]:
    """Keep something for later tasks: a preference, a fact, what was decided. What is known already is not kept twice."""
    hive = session.hive
    own, shared = namespaces_of(hive, session.agent)
    namespace = shared if arguments.shared else own
    if arguments.namespace is not None:
        namespace = allowed(hive, session.agent, arguments.namespace)
    by = "" if namespace == own else session.agent  # its own namespace says whose it is
    store = partial(
        hive.memory.upsert_memory,
        namespace,
        arguments.content,
        arguments.metadata,
        arguments.key,
        category=arguments.category,
        importance=arguments.importance,
        expires_at=arguments.expires_at,
        provenance=provenance(arguments.content, by, known=arguments.speaker, session=session.focus.id or None),
    )
    result = soundly(hive, store)
    return {
        "success": result.success, "memory_id": result.memory_id, "action": result.action, "key": result.key,
        "namespace": list(namespace), "message": result.message,
    }  # fmt: skip


def _remembered(result: Mapping[str, Any]) -> str:
    lines = [f"{one['key']} ({one['updated_at'][:10]}): {one['content']}" for one in result["memories"]]
    return "\n".join(lines) or "nothing is remembered about that"


@tool(text=_remembered, reads=True)
def search_memory(session: Session, arguments: SearchMemory) -> dict[str, Any]:
    """Find what you, or the agents of your workspace, have remembered: by words and by meaning, best first."""
    hive = session.hive
    namespaces = list(namespaces_of(hive, session.agent))
    if arguments.namespace is not None:
        namespaces = [allowed(hive, session.agent, arguments.namespace)]
    hits = soundly(hive, lambda: hive.memory.search_in(namespaces, arguments.query, limit=arguments.limit))
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


def _recalled(result: Mapping[str, Any]) -> str:
    return str(result.get("text") or "nothing more is known about that")


@tool(text=_recalled, reads=True)
def recall(session: Session, arguments: Recall) -> dict[str, Any]:
    """Find what the hive knows about a question, and you do not see here: documents, memories, your mail, cards of this task and
    of others, earlier turns that were folded. Each text has its source."""
    if session.recall is None:
        raise ToolProblem("only an agent that is at work can recall", remedy="search_memory, doc_find")
    tokens = min(arguments.tokens, result_limit(session.config.max_tokens) // 4)
    return dict(session.recall(arguments.question, tokens))


MEMORY_TOOLS = (remember, search_memory, recall)
