"""hivemind memory: what agents and people remember, to look at, to add to, to forget."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.hive_of import hive_of, look_at
from hivemind.cli.output import print_json, print_table, progress, say
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json, number
from hivemind.cli.text import one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hivemind.hive import Hive
    from hivemind.longterm import MemoryEntry, MemoryStore

__all__ = ["add_to"]

_LISTED = ("namespace", "key", "updated", "content")
_OF_A_SEARCH = ("similarity", "score", "why", "confidence")
_FOUND = ("namespace", "key", "score", "similarity", "content", "why")
_VERSIONS = ("version", "updated", "content")


def add_to(commands: Commands, common: Parser) -> None:
    memory = add_group(
        commands,
        common,
        "memory",
        "remember, search, list and forget what lasts beyond a task",
        examples='  hivemind memory remember "The customer wants invoices as PDF" --key invoices\n'
        '  hivemind memory search "how do invoices go out?"\n'
        "  hivemind memory list --agent researcher\n"
        "  hivemind memory forget invoices\n\n"
        "A memory lies in a namespace: shared/WORKSPACE for all agents, memories/NAME for one agent or user. Without\n"
        "--agent and --namespace, `search` and `list` look at all of them, the others at the shared one.",
    )
    _add_remember(memory, common)
    _add_looking(memory, common)
    _add_keeping(memory, common)


def _add_remember(memory: Commands, common: Parser) -> None:
    parser = add_command(
        memory, common, "remember", _remember, "keep something",
        about="Without --key, what is there already is not stored again. With --key, the entry under it is changed; what\n"
        "is not said stays, and what it said before is kept: see `memory history`.",
        examples='  hivemind memory remember "Ann prefers tea" --agent researcher --category preference\n'
        '  hivemind memory remember "The gate code is 4711" --key gate --expires-in 2d --importance 0.9',
    )  # fmt: skip
    parser.add_argument("content", metavar="TEXT", help="what is to be remembered, at most 2048 tokens")
    _add_namespace(parser)
    parser.add_argument("--key", metavar="KEY", help="its name, 1 to 256 characters (default: one is made)")
    parser.add_argument("--category", metavar="WORD", help="such as preference, fact, goal, context")
    parser.add_argument("--importance", type=_share, metavar="N", help="0 to 1: how much it counts in a search")
    parser.add_argument("--metadata", type=_object, metavar="JSON", help="anything else, as a JSON object")
    parser.add_argument("--expires-in", type=_duration, metavar="TIME", help="forget it after 2h, 3d, 4w")
    parser.add_argument("--allow-duplicate", action="store_true", help="store it even if it is there already")
    add_json(parser)


def _add_looking(memory: Commands, common: Parser) -> None:
    search = add_command(
        memory, common, "search", _search, "find what is remembered, by words and by meaning",
        examples='  hivemind memory search "who likes tea?" --limit 3\n'
        '  hivemind memory search invoice --mode text --metadata \'{"customer": "Acme"}\' --json',
    )  # fmt: skip
    search.add_argument("query", metavar="QUERY", help="words or a question; any characters")
    _add_namespace(search)
    search.add_argument("--mode", choices=("hybrid", "vector", "text"), default="hybrid", help="default: hybrid")
    search.add_argument("--threshold", type=_share, metavar="N", help="only what is at least so similar, 0 to 1")
    search.add_argument("--category", metavar="WORD", help="only this category")
    search.add_argument("--metadata", type=_object, metavar="JSON", help="only where these fields are so")
    _add_limit(search, 10)
    add_json(search)
    listing = add_command(
        memory, common, "list", _list, "list what is remembered, newest first",
        examples="  hivemind memory list\n  hivemind memory list --agent researcher --limit 100",
    )  # fmt: skip
    _add_namespace(listing)
    _add_limit(listing, 50)
    add_json(listing)
    for name, run, line in (
        ("show", _show, "show one entry"),
        ("history", _history, "show what an entry said before"),
    ):
        parser = add_command(memory, common, name, run, line, examples=f"  hivemind memory {name} invoices")
        _add_key(parser)
        add_json(parser)


def _add_keeping(memory: Commands, common: Parser) -> None:
    forget = add_command(
        memory, common, "forget", _forget, "forget an entry for good, with all that it ever said",
        examples="  hivemind memory forget invoices\n  hivemind memory forget --expired",
    )  # fmt: skip
    forget.add_argument("key", nargs="?", metavar="KEY", help="the entry's key")
    _add_namespace(forget)
    forget.add_argument("--expired", action="store_true", help="instead: all whose time is over, everywhere")
    add_json(forget)
    status = add_command(
        memory, common, "status", _status, "show how much is remembered, and how it is searched",
        examples="  hivemind memory status --json",
    )  # fmt: skip
    add_json(status)
    reindex = add_command(
        memory, common, "reindex", _reindex, "embed all that has no vector of the present model",
        about="After a change of the embedder, or where embedding failed. Interrupted, it goes on where it stopped.",
        examples="  hivemind memory reindex",
    )  # fmt: skip
    add_json(reindex)


def _add_namespace(parser: argparse.ArgumentParser) -> None:
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--agent", metavar="NAME", help="the memory of one agent: memories/NAME")
    whose.add_argument("--namespace", metavar="A/B", help="another namespace; a slash within a part is written \\/")


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="the entry's key")
    _add_namespace(parser)


def _add_limit(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--limit",
        type=number("of entries", 1),
        default=default,
        metavar="N",
        help=f"at most so many (default: {default})",
    )


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 1")
    return value


def _object(text: str) -> dict[str, Any]:
    try:
        with boundary("text of JSON"):
            found = json.loads(text)
    except Unreadable as error:
        raise argparse.ArgumentTypeError(f"that is no JSON ({error.__cause__})") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('that is no JSON object, such as {"customer": "Acme"}')
    return found


def _duration(text: str) -> timedelta:
    from hivemind.tasks.duration import parse_duration

    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _chosen(hive: Hive, arguments: argparse.Namespace) -> tuple[str, ...] | None:
    """The namespace that the options name, or None."""
    from hivemind.longterm import check_namespace, named
    from hivemind.tools.memory import namespaces_of

    if arguments.agent is not None:
        return namespaces_of(hive, arguments.agent)[0]
    if arguments.namespace is None:
        return None
    parts = named(arguments.namespace)
    if len(parts) < 2:
        raise UserError(f"--namespace {arguments.namespace} has one part", mend="say whose, too, as in memories/ann")
    return check_namespace(parts)


def _namespace(hive: Hive, arguments: argparse.Namespace) -> tuple[str, ...]:
    """The namespace that the options name, or the one that the workspace shares."""
    from hivemind.layout import HUMAN
    from hivemind.tools.memory import namespaces_of

    return _chosen(hive, arguments) or namespaces_of(hive, HUMAN)[1]


def _remember(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    namespace = _namespace(hive, arguments)
    result = hive.memory.upsert_memory(
        namespace,
        arguments.content,
        arguments.metadata,
        arguments.key,
        category=arguments.category,
        importance=arguments.importance,
        expires_at=None if arguments.expires_in is None else datetime.now(UTC) + arguments.expires_in,
        allow_duplicate=arguments.allow_duplicate,
    )
    if arguments.json:
        print_json(_plain(result, namespace=list(namespace)))
    else:
        say(f"{'/'.join(namespace)}: {one_line(result.message)}")
    return 0 if result.success else 1


def _plain(value: Any, **more: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(value) | more


def _search(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    namespace = _chosen(hive, arguments)
    hits = (
        []
        if not hive.memory.database.was_made
        else hive.memory.search(
            namespace or (),
            arguments.query,
            arguments.threshold,
            arguments.limit,
            mode=arguments.mode,
            prefix=namespace is None,
            metadata=arguments.metadata,
            category=arguments.category,
        )
    )
    if arguments.json:
        print_json([hit.as_dict() for hit in hits])
        return 0
    rows = [
        _row(hit) | {"score": f"{hit.score:.2f}", "similarity": f"{hit.similarity:.2f}", "why": hit.why} for hit in hits
    ]
    print_table(rows, _FOUND, empty="Nothing is remembered about that.")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    namespace = _chosen(hive, arguments)
    entries: Sequence[MemoryEntry] = []
    if hive.memory.database.was_made:
        entries = hive.memory.search(namespace or (), "", limit=arguments.limit, prefix=namespace is None)
    if arguments.json:
        print_json([_entry(entry) for entry in entries])
    else:
        print_table(
            [_row(entry) for entry in entries], _LISTED,
            empty="Nothing is remembered yet; `hivemind memory remember TEXT` keeps something.",
        )  # fmt: skip
    return 0


def _entry(entry: MemoryEntry) -> dict[str, Any]:
    return {name: value for name, value in entry.as_dict().items() if name not in _OF_A_SEARCH}


def _row(entry: MemoryEntry) -> dict[str, Any]:
    from hivemind.longterm import shown

    return {
        "namespace": one_line(shown(entry.namespace)),
        "key": one_line(entry.key),
        "version": entry.version,
        "updated": entry.updated_at.isoformat(" ", "minutes")[:16],
        "content": one_line(entry.content),
    }


def _found(arguments: argparse.Namespace) -> tuple[MemoryStore, tuple[str, ...], MemoryEntry]:
    """The entry that a command names. Raises UserError if there is none."""
    hive = look_at(arguments)
    namespace = _namespace(hive, arguments)
    entry = hive.memory.get(namespace, arguments.key) if hive.memory.database.was_made else None
    if entry is None:
        raise _unknown(arguments.key, namespace)
    return hive.memory, namespace, entry


def _unknown(key: str, namespace: tuple[str, ...]) -> UserError:
    from hivemind.longterm import shown

    return UserError(f"there is no entry {key!r} in {shown(namespace)}", mend="`hivemind memory list` shows them all")


def _show(arguments: argparse.Namespace) -> int:
    _, _, entry = _found(arguments)
    if arguments.json:
        print_json(entry.as_dict())
        return 0
    told = {
        name: value for name, value in entry.as_dict().items() if name != "content" and value not in (None, {}, False)
    }
    for name, value in told.items():
        say(f"{name:<12}{one_line('/'.join(value) if isinstance(value, list) else str(value))}")
    say(f"\n{entry.content}")
    return 0


def _history(arguments: argparse.Namespace) -> int:
    memory, namespace, entry = _found(arguments)
    versions = memory.history(namespace, entry.key)
    if arguments.json:
        print_json([version.as_dict() for version in versions])
    else:
        print_table([_row(version) for version in versions], _VERSIONS, empty="")
    return 0


def _forget(arguments: argparse.Namespace) -> int:
    if arguments.expired == (arguments.key is not None):
        raise UserError("say which entry: a KEY, or --expired for all whose time is over")
    hive = hive_of(arguments)
    if arguments.expired:
        count = hive.memory.purge() if hive.memory.database.was_made else 0
        said = "1 expired entry is forgotten" if count == 1 else f"{count:,} expired entries are forgotten"
    else:
        namespace = _namespace(hive, arguments)
        if not hive.memory.delete(namespace, arguments.key):
            raise _unknown(arguments.key, namespace)
        count, said = 1, f"{arguments.key!r} is forgotten"
    if arguments.json:
        print_json({"forgotten": count})
    else:
        say(said)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    status = hive.memory.status()
    if arguments.json:
        print_json(status.as_dict())
        return 0
    spaces = "namespace" if status.namespaces == 1 else "namespaces"
    say(
        f"Entries     {status.entries:,} in {status.namespaces:,} {spaces}"
        if status.entries
        else "Entries     none yet"
    )
    say(f"Searched    {'by words only' if status.model is None else f'by words and by meaning ({status.model})'}")
    if status.note is not None:
        say(f"Note        {status.note}")
    return 0


def _reindex(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    with progress() as tell:
        count = hive.memory.reindex(lambda done, total: tell(f"{done:,} of {total:,} entries are embedded"))
    if arguments.json:
        print_json({"embedded": count, **hive.memory.status().as_dict()})
    else:
        entries = "1 entry was" if count == 1 else f"{count:,} entries were"
        say(f"{entries} embedded by {hive.memory.embeddings.model}")
    return 0
