"""The steps of a state. Those that a snapshot brought stay packed until one of their task is asked for.

Of a long history most never are: so opening does not make them, and a process does not carry them as objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from hivemind.coordination.receipt import Receipt
from hivemind.coordination.step import Step

__all__ = ["StepTable", "canonical"]

_NAMES = tuple(one.name for one in fields(Step))
_EVIDENCE, _META = _NAMES.index("evidence"), _NAMES.index("meta")
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def canonical(value: Any) -> bytes:
    """A plain value as JSON: equal values give equal bytes, on one line. Half a character, which a line of the log may have
    by an escape, stays what it is."""
    return _encode(value).encode("utf-8", "surrogatepass")


class StepTable:
    """Steps by id, as values or packed: the steps of one task as one line of JSON."""

    __slots__ = ("_made", "_packed")

    def __init__(self, packed: dict[str, bytes] | None = None) -> None:
        self._made: dict[str, Step] = {}
        self._packed: dict[str, bytes] = {} if packed is None else packed

    def __contains__(self, step_id: str) -> bool:
        return self.get(step_id) is not None

    def __getitem__(self, step_id: str) -> Step:
        """The step. Raises KeyError."""
        step = self.get(step_id)
        if step is None:
            raise KeyError(step_id)
        return step

    def get(self, step_id: str) -> Step | None:
        """The step, or None."""
        step = self._made.get(step_id)
        if step is None and self._packed and (rows := self._packed.pop(_pack_of(step_id), None)) is not None:
            for row in json.loads(rows):
                made = _step(row)
                self._made[made.id] = made
            step = self._made.get(step_id)
        return step

    def put(self, step: Step) -> None:
        """Set a step; what is packed with it is unpacked."""
        self.get(step.id)
        self._made[step.id] = step

    def remove(self, step_id: str) -> None:
        """Take a step out. Raises KeyError."""
        del self._made[self[step_id].id]

    def packed(self) -> Iterator[tuple[str, bytes]]:
        """Every pack and its steps as one line, by name: equal tables give equal bytes."""
        packs: dict[str, list[list[Any]]] = {}
        for step_id in sorted(self._made):
            packs.setdefault(_pack_of(step_id), []).append(_row(self._made[step_id]))
        for name in sorted({*packs, *self._packed}):
            yield name, self._packed[name] if name in self._packed else canonical(packs[name])


def _pack_of(step_id: str) -> str:
    """What a step is packed with: its task, where its id was made by `Steps`."""
    return step_id.rpartition(".s")[0]


def _row(step: Step) -> list[Any]:
    row = [getattr(step, name) for name in _NAMES]
    row[_EVIDENCE] = [receipt.as_dict() for receipt in step.evidence]
    row[_META] = dict(step.meta)
    return row


def _step(row: list[Any]) -> Step:
    cells: list[Any] = [tuple(cell) if isinstance(cell, list) else cell for cell in row]
    cells[_EVIDENCE] = tuple(Receipt(**receipt) for receipt in row[_EVIDENCE])
    cells[_META] = MappingProxyType(row[_META])
    return Step(*cells)
