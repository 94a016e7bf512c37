"""Remember, search, list and forget long-term memories.

A memory has a namespace: shared/WORKSPACE for all agents, memories/NAME for one agent or user (for an agent in
PostgreSQL: memories/NAME@WORKSPACE). Without --agent and --namespace, `search` and `list` use all namespaces, the
other commands the shared one.

examples:
  hivemind memory remember "The customer wants invoices as PDF" --key invoices
  hivemind memory search "how do invoices go out?"
  hivemind memory list --agent researcher
  hivemind memory forget invoices
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hivemind.cli.command import Arg, CommandOutput, Positive, Share, command
from hivemind.cli.open_hive import open_hive, open_read_only, resolve_name, without_hive
from hivemind.cli.output import table_lines
from hivemind.cli.styled import progress
from hivemind.cli.text import one_line
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hivemind.hive import Hive
    from hivemind.longterm import MemoryEntry, MemorySearchResult

_LIST_COLUMNS = ("namespace", "key", "updated", "content")
_SEARCH_FIELDS = ("similarity", "score", "why", "confidence")
_HIT_COLUMNS = ("namespace", "key", "score", "similarity", "content", "why")
_VERSION_COLUMNS = ("version", "updated", "content")


@frozen(kw_only=True)
class NamespaceOptions:
    r"""Options that select a namespace.

    arguments:
      --agent AGENT  the memory of one agent
      --namespace A/B  another namespace; a slash within a part is written \/
    """

    agent: Annotated[str | None, Arg(exclusive_group="whose")] = None
    namespace: Annotated[str | None, Arg(exclusive_group="whose")] = None

    def selected_namespace(self, hive: Hive) -> tuple[str, ...] | None:
        """Return the namespace that the options select; None without these options."""
        from hivemind.longterm import check_namespace, parse_namespace
        from hivemind.tools.memory import namespaces_of

        if self.agent is not None:
            return namespaces_of(hive, self.agent)[0]
        if self.namespace is None:
            return None
        parts = parse_namespace(self.namespace)
        if len(parts) < 2:
            raise UserError(
                f"--namespace {self.namespace} has only one part", remedy="add the owner, as in memories/ann"
            )
        return check_namespace(parts)

    def namespace_or_shared(self, hive: Hive) -> tuple[str, ...]:
        """Return the namespace that the options select, by default the workspace's shared namespace."""
        from hivemind.tools.memory import namespaces_of

        return self.selected_namespace(hive) or namespaces_of(hive, HUMAN)[1]

    def find_entry(self, hive: Hive, key: str) -> MemoryEntry:
        """Return the entry with this key in the selected namespace. Raises UserError if no entry has the key."""
        namespace = self.namespace_or_shared(hive)
        entry = hive.memory.get(namespace, key) if hive.memory.database.was_made else None
        if entry is None:
            raise _unknown_key(key, namespace)
        return entry


def _unknown_key(key: str, namespace: tuple[str, ...]) -> UserError:
    from hivemind.longterm import format_namespace

    return UserError(
        f"there is no entry {key!r} in {format_namespace(namespace)}", remedy="`hivemind memory list` shows all entries"
    )


@command("memory remember", open_hive)
def remember(
    hive: Hive,
    content: str,
    *,
    location: NamespaceOptions,
    key: str | None = None,
    category: str | None = None,
    importance: Share | None = None,
) -> CommandOutput:
    """Remember a text.

    Without --key, a text that is already stored is not stored again. With --key, an existing entry with this key is
    updated: omitted options keep their values, and earlier versions are kept (`memory show`).

    arguments:
      TEXT  the text, at most 2048 tokens
      --key KEY  the entry's key, 1 to 256 characters (default: generated)
      --category WORD  for example preference, fact, goal, context
      --importance N  0 to 1: the entry's weight in a search

    examples:
      hivemind memory remember "Ann prefers tea" --agent researcher --category preference
      hivemind memory remember "The gate code is 4711" --key gate --importance 0.9
    """
    if location.agent is not None:
        resolve_name(hive, location.agent)
    namespace = location.namespace_or_shared(hive)
    upsert = hive.memory.upsert_memory(namespace, content, key=key, category=category, importance=importance)
    line = f"{'/'.join(namespace)}: {one_line(upsert.message)}"
    return CommandOutput({**asdict(upsert), "namespace": list(namespace)}, [line], 0 if upsert.success else 1)


