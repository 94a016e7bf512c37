"""Small documents that the cases speak of."""

from __future__ import annotations

import base64
import hashlib

from hivemind.documents import Docmem, Node

__all__ = ["add", "family", "hash_of", "now", "texts", "tree"]


def add(docmem: Docmem, parent: Node, text: str, kind: str = "message") -> Node:
    """A new last child."""
    return docmem.append_child(parent.id, kind, "role", "user", text)


def family(docmem: Docmem, count: int = 3) -> tuple[Node, list[Node]]:
    """A root with so many children, `child 1` and so on."""
    root = docmem.create_root(text="root")
    return root, [add(docmem, root, f"child {number}") for number in range(1, count + 1)]


def texts(docmem: Docmem, node: Node) -> list[str]:
    """The texts of a node and all below it, as the document reads."""
    return [found.text for found in docmem.serialize(node.id)]


def now(docmem: Docmem, node: Node) -> Node:
    """The node as it stands now."""
    found = docmem.find(node.id)
    assert found is not None
    return found


def hash_of(node: Node, order: str) -> str:
    """The hash that the seed gives the node; `order` as JavaScript prints it."""
    joined = "|".join(
        (node.parent_id or "", node.context_type, node.context_name, node.context_value, node.text, order)
    )
    return base64.b64encode(hashlib.sha512(joined.encode()).digest()).decode()


def tree(docmem: Docmem) -> tuple[Node, dict[str, Node]]:
    """r has a and b; a has a1 and a2, a1 has a11; b has b1."""
    root = docmem.create_root(text="r")
    made = {name: add(docmem, root, name) for name in "ab"}
    made |= {name: add(docmem, made[name[0]], name) for name in ("a1", "a2", "b1")}
    made["a11"] = add(docmem, made["a1"], "a11")
    return root, made
