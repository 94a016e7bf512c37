"""An agent's own log: no file grows without bound, no record is lost or read twice, whoever dies or writes beside."""

from __future__ import annotations

import json
import os

from hivemind.cli.main import main
from hivemind.hive import Hive
from hivemind.presence.agent_log import AgentLog
from hivemind.swarm.agent_files import add_agent
from tests.tasks.conftest import killed_at


def numbers(log: AgentLog) -> list[int]:
    return [record["number"] for record in log.records()]


def test_a_full_segment_is_renamed_and_all_are_read_in_order(tmp_path):
    log = AgentLog(tmp_path, segment_bytes=200)
    assert numbers(log) == []
    for number in range(100):
        log.note({"number": number})
    assert numbers(AgentLog(tmp_path)) == list(range(100))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[:2] == ["log-000000000001.jsonl", "log-000000000002.jsonl"]
    assert names[-1] == "log.jsonl"
    assert all(path.stat().st_size < 250 for path in tmp_path.iterdir())


def test_who_is_killed_when_it_has_renamed_a_segment_loses_nothing(tmp_path):
    log = AgentLog(tmp_path, segment_bytes=1)
    log.note({"number": 1})
    killed_at("fs.move.renamed", lambda: log.note({"number": 2}))
    assert numbers(log) == [1]
    log.note({"number": 3})
    (tmp_path / "log.jsonl").write_bytes((tmp_path / "log.jsonl").read_bytes() + b'{"number": 4')
    assert numbers(log) == [1, 3]
    log.note({"number": 5})
    assert numbers(log) == [1, 3, 5]


def test_two_who_write_at_once_lose_none_of_each_others_records(tmp_path):
    def write(first: int) -> None:
        for number in range(first, first + 300):
            AgentLog(tmp_path, segment_bytes=100).note({"number": number})

    child = os.fork()
    if child == 0:
        write(0)
        os._exit(0)
    write(300)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(numbers(AgentLog(tmp_path))) == list(range(600))


def test_while_one_reads_another_may_rotate(tmp_path):
    log = AgentLog(tmp_path, segment_bytes=30)
    for number in range(10):
        log.note({"number": number})
    found = []
    for record in log.records():
        found.append(record["number"])
        log.note({"number": 100 + len(found)})
        assert len(found) < 100
    assert found[:10] == list(range(10))
    assert len(set(found)) == len(found)


def test_a_log_that_cannot_be_renamed_grows(tmp_path):
    log = AgentLog(tmp_path, segment_bytes=1)
    log.note({"number": 1})
    (tmp_path / f"log-{'9' * 245}.jsonl").write_text("")  # the name with the next number is too long
    log.note({"number": 2})
    assert numbers(log) == [1, 2]


def test_the_command_line_reads_across_the_segments(tmp_path, capsys):
    hive = Hive.init(tmp_path / "hive")
    add_agent(hive, "claude", mind="mcp")
    log = AgentLog(hive.layout.agent_state("claude"), segment_bytes=1)
    hive.layout.agent_state("claude").mkdir(parents=True, exist_ok=True)
    for number in (1, 2):
        calls = [{"tool": "check_mailbox", "arguments": {}, "ok": True, "result": {"messages": []}}]
        log.note({"kind": "turn", "agent": "claude", "about": {"kind": "message"}, "calls": calls, "number": number})
    words = ["--hive", str(tmp_path / "hive"), "log", "--agent"]
    assert main([*words, "claude", "--json"]) == 0
    assert [record["number"] for record in json.loads(capsys.readouterr().out)] == [1, 2]
    assert main([*words, "claude"]) == 0
    told = 'turn  agent=claude  about={{"kind": "message"}}  number={}\n'
    call = '    tool=check_mailbox  arguments={}  ok=true  result={"messages": []}\n'
    assert capsys.readouterr().out == "".join(told.format(number) + call for number in (1, 2))
    assert main([*words, "nobody"]) == 2
    assert main([*words, "claude", "--follow"]) == 2
