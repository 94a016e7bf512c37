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
from hivemind.longterm.errors import EntryInvalid
from hivemind.longterm.filters import COMPARISONS
from hivemind.longterm.store import MemoryStore

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"$eq": operator.eq, "$ne": operator.ne, **COMPARISONS}


def check_labels(op: Op) -> None:
    """Raise an error if an operation is invalid.

    This is InvalidNamespaceError if LangGraph does not allow the operation's namespace, EntryInvalid if its value is
    not a dictionary. LangGraph's own methods check namespaces before they create operations, but `batch` receives
    unchecked operations.
    """
    namespaces: list[tuple[str, ...]] = []
    if isinstance(op, GetOp | PutOp):
        namespaces = [op.namespace]
    elif isinstance(op, SearchOp):
        namespaces = [op.namespace_prefix]
    elif isinstance(op, ListNamespacesOp):
        namespaces = [tuple(condition.path) for condition in op.match_conditions or ()]
    if isinstance(op, PutOp) and not isinstance(op.value, dict | None):
        raise EntryInvalid(f"a value must be a dictionary, not {type(op.value).__name__}", location=op.key)
    for namespace in namespaces:
        for label in namespace:
            if not isinstance(label, str) or not label.strip() or "." in label or "\0" in label:
                raise InvalidNamespaceError(
                    f"{label!r} is not a valid label (in namespace {namespace!r}): use a string without periods"
                )


def matches_filter(value: Mapping[str, Any], conditions: Mapping[str, Any] | None) -> bool:
    """Return True if an item's value satisfies all conditions (None: no condition). A condition's name is a key or a dotted path.

    A condition is a value, a mapping of nested conditions or a mapping of operators. Raises ValueError for an unknown
    operator.
    """
    return all(_satisfies(_value_at(value, name), condition) for name, condition in (conditions or {}).items())


def _value_at(value: Mapping[str, Any], name: str) -> Any:
    if name in value or "." not in name:
        return value.get(name)
    first, _, remainder = name.partition(".")
    nested = value.get(first)
    return _value_at(nested, remainder) if isinstance(nested, Mapping) else None


def _satisfies(value: Any, condition: Any) -> bool:
    if isinstance(condition, Mapping):
        if any(name.startswith("$") for name in condition):
            return all(_compare(value, name, operand) for name, operand in condition.items())
        return isinstance(value, Mapping) and all(_satisfies(value.get(name), part) for name, part in condition.items())
    if isinstance(condition, list | tuple):
        is_same_length = isinstance(value, list | tuple) and len(value) == len(condition)
        return is_same_length and all(_satisfies(element, part) for element, part in zip(value, condition, strict=True))
    return bool(value == condition)


def _compare(value: Any, name: str, operand: Any) -> bool:
    if name not in _OPERATORS:
        raise ValueError(f"Unsupported operator: {name}")
    if name in ("$eq", "$ne"):
        return _OPERATORS[name](value, operand)
    try:
        return _OPERATORS[name](float(value), float(operand))
    except (TypeError, ValueError):  # not numbers: two strings can be compared
        return isinstance(value, str) and isinstance(operand, str) and _OPERATORS[name](value, operand)
    except OverflowError:  # too large for a float: compare as integers
        return isinstance(value, int) and _OPERATORS[name](value, operand)


