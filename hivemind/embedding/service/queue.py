"""Whose texts are embedded next: one of each client in turn, so that a question never waits behind a library."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

__all__ = ["FairQueue", "Request"]


@dataclass(slots=True)
class Request:
    """The texts of one request and the rows that are there already."""

    client: int
    number: int
    texts: list[str]
    rows: list[bytes] = field(default_factory=list)
    taken: int = 0

    @property
    def is_answered(self) -> bool:
        return len(self.rows) == len(self.texts)


class FairQueue:
    """Requests of many clients, one at a time of each."""

    def __init__(self) -> None:
        self._requests: OrderedDict[int, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def clients(self) -> list[int]:
        """Who waits."""
        return list(self._requests)

    def of(self, client: int) -> Request:
        """What a client waits for."""
        return self._requests[client]

    def add(self, request: Request) -> None:
        """Raises ValueError if the client's last one is not answered."""
        if request.client in self._requests:
            raise ValueError("one request at a time")
        self._requests[request.client] = request

    def drop(self, client: int) -> None:
        """Forget what a client wanted."""
        self._requests.pop(client, None)

    def take(self, most: int, characters: int) -> list[Request]:
        """Whose next texts are in the next batch: a request stands there once for each of its texts, in their order.

        At most `most` texts, and no more of them once they have that many characters together.
        """
        batch: list[Request] = []
        while waiting := [request for request in self._requests.values() if request.taken < len(request.texts)]:
            for request in waiting:
                if len(batch) == most or characters <= 0:
                    return batch
                characters -= len(request.texts[request.taken])
                request.taken += 1
                batch.append(request)
                self._requests.move_to_end(request.client)
        return batch