@command("memory search", open_read_only)
def search(
    hive: Hive, query: str, *, location: NamespaceOptions, category: str | None = None, limit: Positive = 10
) -> CommandOutput:
    """Search memories by words and by meaning.

    arguments:
      QUERY  words or a question; any characters
      --category WORD  only this category
      --limit N  at most N entries (default: 10)

    examples:
      hivemind memory search "who likes tea?" --limit 3
      hivemind memory search invoice --category fact --json
    """
    namespace = location.selected_namespace(hive)
    hits: Sequence[MemorySearchResult] = []
    if hive.memory.database.was_made:
        hits = hive.memory.search(
            namespace or (), query, limit=limit, prefix=namespace is None, category=category
        )  # fmt: skip
    rows = [
        _row(hit) | {"score": f"{hit.score:.2f}", "similarity": f"{hit.similarity:.2f}", "why": hit.why} for hit in hits
    ]
    return CommandOutput(
        [hit.as_dict() for hit in hits], table_lines(rows, _HIT_COLUMNS, empty="No memories match the query.")
    )


@command("memory list", open_read_only)
def entries(hive: Hive, *, location: NamespaceOptions, limit: Positive = 50) -> CommandOutput:
    """List memories, newest first.

    arguments:
      --limit N  at most N entries (default: 50)

    examples:
      hivemind memory list
      hivemind memory list --agent researcher --limit 100
    """
    namespace = location.selected_namespace(hive)
    memories: Sequence[MemoryEntry] = []
    if hive.memory.database.was_made:
        memories = hive.memory.search(namespace or (), "", limit=limit, prefix=namespace is None)
    record = [
        {name: value for name, value in entry.as_dict().items() if name not in _SEARCH_FIELDS} for entry in memories
    ]
    empty = "No memories yet; `hivemind memory remember TEXT` adds one."
    return CommandOutput(record, table_lines(map(_row, memories), _LIST_COLUMNS, empty=empty))


def _row(entry: MemoryEntry) -> dict[str, Any]:
    from hivemind.longterm import format_namespace

    return {
        "namespace": one_line(format_namespace(entry.namespace)),
        "key": one_line(entry.key),
        "version": entry.version,
        "updated": entry.updated_at.isoformat(" ", "minutes")[:16],
        "content": one_line(entry.content),
    }


@command("memory show", open_read_only)
def show(hive: Hive, key: str, *, location: NamespaceOptions) -> CommandOutput:
    """Show one entry, and its versions if there are several. The last version is the present one.

    arguments:
      KEY  the entry's key

    examples:
      hivemind memory show invoices
    """
    entry = location.find_entry(hive, key)
    versions = hive.memory.history(entry.namespace, entry.key)
    record = entry.as_dict()
    fields = {name: value for name, value in record.items() if name != "content" and value not in (None, {}, False)}
    lines = [
        f"{name:<12}{one_line('/'.join(value) if isinstance(value, list) else str(value))}"
        for name, value in fields.items()
    ]
    if len(versions) > 1:
        lines += ["", *table_lines(map(_row, versions), _VERSION_COLUMNS, empty="")]
    return CommandOutput(
        {**record, "versions": [version.as_dict() for version in versions]}, [*lines, f"\n{entry.content}"]
    )


