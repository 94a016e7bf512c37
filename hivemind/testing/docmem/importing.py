"""Importing and exporting (seed 003, *Import*; spec 5)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hivemind.documents import Docmem, DocmemError
from hivemind.testing.case import Case, says
from hivemind.testing.docmem.trees import texts, tree

__all__ = ["CASES"]

CASES: list[Case[Docmem]] = []


@says(CASES, "Imported documents (non-TOML) MUST have readonly = 1 and preserve the hierarchical structure")
def imports_keep_the_hierarchy_and_are_readonly(docmem: Docmem) -> None:
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


@says(CASES, "Nodes from TOML files MUST default to readonly = 0")
def toml_gives_the_same_tree_again(docmem: Docmem) -> None:
    root, made = tree(docmem)
    docmem.update_content(made["a"].id, '# no comment\r\n\n"""\\ "quoted" \t ünïcode 🐝\n')
    docmem.insert_after(made["a1"].id, "message", "role", "user", "")
    text = docmem.export_toml(root.id)
    found = docmem.import_toml(text)
    assert docmem.export_toml(found[0].id) == text
    assert [node.text for node in found] == texts(docmem, root)
    assert all(node.readonly == 0 for node in found)


@says(CASES, "A bad file changes nothing and the error names file and line (spec 5)")
def a_bad_file_changes_nothing(docmem: Docmem) -> None:
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
