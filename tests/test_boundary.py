from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from hivemind.boundary import _adapter, as_dataclass, json_fields
from hivemind.errors import UserError
from hivemind.tasks.record import Claim, TaskHandOver, TaskRecord
from hivemind.tasks.task import AddedText, ParkedTask
from hivemind.trace_context import TraceContext

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
RECORD = TaskRecord(
    maker="ada@Boats".lower(), parent="hull", source="leak.md", name="leak.md", text="It drips.", attachments=("a.png",),
    inode=7, claim=Claim("k", "ada", 2, NOON.isoformat()), handed=TaskHandOver("ada", None, "cook", "tired", "now"),
    parked=ParkedTask("waits", None, NOON), said=(AddedText("human", "now", "Hurry"),), trace=TraceContext("0a", "0b"),
    kept={"waits": [{"step": None}]},
)  # fmt: skip
WRONG: list[Any] = [
    None,
    7,
    7.5,
    True,
    "",
    "7",
    "hull/..",
    [],
    ["7"],
    [7],
    {},
    {"key": "k"},
    {"until": "soon"},
    [{"by": "human", "at": "now", "text": "Hurry", "more": 1}],
    "2026-11-27",
]


def test_a_record_is_read_as_it_was_written_without_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = json.loads(json.dumps(json_fields(RECORD)))
    monkeypatch.setattr("hivemind.boundary._adapter", None)
    record = as_dataclass(TaskRecord, fields, "record")
    assert record == RECORD
    assert repr(record.parked) == repr(RECORD.parked)


@pytest.mark.parametrize("name", [*json_fields(RECORD), "unknown", "__pydantic_config__"])
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_record_with_another_value_is_read_as_pydantic_reads_it(name: str, value: Any) -> None:
    def read(decode: Callable[[dict[str, Any]], TaskRecord]) -> TaskRecord | None:
        with suppress(UserError, ValidationError):
            return decode({**json_fields(RECORD), name: value})
        return None

    assert read(lambda fields: as_dataclass(TaskRecord, fields, "record")) == read(_adapter(TaskRecord).validate_python)
