"""The knowledge folder as documents: kept up to date, searched, verified."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind.documents import Docmem, Knowledge, Node, Passage, verify
from hivemind.documents.files import Stamp
from hivemind.documents.wrong_quotes import WrongQuote, add_wrong_quotes
from hivemind.errors import UserError
from hivemind.layout import Layout

_MANUAL = """---
title: Router manual
topic: network
tags: [hardware, wifi]
---

# Router manual

## Resetting

Hold the button for ten seconds until the red lamp blinks.

The router forgets its password; it is `admin` afterwards.

## Ports

The server listens on the following ports:

- 8080 for web pages
- 9090 for metrics

## Limits

At most 32 devices can be connected at once.
"""


@pytest.fixture
def manual(knowledge: Knowledge) -> Path:
    path = knowledge.layout.knowledge / "router.md"
    path.write_text(_MANUAL)
    knowledge.sync()
    return path


def nodes(knowledge: Knowledge) -> list[Node]:
    (root,) = knowledge.docmem.roots()
    return knowledge.docmem.serialize(root.id)


def by_text(knowledge: Knowledge, text: str) -> Node:
    return next(node for node in nodes(knowledge) if text in node.text)


def best(knowledge: Knowledge, question: str) -> Passage:
    return knowledge.search(question)[0]


# -- searching ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How do I reset the router?", "ten seconds"),
        ("What is the password after resetting?", "`admin`"),
        ("Which port are the metrics on?", "- 9090 for metrics"),
        ("How many devices can connect at once?", "32 devices"),
        ("what does the red lamp do", "red lamp"),
    ],
)
def test_a_question_finds_the_lines_that_answer_it(
    manual: Path, knowledge: Knowledge, question: str, answer: str
) -> None:
    found = best(knowledge, question)
    lines = manual.read_text().split("\n")
    assert answer in found.text
    assert found.text == "\n".join(lines[found.start_line - 1 : found.end_line])
    assert found.path == "knowledge/router.md"
    assert found.titles[0] == "Router manual"
    assert found.why.startswith("has ")
    assert knowledge.verify(found)


@pytest.mark.parametrize(
    "question",
    [
        "What is the capital of Mongolia?", "Who wrote Hamlet?", "How do I bake sourdough bread?", "", "???", "the of and",
        "How do I configure the Kubernetes ingress?", "Does the manual mention IPv6 tunnelling?",
    ],
)  # fmt: skip
def test_a_question_about_something_absent_finds_no_answer(manual: Path, knowledge: Knowledge, question: str) -> None:
    assert all(passage.confidence.level == "weak" for passage in knowledge.search(question))


def test_without_a_word_to_search_for_nothing_is_near(manual: Path, knowledge: Knowledge) -> None:
    assert knowledge.search("???") == knowledge.search("Who wrote Hamlet?") == []


def test_a_search_says_that_a_quote_called_wrong_was_among_its_best_and_another_search_does_not(
    manual: Path, knowledge: Knowledge
) -> None:
    passage = best(knowledge, "what does the red lamp do")
    quote = WrongQuote(passage.path, passage.start_line, passage.end_line, passage.digest, passage.text, "t", "wrong")
    add_wrong_quotes(knowledge.layout, [quote])
    assert knowledge.search_completely("what does the red lamp do", 3)[1]
    assert not knowledge.search_completely("Which port are the metrics on?", 3)[1]


@pytest.mark.parametrize(
    "question",
    [
        '"',
        "router AND",
        "NEAR(router",
        "router*",
        "text:router",
        "^router",
        "-router",
        "router'); --",
        "🐝 router",
        "\0router",
    ],
)
def test_any_characters_may_stand_in_a_question(manual: Path, knowledge: Knowledge, question: str) -> None:
    assert isinstance(knowledge.search(question), list)


def test_what_leads_in_is_quoted_with_what_follows(manual: Path, knowledge: Knowledge) -> None:
    found = best(knowledge, "which ports does the server listen on?")
    assert found.text == "The server listens on the following ports:\n\n- 8080 for web pages\n- 9090 for metrics"


def test_equal_passages_come_in_the_order_of_their_names(knowledge: Knowledge) -> None:
    for name in ("b.md", "a.md", "c.txt"):
        (knowledge.layout.knowledge / name).write_text("Bees make honey.\n")
    knowledge.sync()
    found = [passage.path for passage in knowledge.search("Who makes honey?")]
    assert found == [f"knowledge/{name}" for name in ("a.md", "b.md", "c.txt")]
    assert len(knowledge.search("Who makes honey?", limit=2)) == 2


def test_a_tasks_files_are_found_only_in_its_scope(manual: Path, knowledge: Knowledge) -> None:
    task = knowledge.layout.active / "task-1"
    task.mkdir()
    (task / "notes.txt").write_text("The customer's router stands in the cellar.\n")
    knowledge.sync(extra=[task])
    question = "Where does the customer's router stand?"
    assert [passage.path for passage in knowledge.search(question, scope=[task])] == ["tasks/active/task-1/notes.txt"]
    assert all(passage.path != "tasks/active/task-1/notes.txt" for passage in knowledge.search(question))
    both = knowledge.search(question, scope=[knowledge.layout.knowledge, task])
    assert both[0].path == "tasks/active/task-1/notes.txt"


def test_front_matter_helps_to_find_and_can_be_cited(manual: Path, knowledge: Knowledge) -> None:
    assert "tags: [hardware, wifi]" in best(knowledge, "wifi hardware").text


# -- verifying ---------------------------------------------------------------------------------------------------------
def test_a_verdict_says_what_became_of_a_quote(manual: Path, knowledge: Knowledge) -> None:
    found = best(knowledge, "How do I reset the router?")
    layout = knowledge.layout
    assert verify(found, layout).reason == "is at knowledge/router.md:11-13"

    manual.write_text(_MANUAL.replace("32 devices", "64 devices"))
    assert verify(found, layout)
    assert "the file has changed elsewhere" in verify(found, layout).reason

    manual.write_text("A line more.\n" + _MANUAL)
    moved = verify(found, layout)
    assert (bool(moved), moved.lines) == (False, (12, 14))
    assert "is at lines 12-14" in moved.reason

    manual.write_text(_MANUAL.replace("ten", "eleven"))
    assert "does not contain the quote" in verify(found, layout).reason

    manual.unlink()
    assert not verify(found, layout)


def test_a_quote_is_verified_in_its_file_alone_and_never_outside(
    manual: Path, knowledge: Knowledge, tmp_path: Path
) -> None:
    found = best(knowledge, "How do I reset the router?")
    secret = tmp_path / "secret.md"
    secret.write_text(found.text)
    for path in (str(secret), "../secret.md", "knowledge/../../secret.md", "knowledge", "knowledge/none.md"):
        stolen = Passage(found.text, path, 1, 1, found.digest, 0, (), "", "")
        assert not verify(stolen, knowledge.layout)
    assert verify(Passage(found.text, str(secret), 1, 3, "", 0, (), "", ""), knowledge.layout, [tmp_path])


def test_line_ends_of_every_kind_are_quoted_as_they_are(knowledge: Knowledge) -> None:
    path = knowledge.layout.knowledge / "dos.md"
    path.write_bytes("# Bees\r\n\r\nBees make\r\nhoney – süß.\r\n".encode())
    knowledge.sync()
    found = best(knowledge, "What do bees make?")
    assert found.text == "Bees make\r\nhoney – süß."
    assert knowledge.verify(found)


# -- keeping up to date ------------------------------------------------------------------------------------------------
def test_a_changed_file_keeps_the_ids_of_what_is_still_there(manual: Path, knowledge: Knowledge) -> None:
    before = {node.text: node.id for node in nodes(knowledge)}
    text = _MANUAL.replace("ten seconds", "twelve seconds").replace("## Limits", "New text.\n\n## Bounds")
    manual.write_text(text.replace("# Router manual\n", "# Router manual\n\nA line at the top.\n", 1))
    assert knowledge.sync().changed == ["knowledge/router.md"]
    after = {node.text: node.id for node in nodes(knowledge)}
    same = before.keys() & after.keys()
    assert len(same) >= 9
    assert all(before[text] == after[text] for text in same)
    changed = by_text(knowledge, "twelve")
    assert changed.id == next(i for text, i in before.items() if "ten seconds" in text)
    assert knowledge.docmem.history(changed.id)[0].text.startswith("Hold the button for ten")
    assert after["## Bounds"] == before["## Limits"]
    assert "\n".join(node.text for node in nodes(knowledge)[1:]).split() == manual.read_text().split()
    assert best(knowledge, "How do I reset the router?").start_line == 13


def test_parts_that_trade_places_keep_their_ids(manual: Path, knowledge: Knowledge) -> None:
    head, *parts = _MANUAL.split("\n## ")
    before = {node.text: node.id for node in nodes(knowledge)}
    manual.write_text("\n## ".join([head, *(part.rstrip("\n") + "\n" for part in reversed(parts))]))
    knowledge.sync()
    assert {node.text: node.id for node in nodes(knowledge)} == before
    assert [node.text for node in nodes(knowledge) if node.text.startswith("## ")] == [
        "## Limits",
        "## Ports",
        "## Resetting",
    ]


def test_notes_stay_with_what_they_speak_of(manual: Path, knowledge: Knowledge) -> None:
    docmem = knowledge.docmem
    reset, limit = by_text(knowledge, "ten seconds"), by_text(knowledge, "32 devices")
    docmem.add_note(reset.id, "first note", "ann")
    docmem.add_note(limit.id, "on the limit", "bob")
    child = docmem.append_child(by_text(knowledge, "## Ports").id, "remark", "by", "ann", "mine")
    moved = _MANUAL.replace("Hold the button for ten seconds until the red lamp blinks.\n\n", "")
    manual.write_text(
        moved.replace("At most 32", "Hold the button for ten seconds until the red lamp blinks.\n\nAt most 64")
    )
    knowledge.sync()
    texts = [node.text.split("\n")[0] for node in nodes(knowledge)]
    at = texts.index("Hold the button for ten seconds until the red lamp blinks.")
    assert texts[at + 1] == "first note"
    assert texts[at + 2 : at + 4] == ["At most 64 devices can be connected at once.", "on the limit"]
    assert texts.index("mine") == texts.index("- 9090 for metrics") + 1
    assert docmem.find(child.id) is not None


def test_a_note_whose_node_is_gone_hangs_on_the_nearest_heading_and_is_marked(
    manual: Path, knowledge: Knowledge
) -> None:
    note = knowledge.docmem.add_note(by_text(knowledge, "32 devices").id, "true?", "ann")
    manual.write_text(_MANUAL.replace("At most 32 devices can be connected at once.\n", ""))
    knowledge.sync()
    found = knowledge.docmem.find(note.id)
    assert found is not None
    assert found.parent_id == by_text(knowledge, "## Limits").id
    assert (found.context_type, found.context_name, found.context_value) == ("note", "orphaned", "ann")


def test_summaries_stay_and_are_stale_when_their_children_change(manual: Path, knowledge: Knowledge) -> None:
    docmem = knowledge.docmem
    start, end = by_text(knowledge, "ten seconds"), by_text(knowledge, "forgets its password")
    summary = docmem.add_summary(start.id, end.id, "How to reset.")
    manual.write_text(
        _MANUAL.replace("\n## Ports", "\nThat is all.\n\n## Ports").replace(
            "The router forgets", "Mind this.\n\nIt forgets"
        )
    )
    knowledge.sync()
    assert [node.id for node in docmem.stale_summaries()] == [summary.id]
    inside = [node.text for node in docmem.serialize(summary.id)]
    assert inside[0] == "How to reset."
    assert inside[1].startswith("Hold")
    assert "That is all." not in inside
    assert len(inside) == 4
    manual.write_text("# Router manual\n\nNothing is left.\n")
    knowledge.sync()
    found = docmem.find(summary.id)
    assert found is not None
    assert found.context_name == "orphaned"


def test_a_deleted_file_goes_away_and_comes_back_under_its_notes(manual: Path, knowledge: Knowledge) -> None:
    note = knowledge.docmem.add_note(by_text(knowledge, "32 devices").id, "true?", "ann")
    manual.unlink()
    assert knowledge.sync().removed == ["knowledge/router.md"]
    assert knowledge.search("How do I reset the router?") == []
    assert [node.text for node in nodes(knowledge)] == ["Router manual", "true?"]
    assert knowledge.sync().removed == []
    manual.write_text(_MANUAL)
    knowledge.sync()
    assert best(knowledge, "How do I reset the router?").start_line == 11
    assert knowledge.docmem.find(note.id) is not None
    assert len(knowledge.docmem.roots()) == 1


def test_a_deleted_file_without_notes_leaves_nothing(manual: Path, knowledge: Knowledge) -> None:
    manual.unlink()
    knowledge.sync()
    assert knowledge.docmem.roots() == []


def test_a_renamed_file_is_the_same_document(manual: Path, knowledge: Knowledge) -> None:
    before = [node.id for node in nodes(knowledge)]
    manual.rename(manual.with_name("box.md"))
    report = knowledge.sync()
    assert (report.changed, report.removed) == (["knowledge/box.md"], [])
    assert [node.id for node in nodes(knowledge)] == before
    assert best(knowledge, "How do I reset the router?").path == "knowledge/box.md"


def test_an_unchanged_folder_changes_nothing(manual: Path, knowledge: Knowledge) -> None:
    before = nodes(knowledge)
    report = knowledge.sync()
    assert (report.imported, report.changed, report.removed, report.unchanged) == ([], [], [], 1)
    assert nodes(knowledge) == before


def test_a_file_whose_times_were_set_back_is_noticed(manual: Path, knowledge: Knowledge) -> None:
    found = manual.stat()
    manual.write_text(_MANUAL.replace("32", "64"))
    os.utime(manual, ns=(found.st_atime_ns, found.st_mtime_ns))
    knowledge.sync()
    assert "64 devices" in best(knowledge, "How many devices can connect at once?").text


def test_a_file_read_within_one_tick_of_its_clock_is_looked_at_again(manual: Path) -> None:
    found = manual.stat()
    look = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    assert not Stamp(*look, seen_ns=found.st_ctime_ns + 1_000_000).is_unchanged(found)
    assert Stamp(*look, seen_ns=found.st_ctime_ns + 5_000_000_000).is_unchanged(found)


def test_a_document_that_was_deleted_is_imported_again(manual: Path, knowledge: Knowledge) -> None:
    knowledge.docmem.delete(knowledge.docmem.roots()[0].id)
    knowledge.sync()
    assert best(knowledge, "How do I reset the router?")


def _link_out(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("The secret word is plum.\n")
    (layout.knowledge / "link.md").symlink_to(tmp_path / "secret.md")
    (layout.knowledge / "folder").symlink_to(tmp_path)


def test_a_link_to_a_folder_or_a_file_is_named_as_not_read(knowledge: Knowledge, tmp_path: Path) -> None:
    _link_out(knowledge.layout, tmp_path)
    (knowledge.layout.knowledge / ".hidden").symlink_to(tmp_path)
    for _ in range(2):
        skipped = knowledge.sync().skipped
        assert sorted(skipped) == ["knowledge/folder", "knowledge/link.md"]
        assert "is a link, which is not followed" in skipped["knowledge/folder"]


def _droppings(layout: Layout, tmp_path: Path) -> None:
    for name in (".hidden.md", "a.md~", ".a.swp", "b.md.tmp"):
        (layout.knowledge / name).write_text("The secret word is plum.\n")
    os.mkfifo(layout.knowledge / "pipe.md")


@pytest.mark.parametrize("put", [_link_out, _droppings])
def test_what_is_no_knowledge_is_not_read(
    knowledge: Knowledge, tmp_path: Path, put: Callable[[Layout, Path], None]
) -> None:
    put(knowledge.layout, tmp_path)
    knowledge.sync()
    assert knowledge.docmem.roots() == []


def test_a_file_that_is_no_text_is_noted_once(knowledge: Knowledge) -> None:
    (knowledge.layout.knowledge / "picture.png").write_bytes(b"\x89PNG\0\0")
    (knowledge.layout.knowledge / "locked.md").write_text("---\na: [\n---\nThe word is plum.\n")
    for _ in range(2):
        report = knowledge.sync()
        assert "NUL bytes" in report.skipped["knowledge/picture.png"]
        assert "knowledge/locked.md:3" in report.skipped["knowledge/locked.md"]
    assert best(knowledge, "What is the word?").text == "The word is plum."


def test_a_folder_outside_is_read_only_if_it_is_a_root(docmem: Docmem, layout: Layout, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_text("Bees make honey.\n")
    with pytest.raises(UserError, match="leads out"):
        Knowledge(docmem, layout).sync(extra=[outside])
    knowledge = Knowledge(docmem, layout, roots=[outside])
    knowledge.sync(extra=[outside])
    (found,) = knowledge.search("Who makes honey?", scope=[outside])
    assert found.path == str(outside / "a.md")
    assert knowledge.verify(found)


def test_a_file_that_waits_for_a_library_is_read_once_it_is_there(
    knowledge: Knowledge, monkeypatch: pytest.MonkeyPatch, pdf_of: Callable[..., bytes]
) -> None:
    pytest.importorskip("pypdf")
    (knowledge.layout.knowledge / "page.pdf").write_bytes(pdf_of("Ants", "Bees make honey."))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pypdf", None)
        assert "pip install" in knowledge.sync().skipped["knowledge/page.pdf"]
    knowledge.sync()
    found = best(knowledge, "What do bees make?")
    assert (found.text, found.start_line) == ("Bees make honey.", 2)
    assert knowledge.verify(found)


def test_an_example_in_prose_yields_to_what_the_prose_says(layout: Layout, knowledge: Knowledge) -> None:
    prose = "Anyone may send a report, of any length and colour, on paper of each size, and by day or night, to the printer."
    (layout.knowledge / "send.md").write_text(
        f"# Devices\n\n{prose}\n\nFor example\n\n```\nsend report printer send report printer\n```\n"
    )
    knowledge.sync()
    (layout.knowledge / "other.md").write_text("# Other\n\n```\nsend report printer send report printer\n```\n")
    knowledge.sync()
    best, *others = knowledge.search("Who may send a report to the printer?")
    assert best.text.startswith(prose)
    assert others
    assert all(other.score < best.score for other in others)


@pytest.mark.parametrize(
    ("beginning", "standing"),
    [
        ("---\nstatus: Superseded by 7\n---\n# Keels\n\n", "superseded"),
        ("---\ndraft: true\n---\n# Keels\n\n", "draft"),
        ("# Keels\n\nStatus: rejected\n\n", "rejected"),
        ("# Keels\n\n## Status\n\nWithdrawn\n\n## Which\n\n", "withdrawn"),
    ],
)
def test_a_document_that_is_not_in_force_stands_behind_one_that_is_and_says_so(
    layout: Layout, knowledge: Knowledge, beginning: str, standing: str
) -> None:
    (layout.knowledge / "a.md").write_text(f"{beginning}The keel of a boat is made of lead.\n")
    (layout.knowledge / "b.md").write_text("# Keels\n\nThe keel of a boat is made of iron.\n")
    knowledge.sync()
    found = [one for one in knowledge.search("What is the keel of a boat made of?") if "made of" in one.text]
    assert [(one.path, one.status) for one in found] == [("knowledge/b.md", ""), ("knowledge/a.md", standing)]
    for reason in (found[1].why, found[1].confidence.reason):  # the latter stands in the answers of the default mind
        assert reason.endswith(f"; its document is {standing}")
