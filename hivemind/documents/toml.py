"""Trees as TOML: `export` writes them, `read` and `write_entries` bring them back, byte for byte (spec 5, *Import*)."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hivemind.boundary import boundary
from hivemind.documents.edit import Draft, Edit
from hivemind.documents.errors import DocmemError
from hivemind.documents.formats.outline import MAX_DEPTH, MAX_PARTS, check
from hivemind.documents.node import Node, check_context, check_text, shown
from hivemind.documents.orders import LARGEST
from hivemind.errors import UnknownVersion
from hivemind.fs import reached

__all__ = ["export", "read", "write_entries"]

VERSION = 1
_KEYS = {
    "depth", "order", "context_type", "context_name", "context_value", "text", "readonly", "importance", "sticky",
    "summary",
}  # fmt: skip
_STEERS = r"\x7f-\x9f\u202a-\u202e\u2066-\u2069"
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_SPECIAL = re.compile(rf'[\x00-\x1f{_STEERS}"\\]')
_SPECIAL_IN_LINES = re.compile(rf'[\x00-\x08\x0b-\x1f{_STEERS}\\]|""(?=")|"\Z')
_NODE = re.compile(r"\s*\[\[\s*[\"']?node[\"']?\s*\]\]")
_NAMED_NODE = frozenset({'"node"', "'node'"})
_STRING = re.compile(
    r'''"""(?:[^"\\]++|\\.|"{1,2}+(?!"))*+(?:"{3,5}|\Z)|"(?:[^"\\\n]++|\\.)*+"?|#[^\n]*'''
    r"""|'{3}(?:[^']++|'{1,2}+(?!'))*+(?:'{3,5}|\Z)|'[^'\n]*'?""",
    re.DOTALL,
)
_MAX_DOTS = 100  # in a line outside of strings: the work for a key grows with the square of its parts
_LINE = re.compile(r"at line (\d+)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One node of a file: what it holds, how deep it is, its order (None: after its siblings so far), its line."""

    draft: Draft
    depth: int
    order: float | None
    summary: bool
    line: int


def export(nodes: Sequence[Node], summaries: set[str]) -> str:
    """The subtree of the first node as TOML; `nodes` in reading order, `summaries` the ids of those that are one."""
    depths = {nodes[0].parent_id: -1}
    parts = [f"version = {VERSION}\n"]
    for node in nodes:
        depths[node.id] = depth = depths[node.parent_id] + 1 if node is not nodes[0] else 0
        parts.append("\n[[node]]\n" + "".join(f"{key} = {value}\n" for key, value in _fields(node, depth, summaries)))
    return "".join(parts)


def _fields(node: Node, depth: int, summaries: set[str]) -> Iterator[tuple[str, str]]:
    yield "depth", str(depth)
    if depth:
        yield "order", _float(node.order_value)
    yield "context_type", _string(node.context_type)
    yield "context_name", _string(node.context_name)
    yield "context_value", _string(node.context_value)
    yield "text", _string(node.text)
    if node.readonly:
        yield "readonly", "1"
    if node.importance != 0.5:
        yield "importance", _float(node.importance)
    if node.sticky:
        yield "sticky", "1"
    if node.id in summaries:
        yield "summary", "1"


def _float(value: float) -> str:
    shown = repr(float(value))
    return shown if "e" not in shown or "." in shown else shown.replace("e", ".0e")


def _string(text: str) -> str:
    if "\n" not in text:
        return f'"{_SPECIAL.sub(_escape, text)}"'
    return f'"""\n{_SPECIAL_IN_LINES.sub(_escape, text)}"""'


def _escape(found: re.Match[str]) -> str:
    return "".join(_ESCAPES.get(char) or f"\\u{ord(char):04x}" for char in found[0])


def read(text: str, where: object = "TOML") -> list[Entry]:
    """The nodes of a text that `export` or a person wrote, in order.

    `readonly` is 0 where it does not say otherwise; orders may be left out. Raises DocmemError that names file and line,
    Unreadable whatever it may be that cannot be read.
    """
    with boundary("TOML tree", where):
        return _read(check_text(text), where)


def _read(text: str, where: object) -> list[Entry]:
    skeleton = _STRING.sub(_without_string, text).split("\n")
    for number, line in enumerate(skeleton, 1):
        check(line.count("."), _MAX_DOTS, "dots in a line", f"{where}:{number}")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line_of = _LINE.search(str(error))
        place = f"{where}:{line_of[1] if line_of else len(skeleton)}"
        raise DocmemError(f"is no TOML ({error})", where=place) from None
    version = values.pop("version", VERSION)
    if version != VERSION:
        raise UnknownVersion(f"is a tree of version {shown(version)}, this program knows {VERSION}", where=f"{where}:1")
    tables = values.pop("node", [])
    if values or not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        odd = next(iter(values), "node")
        what = f"{shown(odd)}: a tree is a list of [[node]] tables and nothing else"
        raise DocmemError(what, where=f"{where}:1")
    check(len(tables), MAX_PARTS, "nodes", where)
    lines = [number for number, line in enumerate(skeleton, 1) if _NODE.match(line)]
    if len(lines) != len(tables):
        lines = [1] * len(tables)  # written as an inline array: the file's first line must do
    entries = [_entry(table, f"{where}:{line}", line) for table, line in zip(tables, lines, strict=True)]
    for before, entry in zip([None, *entries], entries, strict=False):
        deepest = -1 if before is None else before.depth
        if entry.depth > deepest + 1:
            raise DocmemError(f"depth {shown(entry.depth)} has no parent before it", where=f"{where}:{entry.line}")
    check(max(entry.depth for entry in entries), MAX_DEPTH, "levels", where)
    return entries


def _without_string(found: re.Match[str]) -> str:
    """What stands for a string or a comment: the lines that it takes; the name of a table stays."""
    return found[0] if found[0] in _NAMED_NODE else "\n" * found[0].count("\n")


def _entry(table: dict[str, Any], where: str, line: int) -> Entry:
    unknown = sorted(table.keys() - _KEYS)
    if unknown:
        raise DocmemError(
            f"unknown key {shown(unknown[0])}", where=where, mend=f"known keys: {', '.join(sorted(_KEYS))}"
        )
    try:
        context = check_context(*(table.get(key, "") for key in ("context_type", "context_name", "context_value")))
        text = check_text(table.get("text", ""))
    except DocmemError as error:
        raise DocmemError(error.what, where=where) from None
    importance, order = table.get("importance", 0.5), table.get("order")
    if not _is_number(importance) or not 0 <= importance <= 1:
        raise DocmemError(f"importance is 0 to 1, not {shown(importance)}", where=where)
    if order is not None and not (_is_number(order) and abs(order) <= LARGEST):
        raise DocmemError(f"order is a number, not {shown(order)}", where=where)
    depth = table.get("depth", 0)
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 0:
        raise DocmemError(f"depth is a whole number from 0 on, not {shown(depth)}", where=where)
    flags = {key: _flag(table, key, where) for key in ("readonly", "sticky", "summary")}
    draft = Draft(context, text, flags["readonly"], float(importance), flags["sticky"])
    return Entry(draft, depth, None if order is None else float(order), bool(flags["summary"]), line)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _flag(table: dict[str, Any], key: str, where: str) -> int:
    value = table.get(key, 0)
    if value not in (0, 1) or isinstance(value, float):
        raise DocmemError(f"{key} is 0 or 1, not {shown(value)}", where=where)
    return int(value)


def write_entries(edit: Edit, entries: Sequence[Entry], where: object) -> list[Node]:
    """New nodes for all entries, in order. Raises DocmemError, naming the line, for two siblings of one order."""
    above: list[tuple[str, float]] = []  # (id, largest order among its children so far) at each depth
    made: list[Node] = []
    orders: set[tuple[str, float]] = set()
    for entry in entries:
        del above[entry.depth :]
        parent_id, order = None, 0.0
        if above:
            parent_id, last = above[-1]
            order = last + 1.0 if entry.order is None else entry.order
            if (parent_id, order) in orders:
                raise DocmemError(f"order {order!r} is taken by a sibling", where=f"{where}:{entry.line}")
            orders.add((parent_id, order))
            above[-1] = (parent_id, max(last, order))
        node = edit.add(parent_id, order, entry.draft)
        if entry.summary:
            edit.sql.execute("INSERT INTO summaries VALUES (?, 0)", (node.id,))
        above.append((node.id, 0.0))
        made.append(node)
        reached("documents.toml.one")
    edit.sql.executemany(
        "UPDATE summaries SET stale = 0 WHERE node_id = ?",
        [(node.id,) for node, entry in zip(made, entries, strict=True) if entry.summary],
    )
    return made
