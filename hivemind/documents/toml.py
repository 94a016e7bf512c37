"""Trees as TOML: `export` writes a tree; `read` and `write_entries` recreate the tree exactly."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hivemind.boundary import as_dataclass, boundary
from hivemind.documents.edit import MAX_ORDER, Edit, NodeDraft
from hivemind.documents.formats.outline import MAX_DEPTH, MAX_PARTS, check_limit
from hivemind.documents.node import DocmemError, Node, check_context, check_text
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import crash_point
from hivemind.masking import escape_controls
from hivemind.words import short_repr

VERSION = 1
_NODE = re.compile(r"\s*\[\[\s*node\s*\]\]")
_STRING = re.compile(
    r'''"""(?:[^"\\]++|\\.|"{1,2}+(?!"))*+(?:"{3,5}|\Z)|"(?:[^"\\\n]++|\\.)*+"?|#[^\n]*'''
    r"""|'{3}(?:[^']++|'{1,2}+(?!'))*+(?:'{3,5}|\Z)|'[^'\n]*'?""",
    re.DOTALL,
)
_MAX_DOTS = 100  # in a line outside strings: parsing a dotted key takes quadratic time
_LINE = re.compile(r"at line (\d+)")


Flag = Annotated[Literal[0, 1] | bool, AfterValidator(int)]


class TomlNode(BaseModel):
    """A `[[node]]` table: the content, depth and order of a node. Without an order, the node comes after its earlier siblings."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    depth: Annotated[int, Field(ge=0)] = 0
    order: Annotated[float, Field(ge=-MAX_ORDER, le=MAX_ORDER)] | None = None
    context_type: str = ""
    context_name: str = ""
    context_value: str = ""
    text: str = ""
    readonly: Flag = 0
    importance: Annotated[float, Field(ge=0, le=1)] = 0.5
    sticky: Flag = 0
    summary: Flag = 0

    @property
    def draft(self) -> NodeDraft:
        """Return the content of the new node. Raises DocmemError if a field is invalid."""
        context = check_context(self.context_type, self.context_name, self.context_value)
        return NodeDraft(context, check_text(self.text), self.readonly, self.importance, self.sticky)


LocatedEntry = tuple[TomlNode, NodeDraft, str]
"""A `[[node]]` table, the content of its node, and the table's place (`file:line`)."""


def export(nodes: Sequence[Node], summaries: set[str]) -> str:
    """Return a subtree as TOML. `nodes` must be in reading order, the root first; `summaries` has the summaries' ids."""
    depths = {nodes[0].parent_id: -1}
    parts = [f"version = {VERSION}\n"]
    for node in nodes:
        depths[node.id] = depth = depths[node.parent_id] + 1 if node is not nodes[0] else 0
        texts = ("context_type", "context_name", "context_value", "text")
        numbers = {"readonly": (node.readonly, 0), "importance": (node.importance, 0.5), "sticky": (node.sticky, 0)}
        fields = {
            "depth": repr(depth),
            **({"order": repr(node.order_value)} if depth else {}),
            **{name: _string(getattr(node, name)) for name in texts},
            **{name: repr(value) for name, (value, usual) in numbers.items() if value != usual},
            **({"summary": "1"} if node.id in summaries else {}),
        }
        parts.append("\n[[node]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items()))
    return "".join(parts)


def _string(text: str) -> str:
    """Return `text` as a TOML string. It is escaped as in JSON: these escapes are valid in TOML."""
    lines = [escape_controls(json.dumps(line, ensure_ascii=False))[1:-1] for line in text.split("\n")]
    return f'"{lines[0]}"' if len(lines) == 1 else '"""\n' + "\n".join(lines) + '"""'


def read(text: str, path: object = "TOML") -> list[LocatedEntry]:
    """Parse and check the nodes of a TOML text; return them in order.

    `readonly` defaults to 0; orders may be left out. Raises DocmemError, which names file and line; Unreadable if
    parsing fails in any other way.
    """
    with boundary("TOML tree", path):
        return _read(check_text(text), path)


def _read(text: str, path: object) -> list[LocatedEntry]:
    skeleton = _STRING.sub(lambda string: "\n" * string[0].count("\n"), text).split(
        "\n"
    )  # without strings and comments
    for number, line in enumerate(skeleton, 1):
        check_limit(line.count("."), _MAX_DOTS, "dots in a line", f"{path}:{number}")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line_match = _LINE.search(str(error))
        line_number = line_match[1] if line_match else len(skeleton)
        raise DocmemError(f"is not TOML ({error})", location=f"{path}:{line_number}") from None
    version = values.pop("version", VERSION)
    if version != VERSION:
        raise UnknownVersion(
            f"is a tree of version {short_repr(version)}; this program reads version {VERSION}", location=f"{path}:1"
        )
    tables = values.pop("node", [])
    if values or not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        unknown_key = next(iter(values), "node")
        message = f"{short_repr(unknown_key)}: a tree contains [[node]] tables only"
        raise DocmemError(message, location=f"{path}:1")
    check_limit(len(tables), MAX_PARTS, "nodes", path)
    lines = [number for number, line in enumerate(skeleton, 1) if _NODE.match(line)]
    if len(lines) != len(tables):
        lines = [1] * len(tables)  # written in another way: errors name line 1
    entries: list[LocatedEntry] = []
    deepest = -1
    for table, number in zip(tables, lines, strict=True):
        location = f"{path}:{number}"
        try:
            entry = as_dataclass(TomlNode, table, "[[node]] table")
            entries.append((entry, entry.draft, location))
        except UserError as error:
            raise DocmemError(error.message, location=location) from None
        if entry.depth > deepest + 1:
            raise DocmemError(f"depth {short_repr(entry.depth)} has no parent before it", location=location)
        check_limit(entry.depth, MAX_DEPTH, "levels", path)
        deepest = entry.depth
    return entries


def write_entries(edit: Edit, entries: Sequence[LocatedEntry]) -> list[Node]:
    """Create the nodes, in order. Raises DocmemError, with the line, if two siblings have the same order."""
    above: list[tuple[str, float]] = []  # (id, largest order of its children so far) for each depth
    nodes: list[Node] = []
    orders: set[tuple[str, float]] = set()
    for entry, draft, location in entries:
        del above[entry.depth :]
        parent_id, order = None, 0.0
        if above:
            parent_id, last = above[-1]
            order = last + 1.0 if entry.order is None else entry.order
            if (parent_id, order) in orders:
                raise DocmemError(f"order {order!r} is taken by a sibling", location=location)
            orders.add((parent_id, order))
            above[-1] = (parent_id, max(last, order))
        node = edit.add(parent_id, order, draft)
        if entry.summary:
            edit.sql.execute("INSERT INTO summaries VALUES (?, 0)", (node.id,))
        above.append((node.id, 0.0))
        nodes.append(node)
        crash_point("documents.toml.one")
    edit.sql.executemany(
        "UPDATE summaries SET stale = 0 WHERE node_id = ?",
        [(node.id,) for node, (entry, _, _) in zip(nodes, entries, strict=True) if entry.summary],
    )
    return nodes
