"""hivemind doc: documents imported, looked at, searched, noted, summarised, restored, exported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hivemind import Hive
from tests.cli.conftest import Command

NOTES = (
    "# Boats\n\nA @boat floats.\n\n## Oars\n\nAn oar is made of ash. It is two metres long.\n\nA second paragraph.\n"
)


@pytest.fixture
def notes(hive: Path) -> str:
    """A file of knowledge, by its name in the hive."""
    (hive / "knowledge").mkdir(exist_ok=True)
    (hive / "knowledge" / "boats.md").write_text(NOTES)
    return "knowledge/boats.md"


def test_the_tree_of_everything_lists_documents_with_class_and_size(run: Command, notes: str) -> None:
    [row] = run("doc", "tree", "--json").json
    assert (row["title"], row["path"], row["class"]) == ("Boats", notes, "document")
    assert run("doc", "tree").out.splitlines()[0].split() == ["ID", "CLASS", "TOKENS", "TITLE", "PATH"]


def test_a_document_is_shown_as_a_tree_down_to_a_depth(run: Command, notes: str) -> None:
    lines = run("doc", "tree", notes).out.splitlines()
    assert [re.sub(r"\w{8} |, \d+ tokens", "", line, count=2) for line in lines] == [
        "[root] Boats",
        "  [heading] Boats",
        "    [paragraph] A @boat floats.",
        "    [heading] Oars",
        "      [paragraph] An oar is made of ash. It is two metres long.",
        "      [paragraph] A second paragraph.",
    ]
    assert run("doc", "tree", notes, "--depth", "1").out.splitlines() == lines[:2]
    assert [node["contextType"] for node in run("doc", "tree", notes, "--json", "--depth", "1").json] == [
        "root", "heading",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "starts"), [(1, "# Boats"), (2, "# Boats"), (3, "A @boat"), (7, "An oar"), (99, "A sec")]
)
def test_a_node_is_named_by_the_line_that_it_stands_on(run: Command, notes: str, line: int, starts: str) -> None:
    shown = run("doc", "show", f"{notes}:{line}", "--json").json
    assert shown["text"].startswith(starts)
    assert run("doc", "show", shown["id"], "--json").json == shown
    assert shown["source"]["citation"] == f"{notes}:{shown['source']['start_line']}-{shown['source']['end_line']}"


def test_a_node_that_is_not_there_is_refused_in_one_line(run: Command, hive: Path) -> None:
    for words in (["show", "nosuch"], ["tree", "nosuch:3"], ["expand", "a:0"], ["note", "x", "y"]):
        ended = run("doc", *words)
        assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert "there is no node" in ended.err


def test_an_expansion_says_how_much_of_it_is_there(run: Command, notes: str) -> None:
    whole = run("doc", "expand", notes)
    assert whole.out == NOTES
    some = run("doc", "expand", notes, "--max-tokens", "16", "--json").json
    assert some["form"] == "excerpt"
    assert some["text"] == "# Boats\n\nA @boat floats.\n\n## Oars"
    assert run("doc", "expand", notes, "--max-tokens", "3", "--json").json["form"] == "outline"
    preferred = run("doc", "expand", f"{notes}:5", "--max-tokens", "16", "--query", "second", "--json").json
    assert preferred["text"].endswith("A second paragraph.")


def test_what_is_found_says_where_it_stands_and_why(run: Command, notes: str) -> None:
    out = run("doc", "find", "what is an oar made of").out.splitlines()
    assert f"{notes}:7-7" in out[0]
    assert out[1].strip() == "An oar is made of ash. It is two metres long."
    assert "has oar, made" in out[2]
    assert run("doc", "find", "zeppelins").out == "Nothing was found.\n"
    [hit] = run("doc", "find", "@boat", "--json", "--limit", "1").json
    assert hit["text"] == "A @boat floats."
    assert run("doc", "find", " ").status == 2


def test_files_of_a_folder_are_imported_and_what_cannot_be_is_named(run: Command, hive: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.md").write_text(NOTES)
    (folder / "deep" / "b.txt").write_text("Only text.\n")
    (folder / "c.bin").write_bytes(b"\0\1")
    ended = run("doc", "import", str(folder), str(tmp_path / "nosuch"), "--json")
    assert ended.status == 1
    assert [Path(one["path"]).name for one in ended.json["imported"]] == ["a.md", "b.txt"]
    assert len(ended.json["failed"]) == 2
    assert ended.err.count("\n") == 2
    again = run("doc", "import", str(folder / "a.md"), "--json")
    assert again.json["imported"][0]["node"] == ended.json["imported"][0]["node"], (
        "the same document, brought up to date"
    )
    assert run("doc", "show", f"{folder / 'a.md'}:3").out.endswith("A @boat floats.\n")


def test_a_tree_goes_out_as_toml_and_comes_in_again(run: Command, notes: str, tmp_path: Path) -> None:
    path = tmp_path / "tree.toml"
    path.write_text(run("doc", "export", notes).out)
    [made] = run("doc", "import", str(path), "--json").json["imported"]
    assert run("doc", "export", made["node"]).out == path.read_text()
    path.write_text("[[node]]\ncontext_type = 'x'\n")
    ended = run("doc", "import", str(path))
    assert ended.status == 1
    assert f"{path}:1: context_name" in ended.err


def test_notes_summaries_and_history(run: Command, hive: Path, notes: str) -> None:
    note = run("doc", "note", f"{notes}:3", "Not all of them. See @boat.", "--author", "analyst").out.strip()
    shown = run("doc", "show", note, "--json").json
    assert (shown["context_type"], shown["context_value"], shown["tags"]) == ("note", "analyst", ["boat"])
    summary = run("doc", "summarize", f"{notes}:5", "--text", "About oars.").out.splitlines()
    assert summary[0] == "About oars."
    Hive.open(hive).documents.append_child(summary[1], "memory", "by", "hand", "Oars break.")
    assert run("doc", "summarize", summary[1]).status == 0
    assert len(run("doc", "show", summary[1], "--json").json["versions"]) == 2
    assert run("doc", "restore", summary[1], "1").status == 0
    assert run("doc", "show", summary[1], "--json").json["text"] == "About oars."
    assert run("doc", "restore", summary[1], "9").status == 2
    assert run("doc", "summarize", summary[1], "--remove").out == "3 nodes took its place.\n"
    assert run("doc", "summarize").status == 2
    assert run("doc", "note", note, " ").status == 2


def test_what_a_file_says_is_deleted_with_the_file_only(run: Command, hive: Path, notes: str) -> None:
    assert "change or delete the file" in run("doc", "delete", f"{notes}:3").err
    root = Hive.open(hive).documents.create_root(text="x")
    assert run("doc", "delete", root.id).out == "1 node deleted.\n"
    assert run("doc", "show", root.id).status == 2


def test_how_far_the_meaning_of_documents_is_known_is_said_and_the_rest_done_on_demand(
    run: Command, notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "found by their words" in run("doc", "index").out
    monkeypatch.setenv("HIVEMIND_EMBEDDER", "hashing")
    before = run("doc", "index", "--json").json
    assert before["by_meaning"] == 0
    left = f"0 of {before['passages']} passages by meaning, about 1 min left"
    assert run("doc", "index").out == f"{left}\n"
    assert left in run("status").out
    assert run("doc", "index", "--wait").out == f"all {before['passages']} passages by meaning\n"
    assert run("doc", "index", "--json").json["by_meaning"] == before["passages"]
    assert "passages" not in run("status").out


def test_the_index_names_the_files_that_cannot_be_read(run: Command, hive: Path) -> None:
    (hive / "knowledge").mkdir(exist_ok=True)
    (hive / "knowledge" / "scan.bin").write_bytes(b"\0\xff" * 40)
    for _ in range(2):  # the second time nothing is read
        assert [
            line for line in run("doc", "index").out.splitlines() if line.startswith("not read: knowledge/scan.bin")
        ]
    assert list(run("doc", "index", "--json").json["unread"]) == ["knowledge/scan.bin"]
    for number in range(30):
        (hive / "knowledge" / f"{number}.bin").write_bytes(b"\0\xff" * 40)
    assert run("doc", "index").out.endswith("not read: 11 more files: hivemind doc index --json\n")
