"""The program's own small records: JSON with a kind and a version that this program knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.runtime.doctor.finding import Finding
from hivemind.runtime.doctor.patient import Patient

__all__ = ["check_records"]

VERSION = 1
"""The version of every record that this program writes; the rooms' READMEs say what each holds."""


def check_records(patient: Patient) -> Iterator[Finding]:
    """Records of agents and tasks. Those that are damaged are set aside; those of another version only told of."""
    for path in _records(patient):
        where = patient.layout.relative(path)
        try:
            record = json.loads(path.read_bytes())
        except FileNotFoundError:
            continue  # moved on while we looked
        except ValueError as error:
            yield Finding(
                "records",
                where,
                f"is damaged ({error}): what it said is lost to its owner",
                "hivemind doctor --fix sets it aside",
                partial(patient.aside.take, path),
                quiet=True,
            )
            continue
        if isinstance(record, dict) and "kind" in record and record.get("version") != VERSION:
            yield Finding(
                "records",
                where,
                f"is a {record['kind']} record of version {record.get('version')!r}, this program knows version {VERSION}",
                "use the hivemind that wrote it; it is refused and kept, never guessed at",
            )


def _records(patient: Patient) -> Iterator[Path]:
    layout = patient.layout
    for pattern in ("agents/*/*.json", "*.json", "journal/format.json"):
        yield from sorted(layout.state.glob(pattern))
    for place in (layout.inbox, layout.active, layout.done, layout.failed):
        for name in ("claim.json", "maker.json", "parked.json", "review.json"):
            yield from sorted(place.glob(f"*/{name}"))
