"""A quote that cannot be confirmed is dropped, with a word; only a task that has none left fails."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hivemind.presence.identity import lock_name
from hivemind.reasoning import TaskGraph
from tests.agent.conftest import Crew, hands, until_idle

QUESTION = "Who paints the zeppelin?"
PAGES = {
    "one.md": "The zeppelin is painted by Ida, who paints in March.\n",
    "two.md": "Who paints the zeppelin again in autumn? Otto paints it.\n",
}


@pytest.fixture
def crew(crew: Crew) -> Crew:
    crew.configure("embedder: none\n")
    for name, text in PAGES.items():
        (crew.root / "knowledge" / name).write_text(text)
    return crew


def misplace(root: Path, *names: str) -> None:
    """Let the index say other lines of these files, as one that a fault has written."""
    with closing(sqlite3.connect(root / ".hive/documents.db", isolation_level=None)) as sql:
        for name in names:
            sql.execute(
                "UPDATE places SET start_line = start_line + 7, end_line = end_line + 7 WHERE file_id ="
                " (SELECT id FROM files WHERE path = ?)",
                (f"knowledge/{name}",),
            )


def result(crew: Crew) -> str:
    return (crew.root / "tasks/done/t/result.md").read_text()


def test_a_mind_that_works_by_rule_goes_on_without_it(crew: Crew) -> None:
    agent = crew.start()
    agent.hive.knowledge.sync()
    misplace(crew.root, "one.md")
    crew.drop(QUESTION)
    until_idle(agent)
    assert "> Who paints the zeppelin again in autumn? Otto paints it.\n" in result(crew)
    assert "Ida" not in result(crew)
    assert "Not confirmed, and so not quoted: knowledge/one.md:8: the quote is not at these lines" in result(crew)


def test_a_task_of_which_none_is_left_fails_with_the_reasons(crew: Crew) -> None:
    agent = crew.start()
    agent.hive.knowledge.sync()
    misplace(crew.root, *PAGES)
    crew.drop(QUESTION)
    until_idle(agent)
    error = (crew.root / "tasks/failed/t/error.md").read_text()
    assert [f"knowledge/{name}:8: the quote is not at these lines: is at lines 1-1" in error for name in PAGES] == [
        True
    ] * 2


@pytest.mark.parametrize("changed", [["one.md"], ["one.md", "two.md"]], ids=["one", "all"])
def test_what_a_reviewer_rejects_is_dropped_and_a_step_left_without_any_is_asked_anew(
    crew: Crew, changed: list[str]
) -> None:
    crew.agent_file("role: reviewer\n", "bob")
    ada, bob = crew.start(), crew.start(name="bob")
    lock = lock_name(bob.hive.layout, "bob")
    crew.drop(f"---\nassignee: ada\n---\n{QUESTION}")
    until_idle(ada)
    assert (crew.root / "tasks/active/t").exists()
    for name in changed:
        (crew.root / "knowledge" / name).write_text("Ada paints the zeppelin now, who paints it in June.\n")
    for agent in (bob, ada, bob, ada):
        until_idle(agent)
    lock.release()
    assert "Ida" not in result(crew)
    assert "* Checked by bob: every quote is at its cited place.\n" in result(crew)
    dropped = "* Not confirmed, and so not quoted: knowledge/one.md:1 (sha256 "
    assert (dropped in result(crew), "Otto" in result(crew), "Ada" in result(crew)) == (
        (True, True, False) if len(changed) == 1 else (False, False, True)
    )


def test_a_process_that_was_killed_while_it_dropped_quotes_leaves_none_unchecked(crew: Crew) -> None:
    crew.agent_file("role: reviewer\n", "bob")
    ada, bob = crew.start(), crew.start(name="bob")
    lock = lock_name(bob.hive.layout, "bob")
    crew.drop(f"---\nassignee: ada\n---\n{QUESTION}")
    until_idle(ada)
    (crew.root / "knowledge/one.md").write_text("Ada paints the zeppelin now.\n")
    until_idle(bob)
    store = TaskGraph(crew.root / "tasks/active/t")
    [card] = [
        node for node in store.graph.nodes.values() if node.meta.get("citation", {}).get("path") == "knowledge/one.md"
    ]
    with store.change("ada") as graph:  # all that it came to
        graph.update_node(card.node_id, status="rejected")
    crew.end(ada)
    ada = crew.start()
    until_idle(ada)
    lock.release()
    assert "Otto" in result(crew)
    assert "* Checked by ada itself: no other agent was free.\n" in result(crew)
    assert "* Not confirmed, and so not quoted: knowledge/one.md:1 (sha256 " in result(crew)


@pytest.mark.slow
def test_an_answer_waits_for_one_busy_reviewer_and_not_for_each_in_turn(crew: Crew) -> None:
    crew.configure("embedder: none\nreview_timeout_s: 0.1\n")
    for name in ("bob", "carl"):
        crew.agent_file("role: reviewer\n", name)
    ada = crew.start()
    locks = [
        lock_name(ada.hive.layout, name) for name in ("bob", "carl")
    ]  # they run, and no status says that they rest
    crew.drop(f"---\nassignee: ada\n---\n{QUESTION}")
    while ada.cycle() or (crew.root / "tasks/active/t").exists():
        ada._wait_for_work()
    for lock in locks:
        lock.release()
    assert "* Checked by ada itself: no other agent was free.\n" in result(crew)
    assert len([*(crew.root / "mailboxes").glob("*/new/*")]) == 1


def test_a_mind_that_quotes_a_part_of_what_it_has_read_cites_the_lines_of_that_part(crew: Crew) -> None:
    (crew.root / "knowledge/three.md").write_text("One.\nTwo.\nThree.\nFour.\n")
    use = hands(crew)
    digest = use("read_file", path="knowledge/three.md")["result"]["digest"]
    place = {"path": "knowledge/three.md", "start_line": 1, "end_line": 4, "digest": digest}
    assert "node" in use("add_card", kind="evidence", text="Two.\nThree.", citation=place)["result"]
    assert (
        "is at lines 2-3"
        in use("add_card", kind="evidence", text="Two.\nThree.", citation={**place, "start_line": 3})["error"]
    )
    use("finish_step")
    use("finish_task")
    assert "— `knowledge/three.md:2-3` (sha256" in result(crew)


def test_a_quote_that_a_mind_writes_into_its_answer_is_marked_unless_it_is_at_its_place(crew: Crew) -> None:
    use = hands(crew)
    quote = "> {}\n\n— `knowledge/one.md:1`"
    answer = f"Ida.\n\n{quote.format(PAGES['one.md'].strip())}\n\n{quote.format('Nobody paints it.')}\n"
    use("add_card", kind="note", text="Ida paints it.")
    use("finish_step")
    use("finish_task", result=answer)
    text = result(crew)
    assert text.count("— `knowledge/one.md:1`\n") == 1
    assert "— `knowledge/one.md:1` (not confirmed: knowledge/one.md does not contain the quote)\n" in text
