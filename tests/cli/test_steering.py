"""Nothing that others wrote steers a terminal: whatever is listed or shown, on a terminal, in a pipe and as JSON."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.cli.main import declared_commands
from hivemind.masking import strip_controls
from hivemind.reasoning import TaskGraph
from tests.cli.conftest import Command, Ended

EVIL = "evil\x1b]0;owned\x07\x9b31m\u202egpj\u2066\x7f\x85é"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_CHANGING = """
    link | unlink | init | up | down | due | archive | backup | restore
    | task add | task retry | task cancel | task say | land | mail send | mail reply | mail keep | agent run
    | agent add | agent try | agent stop | agent start
    | lease claim | lease renew | lease release | reserve paths | reserve release | graph publish
    | graph branch create | graph branch merge | doc import | doc note | doc summarize | doc restore
    | doc delete | doc index | memory remember | memory forget | memory reindex
    | memory copy | lessons | acp | mcp | completion | web | top
"""
LOOKING = {
    command.strip(): arguments.split()
    for line in """
        status | task diff : done | task wait : done
        task list | task list --ignored | *task show : t done failed | *task transcript : t | task replay : done
        mail list | *mail read : ID
        *mail thread : ID | mail transcript : researcher ID | mail status : ID | agent list | *context : researcher | *log
        lease list
        reserve list | *view resume : t | view snapshot : t | view watch : t | view signals : t | *graph show : t
        task timeline : t | *graph find : evil
        graph branch list : t
        *doc tree | *doc tree of : FILE | *doc show : FILE | *doc show of : NODE | *doc expand : FILE | *doc find : evil
        *doc export : FILE | *memory search : evil
        *memory list : --namespace shared/hive | *memory show --namespace shared/hive : KEY
        help : lease | memory status | doctor | tool list | tool show : doc_find
        tool call : doc_find query=evil
    """.strip().split("\n")
    for command, _, arguments in (one.partition(":") for one in line.split("|"))
}
"""Commands that look, with what they need; `of` and options make variants; those with a star must have shown something."""
CHANGING = {*map(str.strip, _CHANGING.split("|"))}


@pytest.fixture
def evil(hive: Path) -> Path:
    """A hive in which every text that others can write steers a terminal, if it may."""
    opened = Hive.open(hive)
    (hive / "knowledge" / f"{EVIL}.md").write_text(f"# {EVIL}\n\n{EVIL} is evil.\n\n- {EVIL}\n")
    opened.tasks.add(f"{EVIL}: which?", id="t", title=EVIL)
    (hive / "tasks" / "inbox" / f"{EVIL}.orig").write_text(EVIL)
    (hive / "tasks" / "inbox" / f"{EVIL}.md").write_text("---\ndeadline: [\n---\n")
    task = opened.tasks.claim("researcher")
    assert task is not None
    opened.journal.append("task.claimed", task_id=task.id, agent_id="researcher", title=EVIL)
    opened.steps.plan(task.id, [{"title": EVIL}])
    with TaskGraph(task.path).change("researcher") as graph:
        graph.add_node("task", EVIL, title=EVIL)
        graph.add_node("decision", EVIL, title=EVIL, lane="agent/researcher", tags=["evil"])
        graph.add_node("decision", f"not {EVIL}", lane="shared", tags=["evil"])
    opened.tasks.active.log(task, {"role": "user", "text": EVIL, "error": EVIL})
    for place, name in (("done", "result.md"), ("failed", "error.md")):
        folder = hive / "tasks" / place / place
        folder.mkdir(parents=True)
        (folder / "task.md").write_text(f"# {EVIL}\n")
        (folder / name).write_text(f"# {EVIL}\n\n{EVIL}\n")
        (folder / "messages.jsonl").write_text(
            json.dumps({"role": "assistant", "text": EVIL, "agent": EVIL}, ensure_ascii=False) + "\n"
        )
    letter = f"From: {EVIL.replace(chr(127), '')} <ann@example.org>\r\nSubject: {EVIL}\r\nMessage-ID: <evil@x>\r\n\r\n{EVIL}\r\n"
    (hive / "mailboxes" / "human" / "new").mkdir(parents=True, exist_ok=True)
    (hive / "mailboxes" / "human" / "new" / "1.evil").write_bytes(letter.encode())
    opened.memory.put(("shared", "hive"), EVIL, {"content": EVIL, "category": EVIL, "metadata": {EVIL: EVIL}})
    root = opened.documents.create_root("evil", text=EVIL, context_value=EVIL)
    opened.documents.add_note(root.id, EVIL, "ann")
    opened.documents.update_content(root.id, f"{EVIL} again")
    return hive


def _typed(command: str, needed: list[str]) -> list[str]:
    places = {"FILE": f"knowledge/{EVIL}.md", "NODE": "evil", "ID": "1.evil", "KEY": EVIL}
    return [*command.removeprefix("*").removesuffix(" of").split(), *(places.get(one, one) for one in needed)]


def test_every_command_is_known_to_change_or_to_look() -> None:
    known = {re.sub(r" (--.*|of)$", "", command).removeprefix("*") for command in LOOKING}
    assert {" ".join(one.words) for one in declared_commands()} <= known | CHANGING


def _each(run: Command, *more: str) -> Iterator[tuple[str, Ended]]:
    for command, needed in LOOKING.items():
        yield command, run(*_typed(command, needed), *more)


def test_nothing_that_is_listed_or_shown_steers_a_pipe(evil: Path, run: Command) -> None:
    found = {command: (ended.out, ended.err) for command, ended in _each(run)}
    assert {command: told for command, told in found.items() if STEERS.search("".join(told))} == {}
    assert [command for command, (out, _) in found.items() if command.startswith("*") and "evil" not in out] == []


def test_nothing_that_is_listed_or_shown_as_json_steers_a_pipe(evil: Path, run: Command) -> None:
    found = {command: ended for command, ended in _each(run, "--json") if "arguments: --json" not in ended.err}
    assert {command: one for command, one in found.items() if STEERS.search(one.out + one.err)} == {}
    assert all(one.json is not None for one in found.values() if one.status == 0)


_RUN_EACH = """
import json, sys
from hivemind.cli import main
for one in json.loads(sys.argv[1]):
    try:
        main(one)
    except SystemExit:
        pass
