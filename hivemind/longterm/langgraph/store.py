"""HivemindStore: a `BaseStore` of LangGraph over a MemoryStore, so that it can stand under an existing graph."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import operator
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    tokenize_path,
)

from hivemind.embedding import EmbedderUnavailable
from hivemind.errors import UserError
from hivemind.longterm.entry import MemoryEntry
from hivemind.longterm.filters import ORDERED
from hivemind.longterm.store import MemoryStore

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"$eq": operator.eq, "$ne": operator.ne, **ORDERED}


def check_labels(op: Op) -> None:
    """Raise InvalidNamespaceError for an operation on a namespace that LangGraph does not allow.

    Its methods look at that before they make operations; `batch` is given operations as they are.
    """
    named: list[tuple[str, ...]] = []
    if isinstance(op, GetOp | PutOp):
        named = [op.namespace]
    elif isinstance(op, SearchOp):
        named = [op.namespace_prefix]
    elif isinstance(op, ListNamespacesOp):
        named = [tuple(condition.path) for condition in op.match_conditions or ()]
    for namespace in named:
        for label in namespace:
            if not isinstance(label, str) or not label.strip() or "." in label or "\0" in label:
                raise InvalidNamespaceError(
                    f"{label!r} is no label of a namespace (in {namespace!r}): a text without periods"
                )


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether an item's value has what a filter asks for: names as they are, else as paths with dots.

    A mapping asks for what is in it, or compares by operators. Raises ValueError for an operator that is not known.
    """
    return all(_has(_at(value, name), asked) for name, asked in (wanted or {}).items())


def _at(value: Mapping[str, Any], name: str) -> Any:
    if name in value or "." not in name:
        return value.get(name)
    first, _, rest = name.partition(".")
    below = value.get(first)
    return _at(below, rest) if isinstance(below, Mapping) else None


def _has(found: Any, asked: Any) -> bool:
    if isinstance(asked, Mapping):
        if any(name.startswith("$") for name in asked):
            return all(_compares(found, name, operand) for name, operand in asked.items())
        return isinstance(found, Mapping) and all(_has(found.get(name), part) for name, part in asked.items())
    if isinstance(asked, list | tuple):
        same = isinstance(found, list | tuple) and len(found) == len(asked)
        return same and all(_has(one, part) for one, part in zip(found, asked, strict=True))
    return bool(found == asked)


def _compares(found: Any, name: str, operand: Any) -> bool:
    if name not in _OPERATORS:
        raise ValueError(f"Unsupported operator: {name}")
    if name in ("$eq", "$ne"):
        return _OPERATORS[name](found, operand)
    try:
        return _OPERATORS[name](float(found), float(operand))
    except (TypeError, ValueError):  # no numbers: texts have an order, too
        return isinstance(found, str) and isinstance(operand, str) and _OPERATORS[name](found, operand)
    except OverflowError:  # beyond what a float can be; whole numbers know no bound
        return isinstance(found, int) and _OPERATORS[name](found, operand)


def matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Whether a namespace begins or ends as a condition says; `*` stands for any part. Raises ValueError."""
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    part = (
        namespace[: len(path)] if condition.match_type == "prefix" else namespace[max(0, len(namespace) - len(path)) :]
    )
    return len(part) == len(path) and all(asked in ("*", found) for found, asked in zip(part, path, strict=True))


_ITEMS, _PARTS = "langgraph", "langgraph.parts"
_PROVENANCE = ("speaker", "session", "time")  # of a value: search goes by them
_AT_ONCE = 100  # puts in one transaction
_ALL = 1 << 40
_SWEEP_MINUTES = 5.0
_HOLDS_UP = (
    "a synchronous call of HivemindStore holds up the event loop that runs in this thread; await its asynchronous form"
    " (aput, aget, asearch, adelete, abatch)"
)
_log = logging.getLogger(__name__)

Namespace = tuple[str, ...]


class HivemindStore(BaseStore):
    """Items of LangGraph in long-term memory: on disk, safe for many processes, with vectors where `store` embeds.

    `fields` are the paths of a value whose texts are embedded (`$`: all of it as JSON); `ttl` is LangGraph's own. A query is
    answered by words and meaning together, with `mode="vector"` by meaning alone. A value
    is a JSON object of at most 64 KiB; a key has 1 to 256 characters. In a batch, reads see what was there before it.
    """

    supports_ttl = True

    def __init__(
        self,
        store: MemoryStore,
        *,
        fields: Sequence[str] | None = None,
        ttl: TTLConfig | None = None,
        mode: Literal["hybrid", "vector"] = "hybrid",
    ) -> None:
        self.store = store
        self._mode = mode
        self.ttl_config = ttl
        self._renews = bool(ttl and ttl.get("refresh_on_read"))  # as LangGraph's own stores have it
        self._sweeper: threading.Thread | None = None
        self._swept_enough = threading.Event()
        self._paths = [path if path == "$" else tokenize_path(path) for path in fields or ["$"]]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several operations; returns what each returns, in their order. Of several puts of one item the last counts.

        Warns where an event loop runs in this thread: it stands still meanwhile.
        """
        with suppress(RuntimeError):  # there is none
            asyncio.get_running_loop()
            warnings.warn(_HOLDS_UP, RuntimeWarning, stacklevel=3)
        results: list[Result] = []
        puts: dict[tuple[Namespace, str], PutOp] = {}
        asked = list(ops)
        for op in asked:
            check_labels(op)
        for op in asked:
            if isinstance(op, PutOp):
                puts[op.namespace, op.key] = op
                results.append(None)
            else:
                results.append(self._read(op))
        self._put_all(list(puts.values()))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same, in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete what has expired; returns how many entries. It is not found any more anyway."""
        return self.store.purge()

    def start_ttl_sweeper(self, sweep_interval_minutes: int | float | None = None) -> threading.Thread:
        """Sweep in the background, each so many minutes (else the configuration's, else 5), until `stop_ttl_sweeper`."""
        if self._sweeper is None or not self._sweeper.is_alive():
            minutes = sweep_interval_minutes or (self.ttl_config or {}).get("sweep_interval_minutes") or _SWEEP_MINUTES
            self._swept_enough.clear()
            self._sweeper = threading.Thread(target=self._sweep, args=(60 * minutes,), daemon=True, name="ttl-sweeper")
            self._sweeper.start()
        return self._sweeper

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End it; False if it has not ended within `timeout` seconds."""
        self._swept_enough.set()
        if self._sweeper is not None:
            self._sweeper.join(timeout)
        return self._sweeper is None or not self._sweeper.is_alive()

    def _sweep(self, seconds: float) -> None:
        while not self._swept_enough.wait(seconds):
            try:
                self.sweep_ttl()
            except UserError as error:  # the boundary of a thread: the next time may do
                _log.warning("nothing was swept: %s", error)

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            entry = self.store.get((_ITEMS, *op.namespace), op.key)
            if entry is not None and op.refresh_ttl and self._renews:
                self._live_on([entry])
            return None if entry is None else Item(**_fields(entry))
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise ValueError(f"Unknown operation type: {type(op)}")

    # reading

    def _search(self, op: SearchOp) -> list[SearchItem]:
        wanted = op.offset + op.limit
        scored: list[tuple[float | None, MemoryEntry]] = []
        if op.query and self.store.embeddings.embedder is not None:
            scored = list(self._near(op, wanted))
        if len(scored) < wanted:
            known = {(entry.namespace, entry.key) for _, entry in scored}
            rest = (entry for entry in self._all(op, wanted) if (entry.namespace, entry.key) not in known)
            scored += [(None, entry) for entry, _ in zip(rest, range(wanted - len(scored)), strict=False)]
        shown = scored[op.offset : wanted]
        if op.refresh_ttl and self._renews:
            self._live_on([entry for _, entry in shown])
        return [SearchItem(**_fields(entry), score=score) for score, entry in shown]

    def _all(self, op: SearchOp, wanted: int) -> Iterator[MemoryEntry]:
        """The items below the prefix that fit the filter, what changed last first."""
        limit = _ALL if op.filter or op.query else wanted
        entries = self.store.search((_ITEMS, *op.namespace_prefix), "", limit=limit, prefix=True)
        return (entry for entry in entries if fits(entry.metadata["value"], op.filter))

    def _near(self, op: SearchOp, wanted: int) -> Iterator[tuple[float, MemoryEntry]]:
        """(score, item) of the `wanted` items nearest to the query, best first."""
        reach = 4 * wanted
        while True:
            parts = self._parts(op, reach)
            found = list(self._pooled(op, parts))
            if len(found) >= wanted or len(parts) < reach:
                yield from found[:wanted]
                return
            reach *= 8

    def _parts(self, op: SearchOp, limit: int) -> Sequence[Any]:
        where, query = (_PARTS, *op.namespace_prefix), op.query or ""
        if self._mode == "hybrid":  # where the embedder fails, by words alone
            return self.store.search(where, query, -1.0, limit, prefix=True)
        try:
            return self.store.search(where, query, -1.0, limit, mode="vector", prefix=True)
        except EmbedderUnavailable:
            return self.store.search(where, query, limit=limit, mode="text", prefix=True)

    def _pooled(self, op: SearchOp, parts: Sequence[Any]) -> Iterator[tuple[float, MemoryEntry]]:
        best: dict[tuple[Namespace, str], float] = {}
        for part in parts:
            best.setdefault(((_ITEMS, *part.namespace[1:]), part.metadata["of"]), part.score)
        for (namespace, key), score in best.items():
            entry = self.store.get(namespace, key)
            if entry is not None and fits(entry.metadata["value"], op.filter):
                yield score, entry

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        found = [namespace[1:] for namespace in self.store.namespaces((_ITEMS,))]
        kept = [one for one in found if all(matches(one, condition) for condition in op.match_conditions or ())]
        if op.max_depth is not None:
            kept = sorted({one[: op.max_depth] for one in kept})
        return kept[op.offset : op.offset + op.limit]

    # writing

    def _put_all(self, puts: Sequence[PutOp]) -> None:
        for at in range(0, len(puts), _AT_ONCE):
            some = [(op, self._texts(op)) for op in puts[at : at + _AT_ONCE]]
            self.store.embed_ahead(text for _, texts in some for text in texts)
            with self.store.database.write():
                for op, texts in some:
                    self._put(op, texts)

    def _texts(self, op: PutOp) -> list[str]:
        """What is embedded of an item: the texts at its paths, each once, without blank ones."""
        if op.value is None or op.index is False or self.store.embeddings.embedder is None:
            return []
        paths = self._paths if op.index is None else [tokenize_path(path) for path in op.index]
        texts = (text for path in paths for text in get_text_at_path(op.value, path))
        return [self.store.fitting(text) for text in dict.fromkeys(texts) if text.strip()]

    def _put(self, op: PutOp, texts: Sequence[str]) -> None:
        where, parts = (_ITEMS, *op.namespace), (_PARTS, *op.namespace)
        old = self.store.get(where, op.key)
        for number in range(len(texts), 0 if old is None else old.metadata["parts"]):
            self.store.delete(parts, _part(op.key, number))
        if op.value is None:
            self.store.delete(where, op.key)
            return
        expires = None if op.ttl is None else self.store.now() + timedelta(minutes=op.ttl)
        told: dict[str, Any] = {
            name: op.value[name] for name in _PROVENANCE if isinstance(op.value.get(name), str | int)
        }
        for number, text in enumerate(texts):
            entry = {"content": text, "metadata": {**told, "of": op.key}, "expires_at": expires}
            self.store.put(parts, _part(op.key, number), entry)
        content = self.store.fitting(json.dumps(op.value, ensure_ascii=False, default=str))
        told = {"value": dict(op.value), "parts": len(texts), "ttl": op.ttl}
        self.store.put(where, op.key, {"content": content, "metadata": told, "expires_at": expires}, embed=False)

    def _live_on(self, entries: Sequence[MemoryEntry]) -> None:
        """Items that were read live their time anew."""
        for entry in entries:
            if entry.metadata["ttl"] is not None:
                expires = self.store.now() + timedelta(minutes=entry.metadata["ttl"])
                self.store.expire(entry.namespace, entry.key, expires)
                for number in range(entry.metadata["parts"]):
                    self.store.expire((_PARTS, *entry.namespace[1:]), _part(entry.key, number), expires)


def _part(key: str, number: int) -> str:
    """The key of one of an item's texts."""
    return f"{hashlib.sha256(key.encode()).hexdigest()}.{number}"


def _fields(entry: MemoryEntry) -> dict[str, Any]:
    """What an item says, by the names that LangGraph has for it."""
    return {
        "value": dict(entry.metadata["value"]),
        "key": entry.key,
        "namespace": entry.namespace[1:],
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
    }
