"""A changed file: whatever has been put among its nodes, the document becomes the file and nothing of others is lost."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hivemind.documents import Docmem, Node
from hivemind.documents.files import Stamp, store_document
from hivemind.documents.formats import read_outline
from hivemind.documents.importing import PieceKey, match_pieces

_BLOCK = st.sampled_from(["# A", "# B", "## C", "one", "two", "three", "four five six", "- i\n  - j", "- k"])
_BLOCKS = st.lists(_BLOCK, max_size=12)
_ACT = st.tuples(st.sampled_from(["note", "summary", "child"]), st.integers(0, 30), st.integers(0, 3))
_ACTS = st.lists(_ACT, max_size=6)


def _take_in(docmem: Docmem, text: str) -> str:
    outline = read_outline(text.encode(), "file.md", docmem.count)
    with docmem.transaction() as edit:
        return store_document(edit, "file.md", outline, Stamp(0, 0, 0, 0, 0), str(hash(text)), is_synced=True)[0]


def _put_among(docmem: Docmem, root: str, act: str, at: int, more: int) -> str | None:
    nodes = docmem.serialize(root)
    node = nodes[at % len(nodes)]
    if act == "note":
        return docmem.add_note(node.id, "a note", "ann").id
    if act == "child":
        return docmem.append_child(node.id, "remark", "by", "ann", "a remark").id
    siblings = [found for found in nodes if found.parent_id == node.parent_id]
    leaves = [found for found in siblings if not any(child.parent_id == found.id for child in nodes)]
    if node.parent_id is None or node not in leaves:
        return None
    end = siblings.index(node)
    while end + 1 < len(siblings) and siblings[end + 1] in leaves and more:
        end, more = end + 1, more - 1
    return docmem.add_summary(node.id, siblings[end].id, "a summary").id


def _own(docmem: Docmem, root: str) -> list[Node]:
    return [node for node in docmem.serialize(root)[1:] if docmem.source(node.id) is not None]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_BLOCKS, min_size=2, max_size=4), _ACTS)
@example(
    [["## C", "# A"], ["# A", "## C"], []],
    [("note", 0, 0), ("summary", 1, 2), ("summary", 24, 0), ("note", 0, 0), ("note", 18, 0)],
)
def test_the_document_becomes_the_file_and_others_nodes_stay(
    versions: list[list[str]], acts: list[tuple[str, int, int]]
) -> None:
    with Docmem(":memory:", token_counter=len) as docmem:
        root = _take_in(docmem, "\n\n".join(versions[0]))
        mine = {found for act in acts if (found := _put_among(docmem, root, *act)) is not None}
        for blocks in versions[1:]:
            text = "\n\n".join(blocks)
            assert _take_in(docmem, text) == root
            own = _own(docmem, root)
            assert " ".join(node.text for node in own).split() == text.split()
            outline = read_outline(text.encode(), "file.md", len)
            assert [node.text for node in own] == [text[piece.start : piece.end] for piece in outline.pieces]
            assert mine <= {node.id for node in docmem.serialize(root)}
            assert docmem.check() == []
        with Docmem(":memory:", token_counter=len) as fresh:
            again = _take_in(fresh, "\n\n".join(versions[-1]))
            assert [n.text for n in _own(fresh, again)] == [n.text for n in _own(docmem, root)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=12), st.randoms())
def test_no_old_piece_is_given_twice(pieces: list[tuple[str, str]], random: object) -> None:
    def side(found: list[tuple[str, str]]) -> list[PieceKey]:
        return [(kind, text, "s") for kind, text in found]

    found = match_pieces(side(pieces), side(pieces[::-1]))
    assert None not in found
    assert len(set(found)) == len(pieces)
    assert match_pieces(side(pieces), side(pieces)) == list(range(len(pieces)))