"""


def test_nothing_that_is_listed_or_shown_steers_a_terminal(evil: Path) -> None:
    listed = [_typed(command, needed) for command, needed in LOOKING.items()]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN_EACH, json.dumps(listed)], stdout=theirs, stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "HIVEMIND_HIVE": str(evil)},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65_536):
            shown += part
    except OSError:  # the terminal's other end is closed
        pass
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[\d;]*m", "", shown.decode().replace("\r\n", "\n"))  # colours steer nothing
    assert "evil" in text
    assert STEERS.search(text) is None


def test_json_escapes_what_steers_and_keeps_it(evil: Path, run: Command) -> None:
    assert run("memory", "show", EVIL, "--namespace", "shared/hive", "--json").json["content"] == EVIL
    assert run("doc", "show", "evil", "--json").json["text"] == f"{EVIL} again"


def test_an_exported_tree_is_the_same_tree_again_and_steers_nothing(evil: Path, run: Command) -> None:
    exported = run("doc", "export", "evil")
    assert STEERS.search(exported.out) is None
    documents = Hive.open(evil).documents
    again = documents.import_toml(exported.out)
    assert again[0].text == f"{EVIL} again"


def test_nothing_but_the_output_module_and_the_screen_writes_to_the_streams() -> None:
    folder = Path(__file__).parents[2] / "hivemind" / "cli"
    writers = {
        path.name
        for path in folder.glob("*.py")
        if re.search(r"std(out|err)\.(write|buffer)|\bprint\(", path.read_text())
    }
    assert writers == {"output.py", "screen.py", "styled.py"}


def test_what_an_agent_wrote_steers_nobody_who_reads_its_result(hive: Path) -> None:
    opened = Hive.open(hive)
    for number, end in enumerate((opened.tasks.finish, opened.tasks.fail)):
        opened.tasks.add("Which?", id=f"t{number}")
        task = opened.tasks.claim("researcher")
        assert task is not None
        place = end(task, f"# Result\n\n{EVIL}\r\n\tend\n")
        (told,) = (path.read_text() for path in place.glob("*.md") if path.name in ("result.md", "error.md"))
        assert STEERS.search(told) is None
        assert told == f"# Result\n\n{strip_controls(EVIL)}\n\tend\n"