@command("memory forget", open_hive)
def forget(hive: Hive, key: str, *, location: NamespaceOptions) -> CommandOutput:
    """Delete an entry permanently, with its history. Expired entries are deleted without a command.

    arguments:
      KEY  the entry's key

    examples:
      hivemind memory forget invoices
    """
    namespace = location.namespace_or_shared(hive)
    if not hive.memory.delete(namespace, key):
        raise _unknown_key(key, namespace)
    return CommandOutput({"forgotten": 1}, [f"{key!r} is forgotten"])


@command("memory status", open_read_only)
def status(hive: Hive) -> CommandOutput:
    """Show the number of entries, and how they are searched.

    examples:
      hivemind memory status --json
    """
    memory_status = hive.memory.status()
    noun = "namespace" if memory_status.namespaces == 1 else "namespaces"
    lines = [
        "Entries     "
        f"{f'{memory_status.entries:,} in {memory_status.namespaces:,} {noun}' if memory_status.entries else 'none yet'}",
        f"Searched    {'by words only' if memory_status.model is None else f'by words and by meaning ({memory_status.model})'}",
        *([] if memory_status.note is None else [f"Note        {memory_status.note}"]),
    ]
    return CommandOutput(memory_status.as_dict(), lines)


@command("memory reindex", open_hive)
def reindex(hive: Hive) -> CommandOutput:
    """Embed every entry that has no vector of the current model.

    Needed after a change of the embedder, or if embedding has failed. If interrupted, call reindex again.

    examples:
      hivemind memory reindex
    """
    with progress() as report:
        count = hive.memory.reindex(lambda done, total: report("embedding entries", done, total))
    line = f"{'1 entry was' if count == 1 else f'{count:,} entries were'} embedded by {hive.memory.embeddings.model}"
    return CommandOutput({"embedded": count, **hive.memory.status().as_dict()}, [line])


@command("memory copy", without_hive)
def copy(_: str | None, source: str, target: str) -> CommandOutput:
    """Copy all memories from one store to another: the file of a hive, or a PostgreSQL database.

    Copies all entries with their versions, times, links and embeddings, or none. A namespace that already has entries in
    the target is refused, so several hives can be copied into one database. Memories added during the copy are not
    copied: run `hivemind down` first. An agent's namespace is renamed as needed: it is memories/NAME in a file and
    memories/NAME@WORKSPACE in a database.

    arguments:
      FROM  a hive's folder, a database file, or postgresql://USER@HOST/DATABASE
      TO  a folder, a file or a database, too; a missing file is created

    examples:
      hivemind memory copy . postgresql://hive@db.example/hives
      hivemind memory copy postgresql://hive@db.example/hives .
    """
    from hivemind.hive import Hive
    from hivemind.longterm import copy_memories, open_store
    from hivemind.tools.memory import namespaces_in

    source_hive = Hive.look(source) if Path(source).is_dir() else None
    target_hive = Hive.open(target) if Path(target).is_dir() else None
    source_store = open_store(source, None) if source_hive is None else source_hive.memory
    target_store = open_store(target, None) if target_hive is None else target_hive.memory
    namespace_map: dict[tuple[str, ...], tuple[str, ...]] = {}
    source_side, target_side = source_hive or target_hive, target_hive or source_hive
    if source_side is not None and target_side is not None:
        for name in (HUMAN, *source_side.agents):
            source_namespaces = namespaces_in(source_store.database.path, source_side.config.workspace, name)
            target_namespaces = namespaces_in(target_store.database.path, target_side.config.workspace, name)
            namespace_map.update(zip(source_namespaces, target_namespaces, strict=True))
    with source_store, target_store, progress() as report:
        counts = copy_memories(
            source_store,
            target_store,
            lambda namespace: namespace_map.get(namespace, namespace),
            lambda done, total: report("copying entries", done, total),
        )
    record = {name: counts[name] for name in ("entries", "namespaces", "versions", "embeddings", "users")}
    return CommandOutput(record, [f"{name:<12}{count:,}" for name, count in record.items()])
