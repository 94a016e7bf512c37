"""Trees as TOML."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.documents import Docmem, DocmemError
from hivemind.errors import UnknownVersion

_TRICKY = ['"', '"""', "'''", "\\", "\n", "\r\n", "\r", "#", "[[node]]\n", "\t", "\0", "\x7f", "é", " "]
_TEXT = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.sampled_from(_TRICKY)).map("".join))
_WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=24).filter(lambda text: text.strip())


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), _TEXT, _WORD, st.booleans(), st.floats(0, 1)), max_size=8), st.randoms())
def test_what_is_exported_is_imported_byte_for_byte(
    steps: list[tuple[int, str, str, bool, float]], random: object
) -> None:
    with Docmem(":memory:", token_counter=len) as docmem:
        ids = [docmem.create_root().id]
        for at, text, word, flag, importance in steps:
            target = ids[at % len(ids)]
            add = docmem.insert_before if flag and target != ids[0] else docmem.append_child
            ids.append(add(target, word, word, word, text, readonly=int(flag)).id)
            docmem.set_importance(ids[-1], importance)
            docmem.set_sticky(ids[-1], flag)
        exported = docmem.export_toml(ids[0])
        with Docmem(":memory:", token_counter=len) as other:
            again = other.import_toml(exported)
            assert other.export_toml(again[0].id) == exported
            mine = [
                (n.text, n.order_value, n.context, n.readonly, n.importance, n.sticky) for n in docmem.serialize(ids[0])
            ]
            theirs = [(n.text, n.order_value, n.context, n.readonly, n.importance, n.sticky) for n in again]
            assert theirs == mine


def test_summaries_are_summaries_again(docmem: Docmem) -> None:
    root = docmem.create_root()
    child = docmem.append_child(root.id, "m", "n", "v", "x")
    docmem.add_summary(child.id, child.id, "in short", "digest", "of", "it")
    again = docmem.import_toml(docmem.export_toml(root.id))
    docmem.update_content(again[2].id, "y")
    assert [node.id for node in docmem.stale_summaries()] == [again[1].id]


def test_a_person_may_leave_out_what_has_a_default(docmem: Docmem) -> None:
    text = """
    [[node]]
    context_type = "root"
    context_name = "rules"
    context_value = "house"
    [[node]]
    depth = 1
    context_type = "rule"
    context_name = "n"
    context_value = "1"
    text = 'Be kind.'
    [[node]]
    depth = 1
    context_type = "rule"
    context_name = "n"
    context_value = "2"
    """
    nodes = docmem.import_toml(text)
    assert [(node.order_value, node.readonly, node.text) for node in nodes] == [
        (0, 0, ""),
        (1, 0, "Be kind."),
        (2, 0, ""),
    ]


_HEAD = (
    'version = 1\n\n[[node]]\ncontext_type = "a"\ncontext_name = "b"\ncontext_value = "c"\ntext = """\n[[node]]\n"""\n'
)


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        ("nonsense", 10), ("[[node]]\ndepth = 2\ncontext_type='a'\ncontext_name='b'\ncontext_value='c'", 10),
        ("x = 1", 3), ("[[node]]\ndepth = 1", 10), ("[[node]]\ndepth = -1", 10), ("text = 3", 10),
        ("[[node]]\ndepth=1\ncontext_type='a'\ncontext_name='b'\ncontext_value='c'\nreadonly = 2", 10),
        ("[[node]]\ndepth=1\ncontext_type='a'\ncontext_name='b'\ncontext_value='c'\norder = nan", 10),
        ("[other]", 1),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_and_nothing_is_imported(docmem: Docmem, tmp_path: object, bad: str, line: int) -> None:
    with pytest.raises(DocmemError) as caught:
        docmem.import_toml(_HEAD + bad)
    assert caught.value.location == f"TOML:{line}"
    assert docmem.roots() == []


def test_a_tree_of_another_version_is_refused(docmem: Docmem) -> None:
    with pytest.raises(UnknownVersion):
        docmem.import_toml("version = 2\n" + _HEAD.partition("\n")[2])
