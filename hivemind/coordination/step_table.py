"""The steps of a state. Those that a snapshot brought are made when first asked for: of a long history most never are."""

from __future__ import annotations

from dataclasses import fields
from types import MappingProxyType
from typing import Any

from hivemind.coordination.receipt import Receipt
from hivemind.coordination.step import Step

__all__ = ["StepTable"]

_NAMES = tuple(one.name for one in fields(Step))
_EVIDENCE, _META = _NAMES.index("evidence"), _NAMES.index("meta")
_Row = list[Any]


class StepTable:
    """Steps by id, as values or still as the rows of a snapshot."""

    __slots__ = ("_made", "_rows")

    def __init__(self, rows: dict[str, _Row] | None = None) -> None:
        self._made: dict[str, Step] = {}
        self._rows: dict[str, _Row] = {} if rows is None else rows

    def __contains__(self, step_id: object) -> bool:
        return step_id in self._made or step_id in self._rows

    def __getitem__(self, step_id: str) -> Step:
        """The step. Raises KeyError."""
        step = self._made.get(step_id)
        if step is None:
            step = self._made[step_id] = _step(self._rows.pop(step_id))
        return step

    def get(self, step_id: str) -> Step | None:
        """The step, or None."""
        try:
            return self[step_id]
        except KeyError:
            return None

    def put(self, step: Step) -> None:
        self._rows.pop(step.id, None)
        self._made[step.id] = step

    def remove(self, step_id: str) -> None:
        self._made.pop(step_id, None)
        self._rows.pop(step_id, None)

    def rows(self) -> dict[str, _Row]:
        """Every step as plain JSON values."""
        return {**self._rows, **{step_id: _row(step) for step_id, step in self._made.items()}}


def _row(step: Step) -> _Row:
    row = [getattr(step, name) for name in _NAMES]
    row[_EVIDENCE] = [receipt.as_dict() for receipt in step.evidence]
    row[_META] = dict(step.meta)
    return row


def _step(row: _Row) -> Step:
    cells: list[Any] = [tuple(cell) if isinstance(cell, list) else cell for cell in row]
    cells[_EVIDENCE] = tuple(Receipt(**receipt) for receipt in row[_EVIDENCE])
    cells[_META] = MappingProxyType(row[_META])
    return Step(*cells)
