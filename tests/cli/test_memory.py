"""hivemind memory: remembered, searched, listed, shown, forgotten."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.longterm import open_store
from tests.cli.conftest import Command, make_hive
from tests.postgres import Server


def test_what_is_remembered_is_found_listed_shown_and_forgotten(run: Command, hive: Path) -> None:
    told = run("memory", "remember", "Invoices go out as PDF", "--key", "invoices", "--category", "fact", "--json").json
    assert (told["success"], told["action"], told["key"], told["namespace"][0]) == (
        True,
        "created",
        "invoices",
        "shared",
    )
    run("memory", "remember", "Ann prefers tea", "--agent", "researcher", "--importance", "0.9")
    assert [hit["key"] for hit in run("memory", "search", "how do invoices go out?", "--json").json] == ["invoices"]
    [mine] = run("memory", "list", "--agent", "researcher", "--json").json
    assert (mine["content"], mine["importance"]) == ("Ann prefers tea", 0.9)
    assert len(run("memory", "list", "--json").json) == 2
    assert run("memory", "show", "invoices").out.endswith("\nInvoices go out as PDF\n")
    assert run("memory", "search", "tea", "--category", "fact").out == "No memories match the query.\n"
    assert run("memory", "forget", "invoices").out == "'invoices' is forgotten\n"
    assert run("memory", "forget", "invoices").status == 2


def test_an_entry_keeps_what_it_said_before(run: Command, hive: Path) -> None:
    for text in ("PDF", "PDF and XML"):
        run("memory", "remember", text, "--key", "k", "--category", "fact")
    history = run("memory", "show", "k", "--json").json["versions"]
    assert [(one["version"], one["content"], one["category"]) for one in history] == [
        (1, "PDF", "fact"), (2, "PDF and XML", "fact"),
    ]  # fmt: skip


def test_nothing_is_remembered_for_an_agent_that_there_is_not(run: Command, hive: Path) -> None:
    ended = run("memory", "remember", "Ann prefers tea", "--agent", "reseacher")
    assert ended.status == 2
    assert "there are analyst, researcher, reviewer and human" in ended.err
    assert run("memory", "list", "--json").json == []


def test_what_is_there_already_is_not_stored_again_and_said_so(run: Command, hive: Path) -> None:
    run("memory", "remember", "Invoices go out as PDF", "--key", "invoices")
    ended = run("memory", "remember", "Invoices go out as PDF")
    assert ended.status == 1
    assert "'invoices' already says the same" in ended.out


@pytest.mark.parametrize(
    "words",
    [
        ["show", "nosuch"], ["forget", "nosuch"], ["forget"],
        ["search", "x", "--namespace", "one"], ["remember", " "], ["remember", "x", "--key", "k" * 257], ["reindex"],
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(run: Command, hive: Path, words: list[str]) -> None:
    ended = run("memory", *words)
    assert ended.status == 2
    assert len(ended.err.splitlines()) == 1


def test_an_importance_above_1_is_wrong_use(run: Command, hive: Path) -> None:
    assert run("memory", "remember", "x", "--importance", "2").status == 2


def test_looking_at_a_memory_that_is_not_there_makes_none(run: Command, hive: Path) -> None:
    for words in (["list"], ["search", "x"], ["status"]):
        assert run("memory", *words).status == 0
    assert not (hive / ".hive" / "memory.db").exists()
    assert json.loads(run("memory", "list", "--json").out) == []


def test_status_tells_how_much_there_is_and_how_it_is_searched(run: Command, hive: Path) -> None:
    run("memory", "remember", "x")
    status = run("memory", "status", "--json").json
    assert (status["entries"], status["namespaces"]) == (1, 1)
    assert "Entries     1 in 1 namespace" in run("memory", "status").out


def test_status_says_when_only_words_are_searched_also_where_nothing_is_remembered_yet(
    run: Command, hive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIVEMIND_EMBEDDER", "none")
    empty = run("memory", "status").out
    assert "Entries     none yet" in empty
    assert run("memory", "status", "--json").json["entries"] == 0
    assert not (hive / ".hive" / "memory.db").exists()
    run("memory", "remember", "x")
    for said in (empty, run("memory", "status").out):
        assert "by words only" in said
        assert "full-text search only: pip install 'hivemind-swarm[embed]', and set embedder: auto in hive.yaml" in said


def test_expired_entries_are_hidden_and_deleted_by_the_next_write(run: Command, hive: Path) -> None:
    until = datetime.now(UTC) + timedelta(milliseconds=1)
    with closing(Hive.open(hive).memory) as memory:
        memory.upsert_memory(("shared", "hive"), "The gate code is 4711", key="gate", expires_at=until)
    assert "No memories yet" in run("memory", "list").out
    assert "none yet" in run("memory", "status").out
    run("memory", "remember", "The gate is green", "--key", "colour")
    with closing(sqlite3.connect(hive / ".hive" / "memory.db")) as sql:
        assert sql.execute("SELECT key FROM entries").fetchall() == [("colour",)]


def test_a_namespace_of_one_part_is_refused_in_words(run: Command, hive: Path) -> None:
    assert "--namespace one has only one part; add the owner" in run("memory", "list", "--namespace", "one").err


def test_a_damaged_memory_is_told_in_one_line_and_mended_by_the_doctor(run: Command, hive: Path) -> None:
    run("memory", "remember", "The gate code is 4711", "--key", "gate")
    path = hive / ".hive" / "memory.db"
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink(
            missing_ok=True
        )  # the command's own connection may write to the old file when it goes
    path.write_bytes(b"no database at all")
    told = run("memory", "search", "gate").err
    assert "hivemind doctor says how to save it" in told
    assert len(told.splitlines()) == 1
    assert "an empty database replaces it" in run("doctor", "--fix").out
    assert run("memory", "list").status == 0


@pytest.mark.shows("promise: P74")
def test_the_memory_of_a_hives_agents_is_theirs_in_a_database_of_several_hives_and_back_in_a_file(
    run: Command, tmp_path: Path, database: str
) -> None:
    made = {name: make_hive(tmp_path / name) for name in ("berlin", "munich")}
    for name, folder in made.items():
        settings = (folder / "hive.yaml").read_text().replace("workspace: hive", f"workspace: {name}")
        (folder / "hive.yaml").write_text(settings)
        at = ("--hive", str(folder))
        run("memory", "remember", f"seen in {name}", "--agent", "analyst", "--key", "seen", *at)
        run("memory", "remember", f"all of {name}", "--key", "all", *at)
        assert run("memory", "copy", str(folder), database, "--json").json["entries"] == 2
        (folder / "hive.yaml").write_text(f"{settings}memory: {database}\n")
        assert run("memory", "show", "seen", "--agent", "analyst", "--json", *at).json["namespace"] == [
            "memories", f"analyst@{name}",
        ]  # fmt: skip
    with open_store(database, None) as store:
        assert len(store.namespaces()) == 4
    back = make_hive(tmp_path / "back")
    (back / "hive.yaml").write_text((back / "hive.yaml").read_text().replace("workspace: hive", "workspace: berlin"))
    assert "entries     4" in run("memory", "copy", database, str(back)).out
    shown = run("memory", "show", "seen", "--agent", "analyst", "--json", "--hive", str(back)).json
    assert (shown["namespace"], shown["content"]) == (["memories", "analyst"], "seen in berlin")
    assert run("memory", "copy", str(tmp_path / "nowhere.db"), database).status == 2
    assert "already; nothing was copied" in run("memory", "copy", database, str(back)).err


def test_a_hive_that_names_a_database_keeps_its_memories_there_and_says_how_it_is(run: Command, hive: Path) -> None:
    settings, space = hive / "hive.yaml", ("shared", "hive")
    with Server() as server:
        url = server.new_database()
        settings.write_text(f"{settings.read_text()}\nmemory: {url}\n")
        run("memory", "remember", "tea at four", "--key", "tea")
        assert not (hive / ".hive" / "memory.db").exists()
        with open_store(url, None) as store:
            assert store.list(space) == ["tea"]
        assert run("status", "--json").json["memory"]["entries"] == 1
        assert [one for one in run("doctor", "--json").json["findings"] if one["where"] == url] == []
    assert "the server is not reachable" in run("status").out
    [found] = [one for one in run("doctor", "--json").json["findings"] if one["where"] == url]
    assert found["mend"].startswith("start the server")
