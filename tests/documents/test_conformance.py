"""The requirements of the document format, test by test."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from hivemind.documents import (
    CycleError,
    Docmem,
    DocmemError,
    Node,
    NodeNotFoundError,
    OptimisticLockError,
    ReadonlyError,
)
from tests.durability import relaxed

_KEYS = {
    "id", "parentId", "order", "tokenCount", "createdAt", "updatedAt", "contextType", "contextName", "contextValue",
    "readonly",
}  # fmt: skip


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


def hash_of(node: Node, order: str) -> str:
    """Return the specified hash of a node; `order` as JavaScript prints it."""
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


class TestDocmem:
    """Test the documented behaviour of document memory, sentence by sentence."""

    @pytest.fixture
    def docmem(self, tmp_path: Path) -> Iterator[Docmem]:
        with Docmem(relaxed(tmp_path / "documents.db")) as docmem:
            yield docmem
            assert docmem.check() == []

    def test_a_node_has_the_seeds_fields(self, docmem: Docmem) -> None:
        """A node MUST contain the following fields: id … hash."""
        root, (first, *_) = family(docmem)
        assert root.parent_id is None
        assert first.parent_id == root.id
        assert first.text == "child 1"
        assert (first.context_type, first.context_name, first.context_value) == ("message", "role", "user")
        assert first.token_count == docmem.count("child 1")
        assert first.readonly == 0
        assert datetime.fromisoformat(first.created_at).tzinfo is not None
        assert first.updated_at == first.created_at
        assert docmem.find(first.id) == first

    def test_ids_are_unique_and_a_taken_one_is_raises(self, docmem: Docmem) -> None:
        """id: Unique identifier."""
        root = docmem.create_root("mine")
        assert root.id == "mine"
        with pytest.raises(DocmemError):
            docmem.create_root("mine")
        assert len({add(docmem, root, "x").id for _ in range(50)}) == 50

    def test_the_hash_covers_what_the_seed_says(self, docmem: Docmem) -> None:
        """The hash MUST be computed from parent_id|context_type|context_name|context_value|text|order."""
        root, (first, second, _) = family(docmem)
        between = docmem.insert_after(first.id, "message", "role", "user", "between")
        assert root.hash == hash_of(root, "0")
        assert second.hash == hash_of(second, "2")
        assert between.hash == hash_of(between, "1.2")

    def test_readonly_is_no_part_of_the_hash(self, docmem: Docmem) -> None:
        """The readonly field MUST NOT be included in the hash calculation."""
        free = docmem.create_root("same", text="x")
        docmem.delete("same")
        locked = docmem.create_root("same", text="x", readonly=1)
        assert locked.readonly == 1
        assert free.hash == locked.hash

    def test_contexts_are_trimmed_and_bounded(self, docmem: Docmem) -> None:
        """All context metadata fields MUST be provided."""
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
            with pytest.raises(DocmemError):
                docmem.append_child(root.id, *context, "")

    # -- Node Ordering, Append, Insert ----------------------------------------

    def test_appending_counts_up(self, docmem: Docmem) -> None:
        """order_value MUST be set to max(sibling orders) + 1.0."""
        root, children = family(docmem)
        assert root.order_value == 0
        assert [child.order_value for child in children] == [1, 2, 3]
        docmem.delete(children[1].id)
        assert add(docmem, root, "next").order_value == 4

    def test_inserting_interpolates_towards_the_left(self, docmem: Docmem) -> None:
        """MUST use 20% interpolation: (a * 4 + b * 1) / 5."""
        _, (first, second, third) = family(docmem)
        context = ("message", "role", "user")
        assert docmem.insert_before(second.id, *context, "x").order_value == (1 * 4 + 2) / 5
        assert docmem.insert_after(second.id, *context, "y").order_value == (2 * 4 + 3) / 5
        assert docmem.insert_before(first.id, *context, "z").order_value == 0
        assert docmem.insert_after(third.id, *context, "w").order_value == 4

    def test_the_reading_order_survives_any_number_of_inserts(self, docmem: Docmem) -> None:
        """Decimal orders allow insertion without renumbering; no insert is ever refused."""
        root, (first, *_) = family(docmem)
        for number in range(100):
            docmem.insert_after(first.id, "message", "role", "user", f"inserted {number}")
        expected = ["root", "child 1", *(f"inserted {number}" for number in reversed(range(100))), "child 2", "child 3"]
        assert texts(docmem, root) == expected
        orders = [node.order_value for node in docmem.serialize(root.id)[1:]]
        assert orders == sorted(set(orders))

    def test_nothing_stands_beside_a_root(self, docmem: Docmem) -> None:
        """The target node MUST have a parent (cannot insert before/after root node)."""
        root, (first, *_) = family(docmem)
        for operation in (docmem.insert_before, docmem.insert_after):
            with pytest.raises(DocmemError):
                operation(root.id, "message", "role", "user", "x")
        for beside in (docmem.move_before, docmem.move_after, docmem.copy_before, docmem.copy_after):
            with pytest.raises(DocmemError):
                beside(first.id, root.id)

    def test_unknown_ids_are_said_to_be_unknown(self, docmem: Docmem) -> None:
        """Unknown ids raise NodeNotFoundError; find returns None."""
        root = docmem.create_root()
        assert docmem.find("nobody") is None
        for operation in (docmem.serialize, docmem.structure, docmem.delete, docmem.export_toml, docmem.history):
            with pytest.raises(NodeNotFoundError):
                operation("nobody")
        for pair in (docmem.move_append_child, docmem.move_before, docmem.copy_append_child, docmem.copy_after):
            with pytest.raises(NodeNotFoundError):
                pair("nobody", root.id)
            with pytest.raises(NodeNotFoundError):
                pair(root.id, "nobody")
        with pytest.raises(NodeNotFoundError):
            docmem.update_content("nobody", "x")
        with pytest.raises(NodeNotFoundError):
            docmem.append_child("nobody", "a", "b", "c", "x")

    # -- Serialization, Structure, Expand to Length ----------------------------------------

    def test_serializing_reads_as_the_document_does(self, docmem: Docmem) -> None:
        """Serialization MUST return a flat array of nodes in traversal order, depth first, by order_value."""
        root, made = tree(docmem)
        docmem.insert_before(made["a2"].id, "message", "role", "user", "a1b")
        assert texts(docmem, root) == ["r", "a", "a1", "a11", "a1b", "a2", "b", "b1"]
        assert texts(docmem, made["b"]) == ["b", "b1"]

    def test_structure_has_ten_keys_and_no_text(self, docmem: Docmem) -> None:
        """structure: preorder, exactly ten keys, excluding text and hash."""
        root, _ = tree(docmem)
        found = docmem.structure(root.id)
        assert [entry["id"] for entry in found] == [node.id for node in docmem.serialize(root.id)]
        assert all(set(entry) == _KEYS for entry in found)

    def test_expanding_begins_with_the_start(self, docmem: Docmem) -> None:
        """The starting node itself MUST be included in the result as the first element."""
        root, _ = tree(docmem)
        assert docmem.expand_to_length(root.id, 0) == [root]
        assert docmem.expand_to_length(root.id, 10_000) == docmem.serialize(root.id)

    def test_expanding_goes_down_level_by_level(self, docmem: Docmem) -> None:
        """breadth-first search to depth 1, then expand the children of those nodes in order_value order."""
        root, made = tree(docmem)
        room = root.token_count
        taken = ["r"]
        for name in ("a", "b", "a1", "a2", "b1", "a11"):
            room += made[name].token_count
            taken.append(name)
            found = [node.text for node in docmem.expand_to_length(root.id, room)]
            assert sorted(found) == sorted(taken)
            assert found == [text for text in texts(docmem, root) if text in taken]

    def test_expanding_never_exceeds_the_limit(self, docmem: Docmem) -> None:
        """Nodes are added until the content reaches the token limit; nodes that do not fit are skipped."""
        root = docmem.create_root(text="r")
        add(docmem, root, "long " * 40)
        small = add(docmem, root, "small")
        limit = root.token_count + small.token_count
        assert docmem.expand_to_length(root.id, limit) == [root, small]
        for most in range(60):
            found = docmem.expand_to_length(root.id, most)
            assert found == [root] or sum(node.token_count for node in found) <= most

    # -- Update Content, Update Context, Optimistic Locking, Delete ----------------------------------------

    def test_updating_content_updates_what_follows_from_it(self, docmem: Docmem) -> None:
        """Token count, updated_at and hash MUST be recalculated when content is updated."""
        _, (first, *_) = family(docmem)
        changed = docmem.update_content(first.id, "quite another text", first.hash)
        assert changed.text == "quite another text"
        assert changed.token_count == docmem.count("quite another text")
        assert changed.hash == hash_of(changed, "1") != first.hash
        assert changed.updated_at > first.updated_at
        assert changed.created_at == first.created_at
        assert docmem.find(first.id) == changed

    def test_updating_context_changes_the_hash(self, docmem: Docmem) -> None:
        """update_context MUST update the context metadata of an existing node."""
        _, (first, *_) = family(docmem)
        changed = docmem.update_context(first.id, "memory", "source", "book")
        assert (changed.context_type, changed.context_name, changed.context_value) == ("memory", "source", "book")
        assert changed.hash == hash_of(changed, "1") != first.hash

    def test_a_stale_hash_changes_nothing(self, docmem: Docmem) -> None:
        """If the hash does not match, the operation MUST throw an OptimisticLockError."""
        root, (first, second, _) = family(docmem)
        docmem.update_content(first.id, "theirs")
        with pytest.raises(OptimisticLockError):
            docmem.update_content(first.id, "mine", first.hash)
        with pytest.raises(OptimisticLockError):
            docmem.update_context(first.id, "a", "b", "c", first.hash)
        for move in (docmem.move_append_child, docmem.move_before, docmem.move_after):
            with pytest.raises(OptimisticLockError):
                move(first.id, second.id, first.hash)
        assert texts(docmem, root) == ["root", "theirs", "child 2", "child 3"]
        docmem.delete(first.id)
        with pytest.raises(OptimisticLockError):
            docmem.update_content(first.id, "mine", first.hash)

    def test_readonly_nodes_refuse_updates_and_take_notes(self, docmem: Docmem) -> None:
        """Nodes with readonly = 1 MUST NOT be modified by update operations."""
        root = docmem.create_root(text="root", readonly=1)
        locked = docmem.append_child(root.id, "message", "role", "user", "locked", readonly=1)
        add(docmem, root, "after")
        for node in (root, locked):
            with pytest.raises(ReadonlyError):
                docmem.update_content(node.id, "x")
            with pytest.raises(ReadonlyError):
                docmem.update_context(node.id, "a", "b", "c")
        note = docmem.add_note(locked.id, "but see there", "ann")
        assert note.context_type == "note"
        assert docmem.add_note(root.id, "on all of it", "ann").parent_id == root.id
        assert texts(docmem, root) == ["root", "on all of it", "locked", "but see there", "after"]
        assert docmem.move_after(locked.id, note.id).readonly == 1
        assert docmem.copy_append_child(locked.id, root.id).readonly == 1

    def test_deleting_takes_all_below(self, docmem: Docmem) -> None:
        """delete MUST remove a node and all its descendants."""
        root, made = tree(docmem)
        docmem.delete(made["a"].id)
        assert texts(docmem, root) == ["r", "b", "b1"]
        assert all(docmem.find(made[name].id) is None for name in ("a", "a1", "a2", "a11"))
        docmem.delete(root.id)
        assert docmem.roots() == []

    # -- Copy, Move ----------------------------------------

    def test_copies_are_whole_and_new(self, docmem: Docmem) -> None:
        """Copy operations MUST copy all descendants, creating new node IDs, keeping structure and order."""
        root, made = tree(docmem)
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
        assert docmem.find(root.id) == root

    def test_a_copy_into_itself_ends(self, docmem: Docmem) -> None:
        """A copy into the node's own subtree copies the state before the copy, and ends."""
        root, made = tree(docmem)
        copy = docmem.copy_append_child(root.id, made["a11"].id)
        assert texts(docmem, copy) == ["r", "a", "a1", "a11", "a2", "b", "b1"]
        assert len(docmem.serialize(root.id)) == 14

    def test_moves_put_nodes_where_they_say(self, docmem: Docmem) -> None:
        """move_append_child … move_before … move_after: order recalculated, same rules as insert."""
        root, made = tree(docmem)
        moved = docmem.move_append_child(made["b"].id, made["a1"].id, made["b"].hash)
        assert (moved.parent_id, moved.order_value) == (made["a1"].id, 2)
        assert moved.hash == hash_of(moved, "2")
        assert moved.updated_at > made["b"].updated_at
        assert texts(docmem, root) == ["r", "a", "a1", "a11", "b", "b1", "a2"]
        assert docmem.move_before(made["b1"].id, made["a2"].id).order_value == (1 * 4 + 2) / 5
        assert docmem.move_after(made["b1"].id, made["a2"].id).order_value == 3
        assert docmem.move_before(made["b1"].id, made["a1"].id).order_value == 0

    def test_nothing_becomes_a_part_of_itself(self, docmem: Docmem) -> None:
        """All move operations MUST prevent cycles."""
        root, made = tree(docmem)
        before = docmem.serialize(root.id)
        for move in (docmem.move_append_child, docmem.move_before, docmem.move_after):
            for target in ("a", "a1", "a11"):
                with pytest.raises(CycleError):
                    move(made["a"].id, made[target].id)
        with pytest.raises(CycleError):
            docmem.move_append_child(root.id, made["b1"].id)
        assert docmem.serialize(root.id) == before

    # -- Summarization ----------------------------------------

    def test_a_summary_is_the_parent_of_what_it_sums_up(self, docmem: Docmem) -> None:
        """A summary node MUST be created as the new parent of the memory nodes, at the midpoint of their orders."""
        root, children = family(docmem, 5)
        summary = docmem.add_summary(children[1].id, children[3].id, "in short", "summary", "of", "talk")
        assert (summary.parent_id, summary.order_value, summary.context_type) == (root.id, 3, "summary")
        assert texts(docmem, root) == ["root", "child 1", "in short", "child 2", "child 3", "child 4", "child 5"]
        member = next(node for node in docmem.serialize(root.id) if node.id == children[1].id)
        assert (member.parent_id, member.order_value) == (summary.id, 2)
        assert member.hash == hash_of(member, "2") != children[1].hash
        assert docmem.add_summary(children[4].id, children[4].id, "one", "summary", "of", "talk").order_value == 5

    def test_only_leaves_of_one_parent_are_summed_up(self, docmem: Docmem) -> None:
        """All nodes to be summarized MUST have the same parent and MUST be leaf nodes."""
        root, made = tree(docmem)
        before = docmem.serialize(root.id)
        for start, end in (("a", "b"), ("a1", "a2"), ("a2", "b1"), ("a11", "a2")):
            with pytest.raises(DocmemError):
                docmem.add_summary(made[start].id, made[end].id, "x", "summary", "of", "talk")
        with pytest.raises(DocmemError):
            docmem.add_summary(root.id, root.id, "x", "summary", "of", "talk")
        _, children = family(docmem)
        with pytest.raises(DocmemError):
            docmem.add_summary(children[2].id, children[0].id, "x", "summary", "of", "talk")
        assert docmem.serialize(root.id) == before

    def test_a_summary_can_be_taken_away(self, docmem: Docmem) -> None:
        """Summarization MUST be reversible; original memory nodes MUST be preserved."""
        root, children = family(docmem, 4)
        before = [(node.id, node.order_value, node.hash) for node in docmem.serialize(root.id)]
        summary = docmem.add_summary(children[0].id, children[2].id, "in short", "summary", "of", "talk")
        assert [node.id for node in docmem.remove_summary(summary.id)] == [child.id for child in children[:3]]
        assert [(node.id, node.order_value, node.hash) for node in docmem.serialize(root.id)] == before

    def test_a_stale_summary_is_known_and_written_anew(self, docmem: Docmem) -> None:
        """Summaries SHOULD be regenerated when their children change; operations MUST be auditable."""
        root, children = family(docmem, 4)
        summary = docmem.add_summary(children[0].id, children[2].id, "in short", "summary", "of", "talk")
        assert docmem.stale_summaries() == []
        docmem.update_content(children[1].id, "Another sentence.")
        assert [node.id for node in docmem.stale_summaries()] == [summary.id]
        again = docmem.summarize(summary.id, lambda texts, _: " / ".join(texts))
        assert again.text == "child 1 / Another sentence. / child 3"
        assert docmem.stale_summaries() == []
        assert [version.text for version in docmem.history(summary.id)] == ["in short", again.text]
        add(docmem, root, "elsewhere")
        assert docmem.stale_summaries() == []
        docmem.delete(children[0].id)
        assert [node.id for node in docmem.stale_summaries()] == [summary.id]

    # -- Import ----------------------------------------------------

    def test_imports_keep_the_hierarchy_and_are_readonly(self, docmem: Docmem, tmp_path: Path) -> None:
        """Imported documents (non-TOML) MUST have readonly = 1 and preserve the hierarchical structure."""
        path = tmp_path / "manual.md"
        path.write_text("# One\n\nText.\n\n## Deeper\n\n- item\n\n# Two\n\nMore.\n")
        root = docmem.import_file(path)
        nodes = docmem.serialize(root.id)
        assert all(node.readonly == 1 for node in nodes)
        by_text = {node.text: node for node in nodes}
        assert by_text["Text."].parent_id == by_text["# One"].id
        assert by_text["- item"].parent_id == by_text["## Deeper"].id
        assert by_text["## Deeper"].parent_id == by_text["# One"].id
        assert by_text["# Two"].parent_id == by_text["# One"].parent_id == root.id

    def test_toml_gives_the_same_tree_again(self, docmem: Docmem) -> None:
        """Nodes from TOML files MUST default to readonly = 0."""
        root, made = tree(docmem)
        docmem.update_content(made["a"].id, '# no comment\r\n\n"""\\ "quoted" \t ünïcode 🐝\n')
        docmem.insert_after(made["a1"].id, "message", "role", "user", "")
        text = docmem.export_toml(root.id)
        found = docmem.import_toml(text)
        assert docmem.export_toml(found[0].id) == text
        assert [node.text for node in found] == texts(docmem, root)
        assert all(node.readonly == 0 for node in found)

    def test_a_bad_file_changes_nothing(self, docmem: Docmem) -> None:
        """A bad file changes nothing and the error names file and line."""
        good = docmem.export_toml(docmem.create_root().id)
        before = docmem.roots()
        for bad in (
            good + "\nnonsense",
            good + "\n[[node]]\ndepth = 7\n",
            good + '\n[[node]]\ndepth = 1\ntext = "x"\n',
        ):
            where = ""
            try:
                docmem.import_toml(bad)
            except DocmemError as error:
                where = error.location or ""
            assert where.rpartition(":")[2].isdigit()
        assert docmem.roots() == before

    # -- Query Pattern, Linking ----------------------------------------

    def test_a_summary_covers_its_children(self, docmem: Docmem) -> None:
        """Trace each hit up; a child is covered by its summary if both match; include structural context."""
        root, children = family(docmem, 4)
        docmem.update_content(children[1].id, "The zebra crossed the river.")
        docmem.update_content(children[3].id, "Another zebra stayed.")
        summary = docmem.add_summary(children[0].id, children[2].id, "About a zebra.", "summary", "of", "talk")
        hits = {hit.node.id: hit for hit in docmem.query("zebra")}
        assert set(hits) == {summary.id, children[3].id}
        assert hits[summary.id].covers == (children[1].id,)
        assert hits[summary.id].document == root.id
        assert hits[summary.id].titles == ("root",)
        assert docmem.query("giraffe") == []

    def test_tags_link_across_documents(self, docmem: Docmem) -> None:
        """Cross-entity relationships MUST be carried in content via @ tags."""
        one, two = (
            docmem.create_root(text="see @Billing"),
            docmem.create_root(text="@billing is here, not a@billing.org"),
        )
        assert docmem.tags_of(one.id) == docmem.tags_of(two.id) == ["billing"]
        assert two.id in next(hit for hit in docmem.query("@billing") if hit.node.id == one.id).linked
        docmem.update_content(one.id, "no more")
        assert docmem.tags_of(one.id) == []