def matches_condition(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Return True if a namespace begins or ends as a condition demands. In the condition, `*` matches any label. Raises
    ValueError."""
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    part = (
        namespace[: len(path)] if condition.match_type == "prefix" else namespace[max(0, len(namespace) - len(path)) :]
    )
    return len(part) == len(path) and all(pattern in ("*", label) for label, pattern in zip(part, path, strict=True))


_ITEMS, _PARTS = "langgraph", "langgraph.parts"
_PROVENANCE = ("speaker", "session", "time")  # the ranking uses these fields of a value
_BATCH_SIZE = 100  # puts per transaction
_NO_LIMIT = 1 << 40
_SWEEP_MINUTES = 5.0
_BLOCKS_LOOP = (
    "a synchronous call of HivemindStore blocks the event loop of this thread; await the asynchronous form"
    " (aput, aget, asearch, adelete, abatch)"
)
_log = logging.getLogger(__name__)

Namespace = tuple[str, ...]


class HivemindStore(BaseStore):
    """LangGraph's `BaseStore`, with items as entries of long-term memory: on disk, safe for many processes.

    If `store` has an embedder, it embeds the texts at the paths `fields` of an item's value (`$`, the default, is the
    whole value as JSON). `ttl` is LangGraph's configuration of lifetimes. A query searches by words and meaning, with
    `mode="vector"` by meaning only. A value must be a JSON object of at most 64 KiB; a key must have 1 to 256
    characters.
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
        self._refreshes_on_read = bool(ttl and ttl.get("refresh_on_read"))  # as in LangGraph's own stores
        self._sweeper: threading.Thread | None = None
        self._stop_sweeping = threading.Event()
        self._paths = [path if path == "$" else tokenize_path(path) for path in fields or ["$"]]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations; return their results in order. Reads see the state before the batch.

        Of several puts of one item, only the last is stored. Issues a RuntimeWarning if this call blocks an event
        loop in its thread.
        """
        with suppress(RuntimeError):  # no event loop runs
            asyncio.get_running_loop()
            warnings.warn(_BLOCKS_LOOP, RuntimeWarning, stacklevel=3)
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
        """Perform operations as `batch` does, in a worker thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete expired items, which reads never return; return how many entries were deleted."""
        return self.store.purge()

    def start_ttl_sweeper(self, sweep_interval_minutes: int | float | None = None) -> threading.Thread:
        """Start a thread that calls `sweep_ttl` at this interval until `stop_ttl_sweeper`, and return it. If it runs
        already, only return it.

        If the interval is None, it is the configured one, or else 5 minutes.
        """
        if self._sweeper is None or not self._sweeper.is_alive():
            minutes = sweep_interval_minutes or (self.ttl_config or {}).get("sweep_interval_minutes") or _SWEEP_MINUTES
            self._stop_sweeping.clear()
            self._sweeper = threading.Thread(target=self._sweep, args=(60 * minutes,), daemon=True, name="ttl-sweeper")
            self._sweeper.start()
        return self._sweeper

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the thread that deletes expired items. Return False if it still runs after `timeout` seconds (None: wait
        without limit)."""
        self._stop_sweeping.set()
        if self._sweeper is not None:
            self._sweeper.join(timeout)
        return self._sweeper is None or not self._sweeper.is_alive()

    def _sweep(self, seconds: float) -> None:
        while not self._stop_sweeping.wait(seconds):
            try:
                self.sweep_ttl()
            except UserError as error:  # the next sweep may succeed
                _log.warning("expired entries were not deleted: %s", error)

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            entry = self.store.get((_ITEMS, *op.namespace), op.key)
            if entry is not None and op.refresh_ttl and self._refreshes_on_read:
                self._extend_lifetime([entry])
            return None if entry is None else Item(**_fields(entry))
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise ValueError(f"Unknown operation type: {type(op)}")

    # reading

    def _search(self, op: SearchOp) -> list[SearchItem]:
        end = op.offset + op.limit
        scored_entries: list[tuple[float | None, MemoryEntry]] = []
        if op.query and self.store.embeddings.embedder is not None:
            scored_entries = list(self._nearest_items(op, end))
        if len(scored_entries) < end:
            known_items = {(entry.namespace, entry.key) for _, entry in scored_entries}
            remaining = (entry for entry in self._all(op, end) if (entry.namespace, entry.key) not in known_items)
            scored_entries += [
                (None, entry) for entry, _ in zip(remaining, range(end - len(scored_entries)), strict=False)
            ]
        page = scored_entries[op.offset : end]
        if op.refresh_ttl and self._refreshes_on_read:
            self._extend_lifetime([entry for _, entry in page])
        return [SearchItem(**_fields(entry), score=score) for score, entry in page]

    def _all(self, op: SearchOp, needed: int) -> Iterator[MemoryEntry]:
        """Yield the items below the prefix that satisfy the filter, the last changed first: at least `needed` items if
        there are so many."""
        limit = _NO_LIMIT if op.filter or op.query else needed
        entries = self.store.search((_ITEMS, *op.namespace_prefix), "", limit=limit, prefix=True)
        return (entry for entry in entries if matches_filter(entry.metadata["value"], op.filter))

    def _nearest_items(self, op: SearchOp, needed: int) -> Iterator[tuple[float, MemoryEntry]]:
        """Yield (score, item) of the items nearest to the query in meaning, best first, at most `needed`."""
        limit = 4 * needed
        while True:
            parts = self._parts(op, limit)
            items = list(self._best_items(op, parts))
            if len(items) >= needed or len(parts) < limit:
                yield from items[:needed]
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

    def _best_items(self, op: SearchOp, parts: Sequence[Any]) -> Iterator[tuple[float, MemoryEntry]]:
        best: dict[tuple[Namespace, str], float] = {}
        for part in parts:
            best.setdefault(((_ITEMS, *part.namespace[1:]), part.metadata["of"]), part.score)
        for (namespace, key), score in best.items():
            entry = self.store.get(namespace, key)
            if entry is not None and matches_filter(entry.metadata["value"], op.filter):
                yield score, entry

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        namespaces = [namespace[1:] for namespace in self.store.namespaces((_ITEMS,))]
        matching = [
            namespace
            for namespace in namespaces
            if all(matches_condition(namespace, condition) for condition in op.match_conditions or ())
        ]
        if op.max_depth is not None:
            matching = sorted({namespace[: op.max_depth] for namespace in matching})
        return matching[op.offset : op.offset + op.limit]

    # writing

    def _put_all(self, puts: Sequence[PutOp]) -> None:
        for start in range(0, len(puts), _BATCH_SIZE):
            batch = [(op, self._texts(op)) for op in puts[start : start + _BATCH_SIZE]]
            self.store.embed_ahead(text for _, texts in batch for text in texts)
            with self.store.database.write():
                for op, texts in batch:
                    self._put(op, texts)

    def _texts(self, op: PutOp) -> list[str]:
        """Return the texts of an item to embed: the distinct, non-blank texts at the item's paths; [] without an embedder."""
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

    def _extend_lifetime(self, entries: Sequence[MemoryEntry]) -> None:
        """Set the expiry of items that were just read to their `ttl` (in minutes) from now. Items without a `ttl` never
        expire."""
        for entry in entries:
            if entry.metadata["ttl"] is not None:
                expires = self.store.now() + timedelta(minutes=entry.metadata["ttl"])
                self.store.expire(entry.namespace, entry.key, expires)
                for number in range(entry.metadata["parts"]):
                    self.store.expire((_PARTS, *entry.namespace[1:]), _part(entry.key, number), expires)


def _part(key: str, number: int) -> str:
    """Return the key of the entry that holds the text with this number of the item `key`."""
    return f"{hashlib.sha256(key.encode()).hexdigest()}.{number}"


def _fields(entry: MemoryEntry) -> dict[str, Any]:
    """Return the fields of LangGraph's `Item` for an entry."""
    return {
        "value": dict(entry.metadata["value"]),
        "key": entry.key,
        "namespace": entry.namespace[1:],
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
    }
