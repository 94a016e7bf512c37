"""`HivemindStore`: LangGraph's `BaseStore` on top of a MemoryStore, for use in existing graphs."""

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
from hivemind.longterm.filters import COMPARISONS
from hivemind.longterm.store import MemoryStore

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"$eq": operator.eq, "$ne": operator.ne, **COMPARISONS}


def check_labels(op: Op) -> None:
    """Raise InvalidNamespaceError for an operation on a namespace that LangGraph does not allow.

    LangGraph's own methods check this before they create operations, but `batch` receives unchecked ones.
    """
    namespaces: list[tuple[str, ...]] = []
    if isinstance(op, GetOp | PutOp):
        namespaces = [op.namespace]
    elif isinstance(op, SearchOp):
        namespaces = [op.namespace_prefix]
    elif isinstance(op, ListNamespacesOp):
        namespaces = [tuple(condition.path) for condition in op.match_conditions or ()]
    for namespace in namespaces:
        for label in namespace:
            if not isinstance(label, str) or not label.strip() or "." in label or "\0" in label:
                raise InvalidNamespaceError(
                    f"{label!r} is not a valid label (in namespace {namespace!r}): use a string without periods"
                )


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether an item's value satisfies a filter. A name may be a key or a dotted path.

    A condition is a value, a mapping of nested conditions or a mapping of operators. Raises ValueError for an unknown
    operator.
    """
    return all(_has(_at(value, name), condition) for name, condition in (wanted or {}).items())


def _at(value: Mapping[str, Any], name: str) -> Any:
    if name in value or "." not in name:
        return value.get(name)
    first, _, remainder = name.partition(".")
    nested = value.get(first)
    return _at(nested, remainder) if isinstance(nested, Mapping) else None


def _has(found: Any, asked: Any) -> bool:
    if isinstance(asked, Mapping):
        if any(name.startswith("$") for name in asked):
            return all(_compares(found, name, operand) for name, operand in asked.items())
        return isinstance(found, Mapping) and all(_has(found.get(name), part) for name, part in asked.items())
    if isinstance(asked, list | tuple):
        is_same_length = isinstance(found, list | tuple) and len(found) == len(asked)
        return is_same_length and all(_has(element, part) for element, part in zip(found, asked, strict=True))
    return bool(found == asked)


def _compares(found: Any, name: str, operand: Any) -> bool:
    if name not in _OPERATORS:
        raise ValueError(f"Unsupported operator: {name}")
    if name in ("$eq", "$ne"):
        return _OPERATORS[name](found, operand)
    try:
        return _OPERATORS[name](float(found), float(operand))
    except (TypeError, ValueError):  # not numbers: strings are compared, too
        return isinstance(found, str) and isinstance(operand, str) and _OPERATORS[name](found, operand)
    except OverflowError:  # too large for a float: compare as integers
        return isinstance(found, int) and _OPERATORS[name](found, operand)


def matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Return whether a namespace has the prefix or suffix of a condition; `*` matches any label. Raises ValueError."""
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    part = (
        namespace[: len(path)] if condition.match_type == "prefix" else namespace[max(0, len(namespace) - len(path)) :]
    )
    return len(part) == len(path) and all(pattern in ("*", label) for label, pattern in zip(part, path, strict=True))


_ITEMS, _PARTS = "langgraph", "langgraph.parts"
_PROVENANCE = ("speaker", "session", "time")  # fields of a value that the ranking uses
_AT_ONCE = 100  # puts in one transaction
_ALL = 1 << 40
_SWEEP_MINUTES = 5.0
_HOLDS_UP = (
    "a synchronous call of HivemindStore blocks the event loop of this thread; await the asynchronous form"
    " (aput, aget, asearch, adelete, abatch)"
)
_log = logging.getLogger(__name__)

Namespace = tuple[str, ...]


