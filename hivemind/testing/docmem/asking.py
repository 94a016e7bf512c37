"""Asking (seed 003, *Query Pattern*, *Linking*)."""

from __future__ import annotations

from hivemind.documents import Docmem
from hivemind.testing.case import Case, says
from hivemind.testing.docmem.trees import family

__all__ = ["CASES"]

CASES: list[Case[Docmem]] = []


@says(CASES, "Trace each hit up; a child is covered by its summary if both match; include structural context")
def a_summary_covers_its_children(docmem: Docmem) -> None:
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


@says(CASES, "Cross-entity relationships MUST be carried in content via @ tags")
def tags_link_across_documents(docmem: Docmem) -> None:
    one, two = docmem.create_root(text="see @Billing"), docmem.create_root(text="@billing is here, not a@billing.org")
    assert [node.id for node in docmem.tagged("billing")] == [one.id, two.id]
    assert two.id in next(hit for hit in docmem.query("@billing") if hit.node.id == one.id).linked
    docmem.update_content(one.id, "no more")
    assert [node.id for node in docmem.tagged("@Billing")] == [two.id]
