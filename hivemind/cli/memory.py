"""Remember, search, list and forget what lasts beyond a task.

A memory lies in a namespace: shared/WORKSPACE for all agents, memories/NAME for one agent or user (an agent's in
PostgreSQL: memories/NAME@WORKSPACE). Without --agent and --namespace, `search` and `list` look at all of them, the
others at the shared one.

examples:
  hivemind memory remember "The customer wants invoices as PDF" --key invoices
  hivemind memory search "how do invoices go out?"
  hivemind memory list --agent researcher
  hivemind memory forget invoices
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.command import Answer, Arg, Positive, Share, command
from hivemind.cli.opening import anywhere, known_name, look_at, open_hive
from hivemind.cli.output import progress, table_lines
from hivemind.cli.text import one_line
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hivemind.hive import Hive
    from hivemind.longterm import MemoryEntry, MemorySearchResult

_LISTED = ("namespace", "key", "updated", "content")
_OF_A_SEARCH = ("similarity", "score", "why", "confidence")
_FOUND = ("namespace", "key", "score", "similarity", "content", "why")
_VERSIONS = ("version", "updated", "content")


def _object(text: str) -> dict[str, Any]:
    try:
        with boundary("text of JSON"):
            found = json.loads(text)
    except Unreadable as error:
        raise argparse.ArgumentTypeError(f"that is no JSON ({error.__cause__})") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('that is no JSON object, such as {"customer": "Acme"}')
    return found


def _date(text: str) -> str:
    try:
        with boundary("date"):
            return datetime.fromisoformat(text).isoformat()
    except Unreadable:
        raise argparse.ArgumentTypeError("that is no date, such as 2026-05-31 or 2026-05-31T18:30") from None


def _duration(text: str) -> timedelta:
    from hivemind.tasks import parse_duration

    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@frozen(kw_only=True)
class Namespace:
    r"""Where a memory lies.

    arguments:
      --agent AGENT  the memory of one agent
      --namespace A/B  another namespace; a slash within a part is written \/
    """

    agent: Annotated[str | None, Arg(apart="whose")] = None
    namespace: Annotated[str | None, Arg(apart="whose")] = None

    def chosen(self, hive: Hive) -> tuple[str, ...] | None:
        """The namespace that the options name, or None."""
        from hivemind.longterm import check_namespace, named
        from hivemind.tools.memory import namespaces_of

        if self.agent is not None:
            return namespaces_of(hive, self.agent)[0]
        if self.namespace is None:
            return None
        parts = named(self.namespace)
        if len(parts) < 2:
            raise UserError(f"--namespace {self.namespace} has one part", mend="say whose, too, as in memories/ann")
        return check_namespace(parts)

    def one(self, hive: Hive) -> tuple[str, ...]:
        """The namespace that the options name, or the one that the workspace shares."""
        from hivemind.tools.memory import namespaces_of

        return self.chosen(hive) or namespaces_of(hive, HUMAN)[1]

    def entry(self, hive: Hive, key: str) -> MemoryEntry:
        """The entry of that key. Raises UserError if there is none."""
        namespace = self.one(hive)
        entry = hive.memory.get(namespace, key) if hive.memory.database.was_made else None
        if entry is None:
            raise _unknown(key, namespace)
        return entry


def _unknown(key: str, namespace: tuple[str, ...]) -> UserError:
    from hivemind.longterm import shown

    return UserError(f"there is no entry {key!r} in {shown(namespace)}", mend="`hivemind memory list` shows them all")


JsonObject = dict[str, Any]


@command("memory remember", open_hive)
def remember(
    hive: Hive,
    content: str,
    *,
    whose: Namespace,
    key: str | None = None,
    category: str | None = None,
    importance: Share | None = None,
    metadata: Annotated[JsonObject | None, Arg(read=_object)] = None,
    speaker: str | None = None,
    session: str | None = None,
    time: Annotated[str | None, Arg(read=_date)] = None,
    expires_in: Annotated[timedelta | None, Arg(read=_duration)] = None,
    allow_duplicate: bool = False,
) -> Answer:
    """Remember something.

    Without --key, what is already there is not stored again. With --key, the entry of that name is changed: options
    that are left out stay as they are, and its earlier versions are kept (`memory show`).

    arguments:
      TEXT  what is to be remembered, at most 2048 tokens
      --key KEY  its name, 1 to 256 characters (default: one is made)
      --category WORD  such as preference, fact, goal, context
      --importance N  0 to 1: how much it counts in a search
      --metadata JSON  anything else, as a JSON object
      --speaker NAME  whose words it is
      --session NAME  the talk it belongs to; its memories are linked in their order
      --time DATE  when it was said, as 2026-05-31 (default: now)
      --expires-in TIME  forget it after 2h, 3d, 4w
      --allow-duplicate  store it even if it is there already

    examples:
      hivemind memory remember "Ann prefers tea" --agent researcher --category preference
      hivemind memory remember "I moved to Graz" --speaker ann --session 2026-05-31 --time 2026-05-31
      hivemind memory remember "The gate code is 4711" --key gate --expires-in 2d --importance 0.9
    """
    from hivemind.longterm import provenance

    if whose.agent is not None:
        known_name(hive, whose.agent)
    namespace = whose.one(hive)
    result = hive.memory.upsert_memory(
        namespace,
        content,
        metadata,
        key,
        category=category,
        importance=importance,
        expires_at=None if expires_in is None else datetime.now(UTC) + expires_in,
        allow_duplicate=allow_duplicate,
        provenance=provenance(content, "", known=speaker, session=session, time=time),
    )
    line = f"{'/'.join(namespace)}: {one_line(result.message)}"
    return Answer({**asdict(result), "namespace": list(namespace)}, [line], 0 if result.success else 1)


@command("memory search", look_at)
def search(
    hive: Hive,
    query: str,
    *,
    whose: Namespace,
    mode: Literal["hybrid", "vector", "text"] = "hybrid",
    threshold: Share | None = None,
    category: str | None = None,
    metadata: Annotated[JsonObject | None, Arg(read=_object)] = None,
    limit: Positive = 10,
) -> Answer:
    """Find what is remembered, by words and by meaning.

    arguments:
      QUERY  words or a question; any characters
      --mode  default: hybrid
      --threshold N  only what is at least so similar, 0 to 1
      --category WORD  only this category
      --metadata JSON  only where these fields are so
      --limit N  at most so many (default: 10)

    examples:
      hivemind memory search "who likes tea?" --limit 3
      hivemind memory search invoice --mode text --metadata '{"customer": "Acme"}' --json
    """
    namespace = whose.chosen(hive)
    hits: Sequence[MemorySearchResult] = []
    if hive.memory.database.was_made:
        hits = hive.memory.search(
            namespace or (), query, threshold, limit,
            mode=mode, prefix=namespace is None, metadata=metadata, category=category,
        )  # fmt: skip
    rows = [
        _row(hit) | {"score": f"{hit.score:.2f}", "similarity": f"{hit.similarity:.2f}", "why": hit.why} for hit in hits
    ]
    return Answer([hit.as_dict() for hit in hits], table_lines(rows, _FOUND, empty="Nothing is remembered about that."))


@command("memory list", look_at)
def entries(hive: Hive, *, whose: Namespace, limit: Positive = 50) -> Answer:
    """List what is remembered, newest first.

    arguments:
      --limit N  at most so many (default: 50)

    examples:
      hivemind memory list
      hivemind memory list --agent researcher --limit 100
    """
    namespace = whose.chosen(hive)
    found: Sequence[MemoryEntry] = []
    if hive.memory.database.was_made:
        found = hive.memory.search(namespace or (), "", limit=limit, prefix=namespace is None)
    record = [{name: value for name, value in entry.as_dict().items() if name not in _OF_A_SEARCH} for entry in found]
    empty = "Nothing is remembered yet; `hivemind memory remember TEXT` keeps something."
    return Answer(record, table_lines(map(_row, found), _LISTED, empty=empty))


def _row(entry: MemoryEntry) -> dict[str, Any]:
    from hivemind.longterm import shown

    return {
        "namespace": one_line(shown(entry.namespace)),
        "key": one_line(entry.key),
        "version": entry.version,
        "updated": entry.updated_at.isoformat(" ", "minutes")[:16],
        "content": one_line(entry.content),
    }


@command("memory show", look_at)
def show(hive: Hive, key: str, *, whose: Namespace) -> Answer:
    """Show one entry, and its versions if there are several: they count from 1, the last one is how it stands.

    arguments:
      KEY  the entry's key

    examples:
      hivemind memory show invoices
    """
    entry = whose.entry(hive, key)
    versions = hive.memory.history(entry.namespace, entry.key)
    record = entry.as_dict()
    told = {name: value for name, value in record.items() if name != "content" and value not in (None, {}, False)}
    lines = [
        f"{name:<12}{one_line('/'.join(value) if isinstance(value, list) else str(value))}"
        for name, value in told.items()
    ]
    if len(versions) > 1:
        lines += ["", *table_lines(map(_row, versions), _VERSIONS, empty="")]
    return Answer({**record, "versions": [one.as_dict() for one in versions]}, [*lines, f"\n{entry.content}"])


@command("memory forget", open_hive)
def forget(hive: Hive, key: str | None = None, *, whose: Namespace, expired: bool = False) -> Answer:
    """Forget an entry for good, with its history.

    arguments:
      KEY  the entry's key
      --expired  instead: every expired entry, in all namespaces

    examples:
      hivemind memory forget invoices
      hivemind memory forget --expired
    """
    if expired == (key is not None):
        raise UserError("say which entry: a KEY, or --expired for all whose time is over")
    if key is None:
        count = hive.memory.purge() if hive.memory.database.was_made else 0
        said = "1 expired entry is forgotten" if count == 1 else f"{count:,} expired entries are forgotten"
        return Answer({"forgotten": count}, [said])
    namespace = whose.one(hive)
    if not hive.memory.delete(namespace, key):
        raise _unknown(key, namespace)
    return Answer({"forgotten": 1}, [f"{key!r} is forgotten"])


@command("memory status", look_at)
def status(hive: Hive) -> Answer:
    """Show how much is remembered, and how it is searched.

    examples:
      hivemind memory status --json
    """
    now = hive.memory.status()
    spaces = "namespace" if now.namespaces == 1 else "namespaces"
    lines = [
        f"Entries     {f'{now.entries:,} in {now.namespaces:,} {spaces}' if now.entries else 'none yet'}",
        f"Searched    {'by words only' if now.model is None else f'by words and by meaning ({now.model})'}",
        *([] if now.note is None else [f"Note        {now.note}"]),
    ]
    return Answer(now.as_dict(), lines)


@command("memory reindex", open_hive)
def reindex(hive: Hive) -> Answer:
    """Embed every entry that has no vector of the current model.

    Needed after a change of the embedder, or where embedding failed. Interruptible: the next call resumes.

    examples:
      hivemind memory reindex
    """
    with progress() as tell:
        count = hive.memory.reindex(lambda done, total: tell(f"{done:,} of {total:,} entries are embedded"))
    line = f"{'1 entry was' if count == 1 else f'{count:,} entries were'} embedded by {hive.memory.embeddings.model}"
    return Answer({"embedded": count, **hive.memory.status().as_dict()}, [line])


@command("memory copy", anywhere)
def copy(_: str | None, source: str, target: str) -> Answer:
    """Copy all memories from one place to another: the file of a hive, or a PostgreSQL database.

    Every entry is copied with its versions, times, links and embeddings, or nothing is. A namespace that has entries
    in the target is refused, so several hives can be copied into one database. What agents remember meanwhile is not
    copied: `hivemind down` first. Of a hive's agents the own memory is memories/NAME in a file, memories/NAME@WORKSPACE
    in a database, and is found in either.

    arguments:
      FROM  a hive's folder, a database file, or postgresql://USER@HOST/DATABASE
      TO  the same; a file is made

    examples:
      hivemind memory copy . postgresql://hive@db.example/hives
      hivemind memory copy postgresql://hive@db.example/hives .
    """
    from hivemind.hive import Hive
    from hivemind.longterm import copy_memories, open_store
    from hivemind.tools.memory import namespaces_in

    one = Hive.look(source) if Path(source).is_dir() else None
    other = Hive.open(target) if Path(target).is_dir() else None
    store = open_store(source, None) if one is None else one.memory
    into = open_store(target, None) if other is None else other.memory
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    first, second = one or other, other or one
    if first is not None and second is not None:
        for name in (HUMAN, *first.agents):
            before = namespaces_in(store.database.path, first.config.workspace, name)
            after = namespaces_in(into.database.path, second.config.workspace, name)
            names.update(zip(before, after, strict=True))
    with store, into, progress() as tell:
        copied = copy_memories(
            store,
            into,
            lambda namespace: names.get(namespace, namespace),
            lambda done, total: tell(f"{done:,} of {total:,} entries are copied"),
        )
    record = {name: copied[name] for name in ("entries", "namespaces", "versions", "embeddings", "users")}
    return Answer(record, [f"{name:<12}{count:,}" for name, count in record.items()])
