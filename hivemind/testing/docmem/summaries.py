"""Summaries (seed 003, *Summarization*)."""

from __future__ import annotations

from hivemind.documents import Docmem, DocmemError
from hivemind.testing.case import Case, refused, says
from hivemind.testing.docmem.trees import add, family, hash_of, now, texts, tree

__all__ = ["CASES"]

CASES: list[Case[Docmem]] = []


@says(CASES, "A summary node MUST be created as the new parent of the memory nodes, at the midpoint of their orders")
def a_summary_is_the_parent_of_what_it_sums_up(docmem: Docmem) -> None:
    root, children = family(docmem, 5)
    summary = docmem.add_summary(children[1].id, children[3].id, "in short", "summary", "of", "talk")
    assert (summary.parent_id, summary.order_value, summary.context_type) == (root.id, 3, "summary")
    assert texts(docmem, root) == ["root", "child 1", "in short", "child 2", "child 3", "child 4", "child 5"]
    member = now(docmem, children[1])
    assert (member.parent_id, member.order_value) == (summary.id, 2)
    assert member.hash == hash_of(member, "2") != children[1].hash
    assert docmem.add_summary(children[4].id, children[4].id, "one", "summary", "of", "talk").order_value == 5


@says(CASES, "All nodes to be summarized MUST have the same parent and MUST be leaf nodes")
def only_leaves_of_one_parent_are_summed_up(docmem: Docmem) -> None:
    root, made = tree(docmem)
    before = docmem.serialize(root.id)
    for start, end in (("a", "b"), ("a1", "a2"), ("a2", "b1"), ("a11", "a2")):
        with refused(DocmemError):
            docmem.add_summary(made[start].id, made[end].id, "x", "summary", "of", "talk")
    with refused(DocmemError):
        docmem.add_summary(root.id, root.id, "x", "summary", "of", "talk")
    _, children = family(docmem)
    with refused(DocmemError):
        docmem.add_summary(children[2].id, children[0].id, "x", "summary", "of", "talk")
    assert docmem.serialize(root.id) == before


@says(CASES, "Summarization MUST be reversible; original memory nodes MUST be preserved")
def a_summary_can_be_taken_away(docmem: Docmem) -> None:
    root, children = family(docmem, 4)
    before = [(node.id, node.order_value, node.hash) for node in docmem.serialize(root.id)]
    summary = docmem.add_summary(children[0].id, children[2].id, "in short", "summary", "of", "talk")
    assert [node.id for node in docmem.remove_summary(summary.id)] == [child.id for child in children[:3]]
    assert [(node.id, node.order_value, node.hash) for node in docmem.serialize(root.id)] == before


@says(CASES, "Summaries SHOULD be regenerated when their children change; operations MUST be auditable")
def a_stale_summary_is_known_and_written_anew(docmem: Docmem) -> None:
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