class HivemindStore(BaseStore):
    """LangGraph's items in long-term memory: on disk, safe for many processes, with vectors if `store` has an embedder.

    `fields` are the paths of a value whose texts are embedded (`$`: the whole value as JSON); `ttl` is LangGraph's
    configuration. A query searches words and meaning, with `mode="vector"` meaning only. A value is a JSON object of at
    most 64 KiB; a key has 1 to 256 characters. Reads of a batch see the state before the batch.
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
        self._renews = bool(ttl and ttl.get("refresh_on_read"))  # as in LangGraph's own stores
        self._sweeper: threading.Thread | None = None
        self._swept_enough = threading.Event()
        self._paths = [path if path == "$" else tokenize_path(path) for path in fields or ["$"]]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations and return their results in order. Of several puts of one item only the last is stored.

        Warns if an event loop runs in this thread, since the call blocks it.
        """
        with suppress(RuntimeError):  # no event loop runs
            asyncio.get_running_loop()
            warnings.warn(_HOLDS_UP, RuntimeWarning, stacklevel=3)
        results: list[Result] = []
        puts: dict[tuple[Namespace, str], PutOp] = {}
        operations = list(ops)
        for op in operations:
            check_labels(op)
        for op in operations:
            if isinstance(op, PutOp):
                puts[op.namespace, op.key] = op
                results.append(None)
            else:
                results.append(self._read(op))
        self._put_all(list(puts.values()))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in a worker thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete expired entries and return how many. Reads never return expired ones."""
        return self.store.purge()

    def start_ttl_sweeper(self, sweep_interval_minutes: int | float | None = None) -> threading.Thread:
        """Sweep in the background at this interval (default: the configuration's, or 5 minutes) until `stop_ttl_sweeper`."""
        if self._sweeper is None or not self._sweeper.is_alive():
            minutes = sweep_interval_minutes or (self.ttl_config or {}).get("sweep_interval_minutes") or _SWEEP_MINUTES
            self._swept_enough.clear()
            self._sweeper = threading.Thread(target=self._sweep, args=(60 * minutes,), daemon=True, name="ttl-sweeper")
            self._sweeper.start()
        return self._sweeper

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper. Return False if it still runs after `timeout` seconds."""
        self._swept_enough.set()
        if self._sweeper is not None:
            self._sweeper.join(timeout)
        return self._sweeper is None or not self._sweeper.is_alive()

    def _sweep(self, seconds: float) -> None:
        while not self._swept_enough.wait(seconds):
            try:
                self.sweep_ttl()
            except UserError as error:  # the next sweep may succeed
                _log.warning("expired entries were not deleted: %s", error)

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
        end = op.offset + op.limit
        scored: list[tuple[float | None, MemoryEntry]] = []
        if op.query and self.store.embeddings.embedder is not None:
            scored = list(self._near(op, end))
        if len(scored) < end:
            known_items = {(entry.namespace, entry.key) for _, entry in scored}
            remaining = (entry for entry in self._all(op, end) if (entry.namespace, entry.key) not in known_items)
            scored += [(None, entry) for entry, _ in zip(remaining, range(end - len(scored)), strict=False)]
        page = scored[op.offset : end]
        if op.refresh_ttl and self._renews:
            self._live_on([entry for _, entry in page])
        return [SearchItem(**_fields(entry), score=score) for score, entry in page]

    def _all(self, op: SearchOp, wanted: int) -> Iterator[MemoryEntry]:
        """Return the items below the prefix that satisfy the filter, last changed first."""
        limit = _ALL if op.filter or op.query else wanted
        entries = self.store.search((_ITEMS, *op.namespace_prefix), "", limit=limit, prefix=True)
        return (entry for entry in entries if fits(entry.metadata["value"], op.filter))

    def _near(self, op: SearchOp, wanted: int) -> Iterator[tuple[float, MemoryEntry]]:
        """Yield (score, item) of the `needed` items nearest to the query, best first."""
        limit = 4 * wanted
        while True:
            parts = self._parts(op, limit)
            items = list(self._pooled(op, parts))
            if len(items) >= wanted or len(parts) < limit:
                yield from items[:wanted]
                return
            limit *= 8

    def _parts(self, op: SearchOp, limit: int) -> Sequence[Any]:
        namespace, query = (_PARTS, *op.namespace_prefix), op.query or ""
        if self._mode == "hybrid":  # if the embedder fails, this searches words only
            return self.store.search(namespace, query, -1.0, limit, prefix=True)
        try:
            return self.store.search(namespace, query, -1.0, limit, mode="vector", prefix=True)
        except EmbedderUnavailable:
            return self.store.search(namespace, query, limit=limit, mode="text", prefix=True)

    def _pooled(self, op: SearchOp, parts: Sequence[Any]) -> Iterator[tuple[float, MemoryEntry]]:
        best: dict[tuple[Namespace, str], float] = {}
        for part in parts:
            best.setdefault(((_ITEMS, *part.namespace[1:]), part.metadata["of"]), part.score)
        for (namespace, key), score in best.items():
            entry = self.store.get(namespace, key)
            if entry is not None and fits(entry.metadata["value"], op.filter):
                yield score, entry

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        namespaces = [namespace[1:] for namespace in self.store.namespaces((_ITEMS,))]
        matching = [
            namespace
            for namespace in namespaces
            if all(matches(namespace, condition) for condition in op.match_conditions or ())
        ]
        if op.max_depth is not None:
            matching = sorted({namespace[: op.max_depth] for namespace in matching})
        return matching[op.offset : op.offset + op.limit]

    # writing

    def _put_all(self, puts: Sequence[PutOp]) -> None:
        for start in range(0, len(puts), _AT_ONCE):
            batch = [(op, self._texts(op)) for op in puts[start : start + _AT_ONCE]]
            self.store.embed_ahead(text for _, texts in batch for text in texts)
            with self.store.database.write():
                for op, texts in batch:
                    self._put(op, texts)

    def _texts(self, op: PutOp) -> list[str]:
        """Return the texts of an item to embed: the distinct, non-blank texts at its paths."""
        if op.value is None or op.index is False or self.store.embeddings.embedder is None:
            return []
        paths = self._paths if op.index is None else [tokenize_path(path) for path in op.index]
        texts = (text for path in paths for text in get_text_at_path(op.value, path))
        return [self.store.fitting(text) for text in dict.fromkeys(texts) if text.strip()]

    def _put(self, op: PutOp, texts: Sequence[str]) -> None:
        namespace, parts = (_ITEMS, *op.namespace), (_PARTS, *op.namespace)
        existing = self.store.get(namespace, op.key)
        for number in range(len(texts), 0 if existing is None else existing.metadata["parts"]):
            self.store.delete(parts, _part(op.key, number))
        if op.value is None:
            self.store.delete(namespace, op.key)
            return
        expires = None if op.ttl is None else self.store.now() + timedelta(minutes=op.ttl)
        metadata: dict[str, Any] = {
            name: op.value[name] for name in _PROVENANCE if isinstance(op.value.get(name), str | int)
        }
        for number, text in enumerate(texts):
            entry = {"content": text, "metadata": {**metadata, "of": op.key}, "expires_at": expires}
            self.store.put(parts, _part(op.key, number), entry)
        content = self.store.fitting(json.dumps(op.value, ensure_ascii=False, default=str))
        metadata = {"value": dict(op.value), "parts": len(texts), "ttl": op.ttl}
        self.store.put(
            namespace, op.key, {"content": content, "metadata": metadata, "expires_at": expires}, embed=False
        )

    def _live_on(self, entries: Sequence[MemoryEntry]) -> None:
        """Restart the lifetime of items that were read."""
        for entry in entries:
            if entry.metadata["ttl"] is not None:
                expires = self.store.now() + timedelta(minutes=entry.metadata["ttl"])
                self.store.expire(entry.namespace, entry.key, expires)
                for number in range(entry.metadata["parts"]):
                    self.store.expire((_PARTS, *entry.namespace[1:]), _part(entry.key, number), expires)


def _part(key: str, number: int) -> str:
    """Return the key of the entry of one of an item's texts."""
    return f"{hashlib.sha256(key.encode()).hexdigest()}.{number}"


def _fields(entry: MemoryEntry) -> dict[str, Any]:
    """Return an item's fields by LangGraph's names."""
    return {
        "value": dict(entry.metadata["value"]),
        "key": entry.key,
        "namespace": entry.namespace[1:],
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
    }
