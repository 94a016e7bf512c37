"""The requests to a hive through its public doors, and its answers: checkers hold the hive to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

__all__ = ["Ledger", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request: of what kind, under which key, when (ns of the monotonic clock, which no fault touches), and its answer.

    `status` 0 is an acknowledgement: from `end` on the hive is held to it. Any other status, or None (nobody lived to
    answer), leaves open whether it took effect; it may have done so once, and wholly, or not at all.
    """

    kind: str
    key: str
    asked: dict[str, Any]
    begin: int
    end: int | None = None
    status: int | None = None
    answer: str = ""

    @property
    def acknowledged(self) -> bool:
        return self.status == 0


@dataclass(slots=True)
class Ledger:
    """All requests in the order in which they were made."""

    requests: list[Request] = field(default_factory=list)

    def add(self, request: Request) -> None:
        self.requests.append(request)

    def of(self, kind: str) -> dict[str, list[Request]]:
        """The requests of a kind by their key: who asks again under the same key asks for the same."""
        requests: dict[str, list[Request]] = {}
        for request in self.requests:
            if request.kind == kind:
                requests.setdefault(request.key, []).append(request)
        return requests

    def acknowledged(self, kind: str) -> dict[str, Request]:
        """Of each key that the hive has acknowledged, the first request that it did."""
        requests: dict[str, Request] = {}
        for request in self.requests:
            if request.kind == kind and request.acknowledged:
                requests.setdefault(request.key, request)
        return requests

    def in_doubt(self, kind: str) -> dict[str, Request]:
        """Of each key that was asked for and never acknowledged, the last request."""
        answers = self.acknowledged(kind)
        return {key: requests[-1] for key, requests in self.of(kind).items() if key not in answers}

    def until(self, moment: int) -> Ledger:
        """The ledger of somebody who was cut off at `moment` (ns): what was answered later is in doubt."""
        return Ledger(list(self._cut_at(moment)))

    def _cut_at(self, moment: int) -> Iterator[Request]:
        for request in self.requests:
            if request.begin <= moment:
                late = request.end is None or request.end > moment
                yield replace(request, end=None, status=None, answer="") if late else request

    def save(self, path: Path) -> None:
        path.write_text("".join(json.dumps(asdict(request), ensure_ascii=False) + "\n" for request in self.requests))

    @classmethod
    def load(cls, path: Path) -> Ledger:
        return cls([Request(**json.loads(line)) for line in path.read_text().splitlines()])
