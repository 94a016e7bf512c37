"""hivemind tool and hivemind reserve: the tools of minds, in a person's hands."""

from __future__ import annotations

import json
from pathlib import Path

from hivemind import Hive
from hivemind.tools import MEMBER_TOOLS, TOOLS
from tests.cli.conftest import Command


def test_the_command_line_shows_the_very_tools_that_minds_have(run: Command, hive: Path) -> None:
    schemas = {
        **{name: tool.schema() for name, tool in TOOLS.items()},
        **{n: t.schema() for n, t in MEMBER_TOOLS.items()},
    }
    assert {one["name"]: one for one in run("tool", "list", "--json").json} == schemas
    assert run("tool", "show", "reserve").json == schemas["reserve"]
    assert run("tool", "show", "reserve", "read_file").json == [schemas["reserve"], schemas["read_file"]]
    assert run("tool", "list").out.splitlines()[1].startswith("read_file ")


def test_a_tool_is_used_with_the_checks_that_a_mind_meets(run: Command, hive: Path) -> None:
    (hive / "knowledge").mkdir(exist_ok=True)
    (hive / "knowledge/boats.md").write_text("oak\nash\nelm\n")
    found = run("tool", "call", "search_files", "pattern=oak|elm").json
    assert [hit["line"] for hit in found["hits"]] == [1, 3]
    part = run("tool", "call", "read_file", "path=knowledge/boats.md", "start_line=2", "end_line=2").json
    assert part["text"] == "ash\n"
    sent = run("tool", "call", "send_mail", "to=analyst", "to=researcher", "--agent", "reviewer", "subject=Boats").json
    assert sent["delivered"] == ["analyst", "researcher"]
    assert Hive.open(hive).mail.list("analyst")[0].sender == "reviewer"
    whole = json.dumps({"path": "knowledge/new.md", "text": "x"})
    assert run("tool", "call", "write_file", "--arguments", whole).json["bytes"] == 1


def test_what_cannot_be_used_so_is_refused_in_one_line(run: Command, hive: Path) -> None:
    for words, told in {
        ("no_tool",): "there is no tool 'no_tool'; tools: add_card",
        ("read_file", "path"): "path: not of the form NAME=VALUE",
        ("read_file", "path=hive.yaml", "start_line=x"): "read_file: start_line: must be a valid integer",
        ("read_file", "path=hive.yaml", "start_line=0"): "read_file: start_line: must be greater than",
        ("read_file", "path=hive.yaml", "mode=rw"): "read_file: mode: known arguments: path, start_line",
        ("read_file", "path=../x"): "../x: contains `..`",
        ("read_file", "--arguments", "[]"): "--arguments: not a JSON object",
        ("read_file", "--arguments", "{"): "--arguments: is a text of JSON that cannot be read",
        ("finish_step",): "no step is named, and none is in focus",
        ("finish_task",): "this needs a task in focus",
        ("claim_task",): "the runtime claims this agent's tasks",
    }.items():
        ended = run("tool", "call", *words)
        assert (ended.status, ended.out) == (2, "")
        assert told in ended.err
        assert ended.err.count("\n") == 1


def test_paths_are_reserved_seen_and_given_back(run: Command, hive: Path) -> None:
    taken = run("reserve", "paths", "knowledge/boats/**", "--reason", "new chapter")
    assert taken.out == "human holds knowledge/boats/**: reservation 1.\n"
    [held] = run("reserve", "list", "--json").json
    assert held == {
        "id": 1, "agent_id": "human", "patterns": ["knowledge/boats/**"], "shared": False, "reason": "new chapter",
    }  # fmt: skip
    refused = run("reserve", "paths", "knowledge/*/a.md", "--agent", "analyst", "--json")
    assert refused.status == 1
    assert refused.json["code"] == "RESERVATION_HELD"
    writes = ("tool", "call", "write_file", "path=knowledge/boats/a.md", "text=x", "--agent", "analyst")
    assert "human has reserved" in run(*writes).err
    assert run("reserve", "release", "1").out == "human has released 1.\n"
    assert run("reserve", "list").out == "Nothing is reserved.\n"
    assert run(*writes).status == 0
    assert run("reserve", "release", "1").status == 2
