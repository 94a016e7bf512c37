"""Every argument, however odd, leads to a result or to a UserError that leaves the database unchanged."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from hivemind.documents import Docmem
from hivemind.errors import UserError

ODD: tuple[Any, ...] = (
    None, 7, -5, 1.5, float("nan"), float("inf"), True, 10**5000, b"x", "", "no such", "x\ud800", "\0", [], {}, object(),
)  # fmt: skip
CONTEXT = {"context_type": "m", "context_name": "n", "context_value": "v"}
CALLS: dict[str, dict[str, Any]] = {
    "create_root": {"id": None, "text": "t", **CONTEXT, "readonly": 0},
    "append_child": {"node_id": "a", **CONTEXT, "content": "c", "id": None, "readonly": 0},
    "insert_before": {"node_id": "a", **CONTEXT, "content": "c", "id": None, "readonly": 0},
    "insert_after": {"node_id": "a", **CONTEXT, "content": "c", "id": None, "readonly": 0},
    "add_note": {"node_id": "a", "text": "t", "author": "me"},
    "update_content": {"node_id": "b", "content": "c", "expected_hash": None},
    "update_context": {"node_id": "b", **CONTEXT, "expected_hash": None},
    "set_importance": {"node_id": "a", "importance": 0.5},
    "set_sticky": {"node_id": "a", "sticky": 0},
    "restore": {"node_id": "b", "version": 1, "expected_hash": None},
    "move_append_child": {"node_id": "a", "target_parent_id": "r", "expected_hash": None},
    "move_before": {"node_id": "a", "target_node_id": "b", "expected_hash": None},
    "move_after": {"node_id": "a", "target_node_id": "b", "expected_hash": None},
    "copy_append_child": {"node_id": "b", "target_parent_id": "r"},
    "copy_before": {"node_id": "b", "target_node_id": "b"},
    "copy_after": {"node_id": "b", "target_node_id": "b"},
    "add_summary": {"start_node_id": "b", "end_node_id": "b", "content": "c", **CONTEXT},
    "remove_summary": {"node_id": "b", "expected_hash": None},
    "summarize": {"node_id": "r", "max_tokens": 10},
    "delete": {"node_id": "a"},
    "find": {"node_id": "a"},
    "root_of": {"node_id": "a"},
    "size": {"node_id": "a"},
    "history": {"node_id": "a"},
    "source": {"node_id": "a"},
    "tags_of": {"node_id": "a"},
    "structure": {"node_id": "r"},
    "serialize": {"node_id": "r", "interior": "keep"},
    "expand_to_length": {
        "node_id": "r", "max_tokens": 10, "by": "order", "query": None, "interior": "keep", "resolution": "full",
    },
    "shown": {"node_id": "r", "max_tokens": 10, "by": "order", "query": None},
    "query": {"text": "alpha", "limit": 10, "node_id": None},
    "embed_pending": {"limit": 3},
    "import_file": {"path": "/nowhere"},
    "import_toml": {"text": "x"},
    "export_toml": {"node_id": "r"},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_odd_values_are_refused_in_words(docmem: Docmem, name: str) -> None:
    docmem.create_root("r", "root")
    for node_id in "ab":
        docmem.append_child("r", *CONTEXT.values(), f"alpha {node_id}", id=node_id)
    before = docmem.serialize("r")
    for argument in CALLS[name]:
        for value in ODD:
            with suppress(UserError), docmem.transaction():  # anything else that is raised fails here
                getattr(docmem, name)(**{**CALLS[name], argument: value})
                raise UserError("not wanted after all")
    assert docmem.serialize("r") == before


@pytest.mark.parametrize("most", ["x", None, 1.5, True])
def test_a_length_is_a_whole_number(docmem: Docmem, most: Any) -> None:
    docmem.create_root("r", "root")
    with pytest.raises(UserError, match="max_tokens must be a whole number"):
        docmem.expand_to_length("r", most)


def test_a_limit_is_none_below_nought(docmem: Docmem) -> None:
    docmem.create_root("r", "a heron")
    assert docmem.query("heron", 0) == []
    with pytest.raises(UserError, match="limit must be a whole number from 0 on"):
        docmem.query("heron", -1)
