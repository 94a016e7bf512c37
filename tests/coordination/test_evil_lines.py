"""Whatever a line of the log says that is an event, it makes no journal unreadable, in memory or from a snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hivemind.coordination import Journal
from tests.durability import relaxed

DEEP = '{"a":' * 300 + "1" + "}" * 300
VALUES = [
    '"\\ud800"', "NaN", "1e400", "-1", "9" * 4000, '"x\\u0000y"', "[]", "{}", "null", "true", '""', DEEP, '["\\udfff"]',
    '"' + "x" * 70_000 + '"',
]  # fmt: skip
EVENTS = {
    "task.claimed": {"task_id": "t", "agent_id": "ada", "title": "T"},
    "task.parked": {"task_id": "t", "agent_id": "ada", "reason": "r", "until": "2026-01-01T00:00:00+00:00", "asks": "m"},
    "step.added": {"task_id": "t", "step_id": "t.s1", "position": 1, "title": "x", "success_criteria": "c", "tests": "u",
                   "proof": "off", "meta": {"a": 1}},
    "step.noted": {"step_id": "t.s1", "task_id": "t", "text": "n", "checkpoint": "tests"},
    "step.verified": {"step_id": "t.s1", "task_id": "t", "checkpoints": "tests"},
    "step.done": {"step_id": "t.s1", "task_id": "t", "evidence": [{"kind": "CMD", "text": "x"}], "warnings": ["w"]},
    "evidence.captured": {"step_id": "t.s1", "task_id": "t", "evidence": [{"kind": "CMD", "text": "x"}], "commit_id": "c"},
    "lease.claimed": {"step_id": "t.s1", "agent_id": "ada", "ttl_seq": 9, "generation": 1},
    "lease.renewed": {"step_id": "t.s1", "agent_id": "ada", "ttl_seq": 9},
    "agent.started": {"agent_id": "ada", "incarnation": 1},
    "lane.published": {"task_id": "t", "commit_id": "c", "card": 1, "lane": "l", "agent_id": "ada"},
    "branch.created": {"task_id": "t", "branch": "b", "base": "main", "base_seq": 1},
    "paths.reserved": {"agent_id": "ada", "patterns": ["a/*"], "shared": False, "reason": "r"},
    "paths.released": {"agent_id": "ada", "reservations": [1]},
}  # fmt: skip


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_with_any_value_in_any_field_stops_nobody(tmp_path: Path, kind: str):
    journal = Journal(relaxed(tmp_path))
    for name, fields in EVENTS.items():  # something for it to be about
        journal.append(name, **fields)
    for field in EVENTS[kind]:
        for value in VALUES:
            line = json.dumps({"kind": kind, **EVENTS[kind], field: "@"}).replace('"@"', value)
            with open(tmp_path / "journal.jsonl", "a") as file:
                file.write(f'{{"seq":{journal.seq + 1},{line[1:]}\n')
            journal.append("x.y")
    journal.snapshot()
    seen = journal.fingerprint()
    assert len(journal.read()) == journal.seq
    journal.close()
    again = Journal(relaxed(tmp_path))
    assert again.fingerprint() == seen
    again.append("x.y")
    (tmp_path / "snapshot-6.json").unlink()
    assert Journal(relaxed(tmp_path)).seq == again.seq
