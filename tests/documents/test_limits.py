"""Deep trees: nothing recurses, neither here nor in the database's triggers."""

from __future__ import annotations

import pytest

from hivemind.documents import CycleError, Docmem
from hivemind.documents.toml import export


def test_a_tree_deeper_than_python_recurses_works_throughout(docmem: Docmem) -> None:
    root = docmem.create_root(text="0")
    text = export([root], set()) + "".join(
        f'\n[[node]]\ndepth = {depth}\ncontext_type = "m"\ncontext_name = "n"\ncontext_value = "v"\ntext = "level {depth}"\n'
        for depth in range(1, 1_501)
    )
    nodes = docmem.import_toml(text)
    top, bottom = nodes[0].id, nodes[-1].id
    assert [node.id for node in docmem.serialize(top)] == [node.id for node in nodes]
    assert len(docmem.structure(top)) == len(docmem.expand_to_length(top, 10**9)) == 1_501
    with pytest.raises(CycleError):
        docmem.move_append_child(nodes[1].id, bottom)
    assert docmem.query("level 1500")[0].node.id == bottom
    copy = docmem.copy_append_child(nodes[1].id, root.id)
    assert len(docmem.serialize(copy.id)) == 1_500
    assert docmem.export_toml(top).count("[[node]]") == 1_501
    docmem.delete(top)
    assert [node.id for node in docmem.roots()] == [root.id]
    assert len(docmem.serialize(root.id)) == 1_501
