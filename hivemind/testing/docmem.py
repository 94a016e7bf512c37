"""Seed 003, sentence by sentence, for any implementation of Docmem.

`CASES` is a list of (sentence, check); a check takes a new, empty Docmem and raises AssertionError. With pytest:

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_docmem_keeps_to_the_seed(case, docmem):
        case.check(docmem)
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from hivemind.documents import (
    CycleError,
    Docmem,
    DocmemError,
    Node,
    NodeNotFoundError,
    OptimisticLockError,
    ReadonlyError,
)

__all__ = ["CASES", "Case"]

_Check = Callable[[Docmem], None]
_KEYS = {
    "id", "parentId", "order", "tokenCount", "createdAt", "updatedAt", "contextType", "contextName", "contextValue",
    "readonly",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence of the seed and what checks it."""

    sentence: str
    check: _Check

    def __str__(self) -> str:
        return self.check.__name__.removeprefix("_")


CASES: list[Case] = []


def _says(sentence: str) -> Callable[[_Check], _Check]:
    def keep(check: _Check) -> _Check:
        CASES.append(Case(sentence, check))
        return check

    return keep


@contextmanager
def _refused(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def _add(docmem: Docmem, parent: Node, text: str, kind: str = "message") -> Node:
    return docmem.append_child(parent.id, kind, "role", "user", text)


def _family(docmem: Docmem, count: int = 3) -> tuple[Node, list[Node]]:
    root = docmem.create_root(text="root")
    return root, [_add(docmem, root, f"child {number}") for number in range(1, count + 1)]


def _texts(docmem: Docmem, node: Node) -> list[str]:
    return [found.text for found in docmem.serialize(node.id)]


def _now(docmem: Docmem, node: Node) -> Node:
    found = docmem.find(node.id)
    assert found is not None
    return found


def _hash(node: Node, order: str) -> str:
    joined = "|".join(
        (node.parent_id or "", node.context_type, node.context_name, node.context_value, node.text, order)
    )
    return base64.b64encode(hashlib.sha512(joined.encode()).digest()).decode()


# -- nodes -------------------------------------------------------------------------------------------------------------
@_says("A node MUST contain the following fields: id … hash")
def _a_node_has_the_seeds_fields(docmem: Docmem) -> None:
    root, (first, *_) = _family(docmem)
    assert root.parent_id is None
    assert first.parent_id == root.id
    assert first.text == "child 1"
    assert (first.context_type, first.context_name, first.context_value) == ("message", "role", "user")
    assert first.token_count == docmem.count("child 1")
    assert first.readonly == 0
    assert datetime.fromisoformat(first.created_at).tzinfo is not None
    assert first.updated_at == first.created_at
    assert docmem.find(first.id) == first


@_says("id: Unique identifier")
def _ids_are_unique_and_a_taken_one_is_refused(docmem: Docmem) -> None:
    root = docmem.create_root("mine")
    assert root.id == "mine"
    with _refused(DocmemError):
        docmem.create_root("mine")
    assert len({_add(docmem, root, "x").id for _ in range(50)}) == 50


@_says("The hash MUST be computed from parent_id|context_type|context_name|context_value|text|order")
def _the_hash_covers_what_the_seed_says(docmem: Docmem) -> None:
    root, (first, second, _) = _family(docmem)
    between = docmem.insert_after(first.id, "message", "role", "user", "between")
    assert root.hash == _hash(root, "0")
    assert second.hash == _hash(second, "2")
    assert between.hash == _hash(between, "1.2")


@_says("The readonly field MUST NOT be included in the hash calculation")
def _readonly_is_no_part_of_the_hash(docmem: Docmem) -> None:
    free = docmem.create_root("same", text="x")
    docmem.delete("same")
    locked = docmem.create_root("same", text="x", readonly=1)
    assert locked.readonly == 1
    assert free.hash == locked.hash


@_says("All context metadata fields MUST be provided")
def _contexts_are_trimmed_and_bounded(docmem: Docmem) -> None:
    root = docmem.create_root()
    found = docmem.append_child(root.id, "  a ", "b" * 64, "c" * 256, "")
    assert (found.context_type, len(found.context_name), len(found.context_value)) == ("a", 64, 256)
    for context in (
        ("", "b", "c"),
        ("a" * 25, "b", "c"),
        ("a", "  ", "c"),
        ("a", "b" * 65, "c"),
        ("a", "b", "c" * 257),
    ):
        with _refused(DocmemError):
            docmem.append_child(root.id, *context, "")


# -- order -------------------------------------------------------------------------------------------------------------
@_says("order_value MUST be set to max(sibling orders) + 1.0")
def _appending_counts_up(docmem: Docmem) -> None:
    root, children = _family(docmem)
    assert root.order_value == 0
    assert [child.order_value for child in children] == [1, 2, 3]
    docmem.delete(children[1].id)
    assert _add(docmem, root, "next").order_value == 4


@_says("MUST use 20% interpolation: (a * 4 + b * 1) / 5")
def _inserting_interpolates_towards_the_left(docmem: Docmem) -> None:
    _, (first, second, third) = _family(docmem)
    context = ("message", "role", "user")
    assert docmem.insert_before(second.id, *context, "x").order_value == (1 * 4 + 2) / 5
    assert docmem.insert_after(second.id, *context, "y").order_value == (2 * 4 + 3) / 5
    assert docmem.insert_before(first.id, *context, "z").order_value == 0
    assert docmem.insert_after(third.id, *context, "w").order_value == 4


@_says("Decimal values to allow insertion without reindexing; no insert is ever refused (spec 5)")
def _the_reading_order_survives_any_number_of_inserts(docmem: Docmem) -> None:
    root, (first, *_) = _family(docmem)
    for number in range(100):
        docmem.insert_after(first.id, "message", "role", "user", f"inserted {number}")
    expected = ["root", "child 1", *(f"inserted {number}" for number in reversed(range(100))), "child 2", "child 3"]
    assert _texts(docmem, root) == expected
    orders = [node.order_value for node in docmem.serialize(root.id)[1:]]
    assert orders == sorted(set(orders))


@_says("The target node MUST have a parent (cannot insert before/after root node)")
def _nothing_stands_beside_a_root(docmem: Docmem) -> None:
    root, (first, *_) = _family(docmem)
    for operation in (docmem.insert_before, docmem.insert_after):
        with _refused(DocmemError):
            operation(root.id, "message", "role", "user", "x")
    for beside in (docmem.move_before, docmem.move_after, docmem.copy_before, docmem.copy_after):
        with _refused(DocmemError):
            beside(first.id, root.id)


@_says("Unknown ids raise NodeNotFoundError; find gives None (spec 5)")
def _unknown_ids_are_said_to_be_unknown(docmem: Docmem) -> None:
    root = docmem.create_root()
    assert docmem.find("nobody") is None
    for operation in (docmem.serialize, docmem.structure, docmem.delete, docmem.export_toml, docmem.history):
        with _refused(NodeNotFoundError):
            operation("nobody")
    for pair in (docmem.move_append_child, docmem.move_before, docmem.copy_append_child, docmem.copy_after):
        with _refused(NodeNotFoundError):
            pair("nobody", root.id)
        with _refused(NodeNotFoundError):
            pair(root.id, "nobody")
    with _refused(NodeNotFoundError):
        docmem.update_content("nobody", "x")
    with _refused(NodeNotFoundError):
        docmem.append_child("nobody", "a", "b", "c", "x")


# -- reading -----------------------------------------------------------------------------------------------------------
def _tree(docmem: Docmem) -> tuple[Node, dict[str, Node]]:
    root = docmem.create_root(text="r")
    made = {name: _add(docmem, root, name) for name in "ab"}
    made |= {name: _add(docmem, made[name[0]], name) for name in ("a1", "a2", "b1")}
    made["a11"] = _add(docmem, made["a1"], "a11")
    return root, made


@_says("Serialization MUST return a flat array of nodes in traversal order, depth first, by order_value")
def _serializing_reads_as_the_document_does(docmem: Docmem) -> None:
    root, made = _tree(docmem)
    docmem.insert_before(made["a2"].id, "message", "role", "user", "a1b")
    assert _texts(docmem, root) == ["r", "a", "a1", "a11", "a1b", "a2", "b", "b1"]
    assert _texts(docmem, made["b"]) == ["b", "b1"]


@_says("structure: preorder, exactly ten keys, excluding text and hash")
def _structure_has_ten_keys_and_no_text(docmem: Docmem) -> None:
    root, _ = _tree(docmem)
    found = docmem.structure(root.id)
    assert [entry["id"] for entry in found] == [node.id for node in docmem.serialize(root.id)]
    assert all(set(entry) == _KEYS for entry in found)


@_says("The starting node itself MUST be included in the result as the first element")
def _expanding_begins_with_the_start(docmem: Docmem) -> None:
    root, _ = _tree(docmem)
    assert docmem.expand_to_length(root.id, 0) == [root]
    assert docmem.expand_to_length(root.id, 10_000) == docmem.serialize(root.id)


@_says("breadth-first search to depth 1, then expand the children of those nodes in order_value order")
def _expanding_goes_down_level_by_level(docmem: Docmem) -> None:
    root, made = _tree(docmem)
    room = root.token_count
    taken = ["r"]
    for name in ("a", "b", "a1", "a2", "b1", "a11"):
        room += made[name].token_count
        taken.append(name)
        found = [node.text for node in docmem.expand_to_length(root.id, room)]
        assert sorted(found) == sorted(taken)
        assert found == [text for text in _texts(docmem, root) if text in taken]


@_says("Nodes are added until the content reaches the token limit; what does not fit is passed over (spec 5)")
def _expanding_never_exceeds_the_limit(docmem: Docmem) -> None:
    root = docmem.create_root(text="r")
    _add(docmem, root, "long " * 40)
    small = _add(docmem, root, "small")
    limit = root.token_count + small.token_count
    assert docmem.expand_to_length(root.id, limit) == [root, small]
    for most in range(60):
        found = docmem.expand_to_length(root.id, most)
        assert found == [root] or sum(node.token_count for node in found) <= most


# -- changing ----------------------------------------------------------------------------------------------------------
@_says("Token count, updated_at and hash MUST be recalculated when content is updated")
def _updating_content_updates_what_follows_from_it(docmem: Docmem) -> None:
    _, (first, *_) = _family(docmem)
    changed = docmem.update_content(first.id, "quite another text", first.hash)
    assert changed.text == "quite another text"
    assert changed.token_count == docmem.count("quite another text")
    assert changed.hash == _hash(changed, "1") != first.hash
    assert changed.updated_at > first.updated_at
    assert changed.created_at == first.created_at
    assert _now(docmem, first) == changed


@_says("update_context MUST update the context metadata of an existing node")
def _updating_context_changes_the_hash(docmem: Docmem) -> None:
    _, (first, *_) = _family(docmem)
    changed = docmem.update_context(first.id, "memory", "source", "book")
    assert (changed.context_type, changed.context_name, changed.context_value) == ("memory", "source", "book")
    assert changed.hash == _hash(changed, "1") != first.hash


@_says("If the hash does not match, the operation MUST throw an OptimisticLockError")
def _a_stale_hash_changes_nothing(docmem: Docmem) -> None:
    root, (first, second, _) = _family(docmem)
    docmem.update_content(first.id, "theirs")
    with _refused(OptimisticLockError):
        docmem.update_content(first.id, "mine", first.hash)
    with _refused(OptimisticLockError):
        docmem.update_context(first.id, "a", "b", "c", first.hash)
    for move in (docmem.move_append_child, docmem.move_before, docmem.move_after):
        with _refused(OptimisticLockError):
            move(first.id, second.id, first.hash)
    assert _texts(docmem, root) == ["root", "theirs", "child 2", "child 3"]
    docmem.delete(first.id)
    with _refused(OptimisticLockError):
        docmem.update_content(first.id, "mine", first.hash)


@_says("Nodes with readonly = 1 MUST NOT be modified by update operations")
def _readonly_nodes_refuse_updates_and_take_notes(docmem: Docmem) -> None:
    root = docmem.create_root(text="root", readonly=1)
    locked = docmem.append_child(root.id, "message", "role", "user", "locked", readonly=1)
    _add(docmem, root, "after")
    for node in (root, locked):
        with _refused(ReadonlyError):
            docmem.update_content(node.id, "x")
        with _refused(ReadonlyError):
            docmem.update_context(node.id, "a", "b", "c")
    note = docmem.add_note(locked.id, "but see there", "ann")
    assert note.context_type == "note"
    assert docmem.add_note(root.id, "on all of it", "ann").parent_id == root.id
    assert _texts(docmem, root) == ["root", "on all of it", "locked", "but see there", "after"]
    assert docmem.move_after(locked.id, note.id).readonly == 1
    assert docmem.copy_append_child(locked.id, root.id).readonly == 1


@_says("delete MUST remove a node and all its descendants")
def _deleting_takes_all_below(docmem: Docmem) -> None:
    root, made = _tree(docmem)
    docmem.delete(made["a"].id)
    assert _texts(docmem, root) == ["r", "b", "b1"]
    assert all(docmem.find(made[name].id) is None for name in ("a", "a1", "a2", "a11"))
    docmem.delete(root.id)
    assert docmem.roots() == []


# -- copying and moving ------------------------------------------------------------------------------------------------
@_says("Copy operations MUST copy all descendants, creating new node IDs, keeping structure and order")
def _copies_are_whole_and_new(docmem: Docmem) -> None:
    root, made = _tree(docmem)
    docmem.insert_before(made["a2"].id, "message", "role", "user", "a1b")
    copy = docmem.copy_append_child(made["a"].id, made["b"].id)
    assert copy.order_value == 2
    assert copy.parent_id == made["b"].id
    nodes = docmem.serialize(copy.id)
    assert [node.text for node in nodes] == ["a", "a1", "a11", "a1b", "a2"]
    assert [node.order_value for node in nodes] == [2, 1, 1, 2, 3]
    assert not {node.id for node in nodes} & {node.id for node in docmem.serialize(made["a"].id)}
    assert docmem.copy_before(made["b"].id, made["b"].id).order_value == (1 * 4 + 2) / 5
    assert docmem.copy_after(made["b"].id, made["b"].id).order_value == 3
    assert root == _now(docmem, root)


@_says("A copy into the node's own subtree copies the state before, and ends (spec 5)")
def _a_copy_into_itself_ends(docmem: Docmem) -> None:
    root, made = _tree(docmem)
    copy = docmem.copy_append_child(root.id, made["a11"].id)
    assert _texts(docmem, copy) == ["r", "a", "a1", "a11", "a2", "b", "b1"]
    assert len(docmem.serialize(root.id)) == 14


@_says("move_append_child … move_before … move_after: order recalculated, same rules as insert")
def _moves_put_nodes_where_they_say(docmem: Docmem) -> None:
    root, made = _tree(docmem)
    moved = docmem.move_append_child(made["b"].id, made["a1"].id, made["b"].hash)
    assert (moved.parent_id, moved.order_value) == (made["a1"].id, 2)
    assert moved.hash == _hash(moved, "2")
    assert moved.updated_at > made["b"].updated_at
    assert _texts(docmem, root) == ["r", "a", "a1", "a11", "b", "b1", "a2"]
    assert docmem.move_before(made["b1"].id, made["a2"].id).order_value == (1 * 4 + 2) / 5
    assert docmem.move_after(made["b1"].id, made["a2"].id).order_value == 3
    assert docmem.move_before(made["b1"].id, made["a1"].id).order_value == 0


@_says("All move operations MUST prevent cycles")
def _nothing_becomes_a_part_of_itself(docmem: Docmem) -> None:
    root, made = _tree(docmem)
    before = docmem.serialize(root.id)
    for target in ("a", "a1", "a11"):
        with _refused(CycleError):
            docmem.move_append_child(made["a"].id, made[target].id)
    for target in ("a", "a1", "a11"):
        with _refused(CycleError):
            docmem.move_before(made["a"].id, made[target].id)
        with _refused(CycleError):
            docmem.move_after(made["a"].id, made[target].id)
    with _refused(CycleError):
        docmem.move_append_child(root.id, made["b1"].id)
    assert docmem.serialize(root.id) == before


# -- summaries ---------------------------------------------------------------------------------------------------------
@_says("A summary node MUST be created as the new parent of the memory nodes, at the midpoint of their orders")
def _a_summary_is_the_parent_of_what_it_sums_up(docmem: Docmem) -> None:
    root, children = _family(docmem, 5)
    summary = docmem.add_summary(children[1].id, children[3].id, "in short", "summary", "of", "talk")
    assert (summary.parent_id, summary.order_value, summary.context_type) == (root.id, 3, "summary")
    assert _texts(docmem, root) == ["root", "child 1", "in short", "child 2", "child 3", "child 4", "child 5"]
    member = _now(docmem, children[1])
    assert (member.parent_id, member.order_value) == (summary.id, 2)
    assert member.hash == _hash(member, "2") != children[1].hash
    assert docmem.add_summary(children[4].id, children[4].id, "one", "summary", "of", "talk").order_value == 5


@_says("All nodes to be summarized MUST have the same parent and MUST be leaf nodes")
def _only_leaves_of_one_parent_are_summed_up(docmem: Docmem) -> None:
    root, made = _tree(docmem)
    before = docmem.serialize(root.id)
    for start, end in (("a", "b"), ("a1", "a2"), ("a2", "b1"), ("a11", "a2")):
        with _refused(DocmemError):
            docmem.add_summary(made[start].id, made[end].id, "x", "summary", "of", "talk")
    with _refused(DocmemError):
        docmem.add_summary(root.id, root.id, "x", "summary", "of", "talk")
    _, children = _family(docmem)
    with _refused(DocmemError):
        docmem.add_summary(children[2].id, children[0].id, "x", "summary", "of", "talk")
    assert docmem.serialize(root.id) == before


@_says("Summarization MUST be reversible; original memory nodes MUST be preserved")
def _a_summary_can_be_taken_away(docmem: Docmem) -> None:
    root, children = _family(docmem, 4)
    before = [(node.id, node.order_value, node.hash) for node in docmem.serialize(root.id)]
    summary = docmem.add_summary(children[0].id, children[2].id, "in short", "summary", "of", "talk")
    assert [node.id for node in docmem.remove_summary(summary.id)] == [child.id for child in children[:3]]
    assert [(node.id, node.order_value, node.hash) for node in docmem.serialize(root.id)] == before


@_says("Summaries SHOULD be regenerated when their children change; operations MUST be auditable")
def _a_stale_summary_is_known_and_written_anew(docmem: Docmem) -> None:
    root, children = _family(docmem, 4)
    summary = docmem.add_summary(children[0].id, children[2].id, "in short", "summary", "of", "talk")
    assert docmem.stale_summaries() == []
    docmem.update_content(children[1].id, "Another sentence.")
    assert [node.id for node in docmem.stale_summaries()] == [summary.id]
    again = docmem.summarize(summary.id, lambda texts, _: " / ".join(texts))
    assert again.text == "child 1 / Another sentence. / child 3"
    assert docmem.stale_summaries() == []
    assert [version.text for version in docmem.history(summary.id)] == ["in short", again.text]
    _add(docmem, root, "elsewhere")
    assert docmem.stale_summaries() == []
    docmem.delete(children[0].id)
    assert [node.id for node in docmem.stale_summaries()] == [summary.id]


# -- importing ---------------------------------------------------------------------------------------------------------
@_says("Imported documents (non-TOML) MUST have readonly = 1 and preserve the hierarchical structure")
def _imports_keep_the_hierarchy_and_are_readonly(docmem: Docmem) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "manual.md"
        path.write_text("# One\n\nText.\n\n## Deeper\n\n- item\n\n# Two\n\nMore.\n")
        root = docmem.import_file(path)
    nodes = docmem.serialize(root.id)
    assert all(node.readonly == 1 for node in nodes)
    by_text = {node.text: node for node in nodes}
    assert by_text["Text."].parent_id == by_text["# One"].id
    assert by_text["- item"].parent_id == by_text["## Deeper"].id
    assert by_text["## Deeper"].parent_id == by_text["# One"].id
    assert by_text["# Two"].parent_id == by_text["# One"].parent_id == root.id


@_says("Nodes from TOML files MUST default to readonly = 0")
def _toml_gives_the_same_tree_again(docmem: Docmem) -> None:
    root, made = _tree(docmem)
    docmem.update_content(made["a"].id, '# no comment\r\n\n"""\\ "quoted" \t ünïcode 🐝\n')
    docmem.insert_after(made["a1"].id, "message", "role", "user", "")
    text = docmem.export_toml(root.id)
    found = docmem.import_toml(text)
    assert docmem.export_toml(found[0].id) == text
    assert [node.text for node in found] == _texts(docmem, root)
    assert all(node.readonly == 0 for node in found)


@_says("A bad file changes nothing and the error names file and line (spec 5)")
def _a_bad_file_changes_nothing(docmem: Docmem) -> None:
    good = docmem.export_toml(docmem.create_root().id)
    before = docmem.roots()
    for bad in (good + "\nnonsense", good + "\n[[node]]\ndepth = 7\n", good + '\n[[node]]\ndepth = 1\ntext = "x"\n'):
        where = ""
        try:
            docmem.import_toml(bad)
        except DocmemError as error:
            where = error.where or ""
        assert where.rpartition(":")[2].isdigit()
    assert docmem.roots() == before


# -- asking ------------------------------------------------------------------------------------------------------------
@_says("Trace each hit up; a child is covered by its summary if both match; include structural context")
def _a_summary_covers_its_children(docmem: Docmem) -> None:
    root, children = _family(docmem, 4)
    docmem.update_content(children[1].id, "The zebra crossed the river.")
    docmem.update_content(children[3].id, "Another zebra stayed.")
    summary = docmem.add_summary(children[0].id, children[2].id, "About a zebra.", "summary", "of", "talk")
    hits = {hit.node.id: hit for hit in docmem.query("zebra")}
    assert set(hits) == {summary.id, children[3].id}
    assert hits[summary.id].covers == (children[1].id,)
    assert hits[summary.id].document == root.id
    assert hits[summary.id].titles == ("root",)
    assert docmem.query("giraffe") == []


@_says("Cross-entity relationships MUST be carried in content via @ tags")
def _tags_link_across_documents(docmem: Docmem) -> None:
    one, two = docmem.create_root(text="see @Billing"), docmem.create_root(text="@billing is here, not a@billing.org")
    assert [node.id for node in docmem.tagged("billing")] == [one.id, two.id]
    assert two.id in next(hit for hit in docmem.query("@billing") if hit.node.id == one.id).linked
    docmem.update_content(one.id, "no more")
    assert [node.id for node in docmem.tagged("@Billing")] == [two.id]
